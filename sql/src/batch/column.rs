//! One column: typed storage, nulls, and values in and out.

use model::{
    Type, Value,
    row::{self, RowError},
    value::{Bytea, Date, Numeric, Text, Time, Timestamp},
};

use super::Texts;

/// How a column's values are stored. Which variant follows from the type ([`Data::new`]).
#[derive(Clone, Debug)]
pub enum Data {
    /// `bool`.
    Bool(Vec<bool>),
    /// Integers of every width, oids, dates, times and timestamps.
    Int(Vec<i64>),
    /// Floats of either width.
    Float(Vec<f64>),
    /// `numeric`.
    Numeric(Vec<Numeric>),
    /// The text types, `json` and `bytea`.
    Text(Texts),
    /// All others.
    Values(Vec<Value>),
}

impl Data {
    /// Empty storage for a type.
    pub fn new(ty: Type, capacity: usize) -> Self {
        match ty {
            Type::Bool => Self::Bool(Vec::with_capacity(capacity)),
            Type::Int2
            | Type::Int4
            | Type::Int8
            | Type::Date
            | Type::Time
            | Type::Timestamp
            | Type::Timestamptz => Self::Int(Vec::with_capacity(capacity)),
            Type::Float4 | Type::Float8 => Self::Float(Vec::with_capacity(capacity)),
            Type::Numeric => Self::Numeric(Vec::with_capacity(capacity)),
            Type::Json | Type::Bytea | Type::Tid | Type::Void => Self::Text(Texts::with_capacity(capacity)),
            ty if ty.is_text() => Self::Text(Texts::with_capacity(capacity)),
            ty if ty.is_oid() => Self::Int(Vec::with_capacity(capacity)),
            _ => Self::Values(Vec::with_capacity(capacity)),
        }
    }

    /// How many values there are, nulls counted.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bool(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Numeric(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One column of a batch.
#[derive(Clone, Debug)]
pub struct Column {
    ty: Type,
    data: Data,
    /// Which rows are null; empty while none is.
    nulls: Vec<bool>,
}

impl Column {
    /// An empty column.
    pub fn with_capacity(ty: Type, capacity: usize) -> Self {
        Self { ty, data: Data::new(ty, capacity), nulls: Vec::new() }
    }

    /// A column of integers, dates, times, timestamps or oids.
    pub fn ints(ty: Type, values: Vec<i64>, nulls: Vec<bool>) -> Self {
        Self::from_parts(ty, Data::Int(values), nulls)
    }

    /// A column of booleans.
    pub fn bools(values: Vec<bool>, nulls: Vec<bool>) -> Self {
        Self::from_parts(Type::Bool, Data::Bool(values), nulls)
    }

    /// A column of floats.
    pub fn floats(ty: Type, values: Vec<f64>, nulls: Vec<bool>) -> Self {
        Self::from_parts(ty, Data::Float(values), nulls)
    }

    /// A column of numerics.
    pub fn numerics(values: Vec<Numeric>, nulls: Vec<bool>) -> Self {
        Self::from_parts(Type::Numeric, Data::Numeric(values), nulls)
    }

    /// A column of these parts; `nulls` is empty if there are none.
    pub fn from_parts(ty: Type, data: Data, nulls: Vec<bool>) -> Self {
        debug_assert!(nulls.is_empty() || nulls.len() == data.len(), "a null map covers its column");
        Self { ty, data, nulls }
    }

    /// A column that holds one value everywhere.
    pub fn repeat(ty: Type, value: &Value, count: usize) -> Self {
        let mut column = Self::with_capacity(ty, count);
        for _ in 0..count {
            column.push_value(value);
        }
        column
    }

    /// A column of values.
    pub fn from_values<'a>(ty: Type, values: impl IntoIterator<Item = &'a Value>) -> Self {
        let values = values.into_iter();
        let mut column = Self::with_capacity(ty, values.size_hint().0);
        for value in values {
            column.push_value(value);
        }
        column
    }

    /// The type.
    #[inline]
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// The same storage under another type that is stored the same way.
    pub fn retyped(mut self, ty: Type) -> Self {
        debug_assert_eq!(
            std::mem::discriminant(&Data::new(ty, 0)),
            std::mem::discriminant(&self.data),
            "only types with the same storage can be exchanged"
        );
        self.ty = ty;
        self
    }

    /// The storage.
    #[inline]
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Which rows are null; empty if none is.
    #[inline]
    pub fn nulls(&self) -> &[bool] {
        &self.nulls
    }

    /// How many rows there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any row may be null.
    #[inline]
    pub fn has_nulls(&self) -> bool {
        !self.nulls.is_empty()
    }

