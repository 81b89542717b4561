//! Literals of simple queries as parameters, so that texts that differ in numbers alone share one plan.
//!
//! Invariants:
//! - Only whole numbers are taken, and only from short statements in which a parameter of the same type means the same:
//!   no strings, no casts, no ORDER BY or GROUP BY (whose numbers are ordinals), no parameters of their own.
//! - Whoever uses the result and fails falls back to the text as it was sent, for its errors and their places.

use model::{Type, Value};

/// Longer texts are left as they are.
const TEXT_BYTES_MAX: usize = 1_024;

/// More literals are left as they are.
const LITERALS_MAX: usize = 32;

/// Words whose numbers are no values, or whose meaning a parameter would change.
const STOP_WORDS: [&str; 21] = [
    "order",
    "group",
    "limit",
    "offset",
    "fetch",
    "union",
    "intersect",
    "except",
    "over",
    "interval",
    "cast",
    "extract",
    "numeric",
    "decimal",
    "varchar",
    "char",
    "with",
    "returning",
    "distinct",
    "grouping",
    "float",
];

/// A statement with its numbers taken out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lifted {
    /// The text with `$1`, `$2`, … in their places.
    pub(crate) text: String,
    /// The numbers.
    pub(crate) values: Vec<Value>,
    /// Their types, as literals have them.
    pub(crate) types: Vec<Option<Type>>,
}

/// Takes the whole numbers out of a simple statement, if that is safe and there are any.
pub(crate) fn lift(text: &str) -> Option<Lifted> {
    let text = text.trim().trim_end_matches(';').trim_end();
    if text.len() > TEXT_BYTES_MAX
        || !text.is_ascii()
        || text.contains("::")
        || text.contains("--")
        || text.contains("/*")
    {
        return None;
    }
    let bytes = text.as_bytes();
    if bytes.iter().any(|byte| matches!(byte, b'\'' | b'"' | b'$' | b';' | b'[' | b'\\')) {
        return None;
    }
    let mut lifted =
        Lifted { text: String::with_capacity(text.len() + 8), values: Vec::new(), types: Vec::new() };
    let mut at = 0;
    let mut before = b' ';
    let mut first = true;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte.is_ascii_alphabetic() || byte == b'_' {
            let end = word_end(bytes, at);
            let word = text[at..end].to_ascii_lowercase();
            if first && !matches!(word.as_str(), "select" | "update" | "insert" | "delete") {
                return None;
            }
            if STOP_WORDS.contains(&word.as_str()) {
                return None;
            }
            first = false;
            lifted.text.push_str(&text[at..end]);
            before = b'a';
            at = end;
        } else if byte.is_ascii_digit() {
            let end = word_end(bytes, at);
            let digits = &text[at..end];
            let follows_value_place = matches!(before, b'=' | b'<' | b'>' | b'+' | b'-' | b'*' | b'(' | b',');
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && bytes.get(end) != Some(&b'.');
            if !follows_value_place || !is_plain || lifted.values.len() >= LITERALS_MAX {
                return None;
            }
            let (value, ty) = match (digits.parse::<i32>(), digits.parse::<i64>()) {
                (Ok(number), _) => (Value::Int4(number), Type::Int4),
                (Err(_), Ok(number)) => (Value::Int8(number), Type::Int8),
                (Err(_), Err(_)) => return None,
            };
            lifted.values.push(value);
            lifted.types.push(Some(ty));
            lifted.text.push_str(&format!("${}", lifted.values.len()));
            before = b'1';
            at = end;
        } else {
            lifted.text.push(char::from(byte));
            if !byte.is_ascii_whitespace() {
                before = byte;
            }
            at += 1;
        }
    }
    (!lifted.values.is_empty()).then_some(lifted)
}

fn word_end(bytes: &[u8], at: usize) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    at + bytes[at..].iter().position(|byte| !is_part(byte)).unwrap_or(bytes.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_simple_statements_become_parameters() {
        let lifted = lift("UPDATE accounts SET balance = balance + -12 WHERE aid = 99;").expect("liftable");
        assert_eq!(lifted.text, "UPDATE accounts SET balance = balance + -$1 WHERE aid = $2");
        assert_eq!(lifted.values, [Value::Int4(12), Value::Int4(99)]);
        assert_eq!(
            lift("select a from t2 where b = 9999999999").expect("liftable").types,
            [Some(Type::Int8)]
        );
    }

    #[test]
    fn what_a_parameter_would_change_is_left_alone() {
        for text in [
            "select a from t order by 1",
            "select a from t where b = '1'",
            "select 1.5 + 2",
            "select a::numeric(3) from t",
            "select 1",
            "select a from t where b = $1 and c = 2",
            "create table t (a int check (a > 1))",
            "select a from t limit 10",
        ] {
            assert_eq!(lift(text), None, "{text}");
        }
    }
}
