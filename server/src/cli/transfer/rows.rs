//! Rows of a file, as lines of COPY's CSV, with the place in the file where each ends.
//!
//! Invariants: what is read is never wholly in memory; one row at a time.

use std::io::{self, BufRead, Read};

use super::Layout;

/// One row.
pub(super) struct Row {
    /// As a line of COPY … (FORMAT csv, NULL '\N').
    pub(super) line: Vec<u8>,
    /// Bytes of the file up to its end.
    pub(super) end: u64,
    /// Its number, 1-based.
    pub(super) number: u64,
}

/// Why a row could not be read; the next may be fine.
pub(super) struct BadRow {
    /// Its number, 1-based.
    pub(super) number: u64,
    /// Bytes of the file up to its end.
    pub(super) end: u64,
    /// What is wrong.
    pub(super) problem: String,
}

/// Reads rows.
pub(super) struct Rows<R> {
    source: Source<R>,
    columns: Vec<String>,
    null: String,
    base: u64,
    number: u64,
}

enum Source<R> {
    Csv { reader: Box<csv::Reader<R>>, record: csv::ByteRecord },
    Jsonl { reader: io::BufReader<R>, at: u64 },
}

/// What COPY is told that null is: not a text that a file would hold unquoted by chance.
pub(super) const NULL: &str = "\\N";

impl<R: Read> Rows<R> {
    /// Rows of a file of which `base` bytes and `number` rows lie before.
    pub(super) fn new(
        layout: Layout,
        file: R,
        delimiter: u8,
        columns: &[String],
        null: &str,
        base: u64,
        number: u64,
    ) -> Self {
        let source = match layout {
            Layout::Csv => Source::Csv {
                reader: Box::new(
                    csv::ReaderBuilder::new()
                        .has_headers(false)
                        .flexible(true)
                        .delimiter(delimiter)
                        .from_reader(file),
                ),
                record: csv::ByteRecord::new(),
            },
            Layout::Jsonl => Source::Jsonl { reader: io::BufReader::new(file), at: 0 },
        };
        Self { source, columns: columns.to_vec(), null: null.to_owned(), base, number }
    }

    /// Reads the CSV header; it is not a row.
    pub(super) fn take_header(&mut self) -> io::Result<Vec<String>> {
        let Source::Csv { reader, record } = &mut self.source else { return Ok(Vec::new()) };
        reader.read_byte_record(record).map_err(io::Error::other)?;
        let name =
            |field: &[u8]| String::from_utf8_lossy(field).trim_start_matches('\u{feff}').trim().to_owned();
        Ok(record.iter().map(name).collect())
    }

    /// Sets the columns, once the header has told them.
    pub(super) fn set_columns(&mut self, columns: &[String]) {
        self.columns = columns.to_vec();
    }

    /// The next row; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<Row, BadRow>>> {
        self.number += 1;
        match &mut self.source {
            Source::Csv { reader, record } => {
                if !reader.read_byte_record(record).map_err(io::Error::other)? {
                    return Ok(None);
                }
                let end = self.base + reader.position().byte();
                if record.len() != self.columns.len() {
                    let problem = format!("{} fields where {} are due", record.len(), self.columns.len());
                    return Ok(Some(Err(BadRow { number: self.number, end, problem })));
                }
                let null = self.null.as_bytes();
                let fields = record.iter().map(|field| (field != null).then_some(field));
                Ok(Some(Ok(Row { line: csv_line(fields), end, number: self.number })))
            }
            Source::Jsonl { reader, at } => loop {
                let mut line = Vec::new();
                let count = reader.read_until(b'\n', &mut line)?;
                if count == 0 {
                    return Ok(None);
                }
                *at += count as u64;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let (end, number) = (self.base + *at, self.number);
                let row = json_line(&line, &self.columns);
                return Ok(Some(match row {
                    Ok(line) => Ok(Row { line, end, number }),
                    Err(problem) => Err(BadRow { number, end, problem }),
                }));
            },
        }
    }
}

fn csv_line<'a>(fields: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut line = Vec::new();
    for (at, field) in fields.enumerate() {
        if at > 0 {
            line.push(b',');
        }
        match field {
            None => line.extend(NULL.as_bytes()),
            Some(field) => {
                line.push(b'"');
                for byte in field {
                    if *byte == b'"' {
                        line.push(b'"');
                    }
                    line.push(*byte);
                }
                line.push(b'"');
            }
        }
    }
    line.push(b'\n');
    line
}

fn json_line(line: &[u8], columns: &[String]) -> Result<Vec<u8>, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(line).map_err(|error| format!("not a JSON object: {error}"))?;
    if let Some(other) = object.keys().find(|key| !columns.contains(key)) {
        return Err(format!("field \"{other}\" is not a column"));
    }
    let values: Vec<Option<String>> = columns
        .iter()
        .map(|column| match object.get(column) {
            None | Some(serde_json::Value::Null) => None,
            Some(serde_json::Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        })
        .collect();
    Ok(csv_line(values.iter().map(|value| value.as_deref().map(str::as_bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(layout: Layout, text: &str) -> Vec<Result<String, String>> {
        let columns = ["a".to_owned(), "b".to_owned()];
        let mut rows = Rows::new(layout, text.as_bytes(), b',', &columns, "", 0, 0);
        let mut lines = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            lines.push(row.map(|row| String::from_utf8(row.line).unwrap()).map_err(|bad| bad.problem));
        }
        lines
    }

    #[test]
    fn csv_rows_keep_quotes_newlines_and_nulls() {
        let read = lines(Layout::Csv, "1,\"x \"\"y\"\"\nz\"\n2,\n3\n");
        assert_eq!(read[0], Ok("\"1\",\"x \"\"y\"\"\nz\"\n".to_owned()));
        assert_eq!(read[1], Ok("\"2\",\\N\n".to_owned()));
        assert!(read[2].is_err());
    }

    #[test]
    fn json_rows_are_by_name_and_unknown_fields_are_refused() {
        let read = lines(Layout::Jsonl, "{\"b\":{\"x\":[1]},\"a\":null}\n\n{\"c\":1}\n[1]\n");
        assert_eq!(read[0], Ok("\\N,\"{\"\"x\"\":[1]}\"\n".to_owned()));
        assert!(read[1].is_err() && read[2].is_err());
    }
}
