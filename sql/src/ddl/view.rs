//! CREATE VIEW.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    Code, Error, Result, Type,
    catalog::{Change, Expected, Object, ObjectId},
    id::TableId,
    schema::{Column, Table, View},
};
use sqlparser::ast;

use crate::{
    bind::{self, Found, unsupported},
    parse,
    plan::logical::Logical,
    session::Session,
};

impl Session {
    pub(super) async fn create_view(&mut self, create: &ast::CreateView) -> Result<()> {
        let ast::CreateView {
            or_alter,
            or_replace,
            materialized,
            secure,
            name,
            name_before_not_exists: _,
            columns,
            query,
            options,
            cluster_by,
            comment,
            with_no_schema_binding,
            if_not_exists,
            temporary,
            copy_grants,
            to,
            params,
        } = create;
        if *materialized {
            return Err(unsupported("CREATE MATERIALIZED VIEW", "Use CREATE TABLE … AS."));
        }
        let plain = !or_alter
            && !secure
            && matches!(options, ast::CreateTableOptions::None)
            && cluster_by.is_empty()
            && comment.is_none()
            && !with_no_schema_binding
            && !temporary
            && !copy_grants
            && to.is_none()
            && params.is_none();
        if !plain {
            return Err(unsupported(
                "this form of CREATE VIEW",
                "CREATE [OR REPLACE] VIEW name [(columns)] AS query is.",
            ));
        }
        let names = self.current_names();
        let (schema, view_name) = self.place(&names, &bind::path_of(name)?)?;
        let text = query.to_string();
        let statement = ast::Statement::Query(query.clone());
        let bound = {
            let mut context = self.new_context();
            bind::bind(&text, &statement, &names, &mut context, bind::Parameters::default())?
        };
        self.authorize(&names.catalog, &bound.access)?;
        if !bound.parameters.is_empty() {
            return Err(Error::new(Code::UndefinedParameter, "there is no parameter $1"));
        }
        if columns.len() > bound.outputs.len() {
            return Err(Error::new(
                Code::SyntaxError,
                "CREATE VIEW specifies more column names than columns",
            ));
        }
        let mut described: Vec<(String, Type, i32)> = Vec::new();
        for (at, (output, id)) in bound.outputs.iter().enumerate() {
            let info = bound.columns.get(*id);
            let name = columns.get(at).map_or_else(|| output.clone(), |column| bind::fold(&column.name));
            if described.iter().any(|(other, _, _)| *other == name) {
                return Err(Error::new(
                    Code::DuplicateColumn,
                    format!("column \"{name}\" specified more than once"),
                ));
            }
            described.push((name, info.ty, info.typmod));
        }
        let depends_on: BTreeSet<TableId> = bound.access.iter().map(|access| access.relation).collect();
        let is_temporary =
            |id: &TableId| names.catalog.table(*id).is_some_and(|table| table.temporary.is_some());
        if depends_on.iter().any(is_temporary) {
            return Err(unsupported("a view on a temporary table", "Use a table that stays."));
        }
        let qualified = self.qualify(query)?;
        let existing = names.catalog.find_relation(schema, &view_name);
        let (id, expect, comment, owner) = match existing {
            Some(model::catalog::Relation::View(id)) if *or_replace => {
                let old =
                    names.catalog.view(id).ok_or_else(|| Error::internal("a view without a descriptor"))?;
                self.need_owner(&names.catalog, old.owner, "view", &view_name)?;
                let kept = old.columns.iter().zip(&described).all(|(a, b)| a.0 == b.0 && a.1 == b.1)
                    && old.columns.len() <= described.len();
                if !kept {
                    return Err(Error::new(Code::InvalidTableDefinition, "cannot drop columns from view"));
                }
                (id, Some(Expected::Exists), old.comment.clone(), old.owner)
            }
            Some(_) if *or_replace => {
                return Err(Error::new(Code::WrongObjectType, format!("\"{view_name}\" is not a view")));
            }
            Some(_) => {
                return self.exists_already(*if_not_exists, Code::DuplicateTable, "relation", &view_name);
            }
            None => (TableId(self.dispatch().allocate_ids(1).await?), None, None, self.role()),
        };
        let view = View {
            id,
            database: self.database_id(),
            schema,
            name: view_name,
            owner,
            query: qualified,
            columns: described
                .into_iter()
                .map(|(name, ty, typmod)| (name, ty, model::types::Typmod(typmod)))
                .collect(),
            depends_on: depends_on.into_iter().collect(),
            comment,
        };
        let change = Change {
            expect: vec![(ObjectId::View(id), expect)],
            put: vec![Object::View(view)],
            ..Change::default()
        };
        self.change(change).await?;
        Ok(())
    }

