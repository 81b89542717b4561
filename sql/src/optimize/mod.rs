//! Rules: a logical plan becomes a cheaper one of the same meaning. One rule per file, applied in the order of [`optimize`], [`fold`] before them.
//!
//! Invariants:
//! - A rule changes neither rows nor their order where an order was asked for; which columns a plan gives, and their
//!   order, stay, and it reads nothing from around it that it did not read before. Debug builds check the columns.
//! - Every rule may be left out: plans are then slower, not different. A test runs queries with and without them.
//!
//! Not here: access paths and strategies (`plan::lower`), estimates (`cost`).

use model::{Error, Result};

use crate::{
    context::Context,
    plan::logical::{Columns, Logical},
    stats::Statistics,
};

mod decorrelate;
mod factor;
mod failure;
mod fold;
mod inline;
mod join_order;
mod push_down;
mod shape;
#[cfg(test)]
mod tests;

/// Computes what depends on nothing; the error is that of the first constant that cannot be, as [`failure`] says.
pub(crate) fn fold(plan: &mut Logical, context: &mut Context) -> Option<Error> {
    fold::fold(plan, context);
    failure::failure(plan, context)
}

/// Applies all other rules.
pub(crate) fn optimize(plan: Logical, columns: &mut Columns, statistics: &Statistics) -> Result<Logical> {
    let plan = checked("inline", plan, |plan| inline::inline(plan, columns));
    let plan = checked("factor", plan, factor::factor);
    let plan = checked("decorrelate", plan, |plan| decorrelate::decorrelate(plan, columns, statistics));
    let plan = checked("push_down", plan, push_down::push_down);
    let plan = checked("join_order", plan, |plan| join_order::join_order(plan, columns, statistics));
    // A new order brings conditions to new places, derived ones among them.
    Ok(checked("push_down", plan, push_down::push_down))
}

/// Applies one rule; debug builds check that the plan still gives and takes the same columns.
fn checked(rule: &str, plan: Logical, apply: impl FnOnce(Logical) -> Logical) -> Logical {
    let before = cfg!(debug_assertions).then(|| (plan.output(), plan.free()));
    let plan = apply(plan);
    if let Some((output, free)) = before {
        assert_eq!(plan.output(), output, "{rule} changed what the plan gives: {plan:#?}");
        let added: Vec<usize> = plan.free().difference(&free).copied().collect();
        assert!(added.is_empty(), "{rule} made the plan take {added:?} from nowhere: {plan:#?}");
    }
    plan
}
