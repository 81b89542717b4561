//! Row programs: the small, frozen language that `apply` evaluates on stored rows.
//!
//! Invariants:
//! - The meaning of a program depends on nothing but the program, the row and the semantics version ([`SEMANTICS`]); it is
//!   PostgreSQL's meaning of the same expression, overflow and division by zero included.
//! - A program never panics and always ends: it has no loops and its depth is bounded by [`DEPTH_MAX`].
//!
//! Not here: SQL's expressions (`sql`), which only become a program where every part exists here.

use std::cmp::Ordering;

use crate::{
    error::{Code, Error, Result},
    id::ColumnNumber,
    types::Type,
    value::{Text, Value},
};

/// The version of the meaning of programs. It is state of a shard and is raised by an entry.
pub const SEMANTICS: u32 = 1;

/// How deep an expression may nest.
pub const DEPTH_MAX: usize = 32;

/// A change of one row in place: assignments that all read the row as it was, under a guard.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Runs only if this is true; none for always.
    pub guard: Option<Expr>,
    /// New values of columns.
    pub assignments: Vec<(ColumnNumber, Expr)>,
}

/// An expression over one row.
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    /// A column's value.
    Column(ColumnNumber, Type),
    /// A constant.
    Constant(Value, Type),
    /// Arithmetic on two operands of the same type: int2, int4, int8, numeric or float8.
    Arithmetic(Arithmetic, Box<Self>, Box<Self>),
    /// A comparison of two operands of the same type.
    Compare(Comparison, Box<Self>, Box<Self>),
    /// Three-valued AND.
    And(Box<Self>, Box<Self>),
    /// Three-valued OR.
    Or(Box<Self>, Box<Self>),
    /// Three-valued NOT.
    Not(Box<Self>),
    /// IS NULL.
    IsNull(Box<Self>),
    /// The first operand that is not null.
    Coalesce(Vec<Self>),
    /// Text concatenation, null if one side is.
    Concat(Box<Self>, Box<Self>),
}

/// Arithmetic operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

/// Comparison operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What a column holds in the row a program runs on; none if the row has no such column.
pub type Columns<'a> = dyn Fn(ColumnNumber) -> Option<Value> + 'a;

impl Program {
    /// Runs the program on a row: the new values of the columns it assigns, or none if its guard is not true.
    pub fn run(&self, columns: &Columns<'_>) -> Result<Option<Vec<(ColumnNumber, Value)>>> {
        if let Some(guard) = &self.guard
            && guard.evaluate(columns)?.as_bool() != Some(true)
        {
            return Ok(None);
        }
        let assigned = self.assignments.iter();
        assigned.map(|(column, expr)| Ok((*column, expr.evaluate(columns)?))).collect::<Result<_>>().map(Some)
    }
}

impl Expr {
    /// The value of the expression on a row.
    pub fn evaluate(&self, columns: &Columns<'_>) -> Result<Value> {
        self.evaluate_at(columns, 0)
    }

