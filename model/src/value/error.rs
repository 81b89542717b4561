//! Value errors: why a text, a binary form or an operation on values is refused.
//!
//! The message is PostgreSQL's, word for word, because clients and tests compare it; the kind carries the SQLSTATE.
//!
//! Not here: errors of keys and rows read from disk (`key`, `row`), errors of statements (`sql`).

use std::borrow::Cow;
use std::fmt;

/// What sort of refusal this is; one per SQLSTATE that values can raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueErrorKind {
    /// `22P02`: the text is not of this type.
    InvalidText,
    /// `22P03`: the binary form is not of this type.
    InvalidBinary,
    /// `08P01`: the binary form ends before the value does.
    ShortBinary,
    /// `22003`: outside the type's range.
    OutOfRange,
    /// `22007`: not a date or time.
    InvalidDatetime,
    /// `22008`: a date or time field or result is out of range.
    DatetimeOverflow,
    /// `22015`: an interval field is out of range.
    IntervalOverflow,
    /// `22009`: a time zone displacement is out of range.
    InvalidZoneOffset,
    /// `22001`: too long for the column.
    TooLong,
    /// `22021`: bytes that no text may hold.
    InvalidCharacter,
    /// `22P05`: a character that cannot be represented.
    Untranslatable,
    /// `22012`: division by zero.
    DivisionByZero,
    /// `2201E`: no logarithm of this.
    InvalidLogarithm,
    /// `2201F`: no such power or root.
    InvalidPower,
    /// `22023`: a parameter outside what is allowed.
    InvalidParameter,
    /// `2202E`: an array subscript or shape that does not fit.
    ArraySubscript,
    /// `22004`: null where none is allowed.
    NullNotAllowed,
    /// `42804`: a value of another type than said.
    TypeMismatch,
    /// `42704`: no such type.
    UndefinedObject,
    /// `42601`: malformed type modifier and the like.
    Syntax,
    /// `54000`: larger than any value may be.
    LimitExceeded,
    /// `54001`: nested too deeply.
    TooComplex,
    /// `0A000`: not supported for this type.
    NotSupported,
}

impl ValueErrorKind {
    /// The SQLSTATE.
    pub const fn code(self) -> &'static str {
        match self {
            ValueErrorKind::InvalidText => "22P02",
            ValueErrorKind::InvalidBinary => "22P03",
            ValueErrorKind::ShortBinary => "08P01",
            ValueErrorKind::OutOfRange => "22003",
            ValueErrorKind::InvalidDatetime => "22007",
            ValueErrorKind::DatetimeOverflow => "22008",
            ValueErrorKind::IntervalOverflow => "22015",
            ValueErrorKind::InvalidZoneOffset => "22009",
            ValueErrorKind::TooLong => "22001",
            ValueErrorKind::InvalidCharacter => "22021",
            ValueErrorKind::Untranslatable => "22P05",
            ValueErrorKind::DivisionByZero => "22012",
            ValueErrorKind::InvalidLogarithm => "2201E",
            ValueErrorKind::InvalidPower => "2201F",
            ValueErrorKind::InvalidParameter => "22023",
            ValueErrorKind::ArraySubscript => "2202E",
            ValueErrorKind::NullNotAllowed => "22004",
            ValueErrorKind::TypeMismatch => "42804",
            ValueErrorKind::UndefinedObject => "42704",
            ValueErrorKind::Syntax => "42601",
            ValueErrorKind::LimitExceeded => "54000",
            ValueErrorKind::TooComplex => "54001",
            ValueErrorKind::NotSupported => "0A000",
        }
    }
}

/// A refusal: its kind, PostgreSQL's message, and a detail where PostgreSQL gives one. One pointer wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError(Box<Refusal>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    kind: ValueErrorKind,
    message: Cow<'static, str>,
    detail: Option<String>,
    hint: Option<&'static str>,
}

