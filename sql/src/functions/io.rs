//! Text forms of values, in the one place that the rest of the functions asks.

use model::{Result, Type, Value, types::Typmod, value::text_io};

use crate::context::Context;

/// The text form of a value that is not null.
pub(crate) fn write(context: &Context, value: &Value, of: Type) -> String {
    let mut out = String::new();
    text_io::write_text(value, of, &context.text, &mut out);
    out
}

/// The value a text means.
pub(crate) fn parse(context: &Context, source: &str, to: Type, typmod: Typmod) -> Result<Value> {
    Ok(text_io::parse(to, typmod, source, &context.text)?)
}

/// A value cut or padded to its type's modifier.
pub(crate) fn fit(value: Value, of: Type, typmod: Typmod, explicit: bool) -> Result<Value> {
    Ok(text_io::apply_typmod(value, of, typmod, explicit)?)
}
