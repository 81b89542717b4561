//! Plans: what `execute` runs. A tree of nodes; each says which columns it gives.
//!
//! Invariants:
//! - A [`Plan`] is immutable and holds no values of parameters: one plan serves many executions, of many sessions.
//! - Expressions name columns of their node's input by position. Where a node has two inputs, the columns of the right
//!   follow those of the left. What a correlated plan takes from outside stands in [`crate::expr::Kind::Outer`].
//! - A node that changes rows names the positions of key and stored row in its source's output; the new row is made from
//!   the stored row, so that it can be made again after waiting for a lock.
//!
//! Not here: what was bound (`logical`), how it is chosen (`lower`, `optimize`), how it is run (`execute`, `dml`).

use std::sync::Arc;

use model::{
    Type,
    id::{ColumnNumber, IndexId},
    port::LockMode,
    schema::Table,
};

use crate::{
    expr::{Expr, SortKey},
    functions::Function,
};

pub(crate) mod access;
pub mod logical;
pub(crate) mod lower;

/// One node of a plan with everything below it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its number in the statement's plan, for statistics of EXPLAIN ANALYZE.
    pub id: usize,
    /// What it does.
    pub node: Node,
    /// The columns it gives.
    pub columns: Arc<[Column]>,
    /// How many rows are expected.
    pub rows: f64,
    /// What it is expected to cost, in rows read, its inputs included.
    pub cost: f64,
}

/// A column that a node gives.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name, for EXPLAIN and for results.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The type's modifier; -1 for none.
    pub typmod: i32,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Node {
    /// Rows written in the statement; one row without columns for `SELECT 1`. Expressions have no input.
    Values(Vec<Vec<Expr>>),
    /// Rows of a table.
    Scan(Scan),
    /// Rows of a system relation (`pg_catalog`, `information_schema`).
    SystemScan(SystemScan),
    /// Rows of set-returning functions side by side.
    FunctionScan(FunctionScan),
    /// The exact number of rows of a table, one int8, from its counter.
    CountRows {
        /// The table.
        table: Arc<Table>,
        /// Where.
        partitions: Partitions,
    },
    /// The rows for which a condition is true.
    Filter {
        /// Of what.
        input: Box<Plan>,
        /// A boolean.
        condition: Expr,
    },
    /// Other columns for each row.
    Project {
        /// Of what.
        input: Box<Plan>,
        /// One per column.
        expressions: Vec<Expr>,
    },
    /// Other columns for each row, some of which give many rows (`SELECT generate_series(1, 3)`): the longest decides,
    /// the others are null once they are exhausted; no rows if all are empty.
    ProjectSet {
        /// Of what.
        input: Box<Plan>,
        /// One per column.
        expressions: Vec<SetExpr>,
    },
    /// Pairs of rows.
    Join(Join),
    /// For each row of the left, the rows of the right run with values of that row.
    Apply(Apply),
    /// Groups.
    Aggregate(Aggregate),
    /// Window functions: the input's columns, then one per call. All calls share partition and order.
    Window(Window),
    /// All rows in an order (stable).
    Sort {
        /// Of what.
        input: Box<Plan>,
        /// By what.
        keys: Vec<SortKey>,
    },
    /// The first rows of an order.
    TopN {
        /// Of what.
        input: Box<Plan>,
        /// By what.
        keys: Vec<SortKey>,
        /// How many, int8, without input; null for all.
        limit: Expr,
        /// After how many.
        offset: Option<Expr>,
    },
    /// A part of the rows.
    Limit {
        /// Of what.
        input: Box<Plan>,
        /// How many, int8, without input; none or null for all; negative is `2201W`.
        limit: Option<Expr>,
        /// After how many; negative is `2201X`.
        offset: Option<Expr>,
        /// `WITH TIES`: the input's order, whose last place may be shared.
        ties: Option<Vec<SortKey>>,
    },
    /// Rows that differ, by their types' equality, null equal to null.
    Distinct {
        /// Of what.
        input: Box<Plan>,
    },
    /// The first row of each run of rows that agree in `keys`; the input is ordered by them.
    DistinctOn {
        /// Of what.
        input: Box<Plan>,
        /// By what.
        keys: Vec<Expr>,
    },
    /// UNION, INTERSECT, EXCEPT.
    SetOperation {
        /// Which.
        kind: SetKind,
        /// Duplicates count (for UNION: are kept).
        all: bool,
        /// One side.
        left: Box<Plan>,
        /// The other.
        right: Box<Plan>,
    },
    /// Common table expressions that are computed once, and the plan that reads them. Those that change rows are run to
    /// their end whether or not they are read.
    With {
        /// In order; a later one may read earlier ones.
        expressions: Vec<CommonTable>,
        /// The plan.
        input: Box<Plan>,
    },
    /// Reads a common table expression, or the working table of a recursion.
    CteScan {
        /// Which.
        id: usize,
    },
    /// `initial`, then `recursive` again and again, each time reading what the last round gave as `CteScan` of `id`.
    Recursive {
        /// The working table.
        id: usize,
        /// First.
        initial: Box<Plan>,
        /// Then.
        recursive: Box<Plan>,
        /// UNION ALL; else rows that were given before are left out.
        all: bool,
    },
    /// Locks the rows that pass through.
    LockRows(LockRows),
    /// Adds rows.
    Insert(Insert),
    /// Changes rows.
    Update(Update),
    /// Removes rows.
    Delete(Delete),
    /// MERGE.
    Merge(Merge),
}

