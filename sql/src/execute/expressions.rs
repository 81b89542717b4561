//! Expressions as operators evaluate them: sub-queries are run before, volatile functions row by row.
//!
//! Invariants:
//! - A sub-query that takes nothing from its row is run once per statement node, when the first row needs it, and becomes
//!   a constant; one that takes something is run once per different row of what it takes.
//! - Volatile expressions of one list are evaluated row by row, in the order of the list; if one needs sequence numbers that
//!   are not at hand, they are reserved and the expression is evaluated again, without the volatile calls that are done.
//! - Of a condition, the parts without sub-queries are applied first.

use std::{collections::HashMap, sync::Arc};

use model::{Code, Error, Result, Type, Value, key::KeyPart, value::Array};

use super::{Operator, Runtime, collect, open, types_of};
use crate::{
    batch::{Batch, Column, concat, key},
    context::{Pauses, is_reservation},
    eval::Scope,
    expr::{Expr, Kind, Query, SubqueryKind},
    functions::{Operator as Function, Volatility},
    plan::Plan,
};

/// Results of a correlated sub-query are remembered up to this many different rows.
const MEMO_MAX: usize = 4_096;

/// Some expressions over one input.
pub(crate) struct Expressions {
    list: Vec<Expr>,
    width: usize,
    subqueries: Vec<Subquery>,
    volatile: Vec<bool>,
}

/// One sub-query that was taken out of its expression; its value stands in an extra column.
struct Subquery {
    plan: Arc<Plan>,
    outer: Vec<Expr>,
    ask: Ask,
    ty: Type,
    state: State,
}

enum Ask {
    Scalar,
    Exists,
    Array,
    Compare { left: Vec<Expr>, operators: Vec<&'static Function>, all: bool },
}

enum State {
    /// Not run yet.
    Fresh,
    /// Its only value, whatever the row.
    Value(Value),
    /// Its rows, whatever the row; for comparisons.
    Rows(Arc<Answers>),
    /// What was found for rows before.
    Memo(HashMap<Vec<u8>, Known>),
}

#[derive(Clone)]
enum Known {
    Value(Value),
    Rows(Arc<Answers>),
}

impl Expressions {
    /// Expressions over an input of so many columns.
    pub(crate) fn new(expressions: &[Expr], width: usize) -> Self {
        let mut subqueries = Vec::new();
        let list: Vec<Expr> =
            expressions.iter().cloned().map(|expr| take_out(expr, width, &mut subqueries)).collect();
        let volatile = list.iter().map(|expr| expr.volatility() == Volatility::Volatile).collect();
        Self { list, width, subqueries, volatile }
    }

    /// One condition, taken apart so that its parts without sub-queries come first.
    pub(crate) fn condition(condition: &Expr, width: usize) -> Self {
        let mut parts = Vec::new();
        condition.clone().split_and(&mut parts);
        let (mut plain, rest): (Vec<Expr>, Vec<Expr>) =
            parts.into_iter().partition(|part| !has_subquery(part));
        plain.extend(rest);
        Self::new(&plain, width)
    }

    /// The value of each expression for each row. Where the batch makes more than fits, it is taken in parts.
    pub(crate) async fn columns(&mut self, runtime: &Runtime, batch: &Batch) -> Result<Vec<Arc<Column>>> {
        self.columns_of(runtime, batch, true).await
    }

    /// As [`Expressions::columns`], in one piece: the caller takes a batch in parts itself.
    pub(super) async fn columns_at_once(
        &mut self,
        runtime: &Runtime,
        batch: &Batch,
    ) -> Result<Vec<Arc<Column>>> {
        self.columns_of(runtime, batch, false).await
    }

    /// Whether nothing is volatile: evaluated again it gives the same, and does nothing besides.
    pub(super) fn may_be_repeated(&self) -> bool {
        !self.volatile.contains(&true)
    }

