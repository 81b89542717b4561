//! A batch at a time: typed kernels where there are some, else the scalar meaning row by row.
//!
//! Invariants: a result has one row per logical row of the batch; operands of AND, OR, CASE and COALESCE see only the rows
//! that need them.

use std::sync::Arc;

use model::{Result, Type, Value};

use super::{
    Scope, kernel,
    row::{BatchRow, is_null},
};
use crate::{
    batch::{Batch, Column, Data, key::KeyTable},
    expr::{Expr, Kind},
    functions::{Function, Operator, Volatility},
};

/// The result of an expression over a batch.
#[derive(Clone, Debug)]
pub(super) enum Lifted {
    /// A value per row.
    Column(Arc<Column>),
    /// The same value for every row.
    Constant(Value),
}

impl Lifted {
    fn column(column: Column) -> Self {
        Self::Column(Arc::new(column))
    }

    pub(super) fn value(&self, row: usize) -> Value {
        match self {
            Self::Column(column) => column.value(row),
            Self::Constant(value) => value.clone(),
        }
    }

    fn into_column(self, ty: Type, rows: usize) -> Arc<Column> {
        match self {
            Self::Column(column) => column,
            Self::Constant(value) => Arc::new(Column::repeat(ty, &value, rows)),
        }
    }

    /// The truth in a row; none is null.
    #[inline]
    fn truth(&self, row: usize) -> Option<bool> {
        match self {
            Self::Column(column) => match column.as_bools() {
                Some(values) if !column.is_null(row) => Some(values[row]),
                _ => None,
            },
            Self::Constant(value) => value.as_bool(),
        }
    }
}

