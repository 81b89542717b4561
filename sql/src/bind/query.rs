//! Queries: set operations, VALUES, ORDER BY, LIMIT, and types of literals that nothing has decided.
//!
//! Invariants:
//! - The output of a bound query may still hold columns of type `unknown` (literals, parameters): whoever stands above gives
//!   them a type ([`Binder::coerce_outputs`]) or makes them text ([`Binder::settle`]).

use model::{Code, Error, Result, Type};
use sqlparser::{ast, ast::Spanned, tokenizer::Span};

use super::{Binder, Scope, expr::Frame, expr::strip, fold, refuse, types::Coercion, unsupported, with};
use crate::{
    expr::{Expr, Kind},
    plan::{SetKind, logical::Logical},
};

/// A bound query: what it gives, by name and id.
#[derive(Debug)]
pub(super) struct BoundQuery {
    pub(super) plan: Logical,
    pub(super) outputs: Vec<(String, usize)>,
}

/// What stands behind the body of a query.
pub(super) struct Tail<'q> {
    pub(super) order_by: &'q [ast::OrderByExpr],
    pub(super) limit: Option<&'q ast::Expr>,
    pub(super) offset: Option<&'q ast::Expr>,
    pub(super) ties: bool,
    pub(super) locks: &'q [ast::LockClause],
}

impl Tail<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.order_by.is_empty() && self.limit.is_none() && self.offset.is_none() && self.locks.is_empty()
    }
}

