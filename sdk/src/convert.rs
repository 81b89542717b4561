//! Between the contract's messages and the vocabulary: used by both ends of the wire, so that they cannot drift apart.

use model::{
    Code, Error, Type, Value,
    command::Outcome,
    error::Object,
    id::CommandId,
    request::{self, Done, Query},
    types::Typmod,
    value::{Numeric, Text, binary},
};
use prost::Message;
use tonic::{Status, metadata::MetadataValue};

use crate::proto;

/// The metadata key that carries a refusal.
const ERROR_KEY: &str = "keystead-error-bin";

/// A statement as the session takes it.
pub fn query(message: proto::QueryRequest) -> model::Result<Query> {
    Ok(Query {
        text: message.sql,
        parameters: message.parameters.into_iter().map(parameter).collect::<model::Result<_>>()?,
        read_only: message.read_only,
        command_id: command_id(&message.command_id)?,
    })
}

/// Sixteen bytes of a UUID, or nothing.
pub fn command_id(bytes: &[u8]) -> model::Result<Option<CommandId>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(id) if id != [0; 16] => Ok(Some(CommandId(u128::from_be_bytes(id)))),
        _ => Err(Error::new(Code::InvalidParameterValue, "command id is not a UUID of 16 bytes")),
    }
}

fn parameter(message: proto::Parameter) -> model::Result<request::Parameter> {
    use proto::parameter::Value as Kind;
    use request::Parameter::{Null, Text as Untyped, Typed};
    Ok(match message.value {
        None => Null,
        Some(Kind::Text(text)) => Untyped(text),
        Some(Kind::Boolean(truth)) => Typed(Value::Bool(truth), Type::Bool),
        Some(Kind::Integer(number)) => Typed(Value::Int8(number), Type::Int8),
        Some(Kind::Float(number)) => Typed(Value::Float8(number), Type::Float8),
        Some(Kind::Bytes(bytes)) => Typed(Value::Bytea(bytes.into()), Type::Bytea),
        Some(Kind::Numeric(text)) => {
            let number: Numeric = text.parse()?;
            Typed(Value::Numeric(number), Type::Numeric)
        }
    })
}

/// The columns of a result.
pub fn header(columns: &[request::Column]) -> proto::Header {
    let column = |column: &request::Column| proto::Column {
        name: column.name.clone(),
        type_oid: column.data_type.oid(),
        typmod: column.typmod.0,
    };
    proto::Header { columns: columns.iter().map(column).collect() }
}

/// The columns a header names.
pub fn columns(header: &proto::Header) -> Result<Vec<request::Column>, String> {
    let column = |column: &proto::Column| {
        let data_type = Type::from_oid(column.type_oid).ok_or_else(|| format!("type {}", column.type_oid))?;
        Ok(request::Column {
            name: column.name.clone(),
            data_type,
            typmod: Typmod(column.typmod),
            origin: (0, 0),
        })
    };
    header.columns.iter().map(column).collect()
}

/// A row in PostgreSQL's binary forms.
pub fn row(values: &[Value], columns: &[request::Column]) -> proto::Row {
    let cell = |(value, column): (&Value, &request::Column)| {
        let encode = || {
            let mut out = Vec::new();
            binary::encode_binary(value, column.data_type, &mut out);
            out
        };
        proto::Cell { value: (!value.is_null()).then(encode) }
    };
    proto::Row { cells: values.iter().zip(columns).map(cell).collect() }
}

/// The values of a row.
pub fn values(row: &proto::Row, columns: &[request::Column]) -> Result<Vec<Value>, String> {
    if row.cells.len() != columns.len() {
        return Err(format!("a row of {} values for {} columns", row.cells.len(), columns.len()));
    }
    let value = |(cell, column): (&proto::Cell, &request::Column)| match &cell.value {
        None => Ok(Value::Null),
        Some(bytes) => binary::decode_binary(column.data_type, bytes).map_err(|error| error.to_string()),
    };
    row.cells.iter().zip(columns).map(value).collect()
}

/// The end of a statement.
pub fn done(done: &Done) -> proto::Done {
    proto::Done { tag: done.tag.clone(), rows: done.rows }
}

/// What became of a command.
pub fn status(outcome: Option<&Outcome>) -> proto::CommandStatusReply {
    use proto::command_status_reply::Status as Known;
    let (status, revision, error) = match outcome {
        None => (Known::Unknown, 0, None),
        Some(Outcome::Applied(receipt)) => (Known::Applied, receipt.revision.0, None),
        Some(Outcome::Rejected(rejection)) => (Known::Rejected, 0, Some(detail(&rejection.to_error()))),
    };
    proto::CommandStatusReply { status: status.into(), revision, error }
}

/// An error's fields as the contract carries them.
pub fn detail(error: &Error) -> proto::ErrorDetail {
    let object = error.object();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    proto::ErrorDetail {
        code: error.code().sqlstate().to_owned(),
        message: error.message().to_owned(),
        detail: text(error.detail()),
        hint: text(error.hint()),
        position: error.position().unwrap_or(0),
        schema: text(object.schema.as_deref()),
        table: text(object.table.as_deref()),
        column: text(object.column.as_deref()),
        constraint: text(object.constraint.as_deref()),
    }
}

/// A refusal as a gRPC status that carries all its fields.
pub fn status_of(error: &Error, code: tonic::Code) -> Status {
    let mut status = Status::new(code, error.message());
    let bytes = detail(error).encode_to_vec();
    status.metadata_mut().insert_bin(ERROR_KEY, MetadataValue::from_bytes(&bytes));
    status
}

/// The refusal a gRPC status carries, if it carries one.
pub fn error_from_status(status: &Status) -> Option<Error> {
    let bytes = status.metadata().get_bin(ERROR_KEY)?.to_bytes().ok()?;
    let detail = proto::ErrorDetail::decode(bytes).ok()?;
    let code = Code::from_sqlstate(&detail.code)?;
    let some = |text: String| (!text.is_empty()).then_some(text);
    let mut error = Error::new(code, detail.message).with_object(Object {
        schema: some(detail.schema),
        table: some(detail.table),
        column: some(detail.column),
        data_type: None,
        constraint: some(detail.constraint),
    });
    if let Some(text) = some(detail.detail) {
        error = error.with_detail(text);
    }
    if let Some(text) = some(detail.hint) {
        error = error.with_hint(text);
    }
    if detail.position > 0 {
        error = error.with_position(detail.position);
    }
    Some(error)
}

/// A text value, for conversions of parameters.
pub(crate) fn text(text: &str) -> proto::Parameter {
    proto::Parameter { value: Some(proto::parameter::Value::Text(Text::from(text).as_str().to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_survives_the_wire_whole() {
        let sent = Error::new(Code::UniqueViolation, "duplicate key")
            .with_detail("Key (id)=(1) already exists.")
            .with_hint("Use ON CONFLICT.")
            .with_position(12)
            .with_object(Object { constraint: Some("t_pkey".to_owned()), ..Object::default() });
        let received =
            error_from_status(&status_of(&sent, tonic::Code::AlreadyExists)).expect("it was put in");
        assert_eq!(detail(&received), detail(&sent));
    }

    #[test]
    fn rows_survive_the_wire() {
        let columns = [("a", Type::Int8), ("b", Type::Text), ("c", Type::Bool)].map(|(name, data_type)| {
            request::Column { name: name.to_owned(), data_type, typmod: Typmod::NONE, origin: (0, 0) }
        });
        let sent = [Value::Int8(7), Value::Null, Value::Bool(true)];
        assert_eq!(values(&row(&sent, &columns), &columns).expect("its own bytes"), sent);
    }
}
