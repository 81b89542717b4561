//! A join of two rows by their keys: the first by parameters, the second by what the first one holds.
//!
//! Invariants:
//! - Both rows lie in one partition and are read at one point.
//! - A direct join means exactly what its batch plan means: an `Apply` whose sides are reads by key, without a residual.

use std::sync::Arc;

use model::{Error, Result, Value, key, schema::Table};

use super::Direct;
use crate::{
    context::Context,
    eval,
    expr::{Expr, Kind},
    plan::{Access, Apply, JoinKind, Keys, Node, Partitions, Plan},
};

/// A statement that reads one row by its key, and by that row another one.
#[derive(Debug)]
pub(crate) struct DirectJoin {
    first: Direct,
    second: Direct,
    /// Where the parts of the second key come from.
    key: Vec<Part>,
    /// Whether a first row without a second is given all the same.
    is_left: bool,
    /// What is made of both; none if they are given as they are.
    project: Option<Project>,
}

#[derive(Debug)]
enum Project {
    /// Values as they are, by their places.
    Places(Vec<usize>),
    Expressions(Vec<Expr>),
}

#[derive(Debug)]
enum Part {
    First(usize),
    Parameter(usize),
    Constant(Value),
}

impl DirectJoin {
    /// The direct form of a plan, if it has one.
    pub(crate) fn find(plan: &Plan) -> Option<Self> {
        let (apply, project) = match &plan.node {
            Node::Apply(apply) => (apply, None),
            Node::Project { input, expressions } => match &input.node {
                Node::Apply(apply) => (apply, Some(expressions.clone())),
                _ => return None,
            },
            _ => return None,
        };
        let Apply { kind, left, right, outer, residual } = apply;
        let is_left = match kind {
            JoinKind::Inner => false,
            JoinKind::Left => true,
            _ => return None,
        };
        let pure = |expr: &Expr| super::is_pure(expr);
        if residual.is_some() || !project.iter().flatten().all(pure) {
            return None;
        }
        let places = outer.iter().map(Expr::as_column).collect::<Option<Vec<usize>>>()?;
        let first = Direct::find(left)?;
        let (second, key) = second(right, &places)?;
        if first.partition != second.partition {
            return None;
        }
        let project = project.map(|expressions: Vec<Expr>| {
            match expressions.iter().map(Expr::as_column).collect::<Option<Vec<usize>>>() {
                Some(places) => Project::Places(places),
                None => Project::Expressions(expressions),
            }
        });
        Some(Self { first, second, key, is_left, project })
    }

    /// The table and the key of the first row; none if a part of the key is null.
    pub(crate) fn first(&self, parameters: &[Value]) -> Result<Option<(&Direct, Vec<u8>)>> {
        Ok(self.first.locate(parameters)?.map(|key| (&self.first, key)))
    }

    /// The table of the second row.
    pub(crate) fn second(&self) -> &Direct {
        &self.second
    }

    /// The key of the second row for a first one; none if a part of it is null.
    pub(crate) fn second_key(&self, first: &[Value], parameters: &[Value]) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::with_capacity(16 * self.key.len());
        for (part, index) in self.key.iter().zip(&self.second.parts) {
            let value = match part {
                Part::First(place) => first.get(*place),
                Part::Parameter(number) => parameters.get(*number),
                Part::Constant(value) => Some(value),
            };
            match value.ok_or_else(|| Error::internal("a part of a key that is not there"))? {
                Value::Null => return Ok(None),
                value => key::encode_part(&mut bytes, value, index.order)
                    .map_err(|error| Error::internal(error.to_string()))?,
            }
        }
        Ok(Some(bytes))
    }

    /// What the statement gives for both rows; none if there is no second one and there must be.
    pub(crate) fn project(
        &self,
        mut values: Vec<Value>,
        second: Option<Vec<Value>>,
        context: impl FnOnce() -> Context,
    ) -> Result<Option<Vec<Value>>> {
        match second {
            Some(second) => values.extend(second),
            None if self.is_left => values.extend(vec![Value::Null; self.second.columns.len()]),
            None => return Ok(None),
        }
        match &self.project {
            None => Ok(Some(values)),
            Some(Project::Places(places)) => {
                Ok(Some(places.iter().map(|place| values[*place].clone()).collect()))
            }
            Some(Project::Expressions(expressions)) => {
                let mut context = context();
                let values = expressions.iter().map(|expr| eval::value(&mut context, expr, &values));
                values.collect::<Result<Vec<Value>>>().map(Some)
            }
        }
    }
}

/// The right side: a read by key that gives columns as they are.
fn second(plan: &Plan, places: &[usize]) -> Option<(Direct, Vec<Part>)> {
    let (scan, project) = match &plan.node {
        Node::Scan(scan) => (scan, None),
        Node::Project { input, expressions } => match &input.node {
            Node::Scan(scan) => {
                let columns = expressions.iter().map(Expr::as_column).collect::<Option<Vec<usize>>>()?;
                (scan, Some(columns))
            }
            _ => return None,
        },
        _ => return None,
    };
    let Access::Keys { index: None, keys: Keys::List(keys) } = &scan.access else { return None };
    let [key] = &keys[..] else { return None };
    if scan.filter.is_some() || !matches!(scan.partitions, Partitions::Default) {
        return None;
    }
    let key = key.iter().map(|expr| match &expr.kind {
        Kind::Outer(number) => places.get(*number).map(|place| Part::First(*place)),
        Kind::Parameter(number) => Some(Part::Parameter(*number)),
        Kind::Constant(value) => Some(Part::Constant(value.clone())),
        _ => None,
    });
    let key = key.collect::<Option<Vec<_>>>()?;
    let table: &Arc<Table> = &scan.table;
    let parts = table.key()?.parts.clone();
    if parts.len() != key.len() {
        return None;
    }
    let columns = match project {
        Some(places) => places.into_iter().map(|place| scan.columns[place]).collect(),
        None => scan.columns.clone(),
    };
    Some((Direct::of(table, parts, columns), key))
}