impl Binder<'_> {
    /// A query inside `parent`, or at the top.
    pub(super) fn query(&mut self, query: &ast::Query, parent: Option<&Scope<'_>>) -> Result<BoundQuery> {
        let ast::Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        refuse(for_clause.is_some(), "FOR XML and FOR JSON")?;
        refuse(settings.is_some() || format_clause.is_some(), "SETTINGS and FORMAT")?;
        refuse(!pipe_operators.is_empty(), "a pipe operator")?;
        let mark = self.tables.len();
        let expressions = self.with_clause(with.as_ref(), parent)?;
        let order_by = match order_by {
            None => &[][..],
            Some(ast::OrderBy { kind, interpolate }) => {
                refuse(interpolate.is_some(), "INTERPOLATE")?;
                match kind {
                    ast::OrderByKind::Expressions(list) => list,
                    ast::OrderByKind::All(_) => return Err(unsupported("ORDER BY ALL", "Name the columns.")),
                }
            }
        };
        let (mut limit, mut offset) = (None, None);
        match limit_clause {
            None => {}
            Some(ast::LimitClause::LimitOffset { limit: count, offset: skip, limit_by }) => {
                refuse(!limit_by.is_empty(), "LIMIT BY")?;
                limit = count.as_ref();
                offset = skip.as_ref().map(|skip| &skip.value);
            }
            Some(ast::LimitClause::OffsetCommaLimit { .. }) => {
                let error = Error::new(Code::SyntaxError, "LIMIT #,# syntax is not supported")
                    .with_hint("Use separate LIMIT and OFFSET clauses.");
                return Err(error);
            }
        }
        let mut ties = false;
        if let Some(ast::Fetch { with_ties, percent, quantity }) = fetch {
            refuse(*percent, "FETCH … PERCENT")?;
            ties = *with_ties;
            if limit.is_some() {
                return Err(Error::new(Code::SyntaxError, "multiple LIMIT clauses not allowed"));
            }
            limit = quantity.as_ref();
        }
        let one;
        if fetch.is_some() && limit.is_none() {
            one = ast::Expr::value(ast::Value::Number("1".to_owned(), false));
            limit = Some(&one);
            let tail = Tail { order_by, limit, offset, ties, locks };
            return self.finish_query(body, tail, parent, expressions, mark);
        }
        let tail = Tail { order_by, limit, offset, ties, locks };
        self.finish_query(body, tail, parent, expressions, mark)
    }

    fn finish_query(
        &mut self,
        body: &ast::SetExpr,
        tail: Tail<'_>,
        parent: Option<&Scope<'_>>,
        expressions: Vec<crate::plan::logical::CommonTable>,
        mark: usize,
    ) -> Result<BoundQuery> {
        if tail.ties && tail.order_by.is_empty() {
            return Err(Error::new(
                Code::SyntaxError,
                "WITH TIES cannot be specified without ORDER BY clause",
            ));
        }
        let bound = self.body(body, &tail, parent)?;
        self.tables.truncate(mark);
        Ok(BoundQuery { plan: with::around(expressions, bound.plan), outputs: bound.outputs })
    }

    /// A body with what stands behind it.
    fn body(
        &mut self,
        body: &ast::SetExpr,
        tail: &Tail<'_>,
        parent: Option<&Scope<'_>>,
    ) -> Result<BoundQuery> {
        match body {
            ast::SetExpr::Select(select) => self.select(select, tail, parent),
            ast::SetExpr::Query(inner) => {
                let bound = self.query(inner, parent)?;
                self.with_tail(bound, tail, parent)
            }
            ast::SetExpr::Values(values) => {
                let bound = self.values(values, parent)?;
                self.with_tail(bound, tail, parent)
            }
            ast::SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let bound = self.set_operation(left, *op, set_quantifier, right, parent)?;
                self.with_tail(bound, tail, parent)
            }
            ast::SetExpr::Table(table) => {
                let ast::Table { table_name, schema_name } = table.as_ref();
                let mut path: Vec<String> = schema_name.iter().map(fold).collect();
                path.extend(table_name.iter().map(fold));
                let (plan, relation) = self.relation(&path, Span::empty())?;
                let outputs = relation.columns;
                for (_, id) in &outputs {
                    self.read(*id);
                }
                self.with_tail(BoundQuery { plan, outputs }, tail, parent)
            }
            ast::SetExpr::Insert(_)
            | ast::SetExpr::Update(_)
            | ast::SetExpr::Delete(_)
            | ast::SetExpr::Merge(_) => Err(Error::new(
                Code::SyntaxError,
                "a change of rows must be at the top level of a WITH query",
            )),
        }
    }

    /// VALUES.
    pub(super) fn values(&mut self, values: &ast::Values, parent: Option<&Scope<'_>>) -> Result<BoundQuery> {
        let ast::Values { explicit_row, value_keyword, rows } = values;
        refuse(*explicit_row || *value_keyword, "VALUES ROW")?;
        let scope = Scope::inside(parent);
        let width = rows.first().map_or(0, |row| row.content.len());
        let mut bound: Vec<Vec<(Expr, Span)>> = Vec::with_capacity(rows.len());
        for row in rows {
            if row.content.len() != width {
                let at = row.content.first().map_or_else(Span::empty, Spanned::span);
                return Err(self.error(Code::SyntaxError, "VALUES lists must all be the same length", at));
            }
            let mut frame = Frame::plain(&scope, "VALUES");
            let mut values = Vec::with_capacity(width);
            for expr in &row.content {
                if is_default(expr) {
                    return Err(self.error(
                        Code::SyntaxError,
                        "DEFAULT is not allowed in this context",
                        expr.span(),
                    ));
                }
                values.push((self.expr(expr, &mut frame)?, expr.span()));
            }
            bound.push(values);
        }
        self.values_plan(bound, width)
    }

    /// A VALUES node of rows whose columns are brought to one type each.
    pub(super) fn values_plan(&mut self, rows: Vec<Vec<(Expr, Span)>>, width: usize) -> Result<BoundQuery> {
        let mut finished: Vec<Vec<Expr>> = rows.iter().map(|_| Vec::with_capacity(width)).collect();
        let mut lists: Vec<std::vec::IntoIter<(Expr, Span)>> = rows.into_iter().map(Vec::into_iter).collect();
        let mut columns = Vec::with_capacity(width);
        let mut outputs = Vec::with_capacity(width);
        for place in 0..width {
            let list: Vec<(Expr, Span)> = lists.iter_mut().filter_map(Iterator::next).collect();
            let unknown = list.iter().all(|(expr, _)| expr.ty == Type::Unknown);
            let (exprs, ty, typmod) = if unknown {
                (list.into_iter().map(|(expr, _)| expr).collect(), Type::Unknown, -1)
            } else {
                self.unify(list, "VALUES")?
            };
            let name = format!("column{}", place + 1);
            let id = self.columns.add(name.clone(), ty, typmod);
            columns.push(id);
            outputs.push((name, id));
            for (row, expr) in finished.iter_mut().zip(exprs) {
                row.push(expr);
            }
        }
        Ok(BoundQuery { plan: Logical::Values { columns, rows: finished }, outputs })
    }

    fn set_operation(
        &mut self,
        left: &ast::SetExpr,
        op: ast::SetOperator,
        quantifier: &ast::SetQuantifier,
        right: &ast::SetExpr,
        parent: Option<&Scope<'_>>,
    ) -> Result<BoundQuery> {
        let kind = match op {
            ast::SetOperator::Union => SetKind::Union,
            ast::SetOperator::Intersect => SetKind::Intersect,
            ast::SetOperator::Except => SetKind::Except,
            ast::SetOperator::Minus => return Err(unsupported("MINUS", "Use EXCEPT.")),
        };
        let all = match quantifier {
            ast::SetQuantifier::All => true,
            ast::SetQuantifier::Distinct | ast::SetQuantifier::None => false,
            ast::SetQuantifier::ByName
            | ast::SetQuantifier::AllByName
            | ast::SetQuantifier::DistinctByName => {
                return Err(unsupported("BY NAME", "Order the columns alike."));
            }
        };
        // A long chain leans to the left; walk it without recursion where the operator is one and the same.
        let none = Tail { order_by: &[], limit: None, offset: None, ties: false, locks: &[] };
        let mut left_bound = self.body(left, &none, parent)?;
        let mut right_bound = self.body(right, &none, parent)?;
        let word = match kind {
            SetKind::Union => "UNION",
            SetKind::Intersect => "INTERSECT",
            SetKind::Except => "EXCEPT",
        };
        let span = right.span();
        if left_bound.outputs.len() != right_bound.outputs.len() {
            let message = format!("each {word} query must have the same number of columns");
            return Err(self.error(Code::SyntaxError, message, span));
        }
        let mut targets = Vec::new();
        for ((_, a), (_, b)) in left_bound.outputs.iter().zip(&right_bound.outputs) {
            let (a, b) = (self.columns.get(*a).clone(), self.columns.get(*b).clone());
            let ty = self.common_type(&[(a.ty, span), (b.ty, span)], word)?;
            let typmod = if a.ty == b.ty && a.typmod == b.typmod { a.typmod } else { -1 };
            targets.push((ty, typmod));
        }
        self.coerce_outputs(&mut left_bound, &targets, Coercion::Implicit, span)?;
        self.coerce_outputs(&mut right_bound, &targets, Coercion::Implicit, span)?;
        if !all {
            for (ty, _) in &targets {
                if self.find_operator("=", Some(*ty), *ty, span).is_err() {
                    let message = format!("could not identify an equality operator for type {ty}");
                    return Err(self.error(Code::UndefinedFunction, message, span));
                }
            }
        }
        let mut columns = Vec::new();
        let mut outputs = Vec::new();
        for ((name, _), (ty, typmod)) in left_bound.outputs.iter().zip(&targets) {
            let id = self.columns.add(name.clone(), *ty, *typmod);
            columns.push(id);
            outputs.push((name.clone(), id));
        }
        let plan = Logical::SetOperation {
            kind,
            all,
            left: Box::new(self.exactly(left_bound)),
            right: Box::new(self.exactly(right_bound)),
            columns,
        };
        Ok(BoundQuery { plan, outputs })
    }

    /// A plan that gives the query's outputs and nothing else, in order.
    pub(super) fn exactly(&mut self, bound: BoundQuery) -> Logical {
        let given = bound.plan.output();
        if given.len() == bound.outputs.len()
            && given.iter().zip(&bound.outputs).all(|(given, (_, id))| given == id)
        {
            return bound.plan;
        }
        let mut seen = std::collections::BTreeSet::new();
        let items = bound
            .outputs
            .iter()
            .map(|(name, id)| {
                let read = self.columns.read(*id);
                let fresh =
                    if seen.insert(*id) { *id } else { self.columns.add(name.clone(), read.ty, read.typmod) };
                (fresh, read)
            })
            .collect();
        Logical::Project { input: Box::new(bound.plan), items }
    }

    /// ORDER BY and LIMIT over a body whose only names are its output columns.
    fn with_tail(
        &mut self,
        mut bound: BoundQuery,
        tail: &Tail<'_>,
        parent: Option<&Scope<'_>>,
    ) -> Result<BoundQuery> {
        if tail.is_empty() {
            return Ok(bound);
        }
        if let Some(lock) = tail.locks.first() {
            let message = format!("FOR {} is not allowed with UNION/INTERSECT/EXCEPT", lock_name(lock));
            return Err(Error::new(Code::FeatureNotSupported, message));
        }
        if !tail.order_by.is_empty() {
            bound = self.settle(bound)?;
            let mut keys = Vec::new();
            for item in tail.order_by {
                let target = self.output_target(&item.expr, &bound.outputs)?;
                let value = match target {
                    Some(id) => self.columns.read(id),
                    None => {
                        let mut scope = Scope::inside(parent);
                        scope.flat = bound.outputs.clone();
                        let mut frame = Frame::plain(&scope, "ORDER BY");
                        let value = self.settled(&item.expr, &mut frame)?;
                        if value.as_column().is_none() {
                            let error = Error::new(
                                Code::FeatureNotSupported,
                                "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                            )
                            .with_detail("Only result column names can be used, not expressions or functions.")
                            .with_hint("Add the expression/function to every SELECT, or move the UNION into a FROM clause.");
                            return Err(self.at(error, item.expr.span()));
                        }
                        value
                    }
                };
                keys.push(self.key_of(value, &item.options, item.expr.span())?);
            }
            bound.plan = Logical::Sort { input: Box::new(bound.plan), keys };
        }
        bound.plan = self.limit(bound.plan, tail, parent)?;
        Ok(bound)
    }

    /// LIMIT and OFFSET over a plan.
    pub(super) fn limit(
        &mut self,
        plan: Logical,
        tail: &Tail<'_>,
        parent: Option<&Scope<'_>>,
    ) -> Result<Logical> {
        if tail.limit.is_none() && tail.offset.is_none() {
            return Ok(plan);
        }
        let limit = tail.limit.map(|expr| self.limit_value(expr, "LIMIT", parent)).transpose()?.flatten();
        let offset = tail.offset.map(|expr| self.limit_value(expr, "OFFSET", parent)).transpose()?.flatten();
        if limit.is_none() && offset.is_none() {
            return Ok(plan);
        }
        let ties = match &plan {
            Logical::Sort { keys, .. } if tail.ties => Some(keys.clone()),
            _ => None,
        };
        Ok(Logical::Limit { input: Box::new(plan), limit, offset, ties })
    }

    fn limit_value(
        &mut self,
        expr: &ast::Expr,
        clause: &'static str,
        parent: Option<&Scope<'_>>,
    ) -> Result<Option<Expr>> {
        if let ast::Expr::Identifier(ident) = expr
            && ident.quote_style.is_none()
            && ident.value.eq_ignore_ascii_case("all")
        {
            return Ok(None);
        }
        let scope = Scope::inside(parent);
        let mut frame = Frame::plain(&scope, clause);
        let value = self.expr(expr, &mut frame).map_err(|error| {
            if error.code() == Code::UndefinedColumn {
                let message = format!("argument of {clause} must not contain variables");
                return self.error(Code::InvalidColumnReference, message, expr.span());
            }
            error
        })?;
        let from = value.ty;
        let how = if from == Type::Unknown { Coercion::Implicit } else { Coercion::Assignment };
        match self.try_coerce(value, Type::Int8, -1, how, expr.span())? {
            Some(value) => Ok(Some(value)),
            None => {
                let message = format!("argument of {clause} must be type bigint, not type {from}");
                Err(self.error(Code::DatatypeMismatch, message, expr.span()))
            }
        }
    }

    /// The output column that an ordinal or a bare name of ORDER BY means.
    pub(super) fn output_target(
        &self,
        expr: &ast::Expr,
        outputs: &[(String, usize)],
    ) -> Result<Option<usize>> {
        match strip(expr) {
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(text, _) => {
                    let Ok(ordinal) = text.parse::<usize>() else {
                        return Err(self.error(
                            Code::SyntaxError,
                            "non-integer constant in ORDER BY",
                            expr.span(),
                        ));
                    };
                    let found = ordinal.checked_sub(1).and_then(|place| outputs.get(place));
                    found.map(|(_, id)| Some(*id)).ok_or_else(|| {
                        let message = format!("ORDER BY position {ordinal} is not in select list");
                        self.error(Code::InvalidColumnReference, message, expr.span())
                    })
                }
                ast::Value::SingleQuotedString(_) => {
                    Err(self.error(Code::SyntaxError, "non-integer constant in ORDER BY", expr.span()))
                }
                _ => Ok(None),
            },
            ast::Expr::Identifier(ident) => {
                let name = fold(ident);
                let mut named = outputs.iter().filter(|(output, _)| *output == name).map(|(_, id)| *id);
                let first = named.next();
                if let Some(first) = first
                    && named.any(|other| other != first)
                {
                    let message = format!("ORDER BY \"{name}\" is ambiguous");
                    return Err(self.error(Code::AmbiguousColumn, message, expr.span()));
                }
                Ok(first)
            }
            _ => Ok(None),
        }
    }

    /// Makes what is still of unknown type text.
    pub(super) fn settle(&mut self, mut bound: BoundQuery) -> Result<BoundQuery> {
        let mut targets = Vec::new();
        for (_, id) in &bound.outputs {
            let info = self.columns.get(*id);
            targets.push(if info.ty == Type::Unknown { (Type::Text, -1) } else { (info.ty, info.typmod) });
        }
        self.coerce_outputs(&mut bound, &targets, Coercion::Implicit, Span::empty())?;
        Ok(bound)
    }

    /// Brings the outputs of a query to types. Literals get their type where they stand.
    pub(super) fn coerce_outputs(
        &mut self,
        bound: &mut BoundQuery,
        targets: &[(Type, i32)],
        how: Coercion,
        span: Span,
    ) -> Result<()> {
        let mut items = Vec::new();
        let mut changed = false;
        for (place, (ty, typmod)) in targets.iter().enumerate() {
            let (name, id) = bound.outputs[place].clone();
            if self.columns.get(id).ty == Type::Unknown {
                self.decide_column(&mut bound.plan, id, *ty, *typmod, how, span)?;
            }
            let read = self.columns.read(id);
            if read.ty == *ty && (*typmod < 0 || read.typmod == *typmod) {
                items.push((name, id, read));
                continue;
            }
            let value = self.coerce(read, *ty, *typmod, how, span)?;
            let fresh = self.columns.add(name.clone(), *ty, *typmod);
            items.push((name, fresh, value));
            changed = true;
        }
        if changed {
            let input = std::mem::replace(&mut bound.plan, Logical::one_row());
            bound.outputs = items.iter().map(|(name, id, _)| (name.clone(), *id)).collect();
            let mut seen = std::collections::BTreeSet::new();
            let items = items
                .into_iter()
                .filter(|(_, id, _)| seen.insert(*id))
                .map(|(_, id, value)| (id, value))
                .collect();
            bound.plan = Logical::Project { input: Box::new(input), items };
        }
        Ok(())
    }

    /// Gives a column of unknown type a type where its literal stands.
    fn decide_column(
        &mut self,
        plan: &mut Logical,
        id: usize,
        ty: Type,
        typmod: i32,
        how: Coercion,
        span: Span,
    ) -> Result<()> {
        match plan {
            Logical::Project { input, items } => {
                if let Some((_, value)) = items.iter_mut().find(|(item, _)| *item == id) {
                    let taken = std::mem::replace(value, Expr::null(ty));
                    if let Kind::Column(inner) = taken.kind {
                        self.decide_column(input, inner, ty, typmod, how, span)?;
                        *value = self.columns.read(inner);
                    } else {
                        *value = self.coerce(taken, ty, typmod, how, span)?;
                    }
                }
            }
            Logical::Values { columns, rows } => {
                if let Some(place) = columns.iter().position(|column| *column == id) {
                    for row in rows {
                        let taken = std::mem::replace(&mut row[place], Expr::null(ty));
                        row[place] = self.coerce(taken, ty, typmod, how, span)?;
                    }
                }
            }
            other => {
                for input in other.inputs_mut() {
                    if input.output().contains(&id) {
                        self.decide_column(input, id, ty, typmod, how, span)?;
                    }
                }
            }
        }
        let info = self.columns.get_mut(id);
        info.ty = ty;
        info.typmod = typmod;
        Ok(())
    }
}

/// Whether an expression is the word DEFAULT.
pub(super) fn is_default(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// `UPDATE`, `SHARE`.
pub(super) fn lock_name(lock: &ast::LockClause) -> &'static str {
    match lock.lock_type {
        ast::LockType::Update => "UPDATE",
        ast::LockType::Share => "SHARE",
    }
}
