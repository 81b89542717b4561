//! How results look: aligned table, expanded, CSV or JSON.
//!
//! Invariants: CSV and JSON are for programs: nothing but data goes to stdout in those formats.

use std::io::{self, Write};

use clap::ValueEnum;

use crate::cli::client::Column;

/// What rows look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, for eyes
    #[default]
    Table,
    /// Comma-separated values with a header
    Csv,
    /// An array of objects
    Json,
}

/// OIDs of numbers: aligned to the right, and bare in JSON.
const NUMBERS: [u32; 7] = [20, 21, 23, 26, 700, 701, 1700];
const BOOLEAN: u32 = 16;
const JSONS: [u32; 2] = [114, 3802];

/// A result, collected for printing.
#[derive(Default)]
pub(crate) struct Sheet {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Sheet {
    /// Writes it.
    pub(crate) fn write(&self, out: &mut dyn Write, format: Format, expanded: bool) -> io::Result<()> {
        match format {
            Format::Table if expanded => self.write_expanded(out),
            Format::Table => self.write_table(out),
            Format::Csv => self.write_csv(out),
            Format::Json => self.write_json(out),
        }
    }

    fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines = |text: &str| text.lines().map(width).max().unwrap_or(0);
        let mut widths: Vec<usize> = self.columns.iter().map(|column| width(&column.name)).collect();
        for row in &self.rows {
            for (column, value) in widths.iter_mut().zip(row) {
                *column = (*column).max(lines(value.as_deref().unwrap_or_default()));
            }
        }
        let names: Vec<String> = self
            .columns
            .iter()
            .zip(&widths)
            .map(|(column, wide)| {
                let blank = wide - width(&column.name);
                format!(" {}{}{} ", " ".repeat(blank / 2), column.name, " ".repeat(blank - blank / 2))
            })
            .collect();
        writeln!(out, "{}", names.join("|"))?;
        let rules: Vec<String> = widths.iter().map(|wide| "-".repeat(wide + 2)).collect();
        writeln!(out, "{}", rules.join("+"))?;
        for row in &self.rows {
            self.write_table_row(out, row, &widths)?;
        }
        let count = self.rows.len();
        writeln!(out, "({count} row{})\n", if count == 1 { "" } else { "s" })
    }

    fn write_table_row(
        &self,
        out: &mut dyn Write,
        row: &[Option<String>],
        widths: &[usize],
    ) -> io::Result<()> {
        let cells: Vec<Vec<&str>> =
            row.iter().map(|value| value.as_deref().unwrap_or_default().split('\n').collect()).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..height {
            let mut shown = String::new();
            for (at, (cell, wide)) in cells.iter().zip(widths).enumerate() {
                let text = cell.get(line).copied().unwrap_or_default();
                let blank = " ".repeat(wide.saturating_sub(width(text)));
                let is_number = self.columns.get(at).is_some_and(|column| NUMBERS.contains(&column.oid));
                let more = if line + 1 < cell.len() { '+' } else { ' ' };
                let bar = if at + 1 < cells.len() { "|" } else { "" };
                if is_number {
                    shown.push_str(&format!(" {blank}{text}{more}{bar}"));
                } else {
                    shown.push_str(&format!(" {text}{blank}{more}{bar}"));
                }
            }
            writeln!(out, "{}", shown.trim_end())?;
        }
        Ok(())
    }

    fn write_expanded(&self, out: &mut dyn Write) -> io::Result<()> {
        let wide = self.columns.iter().map(|column| width(&column.name)).max().unwrap_or(0);
        for (number, row) in self.rows.iter().enumerate() {
            writeln!(out, "-[ RECORD {} ]{}", number + 1, "-".repeat(wide))?;
            for (column, value) in self.columns.iter().zip(row) {
                let blank = " ".repeat(wide - width(&column.name));
                writeln!(out, "{}{blank} | {}", column.name, value.as_deref().unwrap_or_default())?;
            }
        }
        writeln!(out)
    }

    fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(self.columns.iter().map(|column| &column.name))?;
        for row in &self.rows {
            csv.write_record(row.iter().map(|value| value.as_deref().unwrap_or_default()))?;
        }
        csv.flush()
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "[")?;
        for (at, row) in self.rows.iter().enumerate() {
            write!(out, "{}{}", if at == 0 { "\n" } else { ",\n" }, json_row(&self.columns, row))?;
        }
        writeln!(out, "\n]")
    }
}

/// One row as a JSON object.
pub(crate) fn json_row(columns: &[Column], row: &[Option<String>]) -> String {
    let fields: Vec<String> = columns
        .iter()
        .zip(row)
        .map(|(column, value)| {
            let name = serde_json::Value::from(column.name.as_str());
            format!("{name}:{}", json_value(column.oid, value.as_deref()))
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn json_value(oid: u32, value: Option<&str>) -> String {
    match value {
        None => "null".to_owned(),
        Some("t") if oid == BOOLEAN => "true".to_owned(),
        Some("f") if oid == BOOLEAN => "false".to_owned(),
        // A float may be NaN, which JSON cannot say.
        Some(number) if NUMBERS.contains(&oid) && is_json(number) => number.to_owned(),
        Some(json) if JSONS.contains(&oid) => json.replace('\n', " "),
        Some(text) => serde_json::Value::from(text).to_string(),
    }
}

fn is_json(number: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(number).is_ok()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let column = |name: &str, oid| Column { name: name.to_owned(), oid };
        Sheet {
            columns: vec![column("id", 23), column("what", 25), column("ok", 16)],
            rows: vec![
                vec![Some("1".into()), Some("a\nb".into()), Some("t".into())],
                vec![Some("20".into()), None, Some("f".into())],
            ],
        }
    }

    fn shown(format: Format, expanded: bool) -> String {
        let mut out = Vec::new();
        sheet().write(&mut out, format, expanded).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_is_aligned_as_psql_does() {
        let expected =
            " id | what | ok \n----+------+----\n  1 | a   +| t\n    | b    |\n 20 |      | f\n(2 rows)\n\n";
        assert_eq!(shown(Format::Table, false), expected);
    }

    #[test]
    fn programs_get_data_and_nothing_else() {
        assert_eq!(shown(Format::Csv, false), "id,what,ok\n1,\"a\nb\",t\n20,,f\n");
        let json: serde_json::Value = serde_json::from_str(&shown(Format::Json, false)).unwrap();
        assert_eq!(json[1], serde_json::json!({"id": 20, "what": null, "ok": false}));
        assert!(shown(Format::Table, true).starts_with("-[ RECORD 1 ]"));
    }
}