    /// Whether a row is null.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        !self.nulls.is_empty() && self.nulls[row]
    }

    /// The integers, if they are stored as such.
    #[inline]
    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::Int(values) => Some(values),
            _ => None,
        }
    }

    /// The booleans, if they are stored as such.
    #[inline]
    pub fn as_bools(&self) -> Option<&[bool]> {
        match &self.data {
            Data::Bool(values) => Some(values),
            _ => None,
        }
    }

    /// The floats, if they are stored as such.
    #[inline]
    pub fn as_floats(&self) -> Option<&[f64]> {
        match &self.data {
            Data::Float(values) => Some(values),
            _ => None,
        }
    }

    /// The numerics, if they are stored as such.
    #[inline]
    pub fn as_numerics(&self) -> Option<&[Numeric]> {
        match &self.data {
            Data::Numeric(values) => Some(values),
            _ => None,
        }
    }

    /// The texts, if they are stored as such.
    #[inline]
    pub fn as_texts(&self) -> Option<&Texts> {
        match &self.data {
            Data::Text(texts) => Some(texts),
            _ => None,
        }
    }

    /// The value in a row.
    pub fn value(&self, row: usize) -> Value {
        if self.is_null(row) {
            return Value::Null;
        }
        match &self.data {
            Data::Bool(values) => Value::Bool(values[row]),
            Data::Int(values) => int_value(self.ty, values[row]),
            Data::Float(values) if self.ty == Type::Float4 => Value::Float4(values[row] as f32),
            Data::Float(values) => Value::Float8(values[row]),
            Data::Numeric(values) => Value::Numeric(values[row].clone()),
            Data::Text(texts) => match self.ty {
                Type::Bytea => Value::Bytea(Bytea::from(texts.get(row))),
                Type::Json => Value::Json(Text::from(texts.get_str(row))),
                _ => Value::Text(Text::from(texts.get_str(row))),
            },
            Data::Values(values) => values[row].clone(),
        }
    }

    /// Appends null.
    pub fn push_null(&mut self) {
        if self.nulls.is_empty() {
            self.nulls.resize(self.len(), false);
        }
        match &mut self.data {
            Data::Bool(values) => values.push(false),
            Data::Int(values) => values.push(0),
            Data::Float(values) => values.push(0.0),
            Data::Numeric(values) => values.push(Numeric::ZERO),
            Data::Text(texts) => texts.push(b""),
            Data::Values(values) => values.push(Value::Null),
        }
        self.nulls.push(true);
    }

    /// Appends rows of which only is known whether they are null.
    pub fn push_presence(&mut self, nulls: impl ExactSizeIterator<Item = bool>) {
        let before = self.len();
        let rows = before + nulls.len();
        let has_nulls = self.has_nulls();
        let nulls: Vec<bool> = nulls.collect();
        match &mut self.data {
            Data::Bool(values) => values.resize(rows, false),
            Data::Int(values) => values.resize(rows, 0),
            Data::Float(values) => values.resize(rows, 0.0),
            Data::Numeric(values) => values.resize(rows, Numeric::ZERO),
            Data::Text(texts) => nulls.iter().for_each(|_| texts.push(b"")),
            Data::Values(values) => values.resize(rows, Value::Null),
        }
        if has_nulls || nulls.contains(&true) {
            self.nulls.resize(before, false);
            self.nulls.extend(nulls);
        }
    }

    /// Appends a value that fits the type. What does not fit is a bug of the plan and becomes null in a release.
    pub fn push_value(&mut self, value: &Value) {
        match (&mut self.data, value) {
            (_, Value::Null) => return self.push_null(),
            (Data::Bool(values), Value::Bool(value)) => values.push(*value),
            (Data::Int(values), value) => match int_of(value) {
                Some(int) => values.push(int),
                None => return self.push_misfit(value),
            },
            (Data::Float(values), Value::Float4(value)) => values.push(f64::from(*value)),
            (Data::Float(values), Value::Float8(value)) => values.push(*value),
            (Data::Numeric(values), Value::Numeric(value)) => values.push(value.clone()),
            (Data::Text(texts), Value::Text(text) | Value::Json(text)) => texts.push_str(text),
            (Data::Text(texts), Value::Bytea(bytes)) => texts.push(bytes),
            (Data::Values(values), value) => values.push(value.clone()),
            (_, value) => return self.push_misfit(value),
        }
        self.push_valid();
    }

    fn push_misfit(&mut self, value: &Value) {
        debug_assert!(false, "{value:?} was put into a column of {}", self.ty);
        self.push_null();
    }

    #[inline]
    fn push_valid(&mut self) {
        if !self.nulls.is_empty() {
            self.nulls.push(false);
        }
    }

    /// Appends an integer to a column stored as integers.
    #[inline]
    pub fn push_int(&mut self, value: i64) {
        if let Data::Int(values) = &mut self.data {
            values.push(value);
            self.push_valid();
        }
    }

    /// Appends a boolean to a column stored as booleans.
    #[inline]
    pub fn push_bool(&mut self, value: bool) {
        if let Data::Bool(values) = &mut self.data {
            values.push(value);
            self.push_valid();
        }
    }

    /// Appends a float to a column stored as floats.
    #[inline]
    pub fn push_float(&mut self, value: f64) {
        if let Data::Float(values) = &mut self.data {
            values.push(value);
            self.push_valid();
        }
    }

    /// Appends a numeric to a column stored as numerics.
    #[inline]
    pub fn push_numeric(&mut self, value: Numeric) {
        if let Data::Numeric(values) = &mut self.data {
            values.push(value);
            self.push_valid();
        }
    }

    /// Appends text or bytes to a column stored as texts.
    #[inline]
    pub fn push_bytes(&mut self, value: &[u8]) {
        if let Data::Text(texts) = &mut self.data {
            texts.push(value);
            self.push_valid();
        }
    }

    /// Appends a row of a column of the same type.
    pub fn push_from(&mut self, other: &Column, row: usize) {
        if other.is_null(row) {
            return self.push_null();
        }
        match (&mut self.data, &other.data) {
            (Data::Bool(to), Data::Bool(from)) => to.push(from[row]),
            (Data::Int(to), Data::Int(from)) => to.push(from[row]),
            (Data::Float(to), Data::Float(from)) => to.push(from[row]),
            (Data::Numeric(to), Data::Numeric(from)) => to.push(from[row].clone()),
            (Data::Text(to), Data::Text(from)) => to.push(from.get(row)),
            (Data::Values(to), Data::Values(from)) => to.push(from[row].clone()),
            _ => return self.push_value(&other.value(row)),
        }
        self.push_valid();
    }

    /// Appends a row's value in its stored form; false, having appended nothing, for null.
    pub fn write_stored(&self, row: usize, out: &mut Vec<u8>) -> Result<bool, RowError> {
        if self.is_null(row) {
            return Ok(false);
        }
        match (&self.data, self.ty) {
            (Data::Bool(values), _) => out.push(u8::from(values[row])),
            (Data::Int(values), Type::Int2) => out.extend_from_slice(&(values[row] as i16).to_le_bytes()),
            (Data::Int(values), Type::Int8 | Type::Time | Type::Timestamp | Type::Timestamptz) => {
                out.extend_from_slice(&values[row].to_le_bytes());
            }
            // int4, date and the oids: four bytes, the oids' upper half as negative numbers.
            (Data::Int(values), _) => out.extend_from_slice(&(values[row] as u32).to_le_bytes()),
            (Data::Float(values), Type::Float4) => out.extend_from_slice(&(values[row] as f32).to_le_bytes()),
            (Data::Float(values), _) => out.extend_from_slice(&values[row].to_le_bytes()),
            (Data::Numeric(values), _) => values[row].write_compact(out),
            (Data::Text(texts), _) => out.extend_from_slice(texts.get(row)),
            (Data::Values(values), of) => {
                row::write_value(&values[row], of, out).ok_or(RowError::Mismatch { column: row, of })?;
            }
        }
        Ok(true)
    }

    /// Bytes on the heap, roughly.
    pub fn heap_bytes(&self) -> usize {
        let data = match &self.data {
            Data::Bool(values) => values.capacity(),
            Data::Int(values) => values.capacity() * 8,
            Data::Float(values) => values.capacity() * 8,
            Data::Numeric(values) => values.capacity() * size_of::<Numeric>(),
            Data::Text(texts) => texts.heap_bytes(),
            Data::Values(values) => {
                values.capacity() * size_of::<Value>() + values.iter().map(Value::heap_size).sum::<usize>()
            }
        };
        data + self.nulls.capacity() + size_of::<Self>()
    }

    pub(super) fn parts_mut(&mut self) -> (&mut Data, &mut Vec<bool>) {
        (&mut self.data, &mut self.nulls)
    }
}

