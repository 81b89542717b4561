//! What PostgreSQL calls a column of a result that has no alias.
//!
//! The rules are `FigureColname` of its parser: a column gives its name, a function its own, a cast the name of what it
//! casts or else of its type; everything else is `?column?`.

use sqlparser::ast;

use super::{fold, types::find_type};

/// The name of a select item without an alias.
pub(super) fn of(expr: &ast::Expr) -> String {
    figure(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// A name, and whether it is a good one (a column or function) or only better than nothing.
fn figure(expr: &ast::Expr) -> Option<(String, bool)> {
    let good = |name: &str| Some((name.to_owned(), true));
    match expr {
        ast::Expr::Identifier(ident) => good(&fold(ident)),
        ast::Expr::CompoundIdentifier(parts) => parts.last().and_then(|part| good(&fold(part))),
        ast::Expr::Nested(inner) | ast::Expr::Collate { expr: inner, .. } => figure(inner),
        ast::Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                ast::AccessExpr::Dot(ast::Expr::Identifier(ident)) => Some(fold(ident)),
                ast::AccessExpr::Dot(_) | ast::AccessExpr::Subscript(_) => None,
            });
            field.map_or_else(|| figure(root), |name| Some((name, true)))
        }
        ast::Expr::Function(function) => match function.name.0.last() {
            Some(ast::ObjectNamePart::Identifier(ident)) => good(&fold(ident)),
            _ => None,
        },
        ast::Expr::Cast { expr, data_type, .. } => match figure(expr) {
            Some((name, true)) => Some((name, true)),
            _ => type_name(data_type),
        },
        ast::Expr::TypedString(typed) => type_name(&typed.data_type),
        ast::Expr::Interval(_) => Some(("interval".to_owned(), false)),
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().and_then(figure) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".to_owned(), false)),
        },
        ast::Expr::Extract { .. } => good("extract"),
        ast::Expr::Ceil { .. } => good("ceil"),
        ast::Expr::Floor { .. } => good("floor"),
        ast::Expr::Position { .. } => good("position"),
        ast::Expr::Substring { shorthand, .. } => good(if *shorthand { "substr" } else { "substring" }),
        ast::Expr::Overlay { .. } => good("overlay"),
        ast::Expr::Trim { trim_where, .. } => good(match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            Some(ast::TrimWhereField::Both) | None => "btrim",
        }),
        ast::Expr::AtTimeZone { .. } => good("timezone"),
        ast::Expr::BinaryOp { op: ast::BinaryOperator::Overlaps, .. } => good("overlaps"),
        ast::Expr::Array(_) => good("array"),
        ast::Expr::Tuple(_) => Some(("row".to_owned(), false)),
        ast::Expr::Exists { negated: false, .. } => good("exists"),
        ast::Expr::Subquery(query) => subquery(query),
        _ => None,
    }
}

fn type_name(data_type: &ast::DataType) -> Option<(String, bool)> {
    let (ty, _) = find_type(data_type).ok()?;
    let name = ty.element().filter(|_| ty.is_array()).unwrap_or(ty).catalog_name();
    Some((name, false))
}

fn subquery(query: &ast::Query) -> Option<(String, bool)> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            ast::SetExpr::Select(select) => {
                return match select.projection.first()? {
                    ast::SelectItem::UnnamedExpr(expr) => Some((of(expr), true)),
                    ast::SelectItem::ExprWithAlias { alias, .. } => Some((fold(alias), true)),
                    _ => None,
                };
            }
            ast::SetExpr::Query(inner) => body = inner.body.as_ref(),
            ast::SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            ast::SetExpr::Values(_) => return Some(("column1".to_owned(), true)),
            _ => return None,
        }
    }
}
