//! EXPLAIN: a plan as text or JSON, with what was measured.

use std::{sync::Arc, time::Duration};

use crate::{
    cache::Planned,
    execute::Statistics,
    parse::utility::ExplainOptions,
    plan::{Access, JoinKind, Node, Partitions, Plan, Strategy},
};

/// The lines of EXPLAIN.
pub(crate) fn explain(
    planned: &Planned,
    options: &ExplainOptions,
    measured: Option<(Option<Arc<Statistics>>, Duration)>,
) -> Vec<String> {
    let statistics = measured.as_ref().and_then(|(statistics, _)| statistics.as_deref());
    if options.json {
        let mut out = String::from("[\n  {\n    \"Plan\": ");
        json(&planned.plan, options, statistics, 4, &mut out);
        if let Some((_, elapsed)) = &measured {
            out.push_str(&format!(",\n    \"Execution Time\": {:.3}", elapsed.as_secs_f64() * 1_000.0));
        }
        out.push_str("\n  }\n]");
        return vec![out];
    }
    let mut lines = Vec::new();
    if planned.direct.is_some() {
        lines.push("Direct".to_owned());
    }
    text(&planned.plan, options, statistics, usize::from(planned.direct.is_some()), &mut lines);
    if let Some((_, elapsed)) = &measured
        && options.summary.unwrap_or(true)
    {
        lines.push(format!("Execution Time: {:.3} ms", elapsed.as_secs_f64() * 1_000.0));
    }
    lines
}

fn text(
    plan: &Plan,
    options: &ExplainOptions,
    statistics: Option<&Statistics>,
    depth: usize,
    lines: &mut Vec<String>,
) {
    let indent = if depth == 0 { String::new() } else { format!("{}->  ", "      ".repeat(depth - 1)) };
    let mut line = format!("{indent}{}", title(plan));
    if options.costs {
        line.push_str(&format!("  (cost={:.2} rows={:.0})", plan.cost, plan.rows));
    }
    if let Some(statistics) = statistics {
        line.push_str(&actual(plan, options, statistics));
    }
    lines.push(line);
    let inner = "      ".repeat(depth) + if depth == 0 { "  " } else { "" };
    for detail in details(plan) {
        lines.push(format!("{inner}{detail}"));
    }
    for input in plan.inputs() {
        text(input, options, statistics, depth + 1, lines);
    }
}

fn actual(plan: &Plan, options: &ExplainOptions, statistics: &Statistics) -> String {
    let node = statistics.node(plan.id);
    if node.loops == 0 {
        return " (never executed)".to_owned();
    }
    let time = if options.timing {
        format!("time={:.3} ", node.time.as_secs_f64() * 1_000.0)
    } else {
        String::new()
    };
    format!(" (actual {time}rows={} loops={})", node.rows, node.loops)
}

