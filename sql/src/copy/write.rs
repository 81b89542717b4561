//! COPY TO: batches as text, CSV or binary.

use model::value;

use super::{Format, Header, Options, QuoteColumns, binary::SIGNATURE};
use crate::batch::Batch;

/// Writes rows down.
pub struct CopyTo {
    options: Options,
    columns: Vec<String>,
    force_quote: Vec<bool>,
    context: value::Context,
    cell: Vec<u8>,
    scratch: String,
    rows: u64,
}

impl CopyTo {
    /// For rows of these columns.
    pub fn new(options: &Options, columns: &[String], context: value::Context) -> Self {
        let force_quote = columns.iter().map(|column| match &options.force_quote {
            QuoteColumns::All => true,
            QuoteColumns::Some(some) => some.contains(column),
        });
        Self {
            force_quote: force_quote.collect(),
            options: options.clone(),
            columns: columns.to_vec(),
            context,
            cell: Vec::new(),
            scratch: String::new(),
            rows: 0,
        }
    }

    /// What comes before the rows.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        match self.options.format {
            Format::Binary => {
                out.extend_from_slice(SIGNATURE);
                out.extend_from_slice(&[0; 8]);
            }
            Format::Text | Format::Csv if self.options.header != Header::None => {
                for (index, column) in self.columns.iter().enumerate() {
                    if index > 0 {
                        out.push(self.options.delimiter);
                    }
                    match self.options.format {
                        Format::Csv => {
                            write_csv(column.as_bytes(), &self.options, false, self.columns.len() == 1, out)
                        }
                        Format::Text | Format::Binary => {
                            write_text(column.as_bytes(), self.options.delimiter, out)
                        }
                    }
                }
                out.push(b'\n');
            }
            Format::Text | Format::Csv => {}
        }
    }

    /// One row.
    pub fn row(&mut self, batch: &Batch, row: usize, out: &mut Vec<u8>) {
        self.rows += 1;
        if self.options.format == Format::Binary {
            return self.binary_row(batch, row, out);
        }
        for column in 0..batch.width() {
            if column > 0 {
                out.push(self.options.delimiter);
            }
            self.cell.clear();
            if !batch.write_text(row, column, &self.context, &mut self.scratch, &mut self.cell) {
                out.extend_from_slice(self.options.null.as_bytes());
            } else if self.options.format == Format::Csv {
                let force = self.force_quote.get(column).copied().unwrap_or(false);
                write_csv(&self.cell, &self.options, force, batch.width() == 1, out);
            } else {
                write_text(&self.cell, self.options.delimiter, out);
            }
        }
        out.push(b'\n');
    }

    fn binary_row(&mut self, batch: &Batch, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&(batch.width() as i16).to_be_bytes());
        for column in 0..batch.width() {
            let at = out.len();
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            if batch.write_binary(row, column, out) {
                let length = (out.len() - at - 4) as i32;
                out[at..at + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
    }

    /// All rows of a batch.
    pub fn batch(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        (0..batch.len()).for_each(|row| self.row(batch, row, out));
    }

    /// What comes behind the rows.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.options.format == Format::Binary {
            out.extend_from_slice(&(-1_i16).to_be_bytes());
        }
    }

    /// Rows written so far: the count of the command tag.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

fn write_text(cell: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    for byte in cell {
        let escaped = match byte {
            b'\\' => b'\\',
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            byte if *byte == delimiter => *byte,
            byte => {
                out.push(*byte);
                continue;
            }
        };
        // A delimiter that has an escape of its own is written as that.
        out.extend_from_slice(&[b'\\', escaped]);
    }
}

fn write_csv(cell: &[u8], options: &Options, force: bool, only_column: bool, out: &mut Vec<u8>) {
    let special =
        |byte: &u8| *byte == options.delimiter || *byte == options.quote || matches!(byte, b'\n' | b'\r');
    // A lone `\.` would end the data.
    let quoted = force
        || cell == options.null.as_bytes()
        || (only_column && cell == b"\\.")
        || cell.iter().any(special);
    if !quoted {
        return out.extend_from_slice(cell);
    }
    out.push(options.quote);
    for byte in cell {
        if *byte == options.quote || *byte == options.escape {
            out.push(options.escape);
        }
        out.push(*byte);
    }
    out.push(options.quote);
}
