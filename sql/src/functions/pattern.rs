//! Patterns: LIKE, ILIKE, SIMILAR TO and regular expressions.
//!
//! Invariants:
//! - Matching takes time linear in the text: LIKE is a two-pointer match, regular expressions run on an automaton. What an
//!   automaton cannot do (back references, look-around) is `0A000`, never an approximation.
//! - A compiled expression is kept per thread; the cache is bounded by `CACHE_MAX`.

use std::{cell::RefCell, rc::Rc};

use model::{Code, Error, Result, Type, Value, types::Scalar as Element, value::Array};
use regex::{Regex, RegexBuilder};

use super::{Body, Definitions, Gives, RowIterator, int, text};

const T: Type = Type::Text;
const B: Type = Type::Bool;
const TEXTS: Type = Type::Array(Element::Text);

/// How many compiled expressions a thread keeps.
const CACHE_MAX: usize = 64;

/// How large a compiled expression may be, in bytes.
const PROGRAM_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(super) fn define(d: &mut Definitions) {
    for (operator, function) in [("~~", "like"), ("~~*", "texticlike")] {
        let body: super::Scalar = match function {
            "like" => |_, a| Ok(Value::Bool(like(text(&a[0]), text(&a[1]), escape(a)?, false)?)),
            _ => |_, a| Ok(Value::Bool(like(text(&a[0]), text(&a[1]), escape(a)?, true)?)),
        };
        d.infix(operator, T, T, B, body);
        d.scalar(function, [T, T, T], B, body).optional(1);
    }
    d.infix("!~~", T, T, B, |_, a| Ok(Value::Bool(!like(text(&a[0]), text(&a[1]), Some('\\'), false)?)));
    d.infix("!~~*", T, T, B, |_, a| Ok(Value::Bool(!like(text(&a[0]), text(&a[1]), Some('\\'), true)?)));
    d.scalar("similar_to", [T, T, T], B, |_, a| {
        let pattern = similar_to_regex(text(&a[1]), escape(a)?)?;
        Ok(Value::Bool(compile(&pattern, "")?.is_match(text(&a[0]))))
    })
    .optional(1);
    for (symbol, flags, wanted) in
        [("~", "", true), ("~*", "i", true), ("!~", "", false), ("!~*", "i", false)]
    {
        let body: super::Scalar = match (flags, wanted) {
            ("", true) => |_, a| Ok(Value::Bool(compile(text(&a[1]), "")?.is_match(text(&a[0])))),
            ("", false) => |_, a| Ok(Value::Bool(!compile(text(&a[1]), "")?.is_match(text(&a[0])))),
            (_, true) => |_, a| Ok(Value::Bool(compile(text(&a[1]), "i")?.is_match(text(&a[0])))),
            (_, false) => |_, a| Ok(Value::Bool(!compile(text(&a[1]), "i")?.is_match(text(&a[0])))),
        };
        d.infix(symbol, T, T, B, body);
    }
    expressions(d);
}