/// What a node is called.
fn title(plan: &Plan) -> String {
    match &plan.node {
        Node::Values(rows) if rows.len() == 1 => "Result".to_owned(),
        Node::Values(_) => "Values Scan".to_owned(),
        Node::Scan(scan) => {
            let on = if scan.alias == scan.table.name {
                scan.alias.clone()
            } else {
                format!("{} {}", scan.table.name, scan.alias)
            };
            let name = |index: &Option<model::id::IndexId>| match index {
                None => scan.table.key().map(|key| key.name.clone()),
                Some(id) => scan.table.find_index(*id).map(|index| index.name.clone()),
            };
            let back = if scan.reverse { " Backward" } else { "" };
            match &scan.access {
                Access::Full { index: None } => format!("Seq Scan{back} on {on}"),
                Access::Full { index } | Access::Range { index, .. } => {
                    format!("Index Scan{back} using {} on {on}", name(index).unwrap_or_default())
                }
                Access::Keys { index, .. } => {
                    format!("Key Lookup using {} on {on}", name(index).unwrap_or_default())
                }
            }
        }
        Node::SystemScan(scan) => format!("System Scan on {}", scan.relation.name),
        Node::FunctionScan(_) => "Function Scan".to_owned(),
        Node::CountRows { table, .. } => format!("Row Counter of {}", table.name),
        Node::Filter { .. } => "Filter".to_owned(),
        Node::Project { .. } => "Project".to_owned(),
        Node::ProjectSet { .. } => "ProjectSet".to_owned(),
        Node::Join(join) => {
            let strategy = match join.strategy {
                Strategy::Hash => "Hash",
                Strategy::Nested => "Nested Loop",
                Strategy::Merge => "Merge",
            };
            format!("{strategy}{} Join", kind(join.kind))
        }
        Node::Apply(apply) => format!("Apply{}", kind(apply.kind)),
        Node::Aggregate(aggregate) if aggregate.groups.is_empty() && aggregate.sets.is_none() => {
            "Aggregate".to_owned()
        }
        Node::Aggregate(aggregate) if aggregate.ordered => "GroupAggregate".to_owned(),
        Node::Aggregate(_) => "HashAggregate".to_owned(),
        Node::Window(_) => "WindowAgg".to_owned(),
        Node::Sort { .. } => "Sort".to_owned(),
        Node::TopN { .. } => "Top-N".to_owned(),
        Node::Limit { .. } => "Limit".to_owned(),
        Node::Distinct { .. } | Node::DistinctOn { .. } => "Unique".to_owned(),
        Node::SetOperation { kind, all, .. } => {
            let word = match kind {
                crate::plan::SetKind::Union => "Append",
                crate::plan::SetKind::Intersect => "SetOp Intersect",
                crate::plan::SetKind::Except => "SetOp Except",
            };
            if *all { format!("{word} All") } else { word.to_owned() }
        }
        Node::With { .. } => "With".to_owned(),
        Node::CteScan { .. } => "CTE Scan".to_owned(),
        Node::Recursive { .. } => "Recursive Union".to_owned(),
        Node::LockRows(_) => "LockRows".to_owned(),
        Node::Insert(insert) => format!("Insert on {}", insert.table.name),
        Node::Update(update) => format!("Update on {}", update.table.name),
        Node::Delete(delete) => format!("Delete on {}", delete.table.name),
        Node::Merge(merge) => format!("Merge on {}", merge.table.name),
    }
}

fn kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "",
        JoinKind::Left => " Left",
        JoinKind::Right => " Right",
        JoinKind::Full => " Full",
        JoinKind::Semi => " Semi",
        JoinKind::Anti => " Anti",
        JoinKind::NullAwareAnti => " Null-Aware Anti",
        JoinKind::Single => " Single",
    }
}

fn details(plan: &Plan) -> Vec<String> {
    match &plan.node {
        Node::Scan(scan) => {
            let mut details = Vec::new();
            match &scan.partitions {
                Partitions::Default => {}
                Partitions::One(_) => details.push("Partitions: 1".to_owned()),
                Partitions::All => details.push("Partitions: all".to_owned()),
            }
            if scan.filter.is_some() {
                details.push("Filter: yes".to_owned());
            }
            details
        }
        Node::Join(join) => {
            let mut details = vec![format!("Keys: {}", join.keys.len())];
            if join.residual.is_some() {
                details.push("Join Filter: yes".to_owned());
            }
            details
        }
        _ => Vec::new(),
    }
}

fn json(
    plan: &Plan,
    options: &ExplainOptions,
    statistics: Option<&Statistics>,
    indent: usize,
    out: &mut String,
) {
    let pad = " ".repeat(indent + 2);
    out.push_str("{\n");
    out.push_str(&format!("{pad}\"Node Type\": {}", quoted(&title(plan))));
    if options.costs {
        out.push_str(&format!(
            ",\n{pad}\"Total Cost\": {:.2},\n{pad}\"Plan Rows\": {:.0}",
            plan.cost, plan.rows
        ));
    }
    if let Some(node) = statistics.map(|statistics| statistics.node(plan.id)) {
        out.push_str(&format!(",\n{pad}\"Actual Rows\": {}", node.rows));
        if options.timing {
            out.push_str(&format!(",\n{pad}\"Actual Total Time\": {:.3}", node.time.as_secs_f64() * 1_000.0));
        }
    }
    for detail in details(plan) {
        if let Some((name, value)) = detail.split_once(": ") {
            out.push_str(&format!(",\n{pad}{}: {}", quoted(name), quoted(value)));
        }
    }
    let inputs = plan.inputs();
    if !inputs.is_empty() {
        out.push_str(&format!(",\n{pad}\"Plans\": ["));
        for (at, input) in inputs.into_iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            json(input, options, statistics, indent + 2, out);
        }
        out.push(']');
    }
    out.push_str(&format!("\n{}}}", " ".repeat(indent)));
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
