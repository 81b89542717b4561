//! Functions, operators, casts and aggregates: one signature table, each defined once, on values.
//!
//! Invariants:
//! - A definition says its argument types, result type, strictness and volatility; resolution (`bind`) and evaluation
//!   (`direct`, `execute`) read nothing else. PostgreSQL 15 is the oracle for every one.
//! - A strict function is never called with a null.
//! - An evaluation neither waits nor panics; what is out of range is an error with PostgreSQL's SQLSTATE.
//!
//! Not here: AND, OR, NOT, CASE, COALESCE and the like, which do not evaluate all their arguments (`expr`).

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use model::{
    Result, Type, Value,
    value::{Array, Numeric},
};

use crate::context::Context;

pub mod aggregate;
pub mod array;
pub mod cast;
pub mod catalog;
pub mod compare;
pub mod datetime;
mod identifier;
mod io;
pub mod json;
mod json_part;
mod json_path;
pub mod math;
mod named;
mod ordered_set;
pub mod pattern;
pub mod session;
pub mod set;
pub mod template;
pub mod text;

/// What a parameter accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepts {
    /// One type.
    Exact(Type),
    /// Any type, unrelated to others (`"any"`).
    Any,
    /// Any type, the same wherever it stands (`anyelement`).
    Element,
    /// An array of that type (`anyarray`).
    Array,
    /// Any type that is no array, the same wherever it stands (`anynonarray`).
    NonArray,
}

/// What a result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// One type.
    Exact(Type),
    /// The type bound to `anyelement`.
    Element,
    /// An array of it.
    Array,
}

/// How a result may change between calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Volatility {
    /// Never: may be folded when planning.
    Immutable,
    /// Not inside a statement.
    Stable,
    /// Always: evaluated for each row, in order.
    Volatile,
}

/// A scalar function.
pub type Scalar = fn(&mut Context, &[Value]) -> Result<Value>;

/// A set-returning function: all rows of one call, made as they are pulled.
pub type SetReturning = fn(&mut Context, &[Value]) -> Result<RowIterator>;

/// Rows of a set-returning function, with one value per column.
pub type RowIterator = Box<dyn Iterator<Item = Result<Vec<Value>>> + Send>;

/// What a function does.
#[derive(Clone, Copy)]
pub enum Body {
    /// One value per call.
    Scalar(Scalar),
    /// Rows; names and types of the columns (`Gives` for polymorphic ones).
    Set(&'static [(&'static str, Gives)], SetReturning),
    /// A value per group.
    Aggregate(fn(&[Type]) -> Box<dyn Accumulator>),
    /// A window function: evaluated over its partition by `execute::window`.
    Window(WindowFunction),
}

/// The window functions that are not aggregates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowFunction {
    /// `row_number()`
    RowNumber,
    /// `rank()`
    Rank,
    /// `dense_rank()`
    DenseRank,
    /// `percent_rank()`
    PercentRank,
    /// `cume_dist()`
    CumeDist,
    /// `ntile(n)`
    Ntile,
    /// `lag(value [, offset [, default]])`
    Lag,
    /// `lead(value [, offset [, default]])`
    Lead,
    /// `first_value(value)`
    FirstValue,
    /// `last_value(value)`
    LastValue,
    /// `nth_value(value, n)`
    NthValue,
}

