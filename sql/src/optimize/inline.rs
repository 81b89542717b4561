//! Common table expressions that are read once stand where they are read, so that conditions reach what they are made of.
//!
//! What must hold:
//! - It is a query without effects, not said to be `MATERIALIZED`, and nothing around it in its WITH changes rows.
//! - The place that reads it is run once: not inside a sub-query, a recursion or a LATERAL side.

use std::collections::BTreeMap;

use super::shape::{has_effects, is_lateral, query_of};
use crate::plan::logical::{Columns, CommonTable, Logical};

/// Inlines in a whole plan.
pub(super) fn inline(mut plan: Logical, columns: &Columns) -> Logical {
    for input in plan.inputs_mut() {
        let taken = std::mem::replace(input, Logical::one_row());
        *input = inline(taken, columns);
    }
    match plan {
        Logical::With { expressions, input } => with(expressions, *input, columns),
        other => other,
    }
}

fn with(mut expressions: Vec<CommonTable>, mut input: Logical, columns: &Columns) -> Logical {
    let writes = expressions.iter().any(|common| common.writes || has_effects(&common.plan));
    let mut at = 0;
    while at < expressions.len() && !writes {
        let CommonTable { id, materialized, .. } = expressions[at];
        let mut uses = Uses::default();
        for later in expressions.iter().skip(at) {
            uses.count(&later.plan, true);
        }
        uses.count(&input, true);
        let once = uses.all.get(&id) == Some(&1) && uses.plain.get(&id) == Some(&1);
        if !once || materialized == Some(true) {
            at += 1;
            continue;
        }
        let mut made = Some(expressions.remove(at).plan);
        for later in expressions.iter_mut().skip(at).map(|later| &mut later.plan).chain([&mut input]) {
            put(later, id, &mut made, columns);
        }
    }
    if expressions.is_empty() { input } else { Logical::With { expressions, input: Box::new(input) } }
}

/// How often each common table expression is read.
#[derive(Default)]
struct Uses {
    all: BTreeMap<usize, usize>,
    /// Where it is run once.
    plain: BTreeMap<usize, usize>,
}

impl Uses {
    fn count(&mut self, plan: &Logical, plain: bool) {
        if let Logical::CteScan { id, .. } = plan {
            *self.all.entry(*id).or_default() += 1;
            if plain {
                *self.plain.entry(*id).or_default() += 1;
            }
        }
        plan.for_each_expr(&mut |expr| {
            expr.any(&mut |expr| {
                if let Some(query) = query_of(expr) {
                    self.count(query, false);
                }
                false
            });
        });
        let once = match plan {
            Logical::Join(join) => !is_lateral(join),
            Logical::Recursive { .. } => false,
            _ => true,
        };
        for input in plan.inputs() {
            self.count(input, plain && once);
        }
    }
}

/// Puts a plan in the place that reads it.
fn put(plan: &mut Logical, id: usize, made: &mut Option<Logical>, columns: &Columns) {
    if let Logical::CteScan { id: at, columns: places } = plan
        && *at == id
    {
        let Some(input) = made.take() else { return };
        let output = input.output();
        let items = places.iter().map(|(here, place)| (*here, columns.read(output[*place]))).collect();
        *plan = Logical::Project { input: Box::new(input), items };
        return;
    }
    for input in plan.inputs_mut() {
        put(input, id, made, columns);
    }
}
