//! Logical plans: what the binder makes of a query, and what the rules of `optimize` rewrite.
//!
//! Invariants:
//! - Columns are named by ids that are unique in the statement, so that a rule may move a node without renaming what it
//!   reads. [`Columns`] knows each id's name and type.
//! - A column that is read and not made below is *free*: the query is correlated with a query around it.
//!
//! Not here: access paths and strategies (`lower`).

use std::{collections::BTreeSet, sync::Arc};

use model::{
    Type,
    id::{ColumnNumber, IndexId},
    schema::Table,
};

use super::{AggregateCall, JoinKind, LockWait, RowRules, ScanColumn, SetExpr, SetKind, WindowCall};
use crate::expr::{Expr, Kind, Query, SortKey, SubqueryKind};

/// What is known of every column id of a statement.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    all: Vec<ColumnInfo>,
}

/// What is known of a column id.
#[derive(Clone, Debug)]
pub struct ColumnInfo {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The type's modifier.
    pub typmod: i32,
    /// The table and column number it comes from.
    pub origin: Option<(u32, u16)>,
}

impl Columns {
    /// A new id.
    pub fn add(&mut self, name: impl Into<String>, ty: Type, typmod: i32) -> usize {
        self.all.push(ColumnInfo { name: name.into(), ty, typmod, origin: None });
        self.all.len() - 1
    }

    /// A new id for a column of a table.
    pub fn add_with_origin(&mut self, name: &str, ty: Type, typmod: i32, origin: (u32, u16)) -> usize {
        self.all.push(ColumnInfo { name: name.to_owned(), ty, typmod, origin: Some(origin) });
        self.all.len() - 1
    }

    /// What is known of an id.
    pub fn get(&self, id: usize) -> &ColumnInfo {
        &self.all[id]
    }

    /// To correct what is known.
    pub fn get_mut(&mut self, id: usize) -> &mut ColumnInfo {
        &mut self.all[id]
    }

    /// An expression that reads it.
    pub fn read(&self, id: usize) -> Expr {
        let info = self.get(id);
        Expr::column(id, info.ty, info.typmod)
    }
}

/// A node with everything below it.
#[derive(Clone, Debug)]
pub enum Logical {
    /// Rows written in the statement.
    Values {
        /// Ids.
        columns: Vec<usize>,
        /// One list per row.
        rows: Vec<Vec<Expr>>,
    },
    /// No rows.
    Empty {
        /// Ids.
        columns: Vec<usize>,
    },
    /// A table.
    Scan(Scan),
    /// A system relation.
    SystemScan {
        /// Which.
        relation: &'static crate::pg_catalog::Relation,
        /// Its name here.
        alias: String,
        /// Id and place of each column.
        columns: Vec<(usize, usize)>,
    },
    /// Set-returning functions side by side.
    FunctionScan {
        /// The calls.
        calls: Vec<SetExpr>,
        /// One more column.
        ordinality: bool,
        /// Ids.
        columns: Vec<usize>,
    },
    /// Rows for which a condition is true.
    Filter {
        /// Of what.
        input: Box<Logical>,
        /// A boolean.
        condition: Expr,
    },
    /// Other columns.
    Project {
        /// Of what.
        input: Box<Logical>,
        /// Id and value.
        items: Vec<(usize, Expr)>,
    },
    /// Other columns, some of which give many rows.
    ProjectSet {
        /// Of what.
        input: Box<Logical>,
        /// Id and values.
        items: Vec<(usize, SetExpr)>,
    },
    /// Pairs.
    Join(Join),
    /// Groups.
    Aggregate(Aggregate),
    /// Window functions.
    Window(Window),
    /// An order.
    Sort {
        /// Of what.
        input: Box<Logical>,
        /// By what.
        keys: Vec<SortKey>,
    },
    /// A part.
    Limit {
        /// Of what.
        input: Box<Logical>,
        /// How many.
        limit: Option<Expr>,
        /// After how many.
        offset: Option<Expr>,
        /// `WITH TIES`.
        ties: Option<Vec<SortKey>>,
    },
    /// Different rows.
    Distinct {
        /// Of what.
        input: Box<Logical>,
    },
    /// The first of each run.
    DistinctOn {
        /// Of what.
        input: Box<Logical>,
        /// By what.
        keys: Vec<Expr>,
    },
    /// UNION, INTERSECT, EXCEPT; columns correspond by place.
    SetOperation {
        /// Which.
        kind: SetKind,
        /// Duplicates count.
        all: bool,
        /// One side.
        left: Box<Logical>,
        /// The other.
        right: Box<Logical>,
        /// Ids.
        columns: Vec<usize>,
    },
    /// Common table expressions.
    With {
        /// In order.
        expressions: Vec<CommonTable>,
        /// What reads them.
        input: Box<Logical>,
    },
    /// A common table expression, read.
    CteScan {
        /// Which.
        id: usize,
        /// Id here, and place in the expression's output.
        columns: Vec<(usize, usize)>,
    },
    /// A recursion.
    Recursive {
        /// The working table.
        id: usize,
        /// First.
        initial: Box<Logical>,
        /// Then.
        recursive: Box<Logical>,
        /// Duplicates stay.
        all: bool,
        /// Ids.
        columns: Vec<usize>,
    },
    /// Rows to lock.
    LockRows {
        /// Of what.
        input: Box<Logical>,
        /// Of which tables.
        tables: Vec<RowLock>,
        /// What must still hold after a wait.
        condition: Option<Expr>,
    },
    /// INSERT.
    Insert(Box<Insert>),
    /// UPDATE.
    Update(Box<Update>),
    /// DELETE.
    Delete(Box<Delete>),
    /// MERGE.
    Merge(Box<Merge>),
}

