//! An autocommit UPDATE of one row by its key as a row program: evaluated by `apply` on the row as it is then, so that hot
//! counters never conflict and nothing is read first.
//!
//! Invariants:
//! - A program is used only where it means what the general way means: every column it sets stands in no index, no foreign
//!   key, no CHECK and no generated column, and every expression exists in `model::expr` with operands of one type.
//! - What reads no column is evaluated here, before the program is sent.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    Error, Result, Type, Value,
    expr::{self as program, Arithmetic, Comparison, Program},
    id::{ColumnNumber, PartitionId},
    key,
    schema::{IndexPart, Table},
};

use crate::{
    context::Context,
    eval,
    expr::{Expr, Kind},
    functions::Volatility,
    plan::{Access, Keys, Node, Partitions, Plan, ScanColumn},
};

/// An UPDATE that is one row program.
#[derive(Debug)]
pub(crate) struct DirectUpdate {
    table: Arc<Table>,
    partition: PartitionId,
    parts: Vec<IndexPart>,
    key: Vec<Expr>,
    guard: Option<Expr>,
    /// The columns that the guard reads, by position.
    guard_columns: Vec<ColumnNumber>,
    assignments: Vec<(ColumnNumber, Expr)>,
    /// The table's columns by position.
    columns: Vec<ColumnNumber>,
}

impl DirectUpdate {
    /// The program form of a plan, if it has one.
    pub(crate) fn find(plan: &Plan) -> Option<Self> {
        let Node::Update(update) = &plan.node else { return None };
        let Node::Scan(scan) = &update.source.node else { return None };
        let Access::Keys { index: None, keys: Keys::List(keys) } = &scan.access else { return None };
        let [key] = &keys[..] else { return None };
        let plain = update.returning.is_none()
            && matches!(scan.partitions, Partitions::Default)
            && update.rules.generated.is_empty()
            && key.iter().all(|expr| matches!(expr.kind, Kind::Parameter(_) | Kind::Constant(_)));
        if !plain {
            return None;
        }
        let table = &update.table;
        let set: BTreeSet<ColumnNumber> = update.assignments.iter().map(|(number, _)| *number).collect();
        let indexed = table.indexes.iter().any(|index| {
            index.parts.iter().any(|part| set.contains(&part.column))
                || index.predicate.is_some_and(|number| set.contains(&number))
        });
        let refers =
            table.foreign_keys.iter().any(|key| key.columns.iter().any(|number| set.contains(number)));
        let checked = update.rules.checks.iter().any(|(_, check)| {
            check.any(&mut |expr| matches!(expr.kind, Kind::Column(place) if set.iter().any(|number| usize::from(number.0) == place + 1)))
        });
        if indexed || refers || checked {
            return None;
        }
        let guard_columns: Option<Vec<ColumnNumber>> = scan
            .columns
            .iter()
            .map(|column| match column {
                ScanColumn::Column(number) => Some(*number),
                _ => Some(ColumnNumber(0)),
            })
            .collect();
        let columns: Vec<ColumnNumber> = table.columns.iter().map(|column| column.number).collect();
        let found = Self {
            partition: PartitionId::default_of(table.database, table.schema),
            parts: table.key()?.parts.clone(),
            table: table.clone(),
            key: key.clone(),
            guard: scan.filter.clone(),
            guard_columns: guard_columns?,
            assignments: update.assignments.clone(),
            columns,
        };
        let fits = found.assignments.iter().all(|(number, value)| {
            value.ty == table.column(*number).data_type && is_convertible(value, &found.columns)
        });
        let guard = found.guard.iter().all(|guard| is_convertible(guard, &found.guard_columns));
        (fits && guard).then_some(found)
    }