fn expressions(d: &mut Definitions) {
    const I: Type = Type::Int4;
    d.scalar("regexp_like", [T, T, T], B, |_, a| {
        Ok(Value::Bool(compile(text(&a[1]), a.get(2).map_or("", text))?.is_match(text(&a[0]))))
    })
    .optional(1);
    d.scalar("regexp_count", [T, T, I, T], I, |_, a| {
        let regex = compile(text(&a[1]), a.get(3).map_or("", text))?;
        let source = from_character(text(&a[0]), a.get(2).map_or(1, int))?;
        Ok(Value::Int4(i32::try_from(regex.find_iter(source).count()).unwrap_or(i32::MAX)))
    })
    .optional(2);
    d.scalar("regexp_match", [T, T, T], TEXTS, |_, a| {
        let regex = compile(text(&a[1]), a.get(2).map_or("", text))?;
        Ok(regex.captures(text(&a[0])).map_or(Value::Null, |captures| captured(&captures)))
    })
    .optional(1);
    d.scalar("regexp_substr", [T, T, I, I, T], T, |_, a| {
        let regex = compile(text(&a[1]), a.get(4).map_or("", text))?;
        let source = from_character(text(&a[0]), a.get(2).map_or(1, int))?;
        let nth = usize::try_from(a.get(3).map_or(1, int) - 1).unwrap_or(0);
        Ok(regex.find_iter(source).nth(nth).map_or(Value::Null, |found| Value::text(found.as_str())))
    })
    .optional(3);
    d.scalar("substring", [T, T], T, |_, a| {
        let regex = compile(text(&a[1]), "")?;
        let Some(captures) = regex.captures(text(&a[0])) else { return Ok(Value::Null) };
        let group = captures.get(usize::from(captures.len() > 1));
        Ok(group.map_or(Value::Null, |found| Value::text(found.as_str())))
    });
    d.scalar("regexp_replace", [T, T, T, T], T, |_, a| {
        let flags = a.get(3).map_or("", text);
        let regex = compile(text(&a[1]), &flags.replace('g', ""))?;
        let replacement = replacement(text(&a[2]));
        let limit = usize::from(!flags.contains('g'));
        Ok(Value::text(regex.replacen(text(&a[0]), limit, replacement.as_str()).into_owned()))
    })
    .optional(1);
    d.scalar("regexp_split_to_array", [T, T, T], TEXTS, |_, a| {
        let pieces = split(text(&a[0]), text(&a[1]), a.get(2).map_or("", text))?;
        Ok(Value::Array(Array::from_values(Element::Text, pieces).into()))
    })
    .optional(1);
    d.add(
        "regexp_split_to_table",
        [T, T, T],
        T,
        Body::Set(&[("regexp_split_to_table", Gives::Exact(T))], |_, a| {
            let pieces = split(text(&a[0]), text(&a[1]), a.get(2).map_or("", text))?;
            Ok(Box::new(pieces.into_iter().map(|piece| Ok(vec![piece]))) as RowIterator)
        }),
    )
    .optional(1);
    d.add(
        "regexp_matches",
        [T, T, T],
        TEXTS,
        Body::Set(&[("regexp_matches", Gives::Exact(TEXTS))], |_, a| {
            let flags = a.get(2).map_or("", text);
            let regex = compile(text(&a[1]), &flags.replace('g', ""))?;
            let limit = if flags.contains('g') { usize::MAX } else { 1 };
            let rows: Vec<_> =
                regex.captures_iter(text(&a[0])).take(limit).map(|at| Ok(vec![captured(&at)])).collect();
            Ok(Box::new(rows.into_iter()) as RowIterator)
        }),
    )
    .optional(1);
}

fn captured(captures: &regex::Captures<'_>) -> Value {
    let first = usize::from(captures.len() > 1);
    let groups = captures.iter().skip(first);
    let values = groups.map(|group| group.map_or(Value::Null, |found| Value::text(found.as_str())));
    Value::Array(Array::from_values(Element::Text, values.collect()).into())
}

fn split(source: &str, pattern: &str, flags: &str) -> Result<Vec<Value>> {
    let regex = compile(pattern, flags)?;
    let mut pieces = Vec::new();
    let mut from = 0;
    for found in regex.find_iter(source) {
        // PostgreSQL ignores an empty match at the start, at the end, and right after the last match.
        if found.is_empty() && (found.start() == from || found.start() == source.len()) {
            continue;
        }
        pieces.push(Value::text(&source[from..found.start()]));
        from = found.end();
    }
    pieces.push(Value::text(&source[from..]));
    Ok(pieces)
}

fn from_character(source: &str, start: i64) -> Result<&str> {
    if start < 1 {
        return Err(Error::new(
            Code::InvalidParameterValue,
            format!("invalid value for parameter \"start\": {start}"),
        ));
    }
    let skip = usize::try_from(start - 1).unwrap_or(usize::MAX);
    Ok(source.char_indices().nth(skip).map_or("", |(at, _)| &source[at..]))
}

/// The third argument of `like(text, pattern, escape)`: a backslash by default, none for an empty text.
fn escape(a: &[Value]) -> Result<Option<char>> {
    let Some(value) = a.get(2) else { return Ok(Some('\\')) };
    let mut letters = text(value).chars();
    match (letters.next(), letters.next()) {
        (letter, None) => Ok(letter),
        _ => Err(Error::new(Code::InvalidEscapeSequence, "invalid escape string")
            .with_hint("Escape string must be empty or one character.")),
    }
}

