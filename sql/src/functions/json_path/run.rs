//! What a path finds.
//!
//! In lax mode an array where no array is wanted stands for its elements, something else where an array is wanted stands
//! for an array of itself, and what is not there is nothing. An error inside a filter makes its condition unknown.

use std::cmp::Ordering;

use model::{
    Code, Error, Result,
    value::{
        Jsonb, Numeric,
        json::{ArrayNode, Node, ObjectBuilder},
    },
};

use super::{Arithmetic, Comparison, Expr, Method, Path, Step};

/// The items that a path gives.
pub(super) fn items(path: &Path, target: &Jsonb, variables: &Jsonb) -> Result<Vec<Jsonb>> {
    let run = Run { strict: path.strict, root: target, variables };
    run.items(&path.expr, &Around { current: target, last: None })
}

struct Run<'a> {
    strict: bool,
    root: &'a Jsonb,
    variables: &'a Jsonb,
}

/// What stands around an expression.
#[derive(Clone, Copy)]
struct Around<'a> {
    current: &'a Jsonb,
    /// The place of the last element of the array that is looked into.
    last: Option<i64>,
}

impl Run<'_> {
    fn items(&self, expr: &Expr, around: &Around<'_>) -> Result<Vec<Jsonb>> {
        Ok(match expr {
            Expr::Root => vec![self.root.clone()],
            Expr::Current => vec![around.current.clone()],
            Expr::Variable(name) => match self.variables.root().get_key(name) {
                Some(node) => vec![node.to_jsonb()],
                None => {
                    let message = format!("could not find jsonpath variable \"{name}\"");
                    return Err(Error::new(Code::UndefinedObject, message));
                }
            },
            Expr::Literal(value) => vec![value.clone()],
            Expr::Last => vec![Jsonb::number(&Numeric::from(around.last.unwrap_or(-1)))],
            Expr::Step(of, step) => {
                let mut found = Vec::new();
                for item in self.items(of, around)? {
                    self.step(&item, step, around, &mut found)?;
                }
                found
            }
            Expr::Sign { negative, of } => {
                let mut found = Vec::new();
                for item in self.unwrapped(self.items(of, around)?) {
                    let Node::Number(number) = item.root() else {
                        let sign = if *negative { '-' } else { '+' };
                        let message =
                            format!("operand of unary jsonpath operator {sign} is not a numeric value");
                        return Err(Error::new(Code::SqlJsonNumberNotFound, message));
                    };
                    let number = number.to_numeric();
                    found.push(Jsonb::number(&if *negative { number.neg() } else { number }));
                }
                found
            }
            Expr::Arithmetic(operation, left, right) => {
                let left = self.number(*operation, "left", left, around)?;
                let right = self.number(*operation, "right", right, around)?;
                vec![Jsonb::number(&calculate(*operation, &left, &right)?)]
            }
            predicate => vec![match self.truth(predicate, around)? {
                Some(value) => Jsonb::bool(value),
                None => Jsonb::null(),
            }],
        })
    }

    /// The one number that an operand is.
    fn number(&self, operation: Arithmetic, side: &str, expr: &Expr, around: &Around<'_>) -> Result<Numeric> {
        let items = self.unwrapped(self.items(expr, around)?);
        if let [only] = &items[..]
            && let Node::Number(number) = only.root()
        {
            return Ok(number.to_numeric());
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

    /// In lax mode arrays are taken apart.
    fn unwrapped(&self, items: Vec<Jsonb>) -> Vec<Jsonb> {
        if self.strict {
            return items;
        }
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            match item.root() {
                Node::Array(array) => all.extend(array.iter().map(Node::to_jsonb)),
                _ => all.push(item),
            }
        }
        all
    }

    fn step(&self, item: &Jsonb, step: &Step, around: &Around<'_>, found: &mut Vec<Jsonb>) -> Result<()> {
        match (step, item.root()) {
            // What is meant for the elements of an array.
            (Step::Key(_) | Step::AnyKey | Step::Filter(_), Node::Array(array)) if !self.strict => {
                self.each(array, step, around, found)
            }
            (Step::Method(method), Node::Array(array))
                if !self.strict && !matches!(method, Method::Type | Method::Size) =>
            {
                self.each(array, step, around, found)
            }
            (Step::Key(name), Node::Object(object)) => match object.get(name) {
                Some(value) => {
                    found.push(value.to_jsonb());
                    Ok(())
                }
                None if self.strict => Err(Error::new(
                    Code::SqlJsonMemberNotFound,
                    format!("JSON object does not contain key \"{name}\""),
                )),
                None => Ok(()),
            },
            (Step::AnyKey, Node::Object(object)) => {
                found.extend(object.iter().map(|(_, value)| value.to_jsonb()));
                Ok(())
            }
            (Step::Key(_), _) => self.strictly(
                Code::SqlJsonMemberNotFound,
                "jsonpath member accessor can only be applied to an object",
            ),
            (Step::AnyKey, _) => self.strictly(
                Code::SqlJsonObjectNotFound,
                "jsonpath wildcard member accessor can only be applied to an object",
            ),
            (Step::Deep(from, to), _) => {
                deep(item, 0, *from, *to, found);
                Ok(())
            }
            (Step::AnyElement, Node::Array(array)) => {
                found.extend(array.iter().map(Node::to_jsonb));
                Ok(())
            }
            (Step::AnyElement, _) if self.strict => Err(Error::new(
                Code::SqlJsonArrayNotFound,
                "jsonpath wildcard array accessor can only be applied to an array",
            )),
            (Step::AnyElement, _) => {
                found.push(item.clone());
                Ok(())
            }
            (Step::Elements(list), _) => self.elements(item, list, around, found),
            (Step::Filter(condition), _) => {
                let inside = Around { current: item, ..*around };
                if self.truth(condition, &inside)? == Some(true) {
                    found.push(item.clone());
                }
                Ok(())
            }
            (Step::Method(method), _) => self.method(item, *method, found),
        }
    }

    fn each(
        &self,
        array: ArrayNode<'_>,
        step: &Step,
        around: &Around<'_>,
        found: &mut Vec<Jsonb>,
    ) -> Result<()> {
        for element in array.iter() {
            // Only one level is taken apart: an array in an array is looked at as it is.
            let element = element.to_jsonb();
            match (step, element.root()) {
                (Step::Key(_) | Step::AnyKey, Node::Array(_)) => {}
                (Step::Filter(condition), Node::Array(_)) => {
                    let inside = Around { current: &element, ..*around };
                    if self.truth(condition, &inside)? == Some(true) {
                        found.push(element.clone());
                    }
                }
                (Step::Method(method), Node::Array(_)) => self.method(&element, *method, found)?,
                _ => self.step(&element, step, around, found)?,
            }
        }
        Ok(())
    }

    fn strictly(&self, code: Code, message: &str) -> Result<()> {
        if self.strict { Err(Error::new(code, message)) } else { Ok(()) }
    }

    fn elements(
        &self,
        item: &Jsonb,
        list: &[(Expr, Option<Expr>)],
        around: &Around<'_>,
        found: &mut Vec<Jsonb>,
    ) -> Result<()> {
        let elements: Vec<Jsonb> = match item.root() {
            Node::Array(array) => array.iter().map(Node::to_jsonb).collect(),
            _ if self.strict => {
                return Err(Error::new(
                    Code::SqlJsonArrayNotFound,
                    "jsonpath array accessor can only be applied to an array",
                ));
            }
            _ => vec![item.clone()],
        };
        let count = elements.len() as i64;
        let inside = Around { last: Some(count - 1), ..*around };
        for (from, to) in list {
            let from = self.subscript(from, &inside)?;
            let to = match to {
                Some(to) => self.subscript(to, &inside)?,
                None => from,
            };
            if self.strict && (from < 0 || from > to || to >= count) {
                return Err(Error::new(
                    Code::InvalidSqlJsonSubscript,
                    "jsonpath array subscript is out of bounds",
                ));
            }
            for at in from.max(0)..=to.min(count - 1) {
                found.extend(usize::try_from(at).ok().and_then(|at| elements.get(at)).cloned());
            }
        }
        Ok(())
    }

    fn subscript(&self, expr: &Expr, around: &Around<'_>) -> Result<i64> {
        let items = self.items(expr, around)?;
        let number = match &items[..] {
            [only] => match only.root() {
                Node::Number(number) => Some(number.to_numeric()),
                _ => None,
            },
            _ => None,
        };
        let refused = |message: &str| Error::new(Code::InvalidSqlJsonSubscript, message);
        let number =
            number.ok_or_else(|| refused("jsonpath array subscript is not a single numeric value"))?;
        let whole = if number.signum() < 0 { number.ceil() } else { number.floor() };
        whole
            .to_i64()
            .filter(|at| i32::try_from(*at).is_ok())
            .ok_or_else(|| refused("jsonpath array subscript is out of integer range"))
    }

    fn method(&self, item: &Jsonb, method: Method, found: &mut Vec<Jsonb>) -> Result<()> {
        let made = match (method, item.root()) {
            (Method::Type, node) => Jsonb::string(node.type_name()),
            (Method::Size, Node::Array(array)) => Jsonb::number(&Numeric::from(array.len() as i64)),
            (Method::Size, _) if self.strict => {
                return Err(Error::new(
                    Code::SqlJsonArrayNotFound,
                    "jsonpath item method .size() can only be applied to an array",
                ));
            }
            (Method::Size, _) => Jsonb::number(&Numeric::from(1_i64)),
            (Method::Double, Node::Number(number)) => {
                Jsonb::number(&Numeric::from_f64(number.to_numeric().to_f64()))
            }
            (Method::Double, Node::String(text)) => {
                let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
                let number = number.ok_or_else(|| {
                    let message = "string argument of jsonpath item method .double() is not a valid \
                                   representation of a double precision number";
                    Error::new(Code::NonNumericSqlJsonItem, message)
                })?;
                Jsonb::number(&Numeric::from_f64(number))
            }
            (Method::Ceiling, Node::Number(number)) => Jsonb::number(&number.to_numeric().ceil()),
            (Method::Floor, Node::Number(number)) => Jsonb::number(&number.to_numeric().floor()),
            (Method::Abs, Node::Number(number)) => Jsonb::number(&number.to_numeric().abs()),
            (Method::Double, _) => {
                let message =
                    "jsonpath item method .double() can only be applied to a string or numeric value";
                return Err(Error::new(Code::NonNumericSqlJsonItem, message));
            }
            (Method::Ceiling | Method::Floor | Method::Abs, _) => {
                let name = match method {
                    Method::Ceiling => "ceiling",
                    Method::Floor => "floor",
                    _ => "abs",
                };
                let message =
                    format!("jsonpath item method .{name}() can only be applied to a numeric value");
                return Err(Error::new(Code::NonNumericSqlJsonItem, message));
            }
            (Method::KeyValue, Node::Object(object)) => {
                for (key, value) in object.iter() {
                    let mut pair = ObjectBuilder::default();
                    pair.set("key", &Jsonb::string(key));
                    pair.set("value", &value.to_jsonb());
                    pair.set("id", &Jsonb::number(&Numeric::from(0_i64)));
                    found.push(pair.try_finish()?);
                }
                return Ok(());
            }
            (Method::KeyValue, _) => {
                return Err(Error::new(
                    Code::SqlJsonObjectNotFound,
                    "jsonpath item method .keyvalue() can only be applied to an object",
                ));
            }
        };
        found.push(made);
        Ok(())
    }

    /// True, false, or none for unknown. What fails inside a predicate makes it unknown.
    fn truth(&self, expr: &Expr, around: &Around<'_>) -> Result<Option<bool>> {
        Ok(match expr {
            Expr::And(left, right) => match self.truth(left, around)? {
                Some(false) => Some(false),
                left => match (left, self.truth(right, around)?) {
                    (_, Some(false)) => Some(false),
                    (Some(true), right) => right,
                    _ => None,
                },
            },
            Expr::Or(left, right) => match self.truth(left, around)? {
                Some(true) => Some(true),
                left => match (left, self.truth(right, around)?) {
                    (_, Some(true)) => Some(true),
                    (Some(false), right) => right,
                    _ => None,
                },
            },
            Expr::Not(inner) => self.truth(inner, around)?.map(|value| !value),
            Expr::IsUnknown(inner) => Some(self.truth(inner, around)?.is_none()),
            Expr::Exists(of) => self.inside(of, around)?.map(|items| !items.is_empty()),
            Expr::Compare(comparison, left, right) => {
                self.any_pair(left, Some(right), around, |left, right| compare(*comparison, left, right))?
            }
            Expr::StartsWith(left, right) => {
                self.any_pair(left, Some(right), around, |left, right| match (left, right) {
                    (Node::String(text), Node::String(prefix)) => Some(text.starts_with(prefix)),
                    _ => None,
                })?
            }
            Expr::LikeRegex(of, pattern) => self.any_pair(of, None, around, |item, _| match item {
                Node::String(text) => Some(pattern.is_match(text)),
                _ => None,
            })?,
            // A path in a predicate's place is refused by the grammar.
            _ => None,
        })
    }

    /// The items of a predicate's operand; none after an error of data, which only makes the predicate unknown.
    fn inside(&self, expr: &Expr, around: &Around<'_>) -> Result<Option<Vec<Jsonb>>> {
        match self.items(expr, around) {
            Ok(items) => Ok(Some(items)),
            Err(error) if error.code() == Code::UndefinedObject => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Whether a predicate holds for some pair of the items of both sides. Where one is unknown, strict mode knows nothing
    /// of the whole; lax mode only if no pair before it held.
    fn any_pair(
        &self,
        left: &Expr,
        right: Option<&Expr>,
        around: &Around<'_>,
        holds: impl Fn(Node<'_>, Node<'_>) -> Option<bool>,
    ) -> Result<Option<bool>> {
        let Some(lefts) = self.inside(left, around)?.map(|items| self.unwrapped(items)) else {
            return Ok(None);
        };
        let rights = match right {
            None => vec![Jsonb::null()],
            Some(right) => match self.inside(right, around)? {
                Some(items) => self.unwrapped(items),
                None => return Ok(None),
            },
        };
        let (mut found, mut unknown) = (false, false);
        for left in &lefts {
            for right in &rights {
                match holds(left.root(), right.root()) {
                    None if self.strict => return Ok(None),
                    None => unknown = true,
                    Some(true) if !self.strict => return Ok(Some(true)),
                    Some(true) => found = true,
                    Some(false) => {}
                }
            }
        }
        Ok(if found { Some(true) } else { (!unknown).then_some(false) })
    }
}

/// An item and what lies below it, by level.
fn deep(item: &Jsonb, level: u32, from: u32, to: u32, found: &mut Vec<Jsonb>) {
    let children: Vec<Jsonb> = match item.root() {
        Node::Array(array) => array.iter().map(Node::to_jsonb).collect(),
        Node::Object(object) => object.iter().map(|(_, value)| value.to_jsonb()).collect(),
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => Vec::new(),
    };
    // `last` alone means the leaves.
    let wanted = if from == u32::MAX { children.is_empty() } else { level >= from && level <= to };
    if wanted {
        found.push(item.clone());
    }
    if level < to {
        children.iter().for_each(|child| deep(child, level + 1, from, to, found));
    }
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