    pub(crate) fn partition(&self) -> &PartitionId {
        &self.partition
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The key of the row and the program; none if a part of the key is null.
    pub(crate) fn program(&self, context: &mut Context) -> Result<Option<(Vec<u8>, Program)>> {
        let mut bytes = Vec::with_capacity(16 * self.parts.len());
        for (expr, part) in self.key.iter().zip(&self.parts) {
            let value = eval::value(context, expr, &[])?;
            if value.is_null() {
                return Ok(None);
            }
            key::encode_part(&mut bytes, &value, part.order)
                .map_err(|error| Error::internal(error.to_string()))?;
        }
        let mut assignments = Vec::with_capacity(self.assignments.len());
        for (number, value) in &self.assignments {
            assignments.push((*number, convert(value, &self.columns, context)?));
        }
        let guard =
            self.guard.as_ref().map(|guard| convert(guard, &self.guard_columns, context)).transpose()?;
        Ok(Some((bytes, Program { guard, assignments })))
    }
}

/// Whether nothing inside reads a column or changes from call to call.
fn is_free(expr: &Expr) -> bool {
    expr.volatility() != Volatility::Volatile
        && !expr.any(&mut |expr| matches!(expr.kind, Kind::Column(_) | Kind::Outer(_) | Kind::Subquery(_)))
}

fn arithmetic(symbol: &str) -> Option<Arithmetic> {
    Some(match symbol {
        "+" => Arithmetic::Add,
        "-" => Arithmetic::Subtract,
        "*" => Arithmetic::Multiply,
        "/" => Arithmetic::Divide,
        "%" => Arithmetic::Modulo,
        _ => return None,
    })
}

fn comparison(symbol: &str) -> Option<Comparison> {
    Some(match symbol {
        "=" => Comparison::Equal,
        "<>" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn is_number(ty: Type) -> bool {
    matches!(ty, Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric | Type::Float8)
}

/// The one type of two operands: the same, or the wider integer where the narrower side reads no column.
fn common(a: &Expr, b: &Expr) -> Option<Type> {
    let rank = |ty: Type| match ty {
        Type::Int2 => Some(0),
        Type::Int4 => Some(1),
        Type::Int8 => Some(2),
        _ => None,
    };
    if a.ty == b.ty {
        return Some(a.ty);
    }
    let (x, y) = (rank(a.ty)?, rank(b.ty)?);
    let (narrow, wide) = if x < y { (a, b) } else { (b, a) };
    is_free(narrow).then_some(wide.ty)
}

fn is_convertible(expr: &Expr, columns: &[ColumnNumber]) -> bool {
    if is_free(expr) {
        return true;
    }
    let all = |list: &[Expr]| list.iter().all(|expr| is_convertible(expr, columns));
    match &expr.kind {
        Kind::Column(place) => columns.get(*place).is_some_and(|number| number.0 > 0),
        Kind::Operator(operator, operands) => {
            let [a, b] = &operands[..] else { return false };
            let Some(ty) = common(a, b) else { return false };
            let known = match operator.symbol {
                "||" => ty == Type::Text && expr.ty == Type::Text,
                symbol if arithmetic(symbol).is_some() => is_number(ty) && expr.ty == ty,
                symbol => comparison(symbol).is_some() && ty != Type::Bpchar && expr.ty == Type::Bool,
            };
            known && all(operands)
        }
        Kind::And(parts) | Kind::Or(parts) => all(parts),
        Kind::Not(value) | Kind::IsNull { value, negated: _ } => is_convertible(value, columns),
        Kind::Coalesce(list) => all(list),
        _ => false,
    }
}

fn convert(expr: &Expr, columns: &[ColumnNumber], context: &mut Context) -> Result<program::Expr> {
    if is_free(expr) {
        return Ok(program::Expr::Constant(eval::value(context, expr, &[])?, expr.ty));
    }
    Ok(match &expr.kind {
        Kind::Column(place) => program::Expr::Column(columns[*place], expr.ty),
        Kind::Operator(operator, operands) => {
            let [left, right] = &operands[..] else { return Err(no_program()) };
            let ty = common(left, right).ok_or_else(no_program)?;
            let a = Box::new(widened(convert(left, columns, context)?, ty));
            let b = Box::new(widened(convert(right, columns, context)?, ty));
            if operator.symbol == "||" {
                program::Expr::Concat(a, b)
            } else if let Some(op) = arithmetic(operator.symbol) {
                program::Expr::Arithmetic(op, a, b)
            } else {
                program::Expr::Compare(comparison(operator.symbol).ok_or_else(no_program)?, a, b)
            }
        }
        Kind::And(parts) => fold(parts, columns, context, program::Expr::And)?,
        Kind::Or(parts) => fold(parts, columns, context, program::Expr::Or)?,
        Kind::Not(value) => program::Expr::Not(Box::new(convert(value, columns, context)?)),
        Kind::IsNull { value, negated } => {
            let is_null = program::Expr::IsNull(Box::new(convert(value, columns, context)?));
            if *negated { program::Expr::Not(Box::new(is_null)) } else { is_null }
        }
        Kind::Coalesce(list) => {
            let list: Result<Vec<program::Expr>> =
                list.iter().map(|expr| convert(expr, columns, context)).collect();
            program::Expr::Coalesce(list?)
        }
        _ => return Err(no_program()),
    })
}

fn fold(
    parts: &[Expr],
    columns: &[ColumnNumber],
    context: &mut Context,
    join: fn(Box<program::Expr>, Box<program::Expr>) -> program::Expr,
) -> Result<program::Expr> {
    let mut joined: Option<program::Expr> = None;
    for part in parts {
        let part = convert(part, columns, context)?;
        joined = Some(match joined {
            None => part,
            Some(before) => join(Box::new(before), Box::new(part)),
        });
    }
    joined.ok_or_else(no_program)
}

/// A constant of a narrower integer type in a wider one.
fn widened(expr: program::Expr, to: Type) -> program::Expr {
    match expr {
        program::Expr::Constant(value, ty) if ty != to => {
            let value = match (value.as_i64(), to) {
                (Some(number), Type::Int8) => Value::Int8(number),
                (Some(number), Type::Int4) => i32::try_from(number).map_or(value, Value::Int4),
                _ => value,
            };
            program::Expr::Constant(value, to)
        }
        expr => expr,
    }
}

fn no_program() -> Error {
    Error::internal("an expression that is no program was taken for one")
}
