//! Other columns for each row, some of which give many rows.

use std::sync::Arc;

use model::{Result, Type, Value, port::BoxFuture};

use super::{Expressions, Operator, Runtime, function_scan::start};
use crate::{
    batch::{Batch, Column, ROWS},
    expr::Expr,
    functions::{Function, RowIterator},
    plan::SetExpr,
};

/// The operator.
pub(super) struct ProjectSet {
    runtime: Runtime,
    input: Box<dyn Operator>,
    shapes: Vec<Shape>,
    /// All scalars and all arguments, evaluated together.
    values: Expressions,
    types: Vec<Type>,
    current: Option<Current>,
}

/// What becomes of the values of one output column.
enum Shape {
    Scalar,
    Set { function: &'static Function, arguments: usize, record: bool },
}

/// An input batch that is being expanded.
struct Current {
    columns: Vec<Arc<Column>>,
    rows: usize,
    row: usize,
    sets: Option<Vec<Option<RowIterator>>>,
}

impl ProjectSet {
    pub(super) fn new(
        input: Box<dyn Operator>,
        expressions: &[SetExpr],
        width: usize,
        types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        let mut values: Vec<Expr> = Vec::new();
        let mut shapes = Vec::new();
        for expr in expressions {
            match expr {
                SetExpr::Scalar(expr) => {
                    values.push(expr.clone());
                    shapes.push(Shape::Scalar);
                }
                SetExpr::Set { function, arguments, types } => {
                    values.extend(arguments.iter().cloned());
                    shapes.push(Shape::Set { function, arguments: arguments.len(), record: types.len() > 1 });
                }
            }
        }
        Self {
            runtime: runtime.clone(),
            input,
            shapes,
            values: Expressions::new(&values, width),
            types,
            current: None,
        }
    }
}

impl Current {
    fn begin_row(&mut self, runtime: &Runtime, shapes: &[Shape]) -> Result<()> {
        let mut at = 0;
        let mut sets = Vec::new();
        for shape in shapes {
            match shape {
                Shape::Scalar => at += 1,
                Shape::Set { function, arguments, .. } => {
                    let values: Vec<Value> = self.columns[at..at + arguments]
                        .iter()
                        .map(|column| column.value(self.row))
                        .collect();
                    at += arguments;
                    sets.push(start(runtime, function, &values)?);
                }
            }
        }
        self.sets = Some(sets);
        Ok(())
    }

    /// Puts the next row of the present input row; false if its sets are exhausted.
    fn step(&mut self, shapes: &[Shape], columns: &mut [Column]) -> Result<bool> {
        let Some(sets) = &mut self.sets else { return Ok(false) };
        let mut made: Vec<Option<Vec<Value>>> = Vec::with_capacity(sets.len());
        for set in sets.iter_mut() {
            let next = set.as_mut().and_then(Iterator::next).transpose()?;
            if next.is_none() {
                *set = None;
            }
            made.push(next);
        }
        if made.iter().all(Option::is_none) {
            return Ok(false);
        }
        let (mut at, mut made) = (0, made.into_iter());
        for (shape, column) in shapes.iter().zip(columns) {
            match shape {
                Shape::Scalar => {
                    column.push_from(&self.columns[at], self.row);
                    at += 1;
                }
                Shape::Set { arguments, record, .. } => {
                    at += arguments;
                    match made.next().flatten() {
                        None => column.push_null(),
                        Some(values) if *record => column.push_value(&Value::Record(values.into())),
                        Some(values) => column.push_value(values.first().unwrap_or(&Value::Null)),
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Operator for ProjectSet {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            let mut columns: Vec<Column> =
                self.types.iter().map(|ty| Column::with_capacity(*ty, 0)).collect();
            let mut count = 0;
            while count < ROWS {
                let Some(current) = &mut self.current else {
                    self.runtime.pace().await?;
                    let Some(batch) = self.input.next().await? else { break };
                    let columns = self.values.columns(&self.runtime, &batch).await?;
                    self.current = Some(Current { columns, rows: batch.len(), row: 0, sets: None });
                    continue;
                };
                if current.row >= current.rows {
                    self.current = None;
                    continue;
                }
                if current.sets.is_none() {
                    current.begin_row(&self.runtime, &self.shapes)?;
                }
                if current.step(&self.shapes, &mut columns)? {
                    count += 1;
                } else {
                    current.sets = None;
                    current.row += 1;
                }
            }
            if count == 0 {
                return Ok(None);
            }
            Ok(Some(Batch::new(columns.into_iter().map(Arc::new).collect(), count)))
        })
    }
}
