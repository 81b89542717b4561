//! Descriptors: what a table, index, sequence or view is, as the control group decided it.
//!
//! Invariants:
//! - A column keeps its number for ever; a dropped column stays in the list, so that stored rows keep their meaning.
//! - Index parts, partial predicates and partition columns name column numbers. Expressions of any kind are text in SQL
//!   that only `sql` reads; what `apply` needs of them lies in hidden columns.
//! - A descriptor's `version` grows with each change; a shard applies a command only under a descriptor it holds.

use crate::{
    id::{ColumnNumber, DatabaseId, IndexId, RoleId, SchemaId, SequenceId, SessionId, TableId},
    key::KeyPart,
    types::{Type, Typmod},
    value::Value,
};

/// A database.
#[derive(Clone, PartialEq, Debug)]
pub struct Database {
    /// Its id.
    pub id: DatabaseId,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owner: RoleId,
    /// `COMMENT ON`.
    pub comment: Option<String>,
}

/// A schema: a namespace and a transaction domain.
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    /// Its id.
    pub id: SchemaId,
    /// The database it is in.
    pub database: DatabaseId,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owner: RoleId,
    /// `COMMENT ON`.
    pub comment: Option<String>,
}

/// A table, or a collection of documents.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Its id, also its OID.
    pub id: TableId,
    /// The database it is in.
    pub database: DatabaseId,
    /// The schema it is in.
    pub schema: SchemaId,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owner: RoleId,
    /// What kind of rows it holds.
    pub kind: Kind,
    /// Grows with each change of this descriptor.
    pub version: u64,
    /// All columns ever, by number: `columns[n - 1].number == n`.
    pub columns: Vec<Column>,
    /// The index that is the rows' own key; without one, rows are keyed by a hidden row id (see [`Table::key`]). It is the
    /// PRIMARY KEY's, unless that was added when rows were there already (see [`Table::declared_key`]).
    pub primary_key: Option<IndexId>,
    /// The indexes, the primary key's among them.
    pub indexes: Vec<Index>,
    /// The columns of `PARTITION BY HASH`; empty for a table in its schema's default partition.
    pub partition_by: Vec<ColumnNumber>,
    /// CHECK constraints.
    pub checks: Vec<Check>,
    /// FOREIGN KEY constraints.
    pub foreign_keys: Vec<ForeignKey>,
    /// Whether changes are put into the partition's feed.
    pub feed: bool,
    /// A temporary table: the session that alone may name it, and with which it ends.
    pub temporary: Option<SessionId>,
    /// `COMMENT ON`.
    pub comment: Option<String>,
}

/// What a table's rows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Rows of columns.
    Table,
    /// Documents: `(id text primary key, doc jsonb)`.
    Collection,
}

/// A column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its number, 1-based.
    pub number: ColumnNumber,
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: Type,
    /// The type's modifier.
    pub typmod: Typmod,
    /// NOT NULL.
    pub not_null: bool,
    /// What fills it when nothing is given.
    pub default: Option<ColumnDefault>,
    /// What rows written before the column existed have in it; none for null.
    pub missing: Option<Value>,
    /// Computed by `sql`, kept for indexes; not selectable.
    pub hidden: bool,
    /// Dropped: its number is used up.
    pub dropped: bool,
    /// Its place among the columns where that is not its number: it took the place of a column of another type.
    pub moved: Option<ColumnNumber>,
    /// `COMMENT ON`.
    pub comment: Option<String>,
}

/// What fills a column.
#[derive(Clone, PartialEq, Debug)]
pub enum ColumnDefault {
    /// `DEFAULT expression`, as SQL text.
    Expression(String),
    /// `GENERATED … AS IDENTITY`, or `serial`.
    Identity {
        /// Where the numbers come from.
        sequence: SequenceId,
        /// `GENERATED ALWAYS`: a value given by the client is refused.
        always: bool,
    },
    /// `GENERATED ALWAYS AS (expression) STORED`, and hidden columns: SQL text.
    Generated(String),
}

/// An index.
#[derive(Clone, PartialEq, Debug)]
pub struct Index {
    /// Its id, also its OID.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// Its columns in order.
    pub parts: Vec<IndexPart>,
    /// No two rows have the same key (nulls differ from each other).
    pub unique: bool,
    /// `NULLS NOT DISTINCT`: nulls are equal for uniqueness.
    pub nulls_not_distinct: bool,
    /// The constraint it backs.
    pub constraint: Option<KeyConstraint>,
    /// For a partial index: the hidden boolean column that says whether a row is in it.
    pub predicate: Option<ColumnNumber>,
    /// The predicate as SQL text, for display and for planning.
    pub predicate_text: Option<String>,
    /// How far it is built.
    pub state: IndexState,
    /// `COMMENT ON`.
    pub comment: Option<String>,
}