/// A table, read.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The table.
    pub table: Arc<Table>,
    /// Its name here.
    pub alias: String,
    /// Id of each column.
    pub columns: Vec<(usize, ScanColumn)>,
}

/// Pairs of rows.
#[derive(Clone, Debug)]
pub struct Join {
    /// Which rows are given.
    pub kind: JoinKind,
    /// One side.
    pub left: Box<Logical>,
    /// The other; free columns that the left makes are LATERAL references.
    pub right: Box<Logical>,
    /// What must hold of a pair.
    pub on: Option<Expr>,
    /// For [`JoinKind::NullAwareAnti`]: the compared pair (of the left, of the right).
    pub null_aware: Option<(Expr, Expr)>,
}

/// Groups.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Of what.
    pub input: Box<Logical>,
    /// Id and value.
    pub groups: Vec<(usize, Expr)>,
    /// Grouping sets, by place.
    pub sets: Option<Vec<Vec<usize>>>,
    /// Id and call.
    pub aggregates: Vec<(usize, AggregateCall)>,
    /// Id and places.
    pub grouping: Vec<(usize, Vec<usize>)>,
}

/// Window functions over one partition and order.
#[derive(Clone, Debug)]
pub struct Window {
    /// Of what.
    pub input: Box<Logical>,
    /// `PARTITION BY`.
    pub partition: Vec<Expr>,
    /// `ORDER BY`.
    pub order: Vec<SortKey>,
    /// Id and call.
    pub calls: Vec<(usize, WindowCall)>,
}

/// A common table expression.
#[derive(Clone, Debug)]
pub struct CommonTable {
    /// Its number in the statement.
    pub id: usize,
    /// Its name.
    pub name: String,
    /// What it gives.
    pub plan: Logical,
    /// It changes rows.
    pub writes: bool,
    /// `MATERIALIZED` or not; none leaves it to the planner.
    pub materialized: Option<bool>,
}

/// Ids of partition, key and stored row of a row to lock or change.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// [`ScanColumn::Partition`].
    pub partition: usize,
    /// [`ScanColumn::Key`].
    pub key: usize,
    /// [`ScanColumn::Row`].
    pub row: usize,
}

/// Rows of one table to lock.
#[derive(Clone, Debug)]
pub struct RowLock {
    /// The table.
    pub table: Arc<Table>,
    /// Where they are.
    pub target: Target,
    /// Ids that were read from it.
    pub columns: Vec<(usize, ScanColumn)>,
    /// How.
    pub mode: model::port::LockMode,
    /// What if it is taken.
    pub wait: LockWait,
}

/// `DO UPDATE SET … WHERE …`.
pub type ConflictUpdate = (Vec<(ColumnNumber, Expr)>, Option<Expr>);

/// INSERT.
#[derive(Clone, Debug)]
pub struct Insert {
    /// Into what.
    pub table: Arc<Table>,
    /// One output column per column number.
    pub source: Logical,
    /// Over `row`.
    pub rules: RowRules,
    /// Ids by which rules, RETURNING and `excluded` name the new row, one per column number.
    pub row: Vec<usize>,
    /// Ids by which ON CONFLICT names the existing row.
    pub existing: Vec<usize>,
    /// What if a key is taken: indexes, and for DO UPDATE assignments over `existing` and `row`, and a condition.
    pub on_conflict: Option<(Vec<IndexId>, Option<ConflictUpdate>)>,
    /// `RETURNING`, over `row`.
    pub returning: Option<Vec<(usize, Expr)>>,
}

