//! One value as bytes whose order is the order of values.
//!
//! ```text
//! null: 0x00 before all values, 0xff behind them · else 0x01 (0xfe descending), then, inverted when descending:
//! bool: 1 byte · integers, dates, times: 8 bytes, sign flipped · floats: 8 bytes, ordered bits
//! numeric: class, then exponent + 2^23 (3 bytes), 38 digits as a 16-byte number, further digits, 0x00
//! text, bytea: bytes with 0x00 as 0x00 0xff, then 0x00 0x01 · jsonb: see `json` · others: `model::key`
//! ```

use model::{
    Type, Value,
    key::{self, KeyPart},
    value::{Numeric, json::Node, trim_blanks},
};

use crate::batch::{Column, Data};

/// Appends the key of one row of a column.
#[inline]
pub(super) fn encode(out: &mut Vec<u8>, column: &Column, row: usize, part: KeyPart) {
    if column.is_null(row) {
        out.push(if part.nulls_first { 0x00 } else { 0xff });
        return;
    }
    let from = out.len();
    out.push(0x01);
    match column.data() {
        Data::Bool(values) => out.push(u8::from(values[row])),
        Data::Int(values) => out.extend_from_slice(&(values[row] as u64 ^ 1 << 63).to_be_bytes()),
        Data::Float(values) => out.extend_from_slice(&float_bits(values[row]).to_be_bytes()),
        Data::Numeric(values) => numeric(out, &values[row]),
        Data::Text(texts) if column.ty() == Type::Bpchar => {
            bytes(out, trim_blanks(texts.get_str(row)).as_bytes())
        }
        Data::Text(texts) => bytes(out, texts.get(row)),
        Data::Values(values) => other(out, &values[row]),
    }
    if part.desc {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Appends the key of a value of a type.
pub fn encode_value(out: &mut Vec<u8>, value: &Value, ty: Type, part: KeyPart) {
    let mut column = Column::with_capacity(ty, 1);
    column.push_value(value);
    encode(out, &column, 0, part);
}

fn float_bits(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn bytes(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(0xff);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0x00, 0x01]);
}

const DIGITS: u32 = 38;

const POW10: [u128; 39] = {
    let mut table = [1u128; 39];
    let mut index = 1;
    while index < table.len() {
        table[index] = table[index - 1] * 10;
        index += 1;
    }
    table
};

fn numeric(out: &mut Vec<u8>, number: &Numeric) {
    const NEG_INFINITY: u8 = 1;
    const NEGATIVE: u8 = 2;
    const ZERO: u8 = 3;
    const POSITIVE: u8 = 4;
    const INFINITY: u8 = 5;
    const NAN: u8 = 6;
    if number.is_nan() {
        return out.push(NAN);
    }
    if number.is_infinite() {
        return out.push(if number.signum() > 0 { INFINITY } else { NEG_INFINITY });
    }
    if number.is_zero() {
        return out.push(ZERO);
    }
    let negative = number.signum() < 0;
    out.push(if negative { NEGATIVE } else { POSITIVE });
    let from = out.len();
    match number.to_parts() {
        Some((mantissa, scale)) if mantissa.unsigned_abs() < POW10[DIGITS as usize] => {
            let magnitude = mantissa.unsigned_abs();
            let digits = magnitude.ilog10() + 1;
            exponent(out, digits as i32 - i32::from(scale));
            out.extend_from_slice(&(magnitude * POW10[(DIGITS - digits) as usize]).to_be_bytes());
        }
        _ => numeric_of_many_digits(out, number),
    }
    out.push(0x00);
    if negative {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// More than 38 digits: the first 38 as a number, the others as characters.
fn numeric_of_many_digits(out: &mut Vec<u8>, number: &Numeric) {
    let mut text = String::new();
    number.abs().write_text(&mut text);
    let (integer, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut digits: Vec<u8> = integer.bytes().chain(fraction.bytes()).collect();
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    digits.drain(..zeros);
    while digits.last() == Some(&b'0') {
        digits.pop();
    }
    exponent(out, integer.len() as i32 - zeros as i32);
    let mut head: u128 = 0;
    for index in 0..DIGITS as usize {
        head = head * 10 + u128::from(digits.get(index).map_or(0, |digit| digit - b'0'));
    }
    out.extend_from_slice(&head.to_be_bytes());
    out.extend_from_slice(digits.get(DIGITS as usize..).unwrap_or_default());
}

fn exponent(out: &mut Vec<u8>, exponent: i32) {
    out.extend_from_slice(&((exponent + (1 << 23)) as u32).to_be_bytes()[1..]);
}

fn other(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Jsonb(document) => json(out, document.root(), true),
        Value::Array(array) => {
            for element in array.values() {
                element_key(out, element);
            }
            out.push(0x00);
            out.push(array.dimensions().len() as u8);
            for dimension in array.dimensions() {
                out.extend_from_slice(&(dimension.length as u32 ^ 1 << 31).to_be_bytes());
            }
            for dimension in array.dimensions() {
                out.extend_from_slice(&(dimension.lower as u32 ^ 1 << 31).to_be_bytes());
            }
        }
        Value::Record(values) => {
            for value in values.iter() {
                element_key(out, value);
            }
            out.push(0x00);
        }
        Value::Json(text) => bytes(out, text.as_bytes()),
        // What is left has a form in `model::key`; if not, the bytes are those of no value and all are equal.
        value => key::encode_part(out, value, KeyPart::ASC).unwrap_or_default(),
    }
}

/// An element of an array or record: 0x01, its kind and bytes; null behind all.
fn element_key(out: &mut Vec<u8>, value: &Value) {
    let Some(ty) = value.natural_type() else {
        out.push(0xff);
        return;
    };
    encode_value(out, value, ty, KeyPart::ASC);
}

/// PostgreSQL's order of jsonb: null < string < number < boolean < array < object (an empty top-level array is least);
/// containers by count first.
fn json(out: &mut Vec<u8>, node: Node<'_>, top: bool) {
    match node {
        Node::Null => out.push(0x10),
        Node::String(text) => {
            out.push(0x11);
            bytes(out, text.as_bytes());
        }
        Node::Number(number) => {
            out.push(0x12);
            numeric(out, &number.to_numeric());
        }
        Node::Bool(value) => out.extend_from_slice(&[0x13, u8::from(value)]),
        Node::Array(array) => {
            out.push(if top && array.is_empty() { 0x01 } else { 0x14 });
            out.extend_from_slice(&(array.len() as u32).to_be_bytes());
            for element in array.iter() {
                json(out, element, false);
            }
        }
        Node::Object(object) => {
            out.push(0x15);
            out.extend_from_slice(&(object.len() as u32).to_be_bytes());
            for (key, value) in object.iter() {
                bytes(out, key.as_bytes());
                json(out, value, false);
            }
        }
    }
}
