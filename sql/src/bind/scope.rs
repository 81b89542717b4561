//! Names in reach: the relations of a FROM clause, their columns, and the queries around.
//!
//! Invariants:
//! - A qualified name finds a column of the one relation with that alias; an unqualified one a column of any relation, once.
//! - The innermost query that knows a name wins; a name that two relations of one query know is ambiguous (`42702`).
//! - Columns merged by USING or NATURAL are found unqualified as one column, qualified as two.

use std::sync::Arc;

use model::{Code, Error, Result, schema::Table};

use crate::plan::{ScanColumn, logical::Columns};

/// One relation of a FROM clause.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    /// The schema, if it goes by its own name.
    pub(super) schema: Option<String>,
    /// The name it goes by.
    pub(super) alias: String,
    /// Name and id of its columns, in order.
    pub(super) columns: Vec<(String, usize)>,
    /// System columns: found by name, not by `*`.
    pub(super) system: Vec<(&'static str, usize)>,
    /// The table, if it is one.
    pub(super) table: Option<Arc<Table>>,
    /// It is a function that gives single values: its name alone means the value.
    pub(super) scalar: bool,
    /// How the table's columns were read.
    pub(super) scan: Vec<(usize, ScanColumn)>,
}

/// The names of one query.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'p> {
    /// Its relations.
    pub(super) relations: Vec<Relation>,
    /// What `*` and unqualified names find: name and id.
    pub(super) flat: Vec<(String, usize)>,
    /// The query around it.
    pub(super) parent: Option<&'p Scope<'p>>,
    /// A relation that would be in reach with LATERAL, for the hint.
    pub(super) unreachable: Vec<String>,
}

impl<'p> Scope<'p> {
    /// An empty scope inside another.
    pub(super) fn inside(parent: Option<&'p Scope<'p>>) -> Self {
        Self { parent, ..Self::default() }
    }

    /// Adds a relation; an alias twice is `42712`.
    pub(super) fn add(&mut self, relation: Relation) -> Result<()> {
        self.check_alias(&relation)?;
        self.flat.extend(relation.columns.iter().cloned());
        self.relations.push(relation);
        Ok(())
    }

    fn check_alias(&self, relation: &Relation) -> Result<()> {
        let twice = self.relations.iter().any(|other| {
            other.alias == relation.alias
                && (other.schema == relation.schema || other.schema.is_none() || relation.schema.is_none())
        });
        if twice && !relation.alias.is_empty() {
            return Err(Error::new(
                Code::DuplicateAlias,
                format!("table name \"{}\" specified more than once", relation.alias),
            ));
        }
        Ok(())
    }

    /// Takes in another scope of the same query, side by side.
    pub(super) fn join(&mut self, other: Scope<'p>) -> Result<()> {
        for relation in &other.relations {
            self.check_alias(relation)?;
        }
        self.flat.extend(other.flat);
        self.relations.extend(other.relations);
        Ok(())
    }

    /// The column that a name means: `[[schema.]relation.]column`.
    pub(super) fn find(&self, path: &[String], columns: &Columns) -> Result<Option<usize>> {
        let mut scope = Some(self);
        while let Some(at) = scope {
            if let Some(found) = at.find_here(path, columns)? {
                return Ok(Some(found));
            }
            scope = at.parent;
        }
        Ok(None)
    }

    fn find_here(&self, path: &[String], _columns: &Columns) -> Result<Option<usize>> {
        match path {
            [column] => self.find_unqualified(column),
            [relation, column] => self.find_in(None, relation, column),
            [schema, relation, column] => self.find_in(Some(schema), relation, column),
            _ => Ok(None),
        }
    }

    fn find_unqualified(&self, column: &str) -> Result<Option<usize>> {
        let mut found = self.flat.iter().filter(|(name, _)| name == column).map(|(_, id)| *id);
        let first = found.next();
        if found.next().is_some() {
            return Err(ambiguous(column));
        }
        if first.is_some() {
            return Ok(first);
        }
        let mut system =
            self.relations.iter().flat_map(|relation| &relation.system).filter(|(name, _)| *name == column);
        let first = system.next();
        if system.next().is_some() {
            return Err(ambiguous(column));
        }
        Ok(first.map(|(_, id)| *id))
    }

    fn find_in(&self, schema: Option<&String>, relation: &str, column: &str) -> Result<Option<usize>> {
        let Some(relation) = self.find_relation(schema.map(String::as_str), relation) else {
            return Ok(None);
        };
        let mut found = relation.columns.iter().filter(|(name, _)| name == column).map(|(_, id)| *id);
        let first = found.next();
        if found.next().is_some() {
            return Err(ambiguous(column));
        }
        if first.is_some() {
            return Ok(first);
        }
        if let Some((_, id)) = relation.system.iter().find(|(name, _)| *name == column) {
            return Ok(Some(*id));
        }
        Err(Error::new(Code::UndefinedColumn, format!("column {}.{column} does not exist", relation.alias)))
    }

    /// The relation of this query with a name.
    pub(super) fn find_relation(&self, schema: Option<&str>, name: &str) -> Option<&Relation> {
        self.relations.iter().find(|relation| {
            relation.alias == name && schema.is_none_or(|schema| relation.schema.as_deref() == Some(schema))
        })
    }

    /// The relation with a name, in this query or one around it.
    pub(super) fn find_relation_anywhere(&self, name: &str) -> Option<&Relation> {
        let mut scope = Some(self);
        while let Some(at) = scope {
            if let Some(found) = at.find_relation(None, name) {
                return Some(found);
            }
            scope = at.parent;
        }
        None
    }

    /// Whether LATERAL would bring a relation into reach.
    pub(super) fn is_unreachable(&self, name: &str) -> bool {
        let mut scope = Some(self);
        while let Some(at) = scope {
            if at.unreachable.iter().any(|alias| alias == name) {
                return true;
            }
            scope = at.parent;
        }
        false
    }

    /// All names, for the hint of a name that was not found.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.relations.iter().flat_map(|relation| {
            relation.columns.iter().map(|(name, _)| (relation.alias.as_str(), name.as_str()))
        })
    }
}

fn ambiguous(column: &str) -> Error {
    Error::new(Code::AmbiguousColumn, format!("column reference \"{column}\" is ambiguous"))
}