/// The state of one aggregate over one group.
pub trait Accumulator: Send {
    /// Takes one row's arguments.
    fn add(&mut self, context: &mut Context, arguments: &[Value]) -> Result<()>;
    /// The result over all rows taken so far.
    fn finish(&mut self) -> Result<Value>;
    /// Bytes held on the heap, roughly, for the memory budget.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// A function's definition.
#[derive(Clone, Copy)]
pub struct Function {
    /// Its name, lower case.
    pub name: &'static str,
    /// Its parameters.
    pub parameters: &'static [Accepts],
    /// How many of the last parameters may be left out (the body sees fewer values).
    pub optional: usize,
    /// The last parameter may repeat (`VARIADIC`): zero or more times.
    pub variadic: bool,
    /// Its result.
    pub gives: Gives,
    /// A null argument gives null without a call.
    pub strict: bool,
    /// How its result may change.
    pub volatility: Volatility,
    /// What it does.
    pub body: Body,
}

/// An operator's definition: a strict, immutable or stable function of one or two operands.
#[derive(Clone, Copy)]
pub struct Operator {
    /// Its symbol.
    pub symbol: &'static str,
    /// The left operand; none for a prefix operator.
    pub left: Option<Accepts>,
    /// The right operand.
    pub right: Accepts,
    /// Its result.
    pub gives: Gives,
    /// How its result may change (stable for those that look at the time zone).
    pub volatility: Volatility,
    /// What it does, on one or two values that are not null.
    pub body: Scalar,
}

/// When a cast is applied without being written (PostgreSQL `pg_cast.castcontext`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    /// Anywhere.
    Implicit,
    /// When a value goes into a column.
    Assignment,
    /// Only when written.
    Explicit,
}

/// All functions with a name, of every kind.
pub fn find_functions(name: &str) -> &'static [Function] {
    definitions().functions.get(name).map_or(&[], Vec::as_slice)
}

/// All operators with a symbol.
pub fn find_operators(symbol: &str) -> &'static [Operator] {
    definitions().operators.get(symbol).map_or(&[], Vec::as_slice)
}

/// Every function there is, for `pg_proc`.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    definitions().functions.values().flatten()
}

/// What a row is as JSON: the names of its columns, then their values.
pub(crate) fn named_row_to_json() -> &'static Function {
    &json::NAMED_ROW
}

/// `nextval`. With a second argument it is the table that takes the number, and the user's rights do not count.
pub(crate) fn nextval() -> &'static Function {
    &find_functions("nextval")[0]
}

/// A field of a JSON object in a type: the document, the key, the type's OID. The call's type is that type.
pub(crate) fn json_field_as() -> &'static Function {
    &json::FIELD_AS
}

/// A percentile behind a check of its share: the share, the percentile. The call's type is that of the percentile.
pub(crate) fn checked_percentile() -> &'static Function {
    &ordered_set::CHECKED
}

pub(crate) use named::arguments_of;
pub(crate) use ordered_set::is_ordered_set;

/// Every operator there is, for `pg_operator`.
pub fn operators() -> impl Iterator<Item = &'static Operator> {
    definitions().operators.values().flatten()
}

/// The signature table while it is filled, once per process; each topic adds its own.
#[derive(Default)]
pub(crate) struct Definitions {
    functions: BTreeMap<&'static str, Vec<Function>>,
    operators: BTreeMap<&'static str, Vec<Operator>>,
}

fn definitions() -> &'static Definitions {
    static DEFINITIONS: OnceLock<Definitions> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let mut definitions = Definitions::default();
        for define in [
            aggregate::define,
            array::define,
            cast::define,
            catalog::define,
            compare::define,
            datetime::define,
            identifier::define,
            json::define,
            json_path::define,
            math::define,
            ordered_set::define,
            pattern::define,
            session::define,
            set::define,
            template::define,
            text::define,
        ] {
            define(&mut definitions);
        }
        definitions
    })
}

impl Definitions {
    /// Adds a strict, immutable scalar function; what is special about it is set on the result.
    fn scalar(
        &mut self,
        name: &'static str,
        parameters: impl IntoParameters,
        gives: impl IntoGives,
        body: Scalar,
    ) -> &mut Function {
        self.add(name, parameters, gives, Body::Scalar(body))
    }

    /// Adds a strict, immutable function of any kind.
    fn add(
        &mut self,
        name: &'static str,
        parameters: impl IntoParameters,
        gives: impl IntoGives,
        body: Body,
    ) -> &mut Function {
        let functions = self.functions.entry(name).or_default();
        functions.push(Function {
            name,
            parameters: parameters.into_parameters(),
            optional: 0,
            variadic: false,
            gives: gives.into_gives(),
            strict: true,
            volatility: Volatility::Immutable,
            body,
        });
        functions.last_mut().expect("one was pushed")
    }

