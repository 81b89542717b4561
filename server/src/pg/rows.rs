//! DataRow messages from pages of rows.
//!
//! Invariants: a row is written whole or not at all; a full buffer is sent before the next row is written.

use model::{Error, Result, types::Type, value, value::Value};
use sql::{
    batch::Batch,
    session::{Column, Format, Got, Page, Session},
};

use super::{
    attend::{End, Operation},
    encode::{Output, put_null, put_value},
    stream::Link,
};

/// A buffer of this size is sent before more is written.
pub(super) const BUFFER_BYTES_MAX: usize = 64 << 10;

/// So many rows are expected to fit the buffer: sending them waits for nobody.
pub(super) const FEW_ROWS: usize = 64;

/// What a row's values look like on the wire.
pub(super) struct Shape<'a> {
    /// The columns.
    pub(super) columns: &'a [Column],
    /// One format per column.
    pub(super) formats: &'a [Format],
    /// The settings that texts depend on.
    pub(super) context: &'a value::Context,
}

/// The settings that the texts of these columns depend on; a plain default where they depend on none, because reading a
/// session's settings costs more than a small row.
pub(super) fn context_of(columns: &[Column], formats: &[Format], session: &Session) -> value::Context {
    let depends = |of: Type| matches!(of, Type::Timestamptz | Type::Bytea | Type::Record | Type::Array(_));
    let mut texts = columns.iter().zip(formats).filter(|(_, format)| **format == Format::Text);
    if texts.any(|(column, _)| depends(column.data_type)) {
        return session.text_context();
    }
    value::Context::default()
}

/// Writes a page, sending as it grows. The inner error is the statement's.
pub(super) async fn send(
    page: &Page,
    shape: &Shape<'_>,
    link: &mut Link,
    operation: &mut Operation<'_>,
) -> Result<Result<()>, End> {
    let count = match page {
        Page::Values(rows) => rows.len(),
        Page::Batch(batch) => batch.len(),
    };
    let mut text = String::new();
    for row in 0..count {
        let put = match page {
            Page::Values(rows) => put_values(&mut link.output, &rows[row], shape, &mut text),
            Page::Batch(batch) => put_batch_row(&mut link.output, batch, row, shape, &mut text),
        };
        if let Err(error) = put {
            return Ok(Err(error));
        }
        if link.output.len() >= BUFFER_BYTES_MAX {
            operation.flush(link).await?;
            if let Some(error) = operation.stopped() {
                return Ok(Err(error));
            }
        }
    }
    Ok(Ok(()))
}

/// Writes the rows of a read by keys: they fit the buffer.
pub(super) fn put_got(output: &mut Output, got: &Got<'_>) -> Result<()> {
    let shape = Shape { columns: got.columns, formats: got.formats, context: &got.text };
    let mut text = String::new();
    got.rows().try_for_each(|row| put_values(output, row, &shape, &mut text))
}

fn put_values(output: &mut Output, row: &[Value], shape: &Shape<'_>, text: &mut String) -> Result<()> {
    output.try_message(b'D', |out| {
        out.extend_from_slice(&(row.len() as u16).to_be_bytes());
        for (value, (column, format)) in row.iter().zip(shape.columns.iter().zip(shape.formats)) {
            put_cell(out, value, column.data_type, *format, shape.context, text)?;
        }
        Ok(())
    })
}

fn put_batch_row(
    output: &mut Output,
    batch: &Batch,
    row: usize,
    shape: &Shape<'_>,
    text: &mut String,
) -> Result<()> {
    output.try_message(b'D', |out| {
        out.extend_from_slice(&(batch.width() as u16).to_be_bytes());
        for (index, format) in shape.formats.iter().enumerate() {
            let start = out.len();
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            let is_there = match format {
                Format::Text => batch.write_text(row, index, shape.context, text, out),
                Format::Binary => batch.write_binary(row, index, out),
                Format::Unknown(code) => return Err(Format::unsupported(*code)),
            };
            if is_there {
                let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
                out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
        Ok(())
    })
}

/// One value with its length.
fn put_cell(
    out: &mut Vec<u8>,
    value: &Value,
    of: Type,
    format: Format,
    context: &value::Context,
    text: &mut String,
) -> Result<()> {
    match (value, format) {
        (_, Format::Unknown(code)) => return Err(Format::unsupported(code)),
        (Value::Null, _) => put_null(out),
        (Value::Text(text), _) if of != Type::Char => put_value(out, |out| {
            out.extend_from_slice(text.as_bytes());
            Ok::<(), Error>(())
        })?,
        (value, Format::Binary) => put_value(out, |out| {
            value::binary::encode_binary(value, of, out);
            Ok::<(), Error>(())
        })?,
        (value, Format::Text) => {
            text.clear();
            value::text_io::write_text(value, of, context, text);
            put_value(out, |out| {
                out.extend_from_slice(text.as_bytes());
                Ok::<(), Error>(())
            })?;
        }
    }
    Ok(())
}