/// The integer that stands for a value in a column stored as integers.
#[inline]
pub(crate) fn int_of(value: &Value) -> Option<i64> {
    Some(match value {
        Value::Int4(value) => i64::from(*value),
        Value::Int8(value) => *value,
        Value::Int2(value) => i64::from(*value),
        Value::Oid(value) => i64::from(*value),
        Value::Date(value) => i64::from(value.days()),
        Value::Time(value) => value.micros(),
        Value::Timestamp(value) | Value::Timestamptz(value) => value.micros(),
        _ => return None,
    })
}

/// The value of a type that an integer stands for; null for an integer no value of the type has.
#[inline]
fn int_value(ty: Type, int: i64) -> Value {
    match ty {
        Type::Int4 => Value::Int4(int as i32),
        Type::Int2 => Value::Int2(int as i16),
        Type::Date => Date::from_days(int as i32).map_or(Value::Null, Value::Date),
        Type::Time => Time::from_micros(int).map_or(Value::Null, Value::Time),
        Type::Timestamp => Timestamp::from_micros(int).map_or(Value::Null, Value::Timestamp),
        Type::Timestamptz => Timestamp::from_micros(int).map_or(Value::Null, Value::Timestamptz),
        ty if ty.is_oid() => Value::Oid(int as u32),
        _ => Value::Int8(int),
    }
}