    async fn columns_of(
        &mut self,
        runtime: &Runtime,
        batch: &Batch,
        in_parts: bool,
    ) -> Result<Vec<Arc<Column>>> {
        if batch.is_empty() {
            return Ok(self.list.iter().map(|expr| Arc::new(Column::with_capacity(expr.ty, 0))).collect());
        }
        let extended;
        let batch = if self.subqueries.is_empty() {
            batch
        } else {
            extended = self.extend(runtime, batch, self.subqueries.len()).await?;
            &extended
        };
        let mut columns = match self.plain_columns(0, runtime, batch) {
            Err(error) if in_parts && is_split(&error, batch) => self.plain_in_parts(runtime, batch)?,
            done => done?,
        };
        if self.volatile.contains(&true) {
            for (column, made) in columns.iter_mut().zip(self.volatile_columns(runtime, batch).await?) {
                if let Some(made) = made {
                    *column = Some(Arc::new(made));
                }
            }
        }
        Ok(columns.into_iter().map(|column| column.expect("every expression was evaluated")).collect())
    }

    /// The values of what is not volatile, of a batch of which so many bytes are there.
    fn plain_columns(
        &self,
        held: usize,
        runtime: &Runtime,
        batch: &Batch,
    ) -> Result<Vec<Option<Arc<Column>>>> {
        let mut columns = vec![None; self.list.len()];
        runtime.evaluate_behind(held, |scope| {
            for (index, expr) in self.list.iter().enumerate().filter(|(index, _)| !self.volatile[*index]) {
                columns[index] = Some(scope.column(expr, batch)?);
            }
            Ok(())
        })?;
        Ok(columns)
    }

    fn plain_in_parts(&self, runtime: &Runtime, batch: &Batch) -> Result<Vec<Option<Arc<Column>>>> {
        let mut parts: Vec<Batch> = Vec::new();
        let mut rest = vec![batch.clone()];
        let mut held = 0;
        while let Some(part) = rest.pop() {
            match self.plain_columns(held, runtime, &part) {
                Ok(columns) => {
                    let columns: Vec<Arc<Column>> = columns.into_iter().flatten().collect();
                    held += columns.iter().map(|column| column.heap_bytes()).sum::<usize>();
                    parts.push(Batch::new(columns, part.len()));
                }
                Err(error) if is_split(&error, &part) => rest.extend(halves(&part)),
                Err(error) => return Err(error),
            }
        }
        let plain = || self.list.iter().zip(&self.volatile).filter(|(_, volatile)| !**volatile);
        let types: Vec<Type> = plain().map(|(expr, _)| expr.ty).collect();
        let whole = concat(&parts, &types);
        let mut made = 0..types.len();
        let column =
            |volatile: &bool| if *volatile { None } else { made.next().map(|index| whole.dense(index)) };
        Ok(self.volatile.iter().map(column).collect())
    }

    async fn volatile_columns(&self, runtime: &Runtime, batch: &Batch) -> Result<Vec<Option<Column>>> {
        let mut columns: Vec<Option<Column>> = self
            .list
            .iter()
            .zip(&self.volatile)
            .map(|(expr, volatile)| volatile.then(|| Column::with_capacity(expr.ty, batch.len())))
            .collect();
        let mut row = Vec::new();
        for index in 0..batch.len() {
            batch.read_row(index, &mut row);
            for (expr, column) in self.list.iter().zip(&mut columns) {
                if let Some(column) = column {
                    column.push_value(&evaluate_patiently(runtime, expr, &row).await?);
                }
            }
        }
        Ok(columns)
    }

    /// The rows for which every expression is true.
    pub(crate) async fn filter(&mut self, runtime: &Runtime, batch: Batch) -> Result<Batch> {
        let mut left = batch;
        for index in 0..self.list.len() {
            if left.is_empty() {
                break;
            }
            if self.volatile[index] {
                left = self.filter_volatile(runtime, left, index).await?;
            } else if self.uses_subquery(index) {
                let extended = self.extend(runtime, &left, self.subqueries.len()).await?;
                left = self.keep_in_parts(runtime, index, &extended, &left)?;
            } else {
                left = match runtime.evaluate(|scope| scope.filter(&self.list[index], &left)) {
                    Err(error) if is_split(&error, &left) => {
                        self.keep_in_parts(runtime, index, &left, &left)?
                    }
                    done => done?,
                };
            }
        }
        Ok(left)
    }

