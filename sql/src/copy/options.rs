//! The options of COPY, checked as PostgreSQL checks them.

use model::{Code, Error, Result};

/// How rows are written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// One line per row, backslash escapes.
    #[default]
    Text,
    /// Comma-separated values.
    Csv,
    /// PostgreSQL's own.
    Binary,
}

/// Whether the first line names the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Header {
    /// There is none.
    #[default]
    None,
    /// It is written, or left out when reading.
    Names,
    /// When reading, it must name the columns in their order.
    Match,
}

/// Which columns are always quoted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuoteColumns {
    /// All of them (`FORCE_QUOTE *`).
    All,
    /// These, by name.
    Some(Vec<String>),
}

/// The options of one COPY.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// How rows are written down.
    pub format: Format,
    /// What stands between fields.
    pub delimiter: u8,
    /// What stands for null.
    pub null: String,
    /// Whether the first line names the columns.
    pub header: Header,
    /// What quotes a CSV field.
    pub quote: u8,
    /// What stands before a quote inside a quoted CSV field.
    pub escape: u8,
    /// Columns that are always quoted when writing CSV.
    pub force_quote: QuoteColumns,
    /// Columns that are never null when reading CSV.
    pub force_not_null: Vec<String>,
    /// Columns whose quoted fields may be null when reading CSV.
    pub force_null: Vec<String>,
    /// All rows in one command (the default), or as many as it takes (`atomic = off`).
    pub atomic: bool,
}

/// The value of an option as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionValue {
    /// Nothing: true.
    None,
    /// A word, a string or a number.
    Word(String),
    /// A list of column names.
    Columns(Vec<String>),
    /// `*`.
    Star,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            format: Format::Text,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            header: Header::None,
            quote: b'"',
            escape: b'"',
            force_quote: QuoteColumns::Some(Vec::new()),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
            atomic: true,
        }
    }
}

impl Options {
    /// The options that were written, for COPY FROM (`from`) or COPY TO.
    pub fn parse(written: &[(String, OptionValue)], from: bool) -> Result<Self> {
        let mut given = Given::default();
        for (name, value) in written {
            given.take(name, value, from)?;
        }
        given.finish(from)
    }
}

#[derive(Default)]
struct Given {
    format: Option<Format>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<Header>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<QuoteColumns>,
    force_not_null: Option<Vec<String>>,
    force_null: Option<Vec<String>>,
    atomic: Option<bool>,
    freeze: Option<bool>,
    encoding: Option<String>,
}

fn syntax(message: impl Into<String>) -> Error {
    Error::new(Code::SyntaxError, message)
}

fn unsupported(message: impl Into<String>) -> Error {
    Error::new(Code::FeatureNotSupported, message)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidParameterValue, message)
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<()> {
    if place.replace(value).is_some() {
        return Err(syntax("conflicting or redundant options"));
    }
    Ok(())
}

fn word(name: &str, value: &OptionValue) -> Result<String> {
    match value {
        OptionValue::Word(word) => Ok(word.clone()),
        OptionValue::None | OptionValue::Columns(_) | OptionValue::Star => {
            Err(syntax(format!("{name} requires a parameter")))
        }
    }
}

fn truth(name: &str, value: &OptionValue) -> Result<bool> {
    match value {
        OptionValue::None => Ok(true),
        OptionValue::Word(word) => match word.to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(syntax(format!("{name} requires a Boolean value"))),
        },
        OptionValue::Columns(_) | OptionValue::Star => {
            Err(syntax(format!("{name} requires a Boolean value")))
        }
    }
}

fn columns(name: &str, value: &OptionValue) -> Result<Vec<String>> {
    match value {
        OptionValue::Columns(columns) => Ok(columns.clone()),
        OptionValue::None | OptionValue::Word(_) | OptionValue::Star => {
            Err(invalid(format!("argument to option \"{name}\" must be a list of column names")))
        }
    }
}

impl Given {
    fn take(&mut self, name: &str, value: &OptionValue, from: bool) -> Result<()> {
        match name.to_ascii_lowercase().as_str() {
            "format" => {
                let format = word(name, value)?;
                let format = match format.to_ascii_lowercase().as_str() {
                    "text" => Format::Text,
                    "csv" => Format::Csv,
                    "binary" => Format::Binary,
                    _ => return Err(invalid(format!("COPY format \"{format}\" not recognized"))),
                };
                set(&mut self.format, format)
            }
            "delimiter" => set(&mut self.delimiter, word(name, value)?),
            "null" => set(&mut self.null, word(name, value)?),
            "header" => {
                let matches = matches!(value, OptionValue::Word(word) if word.eq_ignore_ascii_case("match"));
                if matches && !from {
                    return Err(unsupported("cannot use \"match\" with HEADER in COPY TO"));
                }
                let header = match (matches, truth(name, value)) {
                    (true, _) => Header::Match,
                    (false, Ok(true)) => Header::Names,
                    (false, Ok(false)) => Header::None,
                    (false, Err(_)) => return Err(syntax("header requires a Boolean value or \"match\"")),
                };
                set(&mut self.header, header)
            }
            "quote" => set(&mut self.quote, word(name, value)?),
            "escape" => set(&mut self.escape, word(name, value)?),
            "force_quote" => {
                let columns = match value {
                    OptionValue::Star => QuoteColumns::All,
                    value => QuoteColumns::Some(columns(name, value)?),
                };
                set(&mut self.force_quote, columns)
            }
            "force_not_null" => set(&mut self.force_not_null, columns(name, value)?),
            "force_null" => set(&mut self.force_null, columns(name, value)?),
            "encoding" => set(&mut self.encoding, word(name, value)?),
            "freeze" => set(&mut self.freeze, truth(name, value)?),
            "atomic" => set(&mut self.atomic, truth(name, value)?),
            _ => Err(syntax(format!("option \"{name}\" not recognized"))),
        }
    }

