//! Calls that are no scalar expressions, and GROUP BY: what is collected while a query's expressions are bound, and how it
//! becomes nodes under them.
//!
//! Invariants:
//! - A collected call leaves a column in its place; the node that gives the column is put below the expression later.
//! - A group that is a plain column keeps the column's id, so that expressions and correlated sub-queries above the
//!   aggregate go on naming it.
//! - After grouping an expression reads only groups, aggregates, and columns that the groups determine (`42803`).

use std::collections::{BTreeMap, BTreeSet};

use model::{Code, Error, Result};
use sqlparser::{ast, tokenizer::Span};

use super::{Binder, Scope, expr::Frame, expr::strip, refuse, scope::Relation, unsupported};
use crate::{
    expr::{Expr, Kind, Query, SortKey, Subquery, SubqueryKind, Subscript},
    plan::{
        AggregateCall, SetExpr, WindowCall,
        logical::{self, Logical},
    },
};

/// What was collected.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) aggregates: Vec<(usize, AggregateCall)>,
    pub(super) windows: Vec<WindowUse>,
    pub(super) sets: Vec<(usize, SetExpr)>,
    pub(super) grouping: Vec<(usize, Vec<Expr>, Span)>,
    /// `WINDOW name AS (…)`.
    pub(super) named_windows: Vec<(String, ast::WindowSpec)>,
    /// Window functions may stand here.
    pub(super) allow_windows: bool,
    /// Set-returning functions may stand here.
    pub(super) allow_sets: bool,
}

/// A window function with its window.
pub(super) struct WindowUse {
    pub(super) partition: Vec<Expr>,
    pub(super) order: Vec<SortKey>,
    pub(super) id: usize,
    pub(super) call: WindowCall,
}

/// GROUP BY, bound.
pub(super) struct Groups {
    pub(super) groups: Vec<(usize, Expr)>,
    pub(super) sets: Option<Vec<Vec<usize>>>,
}