/// Rows of a table.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The table, as it was planned.
    pub table: Arc<Table>,
    /// The name it goes by.
    pub alias: String,
    /// In which partitions.
    pub partitions: Partitions,
    /// Which rows are looked at, in which order.
    pub access: Access,
    /// Backwards.
    pub reverse: bool,
    /// What is given.
    pub columns: Vec<ScanColumn>,
    /// Which rows are given: a condition over `columns`.
    pub filter: Option<Expr>,
    /// The order of access is relied on: partitions and pages may not be interleaved.
    pub ordered: bool,
}

/// In which partitions a table is read or written.
#[derive(Clone, Debug)]
pub enum Partitions {
    /// Its schema's default partition: the table has no `PARTITION BY`.
    Default,
    /// The one with these values of the partition columns (no input).
    One(Vec<Expr>),
    /// All of them.
    All,
}

/// Which rows of a table are looked at.
#[derive(Clone, Debug)]
pub enum Access {
    /// All, in the order of the primary key, or of `index`.
    Full {
        /// None for the primary key's order.
        index: Option<IndexId>,
    },
    /// A range of the primary key or of an index.
    Range {
        /// None for the primary key.
        index: Option<IndexId>,
        /// Which part.
        range: KeyRange,
    },
    /// Rows by whole keys of the primary key or of an index; a key with a null finds nothing, a key twice is read once.
    Keys {
        /// None for the primary key.
        index: Option<IndexId>,
        /// The keys.
        keys: Keys,
    },
}

/// A range of keys. Expressions have no input and have the types of the key's columns; a null finds nothing.
#[derive(Clone, Debug, Default)]
pub struct KeyRange {
    /// Values of the first columns of the key.
    pub prefix: Vec<Expr>,
    /// The next column is null (`IS NULL`), or is not null where `false`.
    pub null: Option<bool>,
    /// The lowest value of the next column, and whether it belongs to the range.
    pub lower: Option<(Expr, bool)>,
    /// The highest value of the next column, and whether it belongs to the range.
    pub upper: Option<(Expr, bool)>,
}

/// Whole keys.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Written one by one.
    List(Vec<Vec<Expr>>),
    /// A prefix, and an array of values of the last column.
    Array {
        /// Values of all columns but the last.
        prefix: Vec<Expr>,
        /// The values of the last.
        array: Expr,
    },
}

/// What a scan gives of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScanColumn {
    /// A column.
    Column(ColumnNumber),
    /// Whether a column is null: its values are not looked at.
    Presence(ColumnNumber),
    /// `_revision`, int8.
    Revision,
    /// `_updated_at`, timestamptz.
    UpdatedAt,
    /// `tableoid`, oid.
    TableOid,
    /// The partition's canonical bytes, bytea; hidden.
    Partition,
    /// The row's key inside the table, bytea; hidden.
    Key,
    /// The stored row, bytea; hidden.
    Row,
}

/// Rows of a system relation.
#[derive(Clone, Debug)]
pub struct SystemScan {
    /// Which.
    pub relation: &'static crate::pg_catalog::Relation,
    /// The name it goes by.
    pub alias: String,
    /// Which of its columns are given, by place.
    pub columns: Vec<usize>,
    /// Which rows are given: a condition over `columns`.
    pub filter: Option<Expr>,
}

