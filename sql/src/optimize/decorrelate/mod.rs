//! Sub-queries become joins: EXISTS and IN semi joins, NOT EXISTS and NOT IN anti joins, aggregates over what matches a row
//! left joins with their groups. What does not match stays a sub-query, run for each row.
//!
//! What must hold:
//! - Only conditions whose truth alone counts (WHERE, HAVING, ON of inner joins) become semi and anti joins; there null is
//!   as good as false.
//! - NOT IN is null if nothing is equal and a null is among what is compared. Where the schema rules nulls out it is an
//!   anti join; else a null-aware one, and that only of a sub-query that takes nothing from around it.
//! - A row without partners gets what the aggregate is over no rows: null, and 0 of count. The select list over the
//!   aggregate is computed above the join.
//! - A sub-query that is volatile, or changes or locks rows, stays; so does one that takes nothing from around it and is
//!   no IN: it runs once.
//! - Nothing that may fail is computed for groups nobody asked for.

mod pull;
mod scalar;

use std::collections::BTreeSet;

use model::Type;

use super::shape::{
    conjuncts, filter, has_effects, holds_subquery, is_volatile, keep, leaves_one, made, never_null, reads,
    rewrite_queries,
};
use crate::{
    expr::{Expr, Kind, Query, Subquery, SubqueryKind},
    functions::{self, Operator},
    plan::{
        JoinKind,
        logical::{Columns, Join, Logical},
        lower::equi_pair,
    },
    stats::Statistics,
};

/// Turns the sub-queries of a plan into joins.
pub(super) fn decorrelate(plan: Logical, columns: &mut Columns, statistics: &Statistics) -> Logical {
    Decorrelate { columns, statistics }.plan(plan)
}

struct Decorrelate<'a> {
    columns: &'a mut Columns,
    statistics: &'a Statistics,
}

/// The right of a join that a sub-query becomes.
struct Partner {
    kind: JoinKind,
    right: Logical,
    on: Vec<Expr>,
    null_aware: Option<(Expr, Expr)>,
}

