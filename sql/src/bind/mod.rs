//! Names and types: a syntax tree and a catalog become a typed logical plan, by PostgreSQL's rules.
//!
//! Invariants:
//! - A statement is bound on one catalog snapshot; what it needs rights on is listed in [`Bound::access`].
//! - Every clause and option of the tree is either given a meaning or refused with `0A000`; nothing is ignored.
//! - Errors carry PostgreSQL's message, SQLSTATE, hint and place.
//!
//! Not here: cheaper plans of the same meaning (`optimize`), DDL (`ddl`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    Code, Error, Result, Type,
    access::Privilege,
    catalog::{Catalog, Relation},
    id::{ColumnNumber, DatabaseId, RoleId, SchemaId, SessionId, TableId},
    schema::{Sequence, Table, View},
};
use sqlparser::{ast, tokenizer::Span};

use crate::{
    context::Context,
    expr::Expr,
    parse::Source,
    plan::logical::{Columns, Logical},
    rights,
};

mod expr;
mod from;
mod function;
mod group;
mod merge;
mod name;
mod params;
mod query;
mod resolve;
mod rules;
mod scope;
mod select;
pub(crate) mod types;
mod window;
mod with;
mod write;

pub(crate) use group::same;
pub(crate) use params::Parameters;
pub(crate) use rules::{bind_alone, column_default, depends_on_columns, table_rules};
use scope::Scope;

/// A bound statement.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// The plan.
    pub(crate) plan: Logical,
    /// What is known of column ids.
    pub(crate) columns: Columns,
    /// The result's columns: name and id.
    pub(crate) outputs: Vec<(String, usize)>,
    /// The types of `$1`, `$2`, ….
    pub(crate) parameters: Vec<Type>,
    /// What it needs rights on.
    pub(crate) access: Vec<Access>,
    /// What it does.
    pub(crate) command: Command,
    /// It changes or locks rows, perhaps inside a WITH.
    pub(crate) writes: bool,
}

/// What a statement does, for its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Select,
    Insert,
    Update,
    Delete,
    Merge,
}

/// A right that a statement needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    /// On which table or view.
    pub(crate) relation: TableId,
    /// Which right.
    pub(crate) privilege: Privilege,
    /// On which columns; where there are none, any one will do.
    pub(crate) columns: BTreeSet<ColumnNumber>,
    /// On whose behalf, where that is not the session's role: the owner of the view around it.
    pub(crate) owner: Option<model::id::RoleId>,
}

/// Where names are looked up.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The catalog.
    pub(crate) catalog: Arc<Catalog>,
    /// The database.
    pub(crate) database: DatabaseId,
    /// Schemas in order of search, `pg_catalog` left out.
    pub(crate) search_path: Arc<[String]>,
    /// The session, if it has temporary tables: they are found first.
    pub(crate) temporary: Option<SessionId>,
    /// Who looks: nothing is found in a schema that this role may not use.
    pub(crate) role: RoleId,
}

/// What a relation name means.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Table(Arc<Table>),
    View(Arc<View>),
    Sequence(Arc<Sequence>),
    Index(Arc<Table>, model::id::IndexId),
    System(&'static crate::pg_catalog::Relation),
}

/// Binds one statement.
pub(crate) struct Binder<'a> {
    source: Source<'a>,
    names: &'a Names,
    context: &'a mut Context,
    columns: Columns,
    parameters: Parameters,
    access: Vec<Access>,
    /// Which columns of tables and views the ids stand for: whoever reads one needs SELECT on it.
    readable: BTreeMap<usize, (TableId, ColumnNumber)>,
    tables: Vec<with::Visible>,
    next_cte: usize,
    writes: bool,
    /// The owner of the view that is being inlined.
    view_owner: Option<model::id::RoleId>,
    views_open: Vec<TableId>,
}

/// How deep views may be nested.
const VIEWS_MAX: usize = 64;

/// Binds a query or a change of rows.
pub(crate) fn bind(
    text: &str,
    statement: &ast::Statement,
    names: &Names,
    context: &mut Context,
    parameters: Parameters,
) -> Result<Bound> {
    let mut binder = Binder::new(text, names, context, parameters);
    let (plan, outputs, command) = binder.statement(statement)?;
    let parameters = binder.parameters.finish()?;
    Ok(Bound {
        plan,
        columns: binder.columns,
        outputs,
        parameters,
        access: binder.access,
        command,
        writes: binder.writes,
    })
}

impl<'a> Binder<'a> {
    pub(crate) fn new(
        text: &'a str,
        names: &'a Names,
        context: &'a mut Context,
        parameters: Parameters,
    ) -> Self {
        Self {
            source: Source::new(text),
            names,
            context,
            columns: Columns::default(),
            parameters,
            access: Vec::new(),
            readable: BTreeMap::new(),
            tables: Vec::new(),
            next_cte: 0,
            writes: false,
            view_owner: None,
            views_open: Vec::new(),
        }
    }