/// UPDATE.
#[derive(Clone, Debug)]
pub struct Update {
    /// Of what.
    pub table: Arc<Table>,
    /// The rows.
    pub source: Logical,
    /// Where they are.
    pub target: Target,
    /// Ids that name the old row, one per column number: what assignments and condition read.
    pub old: Vec<usize>,
    /// Ids that name the new row, for rules and RETURNING.
    pub new: Vec<usize>,
    /// New values, over `old` and the source.
    pub assignments: Vec<(ColumnNumber, Expr)>,
    /// What must still hold after a wait, over `old` and the source.
    pub condition: Option<Expr>,
    /// Over `new`.
    pub rules: RowRules,
    /// `RETURNING`, over `new` and the source.
    pub returning: Option<Vec<(usize, Expr)>>,
}

/// DELETE.
#[derive(Clone, Debug)]
pub struct Delete {
    /// Of what.
    pub table: Arc<Table>,
    /// The rows.
    pub source: Logical,
    /// Where they are.
    pub target: Target,
    /// Ids that name the old row, one per column number.
    pub old: Vec<usize>,
    /// What must still hold after a wait.
    pub condition: Option<Expr>,
    /// `RETURNING`, over `old` and the source.
    pub returning: Option<Vec<(usize, Expr)>>,
}

/// MERGE.
#[derive(Clone, Debug)]
pub struct Merge {
    /// Into what.
    pub table: Arc<Table>,
    /// Pairs.
    pub source: Logical,
    /// Where the target's row is, null if there is none.
    pub target: Target,
    /// Ids that name the old row.
    pub old: Vec<usize>,
    /// Ids that name the new row, for rules.
    pub new: Vec<usize>,
    /// In order; over `old` and the source.
    pub clauses: Vec<super::MergeClause>,
    /// Over `new`.
    pub rules: RowRules,
}

impl Logical {
    /// One row without columns.
    pub fn one_row() -> Self {
        Self::Values { columns: Vec::new(), rows: vec![Vec::new()] }
    }

    /// Whether it is exactly one row without columns.
    pub fn is_one_row(&self) -> bool {
        matches!(self, Self::Values { columns, rows } if columns.is_empty() && rows.len() == 1)
    }

    /// The ids of the columns it gives, in order.
    pub fn output(&self) -> Vec<usize> {
        match self {
            Self::Values { columns, .. }
            | Self::Empty { columns }
            | Self::FunctionScan { columns, .. }
            | Self::SetOperation { columns, .. }
            | Self::Recursive { columns, .. } => columns.clone(),
            Self::Scan(scan) => scan.columns.iter().map(|(id, _)| *id).collect(),
            Self::SystemScan { columns, .. } | Self::CteScan { columns, .. } => {
                columns.iter().map(|(id, _)| *id).collect()
            }
            Self::Filter { input, .. }
            | Self::Sort { input, .. }
            | Self::Limit { input, .. }
            | Self::Distinct { input }
            | Self::DistinctOn { input, .. }
            | Self::With { input, .. }
            | Self::LockRows { input, .. } => input.output(),
            Self::Project { items, .. } => items.iter().map(|(id, _)| *id).collect(),
            Self::ProjectSet { items, .. } => items.iter().map(|(id, _)| *id).collect(),
            Self::Join(join) => {
                let mut columns = join.left.output();
                if join.kind.gives_right() {
                    columns.extend(join.right.output());
                }
                columns
            }
            Self::Aggregate(aggregate) => aggregate
                .groups
                .iter()
                .map(|(id, _)| *id)
                .chain(aggregate.aggregates.iter().map(|(id, _)| *id))
                .chain(aggregate.grouping.iter().map(|(id, _)| *id))
                .collect(),
            Self::Window(window) => {
                let mut columns = window.input.output();
                columns.extend(window.calls.iter().map(|(id, _)| *id));
                columns
            }
            Self::Insert(insert) => returned(&insert.returning),
            Self::Update(update) => returned(&update.returning),
            Self::Delete(delete) => returned(&delete.returning),
            Self::Merge(_) => Vec::new(),
        }
    }

