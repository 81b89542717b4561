//! Texts and bytes: cutting, joining, padding, case, encodings, digests.
//!
//! Positions and lengths count characters, 1-based, as in PostgreSQL. A result over `TEXT_BYTES_MAX` is `54000` before
//! memory is taken for it.

use base64::{DecodeError, Engine as _, engine::general_purpose::STANDARD};
use model::{
    Code, Error, Result, Type, Value,
    value::{Bytea, ValueError},
};

use super::{Accepts, Definitions, array_of, boolean, bytes, int, int4, text};
use crate::context::Context;

/// The largest text or bytea a function makes, in bytes (PostgreSQL: 1 GB - 1).
pub(super) const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

const T: Type = Type::Text;
const I: Type = Type::Int4;
const B: Type = Type::Bytea;

pub(super) fn define(d: &mut Definitions) {
    joining(d);
    cutting(d);
    casing(d);
    measuring(d);
    encoding(d);
    formatting(d);
    of_bytes(d);
}

fn give(text: impl Into<model::value::Text>) -> Result<Value> {
    Ok(Value::Text(text.into()))
}

pub(super) fn too_large() -> Error {
    Error::new(Code::ProgramLimitExceeded, "requested length too large")
}

/// The text form of any value, as a cast to text gives it.
pub(super) fn display(context: &Context, value: &Value) -> String {
    super::io::write(context, value, value.natural_type().unwrap_or(Type::Text))
}

/// The text form inside `||`, which casts: as [`display`], but booleans as words.
fn cast_piece(context: &Context, value: &Value) -> String {
    match value {
        Value::Bool(truth) => truth.to_string(),
        other => display(context, other),
    }
}

fn joining(d: &mut Definitions) {
    d.infix("||", T, T, T, |_, a| {
        let (left, right) = (text(&a[0]), text(&a[1]));
        let mut joined = String::with_capacity(left.len() + right.len());
        joined.push_str(left);
        joined.push_str(right);
        give(joined)
    });
    d.infix("||", T, Accepts::NonArray, T, |context, a| {
        give(format!("{}{}", text(&a[0]), cast_piece(context, &a[1])))
    })
    .volatility = super::Volatility::Stable;
    d.infix("||", Accepts::NonArray, T, T, |context, a| {
        give(format!("{}{}", cast_piece(context, &a[0]), text(&a[1])))
    })
    .volatility = super::Volatility::Stable;
    d.infix("||", B, B, B, |_, a| Ok(Value::Bytea(Bytea::from([bytes(&a[0]), bytes(&a[1])].concat()))));
    d.scalar("concat", [Accepts::Any], T, |context, a| {
        let pieces = a.iter().filter(|value| !value.is_null()).map(|value| display(context, value));
        give(pieces.collect::<String>())
    })
    .variadic()
    .lenient()
    .stable();
    d.scalar("concat_ws", [Accepts::Exact(T), Accepts::Any], T, |context, a| {
        if a[0].is_null() {
            return Ok(Value::Null);
        }
        let pieces = a[1..].iter().filter(|value| !value.is_null()).map(|value| display(context, value));
        give(pieces.collect::<Vec<_>>().join(text(&a[0])))
    })
    .variadic()
    .lenient()
    .stable();
    d.scalar("repeat", [T, I], T, |context, a| {
        let count = usize::try_from(int(&a[1])).unwrap_or(0);
        let unit = text(&a[0]);
        let bytes = unit.len().checked_mul(count).filter(|bytes| *bytes <= TEXT_BYTES_MAX);
        context.making.room(bytes.ok_or_else(too_large)?)?;
        give(unit.repeat(count))
    });
    for (name, left) in [("lpad", true), ("rpad", false)] {
        let body: super::Scalar =
            if left { |context, a| pad(context, a, true) } else { |context, a| pad(context, a, false) };
        d.scalar(name, [T, I, T], T, body).optional(1);
    }
}

fn pad(context: &mut Context, a: &[Value], left: bool) -> Result<Value> {
    let source = text(&a[0]);
    let width = usize::try_from(int(&a[1])).unwrap_or(0);
    let fill = a.get(2).map_or(" ", text);
    if width > TEXT_BYTES_MAX {
        return Err(too_large());
    }
    context.making.room(width)?;
    let length = source.chars().count();
    if length >= width || fill.is_empty() {
        return give(source.chars().take(width).collect::<String>());
    }
    let padding: String = fill.chars().cycle().take(width - length).collect();
    give(if left { padding + source } else { source.to_owned() + &padding })
}