impl Binder<'_> {
    /// GROUP BY: ordinals, output names, expressions, grouping sets.
    pub(super) fn group_by(
        &mut self,
        clause: &ast::GroupByExpr,
        projection: &[ast::SelectItem],
        scope: &Scope<'_>,
    ) -> Result<Groups> {
        let (list, modifiers) = match clause {
            ast::GroupByExpr::Expressions(list, modifiers) => (list, modifiers),
            ast::GroupByExpr::All(_) => return Err(unsupported("GROUP BY ALL", "Name the columns.")),
        };
        refuse(!modifiers.is_empty(), "a modifier of GROUP BY")?;
        let mut groups = Groups { groups: Vec::new(), sets: None };
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        let mut any = false;
        for item in list {
            let alternatives = self.group_item(item, projection, scope, &mut groups, &mut any)?;
            let mut next = Vec::new();
            for set in &sets {
                for alternative in &alternatives {
                    let mut all = set.clone();
                    all.extend(alternative.iter().filter(|place| !set.contains(place)));
                    next.push(all);
                }
            }
            if next.len() > 4_096 {
                return Err(Error::new(
                    Code::StatementTooComplex,
                    "too many grouping sets present (maximum 4096)",
                ));
            }
            sets = next;
        }
        if any {
            groups.sets = Some(sets);
        }
        Ok(groups)
    }

    /// The alternatives of one item: which places of `groups` belong to each.
    fn group_item(
        &mut self,
        item: &ast::Expr,
        projection: &[ast::SelectItem],
        scope: &Scope<'_>,
        groups: &mut Groups,
        any: &mut bool,
    ) -> Result<Vec<Vec<usize>>> {
        let mut places = |binder: &mut Self, list: &[ast::Expr]| -> Result<Vec<usize>> {
            list.iter().map(|expr| binder.group_place(expr, projection, scope, groups)).collect()
        };
        match item {
            ast::Expr::GroupingSets(sets) => {
                *any = true;
                sets.iter().map(|set| places(self, set)).collect()
            }
            ast::Expr::Rollup(lists) => {
                *any = true;
                let parts: Vec<Vec<usize>> =
                    lists.iter().map(|list| places(self, list)).collect::<Result<_>>()?;
                Ok((0..=parts.len()).rev().map(|count| parts[..count].concat()).collect())
            }
            ast::Expr::Cube(lists) => {
                *any = true;
                if lists.len() > 12 {
                    return Err(Error::new(Code::StatementTooComplex, "CUBE is limited to 12 elements"));
                }
                let parts: Vec<Vec<usize>> =
                    lists.iter().map(|list| places(self, list)).collect::<Result<_>>()?;
                let chosen = |mask: usize| -> Vec<usize> {
                    let picked =
                        parts.iter().enumerate().filter(|(at, _)| mask & (1 << (parts.len() - 1 - at)) != 0);
                    picked.flat_map(|(_, part)| part.iter().copied()).collect()
                };
                Ok((0..1_usize << parts.len()).rev().map(chosen).collect())
            }
            ast::Expr::Tuple(list) => Ok(vec![places(self, list)?]),
            ast::Expr::Nested(inner) if matches!(strip(inner), ast::Expr::Tuple(_)) => {
                self.group_item(strip(inner), projection, scope, groups, any)
            }
            expr => Ok(vec![places(self, std::slice::from_ref(expr))?]),
        }
    }

    fn group_place(
        &mut self,
        expr: &ast::Expr,
        projection: &[ast::SelectItem],
        scope: &Scope<'_>,
        groups: &mut Groups,
    ) -> Result<usize> {
        use sqlparser::ast::Spanned;
        let target = self.group_target(expr, projection, scope)?;
        let mut frame = Frame::plain(scope, "GROUP BY");
        let value = self.settled(target.unwrap_or(expr), &mut frame)?;
        if let Some(place) = groups.groups.iter().position(|(_, group)| same(group, &value)) {
            return Ok(place);
        }
        if !is_comparable(self, &value) {
            let message = format!("could not identify an equality operator for type {}", value.ty);
            return Err(self.error(Code::UndefinedFunction, message, expr.span()));
        }
        let id = match value.kind {
            Kind::Column(id) => id,
            _ => self.columns.add("group", value.ty, value.typmod),
        };
        groups.groups.push((id, value));
        Ok(groups.groups.len() - 1)
    }

    /// The select item that an ordinal or output name of GROUP BY means. A column of the input goes before a name.
    fn group_target<'e>(
        &mut self,
        expr: &'e ast::Expr,
        projection: &'e [ast::SelectItem],
        scope: &Scope<'_>,
    ) -> Result<Option<&'e ast::Expr>> {
        use sqlparser::ast::Spanned;
        let not_integer =
            |binder: &Self| binder.error(Code::SyntaxError, "non-integer constant in GROUP BY", expr.span());
        match strip(expr) {
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: inner } if matches!(strip(inner), ast::Expr::Value(value) if matches!(value.value, ast::Value::Number(..))) =>
            {
                let text = strip(inner).to_string();
                if text.parse::<u64>().is_err() {
                    return Err(not_integer(self));
                }
                let message = format!("GROUP BY position -{text} is not in select list");
                Err(self.error(Code::InvalidColumnReference, message, expr.span()))
            }
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(text, _) => {
                    let ordinal = text.parse::<usize>().ok();
                    let Some(ordinal) = ordinal else { return Err(not_integer(self)) };
                    let item =
                        ordinal.checked_sub(1).and_then(|place| projection.get(place)).and_then(item_expr);
                    match item {
                        Some(item) => Ok(Some(item)),
                        None => {
                            let message = format!("GROUP BY position {ordinal} is not in select list");
                            Err(self.error(Code::InvalidColumnReference, message, expr.span()))
                        }
                    }
                }
                ast::Value::SingleQuotedString(_) => Err(not_integer(self)),
                _ => Ok(None),
            },
            ast::Expr::Identifier(ident) => {
                let name = super::fold(ident);
                if scope.flat.iter().any(|(column, _)| *column == name) {
                    return Ok(None);
                }
                let named = projection.iter().find_map(|item| match item {
                    ast::SelectItem::ExprWithAlias { expr, alias } if super::fold(alias) == name => {
                        Some(expr)
                    }
                    _ => None,
                });
                Ok(named)
            }
            _ => Ok(None),
        }
    }

    /// Puts an aggregate over `input` and makes the expressions above read it.
    pub(super) fn aggregate(
        &mut self,
        input: Logical,
        mut groups: Groups,
        calls: &mut Calls,
        above: &mut [&mut Expr],
        scope: &Scope<'_>,
        places: &BTreeMap<usize, Span>,
    ) -> Result<Logical> {
        let inner: BTreeSet<usize> = input.output().into_iter().collect();
        let determined = determined_columns(&groups, &scope.relations);
        let mut needed = BTreeSet::new();
        let mut grouping = Vec::new();
        for (id, arguments, span) in std::mem::take(&mut calls.grouping) {
            let mut found = Vec::new();
            for argument in &arguments {
                let place = groups.groups.iter().position(|(_, group)| same(group, argument)).ok_or_else(|| {
                    let message = "arguments to GROUPING must be grouping expressions of the associated query level";
                    self.error(Code::GroupingError, message, span)
                })?;
                found.push(place);
            }
            grouping.push((id, found));
        }
        {
            let mut finish = |expr: &mut Expr| {
                replace(expr, &groups.groups);
                let mut read = BTreeSet::new();
                logical::read_columns(expr, &mut read);
                for id in read {
                    if inner.contains(&id) && !groups.groups.iter().any(|(group, _)| *group == id) {
                        if !determined.contains(&id) {
                            return Err(self.ungrouped(id, scope, places));
                        }
                        needed.insert(id);
                    }
                }
                Ok(())
            };
            for expr in above.iter_mut() {
                finish(expr)?;
            }
            for window in &mut calls.windows {
                for expr in
                    window.partition.iter_mut().chain(window.order.iter_mut().map(|key| &mut key.value))
                {
                    finish(expr)?;
                }
                for expr in window.call.arguments.iter_mut().chain(&mut window.call.filter) {
                    finish(expr)?;
                }
            }
            for (_, set) in &mut calls.sets {
                let mut result = Ok(());
                set.for_each_expr_mut(&mut |expr| {
                    if result.is_ok() {
                        result = finish(expr);
                    }
                });
                result?;
            }
        }
        for id in needed {
            let place = groups.groups.len();
            groups.groups.push((id, self.columns.read(id)));
            // A determined column is the same in the whole group; it belongs to the sets that hold its determinants.
            for set in groups.sets.iter_mut().flatten() {
                if set.len() == place {
                    set.push(place);
                }
            }
        }
        let aggregates = std::mem::take(&mut calls.aggregates);
        Ok(Logical::Aggregate(logical::Aggregate {
            input: Box::new(input),
            groups: groups.groups,
            sets: groups.sets,
            aggregates,
            grouping,
        }))
    }

    fn ungrouped(&self, id: usize, scope: &Scope<'_>, places: &BTreeMap<usize, Span>) -> Error {
        let name = scope
            .relations
            .iter()
            .find(|relation| relation.columns.iter().any(|(_, column)| *column == id))
            .map_or_else(
                || self.columns.get(id).name.clone(),
                |relation| format!("{}.{}", relation.alias, self.columns.get(id).name),
            );
        let message = format!(
            "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
        );
        self.error(Code::GroupingError, message, places.get(&id).copied().unwrap_or_else(Span::empty))
    }
}

