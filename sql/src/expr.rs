//! Typed expressions: what the binder makes of SQL's expressions, and what both executors evaluate.
//!
//! Invariants:
//! - Every operand already has the type its operator, function or cast was defined for; nothing is converted implicitly.
//! - Aggregates, window functions and set-returning functions never stand inside: the binder puts them into plan nodes
//!   and leaves a column in their place.
//! - In a bound (logical) plan [`Kind::Column`] is a column id, unique in the statement, and a correlated sub-query simply
//!   names columns of the query around it. Lowering (`plan::lower`) turns ids into positions of the input row, and what a
//!   sub-plan takes from outside into [`Kind::Outer`].
//!
//! Not here: how a value is computed (`eval`), what functions there are (`functions`).

use std::sync::Arc;

use model::{Type, Value};

use crate::{
    functions::{Function, Operator, Volatility},
    plan::{Plan, logical::Logical},
};

/// An expression with its type.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: Kind,
    /// What it gives.
    pub ty: Type,
    /// The modifier of that type; -1 for none.
    pub typmod: i32,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A column of the input row, by position (by id before lowering).
    Column(usize),
    /// A value handed into this sub-plan by the row around it, by place in its list of arguments.
    Outer(usize),
    /// `$n`, counted from 0; its value stands in `Context::parameters` and has exactly the expression's type.
    Parameter(usize),
    /// A constant.
    Constant(Value),
    /// A scalar function. For a variadic one the arguments are spread.
    Call(&'static Function, Vec<Expr>),
    /// An operator on one or two operands; a null operand gives null.
    Operator(&'static Operator, Vec<Expr>),
    /// Three-valued AND of two or more.
    And(Vec<Expr>),
    /// Three-valued OR of two or more.
    Or(Vec<Expr>),
    /// Three-valued NOT.
    Not(Box<Expr>),
    /// The first branch whose condition is true, else the last operand.
    Case {
        /// Condition and result of each WHEN.
        branches: Vec<(Expr, Expr)>,
        /// ELSE; a null constant if it was left out.
        otherwise: Box<Expr>,
    },
    /// The first operand that is not null.
    Coalesce(Vec<Expr>),
    /// The greatest operand that is not null.
    Greatest(Vec<Expr>),
    /// The least operand that is not null.
    Least(Vec<Expr>),
    /// `IS [NOT] NULL`; of a row: all of its fields.
    IsNull {
        /// What is looked at.
        value: Box<Expr>,
        /// `IS NOT NULL`.
        negated: bool,
    },
    /// `IS [NOT] TRUE | FALSE | UNKNOWN`.
    IsTruth {
        /// A boolean.
        value: Box<Expr>,
        /// What it is compared with: none for UNKNOWN.
        truth: Option<bool>,
        /// `IS NOT …`.
        negated: bool,
    },
    /// `IS [NOT] DISTINCT FROM`, by the type's equality, null equal to null.
    IsDistinct {
        /// One side.
        left: Box<Expr>,
        /// The other, comparable with it.
        right: Box<Expr>,
        /// `IS NOT DISTINCT FROM`.
        negated: bool,
    },
    /// `value [NOT] IN (list)`: all of one type, compared by that type's equality; three-valued.
    InList {
        /// What is looked for.
        value: Box<Expr>,
        /// Where.
        list: Vec<Expr>,
        /// `NOT IN`.
        negated: bool,
    },
    /// A conversion from the operand's type to this expression's type and modifier.
    Cast {
        /// What is converted.
        value: Box<Expr>,
        /// Written by the client (truncates where PostgreSQL's explicit casts do).
        explicit: bool,
    },
    /// `ARRAY[…]`: elements of the array's element type, or arrays of the same type for more dimensions.
    Array(Vec<Expr>),
    /// `ROW(…)`.
    Row(Vec<Expr>),
    /// `array[i]`, `array[i:j]`, for arrays; a slice if one subscript is a slice.
    Subscript {
        /// The array.
        array: Box<Expr>,
        /// One per dimension.
        subscripts: Vec<Subscript>,
    },
    /// `left operator ANY (array)` or `ALL`.
    AnyAll {
        /// Gives a boolean.
        operator: &'static Operator,
        /// The left operand.
        left: Box<Expr>,
        /// An array whose elements are the right operands.
        array: Box<Expr>,
        /// ALL instead of ANY.
        all: bool,
    },
    /// A sub-query used as a value.
    Subquery(Box<Subquery>),
}

/// One subscript of an array.
#[derive(Clone, Debug)]
pub enum Subscript {
    /// `[i]`
    Index(Expr),
    /// `[lower:upper]`
    Slice(Option<Expr>, Option<Expr>),
}

/// A sub-query in an expression.
#[derive(Clone, Debug)]
pub struct Subquery {
    /// What is asked of it.
    pub kind: SubqueryKind,
    /// The query.
    pub query: Query,
    /// How it was written: in one scope, equal texts mean the same.
    pub text: Arc<str>,
}

/// The query of a sub-query, before and after lowering.
#[derive(Clone, Debug)]
pub enum Query {
    /// As bound: it may name columns of the query around it.
    Logical(Box<Logical>),
    /// As it runs.
    Physical {
        /// The plan.
        plan: Arc<Plan>,
        /// What it takes from the row around it: the values of its [`Kind::Outer`] places. Empty if it is not correlated,
        /// and then its result is the same for the whole statement.
        outer: Vec<Expr>,
    },
}

/// What is asked of a sub-query.
#[derive(Clone, Debug)]
pub enum SubqueryKind {
    /// Its only value; null for no row, `21000` for more than one.
    Scalar,
    /// Whether it has a row.
    Exists,
    /// `(left, …) operator ANY/ALL (query)`; IN is `= ANY`, NOT IN is `<> ALL`. One operator per column; several columns
    /// are compared as a row: all equal (`=`), or any unequal (`<>`).
    Compare {
        /// The left operands.
        left: Vec<Expr>,
        /// How each is compared with its column.
        operators: Vec<&'static Operator>,
        /// ALL instead of ANY.
        all: bool,
    },
    /// `ARRAY(query)`: its only column as an array, in order.
    Array,
}

/// A key of an order.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// By what.
    pub value: Expr,
    /// Backwards.
    pub descending: bool,
    /// Nulls come first.
    pub nulls_first: bool,
}