/// Rows of set-returning functions side by side (`ROWS FROM`); shorter ones are filled with nulls.
#[derive(Clone, Debug)]
pub struct FunctionScan {
    /// The calls; a scalar function gives one row. Arguments have no input.
    pub calls: Vec<SetExpr>,
    /// `WITH ORDINALITY`: one more int8 column.
    pub ordinality: bool,
}

/// An expression that gives one value, or rows.
#[derive(Clone, Debug)]
pub enum SetExpr {
    /// One value.
    Scalar(Expr),
    /// A set-returning function. As a select item it gives its only column (a record if it has several); in FROM its
    /// columns.
    Set {
        /// The function.
        function: &'static Function,
        /// Its arguments.
        arguments: Vec<Expr>,
        /// The type of each column.
        types: Vec<Type>,
    },
}

/// Pairs of rows of two inputs.
#[derive(Clone, Debug)]
pub struct Join {
    /// Which rows are given.
    pub kind: JoinKind,
    /// How pairs are found.
    pub strategy: Strategy,
    /// The left input (the probe side of a hash join).
    pub left: Box<Plan>,
    /// The right input (the build side).
    pub right: Box<Plan>,
    /// What must be equal: over the left's columns, over the right's columns, of one type (integers of any width count
    /// as one type); null equals nothing. Never empty for hash and merge.
    pub keys: Vec<(Expr, Expr)>,
    /// What else must hold of a pair, over the columns of both.
    pub residual: Option<Expr>,
}

/// Which rows a join gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and rows of the left without a partner.
    Left,
    /// Pairs, and rows of the right without a partner.
    Right,
    /// Pairs, and rows without a partner of both sides.
    Full,
    /// Rows of the left with a partner; the left's columns only.
    Semi,
    /// Rows of the left without a partner; the left's columns only.
    Anti,
    /// `NOT IN`: as [`JoinKind::Anti`], but a null among the keys of either side counts as a possible partner: a row of the
    /// left whose key is null is given only if the right is empty, and a null key on the right leaves no row. With a
    /// residual, only rows of the right for which it holds count. One key.
    NullAwareAnti,
    /// The left's rows with the right's only row, nulls if there is none; `21000` if there are several.
    Single,
}

impl JoinKind {
    /// Whether the right's columns are given.
    pub fn gives_right(self) -> bool {
        match self {
            Self::Inner | Self::Left | Self::Right | Self::Full | Self::Single => true,
            Self::Semi | Self::Anti | Self::NullAwareAnti => false,
        }
    }
}

/// How pairs are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// A hash table of the right.
    Hash,
    /// Every pair is looked at.
    Nested,
    /// Both sides are ordered by the keys, ascending, nulls last.
    Merge,
}

/// The right run once per row of the left.
#[derive(Clone, Debug)]
pub struct Apply {
    /// Inner, Left, Semi, Anti or Single.
    pub kind: JoinKind,
    /// The left.
    pub left: Box<Plan>,
    /// The right; it takes `outer` in its [`crate::expr::Kind::Outer`] places.
    pub right: Box<Plan>,
    /// Over the left's columns; or `Outer` of the plan around.
    pub outer: Vec<Expr>,
    /// What else must hold of a pair.
    pub residual: Option<Expr>,
}

/// Groups and their aggregates. Gives the groups, the aggregates, then one int4 per call of `grouping()`.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Of what.
    pub input: Box<Plan>,
    /// What is equal in a group. None and no sets: one group, even without rows.
    pub groups: Vec<Expr>,
    /// Grouping sets, by places in `groups`; others are null. None: one set of all.
    pub sets: Option<Vec<Vec<usize>>>,
    /// The aggregates.
    pub aggregates: Vec<AggregateCall>,
    /// `grouping(…)`: the groups it asks for, first is the highest bit.
    pub grouping: Vec<Vec<usize>>,
    /// The input is ordered by the groups.
    pub ordered: bool,
}

/// A call of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The function.
    pub function: &'static Function,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// Each combination of arguments once.
    pub distinct: bool,
    /// `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// `ORDER BY` inside the call, or `WITHIN GROUP`.
    pub order: Vec<SortKey>,
    /// What it gives.
    pub ty: Type,
}

/// Window functions over one partition and order.
#[derive(Clone, Debug)]
pub struct Window {
    /// Of what; need not be ordered.
    pub input: Box<Plan>,
    /// `PARTITION BY`.
    pub partition: Vec<Expr>,
    /// `ORDER BY`.
    pub order: Vec<SortKey>,
    /// The calls.
    pub calls: Vec<WindowCall>,
}