fn item_expr(item: &ast::SelectItem) -> Option<&ast::Expr> {
    match item {
        ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

fn is_comparable(binder: &Binder<'_>, value: &Expr) -> bool {
    binder.find_operator("=", Some(value.ty), value.ty, Span::empty()).is_ok()
}

/// Columns of tables whose whole primary key is grouped by.
fn determined_columns(groups: &Groups, relations: &[Relation]) -> BTreeSet<usize> {
    let grouped: BTreeSet<usize> = groups.groups.iter().filter_map(|(_, value)| value.as_column()).collect();
    let mut determined = BTreeSet::new();
    for relation in relations {
        let Some(key) = relation.table.as_ref().and_then(|table| table.declared_key()) else { continue };
        let id_of = |number| {
            let column = crate::plan::ScanColumn::Column(number);
            relation.scan.iter().find(|(_, scanned)| *scanned == column).map(|(id, _)| *id)
        };
        let whole = key.parts.iter().all(|part| id_of(part.column).is_some_and(|id| grouped.contains(&id)));
        if whole {
            determined.extend(relation.scan.iter().map(|(id, _)| *id));
        }
    }
    determined
}

/// Puts group columns in the place of what equals them.
fn replace(expr: &mut Expr, groups: &[(usize, Expr)]) {
    if let Some((id, group)) = groups.iter().find(|(_, group)| same(group, expr)) {
        *expr = Expr::column(*id, group.ty, group.typmod);
        return;
    }
    if let Kind::Subquery(subquery) = &mut expr.kind
        && let Query::Logical(query) = &mut subquery.query
    {
        replace_in_plan(query, groups);
    }
    expr.for_each_child_mut(&mut |child| replace(child, groups));
}

fn replace_in_plan(plan: &mut Logical, groups: &[(usize, Expr)]) {
    plan.for_each_expr_mut(&mut |expr| replace(expr, groups));
    for input in plan.inputs_mut() {
        replace_in_plan(input, groups);
    }
}

/// Whether two expressions are the same by structure, and so always give the same value.
pub(crate) fn same(a: &Expr, b: &Expr) -> bool {
    if a.ty != b.ty || a.typmod != b.typmod {
        return false;
    }
    let all = |a: &[Expr], b: &[Expr]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
    match (&a.kind, &b.kind) {
        (Kind::Column(a), Kind::Column(b))
        | (Kind::Outer(a), Kind::Outer(b))
        | (Kind::Parameter(a), Kind::Parameter(b)) => a == b,
        (Kind::Constant(a), Kind::Constant(b)) => a == b,
        (Kind::Call(f, a), Kind::Call(g, b)) => {
            std::ptr::eq(*f, *g) && f.volatility != crate::functions::Volatility::Volatile && all(a, b)
        }
        (Kind::Operator(f, a), Kind::Operator(g, b)) => std::ptr::eq(*f, *g) && all(a, b),
        (Kind::And(a), Kind::And(b))
        | (Kind::Or(a), Kind::Or(b))
        | (Kind::Coalesce(a), Kind::Coalesce(b))
        | (Kind::Greatest(a), Kind::Greatest(b))
        | (Kind::Least(a), Kind::Least(b))
        | (Kind::Array(a), Kind::Array(b))
        | (Kind::Row(a), Kind::Row(b)) => all(a, b),
        (Kind::Not(a), Kind::Not(b)) => same(a, b),
        (Kind::Case { branches: a, otherwise: x }, Kind::Case { branches: b, otherwise: y }) => {
            same(x, y)
                && a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| same(&a.0, &b.0) && same(&a.1, &b.1))
        }
        (Kind::IsNull { value: a, negated: x }, Kind::IsNull { value: b, negated: y }) => {
            x == y && same(a, b)
        }
        (
            Kind::IsTruth { value: a, truth: t, negated: x },
            Kind::IsTruth { value: b, truth: u, negated: y },
        ) => t == u && x == y && same(a, b),
        (
            Kind::IsDistinct { left: a, right: c, negated: x },
            Kind::IsDistinct { left: b, right: d, negated: y },
        ) => x == y && same(a, b) && same(c, d),
        (Kind::InList { value: a, list: c, negated: x }, Kind::InList { value: b, list: d, negated: y }) => {
            x == y && same(a, b) && all(c, d)
        }
        (Kind::Cast { value: a, explicit: x }, Kind::Cast { value: b, explicit: y }) => x == y && same(a, b),
        (Kind::Subscript { array: a, subscripts: c }, Kind::Subscript { array: b, subscripts: d }) => {
            let option = |a: &Option<Expr>, b: &Option<Expr>| match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => same(a, b),
                _ => false,
            };
            let equal = |a: &Subscript, b: &Subscript| match (a, b) {
                (Subscript::Index(a), Subscript::Index(b)) => same(a, b),
                (Subscript::Slice(a, c), Subscript::Slice(b, d)) => option(a, b) && option(c, d),
                _ => false,
            };
            same(a, b) && c.len() == d.len() && c.iter().zip(d).all(|(a, b)| equal(a, b))
        }
        (
            Kind::AnyAll { operator: f, left: a, array: c, all: x },
            Kind::AnyAll { operator: g, left: b, array: d, all: y },
        ) => std::ptr::eq(*f, *g) && x == y && same(a, b) && same(c, d),
        (Kind::Subquery(a), Kind::Subquery(b)) => same_subquery(a, b),
        _ => false,
    }
}

/// Two sub-queries of one scope are the same if they were written the same and ask the same.
fn same_subquery(a: &Subquery, b: &Subquery) -> bool {
    if a.text.is_empty() || a.text != b.text {
        return false;
    }
    match (&a.kind, &b.kind) {
        (SubqueryKind::Scalar, SubqueryKind::Scalar)
        | (SubqueryKind::Exists, SubqueryKind::Exists)
        | (SubqueryKind::Array, SubqueryKind::Array) => true,
        (
            SubqueryKind::Compare { left: a, operators: f, all: x },
            SubqueryKind::Compare { left: b, operators: g, all: y },
        ) => {
            x == y
                && a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| same(a, b))
                && f.iter().zip(g).all(|(f, g)| std::ptr::eq(*f, *g))
        }
        (
            SubqueryKind::Scalar | SubqueryKind::Exists | SubqueryKind::Array | SubqueryKind::Compare { .. },
            _,
        ) => false,
    }
}
