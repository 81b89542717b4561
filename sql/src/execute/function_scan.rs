//! Rows of set-returning functions side by side; shorter ones are filled with nulls.

use std::sync::Arc;

use model::{Error, Result, Type, Value, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{
    batch::{Batch, Column, ROWS},
    functions::{Body, Function, RowIterator},
    plan::{self, SetExpr},
};

/// The operator.
pub(super) struct FunctionScan {
    runtime: Runtime,
    plan: plan::FunctionScan,
    types: Vec<Type>,
    calls: Option<Vec<Call>>,
    ordinal: i64,
}

struct Call {
    width: usize,
    /// A set-returning function in a record's place gives one record.
    rows: Option<RowIterator>,
}

impl FunctionScan {
    pub(super) fn new(plan: &plan::FunctionScan, types: Vec<Type>, runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), plan: plan.clone(), types, calls: None, ordinal: 0 }
    }

    async fn begin(&mut self) -> Result<Vec<Call>> {
        let mut calls = Vec::with_capacity(self.plan.calls.len());
        for call in &self.plan.calls {
            calls.push(match call {
                SetExpr::Scalar(expr) => {
                    let values =
                        Expressions::new(std::slice::from_ref(expr), 0).row(&self.runtime, &[], &[]).await?;
                    Call { width: 1, rows: Some(Box::new(std::iter::once(Ok(values)))) }
                }
                SetExpr::Set { function, arguments, types } => {
                    let values = Expressions::new(arguments, 0).row(&self.runtime, &[], &[]).await?;
                    Call { width: types.len(), rows: start(&self.runtime, function, &values)? }
                }
            });
        }
        Ok(calls)
    }
}

/// The rows of one call; none for a strict function with a null argument.
pub(super) fn start(
    runtime: &Runtime,
    function: &Function,
    arguments: &[Value],
) -> Result<Option<RowIterator>> {
    if function.strict && arguments.iter().any(Value::is_null) {
        return Ok(None);
    }
    match function.body {
        Body::Set(_, body) => runtime.evaluate(|scope| body(scope.context, arguments)).map(Some),
        Body::Scalar(_) | Body::Aggregate(_) | Body::Window(_) => {
            Err(Error::internal(format!("{}() does not return a set", function.name)))
        }
    }
}

impl Operator for FunctionScan {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            self.runtime.pace().await?;
            if self.calls.is_none() {
                self.calls = Some(self.begin().await?);
            }
            let Some(calls) = &mut self.calls else { return Ok(None) };
            let mut columns: Vec<Column> =
                self.types.iter().map(|ty| Column::with_capacity(*ty, 0)).collect();
            let mut count = 0;
            while count < ROWS {
                let mut any = false;
                let mut row: Vec<Value> = Vec::with_capacity(columns.len());
                for call in calls.iter_mut() {
                    match call.rows.as_mut().and_then(Iterator::next) {
                        Some(values) => {
                            any = true;
                            row.extend(values?);
                        }
                        None => {
                            call.rows = None;
                            row.resize(row.len() + call.width, Value::Null);
                        }
                    }
                }
                if !any {
                    break;
                }
                self.ordinal += 1;
                if self.plan.ordinality {
                    row.push(Value::Int8(self.ordinal));
                }
                for (column, value) in columns.iter_mut().zip(&row) {
                    column.push_value(value);
                }
                count += 1;
            }
            if count == 0 {
                return Ok(None);
            }
            Ok(Some(Batch::new(columns.into_iter().map(Arc::new).collect(), count)))
        })
    }
}