fn cutting(d: &mut Definitions) {
    for name in ["substring", "substr"] {
        d.scalar(name, [T, I, I], T, |_, a| {
            substring(text(&a[0]), int(&a[1]), a.get(2).map(int)).and_then(give)
        })
        .optional(1);
        d.scalar(name, [B, I, I], B, |_, a| {
            let (from, to) = span(bytes(&a[0]).len(), int(&a[1]), a.get(2).map(int))?;
            Ok(Value::Bytea(Bytea::from(bytes(&a[0])[from..to].to_vec())))
        })
        .optional(1);
    }
    d.scalar("left", [T, I], T, |_, a| {
        let count = signed_count(text(&a[0]), int(&a[1]));
        give(text(&a[0]).chars().take(count).collect::<String>())
    });
    d.scalar("right", [T, I], T, |_, a| {
        let source = text(&a[0]);
        let count = signed_count(source, int(&a[1]));
        give(source.chars().skip(source.chars().count() - count).collect::<String>())
    });
    for (name, ends) in [("btrim", (true, true)), ("ltrim", (true, false)), ("rtrim", (false, true))] {
        let body: super::Scalar = match ends {
            (true, true) => |_, a| trim(a, true, true),
            (true, false) => |_, a| trim(a, true, false),
            (false, _) => |_, a| trim(a, false, true),
        };
        d.scalar(name, [T, T], T, body).optional(1);
    }
    d.scalar("btrim", [B, B], B, |_, a| {
        let set = bytes(&a[1]);
        let source = bytes(&a[0]);
        let from = source.iter().position(|byte| !set.contains(byte)).unwrap_or(source.len());
        let to = source.iter().rposition(|byte| !set.contains(byte)).map_or(from, |last| last + 1);
        Ok(Value::Bytea(Bytea::from(source[from..to].to_vec())))
    });
    d.scalar("split_part", [T, T, I], T, |_, a| {
        split_part(text(&a[0]), text(&a[1]), int(&a[2])).and_then(give)
    });
    d.scalar("replace", [T, T, T], T, |_, a| {
        if text(&a[1]).is_empty() {
            return Ok(a[0].clone());
        }
        give(text(&a[0]).replace(text(&a[1]), text(&a[2])))
    });
    d.scalar("translate", [T, T, T], T, |_, a| {
        let (from, to): (Vec<char>, Vec<char>) =
            (text(&a[1]).chars().collect(), text(&a[2]).chars().collect());
        let map = |letter| match from.iter().position(|at| *at == letter) {
            None => Some(letter),
            Some(place) => to.get(place).copied(),
        };
        give(text(&a[0]).chars().filter_map(map).collect::<String>())
    });
    d.scalar("overlay", [T, T, I, I], T, |_, a| {
        let replacement = text(&a[1]);
        let start = int(&a[2]);
        let count = a.get(3).map_or(replacement.chars().count() as i64, int);
        if start <= 0 {
            return Err(negative_length());
        }
        let head = substring(text(&a[0]), 1, Some(start - 1))?;
        let tail = substring(text(&a[0]), start + count, None)?;
        give(head + replacement + &tail)
    })
    .optional(1);
    d.scalar("reverse", [T], T, |_, a| give(text(&a[0]).chars().rev().collect::<String>()));
}

fn negative_length() -> Error {
    Error::new(Code::SubstringError, "negative substring length not allowed")
}

/// The half-open range of 0-based places that `substring(… from start for count)` means.
fn span(length: usize, start: i64, count: Option<i64>) -> Result<(usize, usize)> {
    let end = match count {
        Some(count) if count < 0 => return Err(negative_length()),
        Some(count) => start.saturating_add(count),
        None => i64::MAX,
    };
    let place = |at: i64| usize::try_from(at - 1).unwrap_or(0).min(length);
    let from = place(start.max(1));
    Ok((from, place(end.max(1)).max(from)))
}

fn substring(source: &str, start: i64, count: Option<i64>) -> Result<String> {
    let (from, to) = span(source.len(), start, count)?;
    if source.is_ascii() {
        return Ok(source[from..to].to_owned());
    }
    Ok(source.chars().skip(from).take(to - from).collect())
}

/// How many characters `left(…, count)` keeps: all but `-count` if it is negative.
fn signed_count(source: &str, count: i64) -> usize {
    let length = source.chars().count();
    if count >= 0 {
        return usize::try_from(count).unwrap_or(length).min(length);
    }
    length.saturating_sub(usize::try_from(count.unsigned_abs()).unwrap_or(length))
}