/// A call of a window function, or of an aggregate over a window.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// The function.
    pub function: &'static Function,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// Which rows it sees.
    pub frame: Frame,
    /// What it gives.
    pub ty: Type,
}

/// Which rows around the current one a window function sees.
#[derive(Clone, Debug)]
pub struct Frame {
    /// How distances are counted.
    pub unit: FrameUnit,
    /// From here.
    pub start: Bound,
    /// To here.
    pub end: Bound,
    /// What is left out.
    pub exclude: Exclude,
}

/// How a frame counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameUnit {
    /// In values of the only order key.
    Range,
    /// In rows.
    Rows,
    /// In groups of rows equal in order.
    Groups,
}

/// An end of a frame.
#[derive(Clone, Debug)]
pub enum Bound {
    /// The partition's first row.
    UnboundedPreceding,
    /// So far before; without input.
    Preceding(Expr),
    /// The current row (with its peers, except for ROWS).
    CurrentRow,
    /// So far after; without input.
    Following(Expr),
    /// The partition's last row.
    UnboundedFollowing,
}

/// What a frame leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exclude {
    /// Nothing.
    NoOthers,
    /// The current row.
    CurrentRow,
    /// The current row and its peers.
    Group,
    /// The peers, not the current row.
    Ties,
}

/// UNION, INTERSECT, EXCEPT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetKind {
    /// Rows of either.
    Union,
    /// Rows of both.
    Intersect,
    /// Rows of the left that are not in the right.
    Except,
}

/// A common table expression.
#[derive(Clone, Debug)]
pub struct CommonTable {
    /// Its number in the statement.
    pub id: usize,
    /// Its name, for EXPLAIN.
    pub name: String,
    /// What it gives.
    pub plan: Plan,
    /// It changes rows, and runs to its end in any case.
    pub writes: bool,
}

/// Locks the rows that pass through. Gives the input's columns.
#[derive(Clone, Debug)]
pub struct LockRows {
    /// Of what.
    pub input: Box<Plan>,
    /// Which rows of which tables; a null key (outer join) locks nothing.
    pub tables: Vec<RowLock>,
    /// What must still hold after a wait, over the input's columns made new from the row as it is then.
    pub condition: Option<Expr>,
}

/// Rows of one table to lock.
#[derive(Clone, Debug)]
pub struct RowLock {
    /// The table.
    pub table: Arc<Table>,
    /// Where its row's partition, key and stored row stand in the input.
    pub target: Target,
    /// Which columns of the input came from it, to be read again after a wait.
    pub columns: Vec<(usize, ScanColumn)>,
    /// How.
    pub mode: LockMode,
    /// What if it is taken.
    pub wait: LockWait,
}

/// What to do with a row that another transaction has locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    /// Wait up to `lock_timeout`.
    Wait,
    /// `NOWAIT`.
    Never,
    /// `SKIP LOCKED`.
    Skip,
}

/// Where a row to change stands in the source's output: positions of its partition, key and stored row.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// [`ScanColumn::Partition`].
    pub partition: usize,
    /// [`ScanColumn::Key`].
    pub key: usize,
    /// [`ScanColumn::Row`].
    pub row: usize,
}

/// What a new row of a table must go through. Expressions are over the whole row: column n at position n - 1, dropped and
/// hidden ones too.
#[derive(Clone, Debug)]
pub struct RowRules {
    /// Generated and hidden columns in order of computation.
    pub generated: Vec<(ColumnNumber, Expr)>,
    /// CHECK constraints: refused with `23514` where false.
    pub checks: Vec<(String, Expr)>,
}

/// Adds rows.
#[derive(Clone, Debug)]
pub struct Insert {
    /// Into what.
    pub table: Arc<Table>,
    /// Gives one column per column number of the table, of its type, defaults filled in; null where the column is
    /// dropped, hidden or generated.
    pub source: Box<Plan>,
    /// What each row goes through.
    pub rules: RowRules,
    /// What if a key is taken.
    pub on_conflict: Option<OnConflict>,
    /// `RETURNING`: over the new row (column n at position n - 1).
    pub returning: Option<Vec<Expr>>,
}

/// `ON CONFLICT`.
#[derive(Clone, Debug)]
pub struct OnConflict {
    /// The unique indexes that are meant, the primary key's too; all of them for an empty list.
    pub indexes: Vec<IndexId>,
    /// What is done.
    pub action: ConflictAction,
}

