//! A line of CSV taken apart.

use model::{Code, Error, Result};

use super::{Options, split::Fields};

/// Takes a line (which may hold line ends inside quotes) apart.
pub(super) fn fields(
    line: &[u8],
    options: &Options,
    force_not_null: &[bool],
    force_null: &[bool],
    fields: &mut Fields,
) -> Result<()> {
    let (delimiter, quote, escape) = (options.delimiter, options.quote, options.escape);
    let null = options.null.as_bytes();
    let mut at = 0;
    loop {
        let from = at;
        let start = fields.open_at();
        let mut quoted = false;
        while at < line.len() && line[at] != delimiter {
            if line[at] != quote {
                fields.bytes_mut().push(line[at]);
                at += 1;
                continue;
            }
            quoted = true;
            at = in_quotes(line, at + 1, quote, escape, fields.bytes_mut())?;
        }
        let column = fields.len();
        let never = force_not_null.get(column).copied().unwrap_or(false);
        let even_quoted = force_null.get(column).copied().unwrap_or(false);
        let is_null = if quoted {
            even_quoted && &fields.bytes_mut()[start..] == null
        } else {
            !never && &line[from..at] == null
        };
        fields.close(is_null);
        if at >= line.len() {
            return Ok(());
        }
        at += 1;
    }
}

/// Reads to the closing quote; answers the place behind it.
fn in_quotes(line: &[u8], mut at: usize, quote: u8, escape: u8, out: &mut Vec<u8>) -> Result<usize> {
    loop {
        let Some(byte) = line.get(at) else {
            return Err(Error::new(Code::BadCopyFileFormat, "unterminated CSV quoted field"));
        };
        if *byte == escape
            && let Some(next) = line.get(at + 1)
            && (*next == escape || *next == quote)
        {
            out.push(*next);
            at += 2;
            continue;
        }
        if *byte == quote {
            return Ok(at + 1);
        }
        out.push(*byte);
        at += 1;
    }
}
