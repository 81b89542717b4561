//! SELECT: from FROM to the select list, in the order of evaluation.
//!
//! Order of nodes: FROM, WHERE, aggregate, HAVING, windows, sets, select list, DISTINCT, ORDER BY, LIMIT.

use std::collections::{BTreeMap, BTreeSet};

use model::{Code, Result, Type, port::LockMode};
use sqlparser::{ast, ast::Spanned, tokenizer::Span};

use super::{
    Binder, Scope,
    expr::Frame,
    fold,
    group::{Calls, same},
    name, path_of,
    query::{BoundQuery, Tail, lock_name},
    refuse, unsupported, window,
};
use crate::{
    expr::{Expr, SortKey},
    plan::{
        LockWait, ScanColumn, SetExpr,
        logical::{Logical, RowLock, Target},
    },
};

/// One column of a select list.
struct Item {
    name: String,
    value: Expr,
    span: Span,
}

impl Binder<'_> {
    pub(super) fn select(
        &mut self,
        select: &ast::Select,
        tail: &Tail<'_>,
        parent: Option<&Scope<'_>>,
    ) -> Result<BoundQuery> {
        let ast::Select {
            select_token: _,
            optimizer_hints: _,
            distinct,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        refuse(select_modifiers.is_some() || top.is_some() || exclude.is_some(), "this modifier of SELECT")?;
        refuse(
            !lateral_views.is_empty() || prewhere.is_some() || !connect_by.is_empty(),
            "this clause of SELECT",
        )?;
        refuse(
            !cluster_by.is_empty() || !distribute_by.is_empty() || !sort_by.is_empty(),
            "this clause of SELECT",
        )?;
        refuse(qualify.is_some() || value_table_mode.is_some(), "this clause of SELECT")?;
        refuse(!matches!(flavor, ast::SelectFlavor::Standard), "SELECT that begins with FROM")?;
        if into.is_some() {
            return Err(unsupported("SELECT … INTO", "Use CREATE TABLE … AS."));
        }
        let (mut plan, scope) = self.bind_from(from, parent)?;
        if let Some(selection) = selection {
            let mut frame = Frame::plain(&scope, "WHERE");
            let condition = self.condition(selection, &mut frame)?;
            plan = Logical::Filter { input: Box::new(plan), condition };
        }
        let groups = self.group_by(group_by, projection, &scope)?;
        let mut calls = Calls { allow_windows: true, allow_sets: true, ..Calls::default() };
        calls.named_windows = self.named_windows(named_window)?;
        let mut places = BTreeMap::new();

        let mut items = self.select_list(projection, &scope, &mut calls, &mut places)?;
        let mut having_condition = match having {
            None => None,
            Some(having) => {
                let (windows, sets) =
                    (std::mem::take(&mut calls.allow_windows), std::mem::take(&mut calls.allow_sets));
                let mut frame = Frame::collecting(&scope, "HAVING", &mut calls);
                let condition = self.condition(having, &mut frame)?;
                merge_places(&mut places, frame.places);
                (calls.allow_windows, calls.allow_sets) = (windows, sets);
                Some(condition)
            }
        };
        let distinct_on = self.distinct_on(distinct.as_ref(), &items, &scope, &mut calls, &mut places)?;
        let mut order = self.order_by(tail.order_by, &items, &scope, &mut calls, &mut places)?;

        let aggregates = !groups.groups.is_empty()
            || groups.sets.is_some()
            || !calls.aggregates.is_empty()
            || !calls.grouping.is_empty()
            || having.is_some();
        let mut on_keys = distinct_on;
        if aggregates {
            if !tail.locks.is_empty() {
                return Err(self.lock_refused(tail, "with GROUP BY clause"));
            }
            let mut above: Vec<&mut Expr> = Vec::new();
            above.extend(items.iter_mut().map(|item| &mut item.value));
            above.extend(having_condition.iter_mut());
            above.extend(on_keys.iter_mut().flatten());
            above.extend(order.iter_mut().map(|key| &mut key.value));
            plan = self.aggregate(plan, groups, &mut calls, &mut above, &scope, &places)?;
        }
        if let Some(condition) = having_condition {
            plan = Logical::Filter { input: Box::new(plan), condition };
        }
        plan = window::windows(plan, &mut calls);
        if !calls.sets.is_empty() {
            plan = self.project_set(plan, &mut calls);
        }
        self.finish_select(plan, items, distinct.as_ref(), on_keys, order, tail, &scope, parent)
    }

    fn named_windows(&self, list: &[ast::NamedWindowDefinition]) -> Result<Vec<(String, ast::WindowSpec)>> {
        let mut named = Vec::new();
        for ast::NamedWindowDefinition(ident, definition) in list {
            let spec = match definition {
                ast::NamedWindowExpr::WindowSpec(spec) => spec.clone(),
                ast::NamedWindowExpr::NamedWindow(base) => {
                    let base = fold(base);
                    let found = named.iter().find(|(name, _): &&(String, ast::WindowSpec)| *name == base);
                    match found {
                        Some((_, spec)) => spec.clone(),
                        None => {
                            return Err(self.error(
                                Code::UndefinedObject,
                                format!("window \"{base}\" does not exist"),
                                ident.span,
                            ));
                        }
                    }
                }
            };
            named.push((fold(ident), spec));
        }
        Ok(named)
    }

    /// The select list, stars expanded.
    fn select_list(
        &mut self,
        projection: &[ast::SelectItem],
        scope: &Scope<'_>,
        calls: &mut Calls,
        places: &mut BTreeMap<usize, Span>,
    ) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for item in projection {
            match item {
                ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => {
                    let mut frame = Frame::collecting(scope, "SELECT", calls);
                    let value = self.expr(expr, &mut frame)?;
                    merge_places(places, frame.places);
                    let name = match item {
                        ast::SelectItem::ExprWithAlias { alias, .. } => fold(alias),
                        _ => name::of(expr),
                    };
                    items.push(Item { name, value, span: expr.span() });
                }
                ast::SelectItem::Wildcard(options) => {
                    check_wildcard(options)?;
                    if scope.relations.is_empty() && scope.flat.is_empty() {
                        let message = "SELECT * with no tables specified is not valid";
                        return Err(self.error(Code::SyntaxError, message, options.wildcard_token.0.span));
                    }
                    for (name, id) in &scope.flat {
                        places.entry(*id).or_insert(options.wildcard_token.0.span);
                        items.push(Item {
                            name: name.clone(),
                            value: self.read(*id),
                            span: options.wildcard_token.0.span,
                        });
                    }
                }
                ast::SelectItem::QualifiedWildcard(kind, options) => {
                    check_wildcard(options)?;
                    let path = match kind {
                        ast::SelectItemQualifiedWildcardKind::ObjectName(name) => path_of(name)?,
                        ast::SelectItemQualifiedWildcardKind::Expr(_) => {
                            return Err(unsupported("expansion of a row expression", "Name the columns."));
                        }
                    };
                    let span = options.wildcard_token.0.span;
                    let (schema, relation) = match &path[..] {
                        [relation] => (None, relation),
                        [schema, relation] => (Some(schema.as_str()), relation),
                        _ => return Err(self.error(Code::SyntaxError, "improper qualified name", span)),
                    };
                    let found = scope
                        .find_relation(schema, relation)
                        .or_else(|| scope.find_relation_anywhere(relation));
                    let Some(found) = found else {
                        let message = format!("missing FROM-clause entry for table \"{relation}\"");
                        return Err(self.error(Code::UndefinedTable, message, span));
                    };
                    for (name, id) in &found.columns {
                        places.entry(*id).or_insert(span);
                        items.push(Item { name: name.clone(), value: self.read(*id), span });
                    }
                }
                ast::SelectItem::ExprWithAliases { expr, .. } => {
                    return Err(self.error(Code::SyntaxError, "syntax error in select list", expr.span()));
                }
            }
        }
        Ok(items)
    }

    fn distinct_on(
        &mut self,
        distinct: Option<&ast::Distinct>,
        items: &[Item],
        scope: &Scope<'_>,
        calls: &mut Calls,
        places: &mut BTreeMap<usize, Span>,
    ) -> Result<Option<Vec<Expr>>> {
        let Some(ast::Distinct::On(list)) = distinct else { return Ok(None) };
        let mut keys = Vec::new();
        for expr in list {
            keys.push(self.order_value(expr, items, scope, calls, places, "DISTINCT ON")?);
        }
        Ok(Some(keys))
    }

    fn order_by(
        &mut self,
        list: &[ast::OrderByExpr],
        items: &[Item],
        scope: &Scope<'_>,
        calls: &mut Calls,
        places: &mut BTreeMap<usize, Span>,
    ) -> Result<Vec<SortKey>> {
        let mut keys = Vec::new();
        for item in list {
            refuse(item.with_fill.is_some(), "WITH FILL")?;
            let value = self.order_value(&item.expr, items, scope, calls, places, "ORDER BY")?;
            keys.push(self.key_of(value, &item.options, item.expr.span())?);
        }
        Ok(keys)
    }

    /// A key of ORDER BY or DISTINCT ON: an ordinal, an output name, else an expression over the input.
    fn order_value(
        &mut self,
        expr: &ast::Expr,
        items: &[Item],
        scope: &Scope<'_>,
        calls: &mut Calls,
        places: &mut BTreeMap<usize, Span>,
        clause: &'static str,
    ) -> Result<Expr> {
        let outputs: Vec<(String, usize)> =
            items.iter().enumerate().map(|(at, item)| (item.name.clone(), at)).collect();
        let target = match self.output_target(expr, &outputs) {
            Ok(target) => target,
            // One name of several columns is fine if they are one and the same.
            Err(error) if error.code() == Code::AmbiguousColumn => {
                let name = match super::expr::strip(expr) {
                    ast::Expr::Identifier(ident) => fold(ident),
                    _ => return Err(error),
                };
                let mut named = outputs.iter().filter(|(output, _)| *output == name).map(|(_, at)| *at);
                let first = named.next().ok_or_else(|| error.clone())?;
                if named.any(|other| !same(&items[first].value, &items[other].value)) {
                    return Err(error);
                }
                Some(first)
            }
            Err(error) => {
                return Err(if clause == "ORDER BY" {
                    error
                } else {
                    let message = error.message().replace("ORDER BY", clause);
                    self.error(error.code(), message, expr.span())
                });
            }
        };
        if let Some(at) = target {
            return self.settle_expr(items[at].value.clone(), expr.span());
        }
        let mut frame = Frame::collecting(scope, clause, calls);
        let value = self.settled(expr, &mut frame)?;
        merge_places(places, frame.places);
        Ok(value)
    }

    fn project_set(&mut self, input: Logical, calls: &mut Calls) -> Logical {
        let mut items: Vec<(usize, SetExpr)> =
            input.output().into_iter().map(|id| (id, SetExpr::Scalar(self.columns.read(id)))).collect();
        items.extend(std::mem::take(&mut calls.sets));
        Logical::ProjectSet { input: Box::new(input), items }
    }

    #[allow(clippy::too_many_arguments)]
    fn finish_select(
        &mut self,
        input: Logical,
        items: Vec<Item>,
        distinct: Option<&ast::Distinct>,
        on_keys: Option<Vec<Expr>>,
        order: Vec<SortKey>,
        tail: &Tail<'_>,
        scope: &Scope<'_>,
        parent: Option<&Scope<'_>>,
    ) -> Result<BoundQuery> {
        let is_distinct = matches!(distinct, Some(ast::Distinct::Distinct));
        if !tail.locks.is_empty() {
            return self.finish_locked(
                input,
                items,
                order,
                tail,
                scope,
                parent,
                is_distinct || on_keys.is_some(),
            );
        }
        let own: BTreeSet<usize> = input.output().into_iter().collect();
        let mut outputs = Vec::new();
        let mut projected: Vec<(usize, Expr)> = Vec::new();
        for Item { name, value, span } in items {
            if is_distinct
                && value.ty != Type::Unknown
                && self.find_operator("=", Some(value.ty), value.ty, span).is_err()
            {
                let message = format!("could not identify an equality operator for type {}", value.ty);
                return Err(self.error(Code::UndefinedFunction, message, span));
            }
            // A plain column of the input keeps its id, once; one of a query around gets an id of its own here.
            let id = match value.as_column() {
                Some(id) if own.contains(&id) && !projected.iter().any(|(at, _)| *at == id) => id,
                column => {
                    let id = self.columns.add(name.clone(), value.ty, value.typmod);
                    if let Some(column) = column {
                        self.columns.get_mut(id).origin = self.columns.get(column).origin;
                    }
                    id
                }
            };
            outputs.push((name, id));
            projected.push((id, value));
        }
        let mut keys = Vec::new();
        let visible = projected.len();
        for key in order {
            let value = self.output_or_hidden(&mut projected, key.value.clone(), &own);
            keys.push(SortKey { value, ..key });
        }
        if is_distinct && projected.len() > visible {
            let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
            let span = tail.order_by.first().map_or_else(Span::empty, |item| item.expr.span());
            return Err(self.error(Code::InvalidColumnReference, message, span));
        }
        let on_keys = on_keys.map(|keys| {
            keys.into_iter().map(|key| self.output_or_hidden(&mut projected, key, &own)).collect::<Vec<_>>()
        });
        let hidden = projected.len() > visible;
        let mut plan = Logical::Project { input: Box::new(input), items: projected };
        if is_distinct {
            plan = Logical::Distinct { input: Box::new(plan) };
        }
        if let Some(on_keys) = on_keys {
            plan = self.sort_for_distinct_on(plan, &on_keys, &mut keys, tail)?;
        } else if !keys.is_empty() {
            plan = Logical::Sort { input: Box::new(plan), keys };
        }
        plan = self.limit(plan, tail, parent)?;
        let mut bound = BoundQuery { plan, outputs };
        if hidden {
            bound.plan = self.exactly(bound_clone(&mut bound));
        }
        Ok(bound)
    }

    /// The output column that computes a value, or a new hidden one.
    fn output_or_hidden(
        &mut self,
        projected: &mut Vec<(usize, Expr)>,
        value: Expr,
        own: &BTreeSet<usize>,
    ) -> Expr {
        let found = projected
            .iter()
            .find(|(_, item)| same(item, &value))
            .map(|(id, item)| (*id, item.ty, item.typmod));
        let (id, ty, typmod) = found.unwrap_or_else(|| {
            let id = match value.as_column() {
                Some(id) if own.contains(&id) && !projected.iter().any(|(at, _)| *at == id) => id,
                _ => self.columns.add("?column?", value.ty, value.typmod),
            };
            let (ty, typmod) = (value.ty, value.typmod);
            projected.push((id, value));
            (id, ty, typmod)
        });
        Expr::column(id, ty, typmod)
    }

    fn sort_for_distinct_on(
        &mut self,
        plan: Logical,
        on: &[Expr],
        keys: &mut Vec<SortKey>,
        tail: &Tail<'_>,
    ) -> Result<Logical> {
        let leading = keys.iter().take(on.len());
        let matched = leading.clone().all(|key| on.iter().any(|at| same(at, &key.value)));
        if !matched {
            let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
            let span = tail.order_by.first().map_or_else(Span::empty, |item| item.expr.span());
            return Err(self.error(Code::InvalidColumnReference, message, span));
        }
        let mut sort: Vec<SortKey> = std::mem::take(keys);
        for key in on {
            if !sort.iter().any(|at| same(&at.value, key)) {
                let at = sort.len().min(on.len());
                sort.insert(at, SortKey { value: key.clone(), descending: false, nulls_first: false });
            }
        }
        let sorted = Logical::Sort { input: Box::new(plan), keys: sort };
        Ok(Logical::DistinctOn { input: Box::new(sorted), keys: on.to_vec() })
    }

    fn lock_refused(&self, tail: &Tail<'_>, why: &str) -> model::Error {
        let name = tail.locks.first().map_or("UPDATE", lock_name);
        model::Error::new(Code::FeatureNotSupported, format!("FOR {name} is not allowed {why}"))
    }

    /// A select list over locked rows: order, then lock, then cut, then compute, as PostgreSQL does.
    #[allow(clippy::too_many_arguments)]
    fn finish_locked(
        &mut self,
        input: Logical,
        items: Vec<Item>,
        keys: Vec<SortKey>,
        tail: &Tail<'_>,
        scope: &Scope<'_>,
        parent: Option<&Scope<'_>>,
        distinct: bool,
    ) -> Result<BoundQuery> {
        let tables = self.row_locks(tail, scope, distinct)?;
        let condition = match &input {
            Logical::Filter { condition, .. } => Some(condition.clone()),
            _ => None,
        };
        let mut plan = input;
        if !keys.is_empty() {
            plan = Logical::Sort { input: Box::new(plan), keys };
        }
        if !tables.is_empty() {
            plan = Logical::LockRows { input: Box::new(plan), tables, condition };
        }
        plan = self.limit(plan, tail, parent)?;
        let own: BTreeSet<usize> = plan.output().into_iter().collect();
        let mut outputs = Vec::new();
        let mut projected: Vec<(usize, Expr)> = Vec::new();
        for Item { name, value, span: _ } in items {
            let id = match value.as_column() {
                Some(id) if own.contains(&id) && !projected.iter().any(|(at, _)| *at == id) => id,
                _ => self.columns.add(name.clone(), value.ty, value.typmod),
            };
            outputs.push((name, id));
            projected.push((id, value));
        }
        Ok(BoundQuery { plan: Logical::Project { input: Box::new(plan), items: projected }, outputs })
    }

    /// FOR UPDATE, FOR SHARE.
    fn row_locks(&mut self, tail: &Tail<'_>, scope: &Scope<'_>, distinct: bool) -> Result<Vec<RowLock>> {
        if distinct {
            return Err(self.lock_refused(tail, "with DISTINCT clause"));
        }
        let mut tables: Vec<RowLock> = Vec::new();
        for ast::LockClause { lock_type, of, nonblock } in tail.locks {
            let mode = match lock_type {
                ast::LockType::Update => LockMode::Update,
                ast::LockType::Share => LockMode::Share,
            };
            let wait = match nonblock {
                None => LockWait::Wait,
                Some(ast::NonBlock::Nowait) => LockWait::Never,
                Some(ast::NonBlock::SkipLocked) => LockWait::Skip,
            };
            let of = of.as_ref().map(path_of).transpose()?;
            let mut found = false;
            for relation in &scope.relations {
                let chosen = of.as_ref().is_none_or(|path| path.last() == Some(&relation.alias));
                let (Some(table), true) = (&relation.table, chosen) else { continue };
                found = true;
                let of_column =
                    |wanted| relation.scan.iter().find(|(_, column)| *column == wanted).map(|(id, _)| *id);
                let (Some(partition), Some(key), Some(row)) = (
                    of_column(ScanColumn::Partition),
                    of_column(ScanColumn::Key),
                    of_column(ScanColumn::Row),
                ) else {
                    continue;
                };
                tables.push(RowLock {
                    table: table.clone(),
                    target: Target { partition, key, row },
                    columns: relation.scan.clone(),
                    mode,
                    wait,
                });
                self.need(table.id, model::access::Privilege::Update, []);
            }
            if let (Some(path), false) = (&of, found) {
                let name = path.last().map_or("", String::as_str);
                let message = format!(
                    "relation \"{name}\" in FOR {} clause not found in FROM clause",
                    lock_name(&tail.locks[0])
                );
                return Err(model::Error::new(Code::UndefinedTable, message));
            }
        }
        self.writes = true;
        Ok(tables)
    }
}

fn bound_clone(bound: &mut BoundQuery) -> BoundQuery {
    BoundQuery {
        plan: std::mem::replace(&mut bound.plan, Logical::one_row()),
        outputs: bound.outputs.clone(),
    }
}

fn merge_places(into: &mut BTreeMap<usize, Span>, from: BTreeMap<usize, Span>) {
    for (id, span) in from {
        into.entry(id).or_insert(span);
    }
}

pub(super) fn check_wildcard(options: &ast::WildcardAdditionalOptions) -> Result<()> {
    let ast::WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    let plain = opt_ilike.is_none()
        && opt_exclude.is_none()
        && opt_except.is_none()
        && opt_replace.is_none()
        && opt_rename.is_none()
        && opt_alias.is_none();
    refuse(!plain, "a modifier of *")
}