    fn finish(self, from: bool) -> Result<Options> {
        let format = self.format.unwrap_or_default();
        let csv = format == Format::Csv;
        if format == Format::Binary {
            for (given, name) in [(self.delimiter.is_some(), "DELIMITER"), (self.null.is_some(), "NULL")] {
                if given {
                    return Err(syntax(format!("cannot specify {name} in BINARY mode")));
                }
            }
            if self.header.is_some_and(|header| header != Header::None) {
                return Err(unsupported("cannot specify HEADER in BINARY mode"));
            }
        }
        if let Some(encoding) = &self.encoding
            && !matches!(encoding.to_ascii_lowercase().replace(['-', '_'], "").as_str(), "utf8" | "unicode")
        {
            return Err(Error::unsupported(
                format!("COPY in encoding \"{encoding}\" is not supported"),
                "Convert the data to UTF8.",
            ));
        }
        if self.freeze == Some(true) && !from {
            return Err(unsupported("COPY freeze only available using COPY FROM"));
        }
        let delimiter =
            one_byte("delimiter", self.delimiter.as_deref().unwrap_or(if csv { "," } else { "\t" }))?;
        if matches!(delimiter, b'\r' | b'\n') {
            return Err(invalid("COPY delimiter cannot be newline or carriage return"));
        }
        let refused = b"\\.abcdefghijklmnopqrstuvwxyz0123456789";
        if !csv && refused.contains(&delimiter) {
            return Err(invalid(format!("COPY delimiter cannot be \"{}\"", char::from(delimiter))));
        }
        let null = self.null.unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() });
        if null.contains(['\r', '\n']) {
            return Err(invalid("COPY null representation cannot use newline or carriage return"));
        }
        if format != Format::Binary && null.as_bytes().contains(&delimiter) {
            return Err(unsupported("COPY delimiter must not appear in the NULL specification"));
        }
        let only_csv = [
            (self.quote.is_some(), "COPY quote available only in CSV mode"),
            (self.escape.is_some(), "COPY escape available only in CSV mode"),
            (self.force_quote.is_some(), "COPY force quote available only in CSV mode"),
            (self.force_not_null.is_some(), "COPY force not null available only in CSV mode"),
            (self.force_null.is_some(), "COPY force null available only in CSV mode"),
        ];
        if let Some((_, message)) = only_csv.iter().find(|(given, _)| *given && !csv) {
            return Err(unsupported(*message));
        }
        let one_way = [
            (self.force_quote.is_some() && from, "COPY force quote only available using COPY TO"),
            (self.force_not_null.is_some() && !from, "COPY force not null only available using COPY FROM"),
            (self.force_null.is_some() && !from, "COPY force null only available using COPY FROM"),
            (self.atomic.is_some() && !from, "COPY atomic only available using COPY FROM"),
        ];
        if let Some((_, message)) = one_way.iter().find(|(given, _)| *given) {
            return Err(unsupported(*message));
        }
        let quote = one_byte("quote", self.quote.as_deref().unwrap_or("\""))?;
        let escape = match &self.escape {
            Some(escape) => one_byte("escape", escape)?,
            None => quote,
        };
        if csv && delimiter == quote {
            return Err(invalid("COPY delimiter and quote must be different"));
        }
        if csv && null.as_bytes().contains(&quote) {
            return Err(unsupported("CSV quote character must not appear in the NULL specification"));
        }
        Ok(Options {
            format,
            delimiter,
            null,
            header: self.header.unwrap_or_default(),
            quote,
            escape,
            force_quote: self.force_quote.unwrap_or(QuoteColumns::Some(Vec::new())),
            force_not_null: self.force_not_null.unwrap_or_default(),
            force_null: self.force_null.unwrap_or_default(),
            atomic: self.atomic.unwrap_or(true),
        })
    }
}

fn one_byte(name: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ if name == "delimiter" => Err(unsupported("COPY delimiter must be a single one-byte character")),
        _ => Err(unsupported(format!("COPY {name} must be a single one-byte character"))),
    }
}