    /// The inputs, left before right.
    pub fn inputs(&self) -> Vec<&Logical> {
        match self {
            Self::Values { .. }
            | Self::Empty { .. }
            | Self::Scan(_)
            | Self::SystemScan { .. }
            | Self::FunctionScan { .. }
            | Self::CteScan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::Project { input, .. }
            | Self::ProjectSet { input, .. }
            | Self::Sort { input, .. }
            | Self::Limit { input, .. }
            | Self::Distinct { input }
            | Self::DistinctOn { input, .. }
            | Self::LockRows { input, .. } => vec![input],
            Self::Join(join) => vec![&join.left, &join.right],
            Self::SetOperation { left, right, .. }
            | Self::Recursive { initial: left, recursive: right, .. } => {
                vec![left, right]
            }
            Self::Aggregate(aggregate) => vec![&aggregate.input],
            Self::Window(window) => vec![&window.input],
            Self::With { expressions, input } => {
                expressions.iter().map(|common| &common.plan).chain([input.as_ref()]).collect()
            }
            Self::Insert(insert) => vec![&insert.source],
            Self::Update(update) => vec![&update.source],
            Self::Delete(delete) => vec![&delete.source],
            Self::Merge(merge) => vec![&merge.source],
        }
    }

    /// The inputs, to be changed in place.
    pub fn inputs_mut(&mut self) -> Vec<&mut Logical> {
        match self {
            Self::Values { .. }
            | Self::Empty { .. }
            | Self::Scan(_)
            | Self::SystemScan { .. }
            | Self::FunctionScan { .. }
            | Self::CteScan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::Project { input, .. }
            | Self::ProjectSet { input, .. }
            | Self::Sort { input, .. }
            | Self::Limit { input, .. }
            | Self::Distinct { input }
            | Self::DistinctOn { input, .. }
            | Self::LockRows { input, .. } => vec![input],
            Self::Join(join) => vec![&mut join.left, &mut join.right],
            Self::SetOperation { left, right, .. }
            | Self::Recursive { initial: left, recursive: right, .. } => {
                vec![left, right]
            }
            Self::Aggregate(aggregate) => vec![&mut aggregate.input],
            Self::Window(window) => vec![&mut window.input],
            Self::With { expressions, input } => {
                expressions.iter_mut().map(|common| &mut common.plan).chain([input.as_mut()]).collect()
            }
            Self::Insert(insert) => vec![&mut insert.source],
            Self::Update(update) => vec![&mut update.source],
            Self::Delete(delete) => vec![&mut delete.source],
            Self::Merge(merge) => vec![&mut merge.source],
        }
    }

    /// This plan and everything inside it, plans of sub-queries among them.
    pub fn for_each_inside(&self, visit: &mut dyn FnMut(&Logical)) {
        visit(self);
        self.for_each_expr(&mut |expr| {
            expr.any(&mut |expr| {
                if let Kind::Subquery(subquery) = &expr.kind
                    && let crate::expr::Query::Logical(query) = &subquery.query
                {
                    query.for_each_inside(visit);
                }
                false
            });
        });
        for input in self.inputs() {
            input.for_each_inside(visit);
        }
    }

