//! One row at a time: the meaning of every expression, written down once.

use std::{cmp::Ordering, sync::Arc};

use model::{
    Code, Error, Result, Type, Value,
    types::Typmod,
    value::{Array, array::Dimension, trim_blanks},
};

use super::Scope;
use crate::{
    batch::Batch,
    expr::{Expr, Kind, Subscript},
    functions::{Body, Function, Operator, Volatility, cast},
};

/// Where columns come from.
pub trait Row {
    /// The value in a column.
    fn column(&self, index: usize) -> Value;
}

impl Row for [Value] {
    #[inline]
    fn column(&self, index: usize) -> Value {
        self[index].clone()
    }
}

/// A row of a batch.
pub(super) struct BatchRow<'a> {
    pub(super) batch: &'a Batch,
    pub(super) row: usize,
}

impl Row for BatchRow<'_> {
    #[inline]
    fn column(&self, index: usize) -> Value {
        self.batch.value(self.row, index)
    }
}

/// What goes into an operator.
type Operands<'a> = &'a [Expr];

impl Scope<'_> {
    /// The value of an expression for one row.
    pub fn value<R: Row + ?Sized>(&mut self, expression: &Expr, row: &R) -> Result<Value> {
        match &expression.kind {
            Kind::Column(index) => Ok(row.column(*index)),
            Kind::Outer(index) => Ok(self.outer.get(*index).cloned().unwrap_or_default()),
            Kind::Parameter(index) => self.parameter(*index),
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Call(function, arguments) => self.call(function, arguments, row),
            Kind::Operator(operator, operands) => self.operator(operator, operands, row),
            Kind::And(parts) => {
                let mut null = false;
                for part in parts {
                    match self.value(part, row)?.as_bool() {
                        Some(false) => return Ok(Value::Bool(false)),
                        Some(true) => {}
                        None => null = true,
                    }
                }
                Ok(if null { Value::Null } else { Value::Bool(true) })
            }
            Kind::Or(parts) => {
                let mut null = false;
                for part in parts {
                    match self.value(part, row)?.as_bool() {
                        Some(true) => return Ok(Value::Bool(true)),
                        Some(false) => {}
                        None => null = true,
                    }
                }
                Ok(if null { Value::Null } else { Value::Bool(false) })
            }
            Kind::Not(value) => {
                Ok(self.value(value, row)?.as_bool().map_or(Value::Null, |value| Value::Bool(!value)))
            }
            Kind::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    if self.value(condition, row)?.as_bool() == Some(true) {
                        return self.value(result, row);
                    }
                }
                self.value(otherwise, row)
            }
            Kind::Coalesce(parts) => {
                for part in parts {
                    let value = self.value(part, row)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Kind::Greatest(parts) => self.extreme(parts, row, Ordering::Greater),
            Kind::Least(parts) => self.extreme(parts, row, Ordering::Less),
            Kind::IsNull { value, negated } => {
                let value = self.value(value, row)?;
                Ok(Value::Bool(is_null(&value, *negated)))
            }
            Kind::IsTruth { value, truth, negated } => {
                let value = self.value(value, row)?.as_bool();
                Ok(Value::Bool((value == *truth) != *negated))
            }
            Kind::IsDistinct { left, right, negated } => {
                let blanks = is_blank_padded(left.ty, right.ty);
                let (left, right) = (self.value(left, row)?, self.value(right, row)?);
                Ok(Value::Bool(compare(&left, &right, blanks).is_ne() != *negated))
            }
            Kind::InList { value, list, negated } => {
                let blanks = is_blank_padded(value.ty, value.ty);
                let value = self.value(value, row)?;
                if value.is_null() {
                    return Ok(if list.is_empty() { Value::Bool(*negated) } else { Value::Null });
                }
                let mut null = false;
                for item in list {
                    let item = self.value(item, row)?;
                    if item.is_null() {
                        null = true;
                    } else if compare(&value, &item, blanks).is_eq() {
                        return Ok(Value::Bool(!*negated));
                    }
                }
                Ok(if null { Value::Null } else { Value::Bool(*negated) })
            }
            Kind::Cast { value: operand, explicit } => {
                let value = self.value(operand, row)?;
                self.cast(&value, operand.ty, expression, *explicit)
            }
            Kind::Array(elements) => self.array(elements, expression.ty, row),
            Kind::Row(fields) => {
                let values =
                    fields.iter().map(|field| self.value(field, row)).collect::<Result<Arc<[Value]>>>()?;
                Ok(Value::Record(values))
            }
            Kind::Subscript { array, subscripts } => {
                let array = self.value(array, row)?;
                self.subscript(&array, subscripts, row)
            }
            Kind::AnyAll { operator, left, array, all } => {
                let left = self.value(left, row)?;
                let array = self.value(array, row)?;
                self.any_all(operator, &left, &array, *all)
            }
            Kind::Subquery(_) => Err(Error::internal("a sub-query was not run before its expression")),
        }
    }

    pub(super) fn parameter(&self, index: usize) -> Result<Value> {
        let value = self.context.parameters.get(index).cloned();
        value.ok_or_else(|| {
            Error::new(Code::UndefinedParameter, format!("there is no parameter ${}", index + 1))
        })
    }

    fn call<R: Row + ?Sized>(
        &mut self,
        function: &Function,
        arguments: Operands<'_>,
        row: &R,
    ) -> Result<Value> {
        match arguments {
            [one] => {
                let arguments = [self.value(one, row)?];
                self.apply(function, &arguments)
            }
            [one, two] => {
                let arguments = [self.value(one, row)?, self.value(two, row)?];
                self.apply(function, &arguments)
            }
            arguments => {
                let values =
                    arguments.iter().map(|argument| self.value(argument, row)).collect::<Result<Vec<_>>>()?;
                self.apply(function, &values)
            }
        }
    }

    /// Calls a scalar function.
    pub fn apply(&mut self, function: &Function, arguments: &[Value]) -> Result<Value> {
        if function.strict && arguments.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let Body::Scalar(body) = function.body else {
            return Err(Error::internal(format!("{}() was called as a scalar function", function.name)));
        };
        let is_volatile = function.volatility == Volatility::Volatile;
        if is_volatile && let Some(known) = self.context.pauses.recall() {
            return Ok(known);
        }
        let value = body(self.context, arguments)?;
        if is_volatile {
            self.context.pauses.keep(&value);
        }
        self.context.making.count(&value)?;
        Ok(value)
    }

    fn operator<R: Row + ?Sized>(
        &mut self,
        operator: &Operator,
        operands: Operands<'_>,
        row: &R,
    ) -> Result<Value> {
        match operands {
            [operand] => {
                let operands = [self.value(operand, row)?];
                self.operate(operator, &operands)
            }
            [left, right] => {
                let operands = [self.value(left, row)?, self.value(right, row)?];
                self.operate(operator, &operands)
            }
            _ => Err(Error::internal(format!(
                "operator {} was given {} operands",
                operator.symbol,
                operands.len()
            ))),
        }
    }

    /// Applies an operator.
    pub fn operate(&mut self, operator: &Operator, operands: &[Value]) -> Result<Value> {
        if operands.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let value = (operator.body)(self.context, operands)?;
        self.context.making.count(&value)?;
        Ok(value)
    }

    pub(super) fn cast(&mut self, value: &Value, from: Type, to: &Expr, explicit: bool) -> Result<Value> {
        if value.is_null() {
            return Ok(Value::Null);
        }
        let value = cast::cast(self.context, value, from, to.ty, Typmod(to.typmod), explicit)?;
        self.context.making.count(&value)?;
        Ok(value)
    }

    fn extreme<R: Row + ?Sized>(&mut self, parts: Operands<'_>, row: &R, wanted: Ordering) -> Result<Value> {
        let mut best = Value::Null;
        for part in parts {
            let blanks = is_blank_padded(part.ty, part.ty);
            let value = self.value(part, row)?;
            if !value.is_null() && (best.is_null() || compare(&value, &best, blanks) == wanted) {
                best = value;
            }
        }
        Ok(best)
    }

    fn array<R: Row + ?Sized>(&mut self, elements: Operands<'_>, ty: Type, row: &R) -> Result<Value> {
        let Some(element) = ty.element().and_then(Type::scalar) else {
            return Err(Error::internal(format!("ARRAY of type {ty}")));
        };
        let nested = elements.iter().any(|expression| expression.ty.is_array());
        let values = elements.iter().map(|element| self.value(element, row)).collect::<Result<Vec<_>>>()?;
        if !nested {
            return Ok(Value::Array(Arc::new(Array::from_values(element, values))));
        }
        nest(element, &values)
    }

    fn subscript<R: Row + ?Sized>(
        &mut self,
        array: &Value,
        subscripts: &[Subscript],
        row: &R,
    ) -> Result<Value> {
        let Value::Array(array) = array else { return Ok(Value::Null) };
        let slice = subscripts.iter().any(|subscript| matches!(subscript, Subscript::Slice(..)));
        if !slice {
            let mut indexes = Vec::with_capacity(subscripts.len());
            for subscript in subscripts {
                let Subscript::Index(index) = subscript else { continue };
                match self.value(index, row)?.as_i64() {
                    Some(index) => indexes.push(index as i32),
                    None => return Ok(Value::Null),
                }
            }
            return Ok(array.get(&indexes).cloned().unwrap_or_default());
        }
        let mut bounds = Vec::with_capacity(subscripts.len());
        for (place, subscript) in subscripts.iter().enumerate() {
            let whole = array.dimensions().get(place).map_or((1, 0), bounds_of);
            let bound = match subscript {
                // In a slice a single index means "from 1".
                Subscript::Index(upper) => (Some(1), self.bound(Some(upper), whole.1, row)?),
                Subscript::Slice(lower, upper) => {
                    (self.bound(lower.as_ref(), whole.0, row)?, self.bound(upper.as_ref(), whole.1, row)?)
                }
            };
            match bound {
                (Some(lower), Some(upper)) => bounds.push((lower, upper)),
                _ => return Ok(Value::Null),
            }
        }
        Ok(Value::Array(Arc::new(array.slice(&bounds))))
    }

    /// A bound of a slice: none if it is null.
    fn bound<R: Row + ?Sized>(&mut self, bound: Option<&Expr>, open: i32, row: &R) -> Result<Option<i32>> {
        match bound {
            None => Ok(Some(open)),
            Some(bound) => Ok(self.value(bound, row)?.as_i64().map(|bound| bound as i32)),
        }
    }

    pub(super) fn any_all(
        &mut self,
        operator: &Operator,
        left: &Value,
        array: &Value,
        all: bool,
    ) -> Result<Value> {
        let Value::Array(array) = array else { return Ok(Value::Null) };
        let mut null = false;
        let mut operands = [left.clone(), Value::Null];
        for element in array.values() {
            operands[1] = element.clone();
            match self.operate(operator, &operands)?.as_bool() {
                Some(truth) if truth != all => return Ok(Value::Bool(truth)),
                Some(_) => {}
                None => null = true,
            }
        }
        Ok(if null { Value::Null } else { Value::Bool(all) })
    }
}