fn trim(a: &[Value], start: bool, end: bool) -> Result<Value> {
    let set: Vec<char> = a.get(1).map_or(" ", text).chars().collect();
    let mut source = text(&a[0]);
    if start {
        source = source.trim_start_matches(|letter| set.contains(&letter));
    }
    if end {
        source = source.trim_end_matches(|letter| set.contains(&letter));
    }
    give(source)
}

fn split_part(source: &str, separator: &str, field: i64) -> Result<String> {
    if field == 0 {
        return Err(Error::new(Code::InvalidParameterValue, "field position must not be zero"));
    }
    let part = if separator.is_empty() {
        (field == 1 || field == -1).then_some(source)
    } else if field > 0 {
        source.split(separator).nth(usize::try_from(field - 1).unwrap_or(usize::MAX))
    } else {
        source.rsplit(separator).nth(usize::try_from(-(field + 1)).unwrap_or(usize::MAX))
    };
    Ok(part.unwrap_or_default().to_owned())
}

/// By the C collation, which is the only one: letters outside of ASCII stay as they are.
fn casing(d: &mut Definitions) {
    d.scalar("lower", [T], T, |_, a| give(text(&a[0]).to_ascii_lowercase()));
    d.scalar("upper", [T], T, |_, a| give(text(&a[0]).to_ascii_uppercase()));
    d.scalar("initcap", [T], T, |_, a| {
        let mut inside = false;
        let mut out = String::with_capacity(text(&a[0]).len());
        for letter in text(&a[0]).chars() {
            out.push(if inside { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() });
            inside = letter.is_ascii_alphanumeric();
        }
        give(out)
    });
}

fn measuring(d: &mut Definitions) {
    for name in ["length", "char_length", "character_length"] {
        d.scalar(name, [T], I, |_, a| Ok(Value::Int4(count(text(&a[0]).chars().count()))));
        d.scalar(name, [Type::Bpchar], I, |_, a| {
            Ok(Value::Int4(count(model::value::trim_blanks(text(&a[0])).chars().count())))
        });
    }
    d.scalar("length", [B], I, |_, a| Ok(Value::Int4(count(bytes(&a[0]).len()))));
    d.scalar("octet_length", [T], I, |_, a| Ok(Value::Int4(count(text(&a[0]).len()))));
    d.scalar("octet_length", [B], I, |_, a| Ok(Value::Int4(count(bytes(&a[0]).len()))));
    d.scalar("bit_length", [T], I, |_, a| Ok(Value::Int4(count(text(&a[0]).len() * 8))));
    d.scalar("bit_length", [B], I, |_, a| Ok(Value::Int4(count(bytes(&a[0]).len() * 8))));
    for name in ["strpos", "position"] {
        d.scalar(name, [T, T], I, |_, a| {
            let place = text(&a[0]).find(text(&a[1]));
            Ok(Value::Int4(place.map_or(0, |at| count(text(&a[0])[..at].chars().count()) + 1)))
        });
    }
    d.scalar("starts_with", [T, T], Type::Bool, |_, a| Ok(Value::Bool(text(&a[0]).starts_with(text(&a[1])))));
    d.infix("^@", T, T, Type::Bool, |_, a| Ok(Value::Bool(text(&a[0]).starts_with(text(&a[1])))));
}

fn count(of: usize) -> i32 {
    i32::try_from(of).expect("a text has at most 256 Mi characters")
}

