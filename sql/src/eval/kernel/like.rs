//! `LIKE` with a constant pattern, taken apart once per batch.

use model::{Type, Value};

use super::nulls_of;
use crate::{batch::Column, eval::batch::Lifted};

/// One element of a pattern.
#[derive(Clone, PartialEq, Debug)]
enum Piece {
    /// These bytes.
    Literal(Vec<u8>),
    /// `_`: one character.
    Any,
    /// `%`: any text.
    Rest,
}

/// Matches a column of text with a constant pattern; none if the pattern is for the scalar body.
pub(super) fn like(
    (left, left_ty): (&Lifted, Type),
    (right, _): (&Lifted, Type),
    negated: bool,
    rows: usize,
) -> Option<Column> {
    let (Lifted::Column(column), Lifted::Constant(Value::Text(pattern))) = (left, right) else { return None };
    if !matches!(left_ty, Type::Text | Type::Varchar) {
        return None;
    }
    let texts = column.as_texts()?;
    let pieces = parse(pattern)?;
    let mut values = Vec::with_capacity(rows);
    match pieces.as_slice() {
        [Piece::Literal(text)] => values.extend(texts.iter().map(|at| (at == text.as_slice()) != negated)),
        [Piece::Literal(text), Piece::Rest] => {
            values.extend(texts.iter().map(|at| at.starts_with(text) != negated))
        }
        [Piece::Rest, Piece::Literal(text)] => {
            values.extend(texts.iter().map(|at| at.ends_with(text) != negated))
        }
        [Piece::Rest, Piece::Literal(text), Piece::Rest] => {
            values.extend(texts.iter().map(|at| find(at, text).is_some() != negated));
        }
        pieces => values.extend(texts.iter().map(|at| matches(at, pieces) != negated)),
    }
    Some(Column::bools(values, nulls_of(left, right)))
}

/// The pieces of a pattern; none if it ends with an escape.
fn parse(pattern: &str) -> Option<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        let literal = match byte {
            b'%' => {
                if pieces.last() != Some(&Piece::Rest) {
                    pieces.push(Piece::Rest);
                }
                continue;
            }
            b'_' => {
                pieces.push(Piece::Any);
                continue;
            }
            b'\\' => bytes.next()?,
            byte => byte,
        };
        match pieces.last_mut() {
            Some(Piece::Literal(text)) => text.push(literal),
            _ => pieces.push(Piece::Literal(vec![literal])),
        }
    }
    Some(pieces)
}

/// Backtracks to the last `%` only: what an earlier one swallowed need never be given back.
fn matches(text: &[u8], pieces: &[Piece]) -> bool {
    let (mut at, mut piece) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pieces.get(piece) {
            None if at == text.len() => return true,
            None => None,
            Some(Piece::Rest) => {
                retry = Some((at, piece));
                piece += 1;
                continue;
            }
            Some(Piece::Any) if at < text.len() => Some(character(text, at)),
            Some(Piece::Any) => None,
            Some(Piece::Literal(literal)) => text[at..].starts_with(literal).then_some(literal.len()),
        };
        match (step, &mut retry) {
            (Some(length), _) => {
                at += length;
                piece += 1;
            }
            (None, Some((from, rest))) if *from < text.len() => {
                *from += character(text, *from);
                (at, piece) = (*from, *rest + 1);
            }
            (None, _) => return false,
        }
    }
}

/// How many bytes the character at a place has.
fn character(text: &[u8], at: usize) -> usize {
    1 + text[at + 1..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count()
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(place) = text.get(from..)?.iter().position(|byte| *byte == first) {
        if text[from + place..].starts_with(needle) {
            return Some(from + place);
        }
        from += place + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, pattern: &str) -> bool {
        matches(text.as_bytes(), &parse(pattern).expect("a whole pattern"))
    }

    #[test]
    fn patterns_match_as_like_does() {
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "_b_", true),
            ("abc", "__", false),
            ("äöü", "_ö_", true),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("aXbXc", "a%b%c", true),
            ("aab", "%ab", true),
            ("", "%", true),
            ("", "_", false),
            ("special packages requests", "%special%requests%", true),
        ] {
            assert_eq!(check(text, pattern), expected, "{text} LIKE {pattern}");
        }
    }

    #[test]
    fn an_escape_at_the_end_is_left_to_the_scalar_body() {
        assert_eq!(parse("abc\\"), None);
    }
}