    /// The rows for which an expression that is not volatile is true, of a batch with more columns; the batch is taken in
    /// parts where it makes more than fits.
    fn keep_in_parts(
        &self,
        runtime: &Runtime,
        index: usize,
        extended: &Batch,
        batch: &Batch,
    ) -> Result<Batch> {
        let (mut kept, mut rest) = (Vec::new(), vec![(0, batch.len())]);
        while let Some((from, count)) = rest.pop() {
            let part = extended.slice(from, count);
            match runtime.evaluate(|scope| scope.column(&self.list[index], &part)) {
                Ok(truths) => kept.extend(
                    (0..count)
                        .filter(|row| truths.value(*row).as_bool() == Some(true))
                        .map(|row| (from + row) as u32),
                ),
                Err(error) if is_split(&error, &part) => {
                    let half = count / 2;
                    rest.extend([(from + half, count - half), (from, half)]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(batch.select(&kept))
    }

    async fn filter_volatile(&mut self, runtime: &Runtime, batch: Batch, index: usize) -> Result<Batch> {
        let extended = self.extend(runtime, &batch, self.subqueries.len()).await?;
        let mut row = Vec::new();
        let mut kept = Vec::new();
        for at in 0..batch.len() {
            extended.read_row(at, &mut row);
            if evaluate_patiently(runtime, &self.list[index], &row).await?.as_bool() == Some(true) {
                kept.push(at as u32);
            }
        }
        Ok(batch.select(&kept))
    }

    /// The values of each expression for one row of values.
    pub(crate) async fn row(
        &mut self,
        runtime: &Runtime,
        row: &[Value],
        types: &[Type],
    ) -> Result<Vec<Value>> {
        if self.subqueries.is_empty() {
            let mut values = Vec::with_capacity(self.list.len());
            for expr in &self.list {
                values.push(evaluate_patiently(runtime, expr, row).await?);
            }
            return Ok(values);
        }
        let batch = Batch::from_rows(types, &[row]);
        let columns = self.columns(runtime, &batch).await?;
        Ok(columns.iter().map(|column| column.value(0)).collect())
    }

    /// Whether every expression is true for one row of values.
    pub(crate) async fn holds(&mut self, runtime: &Runtime, row: &[Value], types: &[Type]) -> Result<bool> {
        Ok(self.row(runtime, row, types).await?.iter().all(|value| value.as_bool() == Some(true)))
    }

    fn uses_subquery(&self, index: usize) -> bool {
        !self.subqueries.is_empty()
            && self.list[index].any(&mut |expr| expr.as_column().is_some_and(|column| column >= self.width))
    }

    /// The batch with one more column per sub-query.
    async fn extend(&mut self, runtime: &Runtime, batch: &Batch, count: usize) -> Result<Batch> {
        if count == 0 {
            return Ok(batch.clone());
        }
        let rows = batch.len();
        let mut columns: Vec<Arc<Column>> = batch.clone().compact().columns().to_vec();
        for index in 0..count {
            let so_far = Batch::new(columns.clone(), rows);
            let column = self.subqueries[index].column(runtime, &so_far).await?;
            columns.push(Arc::new(column));
        }
        self.fold_constants();
        Ok(Batch::new(columns, rows))
    }

    /// Puts the value of each sub-query that has become a constant in its place, so that kernels see it.
    fn fold_constants(&mut self) {
        for index in 0..self.subqueries.len() {
            let State::Value(value) = &self.subqueries[index].state else { continue };
            let (place, value) = (self.width + index, value.clone());
            self.list.iter_mut().for_each(|expr| replace_column(expr, place, &value));
        }
    }
}

/// Evaluates one expression for one row, reserving sequence numbers and waiting as it asks for.
pub(crate) async fn evaluate_patiently(runtime: &Runtime, expr: &Expr, row: &[Value]) -> Result<Value> {
    let (mut done, mut is_over) = (Vec::new(), false);
    loop {
        let (result, (so_far, pause)) = runtime.evaluate(|scope| {
            scope.context.pauses = Pauses::after(std::mem::take(&mut done), is_over);
            let result = scope.value(expr, row);
            Ok((result, scope.context.pauses.end()))
        })?;
        done = so_far;
        is_over = pause.is_some();
        match (result, pause) {
            (Err(_), Some(pause)) => {
                // Whoever cancels the statement drops this wait.
                tokio::time::sleep(pause).await;
                runtime.cancel.check()?;
            }
            (Err(error), None) if is_reservation(&error) => runtime.reserve.reserve().await?,
            (result, _) => return result,
        }
    }
}

/// Whether a batch made more than fits, and is more than one row.
pub(super) fn is_split(error: &Error, batch: &Batch) -> bool {
    error.code() == Code::OutOfMemory && batch.len() > 1
}

/// A batch in two, the first one last.
pub(super) fn halves(batch: &Batch) -> [Batch; 2] {
    let half = batch.len() / 2;
    [batch.slice(half, batch.len() - half), batch.slice(0, half)]
}

fn has_subquery(expr: &Expr) -> bool {
    expr.any(&mut |expr| matches!(expr.kind, Kind::Subquery(_)))
}

fn replace_column(expr: &mut Expr, column: usize, value: &Value) {
    if expr.as_column() == Some(column) {
        expr.kind = Kind::Constant(value.clone());
        return;
    }
    expr.for_each_child_mut(&mut |child| replace_column(child, column, value));
}

/// Puts a column in place of each sub-query; inner ones come first, so that outer ones may use their columns.
fn take_out(mut expr: Expr, width: usize, subqueries: &mut Vec<Subquery>) -> Expr {
    expr.for_each_child_mut(&mut |child| {
        let taken = std::mem::replace(child, Expr::bool(true));
        *child = take_out(taken, width, subqueries);
    });
    let (ty, typmod) = (expr.ty, expr.typmod);
    match expr.kind {
        Kind::Subquery(subquery) => {
            let Query::Physical { plan, outer } = subquery.query else {
                // A plan that is run was lowered before; an empty relation would hide that it was not.
                return Expr::new(Kind::Subquery(subquery), ty);
            };
            let ask = match subquery.kind {
                SubqueryKind::Scalar => Ask::Scalar,
                SubqueryKind::Exists => Ask::Exists,
                SubqueryKind::Array => Ask::Array,
                SubqueryKind::Compare { left, operators, all } => Ask::Compare { left, operators, all },
            };
            subqueries.push(Subquery { plan, outer, ask, ty, state: State::Fresh });
            Expr::column(width + subqueries.len() - 1, ty, typmod)
        }
        kind => Expr { kind, ty, typmod },
    }
}

impl Subquery {
    /// Its value for each row.
    async fn column(&mut self, runtime: &Runtime, batch: &Batch) -> Result<Column> {
        if self.outer.is_empty() {
            self.run_once(runtime).await?;
            return match &self.state {
                State::Value(value) => Ok(Column::repeat(self.ty, value, batch.len())),
                State::Rows(answers) => {
                    let answers = Arc::clone(answers);
                    self.compare_all(runtime, batch, &answers)
                }
                State::Fresh | State::Memo(_) => Err(Error::internal("a sub-query was not run")),
            };
        }
        let outer = runtime.evaluate(|scope| scope.columns(&self.outer, batch))?;
        let refs: Vec<&Column> = outer.iter().map(Arc::as_ref).collect();
        let keys = key::Keys::of(&refs, &[], batch.len());
        let left = self.left_columns(runtime, batch)?;
        let mut column = Column::with_capacity(self.ty, batch.len());
        for row in 0..batch.len() {
            let known = self.recall(keys.get(row));
            let known = match known {
                Some(known) => known,
                None => {
                    let values: Arc<[Value]> = outer.iter().map(|column| column.value(row)).collect();
                    let known = self.run(&runtime.with_outer(values)).await?;
                    self.remember(keys.get(row), &known);
                    known
                }
            };
            match known {
                Known::Value(value) => column.push_value(&value),
                Known::Rows(answers) => column.push_value(&self.compare(runtime, &left, row, &answers)?),
            }
        }
        Ok(column)
    }

    fn recall(&self, key: &[u8]) -> Option<Known> {
        match &self.state {
            State::Memo(memo) => memo.get(key).cloned(),
            State::Fresh | State::Value(_) | State::Rows(_) => None,
        }
    }

    fn remember(&mut self, key: &[u8], known: &Known) {
        if is_volatile(&self.plan) {
            return;
        }
        // Rows of a comparison may be many: they are not kept.
        let Known::Value(_) = known else { return };
        let memo = match &mut self.state {
            State::Memo(memo) => memo,
            state => {
                *state = State::Memo(HashMap::new());
                match state {
                    State::Memo(memo) => memo,
                    State::Fresh | State::Value(_) | State::Rows(_) => return,
                }
            }
        };
        if memo.len() >= MEMO_MAX {
            memo.clear();
        }
        memo.insert(key.to_vec(), known.clone());
    }

    async fn run_once(&mut self, runtime: &Runtime) -> Result<()> {
        if matches!(self.state, State::Fresh) {
            let runtime = runtime.with_outer(Arc::new([]));
            self.state = match self.run(&runtime).await? {
                Known::Value(value) => State::Value(value),
                Known::Rows(rows) => State::Rows(rows),
            };
        }
        Ok(())
    }

    async fn run(&self, runtime: &Runtime) -> Result<Known> {
        runtime.cancel.check()?;
        let mut operator = open(&self.plan, runtime)?;
        match &self.ask {
            Ask::Scalar => Ok(Known::Value(only_value(operator.as_mut()).await?)),
            Ask::Exists => Ok(Known::Value(Value::Bool(has_row(operator.as_mut()).await?))),
            Ask::Array => {
                let element = self.ty.element().and_then(Type::scalar);
                let element = element.ok_or_else(|| Error::internal("ARRAY() of a type without arrays"))?;
                let batches = collect(operator.as_mut()).await?;
                let values = batches
                    .iter()
                    .flat_map(|batch| (0..batch.len()).map(|row| batch.value(row, 0)))
                    .collect();
                Ok(Known::Value(Value::Array(Arc::new(Array::from_values(element, values)))))
            }
            Ask::Compare { operators, all, .. } => {
                let mut charge = runtime.budget.charge("a sub-query");
                let batches = collect(operator.as_mut()).await?;
                charge.set(batches.iter().map(Batch::heap_bytes).sum())?;
                let rows = concat(&batches, &types_of(&self.plan));
                Ok(Known::Rows(Arc::new(Answers::new(rows, operators, *all, charge))))
            }
        }
    }

    fn left_columns(&self, runtime: &Runtime, batch: &Batch) -> Result<Vec<Arc<Column>>> {
        match &self.ask {
            Ask::Compare { left, .. } => runtime.evaluate(|scope| scope.columns(left, batch)),
            Ask::Scalar | Ask::Exists | Ask::Array => Ok(Vec::new()),
        }
    }

    fn compare_all(&self, runtime: &Runtime, batch: &Batch, answers: &Answers) -> Result<Column> {
        let left = self.left_columns(runtime, batch)?;
        let mut column = Column::with_capacity(self.ty, batch.len());
        if let (Some(table), [only]) = (&answers.table, left.as_slice())
            && answers.fits(only)
        {
            let mut numbers = Vec::new();
            table.find(&[only], batch.len(), true, &mut numbers);
            for (row, number) in numbers.iter().enumerate() {
                match answers.judge(*number != u32::MAX, only.is_null(row)) {
                    Some(truth) => column.push_bool(truth),
                    None => column.push_null(),
                }
            }
            return Ok(column);
        }
        for row in 0..batch.len() {
            column.push_value(&self.compare(runtime, &left, row, answers)?);
        }
        Ok(column)
    }

    /// One row's left operands with every answer.
    fn compare(
        &self,
        runtime: &Runtime,
        left: &[Arc<Column>],
        row: usize,
        answers: &Answers,
    ) -> Result<Value> {
        let Ask::Compare { operators, all, .. } = &self.ask else { return Ok(Value::Null) };
        let left: Vec<Value> = left.iter().map(|column| column.value(row)).collect();
        let mut unknown = false;
        runtime.evaluate(|scope| {
            for at in 0..answers.rows.len() {
                let truth = compare_rows(scope, operators, &left, |column| answers.rows.value(at, column))?;
                match truth {
                    Some(value) if value != *all => return Ok(Value::Bool(value)),
                    Some(_) => {}
                    None => unknown = true,
                }
            }
            Ok(if unknown { Value::Null } else { Value::Bool(*all) })
        })
    }
}

/// Compares two rows: one column by its operator, several by `=` (all equal) or `<>` (any unequal).
fn compare_rows(
    scope: &mut Scope<'_>,
    operators: &[&'static Function],
    left: &[Value],
    right: impl Fn(usize) -> Value,
) -> Result<Option<bool>> {
    let any = operators.len() > 1 && operators[0].symbol == "<>";
    let mut truth = Some(!any);
    for (column, operator) in operators.iter().enumerate() {
        let pair = [left[column].clone(), right(column)];
        match scope.operate(operator, &pair)?.as_bool() {
            Some(value) if value == any => return Ok(Some(any)),
            Some(_) => {}
            None => truth = None,
        }
    }
    Ok(truth)
}

/// The rows of a sub-query that values are compared with.
struct Answers {
    rows: Batch,
    /// For one column and `= ANY` or `<> ALL`: its values that are not null.
    table: Option<key::KeyTable>,
    null: bool,
    all: bool,
    _charge: crate::memory::Charge,
}

impl Answers {
    fn new(rows: Batch, operators: &[&'static Function], all: bool, charge: crate::memory::Charge) -> Self {
        let hashed = matches!((operators, all), ([only], false) if only.symbol == "=")
            || matches!((operators, all), ([only], true) if only.symbol == "<>");
        let mut table = None;
        let mut null = false;
        if hashed {
            let column = rows.column(0);
            let mut keys = key::KeyTable::new(&[column.ty()]);
            keys.insert(&[column], rows.len(), true, &mut Vec::new());
            null = column.nulls().contains(&true);
            table = Some(keys);
        }
        Self { rows, table, null, all, _charge: charge }
    }

    /// Whether a column's values can be looked up: stored and compared as the answers are.
    fn fits(&self, column: &Column) -> bool {
        let (left, right) = (column.ty(), self.rows.column(0).ty());
        left == right || (left.is_integer() && right.is_integer())
    }

    fn judge(&self, found: bool, left_null: bool) -> Option<bool> {
        if self.rows.is_empty() {
            return Some(self.all);
        }
        if found {
            return Some(!self.all);
        }
        if left_null || self.null { None } else { Some(self.all) }
    }
}

async fn only_value(operator: &mut dyn Operator) -> Result<Value> {
    let mut only = None;
    while let Some(batch) = operator.next().await? {
        if batch.is_empty() {
            continue;
        }
        if batch.len() > 1 || only.is_some() {
            return Err(too_many_rows());
        }
        only = Some(batch.value(0, 0));
    }
    Ok(only.unwrap_or_default())
}

async fn has_row(operator: &mut dyn Operator) -> Result<bool> {
    while let Some(batch) = operator.next().await? {
        if !batch.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `21000`.
pub(super) fn too_many_rows() -> Error {
    Error::new(Code::CardinalityViolation, "more than one row returned by a subquery used as an expression")
}

/// Whether a plan may give something else each time it is run.
pub(super) fn is_volatile(plan: &Plan) -> bool {
    // Only what a plan computes itself can differ: its tables are read at one point.
    let own = match &plan.node {
        crate::plan::Node::Project { expressions, .. } => {
            expressions.iter().any(|expr| expr.volatility() == Volatility::Volatile)
        }
        crate::plan::Node::Filter { condition, .. } => condition.volatility() == Volatility::Volatile,
        crate::plan::Node::Values(rows) => {
            rows.iter().flatten().any(|expr| expr.volatility() == Volatility::Volatile)
        }
        crate::plan::Node::FunctionScan(_) | crate::plan::Node::ProjectSet { .. } => true,
        _ => false,
    };
    own || plan.inputs().into_iter().any(is_volatile)
}

/// Which way the parts of a packed key sort when only equality matters.
pub(super) const EQUALITY: &[KeyPart] = &[];