impl ValueError {
    /// A refusal with a message.
    pub fn new(kind: ValueErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Refusal { kind, message: message.into(), detail: None, hint: None }))
    }

    /// Adds a detail line.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds a hint line.
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.0.hint = Some(hint);
        self
    }

    /// What sort of refusal this is.
    pub fn kind(&self) -> ValueErrorKind {
        self.0.kind
    }

    /// The SQLSTATE.
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// PostgreSQL's primary message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The detail line, if any.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The hint line, if any.
    pub fn hint(&self) -> Option<&'static str> {
        self.0.hint
    }

    /// `invalid input syntax for type integer: "abc"`.
    pub fn invalid_text(type_name: &str, input: &str) -> Self {
        let message = format!("invalid input syntax for type {type_name}: \"{input}\"");
        Self::new(ValueErrorKind::InvalidText, message)
    }

    /// `value "99999" is out of range for type smallint`.
    pub fn text_out_of_range(type_name: &str, input: &str) -> Self {
        let message = format!("value \"{input}\" is out of range for type {type_name}");
        Self::new(ValueErrorKind::OutOfRange, message)
    }

    /// `integer out of range`.
    pub fn out_of_range(type_name: &str) -> Self {
        Self::new(ValueErrorKind::OutOfRange, format!("{type_name} out of range"))
    }

    /// `division by zero`.
    pub fn division_by_zero() -> Self {
        Self::new(ValueErrorKind::DivisionByZero, "division by zero")
    }

    /// `value overflows numeric format`.
    pub fn numeric_overflow() -> Self {
        Self::new(ValueErrorKind::OutOfRange, "value overflows numeric format")
    }

    /// `invalid input syntax for type date: "x"`, under the datetime SQLSTATE.
    pub fn invalid_datetime(type_name: &str, input: &str) -> Self {
        let message = format!("invalid input syntax for type {type_name}: \"{input}\"");
        Self::new(ValueErrorKind::InvalidDatetime, message)
    }

    /// `date/time field value out of range: "2024-13-01"`.
    pub fn datetime_field(input: &str) -> Self {
        Self::new(
            ValueErrorKind::DatetimeOverflow,
            format!("date/time field value out of range: \"{input}\""),
        )
    }

    /// `timestamp out of range`, `interval out of range`, `date out of range`.
    pub fn datetime_out_of_range(type_name: &str) -> Self {
        Self::new(ValueErrorKind::DatetimeOverflow, format!("{type_name} out of range"))
    }

    /// `value too long for type character varying(3)`.
    pub fn too_long(type_name: &str) -> Self {
        Self::new(ValueErrorKind::TooLong, format!("value too long for type {type_name}"))
    }

    /// `incorrect binary data format`.
    pub fn invalid_binary() -> Self {
        Self::new(ValueErrorKind::InvalidBinary, "incorrect binary data format")
    }

    /// `insufficient data left in message`.
    pub fn short_binary() -> Self {
        Self::new(ValueErrorKind::ShortBinary, "insufficient data left in message")
    }

    /// `invalid byte sequence for encoding "UTF8": 0x00`.
    pub fn invalid_utf8(bytes: &[u8]) -> Self {
        let mut message = String::from("invalid byte sequence for encoding \"UTF8\":");
        for byte in bytes.iter().take(4) {
            message.push_str(&format!(" 0x{byte:02x}"));
        }
        Self::new(ValueErrorKind::InvalidCharacter, message)
    }

    /// A parameter outside what is allowed.
    pub fn parameter(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ValueErrorKind::InvalidParameter, message)
    }

    /// `type "nope" does not exist`.
    pub fn undefined_type(name: &str) -> Self {
        Self::new(ValueErrorKind::UndefinedObject, format!("type \"{name}\" does not exist"))
    }

    /// A modifier the type does not take.
    pub fn bad_type_modifier(name: &str) -> Self {
        Self::new(ValueErrorKind::Syntax, format!("invalid type modifier: \"{name}\""))
    }

    /// A value that is not of the type it is said to be.
    pub fn mismatch(expected: &str, found: &str) -> Self {
        Self::new(ValueErrorKind::TypeMismatch, format!("value of type {found} where {expected} is expected"))
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ValueError {}
