//! PostgreSQL's binary COPY format: a signature, rows of counted fields, a trailer.

use model::{Code, Error, Result};

use super::split::Fields;

/// What the data begins with.
pub(super) const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// The flag of rows with OIDs, which are long gone.
const HAS_OIDS: u32 = 1 << 16;

/// Whether the header was read.
#[derive(Debug, Default)]
pub(super) struct State {
    header_read: bool,
}

/// What came next, in so many bytes.
pub(super) enum Next {
    Header(usize),
    Row(usize),
    End(usize),
    More,
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(Code::BadCopyFileFormat, message)
}

impl State {
    pub(super) fn next(
        &mut self,
        input: &[u8],
        columns: usize,
        finished: bool,
        fields: &mut Fields,
    ) -> Result<Next> {
        if !self.header_read {
            return self.header(input, finished);
        }
        let Some((count, mut rest)) = input.split_first_chunk::<2>() else {
            // Old writers leave the trailer out.
            return match input {
                [] if finished => Ok(Next::End(0)),
                _ if finished => Err(bad("unexpected EOF in COPY data")),
                _ => Ok(Next::More),
            };
        };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            return Ok(Next::End(2));
        }
        if count as i64 != columns as i64 {
            return Err(bad(format!("row field count is {count}, expected {columns}")));
        }
        let more = || if finished { Err(bad("unexpected EOF in COPY data")) } else { Ok(Next::More) };
        for _ in 0..columns {
            let Some((length, after)) = rest.split_first_chunk::<4>() else {
                fields.clear();
                return more();
            };
            let length = i32::from_be_bytes(*length);
            rest = after;
            if length == -1 {
                fields.close(true);
                continue;
            }
            let Ok(length) = usize::try_from(length) else { return Err(bad("invalid field size")) };
            let Some((bytes, after)) = rest.split_at_checked(length) else {
                fields.clear();
                return more();
            };
            fields.bytes_mut().extend_from_slice(bytes);
            fields.close(false);
            rest = after;
        }
        Ok(Next::Row(input.len() - rest.len()))
    }

    fn header(&mut self, input: &[u8], finished: bool) -> Result<Next> {
        let known = input.len().min(SIGNATURE.len());
        if input[..known] != SIGNATURE[..known] || (finished && known < SIGNATURE.len()) {
            return Err(bad("COPY file signature not recognized"));
        }
        let Some((flags, rest)) = input.get(SIGNATURE.len()..).and_then(|rest| rest.split_first_chunk::<4>())
        else {
            return if finished {
                Err(bad("invalid COPY file header (missing flags)"))
            } else {
                Ok(Next::More)
            };
        };
        let flags = u32::from_be_bytes(*flags);
        if flags & HAS_OIDS != 0 {
            return Err(bad("invalid COPY file header (WITH OIDS)"));
        }
        if flags >> 16 != 0 {
            return Err(bad("unrecognized critical flags in COPY file header"));
        }
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return if finished {
                Err(bad("invalid COPY file header (missing length)"))
            } else {
                Ok(Next::More)
            };
        };
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            return Err(bad("invalid COPY file header (missing length)"));
        };
        if rest.len() < length {
            return if finished {
                Err(bad("invalid COPY file header (wrong length)"))
            } else {
                Ok(Next::More)
            };
        }
        self.header_read = true;
        Ok(Next::Header(SIGNATURE.len() + 8 + length))
    }
}
