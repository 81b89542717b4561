//! A logical plan as indented lines.

use crate::{
    expr::{Expr, Kind, SubqueryKind},
    optimize::shape::{is_choice, query_of},
    plan::logical::{Columns, Logical},
};

pub(super) fn print(plan: &Logical, columns: &Columns) -> String {
    let mut out = String::new();
    node(plan, columns, 0, &mut out);
    out
}

fn node(plan: &Logical, columns: &Columns, depth: usize, out: &mut String) {
    let name = |id: &usize| columns.get(*id).name.clone();
    let all = |exprs: &mut dyn Iterator<Item = &Expr>| {
        exprs.map(|expr| text(expr, columns)).collect::<Vec<_>>().join(", ")
    };
    let line = match plan {
        Logical::Scan(scan) => scan.alias.clone(),
        Logical::Filter { condition, .. } => format!("Filter {}", text(condition, columns)),
        Logical::Project { items, .. } if is_choice(items) && items.len() > 6 => {
            format!("Choose {} columns", items.len())
        }
        Logical::Project { items, .. } if is_choice(items) => {
            format!("Choose {}", items.iter().map(|(id, _)| name(id)).collect::<Vec<_>>().join(", "))
        }
        Logical::Project { items, .. } => {
            format!("Project {}", all(&mut items.iter().map(|(_, value)| value)))
        }
        Logical::Join(join) => {
            let pair =
                join.null_aware.iter().map(|(a, b)| format!(" {} ~ {}", text(a, columns), text(b, columns)));
            let on = join.on.iter().map(|on| format!(" {}", text(on, columns)));
            format!("{:?}{}", join.kind, pair.chain(on).collect::<String>())
        }
        Logical::Aggregate(aggregate) => {
            let calls: Vec<&str> = aggregate.aggregates.iter().map(|(_, call)| call.function.name).collect();
            format!(
                "Aggregate [{}] by [{}]",
                calls.join(", "),
                all(&mut aggregate.groups.iter().map(|(_, value)| value))
            )
        }
        other => {
            let debug = format!("{other:?}");
            debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
        }
    };
    out.push_str(&"  ".repeat(depth));
    out.push_str(&line);
    out.push('\n');
    plan.for_each_expr(&mut |expr| {
        expr.any(&mut |expr| {
            if let Some(query) = query_of(expr) {
                out.push_str(&"  ".repeat(depth + 1));
                out.push_str("sub-query\n");
                node(query, columns, depth + 2, out);
            }
            false
        });
    });
    for input in plan.inputs() {
        node(input, columns, depth + 1, out);
    }
}

fn text(expr: &Expr, columns: &Columns) -> String {
    let list = |list: &[Expr], between: &str| {
        list.iter().map(|expr| text(expr, columns)).collect::<Vec<_>>().join(between)
    };
    match &expr.kind {
        Kind::Column(id) => columns.get(*id).name.clone(),
        Kind::Constant(value) => value.as_str().map_or_else(
            || value.as_i64().map_or_else(|| "constant".to_owned(), |number| number.to_string()),
            |text| format!("'{text}'"),
        ),
        Kind::Operator(operator, operands) if operands.len() == 2 => {
            list(operands, &format!(" {} ", operator.symbol))
        }
        Kind::And(parts) => list(parts, " AND "),
        Kind::Or(parts) => format!("({})", list(parts, " OR ")),
        Kind::Not(value) => format!("NOT {}", text(value, columns)),
        Kind::Coalesce(parts) => format!("coalesce({})", list(parts, ", ")),
        Kind::Cast { value, .. } => text(value, columns),
        Kind::InList { value, list: values, negated } => {
            format!(
                "{}{} IN ({})",
                text(value, columns),
                if *negated { " NOT" } else { "" },
                list(values, ", ")
            )
        }
        Kind::Subquery(subquery) => match subquery.kind {
            SubqueryKind::Exists => "EXISTS".to_owned(),
            SubqueryKind::Scalar => "scalar".to_owned(),
            SubqueryKind::Compare { .. } => "compare".to_owned(),
            SubqueryKind::Array => "array".to_owned(),
        },
        _ => "expression".to_owned(),
    }
}
