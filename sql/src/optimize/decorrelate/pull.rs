//! Conditions of a sub-query that read the row around it, taken out of it.
//!
//! What must hold: a condition goes up only through nodes for which filtering later is the same as filtering earlier, if
//! only the truth of the conditions counts and neither order nor the list of columns matters: filters, projections, both
//! sides of inner joins, the left of semi, anti and left joins.

use std::collections::BTreeSet;

use super::super::shape::{conjuncts, filter, reads};
use crate::{
    expr::Expr,
    plan::{
        JoinKind,
        logical::{Columns, Join, Logical},
    },
};

/// Takes conditions that read `outer` out of a plan, which then gives what they read besides.
pub(super) fn pull(
    plan: Logical,
    outer: &BTreeSet<usize>,
    pulled: &mut Vec<Expr>,
    columns: &Columns,
) -> Logical {
    match plan {
        Logical::Filter { input, condition } => {
            let input = pull(*input, outer, pulled, columns);
            let (go, stay) = split(Some(condition), outer);
            pulled.extend(go);
            filter(input, stay)
        }
        Logical::Project { input, mut items } => {
            let first = pulled.len();
            let input = pull(*input, outer, pulled, columns);
            let below: BTreeSet<usize> = input.output().into_iter().collect();
            for condition in &pulled[first..] {
                for id in reads(condition).intersection(&below) {
                    if !items.iter().any(|(at, _)| at == id) {
                        items.push((*id, columns.read(*id)));
                    }
                }
            }
            Logical::Project { input: Box::new(input), items }
        }
        Logical::Sort { input, .. } => pull(*input, outer, pulled, columns),
        Logical::Join(join) => pull_join(join, outer, pulled, columns),
        other => other,
    }
}

fn pull_join(join: Join, outer: &BTreeSet<usize>, pulled: &mut Vec<Expr>, columns: &Columns) -> Logical {
    let Join { kind, left, right, on, null_aware } = join;
    match kind {
        JoinKind::Inner => {
            let left = Box::new(pull(*left, outer, pulled, columns));
            let right = Box::new(pull(*right, outer, pulled, columns));
            let (go, stay) = split(on, outer);
            pulled.extend(go);
            Logical::Join(Join { kind, left, right, on: Expr::and(stay), null_aware })
        }
        // A pulled condition on a Single's left would come after its `21000`.
        JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => {
            let left = Box::new(pull(*left, outer, pulled, columns));
            Logical::Join(Join { kind, left, right, on, null_aware })
        }
        // Filtering one side later would give other rows without a partner.
        JoinKind::Right | JoinKind::Full | JoinKind::Single => {
            Logical::Join(Join { kind, left, right, on, null_aware })
        }
    }
}

/// The conditions that read `outer`, and the others.
fn split(condition: Option<Expr>, outer: &BTreeSet<usize>) -> (Vec<Expr>, Vec<Expr>) {
    condition.map(conjuncts).unwrap_or_default().into_iter().partition(|part| !reads(part).is_disjoint(outer))
}