    fn statement(&mut self, statement: &ast::Statement) -> Result<(Logical, Vec<(String, usize)>, Command)> {
        match statement {
            ast::Statement::Query(query) => self.top_query(query),
            ast::Statement::Insert(insert) => {
                let (plan, outputs) = self.insert(insert, None)?;
                Ok((plan, outputs, Command::Insert))
            }
            ast::Statement::Update(update) => {
                let (plan, outputs) = self.update(update)?;
                Ok((plan, outputs, Command::Update))
            }
            ast::Statement::Delete(delete) => {
                let (plan, outputs) = self.delete(delete)?;
                Ok((plan, outputs, Command::Delete))
            }
            ast::Statement::Merge(merge) => {
                let (plan, outputs) = self.merge(merge)?;
                Ok((plan, outputs, Command::Merge))
            }
            other => {
                let text = other.to_string();
                let word = text.split_whitespace().next().unwrap_or("statement").to_owned();
                Err(unsupported(&word, "See the list of supported statements in the documentation."))
            }
        }
    }

    fn top_query(&mut self, query: &ast::Query) -> Result<(Logical, Vec<(String, usize)>, Command)> {
        // A query whose body is a change of rows: `WITH … INSERT`.
        if let ast::SetExpr::Insert(inner)
        | ast::SetExpr::Update(inner)
        | ast::SetExpr::Delete(inner)
        | ast::SetExpr::Merge(inner) = query.body.as_ref()
        {
            let mark = self.tables.len();
            let expressions = self.with_clause(query.with.as_ref(), None)?;
            let (plan, outputs, command) = self.statement(inner)?;
            self.tables.truncate(mark);
            let plan = with::around(expressions, plan);
            return Ok((plan, outputs, command));
        }
        let bound = self.query(query, None)?;
        let bound = self.settle(bound)?;
        Ok((bound.plan, bound.outputs, Command::Select))
    }

    /// A column that the statement names: it is read, which needs a right.
    pub(super) fn read(&mut self, id: usize) -> Expr {
        if let Some((relation, column)) = self.readable.get(&id).copied() {
            self.need(relation, Privilege::Select, [column]);
        }
        self.columns.read(id)
    }

    /// Notes a right that the statement needs.
    pub(super) fn need(
        &mut self,
        relation: TableId,
        privilege: Privilege,
        columns: impl IntoIterator<Item = ColumnNumber>,
    ) {
        let owner = self.view_owner;
        let same = |access: &&mut Access| {
            access.relation == relation && access.privilege == privilege && access.owner == owner
        };
        match self.access.iter_mut().find(same) {
            Some(access) => access.columns.extend(columns),
            None => {
                let columns = columns.into_iter().collect();
                self.access.push(Access { relation, privilege, columns, owner });
            }
        }
    }

    /// An error at a place of the text.
    pub(super) fn at(&self, error: Error, span: Span) -> Error {
        match self.source.position(span.start) {
            Some(position) if self.views_open.is_empty() => error.with_position(position),
            _ => error,
        }
    }

    pub(super) fn error(&self, code: Code, message: impl Into<String>, span: Span) -> Error {
        self.at(Error::new(code, message), span)
    }
}

impl Names {
    /// The schema with a name; `3F000` if there is none.
    pub(crate) fn get_schema(&self, name: &str) -> Result<SchemaId> {
        self.catalog
            .find_schema(self.database, name)
            .map(|schema| schema.id)
            .ok_or_else(|| Error::new(Code::InvalidSchemaName, format!("schema \"{name}\" does not exist")))
    }

    /// Where new objects go: the first schema of the search path that exists.
    pub(crate) fn creation_schema(&self) -> Result<SchemaId> {
        let mut existing =
            self.search_path.iter().filter_map(|name| self.catalog.find_schema(self.database, name));
        existing
            .next()
            .map(|schema| schema.id)
            .ok_or_else(|| Error::new(Code::InvalidSchemaName, "no schema has been selected to create in"))
    }

    /// What a relation name means, if anything; `42501` for one in a schema that the role may not use.
    pub(crate) fn find(&self, path: &[String]) -> Result<Option<Found>> {
        self.find_for(Some(self.role), path)
    }

    /// What a relation name means in a view, whose maker may have used the schema.
    fn find_in_view(&self, path: &[String]) -> Result<Option<Found>> {
        self.find_for(None, path)
    }