impl Expr {
    /// An expression without a modifier.
    pub fn new(kind: Kind, ty: Type) -> Self {
        Self { kind, ty, typmod: -1 }
    }

    /// A constant.
    pub fn constant(value: Value, ty: Type) -> Self {
        Self::new(Kind::Constant(value), ty)
    }

    /// A null of a type.
    pub fn null(ty: Type) -> Self {
        Self::constant(Value::Null, ty)
    }

    /// A truth value.
    pub fn bool(value: bool) -> Self {
        Self::constant(Value::Bool(value), Type::Bool)
    }

    /// A column.
    pub fn column(id: usize, ty: Type, typmod: i32) -> Self {
        Self { kind: Kind::Column(id), ty, typmod }
    }

    /// AND of conditions, flattened; none is true.
    pub fn and(conditions: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut flat = Vec::new();
        for condition in conditions {
            condition.split_and(&mut flat);
        }
        match flat.len() {
            0 => None,
            1 => flat.pop(),
            _ => Some(Self::new(Kind::And(flat), Type::Bool)),
        }
    }

    /// Takes an AND apart into its conditions.
    pub fn split_and(self, into: &mut Vec<Self>) {
        match self.kind {
            Kind::And(parts) => parts.into_iter().for_each(|part| part.split_and(into)),
            _ => into.push(self),
        }
    }

