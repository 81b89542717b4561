//! Reading keys back. Bytes may be anything; whatever is not exactly what the writer makes is refused.

use std::sync::Arc;

use super::number::{self, read_finite, read_float, read_integer};
use super::{
    ARRAY, BYTEA, DATE, DEPTH_MAX, END, ESCAPED_ZERO, FALSE, FLOAT, INTEGER, INTERVAL, KeyPart, NULL_FIRST,
    NULL_LAST, NUMERIC, RECORD, TEXT, TEXT_END, TIME, TIMESTAMP, TIMESTAMPTZ, TRUE, UUID, record,
};
use crate::types::{Scalar, Type};
use crate::value::array::{DIMENSIONS_MAX, Dimension};
use crate::value::datetime::DAY;
use crate::value::{Array, Bytea, Date, Interval, Numeric, Text, Time, Timestamp, Value};

/// Reading stopped at this byte.
pub(super) struct Stopped(pub(super) usize);

/// Reads one part: its value and the bytes it took.
pub(super) fn part(bytes: &[u8], of: Type, part: KeyPart) -> Result<(Value, usize), Stopped> {
    let first = *bytes.first().ok_or(Stopped(0))?;
    if first == if part.nulls_first { NULL_FIRST } else { NULL_LAST } {
        return Ok((Value::Null, 1));
    }
    let mut reader = Reader { bytes, at: 0, flip: if part.desc { 0xff } else { 0 } };
    match reader.value(Some(of), 0) {
        Some(value) => Ok((value, reader.at)),
        None => Err(Stopped(reader.at)),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    flip: u8,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)? ^ self.flip;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let slice = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(slice.iter().map(|byte| byte ^ self.flip).collect())
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut chunk = *self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        chunk.iter_mut().for_each(|byte| *byte ^= self.flip);
        Some(chunk)
    }

    /// A value of a known type; inside records the type is only known by the tag.
    fn value(&mut self, of: Option<Type>, depth: usize) -> Option<Value> {
        let tag = self.byte()?;
        let fits = |allowed: bool| (of.is_none() || allowed).then_some(());
        let is = |wanted: Type| of == Some(wanted);
        match tag {
            NULL_LAST if depth > 0 => Some(Value::Null),
            FALSE | TRUE => {
                fits(is(Type::Bool))?;
                Some(Value::Bool(tag == TRUE))
            }
            0x20..=0x30 => {
                let bytes = self.take(usize::from(tag.abs_diff(INTEGER)))?;
                integer(read_integer(tag, &bytes)?, of)
            }
            FLOAT => {
                let value = read_float(self.chunk()?)?;
                match of {
                    Some(Type::Float4) => {
                        let narrow = value as f32;
                        (f64::from(narrow) == value || value.is_nan()).then_some(Value::Float4(narrow))
                    }
                    Some(Type::Float8) | None => Some(Value::Float8(value)),
                    Some(_) => None,
                }
            }
            NUMERIC => {
                fits(is(Type::Numeric))?;
                self.numeric().map(Value::Numeric)
            }
            TEXT => {
                fits(of.is_some_and(|of| of.is_text() || of == Type::Tid))?;
                Some(Value::Text(Text::from(String::from_utf8(self.escaped()?).ok()?)))
            }
            BYTEA => {
                fits(is(Type::Bytea))?;
                Some(Value::Bytea(Bytea::from(self.escaped()?)))
            }
            DATE => {
                fits(is(Type::Date))?;
                let days = (u32::from_be_bytes(self.chunk()?) ^ 1 << 31) as i32;
                Date::from_days(days).ok().map(Value::Date)
            }
            TIME => {
                fits(is(Type::Time))?;
                Time::from_micros(self.micros()?).ok().map(Value::Time)
            }
            TIMESTAMP => {
                fits(is(Type::Timestamp))?;
                Timestamp::from_micros(self.micros()?).ok().map(Value::Timestamp)
            }
            TIMESTAMPTZ => {
                fits(is(Type::Timestamptz))?;
                Timestamp::from_micros(self.micros()?).ok().map(Value::Timestamptz)
            }
            INTERVAL => {
                fits(is(Type::Interval))?;
                self.interval().map(Value::Interval)
            }
            UUID => {
                fits(is(Type::Uuid))?;
                self.chunk().map(Value::Uuid)
            }
            ARRAY => self.array(of?.element()?.scalar()?, depth),
            RECORD => {
                fits(is(Type::Record))?;
                self.elements(None, depth).map(record)
            }
            _ => None,
        }
    }

    fn micros(&mut self) -> Option<i64> {
        Some((u64::from_be_bytes(self.chunk()?) ^ 1 << 63) as i64)
    }

    fn numeric(&mut self) -> Option<Numeric> {
        match self.byte()? {
            number::NAN => Some(Numeric::NAN),
            number::INFINITY => Some(Numeric::INFINITY),
            number::NEG_INFINITY => Some(Numeric::NEG_INFINITY),
            number::ZERO => Some(Numeric::ZERO),
            class @ (number::POSITIVE | number::NEGATIVE) => {
                let rest = self.bytes.get(self.at..)?;
                let flipped;
                let rest = if self.flip == 0 {
                    rest
                } else {
                    flipped = rest.iter().map(|byte| byte ^ self.flip).collect::<Vec<_>>();
                    &flipped
                };
                let (value, taken) = read_finite(rest, class == number::NEGATIVE)?;
                self.at += taken;
                Some(value)
            }
            _ => None,
        }
    }

    fn interval(&mut self) -> Option<Interval> {
        let mut wide = [0; 16];
        wide[4..].copy_from_slice(&self.chunk::<12>()?);
        let span = i128::from_be_bytes(wide) - (1 << 95);
        let (days, micros) = (span / i128::from(DAY), (span % i128::from(DAY)) as i64);
        if let Ok(days) = i32::try_from(days) {
            return Some(Interval::new(0, days, micros));
        }
        let months = i32::try_from(days / 30);
        if let Ok(months) = months {
            return Some(Interval::new(months, (days % 30) as i32, micros));
        }
        // Only days and microseconds on top of the most months reach this far.
        let bound = if days > 0 { i32::MAX } else { i32::MIN };
        let days = i32::try_from(days - i128::from(bound) * 30).ok()?;
        Some(Interval::new(bound, days, micros))
    }

    fn escaped(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    ESCAPED_ZERO => text.push(0),
                    TEXT_END => return Some(text),
                    _ => return None,
                },
                byte => text.push(byte),
            }
        }
    }

    fn elements(&mut self, of: Option<Type>, depth: usize) -> Option<Vec<Value>> {
        if depth >= DEPTH_MAX {
            return None;
        }
        let mut values = Vec::new();
        while *self.bytes.get(self.at)? ^ self.flip != END {
            values.push(self.value(of, depth + 1)?);
        }
        self.at += 1;
        Some(values)
    }

    fn array(&mut self, element: Scalar, depth: usize) -> Option<Value> {
        let values = self.elements(Some(element.as_type()), depth)?;
        let count = usize::from(self.byte()?);
        if count > DIMENSIONS_MAX {
            return None;
        }
        let mut words = Vec::with_capacity(count * 2);
        for _ in 0..count * 2 {
            words.push((u32::from_be_bytes(self.chunk()?) ^ 1 << 31) as i32);
        }
        let (lengths, lowers) = words.split_at(count);
        let shape =
            lengths.iter().zip(lowers).map(|(length, lower)| Dimension { length: *length, lower: *lower });
        let dimensions: Vec<_> = shape.collect();
        if count == 1 && values.is_empty() && lengths[0] == 0 && lowers[0] == 0 {
            return Some(Value::Array(Arc::new(Array::from_vector(element, values))));
        }
        if values.is_empty() != dimensions.is_empty() {
            return None;
        }
        Array::new(element, dimensions, values).ok().map(|array| Value::Array(Arc::new(array)))
    }
}

fn integer(value: i64, of: Option<Type>) -> Option<Value> {
    match of {
        Some(Type::Int2) => i16::try_from(value).ok().map(Value::Int2),
        Some(Type::Int4) => i32::try_from(value).ok().map(Value::Int4),
        Some(Type::Int8) | None => Some(Value::Int8(value)),
        Some(of) if of.is_oid() => u32::try_from(value).ok().map(Value::Oid),
        Some(_) => None,
    }
}