    fn find_for(&self, role: Option<RoleId>, path: &[String]) -> Result<Option<Found>> {
        let may_use = |schema| role.is_none_or(|role| rights::may_use_schema(&self.catalog, role, schema));
        match path {
            [name] => {
                if let Some(system) = crate::pg_catalog::find("pg_catalog", name) {
                    return Ok(Some(Found::System(system)));
                }
                if let Some(found) = self.find_temporary(name) {
                    return Ok(Some(found));
                }
                Ok(self.search_path.iter().find_map(|schema| {
                    if schema == "information_schema" {
                        return crate::pg_catalog::find("information_schema", name).map(Found::System);
                    }
                    let schema = self.catalog.find_schema(self.database, schema)?;
                    self.find_in(schema.id, name).filter(|_| may_use(schema.id))
                }))
            }
            [schema, name] if schema == "pg_temp" => Ok(self.find_temporary(name)),
            [schema, name] => {
                if schema == "pg_catalog" || schema == "information_schema" {
                    return Ok(crate::pg_catalog::find(schema, name).map(Found::System));
                }
                // As PostgreSQL: a missing schema makes a missing relation.
                let Some(schema) = self.catalog.find_schema(self.database, schema) else { return Ok(None) };
                if !may_use(schema.id) {
                    return Err(rights::no_schema(&schema.name));
                }
                Ok(self.find_in(schema.id, name))
            }
            [database, schema, name] => {
                let here = self.catalog.database(self.database).is_some_and(|at| at.name == *database);
                if !here {
                    let message =
                        format!("cross-database references are not implemented: \"{}\"", path.join("."));
                    return Err(Error::new(Code::FeatureNotSupported, message));
                }
                self.find_for(role, &[schema.clone(), name.clone()])
            }
            _ => Err(Error::new(
                Code::SyntaxError,
                format!("improper qualified name (too many dotted names): {}", path.join(".")),
            )),
        }
    }

    fn find_temporary(&self, name: &str) -> Option<Found> {
        self.found(self.catalog.find_temporary(self.temporary?, name)?)
    }

    fn find_in(&self, schema: SchemaId, name: &str) -> Option<Found> {
        self.found(self.catalog.find_relation(schema, name)?)
    }

    fn found(&self, relation: Relation) -> Option<Found> {
        Some(match relation {
            Relation::Table(id) => Found::Table(self.catalog.table(id)?.clone()),
            Relation::View(id) => Found::View(self.catalog.view(id)?.clone()),
            Relation::Sequence(id) => Found::Sequence(self.catalog.sequence(id)?.clone()),
            Relation::Index(table, index) => Found::Index(self.catalog.table(table)?.clone(), index),
        })
    }

    /// What a relation name means; `42P01` if nothing.
    pub(crate) fn get(&self, path: &[String]) -> Result<Found> {
        self.find(path)?.ok_or_else(|| undefined_table(path))
    }

    /// The table with a name; `42P01` if there is none, `42809` if it is something else.
    pub(crate) fn get_table(&self, path: &[String]) -> Result<Arc<Table>> {
        let name = path.last().map_or("", String::as_str);
        match self.get(path)? {
            Found::Table(table) => Ok(table),
            Found::View(_) | Found::Sequence(_) | Found::Index(..) | Found::System(_) => {
                Err(Error::new(Code::WrongObjectType, format!("\"{name}\" is not a table")))
            }
        }
    }
}

/// `42P01`.
pub(crate) fn undefined_table(path: &[String]) -> Error {
    Error::new(Code::UndefinedTable, format!("relation \"{}\" does not exist", path.join(".")))
}

/// `0A000` for a clause or statement.
pub(crate) fn unsupported(what: &str, hint: &str) -> Error {
    Error::unsupported(format!("{what} is not supported"), hint)
}

/// Refuses something that may only be absent.
pub(super) fn refuse(present: bool, what: &str) -> Result<()> {
    if present {
        Err(unsupported(what, "It is not part of PostgreSQL's dialect, or not built yet."))
    } else {
        Ok(())
    }
}

/// The parts of an object name, folded as PostgreSQL folds them.
pub(crate) fn path_of(name: &ast::ObjectName) -> Result<Vec<String>> {
    name.0
        .iter()
        .enumerate()
        .map(|(at, part)| match part {
            ast::ObjectNamePart::Identifier(ident) => {
                // After a dot any word is a name: `COLLATE pg_catalog.default`.
                if at == 0 {
                    check_reserved(ident)?;
                }
                Ok(fold(ident))
            }
            ast::ObjectNamePart::Function(_) => {
                Err(unsupported("a function in a name", "Write the name out."))
            }
        })
        .collect()
}

/// Words that PostgreSQL never takes as a name unless they are quoted (its appendix C), where `sqlparser` would.
const RESERVED: [&str; 52] = [
    "all",
    "and",
    "any",
    "as",
    "asc",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "primary",
    "references",
    "returning",
    "select",
    "table",
    "then",
    "union",
    "using",
    "where",
    "with",
];

/// `42601` for a reserved word as a name.
pub(crate) fn check_reserved(ident: &ast::Ident) -> Result<()> {
    let reserved =
        ident.quote_style.is_none() && RESERVED.iter().any(|word| ident.value.eq_ignore_ascii_case(word));
    if reserved {
        return Err(Error::new(Code::SyntaxError, format!("syntax error at or near \"{}\"", ident.value)));
    }
    Ok(())
}

/// Where an object name stands.
pub(crate) fn span_of(name: &ast::ObjectName) -> Span {
    match name.0.first() {
        Some(ast::ObjectNamePart::Identifier(ident)) => ident.span,
        _ => Span::empty(),
    }
}

/// A name as it is looked up: lower case unless quoted, at most 63 bytes.
pub(crate) fn fold(ident: &ast::Ident) -> String {
    let mut name = if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() };
    if name.len() > 63 {
        let end = (0..=63).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(end);
    }
    name
}