    fn evaluate_at(&self, columns: &Columns<'_>, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX {
            return Err(Error::new(Code::StatementTooComplex, "row program is nested too deeply"));
        }
        let operand = |expr: &Self| expr.evaluate_at(columns, depth + 1);
        match self {
            Self::Column(number, of) => match columns(*number) {
                Some(value) if value.fits(*of) => Ok(value),
                Some(_) | None => {
                    Err(Error::internal(format!("column {number} is not what the program expects")))
                }
            },
            Self::Constant(value, _) => Ok(value.clone()),
            Self::Arithmetic(operator, left, right) => arithmetic(*operator, operand(left)?, operand(right)?),
            Self::Compare(operator, left, right) => Ok(compare(*operator, &operand(left)?, &operand(right)?)),
            Self::And(left, right) => match operand(left)?.as_bool() {
                Some(false) => Ok(Value::Bool(false)),
                left => Ok(match (left, operand(right)?.as_bool()) {
                    (_, Some(false)) => Value::Bool(false),
                    (Some(true), Some(true)) => Value::Bool(true),
                    (Some(_) | None, Some(true) | None) => Value::Null,
                }),
            },
            Self::Or(left, right) => match operand(left)?.as_bool() {
                Some(true) => Ok(Value::Bool(true)),
                left => Ok(match (left, operand(right)?.as_bool()) {
                    (_, Some(true)) => Value::Bool(true),
                    (Some(false), Some(false)) => Value::Bool(false),
                    (Some(_) | None, Some(false) | None) => Value::Null,
                }),
            },
            Self::Not(inner) => {
                Ok(operand(inner)?.as_bool().map_or(Value::Null, |value| Value::Bool(!value)))
            }
            Self::IsNull(inner) => Ok(Value::Bool(operand(inner)?.is_null())),
            Self::Coalesce(items) => {
                for item in items {
                    let value = operand(item)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Self::Concat(left, right) => match (operand(left)?, operand(right)?) {
                (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
                (Value::Text(left), Value::Text(right)) => {
                    Ok(Value::Text(Text::from([left.as_str(), right.as_str()].concat())))
                }
                (left, right) => Err(mismatch(&left, &right)),
            },
        }
    }
}

fn compare(operator: Comparison, left: &Value, right: &Value) -> Value {
    if left.is_null() || right.is_null() {
        return Value::Null;
    }
    let order = left.cmp_sql(right);
    Value::Bool(match operator {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    })
}

fn arithmetic(operator: Arithmetic, left: Value, right: Value) -> Result<Value> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Int2(left), Value::Int2(right)) => {
            let result = integer(operator, i64::from(left), i64::from(right))?;
            let result = result.and_then(|result| i16::try_from(result).ok());
            result.map(Value::Int2).ok_or_else(|| out_of_range("smallint"))
        }
        (Value::Int4(left), Value::Int4(right)) => {
            let result = integer(operator, i64::from(left), i64::from(right))?;
            let result = result.and_then(|result| i32::try_from(result).ok());
            result.map(Value::Int4).ok_or_else(|| out_of_range("integer"))
        }
        (Value::Int8(left), Value::Int8(right)) => {
            integer(operator, left, right)?.map(Value::Int8).ok_or_else(|| out_of_range("bigint"))
        }
        (Value::Numeric(left), Value::Numeric(right)) => {
            let result = match operator {
                Arithmetic::Add => left.add(&right),
                Arithmetic::Subtract => left.sub(&right),
                Arithmetic::Multiply => left.mul(&right),
                Arithmetic::Divide => left.div(&right),
                Arithmetic::Modulo => left.rem(&right),
            };
            result.map(Value::Numeric).map_err(Error::from)
        }
        (Value::Float8(left), Value::Float8(right)) => float(operator, left, right).map(Value::Float8),
        (left, right) => Err(mismatch(&left, &right)),
    }
}

/// None if the result does not fit 64 bits.
fn integer(operator: Arithmetic, left: i64, right: i64) -> Result<Option<i64>> {
    if right == 0 && matches!(operator, Arithmetic::Divide | Arithmetic::Modulo) {
        return Err(division_by_zero());
    }
    Ok(match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide => left.checked_div(right),
        // The smallest number modulo -1 is 0, although the division overflows.
        Arithmetic::Modulo => Some(left.checked_rem(right).unwrap_or(0)),
    })
}

fn float(operator: Arithmetic, left: f64, right: f64) -> Result<f64> {
    let result = match operator {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide if right == 0.0 && !left.is_nan() => return Err(division_by_zero()),
        Arithmetic::Divide => left / right,
        Arithmetic::Modulo => {
            return Err(Error::new(
                Code::UndefinedFunction,
                "operator does not exist: double precision % double precision",
            ));
        }
    };
    if result.is_infinite() && left.is_finite() && right.is_finite() {
        return Err(Error::new(Code::NumericValueOutOfRange, "value out of range: overflow"));
    }
    let lost = match operator {
        Arithmetic::Multiply => result == 0.0 && left != 0.0 && right != 0.0,
        Arithmetic::Divide => result == 0.0 && left != 0.0 && right.is_finite(),
        Arithmetic::Add | Arithmetic::Subtract | Arithmetic::Modulo => false,
    };
    if lost {
        return Err(Error::new(Code::NumericValueOutOfRange, "value out of range: underflow"));
    }
    Ok(result)
}

fn out_of_range(name: &str) -> Error {
    Error::new(Code::NumericValueOutOfRange, format!("{name} out of range"))
}