impl Scope<'_> {
    /// The values of an expression for the rows of a batch.
    pub fn column(&mut self, expression: &Expr, batch: &Batch) -> Result<Arc<Column>> {
        if batch.is_empty() {
            return Ok(Arc::new(Column::with_capacity(expression.ty, 0)));
        }
        Ok(self.lift(expression, batch)?.into_column(expression.ty, batch.len()))
    }

    /// The values of some expressions for the rows of a batch.
    pub fn columns(&mut self, expressions: &[Expr], batch: &Batch) -> Result<Vec<Arc<Column>>> {
        expressions.iter().map(|expression| self.column(expression, batch)).collect()
    }

    /// The rows of a batch for which a condition is true.
    pub fn filter(&mut self, condition: &Expr, batch: &Batch) -> Result<Batch> {
        if let Kind::And(parts) = &condition.kind {
            let mut left = batch.clone();
            for part in parts {
                left = self.filter(part, &left)?;
            }
            return Ok(left);
        }
        if batch.is_empty() {
            return Ok(batch.clone());
        }
        let lifted = self.lift(condition, batch)?;
        if let Lifted::Constant(value) = &lifted {
            return Ok(if value.as_bool() == Some(true) { batch.clone() } else { batch.select(&[]) });
        }
        let rows: Vec<u32> =
            (0..batch.len()).filter(|row| lifted.truth(*row) == Some(true)).map(|row| row as u32).collect();
        Ok(if rows.len() == batch.len() { batch.clone() } else { batch.select(&rows) })
    }

    fn lift(&mut self, expression: &Expr, batch: &Batch) -> Result<Lifted> {
        match &expression.kind {
            Kind::Column(index) => Ok(Lifted::Column(batch.dense(*index))),
            Kind::Outer(_) | Kind::Parameter(_) | Kind::Constant(_) => {
                let none: &[Value] = &[];
                Ok(Lifted::Constant(self.value(expression, none)?))
            }
            Kind::Call(function, arguments) => self.lift_call(function, arguments, expression.ty, batch),
            Kind::Operator(operator, operands) => {
                self.lift_operator(operator, operands, expression.ty, batch)
            }
            Kind::And(parts) => self.lift_logic(parts, false, batch),
            Kind::Or(parts) => self.lift_logic(parts, true, batch),
            Kind::Not(value) => {
                let lifted = self.lift(value, batch)?;
                let value = |row: usize| lifted.truth(row).map(|truth| !truth);
                Ok(truths(&lifted, batch.len(), value))
            }
            Kind::IsTruth { value, truth, negated } => {
                let lifted = self.lift(value, batch)?;
                Ok(truths(&lifted, batch.len(), |row| Some((lifted.truth(row) == *truth) != *negated)))
            }
            Kind::IsNull { value, negated } => {
                let lifted = self.lift(value, batch)?;
                let test = |row: usize| match &lifted {
                    Lifted::Column(column) if value.ty != Type::Record => column.is_null(row) != *negated,
                    lifted => is_null(&lifted.value(row), *negated),
                };
                Ok(truths(&lifted, batch.len(), |row| Some(test(row))))
            }
            Kind::Case { branches, otherwise } => self.lift_case(branches, otherwise, expression.ty, batch),
            Kind::Coalesce(parts) => self.lift_coalesce(parts, expression.ty, batch),
            Kind::InList { value, list, negated } => {
                self.lift_in_list(expression, value, list, *negated, batch)
            }
            Kind::Cast { value, explicit } => self.lift_cast(expression, value, *explicit, batch),
            Kind::Greatest(_)
            | Kind::Least(_)
            | Kind::IsDistinct { .. }
            | Kind::Array(_)
            | Kind::Row(_)
            | Kind::Subscript { .. }
            | Kind::AnyAll { .. }
            | Kind::Subquery(_) => self.by_row(expression, batch),
        }
    }

    /// The scalar meaning, row by row.
    fn by_row(&mut self, expression: &Expr, batch: &Batch) -> Result<Lifted> {
        let mut column = Column::with_capacity(expression.ty, batch.len());
        for row in 0..batch.len() {
            column.push_value(&self.value(expression, &BatchRow { batch, row })?);
        }
        Ok(Lifted::column(column))
    }

    fn lift_all(&mut self, expressions: &[Expr], batch: &Batch) -> Result<Vec<Lifted>> {
        expressions.iter().map(|expression| self.lift(expression, batch)).collect()
    }

    fn lift_call(
        &mut self,
        function: &Function,
        arguments: &[Expr],
        ty: Type,
        batch: &Batch,
    ) -> Result<Lifted> {
        let lifted = self.lift_all(arguments, batch)?;
        let constant = lifted.iter().all(|argument| matches!(argument, Lifted::Constant(_)));
        let mut values = vec![Value::Null; lifted.len()];
        if constant && function.volatility != Volatility::Volatile {
            read_operands(&lifted, 0, &mut values);
            return Ok(Lifted::Constant(self.apply(function, &values)?));
        }
        if let Some(column) = kernel::call(function, &lifted, batch.len()) {
            return Ok(Lifted::column(column));
        }
        let mut column = Column::with_capacity(ty, batch.len());
        for row in 0..batch.len() {
            read_operands(&lifted, row, &mut values);
            column.push_value(&self.apply(function, &values)?);
        }
        Ok(Lifted::column(column))
    }

    fn lift_operator(
        &mut self,
        operator: &Operator,
        operands: &[Expr],
        ty: Type,
        batch: &Batch,
    ) -> Result<Lifted> {
        let lifted = self.lift_all(operands, batch)?;
        if lifted.iter().any(|operand| matches!(operand, Lifted::Constant(Value::Null))) {
            return Ok(Lifted::Constant(Value::Null));
        }
        let mut values = vec![Value::Null; lifted.len()];
        if lifted.iter().all(|operand| matches!(operand, Lifted::Constant(_))) {
            read_operands(&lifted, 0, &mut values);
            return Ok(Lifted::Constant(self.operate(operator, &values)?));
        }
        if let (Some([left, right]), [left_expr, right_expr]) = (lifted.first_chunk::<2>(), operands)
            && let Some(column) = kernel::operator(
                operator.symbol,
                (left, left_expr.ty),
                (right, right_expr.ty),
                ty,
                batch.len(),
            )?
        {
            return Ok(Lifted::column(column));
        }
        let mut column = Column::with_capacity(ty, batch.len());
        for row in 0..batch.len() {
            read_operands(&lifted, row, &mut values);
            column.push_value(&self.operate(operator, &values)?);
        }
        Ok(Lifted::column(column))
    }

    /// AND (`decides` is false) and OR (`decides` is true): a later operand is evaluated only where no earlier one decided.
    fn lift_logic(&mut self, parts: &[Expr], decides: bool, batch: &Batch) -> Result<Lifted> {
        let rows = batch.len();
        let mut values = vec![!decides; rows];
        let mut nulls = vec![false; rows];
        let mut open: Vec<u32> = (0..rows as u32).collect();
        for part in parts {
            if open.is_empty() {
                break;
            }
            let lifted = if open.len() == rows {
                self.lift(part, batch)?
            } else {
                self.lift(part, &batch.select(&open))?
            };
            let mut undecided = Vec::with_capacity(open.len());
            for (place, row) in open.iter().enumerate() {
                match lifted.truth(place) {
                    Some(truth) if truth == decides => {
                        values[*row as usize] = decides;
                        nulls[*row as usize] = false;
                    }
                    Some(_) => undecided.push(*row),
                    None => {
                        nulls[*row as usize] = true;
                        undecided.push(*row);
                    }
                }
            }
            open = undecided;
        }
        let nulls = if nulls.contains(&true) { nulls } else { Vec::new() };
        Ok(Lifted::column(Column::bools(values, nulls)))
    }

    fn lift_case(
        &mut self,
        branches: &[(Expr, Expr)],
        otherwise: &Expr,
        ty: Type,
        batch: &Batch,
    ) -> Result<Lifted> {
        let mut pieces = Pieces::new(ty, batch.len());
        let mut open: Vec<u32> = (0..batch.len() as u32).collect();
        for (condition, result) in branches {
            if open.is_empty() {
                break;
            }
            let lifted = self.lift(condition, &batch.select(&open))?;
            let (mut taken, mut rest) = (Vec::new(), Vec::new());
            for (place, row) in open.iter().enumerate() {
                if lifted.truth(place) == Some(true) { &mut taken } else { &mut rest }.push(*row);
            }
            if !taken.is_empty() {
                let results = self.lift(result, &batch.select(&taken))?;
                pieces.add(&taken, results);
            }
            open = rest;
        }
        if !open.is_empty() {
            let results = self.lift(otherwise, &batch.select(&open))?;
            pieces.add(&open, results);
        }
        Ok(Lifted::column(pieces.finish()))
    }

    fn lift_coalesce(&mut self, parts: &[Expr], ty: Type, batch: &Batch) -> Result<Lifted> {
        let mut pieces = Pieces::new(ty, batch.len());
        let mut open: Vec<u32> = (0..batch.len() as u32).collect();
        for (index, part) in parts.iter().enumerate() {
            if open.is_empty() {
                break;
            }
            let lifted = self.lift(part, &batch.select(&open))?;
            let is_null = |place: usize| match &lifted {
                Lifted::Column(column) => column.is_null(place),
                Lifted::Constant(value) => value.is_null(),
            };
            let last = index + 1 == parts.len();
            let rest: Vec<u32> = open
                .iter()
                .enumerate()
                .filter(|(place, _)| !last && is_null(*place))
                .map(|(_, row)| *row)
                .collect();
            if rest.is_empty() && open.len() == batch.len() {
                return Ok(lifted);
            }
            // A row that stays open is overwritten by a later piece.
            pieces.add(&open, lifted);
            open = rest;
        }
        Ok(Lifted::column(pieces.finish()))
    }

    fn lift_in_list(
        &mut self,
        expression: &Expr,
        value: &Expr,
        list: &[Expr],
        negated: bool,
        batch: &Batch,
    ) -> Result<Lifted> {
        let constant =
            |item: &Expr| matches!(item.kind, Kind::Constant(_) | Kind::Parameter(_) | Kind::Outer(_));
        if list.is_empty() || !list.iter().all(constant) {
            return self.by_row(expression, batch);
        }
        let lifted = self.lift(value, batch)?;
        let Lifted::Column(column) = &lifted else {
            return self.by_row(expression, batch);
        };
        let none: &[Value] = &[];
        let mut items = Column::with_capacity(value.ty, list.len());
        let mut null = false;
        for item in list {
            match self.value(item, none)? {
                Value::Null => null = true,
                item => items.push_value(&item),
            }
        }
        let rows = batch.len();
        let mut numbers = Vec::new();
        let mut found = vec![false; rows];
        if let (Data::Int(ints), Data::Int(items)) = (column.data(), items.data())
            && items.len() <= 16
        {
            for (found, int) in found.iter_mut().zip(ints) {
                *found = items.contains(int);
            }
        } else {
            let mut table = KeyTable::new(&[value.ty]);
            table.insert(&[&items], items.len(), true, &mut numbers);
            table.find(&[column], rows, true, &mut numbers);
            for (found, number) in found.iter_mut().zip(&numbers) {
                *found = *number != u32::MAX;
            }
        }
        Ok(truths(&lifted, rows, |row| {
            if column.is_null(row) || (null && !found[row]) { None } else { Some(found[row] != negated) }
        }))
    }

    fn lift_cast(&mut self, to: &Expr, operand: &Expr, explicit: bool, batch: &Batch) -> Result<Lifted> {
        match self.lift(operand, batch)? {
            Lifted::Constant(value) => Ok(Lifted::Constant(self.cast(&value, operand.ty, to, explicit)?)),
            Lifted::Column(column) => {
                if let Some(cast) = kernel::cast(&column, to.ty, to.typmod)? {
                    return Ok(Lifted::Column(cast));
                }
                let mut cast = Column::with_capacity(to.ty, batch.len());
                for row in 0..batch.len() {
                    let value = column.value(row);
                    cast.push_value(&self.cast(&value, operand.ty, to, explicit)?);
                }
                Ok(Lifted::column(cast))
            }
        }
    }
}