fn encoding(d: &mut Definitions) {
    d.scalar("ascii", [T], I, |_, a| {
        Ok(Value::Int4(text(&a[0]).chars().next().map_or(0, |letter| letter as i32)))
    });
    d.scalar("chr", [I], T, |_, a| {
        let refuse = |message: String| Error::new(Code::ProgramLimitExceeded, message);
        match u32::try_from(int(&a[0])) {
            Ok(0) => Err(refuse("null character not permitted".to_owned())),
            Err(_) if int(&a[0]) < 0 => {
                Err(Error::new(Code::InvalidParameterValue, "character number must be positive"))
            }
            Err(_) => Err(refuse(format!("requested character too large for encoding: {}", int(&a[0])))),
            Ok(number) => match char::from_u32(number) {
                Some(letter) => give(letter.to_string()),
                None => Err(refuse(format!("requested character too large for encoding: {number}"))),
            },
        }
    });
    d.scalar("to_hex", [I], T, |_, a| give(format!("{:x}", int4(&a[0]))));
    d.scalar("to_hex", [Type::Int8], T, |_, a| give(format!("{:x}", int(&a[0]))));
    d.scalar("md5", [T], T, |_, a| give(digest::hex(&digest::md5(text(&a[0]).as_bytes()))));
    d.scalar("md5", [B], T, |_, a| give(digest::hex(&digest::md5(bytes(&a[0])))));
    d.scalar("encode", [B, T], T, |_, a| match text(&a[1]).to_ascii_lowercase().as_str() {
        "hex" => give(digest::hex(bytes(&a[0]))),
        "base64" => give(base64_lines(bytes(&a[0]))),
        "escape" => give(escape(bytes(&a[0]))),
        other => Err(unknown_encoding(other)),
    });
    d.scalar("decode", [T, T], B, |_, a| {
        let source = text(&a[0]);
        let decoded = match text(&a[1]).to_ascii_lowercase().as_str() {
            "hex" => decode_hex(source)?,
            "base64" => decode_base64(source)?,
            "escape" => decode_escape(source)?,
            other => return Err(unknown_encoding(other)),
        };
        Ok(Value::Bytea(Bytea::from(decoded)))
    });
    d.scalar("convert_from", [B, T], T, |_, a| {
        utf8_only(text(&a[1]))?;
        match std::str::from_utf8(bytes(&a[0])) {
            Ok(valid) if !valid.contains('\0') => give(valid),
            Ok(_) => Err(ValueError::invalid_utf8(&[0]).into()),
            Err(error) => Err(ValueError::invalid_utf8(&bytes(&a[0])[error.valid_up_to()..]).into()),
        }
    });
    d.scalar("convert_to", [T, T], B, |_, a| {
        utf8_only(text(&a[1]))?;
        Ok(Value::Bytea(Bytea::from(text(&a[0]).as_bytes().to_vec())))
    });
}

fn utf8_only(encoding: &str) -> Result<()> {
    if matches!(encoding.to_ascii_lowercase().replace('-', "").as_str(), "utf8" | "unicode") {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("encoding \"{encoding}\" is not supported"),
        "Texts are UTF-8; convert on the client.",
    ))
}

fn unknown_encoding(name: &str) -> Error {
    Error::new(Code::InvalidParameterValue, format!("unrecognized encoding: \"{name}\""))
}

fn invalid_symbol(symbol: char, encoding: &str) -> Error {
    let message = format!("invalid symbol \"{symbol}\" found while decoding {encoding} sequence");
    Error::new(Code::InvalidParameterValue, message)
}

