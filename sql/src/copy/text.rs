//! Lines, and the text format: fields between delimiters, with backslash escapes.

use model::{Code, Error, Result};

use super::split::{Fields, LineEnd, Piece};

/// Finds the ends of lines in bytes that come bit by bit.
#[derive(Debug, Default)]
pub(super) struct Lines {
    end: Option<LineEnd>,
    /// How far the present line was looked at, from the start of the pending bytes.
    scanned: usize,
    base: usize,
    in_quote: bool,
    after_escape: bool,
    /// Line ends inside the present CSV line.
    inner: u64,
}

impl Lines {
    /// The pending bytes lost so many at their start.
    pub(super) fn shift(&mut self, count: usize) {
        self.scanned = self.scanned.saturating_sub(count);
        self.base = self.base.saturating_sub(count);
    }

    /// The present line starts here in the pending bytes.
    pub(super) fn base(&mut self, base: usize) {
        self.base = base;
        self.scanned = self.scanned.max(base);
    }

    /// How many line ends the last line had inside.
    pub(super) fn take_inner(&mut self) -> u64 {
        std::mem::take(&mut self.inner)
    }

    /// The next line of the text format. A backslash hides what follows it.
    pub(super) fn next_text(&mut self, input: &[u8], finished: bool) -> Result<Piece> {
        let mut at = self.scanned - self.base;
        while at < input.len() {
            match input[at] {
                b'\\' => {
                    let Some(next) = input.get(at + 1) else {
                        if finished {
                            at += 1;
                            continue;
                        }
                        break;
                    };
                    if *next == b'.' && at == 0 {
                        return self.end_marker(input, finished);
                    }
                    at += 2;
                }
                b'\n' | b'\r' => match self.line_end(input, at, finished, false)? {
                    Some(piece) => return Ok(piece),
                    None => break,
                },
                _ => at += 1,
            }
        }
        self.scanned = self.base + at.min(input.len());
        Ok(self.rest(input, finished))
    }

    /// The next line of CSV: line ends inside quotes belong to it.
    pub(super) fn next_csv(&mut self, input: &[u8], quote: u8, escape: u8, finished: bool) -> Result<Piece> {
        let mut at = self.scanned - self.base;
        while at < input.len() {
            let byte = input[at];
            if matches!(byte, b'\n' | b'\r') && !self.in_quote {
                match self.line_end(input, at, finished, true)? {
                    Some(piece) => return Ok(piece),
                    None => break,
                }
            }
            if self.in_quote && (byte == b'\n' || (byte == b'\r' && self.end == Some(LineEnd::Return))) {
                self.inner += 1;
            }
            if escape != quote {
                if self.in_quote && byte == escape {
                    self.after_escape = !self.after_escape;
                }
                if byte == quote && !self.after_escape {
                    self.in_quote = !self.in_quote;
                }
                if byte != escape {
                    self.after_escape = false;
                }
            } else if byte == quote {
                self.in_quote = !self.in_quote;
            }
            at += 1;
        }
        self.scanned = self.base + at.min(input.len());
        Ok(self.rest(input, finished))
    }

    fn rest(&mut self, input: &[u8], finished: bool) -> Piece {
        if !finished {
            return Piece::More;
        }
        if input.is_empty() {
            return Piece::End;
        }
        self.next_line_starts(input.len());
        Piece::Line(input.len(), input.len())
    }

    fn next_line_starts(&mut self, whole: usize) {
        self.scanned = self.base + whole;
        self.in_quote = false;
        self.after_escape = false;
    }

