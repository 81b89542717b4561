//! The proleptic Gregorian calendar, counted in days from 2000-01-01. Years are astronomical: 0 is 1 BC.

/// Julian day number of 2000-01-01.
pub const EPOCH_JULIAN_DAY: i64 = 2_451_545;

/// A day on the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Astronomical year; 0 is 1 BC.
    pub year: i64,
    /// 1–12.
    pub month: u8,
    /// 1–31.
    pub day: u8,
}

/// Days from 2000-01-01 to this day. The month must be 1–12; a day beyond its month runs into the next.
pub fn days_from_civil(civil: Civil) -> i64 {
    // Years begin in March here, so that the leap day is a year's last.
    let month = i64::from(civil.month);
    let year = civil.year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + i64::from(civil.day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 730,425 days lie between 0000-03-01 and 2000-01-01.
    era * 146_097 + day_of_era - 730_425
}

/// The day so many days after 2000-01-01.
pub fn civil_from_days(days: i64) -> Civil {
    let days = days + 730_425;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    Civil {
        year: era * 400 + year_of_era + i64::from(month <= 2),
        month: month as u8,
        day: (day_of_year - (153 * shifted + 2) / 5 + 1) as u8,
    }
}

/// Whether an astronomical year has a leap day.
pub const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days of a month, 1–12.
pub const fn days_in_month(year: i64, month: u8) -> u8 {
    match month {
        2 => 28 + is_leap(year) as u8,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// 0 for Sunday … 6 for Saturday.
pub fn weekday(days: i64) -> u8 {
    // 2000-01-01 was a Saturday.
    (days + 6).rem_euclid(7) as u8
}

/// 1 for January 1st … 366.
pub fn day_of_year(civil: Civil) -> i64 {
    days_from_civil(civil) - days_from_civil(Civil { month: 1, day: 1, ..civil }) + 1
}

/// ISO 8601 week (1–53) and the astronomical year it belongs to.
pub fn iso_week(days: i64) -> (i64, u8) {
    // A week belongs to the year of its Thursday.
    let thursday = days - (i64::from(weekday(days)) + 6) % 7 + 3;
    let civil = civil_from_days(thursday);
    (civil.year, ((day_of_year(civil) - 1) / 7 + 1) as u8)
}

/// Days from 2000-01-01 to the Monday of an ISO week.
pub fn iso_week_start(year: i64, week: i64) -> i64 {
    let fourth = days_from_civil(Civil { year, month: 1, day: 4 });
    fourth - (i64::from(weekday(fourth)) + 6) % 7 + (week - 1) * 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_lead_back_to_each_other() {
        for days in (-2_451_545..3_000_000).step_by(97) {
            let civil = civil_from_days(days);
            assert_eq!(days_from_civil(civil), days);
            assert!((1..=days_in_month(civil.year, civil.month)).contains(&civil.day));
        }
        assert_eq!(civil_from_days(0), Civil { year: 2000, month: 1, day: 1 });
        assert_eq!(civil_from_days(-2_451_545), Civil { year: -4713, month: 11, day: 24 });
        assert_eq!(days_from_civil(Civil { year: 1970, month: 1, day: 1 }), -10_957);
    }

    #[test]
    fn weeks_follow_iso_8601() {
        let days = |year, month, day| days_from_civil(Civil { year, month, day });
        assert_eq!(iso_week(days(2005, 1, 1)), (2004, 53));
        assert_eq!(iso_week(days(2024, 12, 30)), (2025, 1));
        assert_eq!(weekday(days(2024, 1, 15)), 1);
        assert_eq!(iso_week_start(2025, 1), days(2024, 12, 30));
    }
}