fn decode_hex(source: &str) -> Result<Vec<u8>> {
    let mut nibbles = Vec::with_capacity(source.len());
    for symbol in source.chars().filter(|symbol| !symbol.is_ascii_whitespace()) {
        let nibble = symbol.to_digit(16).ok_or_else(|| {
            Error::new(Code::InvalidParameterValue, format!("invalid hexadecimal digit: \"{symbol}\""))
        })?;
        nibbles.push(nibble as u8);
    }
    if nibbles.len() % 2 == 1 {
        return Err(Error::new(
            Code::InvalidParameterValue,
            "invalid hexadecimal data: odd number of digits",
        ));
    }
    Ok(nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Base 64 (RFC 2045) in lines of 76 characters, as PostgreSQL breaks them.
fn base64_lines(source: &[u8]) -> String {
    let lines: Vec<String> = source.chunks(57).map(|line| STANDARD.encode(line)).collect();
    lines.join("\n")
}

fn decode_base64(source: &str) -> Result<Vec<u8>> {
    let symbols: String = source.chars().filter(|symbol| !symbol.is_ascii_whitespace()).collect();
    STANDARD.decode(&symbols).map_err(|error| match error {
        DecodeError::InvalidByte(_, symbol) => invalid_symbol(char::from(symbol), "base64"),
        _ => Error::new(Code::InvalidParameterValue, "invalid base64 end sequence")
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."),
    })
}

fn escape(source: &[u8]) -> String {
    let mut out = String::with_capacity(source.len());
    for byte in source {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0 | 0x80.. => out.push_str(&format!("\\{byte:03o}")),
            byte => out.push(char::from(*byte)),
        }
    }
    out
}

fn decode_escape(source: &str) -> Result<Vec<u8>> {
    let malformed = || Error::from(ValueError::invalid_text("bytea", source));
    let mut out = Vec::with_capacity(source.len());
    let mut rest = source.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'\\' {
            out.push(*first);
            rest = tail;
            continue;
        }
        match tail {
            [b'\\', after @ ..] => {
                out.push(b'\\');
                rest = after;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => return Err(malformed()),
        }
    }
    Ok(out)
}

fn formatting(d: &mut Definitions) {
    d.scalar("quote_ident", [T], T, |_, a| give(quote_identifier(text(&a[0]))));
    d.scalar("quote_literal", [T], T, |_, a| give(quote_literal(text(&a[0]))));
    d.scalar("quote_literal", [Accepts::Element], T, |context, a| {
        give(quote_literal(&display(context, &a[0])))
    })
    .stable();
    d.scalar("quote_nullable", [Accepts::Element], T, |context, a| match &a[0] {
        Value::Null => give("NULL"),
        value => give(quote_literal(&display(context, value))),
    })
    .lenient()
    .stable();
    d.scalar("format", [Accepts::Exact(T), Accepts::Any], T, |context, a| {
        if a[0].is_null() {
            return Ok(Value::Null);
        }
        format_text(context, text(&a[0]), &a[1..]).and_then(give)
    })
    .variadic()
    .lenient()
    .stable();
    d.scalar("array_to_string", [Accepts::Array, Accepts::Exact(T), Accepts::Exact(T)], T, |context, a| {
        let (Some(array), Some(separator)) = (a[0].as_array(), a[1].as_str()) else { return Ok(Value::Null) };
        let null = a.get(2).and_then(Value::as_str);
        let pieces = array.values().iter().filter_map(|value| match value {
            Value::Null => null.map(str::to_owned),
            value => Some(display(context, value)),
        });
        give(pieces.collect::<Vec<_>>().join(separator))
    })
    .optional(1)
    .lenient()
    .stable();
    d.scalar("num_nulls", [Accepts::Any], I, |_, a| {
        Ok(Value::Int4(count(a.iter().filter(|value| value.is_null()).count())))
    })
    .variadic()
    .lenient();
    d.scalar("num_nonnulls", [Accepts::Any], I, |_, a| {
        Ok(Value::Int4(count(a.iter().filter(|value| !value.is_null()).count())))
    })
    .variadic()
    .lenient();
}

/// An identifier as it must be written in SQL: quoted if it is not plain lower case, or is a key word.
pub(crate) fn quote_identifier(name: &str) -> String {
    let plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if plain && !RESERVED.contains(&name) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal: quotes doubled, backslashes in the `E''` form.
pub(crate) fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        return format!("E'{}'", quoted.replace('\\', "\\\\"));
    }
    format!("'{quoted}'")
}

/// Key words that PostgreSQL 15 quotes as identifiers (all but the unreserved ones, appendix C).
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

/// `format(text, …)`: `%s`, `%I`, `%L`, `%%`, with position (`%2$s`), width and `-`.
fn format_text(context: &Context, pattern: &str, arguments: &[Value]) -> Result<String> {
    let unterminated = || {
        Error::new(Code::InvalidParameterValue, "unterminated format() type specifier")
            .with_hint("For a single \"%\" use \"%%\".")
    };
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let mut next = 0;
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        if letters.peek() == Some(&'%') {
            letters.next();
            out.push('%');
            continue;
        }
        let mut specifier = Specifier::parse(&mut letters)?.ok_or_else(unterminated)?;
        let mut take = |place: Option<usize>| -> Result<&Value> {
            let at = place.map_or(next, |place| place - 1);
            next = at + 1;
            arguments
                .get(at)
                .ok_or_else(|| Error::new(Code::InvalidParameterValue, "too few arguments for format()"))
        };
        if let Some(place) = specifier.width_from.take() {
            let width = take(place)?.as_i64().unwrap_or(0);
            specifier.left |= width < 0;
            specifier.width = usize::try_from(width.unsigned_abs()).unwrap_or(0);
        }
        let value = take(specifier.place)?;
        let piece = match (specifier.kind, value) {
            ('s', Value::Null) => String::new(),
            ('s', value) => display(context, value),
            ('I', Value::Null) => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(Error::new(Code::NullValueNotAllowed, message));
            }
            ('I', value) => quote_identifier(&display(context, value)),
            ('L', Value::Null) => "NULL".to_owned(),
            ('L', value) => quote_literal(&display(context, value)),
            (other, _) => {
                let message = format!("unrecognized format() type specifier \"{other}\"");
                return Err(Error::new(Code::InvalidParameterValue, message)
                    .with_hint("For a single \"%\" use \"%%\"."));
            }
        };
        let fill = specifier.width.saturating_sub(piece.chars().count());
        if fill > TEXT_BYTES_MAX {
            return Err(too_large());
        }
        let blanks = " ".repeat(fill);
        out.push_str(&if specifier.left { piece + &blanks } else { blanks + &piece });
    }
    Ok(out)
}

