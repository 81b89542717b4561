//! A date or time text cut into fields: numbers, words, times, zones. What the fields mean is `parse`'s matter.

/// One field of a text, lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Digits, perhaps with a fraction: `2024`, `20240115`, `59.5`.
    Number(String),
    /// Digits joined by `-`, `/` or `.`, one part of which may be a month's name: `2024-01-15`, `15-jan-2024`.
    Date(String),
    /// `10:00`, `10:00:00.5`.
    Time(String),
    /// A word: a month, a day, `am`, `bc`, `t`, a zone abbreviation.
    Word(String),
    /// A zone's full name: `europe/berlin`.
    ZoneName(String),
    /// An offset from UTC: `+02`, `-03:30`, `+0200`.
    Offset(String),
}

/// Cuts a text into fields; `None` on characters no form has, or far too many fields.
pub(super) fn fields(text: &str) -> Option<Vec<Field>> {
    let text = text.to_ascii_lowercase();
    let bytes = text.as_bytes();
    let mut fields = Vec::new();
    let mut at = 0;
    let run = |from: usize, allowed: fn(u8) -> bool| {
        from + bytes[from..].iter().take_while(|byte| allowed(**byte)).count()
    };
    while at < bytes.len() {
        let start = at;
        if fields.len() > 25 {
            return None;
        }
        match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | b',' => {
                at += 1;
                continue;
            }
            b'0'..=b'9' | b'.' => {
                at = run(at, |byte| byte.is_ascii_digit());
                match bytes.get(at) {
                    Some(b':') => {
                        at = run(at, |byte| byte.is_ascii_digit() || byte == b':' || byte == b'.');
                        fields.push(Field::Time(text[start..at].to_owned()));
                    }
                    Some(b'-' | b'/') => {
                        at = date_end(bytes, at);
                        fields.push(Field::Date(text[start..at].to_owned()));
                    }
                    Some(b'.') => {
                        let end = run(at, |byte| byte.is_ascii_digit() || byte == b'.');
                        let piece = &text[start..end];
                        at = end;
                        // Two points make a date, one makes a fraction.
                        if piece.bytes().filter(|byte| *byte == b'.').count() > 1 {
                            fields.push(Field::Date(piece.to_owned()));
                        } else {
                            fields.push(Field::Number(piece.to_owned()));
                        }
                    }
                    _ => fields.push(Field::Number(text[start..at].to_owned())),
                }
            }
            b'+' | b'-' => {
                at = run(at + 1, |byte| byte.is_ascii_digit() || byte == b':' || byte == b'.');
                // A sign before a word belongs to `-infinity`, which `parse` looks for itself.
                if at == start + 1 {
                    if !text[at..].starts_with("infinity") {
                        return None;
                    }
                    continue;
                }
                fields.push(Field::Offset(text[start..at].to_owned()));
            }
            byte if byte.is_ascii_alphabetic() => {
                at = run(at, |byte| byte.is_ascii_alphabetic());
                let word = &text[start..at];
                match bytes.get(at) {
                    Some(b'/') => {
                        at = run(at, |byte| {
                            byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+')
                        });
                        fields.push(Field::ZoneName(text[start..at].to_owned()));
                    }
                    Some(b'_') => {
                        at = run(at, |byte| {
                            byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-')
                        });
                        fields.push(Field::ZoneName(text[start..at].to_owned()));
                    }
                    // `est5edt`, but not `jan15` or `t10`.
                    Some(b'0'..=b'9') if word.len() >= 3 && super::parse::month(word).is_none() => {
                        at = run(at, |byte| byte.is_ascii_alphanumeric());
                        fields.push(Field::ZoneName(text[start..at].to_owned()));
                    }
                    // `jan-15-2024`, but not `utc-5`.
                    Some(b'-') if super::parse::month(word).is_some() => {
                        at = date_end(bytes, at);
                        fields.push(Field::Date(text[start..at].to_owned()));
                    }
                    _ => fields.push(Field::Word(word.to_owned())),
                }
            }
            b'@' | b'(' | b')' => at += 1,
            _ => return None,
        }
    }
    Some(fields)
}

fn date_end(bytes: &[u8], from: usize) -> usize {
    let separator = bytes[from];
    let mut at = from;
    while bytes.get(at) == Some(&separator) {
        let piece = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let piece = if piece > 0 {
            piece
        } else {
            bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count()
        };
        if piece == 0 {
            return at + 1;
        }
        at += 1 + piece;
    }
    at
}