    /// Adds an immutable operator of two operands.
    fn infix(
        &mut self,
        symbol: &'static str,
        left: impl IntoAccepts,
        right: impl IntoAccepts,
        gives: impl IntoGives,
        body: Scalar,
    ) -> &mut Operator {
        self.operator(symbol, Some(left.into_accepts()), right.into_accepts(), gives.into_gives(), body)
    }

    /// Adds an immutable operator that stands before its operand.
    fn prefix(
        &mut self,
        symbol: &'static str,
        operand: impl IntoAccepts,
        gives: impl IntoGives,
        body: Scalar,
    ) -> &mut Operator {
        self.operator(symbol, None, operand.into_accepts(), gives.into_gives(), body)
    }

    fn operator(
        &mut self,
        symbol: &'static str,
        left: Option<Accepts>,
        right: Accepts,
        gives: Gives,
        body: Scalar,
    ) -> &mut Operator {
        let operators = self.operators.entry(symbol).or_default();
        operators.push(Operator { symbol, left, right, gives, volatility: Volatility::Immutable, body });
        operators.last_mut().expect("one was pushed")
    }
}

impl Function {
    /// The last `count` parameters may be left out.
    fn optional(&mut self, count: usize) -> &mut Self {
        self.optional = count;
        self
    }

    /// The last parameter repeats.
    fn variadic(&mut self) -> &mut Self {
        self.variadic = true;
        self
    }

    /// Is called with nulls.
    fn lenient(&mut self) -> &mut Self {
        self.strict = false;
        self
    }

    /// Changes only between statements.
    fn stable(&mut self) -> &mut Self {
        self.volatility = Volatility::Stable;
        self
    }

    /// May change with each call.
    fn volatile(&mut self) -> &mut Self {
        self.volatility = Volatility::Volatile;
        self
    }
}

/// What can be said of a parameter: a type, or what it accepts.
trait IntoAccepts {
    fn into_accepts(self) -> Accepts;
}

impl IntoAccepts for Type {
    fn into_accepts(self) -> Accepts {
        Accepts::Exact(self)
    }
}

impl IntoAccepts for Accepts {
    fn into_accepts(self) -> Accepts {
        self
    }
}

/// What can be said of a list of parameters.
trait IntoParameters {
    fn into_parameters(self) -> &'static [Accepts];
}

impl<A: IntoAccepts, const N: usize> IntoParameters for [A; N] {
    fn into_parameters(self) -> &'static [Accepts] {
        let parameters: Vec<Accepts> = self.into_iter().map(IntoAccepts::into_accepts).collect();
        // Kept as long as the table itself: until the process ends.
        Vec::leak(parameters)
    }
}

impl IntoParameters for () {
    fn into_parameters(self) -> &'static [Accepts] {
        &[]
    }
}

/// What can be said of a result.
trait IntoGives {
    fn into_gives(self) -> Gives;
}

impl IntoGives for Type {
    fn into_gives(self) -> Gives {
        Gives::Exact(self)
    }
}

impl IntoGives for Gives {
    fn into_gives(self) -> Gives {
        self
    }
}

// What bodies take their arguments with. Resolution guarantees the kind; a mismatch is a bug of the binder and ends the
// statement as one.

fn int(value: &Value) -> i64 {
    value.as_i64().expect("resolution gave an integer")
}

fn int4(value: &Value) -> i32 {
    i32::try_from(int(value)).expect("resolution gave an int4")
}

fn float(value: &Value) -> f64 {
    value.as_f64().expect("resolution gave a float")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("resolution gave a text")
}

fn boolean(value: &Value) -> bool {
    value.as_bool().expect("resolution gave a boolean")
}

fn bytes(value: &Value) -> &[u8] {
    value.as_bytes().expect("resolution gave bytes")
}

fn numeric(value: &Value) -> &Numeric {
    match value {
        Value::Numeric(number) => number,
        other => unreachable!("resolution gave a numeric, not {:?}", other.natural_type()),
    }
}

fn array_of(value: &Value) -> &Arc<Array> {
    value.as_array().expect("resolution gave an array")
}
