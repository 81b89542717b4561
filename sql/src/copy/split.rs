//! Rows of fields from chunks of bytes.
//!
//! Invariants:
//! - No byte is looked at twice for the end of its row, however small the chunks are.
//! - What is held is at most one row and one chunk; a row beyond [`ROW_BYTES_MAX`] is `54000`.

use model::{Code, Error, Result};

use super::{Format, Header, Options, binary, csv, text};

/// The longest row that is read.
pub(super) const ROW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The fields of one row.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Where each ends; none after `null`.
    ends: Vec<usize>,
    nulls: Vec<bool>,
}

impl Fields {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A field; none for null.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        if self.nulls[index] {
            return None;
        }
        let from = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[from..self.ends[index]])
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.nulls.clear();
    }

    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Where the field that is being made begins.
    pub(super) fn open_at(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Ends the field that is being made.
    pub(super) fn close(&mut self, null: bool) {
        if null {
            self.bytes.truncate(self.open_at());
        }
        self.ends.push(self.bytes.len());
        self.nulls.push(null);
    }
}

/// How lines end, once one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineEnd {
    Newline,
    Return,
    ReturnNewline,
}

/// What the next piece of input is.
pub(super) enum Piece {
    /// A line: so many bytes, and so many with its end.
    Line(usize, usize),
    /// More bytes are needed.
    More,
    /// The end of the data (`\.`, or the trailer).
    End,
}

/// Cuts chunks into rows.
pub struct Splitter {
    options: Options,
    columns: Vec<String>,
    force_not_null: Vec<bool>,
    force_null: Vec<bool>,
    pending: Vec<u8>,
    /// Bytes of `pending` that were given already.
    given: usize,
    lines: text::Lines,
    header_due: bool,
    finished: bool,
    ended: bool,
    line: u64,
    /// The row that was given last, as it came.
    raw: std::ops::Range<usize>,
    binary: binary::State,
}

impl Splitter {
    /// For rows of these columns.
    pub fn new(options: &Options, columns: &[String]) -> Self {
        let among = |list: &[String]| columns.iter().map(|column| list.contains(column)).collect();
        Self {
            force_not_null: among(&options.force_not_null),
            force_null: among(&options.force_null),
            columns: columns.to_vec(),
            header_due: options.header != Header::None,
            options: options.clone(),
            pending: Vec::new(),
            given: 0,
            lines: text::Lines::default(),
            finished: false,
            ended: false,
            line: 0,
            raw: 0..0,
            binary: binary::State::default(),
        }
    }

    /// Takes in a chunk.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<()> {
        if self.given > 0 {
            self.pending.drain(..self.given);
            self.lines.shift(self.given);
            self.given = 0;
            self.raw = 0..0;
        }
        if self.ended && self.options.format == Format::Binary && !chunk.is_empty() {
            return Err(Error::new(Code::BadCopyFileFormat, "received copy data after EOF marker"));
        }
        if !self.ended {
            self.pending.extend_from_slice(chunk);
        }
        Ok(())
    }

    /// No chunk will follow.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The number of the line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The row that was read last, as it came.
    pub fn raw(&self) -> &[u8] {
        &self.pending[self.raw.clone()]
    }

    /// The fields of the next row; false if more bytes are needed, or at the end.
    pub fn next(&mut self, fields: &mut Fields) -> Result<bool> {
        loop {
            fields.clear();
            if self.ended {
                return Ok(false);
            }
            if self.options.format == Format::Binary {
                return self.next_binary(fields);
            }
            let input = &self.pending[self.given..];
            let csv = self.options.format == Format::Csv;
            self.lines.base(self.given);
            let piece = if csv {
                self.lines.next_csv(input, self.options.quote, self.options.escape, self.finished)
            } else {
                self.lines.next_text(input, self.finished)
            };
            let piece = piece.inspect_err(|_| {
                self.raw = self.given..self.pending.len();
                self.line += 1;
            })?;
            let (length, whole) = match piece {
                Piece::Line(length, whole) => (length, whole),
                Piece::End => {
                    self.ended = true;
                    return Ok(false);
                }
                Piece::More if input.len() > ROW_BYTES_MAX => return Err(too_long()),
                Piece::More => return Ok(false),
            };
            self.line += 1 + self.lines.take_inner();
            self.raw = self.given..self.given + length;
            self.given += whole;
            if csv && &self.pending[self.raw.clone()] == b"\\." {
                self.ended = true;
                return Ok(false);
            }
            self.take_apart(fields)?;
            if self.header_due {
                self.header_due = false;
                self.check_header(fields)?;
                continue;
            }
            return Ok(true);
        }
    }

    fn take_apart(&self, fields: &mut Fields) -> Result<()> {
        let line = &self.pending[self.raw.clone()];
        match self.options.format {
            Format::Csv => csv::fields(line, &self.options, &self.force_not_null, &self.force_null, fields),
            Format::Text | Format::Binary => {
                text::fields(line, self.options.delimiter, self.options.null.as_bytes(), fields)
            }
        }
    }

    fn check_header(&self, fields: &Fields) -> Result<()> {
        if self.options.header != Header::Match {
            return Ok(());
        }
        let bad = |message: String| Err(Error::new(Code::BadCopyFileFormat, message));
        if fields.len() != self.columns.len() {
            return bad(format!(
                "wrong number of fields in header line: got {}, expected {}",
                fields.len(),
                self.columns.len()
            ));
        }
        for (index, expected) in self.columns.iter().enumerate() {
            match fields.get(index) {
                None => {
                    return bad(format!(
                        "column name mismatch in header line field {}: got null value (\"{}\"), expected \"{expected}\"",
                        index + 1,
                        self.options.null
                    ));
                }
                Some(name) if name != expected.as_bytes() => {
                    return bad(format!(
                        "column name mismatch in header line field {}: got \"{}\", expected \"{expected}\"",
                        index + 1,
                        String::from_utf8_lossy(name)
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn next_binary(&mut self, fields: &mut Fields) -> Result<bool> {
        let input = &self.pending[self.given..];
        match self
            .binary
            .next(input, self.columns.len(), self.finished, fields)
            .inspect_err(|_| self.line += 1)?
        {
            binary::Next::Row(bytes) => {
                self.line += 1;
                self.given += bytes;
                Ok(true)
            }
            binary::Next::Header(bytes) => {
                self.given += bytes;
                self.next_binary(fields)
            }
            binary::Next::More if input.len() > ROW_BYTES_MAX => Err(too_long()),
            binary::Next::More => Ok(false),
            binary::Next::End(bytes) => {
                self.given += bytes;
                self.ended = true;
                if self.given < self.pending.len() {
                    return Err(Error::new(Code::BadCopyFileFormat, "received copy data after EOF marker"));
                }
                Ok(false)
            }
        }
    }
}

fn too_long() -> Error {
    Error::new(Code::ProgramLimitExceeded, format!("a row of COPY data exceeds {ROW_BYTES_MAX} bytes"))
}