    /// A line end at a place; none if the next byte must be seen first.
    fn line_end(&mut self, input: &[u8], at: usize, finished: bool, csv: bool) -> Result<Option<Piece>> {
        let found = match (input[at], input.get(at + 1)) {
            (b'\n', _) => LineEnd::Newline,
            (_, Some(b'\n')) => LineEnd::ReturnNewline,
            (_, Some(_)) => LineEnd::Return,
            (_, None) if finished => LineEnd::Return,
            (_, None) => {
                self.scanned = self.base + at;
                return Ok(None);
            }
        };
        match (*self.end.get_or_insert(found), found) {
            (expected, found) if expected == found => {}
            (LineEnd::Return, LineEnd::ReturnNewline) | (_, LineEnd::Newline) => {
                return Err(stray("newline", if csv { "newline" } else { "\"\\n\"" }, csv));
            }
            (_, LineEnd::Return | LineEnd::ReturnNewline) => {
                return Err(stray("carriage return", if csv { "carriage return" } else { "\"\\r\"" }, csv));
            }
        }
        let whole = at + if found == LineEnd::ReturnNewline { 2 } else { 1 };
        self.next_line_starts(whole);
        Ok(Some(Piece::Line(at, whole)))
    }

    /// `\.` alone on its line ends the data.
    fn end_marker(&mut self, input: &[u8], finished: bool) -> Result<Piece> {
        let corrupt = || Error::new(Code::BadCopyFileFormat, "end-of-copy marker corrupt");
        let rest = &input[2..];
        match rest {
            [] if !finished => Ok(Piece::More),
            [b'\r'] if !finished => Ok(Piece::More),
            [] | [b'\n', ..] | [b'\r', ..] => {
                let found = match rest {
                    [b'\n', ..] => Some(LineEnd::Newline),
                    [b'\r', b'\n', ..] => Some(LineEnd::ReturnNewline),
                    [b'\r', ..] => Some(LineEnd::Return),
                    _ => None,
                };
                if let (Some(expected), Some(found)) = (self.end, found)
                    && expected != found
                {
                    let message = "end-of-copy marker does not match previous newline style";
                    return Err(Error::new(Code::BadCopyFileFormat, message));
                }
                Ok(Piece::End)
            }
            _ => Err(corrupt()),
        }
    }
}

fn stray(what: &str, how: &str, csv: bool) -> Error {
    let (message, hint) = if csv {
        (format!("unquoted {what} found in data"), format!("Use quoted CSV field to represent {how}."))
    } else {
        (format!("literal {what} found in data"), format!("Use {how} to represent {what}."))
    };
    Error::new(Code::BadCopyFileFormat, message).with_hint(hint)
}

/// Takes a line of the text format apart.
pub(super) fn fields(line: &[u8], delimiter: u8, null: &[u8], fields: &mut Fields) -> Result<()> {
    let mut at = 0;
    loop {
        let from = at;
        let mut plain = true;
        while at < line.len() && line[at] != delimiter {
            if line[at] == b'\\' {
                plain = false;
                at += 1;
            }
            at += 1;
        }
        let at_end = at.min(line.len());
        let raw = &line[from..at_end];
        if raw == null {
            fields.close(true);
        } else if plain {
            fields.bytes_mut().extend_from_slice(raw);
            fields.close(false);
        } else {
            unescape(raw, fields.bytes_mut());
            fields.close(false);
        }
        if at >= line.len() {
            return Ok(());
        }
        at += 1;
    }
}

fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' || at + 1 == raw.len() {
            out.push(raw[at]);
            at += 1;
            continue;
        }
        let escaped = raw[at + 1];
        at += 2;
        match escaped {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let mut value = u32::from(escaped - b'0');
                for _ in 0..2 {
                    match raw.get(at) {
                        Some(digit @ b'0'..=b'7') => value = value << 3 | u32::from(digit - b'0'),
                        _ => break,
                    }
                    at += 1;
                }
                out.push(value as u8);
            }
            b'x' if raw.get(at).is_some_and(u8::is_ascii_hexdigit) => {
                let mut value = 0;
                for _ in 0..2 {
                    match raw.get(at).and_then(|digit| char::from(*digit).to_digit(16)) {
                        Some(digit) => value = value << 4 | digit,
                        None => break,
                    }
                    at += 1;
                }
                out.push(value as u8);
            }
            other => out.push(other),
        }
    }
}
