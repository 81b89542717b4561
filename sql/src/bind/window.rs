//! Window functions: OVER, named windows, frames.

use std::borrow::Cow;

use model::{Code, Result, Type};
use sqlparser::{ast, ast::Spanned, tokenizer::Span};

use super::{
    Binder,
    expr::{Frame, Inside},
    fold,
    group::{Calls, WindowUse, same},
    types::Coercion,
    unsupported,
};
use crate::{
    expr::{Expr, Kind},
    functions::Body,
    plan::{
        Bound, Exclude, FrameUnit, WindowCall,
        logical::{self, Logical},
    },
};

impl Binder<'_> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn window_call(
        &mut self,
        name: &str,
        arguments: &[Cow<'_, ast::Expr>],
        distinct: bool,
        filter: Option<&ast::Expr>,
        over: Option<&ast::WindowType>,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let Some(over) = over else {
            let message = format!("window function {name} requires an OVER clause");
            return Err(self.error(Code::WrongObjectType, message, span));
        };
        if distinct {
            return Err(
                self.at(unsupported("DISTINCT in a window function", "Make the rows different first."), span)
            );
        }
        let spec = {
            let calls =
                frame.calls.as_deref().map(|calls| calls.named_windows.as_slice()).unwrap_or_default();
            self.window_spec(over, calls, span)?
        };
        let mut inner = Frame {
            scope: frame.scope,
            clause: frame.clause,
            calls: frame.calls.as_deref_mut(),
            inside: Inside::Window,
            places: std::mem::take(&mut frame.places),
        };
        let mut bound = Vec::new();
        for expr in arguments {
            bound.push((self.expr(expr, &mut inner)?, expr.span()));
        }
        let resolved = self.resolve(name, bound, span)?;
        if !matches!(resolved.function.body, Body::Window(_) | Body::Aggregate(_)) {
            let message =
                format!("OVER specified, but {name} is not a window function nor an aggregate function");
            return Err(self.error(Code::WrongObjectType, message, span));
        }
        let filter = match filter {
            Some(_) if matches!(resolved.function.body, Body::Window(_)) => {
                return Err(self.at(
                    unsupported(
                        "FILTER for a window function that is no aggregate",
                        "Use CASE in its argument.",
                    ),
                    span,
                ));
            }
            Some(filter) => Some(self.condition(filter, &mut inner)?),
            None => None,
        };
        let mut partition = Vec::new();
        for expr in &spec.partition_by {
            partition.push(self.settled(expr, &mut inner)?);
        }
        let mut order = Vec::new();
        for item in &spec.order_by {
            order.push(self.sort_key(item, &mut inner)?);
        }
        frame.places = std::mem::take(&mut inner.places);
        drop(inner);
        let bounds = self.frame(
            spec.window_frame.as_ref(),
            order.first().map(|key| key.value.ty),
            order.len(),
            frame,
            span,
        )?;
        let id = self.columns.add(name, resolved.ty, -1);
        let call = WindowCall {
            function: resolved.function,
            arguments: resolved.arguments,
            filter,
            frame: bounds,
            ty: resolved.ty,
        };
        if let Some(calls) = frame.calls.as_deref_mut() {
            calls.windows.push(WindowUse { partition, order, id, call });
        }
        Ok(self.columns.read(id))
    }

    fn window_spec(
        &self,
        over: &ast::WindowType,
        named: &[(String, ast::WindowSpec)],
        span: Span,
    ) -> Result<ast::WindowSpec> {
        let find = |ident: &ast::Ident| {
            let name = fold(ident);
            let found = named.iter().find(|(at, _)| *at == name).map(|(_, spec)| spec.clone());
            found.ok_or_else(|| {
                self.error(Code::UndefinedObject, format!("window \"{name}\" does not exist"), span)
            })
        };
        match over {
            ast::WindowType::NamedWindow(ident) => find(ident),
            ast::WindowType::WindowSpec(spec) => match &spec.window_name {
                None => Ok(spec.clone()),
                Some(base) => {
                    let base_spec = find(base)?;
                    if !spec.partition_by.is_empty() {
                        let message =
                            format!("cannot override PARTITION BY clause of window \"{}\"", fold(base));
                        return Err(self.error(Code::WindowingError, message, span));
                    }
                    if !spec.order_by.is_empty() && !base_spec.order_by.is_empty() {
                        let message = format!("cannot override ORDER BY clause of window \"{}\"", fold(base));
                        return Err(self.error(Code::WindowingError, message, span));
                    }
                    let order_by =
                        if spec.order_by.is_empty() { base_spec.order_by } else { spec.order_by.clone() };
                    Ok(ast::WindowSpec {
                        window_name: None,
                        partition_by: base_spec.partition_by,
                        order_by,
                        window_frame: spec.window_frame.clone(),
                    })
                }
            },
        }
    }

    fn frame(
        &mut self,
        frame: Option<&ast::WindowFrame>,
        key: Option<Type>,
        keys: usize,
        outer: &mut Frame<'_>,
        span: Span,
    ) -> Result<crate::plan::Frame> {
        let Some(ast::WindowFrame { units, start_bound, end_bound }) = frame else {
            return Ok(crate::plan::Frame {
                unit: FrameUnit::Range,
                start: Bound::UnboundedPreceding,
                end: Bound::CurrentRow,
                exclude: Exclude::NoOthers,
            });
        };
        let unit = match units {
            ast::WindowFrameUnits::Rows => FrameUnit::Rows,
            ast::WindowFrameUnits::Range => FrameUnit::Range,
            ast::WindowFrameUnits::Groups => FrameUnit::Groups,
        };
        let has_offset = |bound: &ast::WindowFrameBound| {
            matches!(
                bound,
                ast::WindowFrameBound::Preceding(Some(_)) | ast::WindowFrameBound::Following(Some(_))
            )
        };
        let offsets = has_offset(start_bound) || end_bound.as_ref().is_some_and(has_offset);
        if unit == FrameUnit::Range && offsets && keys != 1 {
            let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
            return Err(self.error(Code::WindowingError, message, span));
        }
        if unit == FrameUnit::Groups && keys == 0 {
            return Err(self.error(Code::WindowingError, "GROUPS mode requires an ORDER BY clause", span));
        }
        let start = self.bound(start_bound, unit, key, outer)?;
        let end = match end_bound {
            Some(bound) => self.bound(bound, unit, key, outer)?,
            None => Bound::CurrentRow,
        };
        if matches!(start, Bound::UnboundedFollowing) {
            return Err(self.error(Code::WindowingError, "frame start cannot be UNBOUNDED FOLLOWING", span));
        }
        if matches!(end, Bound::UnboundedPreceding) {
            return Err(self.error(Code::WindowingError, "frame end cannot be UNBOUNDED PRECEDING", span));
        }
        let backwards = match (&start, &end) {
            (Bound::CurrentRow, Bound::Preceding(_)) => {
                Some("frame starting from current row cannot have preceding rows")
            }
            (Bound::Following(_), Bound::Preceding(_) | Bound::CurrentRow) => {
                Some("frame starting from following row cannot have preceding rows")
            }
            _ => None,
        };
        if let Some(message) = backwards {
            return Err(self.error(Code::WindowingError, message, span));
        }
        Ok(crate::plan::Frame { unit, start, end, exclude: Exclude::NoOthers })
    }

    fn bound(
        &mut self,
        bound: &ast::WindowFrameBound,
        unit: FrameUnit,
        key: Option<Type>,
        outer: &mut Frame<'_>,
    ) -> Result<Bound> {
        let mut offset = |expr: &ast::Expr| {
            let mut inner = Frame::plain(outer.scope, "window frame");
            let value = self.expr(expr, &mut inner)?;
            let ty = match (unit, key) {
                (FrameUnit::Range, Some(Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz)) => {
                    Type::Interval
                }
                (FrameUnit::Range, Some(key)) => key,
                _ => Type::Int8,
            };
            let value = self.coerce(value, ty, -1, Coercion::Implicit, expr.span())?;
            if value.any(&mut |expr| matches!(expr.kind, Kind::Column(_))) {
                let message = "argument of window frame must not contain variables";
                return Err(self.error(Code::InvalidColumnReference, message, expr.span()));
            }
            Ok(value)
        };
        Ok(match bound {
            ast::WindowFrameBound::CurrentRow => Bound::CurrentRow,
            ast::WindowFrameBound::Preceding(None) => Bound::UnboundedPreceding,
            ast::WindowFrameBound::Following(None) => Bound::UnboundedFollowing,
            ast::WindowFrameBound::Preceding(Some(expr)) => Bound::Preceding(offset(expr)?),
            ast::WindowFrameBound::Following(Some(expr)) => Bound::Following(offset(expr)?),
        })
    }
}

/// Puts window nodes over a plan: one per different partition and order.
pub(super) fn windows(mut input: Logical, calls: &mut Calls) -> Logical {
    let mut nodes: Vec<(Vec<Expr>, Vec<crate::expr::SortKey>, Vec<(usize, WindowCall)>)> = Vec::new();
    for WindowUse { partition, order, id, call } in std::mem::take(&mut calls.windows) {
        let equal = |(p, o, _): &(Vec<Expr>, Vec<crate::expr::SortKey>, Vec<(usize, WindowCall)>)| {
            p.len() == partition.len()
                && o.len() == order.len()
                && p.iter().zip(&partition).all(|(a, b)| same(a, b))
                && o.iter().zip(&order).all(|(a, b)| {
                    same(&a.value, &b.value) && a.descending == b.descending && a.nulls_first == b.nulls_first
                })
        };
        match nodes.iter().position(equal) {
            Some(at) => nodes[at].2.push((id, call)),
            None => nodes.push((partition, order, vec![(id, call)])),
        }
    }
    for (partition, order, calls) in nodes {
        input = Logical::Window(logical::Window { input: Box::new(input), partition, order, calls });
    }
    input
}
