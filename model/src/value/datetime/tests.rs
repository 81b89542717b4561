//! Dates and spans: what the golden files do not reach — words that need "now", zones beyond the data, random texts.

use proptest::prelude::*;

use super::*;
use crate::types::Typmod;
use crate::value::Context;

fn berlin() -> Context {
    let zone = Zone::parse("Europe/Berlin").expect("a zone");
    let now = parse_timestamptz("2024-07-15 23:30:00+00", &Context::default()).expect("a time");
    Context { zone, now: Some(now), ..Context::default() }
}

fn shown(timestamp: Timestamp, zone: &Zone) -> String {
    let mut out = String::new();
    write_timestamptz(timestamp, zone, &mut out);
    out
}

#[test]
fn words_for_now_take_the_time_they_are_given() {
    let context = berlin();
    let cases = [
        ("now", "2024-07-16 01:30:00+02"),
        ("today", "2024-07-16 00:00:00+02"),
        ("tomorrow", "2024-07-17 00:00:00+02"),
        ("yesterday 10:00", "2024-07-15 10:00:00+02"),
    ];
    for (word, expected) in cases {
        let timestamp = parse_timestamptz(word, &context).expect(word);
        assert_eq!(shown(timestamp, &context.zone), expected);
    }
    assert_eq!(parse_date("today", &context).map(Date::days), Ok(8_963));
    assert!(parse_timestamptz("now", &Context::default()).is_err());
}

#[test]
fn the_order_of_an_ambiguous_date_is_the_sessions() {
    let read = |text: &str, date_order: DateOrder| {
        let mut out = String::new();
        write_date(parse_date(text, &Context { date_order, ..Context::default() }).expect(text), &mut out);
        out
    };
    assert_eq!(read("01/02/03", DateOrder::Mdy), "2003-01-02");
    assert_eq!(read("01/02/03", DateOrder::Dmy), "2003-02-01");
    assert_eq!(read("01/02/03", DateOrder::Ymd), "2001-02-03");
    assert_eq!(read("2003-02-01", DateOrder::Dmy), "2003-02-01");
}

#[test]
fn zones_are_named_as_show_names_them() {
    let name = |text: &str| Zone::parse(text).map(|zone| zone.name().to_owned());
    assert_eq!(name("europe/berlin").as_deref(), Ok("Europe/Berlin"));
    assert_eq!(name("utc").as_deref(), Ok("UTC"));
    assert_eq!(Zone::fixed(7_200).map(|zone| zone.name().to_owned()).as_deref(), Ok("<+02>-02"));
    assert_eq!(Zone::fixed(-12_600).map(|zone| zone.name().to_owned()).as_deref(), Ok("<-03:30>+03:30"));
    let error = name("Nowhere/City").expect_err("no such zone");
    assert_eq!((error.code(), error.message()), ("22023", "time zone \"Nowhere/City\" not recognized"));
    let context = berlin();
    assert_eq!(context.zone.abbreviation_at(context.now.expect("set")), "CEST");
    assert_eq!(Zone::fixed(7_200).expect("a zone").abbreviation_at(Timestamp::MIN), "+02");
}

#[test]
fn every_name_in_the_data_is_a_zone() {
    let names = Zone::names();
    assert!(names.len() > 400);
    for name in names {
        let zone = Zone::parse(&name).expect(&name);
        assert!(zone.name().eq_ignore_ascii_case(&name), "{name} {}", zone.name());
    }
}

#[test]
fn rules_go_on_for_ever_and_infinities_stay() {
    let zone = berlin().zone;
    for year in ["9500", "20000", "290000"] {
        let summer = parse_timestamptz(&format!("{year}-07-15 12:00:00"), &berlin()).expect("in range");
        assert_eq!(zone.offset_at(summer), 7_200, "{year}");
    }
    assert_eq!(zone.to_local(Timestamp::INFINITY), Timestamp::INFINITY);
    assert_eq!(zone.to_instant(Timestamp::NEG_INFINITY), Ok(Timestamp::NEG_INFINITY));
}

#[test]
fn sums_end_at_the_ends_of_time() {
    let day = Interval::new(0, 1, 0);
    assert!(Timestamp::MAX.add_interval(day).is_err());
    assert!(Timestamp::MIN.add_interval(day.neg().expect("small")).is_err());
    assert!(Timestamp::MIN.add_interval(Interval::new(i32::MAX, i32::MAX, i64::MAX)).is_err());
    assert_eq!(Timestamp::INFINITY.add_interval(day), Ok(Timestamp::INFINITY));
    assert!(Date::MAX.add_days(1).is_err() && Date::MIN.add_days(i32::MIN).is_err());
    assert!(Interval::new(i32::MIN, 0, 0).neg().is_err());
    assert!(Interval::new(i32::MAX, i32::MAX, i64::MAX).mul(2.0).is_err());
    assert!(Interval::new(1, 1, 1).mul(f64::NAN).is_err());
}

proptest! {
    #[test]
    fn every_timestamp_reads_back(micros in Timestamp::MIN.micros()..=Timestamp::MAX.micros()) {
        let context = berlin();
        let timestamp = Timestamp::from_micros(micros).expect("in range");
        let mut text = String::new();
        write_timestamp(timestamp, &mut text);
        prop_assert_eq!(parse_timestamp(&text, &context), Ok(timestamp), "{}", text);
        let text = shown(timestamp, &context.zone);
        // Local clocks may run past the range at its very ends.
        if micros.checked_add(DAY).is_some_and(|later| later < Timestamp::MAX.micros()) && micros - DAY > Timestamp::MIN.micros() {
            prop_assert_eq!(parse_timestamptz(&text, &context), Ok(timestamp), "{}", text);
        }
    }

    #[test]
    fn every_interval_reads_back(months in any::<i32>(), days in any::<i32>(), micros in any::<i64>(), shift in 0..63u32) {
        let interval = Interval::new(months >> (shift % 32), days >> (shift % 32), micros >> shift);
        let mut text = String::new();
        write_interval(interval, &mut text);
        // The most negative count of microseconds has no positive to be read as.
        if interval.micros != i64::MIN {
            prop_assert_eq!(parse_interval(&text, Typmod::NONE), Ok(interval), "{}", text);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9a-zA-Z:./+ ,@-]{0,30}", digits in "[0-9]{1,25}") {
        let context = berlin();
        for text in [text.clone(), format!("{digits}-01-01 {text}"), format!("10:{digits} {text}"), format!("{digits} days {text}")] {
            let _ = (parse_date(&text, &context), parse_time(&text, &context), parse_timestamp(&text, &context));
            let _ = (parse_timestamptz(&text, &context), parse_interval(&text, Typmod::NONE));
        }
    }

    #[test]
    fn local_clocks_lead_back_to_their_instant(micros in -1_000_000_000_000_000i64..1_000_000_000_000_000) {
        let zone = berlin().zone;
        let instant = Timestamp::from_micros(micros).expect("in range");
        let back = zone.to_instant(zone.to_local(instant)).expect("in range");
        // In the hour that autumn repeats, the later instant is meant.
        let repeated = back.micros() - micros;
        prop_assert!(repeated == 0 || repeated == HOUR, "{} {}", micros, repeated);
    }
}