    /// The constant, if it is one.
    pub fn as_constant(&self) -> Option<&Value> {
        match &self.kind {
            Kind::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The column id or position, if it is a column.
    pub fn as_column(&self) -> Option<usize> {
        match self.kind {
            Kind::Column(id) => Some(id),
            _ => None,
        }
    }

    /// Calls `visit` on every direct operand. Queries of sub-queries are not entered, their left operands are.
    pub fn for_each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match &self.kind {
            Kind::Column(_) | Kind::Outer(_) | Kind::Parameter(_) | Kind::Constant(_) => {}
            Kind::Call(_, list)
            | Kind::Operator(_, list)
            | Kind::And(list)
            | Kind::Or(list)
            | Kind::Coalesce(list)
            | Kind::Greatest(list)
            | Kind::Least(list)
            | Kind::Array(list)
            | Kind::Row(list) => list.iter().for_each(visit),
            Kind::Not(value)
            | Kind::IsNull { value, negated: _ }
            | Kind::IsTruth { value, truth: _, negated: _ }
            | Kind::Cast { value, explicit: _ } => visit(value),
            Kind::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    visit(condition);
                    visit(result);
                }
                visit(otherwise);
            }
            Kind::IsDistinct { left, right, negated: _ } => {
                visit(left);
                visit(right);
            }
            Kind::InList { value, list, negated: _ } => {
                visit(value);
                list.iter().for_each(visit);
            }
            Kind::Subscript { array, subscripts } => {
                visit(array);
                for subscript in subscripts {
                    match subscript {
                        Subscript::Index(index) => visit(index),
                        Subscript::Slice(lower, upper) => lower.iter().chain(upper).for_each(&mut *visit),
                    }
                }
            }
            Kind::AnyAll { operator: _, left, array, all: _ } => {
                visit(left);
                visit(array);
            }
            Kind::Subquery(subquery) => {
                if let SubqueryKind::Compare { left, .. } = &subquery.kind {
                    left.iter().for_each(&mut *visit);
                }
                if let Query::Physical { outer, .. } = &subquery.query {
                    outer.iter().for_each(visit);
                }
            }
        }
    }

    /// As [`Expr::for_each_child`], to change the operands in place.
    pub fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        match &mut self.kind {
            Kind::Column(_) | Kind::Outer(_) | Kind::Parameter(_) | Kind::Constant(_) => {}
            Kind::Call(_, list)
            | Kind::Operator(_, list)
            | Kind::And(list)
            | Kind::Or(list)
            | Kind::Coalesce(list)
            | Kind::Greatest(list)
            | Kind::Least(list)
            | Kind::Array(list)
            | Kind::Row(list) => list.iter_mut().for_each(visit),
            Kind::Not(value)
            | Kind::IsNull { value, negated: _ }
            | Kind::IsTruth { value, truth: _, negated: _ }
            | Kind::Cast { value, explicit: _ } => visit(value),
            Kind::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    visit(condition);
                    visit(result);
                }
                visit(otherwise);
            }
            Kind::IsDistinct { left, right, negated: _ } => {
                visit(left);
                visit(right);
            }
            Kind::InList { value, list, negated: _ } => {
                visit(value);
                list.iter_mut().for_each(visit);
            }
            Kind::Subscript { array, subscripts } => {
                visit(array);
                for subscript in subscripts {
                    match subscript {
                        Subscript::Index(index) => visit(index),
                        Subscript::Slice(lower, upper) => lower.iter_mut().chain(upper).for_each(&mut *visit),
                    }
                }
            }
            Kind::AnyAll { operator: _, left, array, all: _ } => {
                visit(left);
                visit(array);
            }
            Kind::Subquery(subquery) => {
                if let SubqueryKind::Compare { left, .. } = &mut subquery.kind {
                    left.iter_mut().for_each(&mut *visit);
                }
                if let Query::Physical { outer, .. } = &mut subquery.query {
                    outer.iter_mut().for_each(visit);
                }
            }
        }
    }

    /// Whether `found` holds for this expression or one inside it.
    pub fn any(&self, found: &mut dyn FnMut(&Self) -> bool) -> bool {
        if found(self) {
            return true;
        }
        let mut any = false;
        self.for_each_child(&mut |child| any = any || child.any(found));
        any
    }

    /// The most changeable thing inside; a sub-query counts as stable.
    pub fn volatility(&self) -> Volatility {
        let mut worst = match &self.kind {
            Kind::Call(function, _) => function.volatility,
            Kind::Operator(operator, _) => operator.volatility,
            Kind::Cast { value, .. } if is_pure_cast(value.ty, self.ty) => Volatility::Immutable,
            Kind::Cast { .. } | Kind::Subquery(_) => Volatility::Stable,
            _ => Volatility::Immutable,
        };
        self.for_each_child(&mut |child| {
            worst = match (worst, child.volatility()) {
                (Volatility::Volatile, _) | (_, Volatility::Volatile) => Volatility::Volatile,
                (Volatility::Stable, _) | (_, Volatility::Stable) => Volatility::Stable,
                (Volatility::Immutable, Volatility::Immutable) => Volatility::Immutable,
            };
        });
        worst
    }
}

/// Whether a cast depends on nothing but its operand: neither the time zone, nor the clock, nor the catalog.
fn is_pure_cast(from: Type, to: Type) -> bool {
    let depends = |ty: Type| {
        let ty = ty.element().unwrap_or(ty);
        ty.is_oid()
            || matches!(
                ty,
                Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz | Type::Interval | Type::Bytea
            )
    };
    from == to || !(depends(from) || depends(to))
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.symbol)
    }
}