/// Whether a text matches a LIKE pattern. `%` stands for any run, `_` for one character.
pub(crate) fn like(source: &str, pattern: &str, escape: Option<char>, fold: bool) -> Result<bool> {
    if fold {
        return like(&source.to_ascii_lowercase(), &pattern.to_ascii_lowercase(), escape, false);
    }
    let tokens = like_tokens(pattern, escape)?;
    // The greedy match with one point of return: after a run, remember where it may be extended.
    let (mut at, mut token) = (source, 0);
    let mut retry: Option<(&str, usize)> = None;
    loop {
        match tokens.get(token) {
            Some(Token::Run) => {
                token += 1;
                retry = Some((at, token));
                if token == tokens.len() {
                    return Ok(true);
                }
                continue;
            }
            Some(expected) => {
                let mut letters = at.chars();
                let letter = letters.next();
                let matches = match (expected, letter) {
                    (Token::One, Some(_)) => true,
                    (Token::Letter(expected), Some(letter)) => *expected == letter,
                    _ => false,
                };
                if matches {
                    at = letters.as_str();
                    token += 1;
                    continue;
                }
            }
            None if at.is_empty() => return Ok(true),
            None => {}
        }
        let Some((from, after)) = retry else { return Ok(false) };
        let mut letters = from.chars();
        if letters.next().is_none() {
            return Ok(false);
        }
        at = letters.as_str();
        token = after;
        retry = Some((at, after));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Run,
    One,
    Letter(char),
}

fn like_tokens(pattern: &str, escape: Option<char>) -> Result<Vec<Token>> {
    let mut tokens = Vec::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let token = if Some(letter) == escape {
            let literal = letters.next().ok_or_else(|| {
                Error::new(Code::InvalidEscapeSequence, "LIKE pattern must not end with escape character")
            })?;
            Token::Letter(literal)
        } else {
            match letter {
                '%' if tokens.last() == Some(&Token::Run) => continue,
                '%' => Token::Run,
                '_' => Token::One,
                literal => Token::Letter(literal),
            }
        };
        tokens.push(token);
    }
    Ok(tokens)
}

/// A SIMILAR TO pattern (SQL:1999) as a regular expression.
fn similar_to_regex(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::from("^(?:");
    let mut bracket = false;
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            let literal = letters.next().ok_or_else(|| {
                Error::new(Code::InvalidEscapeSequence, "pattern must not end with escape character")
            })?;
            out.push_str(&regex::escape(&literal.to_string()));
            continue;
        }
        match letter {
            '[' => {
                bracket = true;
                out.push('[');
            }
            ']' => {
                bracket = false;
                out.push(']');
            }
            _ if bracket => out.push(letter),
            '%' => out.push_str("(?s:.*)"),
            '_' => out.push_str("(?s:.)"),
            '|' | '*' | '+' | '?' | '{' | '}' | '(' | ')' => out.push(letter),
            literal => out.push_str(&regex::escape(&literal.to_string())),
        }
    }
    out.push_str(")$");
    Ok(out)
}

/// A compiled expression of PostgreSQL's advanced flavour.
pub(super) fn compile(pattern: &str, flags: &str) -> Result<Rc<Regex>> {
    thread_local! {
        static CACHE: RefCell<Vec<((String, String), Rc<Regex>)>> = const { RefCell::new(Vec::new()) };
    }
    CACHE.with_borrow_mut(|cache| {
        if let Some(place) = cache.iter().position(|((at, with), _)| at == pattern && with == flags) {
            let entry = cache.remove(place);
            let regex = Rc::clone(&entry.1);
            cache.push(entry);
            return Ok(regex);
        }
        let regex = Rc::new(build(pattern, flags)?);
        if cache.len() == CACHE_MAX {
            cache.remove(0);
        }
        cache.push(((pattern.to_owned(), flags.to_owned()), Rc::clone(&regex)));
        Ok(regex)
    })
}

fn build(pattern: &str, flags: &str) -> Result<Regex> {
    let (mut insensitive, mut dot_newline, mut lines, mut extended, mut literal) =
        (false, true, false, false, false);
    for flag in flags.chars() {
        match flag {
            'i' => insensitive = true,
            'c' => insensitive = false,
            's' => (dot_newline, lines) = (true, false),
            'n' | 'm' => (dot_newline, lines) = (false, true),
            'p' => dot_newline = false,
            'w' => lines = true,
            'x' => extended = true,
            't' => extended = false,
            'q' => literal = true,
            'e' => {}
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(Error::new(Code::InvalidParameterValue, message));
            }
        }
    }
    let translated = if literal { regex::escape(pattern) } else { translate(pattern)? };
    RegexBuilder::new(&translated)
        .case_insensitive(insensitive)
        .dot_matches_new_line(dot_newline)
        .multi_line(lines)
        .ignore_whitespace(extended)
        .size_limit(PROGRAM_BYTES_MAX)
        .build()
        .map_err(|error| {
            let message = match error {
                regex::Error::CompiledTooBig(_) => {
                    "invalid regular expression: regular expression is too complex"
                }
                _ => "invalid regular expression: quantifier operand invalid or brackets not balanced",
            };
            Error::new(Code::InvalidRegularExpression, message)
        })
}