fn bounds_of(dimension: &Dimension) -> (i32, i32) {
    (dimension.lower, dimension.lower + dimension.length - 1)
}

/// An array of arrays of the same extent; nulls and empty arrays among them only if all are so (`2202E`).
fn nest(element: model::types::Scalar, values: &[Value]) -> Result<Value> {
    let unequal = || {
        Error::new(
            Code::ArraySubscriptError,
            "multidimensional arrays must have array expressions with matching dimensions",
        )
    };
    let mut inner: Option<Vec<Dimension>> = None;
    let mut flat = Vec::new();
    for value in values {
        let Value::Array(array) = value else {
            match &inner {
                Some(dimensions) if !dimensions.is_empty() => return Err(unequal()),
                _ => inner = Some(Vec::new()),
            }
            continue;
        };
        match &inner {
            Some(dimensions) if dimensions.as_slice() != array.dimensions() => return Err(unequal()),
            Some(_) => {}
            None => inner = Some(array.dimensions().to_vec()),
        }
        flat.extend_from_slice(array.values());
    }
    let mut dimensions = inner.unwrap_or_default();
    if dimensions.is_empty() {
        return Ok(Value::Array(Arc::new(Array::empty(element))));
    }
    dimensions.insert(0, Dimension { length: values.len() as i32, lower: 1 });
    Ok(Value::Array(Arc::new(Array::new(element, dimensions, flat)?)))
}

/// `IS NULL`, or with `negated` `IS NOT NULL`: of a row, both ask all of its fields.
pub(super) fn is_null(value: &Value, negated: bool) -> bool {
    match value {
        Value::Record(fields) => fields.iter().all(|field| field.is_null() != negated),
        value => value.is_null() != negated,
    }
}

/// Whether blanks at the end do not count when values of these types are compared.
pub(super) fn is_blank_padded(left: Type, right: Type) -> bool {
    left == Type::Bpchar && right == Type::Bpchar
}

/// Compares as the types' B-tree does, null equal to null and greatest.
pub(super) fn compare(left: &Value, right: &Value, blanks: bool) -> Ordering {
    match (left, right) {
        (Value::Text(left), Value::Text(right)) if blanks => trim_blanks(left).cmp(trim_blanks(right)),
        _ => left.cmp_sql(right),
    }
}
