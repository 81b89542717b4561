//! INSERT, UPDATE, DELETE.
//!
//! Invariants:
//! - The source of an INSERT gives one value per column number of the table, of the column's type, defaults filled in.
//! - UPDATE and DELETE name the old row by the ids of the target's scan; RETURNING of an UPDATE names the new one.
//! - A partition column is never assigned (`0A000`), a generated one never given (`428C9`).

use std::sync::Arc;

use model::{
    Code, Error, Result, Type,
    access::Privilege,
    id::{ColumnNumber, IndexId},
    schema::{Column, ColumnDefault, IndexState, Table},
};
use sqlparser::{ast, ast::Spanned, tokenizer::Span};

use super::{
    Binder, Found, Scope,
    expr::{Frame, strip},
    fold,
    from::{join, plain_relation},
    path_of,
    query::is_default,
    refuse,
    scope::Relation,
    select, span_of,
    types::Coercion,
    undefined_table, unsupported,
};
use crate::{
    expr::Expr,
    plan::{
        JoinKind, ScanColumn,
        logical::{self, Logical, Target},
    },
};

pub(super) type Written = (Logical, Vec<(String, usize)>);
type Returning = Option<Vec<(usize, Expr)>>;

impl Binder<'_> {
    /// The table that a statement writes.
    fn target_table(&mut self, path: &[String], what: &str, span: Span) -> Result<Arc<Table>> {
        let name = path.last().map_or("", String::as_str);
        match self.names.find(path).map_err(|error| self.at(error, span))? {
            Some(Found::Table(table)) => Ok(table),
            Some(Found::View(_)) => {
                let error =
                    Error::new(Code::ObjectNotInPrerequisiteState, format!("cannot {what} view \"{name}\""))
                        .with_detail("Views are read-only here.")
                        .with_hint("Change the table that the view reads.");
                Err(self.at(error, span))
            }
            Some(Found::System(_)) => {
                let message = format!("permission denied: \"{name}\" is a system catalog");
                Err(self.error(Code::InsufficientPrivilege, message, span))
            }
            Some(Found::Sequence(_)) => {
                Err(self.error(Code::WrongObjectType, format!("cannot change sequence \"{name}\""), span))
            }
            Some(Found::Index(..)) => {
                Err(self.error(Code::WrongObjectType, format!("cannot open relation \"{name}\""), span))
            }
            None => Err(self.at(undefined_table(path), span)),
        }
    }

    pub(super) fn insert(&mut self, insert: &ast::Insert, parent: Option<&Scope<'_>>) -> Result<Written> {
        let ast::Insert {
            insert_token: _,
            optimizer_hints: _,
            or,
            ignore,
            into,
            table,
            table_alias,
            columns,
            by_name,
            overwrite,
            source,
            assignments,
            partitioned,
            after_columns,
            overriding,
            has_table_keyword,
            on,
            returning,
            output,
            replace_into,
            priority,
            insert_alias,
            settings,
            format_clause,
            multi_table_insert_type,
            multi_table_into_clauses,
            multi_table_when_clauses,
            multi_table_else_clause,
        } = insert;
        refuse(or.is_some() || *ignore || *overwrite || *replace_into || *by_name, "this form of INSERT")?;
        refuse(
            !assignments.is_empty() || partitioned.is_some() || !after_columns.is_empty(),
            "this form of INSERT",
        )?;
        refuse(
            *has_table_keyword || output.is_some() || priority.is_some() || insert_alias.is_some(),
            "this form of INSERT",
        )?;
        refuse(
            settings.is_some() || format_clause.is_some() || multi_table_insert_type.is_some(),
            "this form of INSERT",
        )?;
        refuse(
            !multi_table_into_clauses.is_empty() || !multi_table_when_clauses.is_empty(),
            "this form of INSERT",
        )?;
        refuse(multi_table_else_clause.is_some(), "this form of INSERT")?;
        let ast::TableObject::TableName(name) = table else {
            return Err(unsupported("INSERT into something that is no table", "Name a table."));
        };
        let span = span_of(name);
        if !into {
            return Err(self.error(Code::SyntaxError, format!("syntax error at or near \"{name}\""), span));
        }
        self.writes = true;
        let table = self.target_table(&path_of(name)?, "insert into", span)?;
        let alias = table_alias.as_ref().map(|alias| fold(&alias.alias));
        let targets = self.insert_targets(&table, columns)?;
        let given = source.as_ref().map_or(&[][..], |_| &targets);
        self.need(table.id, Privilege::Insert, given.iter().map(|column| column.number));
        let overriding_system = match overriding.as_ref().map(ToString::to_string) {
            None => false,
            Some(text) => text.to_uppercase().contains("SYSTEM"),
        };
        let overriding_user = overriding.is_some() && !overriding_system;
        let source = self.insert_source(
            &table,
            &targets,
            columns.is_empty(),
            source.as_deref(),
            (overriding_system, overriding_user),
            parent,
            span,
        )?;

        let (row, new_relation) = self.row_relation(&table, alias.clone());
        let rules = self.row_rules(&table, &row)?;
        let (existing, old_relation) = self.row_relation(&table, alias);
        for row in [&row, &existing] {
            self.make_readable(&table, row);
        }
        let on_conflict = match on {
            None => None,
            Some(ast::OnInsert::DuplicateKeyUpdate(_)) => {
                return Err(unsupported("ON DUPLICATE KEY UPDATE", "Use ON CONFLICT (…) DO UPDATE SET …."));
            }
            Some(ast::OnInsert::OnConflict(conflict)) => {
                Some(self.on_conflict(&table, conflict, old_relation, &row, span)?)
            }
            #[allow(unreachable_patterns)]
            Some(_) => return Err(unsupported("this form of INSERT", "Use ON CONFLICT.")),
        };
        let mut scope = Scope::default();
        scope.add(new_relation)?;
        let (returning, outputs) = self.returning(returning.as_deref(), &scope)?;
        let plan = Logical::Insert(Box::new(logical::Insert {
            table,
            source,
            rules,
            row,
            existing,
            on_conflict,
            returning,
        }));
        Ok((plan, outputs))
    }

    pub(super) fn insert_targets(&self, table: &Table, columns: &[ast::ObjectName]) -> Result<Vec<Column>> {
        if columns.is_empty() {
            return Ok(table.visible_columns().cloned().collect());
        }
        let mut targets: Vec<Column> = Vec::new();
        for column in columns {
            let name = path_of(column)?.pop().unwrap_or_default();
            let span = span_of(column);
            let found = self.get_column(table, &name, span)?.clone();
            if targets.iter().any(|target| target.number == found.number) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(self.error(Code::DuplicateColumn, message, span));
            }
            targets.push(found);
        }
        Ok(targets)
    }

    fn get_column<'t>(&self, table: &'t Table, name: &str, span: Span) -> Result<&'t Column> {
        table.find_column(name).ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            self.error(Code::UndefinedColumn, message, span)
        })
    }

    /// Whether a column takes values of the client.
    pub(super) fn check_given(&self, column: &Column, overriding: bool, span: Span) -> Result<()> {
        let detail = match &column.default {
            Some(ColumnDefault::Generated(_)) => format!("Column \"{}\" is a generated column.", column.name),
            Some(ColumnDefault::Identity { always: true, .. }) if !overriding => {
                format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name)
            }
            _ => return Ok(()),
        };
        let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name);
        let mut error = Error::new(Code::GeneratedAlways, message).with_detail(detail);
        if matches!(column.default, Some(ColumnDefault::Identity { .. })) {
            error = error.with_hint("Use OVERRIDING SYSTEM VALUE to override.");
        }
        Err(self.at(error, span))
    }

    #[allow(clippy::too_many_arguments)]
    fn insert_source(
        &mut self,
        table: &Table,
        targets: &[Column],
        all: bool,
        source: Option<&ast::Query>,
        (overriding, ignore_user): (bool, bool),
        parent: Option<&Scope<'_>>,
        span: Span,
    ) -> Result<Logical> {
        let Some(source) = source else {
            let row = self.whole_row(table, &[], Vec::new())?;
            return Ok(self.row_values(table, vec![row]));
        };
        if let ast::SetExpr::Values(values) = source.body.as_ref()
            && source.with.is_none()
            && source.order_by.is_none()
            && source.limit_clause.is_none()
            && source.fetch.is_none()
        {
            return self.insert_values(table, targets, all, values, (overriding, ignore_user), parent);
        }
        let mut bound = self.query(source, parent)?;
        if bound.outputs.len() > targets.len() {
            return Err(self.error(
                Code::SyntaxError,
                "INSERT has more expressions than target columns",
                span,
            ));
        }
        if bound.outputs.len() < targets.len() && !all {
            return Err(self.error(
                Code::SyntaxError,
                "INSERT has more target columns than expressions",
                span,
            ));
        }
        let targets = &targets[..bound.outputs.len()];
        for column in targets {
            self.check_given(column, overriding || ignore_user, span)?;
        }
        for ((_, id), column) in bound.outputs.iter().zip(targets) {
            let found = self.columns.get(*id).ty;
            self.check_assignable(column, found, span)?;
        }
        let types: Vec<(Type, i32)> =
            targets.iter().map(|column| (column.data_type, column.typmod.0)).collect();
        self.coerce_outputs(&mut bound, &types, Coercion::Assignment, span)?;
        let given: Vec<Expr> = bound.outputs.iter().map(|(_, id)| self.columns.read(*id)).collect();
        let mut given_columns = targets.to_vec();
        let mut given_values = given;
        if ignore_user {
            drop_identity(&mut given_columns, &mut given_values);
        }
        let row = self.whole_row(table, &given_columns, given_values)?;
        let items =
            row.into_iter().map(|value| (self.columns.add("", value.ty, value.typmod), value)).collect();
        Ok(Logical::Project { input: Box::new(bound.plan), items })
    }

    fn insert_values(
        &mut self,
        table: &Table,
        targets: &[Column],
        all: bool,
        values: &ast::Values,
        (overriding, ignore_user): (bool, bool),
        parent: Option<&Scope<'_>>,
    ) -> Result<Logical> {
        let scope = Scope::inside(parent);
        let mut rows = Vec::with_capacity(values.rows.len());
        let defaults: Vec<Expr> =
            table.columns.iter().map(|column| self.default_of(column)).collect::<Result<_>>()?;
        for row in &values.rows {
            let row = &row.content;
            if row.len() > targets.len() {
                let at = row[targets.len()].span();
                return Err(self.error(
                    Code::SyntaxError,
                    "INSERT has more expressions than target columns",
                    at,
                ));
            }
            if row.len() < targets.len() && !all {
                let at = row.first().map_or_else(Span::empty, Spanned::span);
                return Err(self.error(
                    Code::SyntaxError,
                    "INSERT has more target columns than expressions",
                    at,
                ));
            }
            if row.len() != values.rows[0].content.len() {
                let at = row.first().map_or_else(Span::empty, Spanned::span);
                return Err(self.error(Code::SyntaxError, "VALUES lists must all be the same length", at));
            }
            let mut whole = defaults.clone();
            let mut frame = Frame::plain(&scope, "VALUES");
            for (expr, column) in row.iter().zip(targets) {
                if is_default(expr) {
                    continue;
                }
                let is_identity = matches!(column.default, Some(ColumnDefault::Identity { .. }));
                if ignore_user && is_identity {
                    continue;
                }
                self.check_given(column, overriding, expr.span())?;
                let value = self.assignable(expr, column, &mut frame)?;
                whole[usize::from(column.number.0) - 1] = value;
            }
            rows.push(whole);
        }
        Ok(self.row_values(table, rows))
    }

    fn row_values(&mut self, table: &Table, rows: Vec<Vec<Expr>>) -> Logical {
        let columns = table
            .columns
            .iter()
            .map(|column| self.columns.add(column.name.clone(), column.data_type, column.typmod.0))
            .collect();
        Logical::Values { columns, rows }
    }

    /// One value per column number: what is given, else the default.
    fn whole_row(&mut self, table: &Table, given: &[Column], values: Vec<Expr>) -> Result<Vec<Expr>> {
        let mut values: Vec<Option<Expr>> = values.into_iter().map(Some).collect();
        let mut row = Vec::with_capacity(table.columns.len());
        for column in &table.columns {
            let place = given.iter().position(|at| at.number == column.number);
            row.push(match place.and_then(|place| values[place].take()) {
                Some(value) => value,
                None => self.default_of(column)?,
            });
        }
        Ok(row)
    }

    /// An expression as a value of a column.
    pub(super) fn assignable(
        &mut self,
        expr: &ast::Expr,
        column: &Column,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let value = self.expr(expr, frame)?;
        self.check_assignable(column, value.ty, expr.span())?;
        self.coerce(value, column.data_type, column.typmod.0, Coercion::Assignment, expr.span())
    }

    fn check_assignable(&self, column: &Column, from: Type, span: Span) -> Result<()> {
        let fits = from == Type::Unknown
            || from == column.data_type
            || crate::functions::cast::find(from, column.data_type)
                .is_some_and(|context| context != crate::functions::CastContext::Explicit);
        if fits {
            return Ok(());
        }
        let message = format!(
            "column \"{}\" is of type {} but expression is of type {from}",
            column.name, column.data_type
        );
        let error = Error::new(Code::DatatypeMismatch, message)
            .with_hint("You will need to rewrite or cast the expression.");
        Err(self.at(error, span))
    }

    /// Ids for a whole row of a table, and the relation that names them.
    pub(super) fn row_relation(
        &mut self,
        table: &Arc<Table>,
        alias: Option<String>,
    ) -> (Vec<usize>, Relation) {
        let mut ids = Vec::new();
        let mut columns = Vec::new();
        for column in &table.columns {
            let id = self.columns.add_with_origin(
                &column.name,
                column.data_type,
                column.typmod.0,
                (table.id.0, column.place().0),
            );
            ids.push(id);
            if !column.dropped && !column.hidden {
                columns.push((column.place(), column.name.clone(), id));
            }
        }
        columns.sort_by_key(|(place, _, _)| *place);
        let columns = columns.into_iter().map(|(_, name, id)| (name, id)).collect();
        let mut relation = plain_relation(alias.unwrap_or_else(|| table.name.clone()), columns);
        relation.table = Some(table.clone());
        (ids, relation)
    }

    /// Whoever reads a column of this row needs the right to read it in the table.
    fn make_readable(&mut self, table: &Table, row: &[usize]) {
        let columns = table.columns.iter().zip(row);
        self.readable.extend(columns.map(|(column, id)| (*id, (table.id, column.number))));
    }

    #[allow(clippy::type_complexity)]
    fn on_conflict(
        &mut self,
        table: &Arc<Table>,
        conflict: &ast::OnConflict,
        existing: Relation,
        row: &[usize],
        span: Span,
    ) -> Result<(Vec<IndexId>, Option<(Vec<(ColumnNumber, Expr)>, Option<Expr>)>)> {
        let ast::OnConflict { conflict_target, action } = conflict;
        let indexes = self.conflict_indexes(table, conflict_target.as_ref(), span)?;
        for index in table.indexes.iter().filter(|index| indexes.contains(&index.id)) {
            self.need(table.id, Privilege::Select, index.parts.iter().map(|part| part.column));
        }
        let update = match action {
            ast::OnConflictAction::DoNothing => return Ok((indexes, None)),
            ast::OnConflictAction::DoUpdate(update) => update,
        };
        if conflict_target.is_none() {
            let error = Error::new(
                Code::SyntaxError,
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
            .with_hint("For example, ON CONFLICT (column_name).");
            return Err(self.at(error, span));
        }
        let mut scope = Scope::default();
        scope.add(existing)?;
        let excluded = table.columns.iter().zip(row).filter(|(column, _)| !column.dropped && !column.hidden);
        let excluded = plain_relation(
            "excluded".to_owned(),
            excluded.map(|(column, id)| (column.name.clone(), *id)).collect(),
        );
        scope.add(excluded)?;
        let ast::DoUpdate { assignments, selection } = update;
        let (assignments, extra) = self.assignments(table, assignments, &scope)?;
        refuse(extra.is_some(), "a sub-query assigned to several columns in ON CONFLICT")?;
        self.need(table.id, Privilege::Update, assignments.iter().map(|(number, _)| *number));
        let condition = match selection {
            None => None,
            Some(selection) => {
                let mut frame = Frame::plain(&scope, "WHERE");
                Some(self.condition(selection, &mut frame)?)
            }
        };
        Ok((indexes, Some((assignments, condition))))
    }

    fn conflict_indexes(
        &self,
        table: &Table,
        target: Option<&ast::ConflictTarget>,
        span: Span,
    ) -> Result<Vec<IndexId>> {
        match target {
            None => Ok(Vec::new()),
            Some(ast::ConflictTarget::OnConstraint(name)) => {
                let name = path_of(name)?.pop().unwrap_or_default();
                let found =
                    table.indexes.iter().find(|index| index.name == name && index.constraint.is_some());
                found.map(|index| vec![index.id]).ok_or_else(|| {
                    let message =
                        format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                    self.error(Code::UndefinedObject, message, span)
                })
            }
            Some(ast::ConflictTarget::Columns { columns, predicate }) => {
                let mut numbers = Vec::new();
                for column in columns {
                    numbers.push(self.get_column(table, &fold(column), column.span)?.number);
                }
                let covers = |index: &&model::schema::Index| {
                    index.unique
                        // A constraint whose index is being built is the transaction's own.
                        && (index.state == IndexState::Ready || index.constraint.is_some())
                        && (index.predicate.is_none() || predicate.is_some())
                        && index.parts.len() == numbers.len()
                        && index.parts.iter().all(|part| numbers.contains(&part.column))
                };
                let found: Vec<IndexId> = table.indexes.iter().filter(covers).map(|index| index.id).collect();
                if found.is_empty() {
                    let message =
                        "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                    return Err(self.error(Code::InvalidColumnReference, message, span));
                }
                Ok(found)
            }
        }
    }

    /// SET: values per column, and a sub-query that gives several, to be joined to the source.
    #[allow(clippy::type_complexity)]
    pub(super) fn assignments(
        &mut self,
        table: &Table,
        list: &[ast::Assignment],
        scope: &Scope<'_>,
    ) -> Result<(Vec<(ColumnNumber, Expr)>, Option<Vec<Logical>>)> {
        let mut assigned: Vec<(ColumnNumber, Expr)> = Vec::new();
        let mut queries = Vec::new();
        for ast::Assignment { target, value } in list {
            let mut frame = Frame::plain(scope, "UPDATE");
            match target {
                ast::AssignmentTarget::ColumnName(name) => {
                    let column = self.assigned_column(table, name)?;
                    let value = self.assigned_value(value, &column, &mut frame)?;
                    self.assign(&mut assigned, &column, value, span_of(name))?;
                }
                ast::AssignmentTarget::Tuple(names) => {
                    let columns: Vec<Column> =
                        names.iter().map(|name| self.assigned_column(table, name)).collect::<Result<_>>()?;
                    match strip(value) {
                        ast::Expr::Tuple(values) if values.len() == columns.len() => {
                            for (value, column) in values.iter().zip(&columns) {
                                let bound = self.assigned_value(value, column, &mut frame)?;
                                self.assign(&mut assigned, column, bound, value.span())?;
                            }
                        }
                        ast::Expr::Subquery(query) => {
                            let mut bound = self.query(query, Some(scope))?;
                            if bound.outputs.len() != columns.len() {
                                let message = "number of columns does not match number of values";
                                return Err(self.error(Code::SyntaxError, message, value.span()));
                            }
                            let types: Vec<(Type, i32)> =
                                columns.iter().map(|column| (column.data_type, column.typmod.0)).collect();
                            self.coerce_outputs(&mut bound, &types, Coercion::Assignment, value.span())?;
                            for ((_, id), column) in bound.outputs.iter().zip(&columns) {
                                let read = self.columns.read(*id);
                                self.assign(&mut assigned, column, read, value.span())?;
                            }
                            queries.push(bound.plan);
                        }
                        ast::Expr::Tuple(_) => {
                            let message = "number of columns does not match number of values";
                            return Err(self.error(Code::SyntaxError, message, value.span()));
                        }
                        // `(a) = (1)` comes without a tuple.
                        other if columns.len() == 1 => {
                            let bound = self.assigned_value(other, &columns[0], &mut frame)?;
                            self.assign(&mut assigned, &columns[0], bound, value.span())?;
                        }
                        _ => {
                            let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                            return Err(self.error(Code::FeatureNotSupported, message, value.span()));
                        }
                    }
                }
            }
        }
        Ok((assigned, (!queries.is_empty()).then_some(queries)))
    }

    fn assigned_column(&self, table: &Table, name: &ast::ObjectName) -> Result<Column> {
        let path = path_of(name)?;
        let span = span_of(name);
        let [column] = &path[..] else {
            let first = path.first().map_or("", String::as_str);
            let message = format!("column \"{first}\" of relation \"{}\" does not exist", table.name);
            return Err(self.error(Code::UndefinedColumn, message, span));
        };
        let column = self.get_column(table, column, span)?;
        if table.partition_by.contains(&column.number) {
            let error = Error::unsupported(
                format!("column \"{}\" decides the row's partition and cannot be changed", column.name),
                "Delete the row and insert it again.",
            );
            return Err(self.at(error, span));
        }
        Ok(column.clone())
    }

    fn assigned_value(&mut self, value: &ast::Expr, column: &Column, frame: &mut Frame<'_>) -> Result<Expr> {
        if is_default(value) {
            return self.default_of(column);
        }
        let fault = match &column.default {
            Some(ColumnDefault::Generated(_)) => {
                Some(format!("Column \"{}\" is a generated column.", column.name))
            }
            Some(ColumnDefault::Identity { always: true, .. }) => {
                Some(format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name))
            }
            _ => None,
        };
        if let Some(detail) = fault {
            let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
            return Err(self.at(Error::new(Code::GeneratedAlways, message).with_detail(detail), value.span()));
        }
        self.assignable(value, column, frame)
    }

    fn assign(
        &self,
        assigned: &mut Vec<(ColumnNumber, Expr)>,
        column: &Column,
        value: Expr,
        span: Span,
    ) -> Result<()> {
        if assigned.iter().any(|(number, _)| *number == column.number) {
            let message = format!("multiple assignments to same column \"{}\"", column.name);
            return Err(self.error(Code::SyntaxError, message, span));
        }
        // DEFAULT of a generated column: it is computed anyway.
        if !matches!(column.default, Some(ColumnDefault::Generated(_))) {
            assigned.push((column.number, value));
        }
        Ok(())
    }

    pub(super) fn update(&mut self, update: &ast::Update) -> Result<Written> {
        let ast::Update {
            update_token: _,
            optimizer_hints: _,
            table,
            on_cluster,
            assignments,
            from,
            selection,
            returning,
            output,
            or,
            order_by,
            limit,
            settings,
        } = update;
        refuse(
            on_cluster.is_some() || output.is_some() || or.is_some() || settings.is_some(),
            "this form of UPDATE",
        )?;
        refuse(!order_by.is_empty() || limit.is_some(), "ORDER BY or LIMIT in UPDATE")?;
        refuse(!table.joins.is_empty(), "JOIN in the target of UPDATE")?;
        self.writes = true;
        let (target, relation, table, scan) = self.write_target(&table.relation, "update")?;
        let tables = match from {
            None => &[][..],
            Some(
                ast::UpdateTableFromKind::AfterSet(tables) | ast::UpdateTableFromKind::BeforeSet(tables),
            ) => tables,
        };
        let alias = relation.alias.clone();
        let (mut source, scope) = self.source(scan, relation, tables)?;
        let condition = self.write_condition(selection.as_ref(), &scope)?;
        let (assignments, queries) = self.assignments(&table, assignments, &scope)?;
        if let Some(condition) = condition.clone() {
            source = Logical::Filter { input: Box::new(source), condition };
        }
        for query in queries.into_iter().flatten() {
            source = join(JoinKind::Single, source, query, None);
        }
        self.need(table.id, Privilege::Update, assignments.iter().map(|(number, _)| *number));

        let old = target.1;
        let (new, new_relation) = self.row_relation(&table, Some(alias));
        let rules = self.row_rules(&table, &new)?;
        self.make_readable(&table, &new);
        let new_scope = returning_scope(scope, new_relation);
        let (returning, outputs) = self.returning(returning.as_deref(), &new_scope)?;
        let plan = Logical::Update(Box::new(logical::Update {
            table,
            source,
            target: target.0,
            old,
            new,
            assignments,
            condition,
            rules,
            returning,
        }));
        Ok((plan, outputs))
    }

    pub(super) fn delete(&mut self, delete: &ast::Delete) -> Result<Written> {
        let ast::Delete {
            delete_token: _,
            optimizer_hints: _,
            tables,
            from,
            on_cluster,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
            settings,
        } = delete;
        refuse(
            !tables.is_empty() || on_cluster.is_some() || output.is_some() || settings.is_some(),
            "this form of DELETE",
        )?;
        refuse(!order_by.is_empty() || limit.is_some(), "ORDER BY or LIMIT in DELETE")?;
        let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = from;
        let [item] = &from[..] else {
            return Err(Error::new(Code::SyntaxError, "syntax error: DELETE names one table"));
        };
        refuse(!item.joins.is_empty(), "JOIN in the target of DELETE")?;
        self.writes = true;
        let (target, relation, table, scan) = self.write_target(&item.relation, "delete from")?;
        self.need(table.id, Privilege::Delete, []);
        let (mut source, scope) = self.source(scan, relation, using.as_deref().unwrap_or_default())?;
        let condition = self.write_condition(selection.as_ref(), &scope)?;
        if let Some(condition) = condition.clone() {
            source = Logical::Filter { input: Box::new(source), condition };
        }
        let (returning, outputs) = self.returning(returning.as_deref(), &scope)?;
        let plan = Logical::Delete(Box::new(logical::Delete {
            table,
            source,
            target: target.0,
            old: target.1,
            condition,
            returning,
        }));
        Ok((plan, outputs))
    }

    /// The scan of the table that is changed: where its rows stand, and the ids of its columns by number.
    #[allow(clippy::type_complexity)]
    pub(super) fn write_target(
        &mut self,
        factor: &ast::TableFactor,
        what: &str,
    ) -> Result<((Target, Vec<usize>), Relation, Arc<Table>, Logical)> {
        let ast::TableFactor::Table { name, alias, args, .. } = factor else {
            return Err(unsupported("this target", "Name a table."));
        };
        refuse(args.is_some(), "a function as target")?;
        let span = span_of(name);
        let table = self.target_table(&path_of(name)?, what, span)?;
        let (scan, mut relation) = self.scan(table.clone());
        self.rename(&mut relation, alias.as_ref())?;
        let id_of = |column| {
            let found = relation.scan.iter().find(|(_, at)| *at == column).map(|(id, _)| *id);
            found.ok_or_else(|| Error::internal("a scan without its row"))
        };
        let target = Target {
            partition: id_of(ScanColumn::Partition)?,
            key: id_of(ScanColumn::Key)?,
            row: id_of(ScanColumn::Row)?,
        };
        let mut old = Vec::new();
        for column in &table.columns {
            let found = relation
                .scan
                .iter()
                .find(|(_, at)| *at == ScanColumn::Column(column.number))
                .map(|(id, _)| *id);
            old.push(match found {
                Some(id) => id,
                None => self.columns.add("", column.data_type, column.typmod.0),
            });
        }
        Ok(((target, old), relation, table, scan))
    }

    /// The target joined with FROM or USING.
    fn source(
        &mut self,
        scan: Logical,
        relation: Relation,
        tables: &[ast::TableWithJoins],
    ) -> Result<(Logical, Scope<'static>)> {
        let mut scope: Scope<'static> = Scope::default();
        scope.add(relation)?;
        if tables.is_empty() {
            return Ok((scan, scope));
        }
        let (plan, more) = {
            let (plan, more) = self.bind_from(tables, None)?;
            (
                plan,
                Scope { relations: more.relations, flat: more.flat, parent: None, unreachable: Vec::new() },
            )
        };
        scope.join(more)?;
        Ok((join(JoinKind::Inner, scan, plan, None), scope))
    }

    fn write_condition(&mut self, selection: Option<&ast::Expr>, scope: &Scope<'_>) -> Result<Option<Expr>> {
        let Some(selection) = selection else { return Ok(None) };
        if let ast::Expr::Function(call) = selection
            && call.name.to_string().eq_ignore_ascii_case("current of")
        {
            return Err(unsupported("WHERE CURRENT OF", "Name the row by its key."));
        }
        let mut frame = Frame::plain(scope, "WHERE");
        self.condition(selection, &mut frame).map(Some)
    }

    /// RETURNING.
    fn returning(
        &mut self,
        list: Option<&[ast::SelectItem]>,
        scope: &Scope<'_>,
    ) -> Result<(Returning, Vec<(String, usize)>)> {
        let Some(list) = list else { return Ok((None, Vec::new())) };
        let mut items = Vec::new();
        let mut outputs = Vec::new();
        for item in list {
            match item {
                ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => {
                    let mut frame = Frame::plain(scope, "RETURNING");
                    let value = self.settled(expr, &mut frame)?;
                    let name = match item {
                        ast::SelectItem::ExprWithAlias { alias, .. } => fold(alias),
                        _ => super::name::of(expr),
                    };
                    let id = self.columns.add(name.clone(), value.ty, value.typmod);
                    if let Some(column) = value.as_column() {
                        self.columns.get_mut(id).origin = self.columns.get(column).origin;
                    }
                    items.push((id, value));
                    outputs.push((name, id));
                }
                ast::SelectItem::Wildcard(options) => {
                    select::check_wildcard(options)?;
                    for (name, column) in &scope.flat {
                        self.returned_column(name, *column, &mut items, &mut outputs);
                    }
                }
                ast::SelectItem::QualifiedWildcard(
                    ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    select::check_wildcard(options)?;
                    let path = path_of(name)?;
                    let relation = path.last().map_or("", String::as_str);
                    let Some(found) = scope.find_relation(None, relation) else {
                        let message = format!("missing FROM-clause entry for table \"{relation}\"");
                        return Err(self.error(Code::UndefinedTable, message, span_of(name)));
                    };
                    for (name, column) in found.columns.clone() {
                        self.returned_column(&name, column, &mut items, &mut outputs);
                    }
                }
                ast::SelectItem::QualifiedWildcard(..) | ast::SelectItem::ExprWithAliases { .. } => {
                    return Err(unsupported("this form of RETURNING", "Name the columns."));
                }
            }
        }
        Ok((Some(items), outputs))
    }

    fn returned_column(
        &mut self,
        name: &str,
        column: usize,
        items: &mut Vec<(usize, Expr)>,
        outputs: &mut Vec<(String, usize)>,
    ) {
        let read = self.read(column);
        let id = self.columns.add(name, read.ty, read.typmod);
        self.columns.get_mut(id).origin = self.columns.get(column).origin;
        items.push((id, read));
        outputs.push((name.to_owned(), id));
    }
}

/// The names of RETURNING: the new row in the place of the target, then FROM.
fn returning_scope(scope: Scope<'static>, new: Relation) -> Scope<'static> {
    let mut renamed = Scope::default();
    let width = scope.relations.first().map_or(0, |relation| relation.columns.len());
    renamed.flat = new.columns.clone();
    renamed.flat.extend(scope.flat.into_iter().skip(width));
    renamed.relations.push(new);
    renamed.relations.extend(scope.relations.into_iter().skip(1));
    renamed
}

/// Leaves out the values of identity columns (`OVERRIDING USER VALUE`).
fn drop_identity(columns: &mut Vec<Column>, values: &mut Vec<Expr>) {
    let keep: Vec<bool> = columns
        .iter()
        .map(|column| !matches!(column.default, Some(ColumnDefault::Identity { .. })))
        .collect();
    let mut at = keep.iter();
    columns.retain(|_| *at.next().unwrap_or(&true));
    let mut at = keep.iter();
    values.retain(|_| *at.next().unwrap_or(&true));
}
