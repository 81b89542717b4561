//! Rows of a result, and how a Rust value is taken out of one.

use std::sync::Arc;

use model::{Value, request::Column};

use crate::error::{Error, Result};

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    columns: Arc<[Column]>,
    values: Vec<Value>,
}

impl Row {
    pub(crate) fn new(columns: Arc<[Column]>, values: Vec<Value>) -> Self {
        Self { columns, values }
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Its values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The value of the column with this name.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T> {
        let place = self.columns.iter().position(|at| at.name == column);
        let place = place
            .ok_or_else(|| Error::Column { column: column.to_owned(), reason: "not there".to_owned() })?;
        self.at(place)
    }

    /// The value at this place, from 0.
    pub fn at<T: FromValue>(&self, place: usize) -> Result<T> {
        let value = self.values.get(place);
        let refuse = |reason: String| {
            let column =
                self.columns.get(place).map_or_else(|| place.to_string(), |column| column.name.clone());
            Error::Column { column, reason }
        };
        let value = value.ok_or_else(|| refuse("not there".to_owned()))?;
        T::from_value(value)
            .ok_or_else(|| refuse(format!("{:?} is not a {}", value, std::any::type_name::<T>())))
    }
}

/// A Rust type that a value can become.
pub trait FromValue: Sized {
    /// The value, if it is one of this type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for Value {
    fn from_value(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromValue for i32 {
    fn from_value(value: &Value) -> Option<Self> {
        value.as_i64()?.try_into().ok()
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl FromValue for f64 {
    fn from_value(value: &Value) -> Option<Self> {
        value.as_f64()
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        value.as_bytes().map(<[u8]>::to_vec)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_value(value).map(Some) }
    }
}