    /// Calls `visit` on every expression of this node, not of its inputs.
    pub fn for_each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match self {
            Self::Values { rows, .. } => rows.iter().flatten().for_each(visit),
            Self::Empty { .. } | Self::Scan(_) | Self::SystemScan { .. } | Self::CteScan { .. } => {}
            Self::FunctionScan { calls, .. } => calls.iter().for_each(|call| call.for_each_expr(&mut *visit)),
            Self::Filter { condition, .. } => visit(condition),
            Self::Project { items, .. } => items.iter().for_each(|(_, value)| visit(value)),
            Self::ProjectSet { items, .. } => {
                items.iter().for_each(|(_, value)| value.for_each_expr(&mut *visit))
            }
            Self::Join(join) => {
                join.on.iter().for_each(&mut *visit);
                if let Some((left, right)) = &join.null_aware {
                    visit(left);
                    visit(right);
                }
            }
            Self::Aggregate(aggregate) => {
                aggregate.groups.iter().for_each(|(_, value)| visit(value));
                for (_, call) in &aggregate.aggregates {
                    call.arguments.iter().chain(&call.filter).for_each(&mut *visit);
                    call.order.iter().for_each(|key| visit(&key.value));
                }
            }
            Self::Window(window) => {
                window.partition.iter().for_each(&mut *visit);
                window.order.iter().for_each(|key| visit(&key.value));
                for (_, call) in &window.calls {
                    call.arguments.iter().chain(&call.filter).for_each(&mut *visit);
                    for bound in [&call.frame.start, &call.frame.end] {
                        if let super::Bound::Preceding(value) | super::Bound::Following(value) = bound {
                            visit(value);
                        }
                    }
                }
            }
            Self::Sort { keys, .. } => keys.iter().for_each(|key| visit(&key.value)),
            Self::Limit { limit, offset, ties, .. } => {
                limit.iter().chain(offset).for_each(&mut *visit);
                ties.iter().flatten().for_each(|key| visit(&key.value));
            }
            Self::Distinct { .. }
            | Self::SetOperation { .. }
            | Self::With { .. }
            | Self::Recursive { .. } => {}
            Self::DistinctOn { keys, .. } => keys.iter().for_each(visit),
            Self::LockRows { condition, .. } => condition.iter().for_each(visit),
            Self::Insert(insert) => {
                insert.rules.for_each_expr(&mut *visit);
                if let Some((_, Some((assignments, condition)))) = &insert.on_conflict {
                    assignments.iter().for_each(|(_, value)| visit(value));
                    condition.iter().for_each(&mut *visit);
                }
                insert.returning.iter().flatten().for_each(|(_, value)| visit(value));
            }
            Self::Update(update) => {
                update.rules.for_each_expr(&mut *visit);
                update.assignments.iter().for_each(|(_, value)| visit(value));
                update.condition.iter().for_each(&mut *visit);
                update.returning.iter().flatten().for_each(|(_, value)| visit(value));
            }
            Self::Delete(delete) => {
                delete.condition.iter().for_each(&mut *visit);
                delete.returning.iter().flatten().for_each(|(_, value)| visit(value));
            }
            Self::Merge(merge) => {
                merge.rules.for_each_expr(&mut *visit);
                for clause in &merge.clauses {
                    clause.condition.iter().for_each(&mut *visit);
                    match &clause.action {
                        super::MergeAction::Nothing | super::MergeAction::Delete => {}
                        super::MergeAction::Update(list) => list.iter().for_each(|(_, value)| visit(value)),
                        super::MergeAction::Insert(list) => list.iter().for_each(&mut *visit),
                    }
                }
            }
        }
    }

    /// As [`Logical::for_each_expr`], to change them in place.
    pub fn for_each_expr_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match self {
            Self::Values { rows, .. } => rows.iter_mut().flatten().for_each(visit),
            Self::Empty { .. } | Self::Scan(_) | Self::SystemScan { .. } | Self::CteScan { .. } => {}
            Self::FunctionScan { calls, .. } => {
                calls.iter_mut().for_each(|call| call.for_each_expr_mut(&mut *visit))
            }
            Self::Filter { condition, .. } => visit(condition),
            Self::Project { items, .. } => items.iter_mut().for_each(|(_, value)| visit(value)),
            Self::ProjectSet { items, .. } => {
                items.iter_mut().for_each(|(_, value)| value.for_each_expr_mut(&mut *visit));
            }
            Self::Join(join) => {
                join.on.iter_mut().for_each(&mut *visit);
                if let Some((left, right)) = &mut join.null_aware {
                    visit(left);
                    visit(right);
                }
            }
            Self::Aggregate(aggregate) => {
                aggregate.groups.iter_mut().for_each(|(_, value)| visit(value));
                for (_, call) in &mut aggregate.aggregates {
                    call.arguments.iter_mut().chain(&mut call.filter).for_each(&mut *visit);
                    call.order.iter_mut().for_each(|key| visit(&mut key.value));
                }
            }
            Self::Window(window) => {
                window.partition.iter_mut().for_each(&mut *visit);
                window.order.iter_mut().for_each(|key| visit(&mut key.value));
                for (_, call) in &mut window.calls {
                    call.arguments.iter_mut().chain(&mut call.filter).for_each(&mut *visit);
                    for bound in [&mut call.frame.start, &mut call.frame.end] {
                        if let super::Bound::Preceding(value) | super::Bound::Following(value) = bound {
                            visit(value);
                        }
                    }
                }
            }
            Self::Sort { keys, .. } => keys.iter_mut().for_each(|key| visit(&mut key.value)),
            Self::Limit { limit, offset, ties, .. } => {
                limit.iter_mut().chain(offset).for_each(&mut *visit);
                ties.iter_mut().flatten().for_each(|key| visit(&mut key.value));
            }
            Self::Distinct { .. }
            | Self::SetOperation { .. }
            | Self::With { .. }
            | Self::Recursive { .. } => {}
            Self::DistinctOn { keys, .. } => keys.iter_mut().for_each(visit),
            Self::LockRows { condition, .. } => condition.iter_mut().for_each(visit),
            Self::Insert(insert) => {
                insert.rules.for_each_expr_mut(&mut *visit);
                if let Some((_, Some((assignments, condition)))) = &mut insert.on_conflict {
                    assignments.iter_mut().for_each(|(_, value)| visit(value));
                    condition.iter_mut().for_each(&mut *visit);
                }
                insert.returning.iter_mut().flatten().for_each(|(_, value)| visit(value));
            }
            Self::Update(update) => {
                update.rules.for_each_expr_mut(&mut *visit);
                update.assignments.iter_mut().for_each(|(_, value)| visit(value));
                update.condition.iter_mut().for_each(&mut *visit);
                update.returning.iter_mut().flatten().for_each(|(_, value)| visit(value));
            }
            Self::Delete(delete) => {
                delete.condition.iter_mut().for_each(&mut *visit);
                delete.returning.iter_mut().flatten().for_each(|(_, value)| visit(value));
            }
            Self::Merge(merge) => {
                merge.rules.for_each_expr_mut(&mut *visit);
                for clause in &mut merge.clauses {
                    clause.condition.iter_mut().for_each(&mut *visit);
                    match &mut clause.action {
                        super::MergeAction::Nothing | super::MergeAction::Delete => {}
                        super::MergeAction::Update(list) => {
                            list.iter_mut().for_each(|(_, value)| visit(value))
                        }
                        super::MergeAction::Insert(list) => list.iter_mut().for_each(&mut *visit),
                    }
                }
            }
        }
    }

    /// The columns that are read inside and not made inside.
    pub fn free(&self) -> BTreeSet<usize> {
        let mut read = BTreeSet::new();
        let mut made = BTreeSet::new();
        self.collect(&mut read, &mut made);
        read.difference(&made).copied().collect()
    }

    fn collect(&self, read: &mut BTreeSet<usize>, made: &mut BTreeSet<usize>) {
        made.extend(self.output());
        match self {
            Self::Insert(insert) => made.extend(insert.row.iter().chain(&insert.existing)),
            Self::Update(update) => made.extend(update.old.iter().chain(&update.new)),
            Self::Delete(delete) => made.extend(&delete.old),
            Self::Merge(merge) => made.extend(merge.old.iter().chain(&merge.new)),
            Self::LockRows { .. } | Self::Join(_) => {}
            _ => {}
        }
        self.for_each_expr(&mut |expr| read_columns(expr, read));
        for input in self.inputs() {
            input.collect(read, made);
        }
    }
}