/// One column of an index key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPart {
    /// The column, possibly a hidden one that holds an expression's value.
    pub column: ColumnNumber,
    /// Direction and place of nulls.
    pub order: KeyPart,
}

/// A constraint that an index backs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyConstraint {
    /// UNIQUE.
    Unique,
    /// PRIMARY KEY.
    Primary,
}

/// How far an index is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexState {
    /// Writes keep it up; rows from before are being added; not used by plans.
    Building,
    /// Complete.
    Ready,
    /// The build failed (a duplicate in a unique index, say); kept until dropped.
    Invalid,
}

/// A CHECK constraint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// The condition as SQL text.
    pub expression: String,
}

/// A FOREIGN KEY constraint inside one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    /// Its name.
    pub name: String,
    /// Columns here.
    pub columns: Vec<ColumnNumber>,
    /// The parent table.
    pub parent: TableId,
    /// Columns there, those of a unique index.
    pub parent_columns: Vec<ColumnNumber>,
    /// ON DELETE.
    pub on_delete: Referential,
    /// ON UPDATE.
    pub on_update: Referential,
}

/// What happens to children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Referential {
    /// NO ACTION and RESTRICT: refused at the end of the statement.
    NoAction,
    /// Children follow.
    Cascade,
    /// Children get null.
    SetNull,
    /// Children get their default.
    SetDefault,
}

/// A sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sequence {
    /// Its id, also its OID.
    pub id: SequenceId,
    /// The database it is in.
    pub database: DatabaseId,
    /// The schema it is in.
    pub schema: SchemaId,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owner: RoleId,
    /// The type of its numbers: int2, int4 or int8.
    pub data_type: Type,
    /// First number.
    pub start: i64,
    /// Step; never 0.
    pub increment: i64,
    /// Smallest number.
    pub min: i64,
    /// Largest number.
    pub max: i64,
    /// How many numbers a gateway reserves at once (64 unless CACHE says otherwise).
    pub cache: u32,
    /// Starts over at its end.
    pub cycle: bool,
    /// The column it belongs to and is dropped with.
    pub owned_by: Option<(TableId, ColumnNumber)>,
}

/// A view: a stored query.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// Its id, also its OID; shares the number space of tables.
    pub id: TableId,
    /// The database it is in.
    pub database: DatabaseId,
    /// The schema it is in.
    pub schema: SchemaId,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owner: RoleId,
    /// Its query as SQL text, names fully qualified.
    pub query: String,
    /// Names, types and modifiers of its columns.
    pub columns: Vec<(String, Type, Typmod)>,
    /// The relations it reads.
    pub depends_on: Vec<TableId>,
    /// `COMMENT ON`.
    pub comment: Option<String>,
}

impl Column {
    /// Its place among the columns, as clients count them.
    pub fn place(&self) -> ColumnNumber {
        self.moved.unwrap_or(self.number)
    }
}

impl Table {
    /// The columns that are there, neither dropped nor hidden, by place.
    pub fn visible_columns(&self) -> impl Iterator<Item = &Column> {
        let mut columns: Vec<&Column> =
            self.columns.iter().filter(|column| !column.dropped && !column.hidden).collect();
        columns.sort_by_key(|column| column.place());
        columns.into_iter()
    }

    /// The column with this name.
    pub fn find_column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| !column.dropped && !column.hidden && column.name == name)
    }

    /// The column with this number.
    pub fn column(&self, number: ColumnNumber) -> &Column {
        &self.columns[usize::from(number.0) - 1]
    }

    /// The index with this id.
    pub fn find_index(&self, id: IndexId) -> Option<&Index> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// The index in whose order rows themselves lie.
    pub fn key(&self) -> Option<&Index> {
        self.primary_key.and_then(|id| self.find_index(id))
    }

    /// The PRIMARY KEY's index: the rows' own key, or a unique index where it was added to rows that were there.
    pub fn declared_key(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| index.constraint == Some(KeyConstraint::Primary))
    }

    /// The types of all columns ever, by number: what the row codec needs.
    pub fn column_types(&self) -> Vec<Type> {
        self.columns.iter().map(|column| column.data_type).collect()
    }
}
