//! Cells as the wire sends them, straight from columns.
//!
//! Texts, integers, booleans and floats are written without making a [`model::Value`]; the rest goes through the value's own
//! form. Both say the same, a test holds them to it.

use model::{
    Type,
    value::{self, ByteaOutput, binary, text_io},
};

use super::{Batch, Column, Data};

impl Batch {
    /// Appends the text form of a cell; false for null, which appends nothing. `scratch` is a buffer to be used again.
    pub fn write_text(
        &self,
        row: usize,
        column: usize,
        context: &value::Context,
        scratch: &mut String,
        out: &mut Vec<u8>,
    ) -> bool {
        self.column(column).write_text(self.physical(row), context, scratch, out)
    }

    /// Appends the binary form of a cell; false for null, which appends nothing.
    pub fn write_binary(&self, row: usize, column: usize, out: &mut Vec<u8>) -> bool {
        self.column(column).write_binary(self.physical(row), out)
    }
}

impl Column {
    /// Appends the text form of a row's value; false for null.
    pub fn write_text(
        &self,
        row: usize,
        context: &value::Context,
        scratch: &mut String,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.is_null(row) {
            return false;
        }
        match self.data() {
            Data::Text(texts) if is_plain_text(self.ty()) => out.extend_from_slice(texts.get(row)),
            Data::Text(texts) if self.ty() == Type::Bytea && context.bytea_output == ByteaOutput::Hex => {
                write_hex(texts.get(row), out);
            }
            Data::Int(values) if self.ty().is_integer() || self.ty() == Type::Oid => {
                write_int(values[row], out)
            }
            Data::Bool(values) => out.push(if values[row] { b't' } else { b'f' }),
            Data::Numeric(values) => {
                scratch.clear();
                values[row].write_text(scratch);
                out.extend_from_slice(scratch.as_bytes());
            }
            Data::Text(_) | Data::Int(_) | Data::Float(_) | Data::Values(_) => {
                scratch.clear();
                text_io::write_text(&self.value(row), self.ty(), context, scratch);
                out.extend_from_slice(scratch.as_bytes());
            }
        }
        true
    }

    /// Appends the binary form of a row's value; false for null.
    pub fn write_binary(&self, row: usize, out: &mut Vec<u8>) -> bool {
        if self.is_null(row) {
            return false;
        }
        match (self.data(), self.ty()) {
            (Data::Text(texts), ty) if is_plain_text(ty) || ty == Type::Bytea => {
                out.extend_from_slice(texts.get(row))
            }
            (Data::Int(values), Type::Int8) => out.extend_from_slice(&values[row].to_be_bytes()),
            (Data::Int(values), Type::Int4) => out.extend_from_slice(&(values[row] as i32).to_be_bytes()),
            (Data::Bool(values), _) => out.push(u8::from(values[row])),
            (Data::Float(values), Type::Float8) => out.extend_from_slice(&values[row].to_be_bytes()),
            (Data::Numeric(values), _) => values[row].write_wire(out),
            _ => binary::encode_binary(&self.value(row), self.ty(), out),
        }
        true
    }
}

/// Whether the stored bytes are both forms.
fn is_plain_text(ty: Type) -> bool {
    (ty.is_text() && ty != Type::Char) || ty == Type::Json
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

fn write_int(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}