fn division_by_zero() -> Error {
    Error::new(Code::DivisionByZero, "division by zero")
}

fn mismatch(left: &Value, right: &Value) -> Error {
    let name = |value: &Value| value.natural_type().map_or("null", |of| of.display_name());
    Error::internal(format!("row program mixes {} and {}", name(left), name(right)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_columns(_: ColumnNumber) -> Option<Value> {
        None
    }

    fn of(operator: Arithmetic, left: Value, right: Value) -> Result<Value> {
        let operand = |value: Value| {
            Box::new(Expr::Constant(value.clone(), value.natural_type().unwrap_or(Type::Int4)))
        };
        Expr::Arithmetic(operator, operand(left), operand(right)).evaluate(&no_columns)
    }

    #[test]
    fn integers_overflow_as_in_postgres() {
        let cases = [
            (Arithmetic::Add, Value::Int4(i32::MAX), Value::Int4(1), "integer out of range"),
            (Arithmetic::Divide, Value::Int2(i16::MIN), Value::Int2(-1), "smallint out of range"),
            (Arithmetic::Multiply, Value::Int8(i64::MAX), Value::Int8(2), "bigint out of range"),
            (Arithmetic::Modulo, Value::Int4(1), Value::Int4(0), "division by zero"),
            (
                Arithmetic::Multiply,
                Value::Float8(1e300),
                Value::Float8(1e300),
                "value out of range: overflow",
            ),
        ];
        for (operator, left, right, message) in cases {
            let error = of(operator, left, right).expect_err(message);
            assert_eq!(error.message(), message);
        }
        assert_eq!(
            of(Arithmetic::Modulo, Value::Int8(i64::MIN), Value::Int8(-1)).expect("zero"),
            Value::Int8(0)
        );
        assert_eq!(
            of(Arithmetic::Divide, Value::Int4(-7), Value::Int4(2)).expect("truncated"),
            Value::Int4(-3)
        );
    }

    #[test]
    fn null_is_contagious_but_not_for_logic_that_is_decided() {
        let null = || Box::new(Expr::Constant(Value::Null, Type::Bool));
        let bool = |value| Box::new(Expr::Constant(Value::Bool(value), Type::Bool));
        let cases = [
            (Expr::And(null(), bool(false)), Value::Bool(false)),
            (Expr::And(bool(true), null()), Value::Null),
            (Expr::Or(null(), bool(true)), Value::Bool(true)),
            (Expr::Or(bool(false), null()), Value::Null),
            (Expr::Not(null()), Value::Null),
            (Expr::IsNull(null()), Value::Bool(true)),
            (Expr::Coalesce(vec![*null(), *bool(true)]), Value::Bool(true)),
        ];
        for (expr, expected) in cases {
            assert_eq!(expr.evaluate(&no_columns).expect("logic has no faults"), expected, "{expr:?}");
        }
        assert_eq!(of(Arithmetic::Add, Value::Null, Value::Int4(1)).expect("null"), Value::Null);
    }

    #[test]
    fn assignments_read_the_row_as_it_was_and_only_under_the_guard() {
        let a = || Box::new(Expr::Column(ColumnNumber(1), Type::Int4));
        let b = || Box::new(Expr::Column(ColumnNumber(2), Type::Int4));
        let mut program =
            Program { guard: None, assignments: vec![(ColumnNumber(1), *b()), (ColumnNumber(2), *a())] };
        let row = |number: ColumnNumber| Some(Value::Int4(i32::from(number.0)));
        let swapped = vec![(ColumnNumber(1), Value::Int4(2)), (ColumnNumber(2), Value::Int4(1))];
        assert_eq!(program.run(&row).expect("plain"), Some(swapped));
        program.guard = Some(Expr::Compare(Comparison::Greater, a(), b()));
        assert_eq!(program.run(&row).expect("plain"), None);
    }

    #[test]
    fn depth_is_bounded() {
        let mut expr = Expr::Constant(Value::Bool(true), Type::Bool);
        for _ in 0..DEPTH_MAX + 1 {
            expr = Expr::Not(Box::new(expr));
        }
        assert_eq!(expr.evaluate(&no_columns).expect_err("too deep").code(), Code::StatementTooComplex);
    }
}
