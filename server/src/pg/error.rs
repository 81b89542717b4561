//! Errors on this door: every code as severity and SQLSTATE, and the fields of ErrorResponse and NoticeResponse.
//!
//! Invariants:
//! - Every code has its line in `tests/golden/pg_error_codes.txt`: a new one fails the test until it is listed.
//! - `source` of an error is never sent. A NUL in a text is shown, never sent.

use model::{Code, Error};

use super::encode::{Output, put_text};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// Done, but something is odd.
    Warning,
    /// For information.
    Notice,
}

impl Severity {
    fn text(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

/// The severity of a code in a session; what is refused before there is one is always FATAL. `tests/golden` lists them all.
pub(super) fn severity(code: Code) -> Severity {
    let is_fatal = matches!(
        code,
        Code::AdminShutdown
            | Code::CrashShutdown
            | Code::IdleSessionTimeout
            | Code::IdleInTransactionSessionTimeout
    );
    match code.sqlstate() {
        _ if is_fatal => Severity::Fatal,
        "00000" => Severity::Notice,
        "01000" => Severity::Warning,
        _ => Severity::Error,
    }
}

/// Writes an ErrorResponse.
pub(super) fn put_error(output: &mut Output, severity: Severity, error: &Error) {
    output.message(b'E', |out| put_fields(out, severity.text(), error));
}

/// Writes a NoticeResponse. Its severity is the notice's own: a notice may carry an error's code, such as `25001`.
pub(super) fn put_notice(output: &mut Output, severity: &str, notice: &Error) {
    output.message(b'N', |out| put_fields(out, severity, notice));
}

fn put_fields(out: &mut Vec<u8>, severity: &str, error: &Error) {
    let mut field = |letter: u8, text: &str| {
        out.push(letter);
        put_text(out, text);
    };
    field(b'S', severity);
    field(b'V', severity);
    field(b'C', error.code().sqlstate());
    field(b'M', error.message());
    let object = error.object();
    let position = error.position().map(|position| position.to_string());
    let optional = [
        (b'D', error.detail()),
        (b'H', error.hint()),
        (b'P', position.as_deref()),
        (b'W', error.context()),
        (b's', object.schema.as_deref()),
        (b't', object.table.as_deref()),
        (b'c', object.column.as_deref()),
        (b'd', object.data_type.as_deref()),
        (b'n', object.constraint.as_deref()),
    ];
    for (letter, text) in optional {
        if let Some(text) = text {
            field(letter, text);
        }
    }
    out.push(0);
}

#[cfg(test)]
mod tests {
    use model::error::Object;

    use super::*;

    #[test]
    fn every_code_has_its_line_in_the_golden_list() {
        let listed: String = Code::ALL
            .iter()
            .map(|code| format!("{} {code:?} {}\n", code.sqlstate(), severity(*code).text()))
            .collect();
        let golden = include_str!("../../tests/golden/pg_error_codes.txt");
        assert!(listed == golden, "tests/golden/pg_error_codes.txt should read:\n{listed}");
    }

    #[test]
    fn all_fields_are_sent_and_a_nul_is_shown() {
        let error = Error::new(Code::UniqueViolation, "duplicate \0 key")
            .with_detail("D.")
            .with_hint("H.")
            .with_position(7)
            .with_context("W")
            .with_object(Object {
                schema: Some("s".into()),
                table: Some("t".into()),
                column: Some("c".into()),
                data_type: None,
                constraint: Some("n".into()),
            });
        let mut output = Output::default();
        put_error(&mut output, Severity::Error, &error);
        let body = String::from_utf8_lossy(&output.bytes()[5..]).replace('\0', "|");
        assert_eq!(body, "SERROR|VERROR|C23505|Mduplicate \\0 key|DD.|HH.|P7|WW|ss|tt|cc|nn||");
    }
}