/// PostgreSQL's escapes in the words of the regex crate.
fn translate(pattern: &str) -> Result<String> {
    let unsupported = |what: &str| {
        Error::unsupported(
            format!("{what} in regular expressions are not supported"),
            "Matching takes linear time here; express the condition without them.",
        )
    };
    let pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.chars().peekable();
    let mut bracket = 0_usize;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                let escaped = letters.next().ok_or_else(|| {
                    Error::new(
                        Code::InvalidRegularExpression,
                        "invalid regular expression: invalid escape \\ sequence",
                    )
                })?;
                match escaped {
                    'm' => out.push_str(r"\b{start}"),
                    'M' => out.push_str(r"\b{end}"),
                    'y' => out.push_str(r"\b"),
                    'Y' => out.push_str(r"\B"),
                    'Z' => out.push_str(r"\z"),
                    'b' => out.push_str(r"\x08"),
                    'e' => out.push_str(r"\x1B"),
                    '1'..='9' => return Err(unsupported("back references")),
                    other if other.is_ascii_alphanumeric() || other.is_ascii_punctuation() => {
                        out.push('\\');
                        out.push(other);
                    }
                    other => out.push(other),
                }
            }
            '[' if bracket == 0 => {
                bracket = 1;
                out.push('[');
                if letters.peek() == Some(&'^') {
                    out.extend(letters.next());
                }
                if letters.peek() == Some(&']') {
                    letters.next();
                    out.push_str(r"\]");
                }
            }
            '[' => {
                // Inside a bracket only `[:class:]` has a meaning; any other `[` is itself.
                if letters.peek() == Some(&':') {
                    bracket += 1;
                    out.push('[');
                } else {
                    out.push_str(r"\[");
                }
            }
            ']' if bracket > 0 => {
                bracket -= 1;
                out.push(']');
            }
            '&' | '~' if bracket > 0 => {
                out.push('\\');
                out.push(letter);
            }
            '(' if bracket == 0 => {
                out.push('(');
                let rest: String = letters.clone().take(3).collect();
                if rest.starts_with("?=") || rest.starts_with("?!") || rest.starts_with("?<") {
                    return Err(unsupported("look-around constraints"));
                }
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// A replacement text with PostgreSQL's `\1` and `\&` in the words of the regex crate.
fn replacement(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut letters = source.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => out.push_str("$$"),
            '\\' => match letters.next() {
                Some('&') => out.push_str("${0}"),
                Some(digit @ '1'..='9') => {
                    out.push_str("${");
                    out.push(digit);
                    out.push('}');
                }
                Some('\\') | None => out.push('\\'),
                Some('$') => out.push_str("\\$$"),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_matches_as_postgresql_does() {
        for (source, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "_b_", true),
            ("abc", "b", false),
            ("", "%", true),
            ("", "", true),
            ("aXbXc", "a%b%c", true),
            ("aXbXd", "a%b%c", false),
            ("a%c", r"a\%c", true),
            ("abc", r"a\%c", false),
            ("mississippi", "%iss%ip%", true),
            ("äöü", "_ö_", true),
        ] {
            assert_eq!(
                like(source, pattern, Some('\\'), false).expect("valid"),
                expected,
                "{source} LIKE {pattern}"
            );
        }
        assert!(like("a", r"a\", Some('\\'), false).is_err());
        assert!(like("ABC", "a%", Some('\\'), true).expect("valid"));
    }

    #[test]
    fn a_pattern_of_many_runs_takes_linear_time() {
        let source = "a".repeat(20_000);
        let pattern = "%a".repeat(200) + "%b";
        assert!(!like(&source, &pattern, Some('\\'), false).expect("valid"));
    }

    #[test]
    fn what_an_automaton_cannot_do_is_refused() {
        for pattern in [r"(a)\1", "a(?=b)", "(?<!a)b"] {
            assert_eq!(
                build(pattern, "").expect_err("refused").code(),
                Code::FeatureNotSupported,
                "{pattern}"
            );
        }
        assert_eq!(build("(", "").expect_err("refused").code(), Code::InvalidRegularExpression);
    }

    #[test]
    fn a_replacement_keeps_dollars_and_takes_groups() {
        let regex = build("(b+)", "").expect("valid");
        assert_eq!(regex.replace("abbc", replacement(r"<\1$>").as_str()), "a<bb$>c");
    }
}