fn read_operands(lifted: &[Lifted], row: usize, values: &mut [Value]) {
    for (value, operand) in values.iter_mut().zip(lifted) {
        *value = operand.value(row);
    }
}

/// A truth value per row, or one for all if the operand was one.
fn truths(operand: &Lifted, rows: usize, truth: impl Fn(usize) -> Option<bool>) -> Lifted {
    if matches!(operand, Lifted::Constant(_)) {
        return Lifted::Constant(truth(0).map_or(Value::Null, Value::Bool));
    }
    let mut values = Vec::with_capacity(rows);
    let mut nulls = Vec::new();
    for row in 0..rows {
        let truth = truth(row);
        if truth.is_none() {
            nulls.resize(rows, false);
            nulls[row] = true;
        }
        values.push(truth.unwrap_or_default());
    }
    Lifted::column(Column::bools(values, nulls))
}

/// A column put together from results for some of its rows each; where two give a row, the later one counts.
struct Pieces {
    ty: Type,
    parts: Column,
    /// For each row, where its value stands in `parts`.
    places: Vec<u32>,
}

impl Pieces {
    fn new(ty: Type, rows: usize) -> Self {
        Self { ty, parts: Column::with_capacity(ty, rows), places: vec![0; rows] }
    }

    fn add(&mut self, rows: &[u32], results: Lifted) {
        let base = self.parts.len() as u32;
        match results {
            Lifted::Column(column) => {
                self.parts.extend(&column);
                for (place, row) in rows.iter().enumerate() {
                    self.places[*row as usize] = base + place as u32;
                }
            }
            Lifted::Constant(value) => {
                self.parts.push_value(&value);
                rows.iter().for_each(|row| self.places[*row as usize] = base);
            }
        }
    }

    fn finish(self) -> Column {
        debug_assert_eq!(self.parts.ty(), self.ty, "results have the type of the whole");
        self.parts.gather(&self.places)
    }
}