    /// The first view whose query reads a column of a table.
    pub(super) fn reader_of(&mut self, table: &Table, column: &Column) -> Option<Arc<View>> {
        let names = self.current_names();
        let origin = (table.id.0, column.place().0);
        let views = names.catalog.views().filter(|view| view.depends_on.contains(&table.id));
        views.cloned().collect::<Vec<_>>().into_iter().find(|view| {
            let mut context = self.new_context();
            let bound = parse::parse_query(&view.query).and_then(|query| {
                let statement = ast::Statement::Query(query);
                bind::bind(&view.query, &statement, &names, &mut context, bind::Parameters::default())
            });
            // What cannot be understood any more may read anything.
            bound.map_or(true, |bound| {
                columns_read(&bound).iter().any(|id| bound.columns.get(*id).origin == Some(origin))
            })
        })
    }

    /// A query's text with the relations it names fully qualified, so that it means the same under any search path.
    fn qualify(&self, query: &ast::Query) -> Result<String> {
        let names = self.current_names();
        let mut tokens = Vec::new();
        let text = query.to_string();
        let mut rest = text.as_str();
        // Names after FROM and JOIN are relations; those of WITH are not found in the catalog's search path first.
        let ctes: BTreeSet<String> = query
            .with
            .iter()
            .flat_map(|with| &with.cte_tables)
            .map(|cte| bind::fold(&cte.alias.name))
            .collect();
        while let Some(at) = next_relation(rest) {
            tokens.push(rest[..at].to_owned());
            rest = &rest[at..];
            let length = name_length(rest);
            let word = &rest[..length];
            let is_call = rest[length..].starts_with('(');
            let folded =
                if word.starts_with('"') { word.trim_matches('"').to_owned() } else { word.to_lowercase() };
            let qualified = rest[length..].starts_with('.');
            let found = if is_call || qualified || ctes.contains(&folded) {
                None
            } else {
                names.find(std::slice::from_ref(&folded))?
            };
            let schema = match &found {
                Some(Found::Table(table)) => names.catalog.schema(table.schema),
                Some(Found::View(view)) => names.catalog.schema(view.schema),
                _ => None,
            };
            match schema {
                Some(schema) => tokens.push(format!("{}.{word}", super::table::quote(&schema.name))),
                None => tokens.push(word.to_owned()),
            }
            rest = &rest[length..];
        }
        tokens.push(rest.to_owned());
        Ok(tokens.concat())
    }
}

/// Where the next name after FROM, JOIN or a comma of FROM begins.
fn next_relation(text: &str) -> Option<usize> {
    let upper = text.to_ascii_uppercase();
    let mut best: Option<usize> = None;
    for word in ["FROM ", "JOIN "] {
        let mut from = 0;
        while let Some(found) = upper[from..].find(word) {
            let at = from + found;
            let before = upper[..at].chars().next_back();
            let starts = before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '"'));
            let after = at + word.len();
            let next = text[after..].chars().next();
            if starts
                && next.is_some_and(|c| c.is_alphabetic() || c == '_' || c == '"')
                && !upper[after..].starts_with("LATERAL")
                && !inside_string(text, at)
            {
                best = Some(best.map_or(after, |best: usize| best.min(after)));
                break;
            }
            from = after;
        }
    }
    best
}

fn inside_string(text: &str, at: usize) -> bool {
    text[..at].matches('\'').count() % 2 == 1
}

fn name_length(text: &str) -> usize {
    if let Some(quoted) = text.strip_prefix('"') {
        return quoted.find('"').map_or(text.len(), |end| end + 2);
    }
    text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len())
}

/// The ids of the columns that a query reads: in an expression, as its result, or by place.
fn columns_read(bound: &bind::Bound) -> BTreeSet<usize> {
    let mut read: BTreeSet<usize> = bound.outputs.iter().map(|(_, id)| *id).collect();
    bound.plan.for_each_inside(&mut |node| {
        node.for_each_expr(&mut |expr| {
            expr.any(&mut |expr| {
                read.extend(expr.as_column());
                false
            });
        });
        match node {
            Logical::SetOperation { .. } | Logical::Distinct { .. } | Logical::Recursive { .. } => {
                read.extend(node.inputs().iter().flat_map(|input| input.output()));
            }
            Logical::With { expressions, .. } => {
                read.extend(expressions.iter().flat_map(|common| common.plan.output()));
            }
            _ => {}
        }
    });
    read
}
