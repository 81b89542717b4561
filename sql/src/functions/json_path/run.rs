//! What a path finds, item by item: each is handed on to the next step as soon as it is there.
//!
//! In lax mode an array where no array is wanted stands for its elements, something else where an array is wanted stands
//! for an array of itself, and what is not there is nothing. An error inside a filter makes its condition unknown.
//!
//! Invariants:
//! - No item is copied before it is part of a result or an operand of a comparison; what is copied is held to
//!   [`HELD_BYTES_MAX`].
//! - A statement that shall stop is noticed every [`STEPS_UNCHECKED`] steps.

use std::{cell::Cell, cmp::Ordering};

use model::{
    Code, Error, Result,
    expr::{Arithmetic, Comparison},
    value::{
        Jsonb, Numeric,
        json::{Node, ObjectBuilder},
    },
};

use super::{Expr, Method, Path, Step};
use crate::execute::Cancel;

/// What one path may hold of results and operands, in bytes. A row is a quarter of it at most.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Steps between two looks at whether the statement shall stop.
const STEPS_UNCHECKED: u32 = 4_096;

/// A path with what it is run on.
pub(super) struct Run<'a> {
    path: &'a Path,
    root: &'a Jsonb,
    variables: &'a Jsonb,
    cancel: &'a Cancel,
    /// Whether what is not there is nothing rather than an error: in lax mode, and behind `.**`.
    lenient: Cell<bool>,
    steps: Cell<u32>,
    held: Cell<usize>,
}

/// Why no more items are wanted.
enum Stop {
    Enough,
    Fault(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

type Outcome = std::result::Result<(), Stop>;

/// The error that items ended with, if it was one.
fn ended(outcome: Outcome) -> Result<()> {
    match outcome {
        Ok(()) | Err(Stop::Enough) => Ok(()),
        Err(Stop::Fault(error)) => Err(error),
    }
}

/// What takes the items.
type Next<'n> = dyn FnMut(Node<'_>) -> Outcome + 'n;

/// What stands around an expression.
#[derive(Clone, Copy)]
struct Around<'a> {
    current: Node<'a>,
    /// The place of the last element of the array that is looked into.
    last: Option<i64>,
}

/// Whether a step that is not for arrays is taken for the elements of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrays {
    Apart,
    Whole,
}

/// Whether `silent` and predicates keep an error to themselves: one that the data is the reason of.
pub(super) fn is_of_data(error: &Error) -> bool {
    error.code().sqlstate().starts_with("22")
}

impl<'a> Run<'a> {
    pub(super) fn new(path: &'a Path, root: &'a Jsonb, variables: &'a Jsonb, cancel: &'a Cancel) -> Self {
        let (lenient, steps, held) = (Cell::new(!path.strict), Cell::new(0), Cell::new(0));
        Self { path, root, variables, cancel, lenient, steps, held }
    }

    /// Adds the items that the path gives; before an error those that come before it.
    pub(super) fn items(&self, into: &mut Vec<Jsonb>) -> Result<()> {
        let mut items = Collected::new(self);
        let outcome = self.run(&self.path.expr, &self.around(), &mut |item| items.push(item));
        into.append(&mut items.items);
        ended(outcome)
    }

    /// Whether the path gives an item. In lax mode nothing is looked at behind the first.
    pub(super) fn exists(&self) -> Result<bool> {
        self.finds(&self.path.expr, &self.around())
    }

