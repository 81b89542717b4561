//! Errors as a tool's answer: a code, what happened to the data, and what to do next.

use model::{Code, Error};
use serde_json::{Value as Json, json};

/// The structured content of a result with `isError`.
pub(crate) fn body(error: &Error) -> Json {
    let mut fields = json!({
        "code": error.code().sqlstate(),
        "message": error.message(),
        "state": state(error.code()),
        "retry": error.code().is_retryable(),
    });
    for (name, text) in [("detail", error.detail()), ("hint", error.hint())] {
        if let Some(text) = text {
            fields[name] = Json::from(text);
        }
    }
    if let Some(position) = error.position() {
        fields["position"] = Json::from(position);
    }
    json!({"error": fields})
}

/// What is known of the data after this error.
fn state(code: Code) -> &'static str {
    if code == Code::UnknownOutcome { "unknown" } else { "nothing applied" }
}

/// Arguments that do not fit the tool's schema: the model can mend them.
pub(crate) fn arguments(message: String) -> Error {
    Error::new(Code::InvalidParameterValue, message).with_hint("See the tool's input schema.")
}