/// What stands between `%` and its letter.
struct Specifier {
    place: Option<usize>,
    left: bool,
    width: usize,
    width_from: Option<Option<usize>>,
    kind: char,
}

impl Specifier {
    /// None if the pattern ends first.
    fn parse(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Option<Self>> {
        let mut specifier = Self { place: None, left: false, width: 0, width_from: None, kind: 's' };
        let number = Self::number(letters)?;
        if letters.peek() == Some(&'$') {
            letters.next();
            if number == Some(0) {
                let message = "format specifies argument 0, but arguments are numbered from 1";
                return Err(Error::new(Code::InvalidParameterValue, message));
            }
            specifier.place = number;
        } else if let Some(width) = number {
            specifier.width = width;
        }
        while letters.peek() == Some(&'-') {
            letters.next();
            specifier.left = true;
        }
        if letters.peek() == Some(&'*') {
            letters.next();
            let place = Self::number(letters)?;
            if place.is_some() && letters.next() != Some('$') {
                let message = "width argument position must be ended by \"$\"";
                return Err(Error::new(Code::InvalidParameterValue, message));
            }
            specifier.width_from = Some(place.filter(|place| *place > 0));
        } else if let Some(width) = Self::number(letters)? {
            specifier.width = width;
        }
        Ok(letters.next().map(|kind| Self { kind, ..specifier }))
    }

    fn number(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Option<usize>> {
        let mut number = None;
        while let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(10)) {
            letters.next();
            let grown = number.unwrap_or(0_usize) * 10 + digit as usize;
            if grown > i32::MAX as usize {
                return Err(Error::new(Code::NumericValueOutOfRange, "number is out of range"));
            }
            number = Some(grown);
        }
        Ok(number)
    }
}

fn of_bytes(d: &mut Definitions) {
    d.scalar("position", [B, B], I, |_, a| {
        let (whole, part) = (bytes(&a[0]), bytes(&a[1]));
        let place =
            if part.is_empty() { Some(0) } else { whole.windows(part.len()).position(|at| at == part) };
        Ok(Value::Int4(place.map_or(0, |at| count(at) + 1)))
    });
    d.scalar("get_byte", [B, I], I, |_, a| {
        let place = byte_place(bytes(&a[0]), int(&a[1]))?;
        Ok(Value::Int4(i32::from(bytes(&a[0])[place])))
    });
    d.scalar("set_byte", [B, I, I], B, |_, a| {
        let place = byte_place(bytes(&a[0]), int(&a[1]))?;
        let mut changed = bytes(&a[0]).to_vec();
        changed[place] = int(&a[2]) as u8;
        Ok(Value::Bytea(Bytea::from(changed)))
    });
    for (name, body) in [
        (
            "sha256",
            (|_, a| Ok(Value::Bytea(Bytea::from(digest::sha256(bytes(&a[0])).to_vec())))) as super::Scalar,
        ),
        ("reverse", |_, a| {
            Ok(Value::Bytea(Bytea::from(bytes(&a[0]).iter().rev().copied().collect::<Vec<_>>())))
        }),
    ] {
        d.scalar(name, [B], B, body);
    }
    d.scalar("string_to_array", [T, T, T], Type::Array(model::types::Scalar::Text), |context, a| {
        super::array::string_to_array(context, a)
    })
    .optional(1)
    .lenient();
    d.scalar("cardinality", [Accepts::Array], I, |_, a| Ok(Value::Int4(count(array_of(&a[0]).len()))));
    d.scalar("booleq", [Type::Bool, Type::Bool], Type::Bool, |_, a| {
        Ok(Value::Bool(boolean(&a[0]) == boolean(&a[1])))
    });
}

fn byte_place(source: &[u8], place: i64) -> Result<usize> {
    let valid = usize::try_from(place).ok().filter(|at| *at < source.len());
    valid.ok_or_else(|| {
        let message = format!("index {place} out of valid range, 0..{}", source.len() as i64 - 1);
        Error::new(Code::ArraySubscriptError, message)
    })
}

/// Digests of a library, in one place.
mod digest {
    use md5::{Digest, Md5};
    use sha2::Sha256;

    pub(super) fn md5(bytes: &[u8]) -> [u8; 16] {
        Md5::digest(bytes).into()
    }

    pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    pub(super) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
