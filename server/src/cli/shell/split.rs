//! Where one statement ends: semicolons outside of quotes, dollar quotes, comments and brackets.
//!
//! Invariants: no character is lost: what was taken and what is left are the text.

/// How far a text is a whole statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// A statement ends before this byte, its semicolon included.
    At(usize),
    /// More must come: inside quotes, a comment or brackets, or simply no semicolon yet.
    Open,
}

/// Finds the end of the first statement.
pub(super) fn end_of_statement(text: &str) -> End {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut depth = 0_usize;
    while at < bytes.len() {
        let rest = &bytes[at..];
        at = match rest[0] {
            b';' if depth == 0 => return End::At(at + 1),
            b'(' => {
                depth += 1;
                at + 1
            }
            b')' => {
                depth = depth.saturating_sub(1);
                at + 1
            }
            b'\'' => {
                let escapes =
                    at > 0 && matches!(bytes[at - 1], b'e' | b'E') && !(at > 1 && is_word(bytes[at - 2]));
                match end_of_quote(bytes, at, b'\'', escapes) {
                    Some(end) => end,
                    None => return End::Open,
                }
            }
            b'"' => match end_of_quote(bytes, at, b'"', false) {
                Some(end) => end,
                None => return End::Open,
            },
            b'-' if rest.starts_with(b"--") => match rest.iter().position(|byte| *byte == b'\n') {
                Some(line) => at + line + 1,
                None => return End::Open,
            },
            b'/' if rest.starts_with(b"/*") => match end_of_comment(bytes, at) {
                Some(end) => end,
                None => return End::Open,
            },
            b'$' if !(at > 0 && is_word(bytes[at - 1])) => match dollar_tag(&text[at..]) {
                Some(tag) => match text[at + tag.len()..].find(tag) {
                    Some(end) => at + end + 2 * tag.len(),
                    None => return End::Open,
                },
                None => at + 1,
            },
            _ => at + 1,
        };
    }
    End::Open
}

/// Whether nothing but blanks and comments is there.
pub(super) fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if rest.starts_with("/*") {
            match end_of_comment(rest.as_bytes(), 0) {
                Some(end) => rest = &rest[end..],
                None => return false,
            }
        } else {
            return rest.is_empty();
        }
    }
}

fn end_of_quote(bytes: &[u8], from: usize, mark: u8, escapes: bool) -> Option<usize> {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            byte if byte == mark && bytes.get(at + 1) == Some(&mark) => at += 2,
            byte if byte == mark => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn end_of_comment(bytes: &[u8], from: usize) -> Option<usize> {
    let (mut at, mut depth) = (from, 0_usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    None
}

fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 1;
    let name = &text[1..end];
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| &text[..=end])
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_at_a_semicolon_that_is_not_quoted() {
        for (text, first) in [
            ("select 1; select 2;", "select 1;"),
            ("select ';' ; x", "select ';' ;"),
            ("select 'it''s;' ;", "select 'it''s;' ;"),
            ("select E'\\';' ;", "select E'\\';' ;"),
            ("select name';' ;", "select name';' ;"),
            ("select \";\" ;", "select \";\" ;"),
            ("do $$ a; b $$;", "do $$ a; b $$;"),
            ("do $x$ $$;$$ $x$;", "do $x$ $$;$$ $x$;"),
            ("-- a;\nb;", "-- a;\nb;"),
            ("/* a /* ; */ ; */ b;", "/* a /* ; */ ; */ b;"),
            ("select $1;", "select $1;"),
            ("create rule (a; b);", "create rule (a; b);"),
        ] {
            assert_eq!(end_of_statement(text), End::At(first.len()), "{text}");
        }
        for open in ["select 1", "select ';", "$$;", "/* ;", "-- ;", "(;", "select \";"] {
            assert_eq!(end_of_statement(open), End::Open, "{open}");
        }
    }

    #[test]
    fn comments_and_semicolons_are_blank() {
        assert!(is_blank(" -- x\n ; /* y */ ;"));
        assert!(!is_blank("-- x\n select"));
    }
}