/// The column ids an expression reads, those of correlated sub-queries inside it too.
pub fn read_columns(expr: &Expr, into: &mut BTreeSet<usize>) {
    match &expr.kind {
        Kind::Column(id) => {
            into.insert(*id);
        }
        Kind::Subquery(subquery) => {
            if let Query::Logical(query) = &subquery.query {
                into.extend(query.free());
            }
            if let SubqueryKind::Compare { left, .. } = &subquery.kind {
                left.iter().for_each(|expr| read_columns(expr, into));
            }
        }
        _ => expr.for_each_child(&mut |child| read_columns(child, into)),
    }
}

fn returned(returning: &Option<Vec<(usize, Expr)>>) -> Vec<usize> {
    returning.iter().flatten().map(|(id, _)| *id).collect()
}

impl SetExpr {
    /// Calls `visit` on its expressions.
    pub fn for_each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match self {
            Self::Scalar(value) => visit(value),
            Self::Set { arguments, .. } => arguments.iter().for_each(visit),
        }
    }

    /// As [`SetExpr::for_each_expr`], to change them in place.
    pub fn for_each_expr_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match self {
            Self::Scalar(value) => visit(value),
            Self::Set { arguments, .. } => arguments.iter_mut().for_each(visit),
        }
    }
}

impl RowRules {
    /// Calls `visit` on its expressions.
    pub fn for_each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        self.generated.iter().for_each(|(_, value)| visit(value));
        self.checks.iter().for_each(|(_, value)| visit(value));
    }

    /// As [`RowRules::for_each_expr`], to change them in place.
    pub fn for_each_expr_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        self.generated.iter_mut().for_each(|(_, value)| visit(value));
        self.checks.iter_mut().for_each(|(_, value)| visit(value));
    }
}
