//! WITH: common table expressions, recursive ones, and those that change rows.
//!
//! Invariants:
//! - A name of WITH hides relations of the same name; it ends with its query.
//! - A recursive query is `initial UNION [ALL] recursive`; only the second part may name the table itself, once.

use model::{Code, Error, Result, Type};
use sqlparser::ast;

use super::{
    Binder, Scope, fold, from::plain_relation, refuse, scope::Relation, types::Coercion, unsupported,
};
use crate::plan::logical::{CommonTable, Logical};

/// A common table expression in reach.
#[derive(Clone, Debug)]
pub(super) struct Visible {
    name: String,
    id: usize,
    columns: Vec<(String, Type, i32)>,
    /// A change of rows without RETURNING.
    silent: bool,
}

/// Puts WITH around a plan.
pub(super) fn around(expressions: Vec<CommonTable>, plan: Logical) -> Logical {
    if expressions.is_empty() { plan } else { Logical::With { expressions, input: Box::new(plan) } }
}

impl Binder<'_> {
    /// Binds the expressions of WITH and puts their names in reach; the caller takes them out again.
    pub(super) fn with_clause(
        &mut self,
        with: Option<&ast::With>,
        parent: Option<&Scope<'_>>,
    ) -> Result<Vec<CommonTable>> {
        let Some(ast::With { with_token: _, recursive, cte_tables }) = with else { return Ok(Vec::new()) };
        let mut expressions: Vec<CommonTable> = Vec::new();
        for ast::Cte { alias, query, from, materialized, closing_paren_token: _ } in cte_tables {
            refuse(from.is_some(), "FROM in WITH")?;
            let name = fold(&alias.name);
            if expressions.iter().any(|other| other.name == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(self.error(Code::DuplicateAlias, message, alias.name.span));
            }
            let id = self.next_cte;
            self.next_cte += 1;
            let (plan, mut columns, writes, silent) =
                self.common_table(&name, id, query, *recursive, alias, parent)?;
            for (column, ast::TableAliasColumnDef { name, data_type: _ }) in
                columns.iter_mut().zip(&alias.columns)
            {
                column.0 = fold(name);
            }
            if alias.columns.len() > columns.len() {
                let message = format!(
                    "WITH query \"{name}\" has {} columns available but {} columns specified",
                    columns.len(),
                    alias.columns.len()
                );
                return Err(self.error(Code::InvalidColumnReference, message, alias.name.span));
            }
            self.tables.push(Visible { name: name.clone(), id, columns, silent });
            let materialized =
                materialized.as_ref().map(|said| matches!(said, ast::CteAsMaterialized::Materialized));
            expressions.push(CommonTable { id, name, plan, writes, materialized });
        }
        Ok(expressions)
    }

    #[allow(clippy::type_complexity)]
    fn common_table(
        &mut self,
        name: &str,
        id: usize,
        query: &ast::Query,
        recursive: bool,
        alias: &ast::TableAlias,
        parent: Option<&Scope<'_>>,
    ) -> Result<(Logical, Vec<(String, Type, i32)>, bool, bool)> {
        if let ast::SetExpr::Insert(inner)
        | ast::SetExpr::Update(inner)
        | ast::SetExpr::Delete(inner)
        | ast::SetExpr::Merge(inner) = query.body.as_ref()
        {
            if parent.is_some() {
                let message = "WITH clause containing a data-modifying statement must be at the top level";
                return Err(self.error(Code::FeatureNotSupported, message, alias.name.span));
            }
            let mark = self.tables.len();
            let expressions = self.with_clause(query.with.as_ref(), None)?;
            let (plan, outputs, _) = self.statement(inner)?;
            self.tables.truncate(mark);
            let silent = outputs.is_empty();
            let columns = self.describe(&outputs);
            return Ok((around(expressions, plan), columns, true, silent));
        }
        if recursive && let Some((initial, step, all)) = self.recursive_parts(name, query)? {
            let (plan, columns) = self.recursive(name, id, initial, step, all, alias, parent)?;
            return Ok((plan, columns, false, false));
        }
        let bound = self.query(query, parent)?;
        let bound = self.settle(bound)?;
        let columns = self.describe(&bound.outputs);
        Ok((self.exactly(bound), columns, false, false))
    }

    fn describe(&self, outputs: &[(String, usize)]) -> Vec<(String, Type, i32)> {
        let described = outputs.iter().map(|(name, id)| {
            let info = self.columns.get(*id);
            (name.clone(), info.ty, info.typmod)
        });
        described.collect()
    }

    /// The two parts of a query that names itself.
    fn recursive_parts<'q>(
        &self,
        name: &str,
        query: &'q ast::Query,
    ) -> Result<Option<(&'q ast::SetExpr, &'q ast::SetExpr, bool)>> {
        let names_itself = mentions(&query.body, name);
        if !names_itself {
            return Ok(None);
        }
        let ast::SetExpr::SetOperation { left, op: ast::SetOperator::Union, set_quantifier, right } =
            query.body.as_ref()
        else {
            let message = format!(
                "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
            );
            return Err(Error::new(Code::InvalidRecursion, message));
        };
        if mentions(left, name) {
            let message = format!(
                "recursive reference to query \"{name}\" must not appear within its non-recursive term"
            );
            return Err(Error::new(Code::InvalidRecursion, message));
        }
        if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
            return Err(unsupported(
                "ORDER BY or LIMIT in a recursive query",
                "Put it into the query that reads the result.",
            ));
        }
        Ok(Some((left, right, matches!(set_quantifier, ast::SetQuantifier::All))))
    }

    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
    fn recursive(
        &mut self,
        name: &str,
        id: usize,
        initial: &ast::SetExpr,
        step: &ast::SetExpr,
        all: bool,
        alias: &ast::TableAlias,
        parent: Option<&Scope<'_>>,
    ) -> Result<(Logical, Vec<(String, Type, i32)>)> {
        let first = self.query(&alone(initial), parent)?;
        let first = self.settle(first)?;
        let mut columns = self.describe(&first.outputs);
        for (column, ast::TableAliasColumnDef { name, data_type: _ }) in
            columns.iter_mut().zip(&alias.columns)
        {
            column.0 = fold(name);
        }
        self.tables.push(Visible { name: name.to_owned(), id, columns: columns.clone(), silent: false });
        let bound = self.query(&alone(step), parent);
        self.tables.pop();
        let mut bound = bound?;
        if bound.outputs.len() != columns.len() {
            return Err(Error::new(
                Code::SyntaxError,
                "each UNION query must have the same number of columns",
            ));
        }
        for (place, ((_, output), (column, ty, _))) in bound.outputs.iter().zip(&columns).enumerate() {
            let found = self.columns.get(*output).ty;
            if found != *ty && found != Type::Unknown && !super::resolve::is_implicit(found, *ty) {
                let message = format!(
                    "recursive query \"{name}\" column {} has type {ty} in non-recursive term but type {found} overall",
                    place + 1
                );
                return Err(Error::new(Code::DatatypeMismatch, message)
                    .with_hint("Cast the output of the non-recursive term to the correct type."));
            }
            let _ = column;
        }
        let targets: Vec<(Type, i32)> = columns.iter().map(|(_, ty, _)| (*ty, -1)).collect();
        self.coerce_outputs(&mut bound, &targets, Coercion::Implicit, alias.name.span)?;
        let ids =
            columns.iter().map(|(name, ty, typmod)| self.columns.add(name.clone(), *ty, *typmod)).collect();
        let initial = Box::new(self.exactly(first));
        let recursive = Box::new(self.exactly(bound));
        Ok((Logical::Recursive { id, initial, recursive, all, columns: ids }, columns))
    }

    /// A scan of the common table expression with a name, if there is one in reach.
    pub(super) fn cte_scan(&mut self, name: &str) -> Option<(Logical, Relation)> {
        let found = self.tables.iter().rev().find(|visible| visible.name == name && !visible.silent)?.clone();
        let mut columns = Vec::new();
        let mut ids = Vec::new();
        for (place, (column, ty, typmod)) in found.columns.iter().enumerate() {
            let id = self.columns.add(column.clone(), *ty, *typmod);
            columns.push((column.clone(), id));
            ids.push((id, place));
        }
        let relation = plain_relation(name.to_owned(), columns);
        Some((Logical::CteScan { id: found.id, columns: ids }, relation))
    }
}

/// A body as a query of its own.
fn alone(body: &ast::SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body.clone()),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// Whether a body names a relation. By text: a false yes only asks for the recursive form.
fn mentions(body: &ast::SetExpr, name: &str) -> bool {
    let text = body.to_string().to_lowercase();
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$');
    let mut from = 0;
    while let Some(at) = text[from..].find(name) {
        let start = from + at;
        let end = start + name.len();
        if !is_part(text[..start].chars().next_back()) && !is_part(text[end..].chars().next()) {
            // A name in FROM, not a column of some other relation.
            let before = text[..start].trim_end();
            if before.ends_with("from")
                || before.ends_with("join")
                || before.ends_with(',')
                || before.ends_with('(')
            {
                return true;
            }
        }
        from = end;
    }
    false
}
