//! The shape of a statement: its text without literals, so that it can be logged.
//!
//! Invariants: nothing between quotes of any kind and no number of the statement is in its shape.

/// At most so many characters.
const CHARACTERS_MAX: usize = 300;

/// `SELECT * FROM t WHERE a = 'x' AND b = 7` → `SELECT * FROM t WHERE a = ? AND b = ?`.
pub fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut rest = text;
    let mut is_word = false;
    while let Some(next) = rest.chars().next() {
        if shape.len() >= CHARACTERS_MAX {
            shape.push('…');
            break;
        }
        let taken = match next {
            '\'' => {
                shape.push('?');
                quoted(rest)
            }
            '$' if !is_word => match dollar_quoted(rest) {
                Some(taken) => {
                    shape.push('?');
                    taken
                }
                None => {
                    shape.push('$');
                    1
                }
            },
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            c if c.is_ascii_digit() && !is_word => {
                shape.push('?');
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_').unwrap_or(rest.len())
            }
            c if c.is_whitespace() => {
                if !shape.ends_with(' ') && !shape.is_empty() {
                    shape.push(' ');
                }
                c.len_utf8()
            }
            c if c.is_control() => c.len_utf8(),
            c => {
                shape.push(c);
                c.len_utf8()
            }
        };
        is_word = next.is_alphanumeric() || next == '_' || (next == '$' && taken == 1);
        rest = &rest[taken..];
    }
    shape.trim_end().to_owned()
}

/// Bytes of a literal in quotes. Backslashes are taken as escapes: at worst too much is left out.
fn quoted(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn dollar_quoted(text: &str) -> Option<usize> {
    let end = text[1..].find('$')? + 1;
    let tag = &text[..=end];
    let is_tag = tag[1..end].chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_parameter = tag[1..].starts_with(|c: char| c.is_ascii_digit());
    if !is_tag || is_parameter {
        return None;
    }
    let close = text[tag.len()..].find(tag);
    Some(close.map_or(text.len(), |at| at + 2 * tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_every_kind_are_left_out() {
        for (text, expected) in [
            ("SELECT *  FROM t1 WHERE a = 'it''s' AND b = 7.5e3", "SELECT * FROM t1 WHERE a = ? AND b = ?"),
            ("ALTER ROLE x PASSWORD 'se\\'cret'", "ALTER ROLE x PASSWORD ?"),
            ("DO $$secret$$", "DO ?"),
            ("DO $x$se$$cret$x$;", "DO ?;"),
            ("SELECT $1, c2 -- secret\n, 3", "SELECT $1, c2 , ?"),
            ("SELECT /* secret */ 1", "SELECT ?"),
            ("SELECT 'open secret", "SELECT ?"),
            ("SELECT 'trailing \\", "SELECT ?"),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
        assert!(shape(&"a".repeat(10_000)).chars().count() <= CHARACTERS_MAX + 1);
    }
}
