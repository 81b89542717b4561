//! Types and values as bytes: a type by its OID, a value in the form columns have.

use model::{Type, Value, row};

use super::{Put as _, Reader, Result};

/// Appends a type.
pub(super) fn put_type(out: &mut Vec<u8>, of: Type) {
    out.put_varint(of.oid().into());
}

/// Reads a type.
pub(super) fn read_type(reader: &mut Reader<'_>) -> Result<Type> {
    let oid = reader.u32()?;
    match Type::from_oid(oid) {
        Some(of) => Ok(of),
        None => reader.unknown("a type", oid.into()),
    }
}

/// Appends a value of a type: 0 for null, else 1 and its bytes. A value that is not of the type becomes null; binders never
/// make one.
pub(super) fn put(out: &mut Vec<u8>, value: &Value, of: Type) {
    let mut bytes = Vec::new();
    if value.is_null() || row::write_value(value, of, &mut bytes).is_none() {
        out.push(0);
        return;
    }
    out.push(1);
    out.put_blob(&bytes);
}

/// Reads a value of a type.
pub(super) fn read(reader: &mut Reader<'_>, of: Type) -> Result<Value> {
    if !reader.bool()? {
        return Ok(Value::Null);
    }
    let bytes = reader.blob()?;
    row::read_value(&bytes, of).ok_or_else(|| reader.malformed())
}