/// What is done with the row that holds the key.
#[derive(Clone, Debug)]
pub enum ConflictAction {
    /// Nothing; the new row is left out.
    Nothing,
    /// It is changed.
    Update {
        /// New values: over the existing row (column n at position n - 1), then `excluded` (column n at position
        /// columns + n - 1).
        assignments: Vec<(ColumnNumber, Expr)>,
        /// Only if this is true, over the same.
        condition: Option<Expr>,
    },
}

/// Changes rows. Expressions are over the old row (column n at position n - 1), then the source's columns.
#[derive(Clone, Debug)]
pub struct Update {
    /// Of what.
    pub table: Arc<Table>,
    /// Gives the rows to change; a row given twice is changed once, the first decides.
    pub source: Box<Plan>,
    /// Where they stand.
    pub target: Target,
    /// New values of columns.
    pub assignments: Vec<(ColumnNumber, Expr)>,
    /// What must still hold of the row after waiting for its lock.
    pub condition: Option<Expr>,
    /// What each new row goes through.
    pub rules: RowRules,
    /// `RETURNING`: over the new row (column n at position n - 1), then the source's columns.
    pub returning: Option<Vec<Expr>>,
}

/// Removes rows. Expressions are over the old row (column n at position n - 1), then the source's columns.
#[derive(Clone, Debug)]
pub struct Delete {
    /// Of what.
    pub table: Arc<Table>,
    /// Gives the rows to remove; a row given twice is removed once.
    pub source: Box<Plan>,
    /// Where they stand.
    pub target: Target,
    /// What must still hold of the row after waiting for its lock.
    pub condition: Option<Expr>,
    /// `RETURNING`: over the old row, then the source's columns.
    pub returning: Option<Vec<Expr>>,
}

/// MERGE: the source is the data joined to the target, whose key is null where there is no match.
#[derive(Clone, Debug)]
pub struct Merge {
    /// Into what.
    pub table: Arc<Table>,
    /// Gives pairs.
    pub source: Box<Plan>,
    /// Where the target's row stands, null for `NOT MATCHED`.
    pub target: Target,
    /// In order; the first that fits is done.
    pub clauses: Vec<MergeClause>,
    /// What each new row goes through.
    pub rules: RowRules,
}

/// `WHEN [NOT] MATCHED [AND condition] THEN …`. Expressions are over the target's row (column n at position n - 1, null if
/// not matched), then the source's columns.
#[derive(Clone, Debug)]
pub struct MergeClause {
    /// `WHEN MATCHED`.
    pub matched: bool,
    /// `AND condition`.
    pub condition: Option<Expr>,
    /// What is done.
    pub action: MergeAction,
}

/// What a clause of MERGE does.
#[derive(Clone, Debug)]
pub enum MergeAction {
    /// `DO NOTHING`.
    Nothing,
    /// `UPDATE SET`.
    Update(Vec<(ColumnNumber, Expr)>),
    /// `DELETE`.
    Delete,
    /// `INSERT`: one value per column number of the table.
    Insert(Vec<Expr>),
}

impl Plan {
    /// The inputs, left before right.
    pub fn inputs(&self) -> Vec<&Plan> {
        match &self.node {
            Node::Values(_)
            | Node::Scan(_)
            | Node::SystemScan(_)
            | Node::FunctionScan(_)
            | Node::CountRows { .. }
            | Node::CteScan { .. } => Vec::new(),
            Node::Filter { input, .. }
            | Node::Project { input, .. }
            | Node::ProjectSet { input, .. }
            | Node::Sort { input, .. }
            | Node::TopN { input, .. }
            | Node::Limit { input, .. }
            | Node::Distinct { input }
            | Node::DistinctOn { input, .. } => vec![input],
            Node::Join(Join { left, right, .. })
            | Node::Apply(Apply { left, right, .. })
            | Node::SetOperation { left, right, .. }
            | Node::Recursive { initial: left, recursive: right, .. } => vec![left, right],
            Node::Aggregate(Aggregate { input, .. })
            | Node::Window(Window { input, .. })
            | Node::LockRows(LockRows { input, .. })
            | Node::Insert(Insert { source: input, .. })
            | Node::Update(Update { source: input, .. })
            | Node::Delete(Delete { source: input, .. })
            | Node::Merge(Merge { source: input, .. }) => vec![input],
            Node::With { expressions, input } => {
                expressions.iter().map(|common| &common.plan).chain([input.as_ref()]).collect()
            }
        }
    }
}
