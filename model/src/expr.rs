//! Row programs: the small, frozen language that `apply` evaluates on stored rows.
//!
//! Invariants:
//! - The meaning of a program depends on nothing but the program, the row and the semantics version ([`SEMANTICS`]); it is
//!   PostgreSQL's meaning of the same expression, overflow and division by zero included.
//! - A program never panics and always ends: it has no loops and its depth is bounded by [`DEPTH_MAX`].
//!
//! Not here: SQL's expressions (`sql`), which only become a program where every part exists here.

use crate::{
    error::{Code, Error, Result},
    id::ColumnNumber,
    types::Type,
    value::Value,
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