impl Decorrelate<'_> {
    fn plan(&mut self, mut plan: Logical) -> Logical {
        // Inner ones first: what is left of them may be pulled through.
        plan.for_each_expr_mut(&mut |expr| rewrite_queries(expr, &mut |query| self.plan(query)));
        for input in plan.inputs_mut() {
            let taken = std::mem::replace(input, Logical::one_row());
            *input = self.plan(taken);
        }
        match plan {
            Logical::Filter { input, condition } => self.filter(*input, condition),
            Logical::Join(join)
                if join.kind == JoinKind::Inner && join.on.as_ref().is_some_and(holds_subquery) =>
            {
                let (above, on): (Vec<Expr>, Vec<Expr>) =
                    join.on.map(conjuncts).unwrap_or_default().into_iter().partition(holds_subquery);
                let joined = Logical::Join(Join { on: Expr::and(on), ..join });
                match Expr::and(above) {
                    Some(above) => self.filter(joined, above),
                    None => joined,
                }
            }
            Logical::Project { input, mut items } => {
                let mut input = *input;
                for (_, value) in &mut items {
                    input = self.scalars(input, value);
                }
                Logical::Project { input: Box::new(input), items }
            }
            other => other,
        }
    }

    fn filter(&mut self, input: Logical, condition: Expr) -> Logical {
        let parts = conjuncts(condition);
        if parts.iter().any(is_volatile) {
            return filter(input, parts);
        }
        let output = input.output();
        let (queries, plain): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(holds_subquery);
        let mut plan = filter(input, plain);
        let mut rest = Vec::new();
        for mut condition in queries {
            match self.partner(&plan, &condition) {
                Some(Partner { kind, right, on, null_aware }) => {
                    plan = Logical::Join(Join {
                        kind,
                        left: Box::new(plan),
                        right: Box::new(right),
                        on: Expr::and(on),
                        null_aware,
                    });
                }
                None => {
                    plan = self.scalars(plan, &mut condition);
                    rest.push(condition);
                }
            }
        }
        keep(filter(plan, rest), &output, self.columns)
    }

    /// What a condition that is a sub-query, or NOT of one, becomes.
    fn partner(&self, input: &Logical, condition: &Expr) -> Option<Partner> {
        let (subquery, negated) = match &condition.kind {
            Kind::Subquery(subquery) => (subquery, false),
            Kind::Not(inner) => match &inner.kind {
                Kind::Subquery(subquery) => (subquery, true),
                _ => return None,
            },
            _ => return None,
        };
        let Subquery { kind, query: Query::Logical(query), text: _ } = subquery.as_ref() else { return None };
        if has_effects(query) {
            return None;
        }
        match kind {
            SubqueryKind::Exists => {
                let (right, on) = self.exists(input, query)?;
                let kind = if negated { JoinKind::Anti } else { JoinKind::Semi };
                Some(Partner { kind, right, on, null_aware: None })
            }
            SubqueryKind::Compare { left, operators, all: false } if !negated => {
                let (right, on) = self.any(input, left, operators, query)?;
                Some(Partner { kind: JoinKind::Semi, right, on, null_aware: None })
            }
            SubqueryKind::Compare { left, operators, all: false } => self.none(input, left, operators, query),
            SubqueryKind::Compare { left, operators, all: true } if !negated => {
                let equals: Option<Vec<&'static Operator>> =
                    operators.iter().map(|operator| equality_of(operator)).collect();
                self.none(input, left, &equals?, query)
            }
            SubqueryKind::Compare { .. } | SubqueryKind::Scalar | SubqueryKind::Array => None,
        }
    }

    /// EXISTS: what is looked through, and which of its rows count.
    fn exists(&self, input: &Logical, query: &Logical) -> Option<(Logical, Vec<Expr>)> {
        let outer = made(input);
        if query.free().is_disjoint(&outer) {
            return None;
        }
        let mut core = query.clone();
        loop {
            core = match core {
                Logical::Project { input, .. }
                | Logical::Sort { input, .. }
                | Logical::Distinct { input }
                | Logical::DistinctOn { input, .. } => *input,
                Logical::Limit { input, limit, offset, ties: None }
                    if leaves_one(limit.as_ref(), offset.as_ref()) =>
                {
                    *input
                }
                other => break self.pulled(other, &outer),
            };
        }
    }

    /// `= ANY (query)`: what is looked through, and which of its rows count.
    fn any(
        &self,
        input: &Logical,
        left: &[Expr],
        operators: &[&'static Operator],
        query: &Logical,
    ) -> Option<(Logical, Vec<Expr>)> {
        let outer = made(input);
        let takes = !query.free().is_disjoint(&outer);
        let reads_row = left.iter().any(|value| !reads(value).is_disjoint(&outer));
        if left.iter().any(holds_subquery) || !(takes || reads_row) {
            return None;
        }
        let output = query.output();
        let compared = left.iter().zip(operators).zip(&output).map(|((value, operator), id)| {
            Expr::new(Kind::Operator(operator, vec![value.clone(), self.columns.read(*id)]), Type::Bool)
        });
        let compared: Vec<Expr> = compared.collect();
        let mut core = query.clone();
        while let Logical::Sort { input, .. } | Logical::Distinct { input } = core {
            core = *input;
        }
        let (right, mut on) = if takes { self.pulled(core, &outer)? } else { (core, Vec::new()) };
        on.splice(0..0, compared);
        Some((right, on))
    }

    /// NOT IN: nothing is equal, and nothing might be.
    fn none(
        &self,
        input: &Logical,
        left: &[Expr],
        equals: &[&'static Operator],
        query: &Logical,
    ) -> Option<Partner> {
        if equals.iter().any(|operator| operator.symbol != "=") {
            return None;
        }
        let (right, on) = self.any(input, left, equals, query)?;
        let known = left.iter().all(|value| never_null(value, input))
            && query.output().iter().all(|id| never_null(&self.columns.read(*id), query));
        if known {
            return Some(Partner { kind: JoinKind::Anti, right, on, null_aware: None });
        }
        let [condition] = &on[..] else { return None };
        let pair = equi_pair(condition, &made(input), &made(&right))?;
        let reads_left = pair.0.ty == pair.1.ty;
        reads_left.then_some(Partner {
            kind: JoinKind::NullAwareAnti,
            right,
            on: Vec::new(),
            null_aware: Some(pair),
        })
    }

    /// A plan without the conditions that read `outer`, and those conditions; none if something else in it reads `outer`.
    fn pulled(&self, plan: Logical, outer: &BTreeSet<usize>) -> Option<(Logical, Vec<Expr>)> {
        let mut conditions = Vec::new();
        let plan = pull::pull(plan, outer, &mut conditions, self.columns);
        let clean = plan.free().is_disjoint(outer) && !conditions.iter().any(holds_subquery);
        clean.then_some((plan, conditions))
    }
}

/// `=` for the same operands as an `<>`.
fn equality_of(operator: &'static Operator) -> Option<&'static Operator> {
    if operator.symbol != "<>" {
        return None;
    }
    functions::find_operators("=").iter().find(|at| at.left == operator.left && at.right == operator.right)
}