    fn around(&self) -> Around<'a> {
        Around { current: self.root.root(), last: None }
    }

    fn finds(&self, expr: &Expr, around: &Around<'_>) -> Result<bool> {
        let mut found = false;
        ended(self.run(expr, around, &mut |_| {
            found = true;
            // Strict mode wants to know of every error.
            if self.path.strict { Ok(()) } else { Err(Stop::Enough) }
        }))?;
        Ok(found)
    }

    /// Hands on the items of an expression.
    fn run(&self, expr: &Expr, around: &Around<'_>, next: &mut Next<'_>) -> Outcome {
        match expr {
            Expr::Root => next(self.root.root()),
            Expr::Current => next(around.current),
            Expr::Variable(name) => match self.variables.root().get_key(name) {
                Some(node) => next(node),
                None => {
                    let message = format!("could not find jsonpath variable \"{name}\"");
                    Err(Error::new(Code::UndefinedObject, message).into())
                }
            },
            Expr::Literal(value) => next(value.root()),
            Expr::Last => next(number(around.last.unwrap_or(-1)).root()),
            Expr::Step(of, step) => {
                self.run(of, around, &mut |item| self.step(item, step, Arrays::Apart, around, next))
            }
            Expr::Sign { negative, of } => self.unwrapped(of, around, &mut |item| {
                let Node::Number(number) = item else {
                    let sign = if *negative { '-' } else { '+' };
                    let message = format!("operand of unary jsonpath operator {sign} is not a numeric value");
                    return Err(Error::new(Code::SqlJsonNumberNotFound, message).into());
                };
                let number = number.to_numeric();
                next(Jsonb::number(&if *negative { number.neg() } else { number }).root())
            }),
            Expr::Arithmetic(operation, left, right) => {
                let left = self.number(*operation, "left", left, around)?;
                let right = self.number(*operation, "right", right, around)?;
                next(Jsonb::number(&calculate(*operation, &left, &right)?).root())
            }
            Expr::Compare(..)
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::Not(_)
            | Expr::Exists(_)
            | Expr::IsUnknown(_)
            | Expr::StartsWith(..)
            | Expr::LikeRegex(..) => next(match self.truth(expr, around)? {
                Some(value) => Node::Bool(value),
                None => Node::Null,
            }),
        }
    }

    /// The one number that an operand is.
    fn number(&self, operation: Arithmetic, side: &str, expr: &Expr, around: &Around<'_>) -> Result<Numeric> {
        if let Some(only) = only_number(|next| self.unwrapped(expr, around, next))? {
            return Ok(only);
        }
        let symbol = match operation {
            Arithmetic::Add => '+',
            Arithmetic::Subtract => '-',
            Arithmetic::Multiply => '*',
            Arithmetic::Divide => '/',
            Arithmetic::Modulo => '%',
        };
        let message = format!("{side} operand of jsonpath operator {symbol} is not a single numeric value");
        Err(Error::new(Code::SingletonSqlJsonItemRequired, message))
    }

    /// Hands on an expression's items; in lax mode arrays are taken apart.
    fn unwrapped(&self, expr: &Expr, around: &Around<'_>, next: &mut Next<'_>) -> Outcome {
        self.run(expr, around, &mut |item| match item {
            Node::Array(array) if !self.path.strict => array.iter().try_for_each(&mut *next),
            item => next(item),
        })
    }

    /// Counts something done, and stops if the statement shall.
    fn tick(&self) -> Result<()> {
        let steps = self.steps.get().wrapping_add(1);
        self.steps.set(steps);
        if steps.is_multiple_of(STEPS_UNCHECKED) { self.cancel.check() } else { Ok(()) }
    }

    fn step(
        &self,
        item: Node<'_>,
        step: &Step,
        arrays: Arrays,
        around: &Around<'_>,
        next: &mut Next<'_>,
    ) -> Outcome {
        self.tick()?;
        if let Node::Array(array) = item
            && arrays == Arrays::Apart
            && !self.path.strict
            && step.is_for_elements()
        {
            // Only one level is taken apart: an array in an array is looked at as it is.
            return array
                .iter()
                .try_for_each(|element| self.step(element, step, Arrays::Whole, around, next));
        }
        match (step, item) {
            (Step::Key(name), Node::Object(object)) => match object.get(name) {
                Some(value) => next(value),
                None => {
                    let message = format!("JSON object does not contain key \"{name}\"");
                    self.missing(Code::SqlJsonMemberNotFound, &message)
                }
            },
            (Step::AnyKey, Node::Object(object)) => object.iter().try_for_each(|(_, value)| next(value)),
            (Step::Key(_), _) => self.missing(
                Code::SqlJsonMemberNotFound,
                "jsonpath member accessor can only be applied to an object",
            ),
            (Step::AnyKey, _) => self.missing(
                Code::SqlJsonObjectNotFound,
                "jsonpath wildcard member accessor can only be applied to an object",
            ),
            (Step::Deep(from, to), _) => self.deep(item, *from, *to, next),
            (Step::AnyElement, Node::Array(array)) => array.iter().try_for_each(next),
            (Step::AnyElement, _) if self.path.strict => self.missing(
                Code::SqlJsonArrayNotFound,
                "jsonpath wildcard array accessor can only be applied to an array",
            ),
            (Step::AnyElement, _) => next(item),
            (Step::Elements(list), _) => self.elements(item, list, around, next),
            (Step::Filter(condition), _) => {
                let inside = Around { current: item, last: around.last };
                match self.truth(condition, &inside)? {
                    Some(true) => next(item),
                    Some(false) | None => Ok(()),
                }
            }
            (Step::Method(method), _) => self.method(item, *method, next),
        }
    }

    /// What to do where the structure is not as the path says.
    fn missing(&self, code: Code, message: &str) -> Outcome {
        if self.lenient.get() { Ok(()) } else { Err(Error::new(code, message).into()) }
    }

    /// Hands on an item and what lies below it, by level. Nothing is missed behind it.
    fn deep(&self, item: Node<'_>, from: u32, to: u32, next: &mut Next<'_>) -> Outcome {
        let before = self.lenient.replace(true);
        let outcome = self.descend(item, from, to, next);
        self.lenient.set(before);
        outcome
    }

    fn descend(&self, item: Node<'_>, from: u32, to: u32, next: &mut Next<'_>) -> Outcome {
        let mut ahead = vec![(item, 0)];
        while let Some((item, level)) = ahead.pop() {
            self.tick()?;
            // `last` alone means what lies below and has nothing below it.
            let is_leaf = from == u32::MAX && to == u32::MAX && level > 0 && item.is_scalar();
            if is_leaf || (level >= from && level <= to) {
                next(item)?;
            }
            if level < to {
                let behind = ahead.len();
                match item {
                    Node::Array(array) => ahead.extend(array.iter().map(|child| (child, level + 1))),
                    Node::Object(object) => ahead.extend(object.iter().map(|(_, child)| (child, level + 1))),
                    Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => {}
                }
                ahead[behind..].reverse();
            }
        }
        Ok(())
    }

    fn elements(
        &self,
        item: Node<'_>,
        list: &[(Expr, Option<Expr>)],
        around: &Around<'_>,
        next: &mut Next<'_>,
    ) -> Outcome {
        let count = match item {
            Node::Array(array) => array.len() as i64,
            _ if self.path.strict => {
                let message = "jsonpath array accessor can only be applied to an array";
                return self.missing(Code::SqlJsonArrayNotFound, message);
            }
            _ => 1,
        };
        let inside = Around { current: around.current, last: Some(count - 1) };
        for (from, to) in list {
            let from = self.subscript(from, &inside)?;
            let to = match to {
                Some(to) => self.subscript(to, &inside)?,
                None => from,
            };
            if from < 0 || from > to || to >= count {
                self.missing(Code::InvalidSqlJsonSubscript, "jsonpath array subscript is out of bounds")?;
            }
            for at in from.max(0)..=to.min(count - 1) {
                match item {
                    Node::Array(array) => {
                        if let Some(element) = usize::try_from(at).ok().and_then(|at| array.get(at)) {
                            next(element)?;
                        }
                    }
                    item => next(item)?,
                }
            }
        }
        Ok(())
    }

    fn subscript(&self, expr: &Expr, around: &Around<'_>) -> Result<i64> {
        let refused = |message: &str| Error::new(Code::InvalidSqlJsonSubscript, message);
        let number = only_number(|next| self.run(expr, around, next))?;
        let number =
            number.ok_or_else(|| refused("jsonpath array subscript is not a single numeric value"))?;
        let whole = if number.signum() < 0 { number.ceil() } else { number.floor() };
        whole
            .to_i64()
            .filter(|at| i32::try_from(*at).is_ok())
            .ok_or_else(|| refused("jsonpath array subscript is out of integer range"))
    }

    fn method(&self, item: Node<'_>, method: Method, next: &mut Next<'_>) -> Outcome {
        let refused = |message: &str| Err(Error::new(Code::NonNumericSqlJsonItem, message).into());
        let made = match (method, item) {
            (Method::Type, node) => Jsonb::string(node.type_name()),
            (Method::Size, Node::Array(array)) => number(array.len() as i64),
            (Method::Size, _) if self.path.strict => {
                let message = "jsonpath item method .size() can only be applied to an array";
                return self.missing(Code::SqlJsonArrayNotFound, message);
            }
            (Method::Size, _) => number(1),
            (Method::Double, Node::Number(number)) => {
                if number.to_numeric().to_f64().is_finite() {
                    return next(item);
                }
                return refused(
                    "numeric argument of jsonpath item method .double() is out of range for type double precision",
                );
            }
            (Method::Double, Node::String(text)) => {
                match text.trim().parse::<f64>().ok().filter(|number| number.is_finite()) {
                    Some(number) => Jsonb::number(&Numeric::from_f64(number)),
                    None => {
                        return refused(
                            "string argument of jsonpath item method .double() is not a valid representation of a \
                             double precision number",
                        );
                    }
                }
            }
            (Method::Ceiling, Node::Number(number)) => Jsonb::number(&number.to_numeric().ceil()),
            (Method::Floor, Node::Number(number)) => Jsonb::number(&number.to_numeric().floor()),
            (Method::Abs, Node::Number(number)) => Jsonb::number(&number.to_numeric().abs()),
            (Method::Double, _) => {
                return refused(
                    "jsonpath item method .double() can only be applied to a string or numeric value",
                );
            }
            (Method::Ceiling | Method::Floor | Method::Abs, _) => {
                let name = match method {
                    Method::Ceiling => "ceiling",
                    Method::Floor => "floor",
                    _ => "abs",
                };
                return refused(&format!(
                    "jsonpath item method .{name}() can only be applied to a numeric value"
                ));
            }
            (Method::KeyValue, Node::Object(object)) => {
                for (key, value) in object.iter() {
                    let mut pair = ObjectBuilder::default();
                    pair.set("key", &Jsonb::string(key));
                    pair.set("value", &value.to_jsonb());
                    pair.set("id", &number(0));
                    next(pair.try_finish()?.root())?;
                }
                return Ok(());
            }
            (Method::KeyValue, _) => {
                let message = "jsonpath item method .keyvalue() can only be applied to an object";
                return Err(Error::new(Code::SqlJsonObjectNotFound, message).into());
            }
        };
        next(made.root())
    }

    /// True, false, or none for unknown. What fails inside a predicate makes it unknown.
    fn truth(&self, expr: &Expr, around: &Around<'_>) -> Result<Option<bool>> {
        Ok(match expr {
            Expr::And(parts) => self.first_of(parts, false, around)?,
            Expr::Or(parts) => self.first_of(parts, true, around)?,
            Expr::Not(inner) => self.truth(inner, around)?.map(|value| !value),
            Expr::IsUnknown(inner) => Some(self.truth(inner, around)?.is_none()),
            Expr::Exists(of) => self.known(self.finds(of, around))?,
            Expr::Compare(comparison, left, right) => {
                let left = self.collect(|next| self.unwrapped(left, around, next));
                let right = self.collect(|next| self.unwrapped(right, around, next));
                self.any_pair(left, right, |left, right| compare(*comparison, left, right))?
            }
            Expr::StartsWith(left, right) => {
                let left = self.collect(|next| self.unwrapped(left, around, next));
                let right = self.collect(|next| self.run(right, around, next));
                self.any_pair(left, right, |left, right| match (left, right) {
                    (Node::String(text), Node::String(prefix)) => Some(text.starts_with(prefix)),
                    _ => None,
                })?
            }
            Expr::LikeRegex(of, pattern) => {
                let left = self.collect(|next| self.unwrapped(of, around, next));
                let nothing = self.collect(|next| next(Node::Null));
                self.any_pair(left, nothing, |item, _| match item {
                    Node::String(text) => Some(pattern.is_match(text)),
                    _ => None,
                })?
            }
            // A path in a predicate's place is refused by the grammar.
            _ => None,
        })
    }

    /// AND (`decides` false) or OR (`decides` true): the first part that decides, else unknown if one is.
    fn first_of(&self, parts: &[Expr], decides: bool, around: &Around<'_>) -> Result<Option<bool>> {
        let mut truth = Some(!decides);
        for part in parts {
            match self.truth(part, around)? {
                Some(value) if value == decides => return Ok(Some(decides)),
                Some(_) => {}
                None => truth = None,
            }
        }
        Ok(truth)
    }

    /// None in place of an error of the data.
    fn known<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_of_data(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The items of a predicate's operand.
    fn collect(&self, feed: impl FnOnce(&mut Next<'_>) -> Outcome) -> Result<Collected<'_>> {
        let mut items = Collected::new(self);
        ended(feed(&mut |item| items.push(item)))?;
        Ok(items)
    }

    /// Whether a predicate holds for some pair of the items of both sides. Where one is unknown, strict mode knows nothing
    /// of the whole; lax mode only if no pair before it held.
    fn any_pair(
        &self,
        lefts: Result<Collected<'_>>,
        rights: Result<Collected<'_>>,
        holds: impl Fn(Node<'_>, Node<'_>) -> Option<bool>,
    ) -> Result<Option<bool>> {
        let (Some(lefts), Some(rights)) = (self.known(lefts)?, self.known(rights)?) else {
            return Ok(None);
        };
        let (mut found, mut unknown) = (false, false);
        for left in &lefts.items {
            for right in &rights.items {
                self.tick()?;
                match holds(left.root(), right.root()) {
                    None if self.path.strict => return Ok(None),
                    None => unknown = true,
                    Some(true) if !self.path.strict => return Ok(Some(true)),
                    Some(true) => found = true,
                    Some(false) => {}
                }
            }
        }
        Ok(if found { Some(true) } else { (!unknown).then_some(false) })
    }
}

impl Step {
    /// Whether an array in its place is taken apart in lax mode.
    fn is_for_elements(&self) -> bool {
        match self {
            Self::Key(_) | Self::AnyKey | Self::Filter(_) => true,
            Self::Method(method) => !matches!(method, Method::Type | Method::Size),
            Self::Deep(..) | Self::AnyElement | Self::Elements(_) => false,
        }
    }
}

/// Items that are kept, counted while they are.
struct Collected<'r> {
    run: &'r Run<'r>,
    items: Vec<Jsonb>,
    bytes: usize,
}

impl<'r> Collected<'r> {
    fn new(run: &'r Run<'r>) -> Self {
        Self { run, items: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, item: Node<'_>) -> Outcome {
        self.run.tick()?;
        let item = item.to_jsonb();
        let bytes = item.as_bytes().len() + 2 * size_of::<Jsonb>();
        self.bytes += bytes;
        self.run.held.set(self.run.held.get() + bytes);
        if self.run.held.get() > HELD_BYTES_MAX {
            let message = "a jsonpath finds more than it may hold";
            return Err(Error::new(Code::ProgramLimitExceeded, message)
                .with_detail(format!("It may hold {HELD_BYTES_MAX} bytes."))
                .into());
        }
        self.items.push(item);
        Ok(())
    }
}

impl Drop for Collected<'_> {
    fn drop(&mut self) {
        self.run.held.set(self.run.held.get() - self.bytes);
    }
}

/// The only item that is fed, if it is a number.
fn only_number(feed: impl FnOnce(&mut Next<'_>) -> Outcome) -> Result<Option<Numeric>> {
    let (mut count, mut only) = (0, None);
    ended(feed(&mut |item| {
        count += 1;
        only = match item {
            Node::Number(number) if count == 1 => Some(number.to_numeric()),
            _ => None,
        };
        Ok(())
    }))?;
    Ok(only)
}

fn number(of: i64) -> Jsonb {
    Jsonb::number(&Numeric::from(of))
}

fn calculate(operation: Arithmetic, left: &Numeric, right: &Numeric) -> Result<Numeric> {
    Ok(match operation {
        Arithmetic::Add => left.add(right)?,
        Arithmetic::Subtract => left.sub(right)?,
        Arithmetic::Multiply => left.mul(right)?,
        Arithmetic::Divide => left.div(right)?,
        Arithmetic::Modulo => left.rem(right)?,
    })
}

/// The comparison of two items; none if they cannot be compared.
fn compare(comparison: Comparison, left: Node<'_>, right: Node<'_>) -> Option<bool> {
    let ordering = match (left, right) {
        (Node::Null, Node::Null) => Ordering::Equal,
        (Node::Null, _) | (_, Node::Null) => return Some(comparison == Comparison::NotEqual),
        (Node::Bool(left), Node::Bool(right)) => left.cmp(&right),
        (Node::Number(left), Node::Number(right)) => {
            Jsonb::number(&left.to_numeric()).cmp_sql(&Jsonb::number(&right.to_numeric()))
        }
        (Node::String(left), Node::String(right)) => left.cmp(right),
        _ => return None,
    };
    Some(match comparison {
        Comparison::Equal => ordering.is_eq(),
        Comparison::NotEqual => ordering.is_ne(),
        Comparison::Less => ordering.is_lt(),
        Comparison::LessOrEqual => ordering.is_le(),
        Comparison::Greater => ordering.is_gt(),
        Comparison::GreaterOrEqual => ordering.is_ge(),
    })
}
