//! Calls: which function a name means, and what kind of call it is.
//!
//! Invariants:
//! - COALESCE, NULLIF, GREATEST, LEAST and GROUPING look like functions and are not: they are handled before any look-up.
//! - Aggregates, window functions and set-returning functions are collected by the frame, and refused where PostgreSQL
//!   refuses them.

use std::{borrow::Cow, sync::Arc};

use model::{Code, Error, Result, Type, Value, types::Scalar, value::Array};
use sqlparser::{ast, ast::Spanned, tokenizer::Span};

use super::{
    Binder,
    expr::{Frame, Inside},
    fold, path_of, refuse, resolve, span_of,
    types::Coercion,
    unsupported,
};
use crate::{
    expr::{Expr, Kind, SortKey, SubqueryKind},
    functions::{self, Accepts, Body, Function, cast},
    plan::{AggregateCall, SetExpr},
};

/// A function that was chosen, with its arguments as it takes them.
pub(super) struct Resolved {
    pub(super) function: &'static Function,
    pub(super) arguments: Vec<Expr>,
    pub(super) ty: Type,
    pub(super) element: Option<Type>,
}

/// The parts of a call's argument list.
struct Arguments<'e> {
    list: Vec<Cow<'e, ast::Expr>>,
    star: bool,
    distinct: bool,
    order: Vec<&'e ast::OrderByExpr>,
}

impl Binder<'_> {
    /// A call.
    pub(super) fn function(&mut self, call: &ast::Function, frame: &mut Frame<'_>) -> Result<Expr> {
        let ast::Function {
            name,
            uses_odbc_syntax: _,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over,
        } = call;
        refuse(!matches!(parameters, ast::FunctionArguments::None), "a parameterized function")?;
        refuse(matches!(null_treatment, Some(ast::NullTreatment::IgnoreNulls)), "IGNORE NULLS")?;
        let span = span_of(name);
        let path = path_of(name)?;
        let (schema, name) = match &path[..] {
            [name] => (None, name.as_str()),
            [schema, name] => (Some(schema.as_str()), name.as_str()),
            _ => {
                return Err(self.error(
                    Code::SyntaxError,
                    format!("improper qualified name: {}", path.join(".")),
                    span,
                ));
            }
        };
        if let Some(schema) = schema.filter(|schema| *schema != "pg_catalog") {
            self.names.get_schema(schema).map_err(|error| self.at(error, span))?;
        }
        if let ast::FunctionArguments::Subquery(query) = args {
            if name == "array" {
                return self.scalar_subquery(query, SubqueryKind::Array, frame, span);
            }
            let value = self.scalar_subquery(query, SubqueryKind::Scalar, frame, span)?;
            return self.call(name, vec![(value, span)], span);
        }
        let arguments = self.arguments(name, args, span)?;
        let plain = filter.is_none()
            && over.is_none()
            && within_group.is_empty()
            && !arguments.distinct
            && arguments.order.is_empty();
        if plain
            && schema.is_none()
            && let Some(expr) = self.special(name, &arguments.list, frame, span)?
        {
            return Ok(expr);
        }
        self.call_any(name, &arguments, within_group, filter.as_deref(), over.as_ref(), frame, span)
    }

    fn arguments<'e>(
        &self,
        function: &str,
        args: &'e ast::FunctionArguments,
        span: Span,
    ) -> Result<Arguments<'e>> {
        let mut parsed = Arguments { list: Vec::new(), star: false, distinct: false, order: Vec::new() };
        let list = match args {
            ast::FunctionArguments::None => return Ok(parsed),
            ast::FunctionArguments::Subquery(_) => return Ok(parsed),
            ast::FunctionArguments::List(list) => list,
        };
        let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        parsed.distinct = matches!(duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
        let mut named: Vec<(String, &ast::Expr)> = Vec::new();
        for arg in args {
            match arg {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    if !named.is_empty() {
                        let message = "positional argument cannot follow named argument";
                        return Err(self.error(Code::SyntaxError, message, span));
                    }
                    parsed.list.push(Cow::Borrowed(expr));
                }
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard) => parsed.star = true,
                ast::FunctionArg::Unnamed(
                    ast::FunctionArgExpr::QualifiedWildcard(_) | ast::FunctionArgExpr::WildcardWithOptions(_),
                ) => {
                    return Err(self.at(unsupported("this form of * in a call", "Name the columns."), span));
                }
                ast::FunctionArg::Named { name, arg: ast::FunctionArgExpr::Expr(expr), operator: _ } => {
                    named.push((fold(name), expr));
                }
                ast::FunctionArg::ExprNamed {
                    name: ast::Expr::Identifier(name),
                    arg: ast::FunctionArgExpr::Expr(expr),
                    operator: _,
                } => named.push((fold(name), expr)),
                ast::FunctionArg::Named { .. } | ast::FunctionArg::ExprNamed { .. } => {
                    return Err(
                        self.at(unsupported("this form of a named argument", "Write name => value."), span)
                    );
                }
            }
        }
        self.place_named(function, &mut parsed.list, named, span)?;
        for clause in clauses {
            match clause {
                ast::FunctionArgumentClause::OrderBy(order) => parsed.order.extend(order),
                ast::FunctionArgumentClause::IgnoreOrRespectNulls(ast::NullTreatment::RespectNulls) => {}
                other => {
                    return Err(self.at(
                        unsupported(&format!("{other} in a call"), "It is not part of PostgreSQL's dialect."),
                        span,
                    ));
                }
            }
        }
        Ok(parsed)
    }

    /// Puts arguments that were given by name behind those that were given in order, and defaults between them.
    fn place_named<'e>(
        &self,
        function: &str,
        list: &mut Vec<Cow<'e, ast::Expr>>,
        mut named: Vec<(String, &'e ast::Expr)>,
        span: Span,
    ) -> Result<()> {
        if named.is_empty() {
            return Ok(());
        }
        let Some(known) = functions::arguments_of(function) else {
            let message = format!("arguments of {function} by name");
            return Err(self.at(unsupported(&message, "Pass the arguments in order."), span));
        };
        let missing = |named: &[(String, &ast::Expr)]| {
            let names: Vec<String> = named.iter().map(|(name, _)| format!("{name} => …")).collect();
            let message = format!("function {function}({}) does not exist", names.join(", "));
            let error = Error::new(Code::UndefinedFunction, message)
                .with_hint("No function matches the given name and argument names.");
            self.at(error, span)
        };
        for (name, default) in known.iter().skip(list.len()) {
            if named.is_empty() {
                break;
            }
            match (named.iter().position(|(given, _)| given == name), default) {
                (Some(at), _) => list.push(Cow::Borrowed(named.remove(at).1)),
                (None, Some(default)) => list.push(Cow::Owned(crate::parse::parse_expression(default)?)),
                (None, None) => return Err(missing(&named)),
            }
        }
        if named.is_empty() { Ok(()) } else { Err(missing(&named)) }
    }

    /// What looks like a function and does not evaluate all its arguments.
    fn special(
        &mut self,
        name: &str,
        list: &[Cow<'_, ast::Expr>],
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Option<Expr>> {
        let what = match name {
            "coalesce" => "COALESCE",
            "greatest" => "GREATEST",
            "least" => "LEAST",
            "nullif" => return self.null_if(list, frame, span).map(Some),
            "grouping" => return self.grouping(list, frame, span).map(Some),
            "row" => {
                let fields: Vec<ast::Expr> = list.iter().map(|expr| expr.clone().into_owned()).collect();
                return self.row(&fields, frame).map(Some);
            }
            _ => return Ok(None),
        };
        if list.is_empty() {
            return Err(self.error(Code::SyntaxError, "syntax error at or near \")\"", span));
        }
        let mut operands = Vec::new();
        for expr in list {
            operands.push((self.expr(expr, frame)?, expr.span()));
        }
        let (operands, ty, typmod) = self.unify(operands, what)?;
        let kind = match name {
            "coalesce" => Kind::Coalesce(operands),
            "greatest" => Kind::Greatest(operands),
            _ => Kind::Least(operands),
        };
        Ok(Some(Expr { kind, ty, typmod }))
    }

    fn null_if(&mut self, list: &[Cow<'_, ast::Expr>], frame: &mut Frame<'_>, span: Span) -> Result<Expr> {
        let [left, right] = list else {
            return Err(self.error(Code::SyntaxError, "syntax error: NULLIF takes two arguments", span));
        };
        let left_expr = self.expr(left, frame)?;
        let right_expr = self.expr(right, frame)?;
        let equal = self.operate("=", (left_expr.clone(), left.span()), (right_expr, right.span()))?;
        let left_expr = match &equal.kind {
            // A literal on the left has the type that the comparison gave it.
            Kind::Operator(_, operands) if left_expr.ty == Type::Unknown => operands[0].clone(),
            _ => left_expr,
        };
        let (ty, typmod) = (left_expr.ty, left_expr.typmod);
        let branches = vec![(equal, Expr::null(ty))];
        Ok(Expr { kind: Kind::Case { branches, otherwise: Box::new(left_expr) }, ty, typmod })
    }

    fn grouping(&mut self, list: &[Cow<'_, ast::Expr>], frame: &mut Frame<'_>, span: Span) -> Result<Expr> {
        let mut inner = Frame::plain(frame.scope, frame.clause);
        let mut arguments = Vec::new();
        for expr in list {
            arguments.push(self.settled(expr, &mut inner)?);
        }
        let Some(calls) = frame.calls.as_deref_mut() else {
            let message = format!("grouping operations are not allowed in {}", place_name(frame.clause));
            return Err(self.error(Code::GroupingError, message, span));
        };
        let id = self.columns.add("grouping", Type::Int4, -1);
        calls.grouping.push((id, arguments, span));
        Ok(self.columns.read(id))
    }

    #[allow(clippy::too_many_arguments)]
    fn call_any(
        &mut self,
        name: &str,
        arguments: &Arguments<'_>,
        within: &[ast::OrderByExpr],
        filter: Option<&ast::Expr>,
        over: Option<&ast::WindowType>,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let kind = functions::find_functions(name).first().map(|function| &function.body);
        let inside = match (kind, over) {
            (Some(Body::Aggregate(_)), Some(_)) if functions::is_ordered_set(name) => {
                let message = format!("OVER is not supported for ordered-set aggregate {name}");
                return Err(self.error(Code::FeatureNotSupported, message, span));
            }
            (Some(Body::Window(_)), _) | (_, Some(_)) => Inside::Window,
            (Some(Body::Aggregate(_)), None) => Inside::Aggregate,
            (Some(Body::Set(..)), None) => Inside::Set,
            (Some(Body::Scalar(_)) | None, None) => {
                if arguments.distinct
                    || filter.is_some()
                    || !within.is_empty()
                    || !arguments.order.is_empty()
                    || arguments.star
                {
                    let what = if filter.is_some() { "FILTER" } else { "DISTINCT" };
                    let message = format!("{what} specified, but {name} is not an aggregate function");
                    return Err(self.error(Code::WrongObjectType, message, span));
                }
                let mut bound = Vec::new();
                for expr in &arguments.list {
                    bound.push((self.argument(name, expr, frame)?, expr.span()));
                }
                if let ("row_to_json", [(row, _)]) = (name, &bound[..])
                    && row.ty == Type::Json
                {
                    return Ok(row.clone());
                }
                return self.call(name, bound, span);
            }
        };
        self.check_place(name, inside, frame, span)?;
        match inside {
            Inside::Window => {
                self.window_call(name, &arguments.list, arguments.distinct, filter, over, frame, span)
            }
            Inside::Set => self.set_call(name, arguments, frame, span),
            Inside::Aggregate | Inside::Nothing => {
                self.aggregate_call(name, arguments, within, filter, frame, span)
            }
        }
    }

    /// An argument of a call. To the functions that make JSON a relation's name is its row with the names of its columns.
    fn argument(&mut self, function: &str, expr: &ast::Expr, frame: &mut Frame<'_>) -> Result<Expr> {
        let makes_json = matches!(
            function,
            "row_to_json"
                | "to_json"
                | "to_jsonb"
                | "json_agg"
                | "jsonb_agg"
                | "json_object_agg"
                | "jsonb_object_agg"
                | "json_build_array"
                | "jsonb_build_array"
                | "json_build_object"
                | "jsonb_build_object"
        );
        match expr {
            ast::Expr::Identifier(ident) if makes_json => {
                let bound = self.expr(expr, frame)?;
                let relation = frame.scope.find_relation_anywhere(&fold(ident));
                let (Kind::Row(fields), Some(relation)) = (&bound.kind, relation) else { return Ok(bound) };
                let names = relation.columns.iter().map(|(name, _)| Value::text(name.as_str())).collect();
                let names = Value::Array(Arc::new(Array::from_values(Scalar::Text, names)));
                let names = Expr::constant(names, Type::Array(Scalar::Text));
                let arguments = std::iter::once(names).chain(fields.iter().cloned()).collect();
                Ok(Expr::new(Kind::Call(functions::named_row_to_json(), arguments), Type::Json))
            }
            _ => self.expr(expr, frame),
        }
    }

    /// Whether such a call may stand here.
    fn check_place(&self, name: &str, call: Inside, frame: &Frame<'_>, span: Span) -> Result<()> {
        let clause = place_name(frame.clause);
        let (code, message) = match (call, frame.inside, frame.calls.as_deref()) {
            (Inside::Aggregate, Inside::Aggregate, _) => {
                (Code::GroupingError, "aggregate function calls cannot be nested".to_owned())
            }
            (Inside::Window, Inside::Aggregate, _) => (
                Code::GroupingError,
                "aggregate function calls cannot contain window function calls".to_owned(),
            ),
            (Inside::Window, Inside::Window, _) => {
                (Code::WindowingError, "window function calls cannot be nested".to_owned())
            }
            (Inside::Set, Inside::Aggregate, _) => (
                Code::FeatureNotSupported,
                "aggregate function calls cannot contain set-returning function calls".to_owned(),
            ),
            (Inside::Set, Inside::Set | Inside::Window, _) => {
                (Code::FeatureNotSupported, format!("set-returning functions are not allowed inside {name}"))
            }
            (Inside::Aggregate, _, None) => {
                (Code::GroupingError, format!("aggregate functions are not allowed in {clause}"))
            }
            (Inside::Window, _, calls) if calls.is_none_or(|calls| !calls.allow_windows) => {
                (Code::WindowingError, format!("window functions are not allowed in {clause}"))
            }
            (Inside::Set, _, calls) if calls.is_none_or(|calls| !calls.allow_sets) => {
                (Code::FeatureNotSupported, format!("set-returning functions are not allowed in {clause}"))
            }
            _ => return Ok(()),
        };
        Err(self.error(code, message, span))
    }

    fn aggregate_call(
        &mut self,
        name: &str,
        arguments: &Arguments<'_>,
        within: &[ast::OrderByExpr],
        filter: Option<&ast::Expr>,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let (call, ty) = {
            let mut inner = Frame::plain(frame.scope, "FILTER");
            inner.inside = Inside::Aggregate;
            self.bind_aggregate(name, arguments, within, filter, &mut inner, span)?
        };
        let direct = (!within.is_empty() && !arguments.list.is_empty()).then(|| call.arguments[0].clone());
        let id = self.columns.add(name, ty, -1);
        let calls =
            frame.calls.as_deref_mut().ok_or_else(|| Error::internal("an aggregate without a place"))?;
        calls.aggregates.push((id, call));
        let value = self.columns.read(id);
        Ok(match direct {
            Some(direct) => Expr::new(Kind::Call(functions::checked_percentile(), vec![direct, value]), ty),
            None => value,
        })
    }

    fn bind_aggregate(
        &mut self,
        name: &str,
        arguments: &Arguments<'_>,
        within: &[ast::OrderByExpr],
        filter: Option<&ast::Expr>,
        inner: &mut Frame<'_>,
        span: Span,
    ) -> Result<(AggregateCall, Type)> {
        let mut bound = Vec::new();
        for expr in &arguments.list {
            bound.push((self.argument(name, expr, inner)?, expr.span()));
        }
        let mut order = Vec::new();
        for item in within {
            let key = self.sort_key(item, inner)?;
            bound.push((key.value.clone(), item.expr.span()));
            order.push(key);
        }
        if arguments.list.is_empty() && !arguments.star && within.is_empty() && name == "count" {
            let error = Error::new(
                Code::WrongObjectType,
                "count(*) must be used to call a parameterless aggregate function",
            );
            return Err(self.at(error, span));
        }
        let resolved = self.resolve(name, bound, span)?;
        if functions::is_ordered_set(name) == within.is_empty() {
            let message = if within.is_empty() {
                format!("WITHIN GROUP is required for ordered-set aggregate {name}")
            } else {
                format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP")
            };
            return Err(self.error(Code::WrongObjectType, message, span));
        }
        if !within.is_empty() && (arguments.distinct || !arguments.order.is_empty()) {
            let what = if arguments.distinct { "DISTINCT" } else { "multiple ORDER BY clauses" };
            return Err(self.error(Code::SyntaxError, format!("cannot use {what} with WITHIN GROUP"), span));
        }
        for item in &arguments.order {
            order.push(self.sort_key(item, inner)?);
        }
        if arguments.distinct && resolved.arguments.is_empty() {
            return Err(self.error(Code::WrongObjectType, "DISTINCT specified, but no arguments", span));
        }
        if arguments.distinct {
            let outside = order.iter().any(|key| {
                !resolved.arguments.iter().any(|argument| super::group::same(argument, &key.value))
            });
            if outside && within.is_empty() {
                let message =
                    "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                return Err(self.error(Code::InvalidColumnReference, message, span));
            }
        }
        let collects = matches!(name, "array_agg" | "string_agg" | "json_agg" | "jsonb_agg");
        if arguments.distinct && order.is_empty() && collects {
            // PostgreSQL finds the different values by sorting, so they come in order.
            let key = |value: &Expr| SortKey { value: value.clone(), descending: false, nulls_first: false };
            order.extend(resolved.arguments.iter().filter(|value| value.ty != Type::Json).map(key));
        }
        let filter = filter.map(|filter| self.condition(filter, inner)).transpose()?;
        let call = AggregateCall {
            function: resolved.function,
            arguments: resolved.arguments,
            distinct: arguments.distinct,
            filter,
            order,
            ty: resolved.ty,
        };
        Ok((call, resolved.ty))
    }

    /// One key of an ORDER BY whose names mean columns of the input.
    pub(super) fn sort_key(&mut self, item: &ast::OrderByExpr, frame: &mut Frame<'_>) -> Result<SortKey> {
        let ast::OrderByExpr { expr, options, with_fill } = item;
        refuse(with_fill.is_some(), "WITH FILL")?;
        let value = self.settled(expr, frame)?;
        self.key_of(value, options, expr.span())
    }

    /// A sort key of a value that is bound.
    pub(super) fn key_of(&self, value: Expr, options: &ast::OrderByOptions, span: Span) -> Result<SortKey> {
        let ast::OrderByOptions { sort, nulls_first } = options;
        let descending = match sort {
            None | Some(ast::OrderBySort::Asc) => false,
            Some(ast::OrderBySort::Desc) => true,
            #[allow(unreachable_patterns)]
            Some(_) => return Err(unsupported("ORDER BY … USING", "Use ASC or DESC.")),
        };
        if self.find_operator("<", Some(value.ty), value.ty, span).is_err() {
            let error = Error::new(
                Code::UndefinedFunction,
                format!("could not identify an ordering operator for type {}", value.ty),
            )
            .with_hint("Use an explicit ordering operator or modify the query.");
            return Err(self.at(error, span));
        }
        Ok(SortKey { value, descending, nulls_first: nulls_first.unwrap_or(descending) })
    }

    fn set_call(
        &mut self,
        name: &str,
        arguments: &Arguments<'_>,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let mut bound = Vec::new();
        {
            let mut inner = Frame {
                scope: frame.scope,
                clause: frame.clause,
                calls: frame.calls.as_deref_mut(),
                inside: Inside::Set,
                places: std::mem::take(&mut frame.places),
            };
            for expr in &arguments.list {
                bound.push((self.expr(expr, &mut inner)?, expr.span()));
            }
            frame.places = inner.places;
        }
        let resolved = self.resolve(name, bound, span)?;
        let types = self.set_types(&resolved);
        let ty = match types[..] {
            [only] => only,
            _ => Type::Record,
        };
        let id = self.columns.add(name, ty, -1);
        let set = SetExpr::Set { function: resolved.function, arguments: resolved.arguments, types };
        let calls = frame.calls.as_deref_mut().ok_or_else(|| Error::internal("a set without a place"))?;
        calls.sets.push((id, set));
        Ok(self.columns.read(id))
    }

    /// The types of the columns a set-returning function gives.
    pub(super) fn set_types(&self, resolved: &Resolved) -> Vec<Type> {
        match resolved.function.body {
            Body::Set(columns, _) => {
                columns.iter().map(|(_, gives)| resolve::result_type(*gives, resolved.element)).collect()
            }
            Body::Scalar(_) | Body::Aggregate(_) | Body::Window(_) => vec![resolved.ty],
        }
    }

    /// A scalar call with arguments that are bound.
    pub(super) fn call(&mut self, name: &str, arguments: Vec<(Expr, Span)>, span: Span) -> Result<Expr> {
        if functions::find_functions(name).is_empty()
            && let [(value, at)] = &arguments[..]
            && let Ok((ty, -1)) = Type::parse(name).map(|(ty, typmod)| (ty, typmod.0))
            && (value.ty == Type::Unknown || cast::find(value.ty, ty).is_some())
        {
            // A type's name called like a function is a cast.
            return self.coerce(value.clone(), ty, -1, Coercion::Explicit, *at);
        }
        let resolved = self.resolve(name, arguments, span)?;
        if let Body::Set(..) = resolved.function.body {
            let message = "set-returning functions are not allowed here";
            return Err(self.error(Code::FeatureNotSupported, message, span));
        }
        Ok(Expr::new(Kind::Call(resolved.function, resolved.arguments), resolved.ty))
    }

    /// Chooses the function and brings the arguments to its types.
    pub(super) fn resolve(
        &mut self,
        name: &str,
        arguments: Vec<(Expr, Span)>,
        span: Span,
    ) -> Result<Resolved> {
        let types: Vec<Type> = arguments.iter().map(|(expr, _)| expr.ty).collect();
        let (function, wanted, ty, element) = self.find_function(name, &types, span)?;
        let mut coerced = Vec::with_capacity(arguments.len());
        for ((expr, at), ty) in arguments.into_iter().zip(wanted) {
            coerced.push(self.coerce(expr, ty, -1, Coercion::Implicit, at)?);
        }
        Ok(Resolved { function, arguments: coerced, ty, element })
    }

    fn find_function(
        &self,
        name: &str,
        types: &[Type],
        span: Span,
    ) -> Result<(&'static Function, Vec<Type>, Type, Option<Type>)> {
        let mut candidates = Vec::new();
        let mut accepted: Vec<Vec<Accepts>> = Vec::new();
        for function in functions::find_functions(name) {
            let parameters = function.parameters;
            let least = parameters.len() - function.optional - usize::from(function.variadic);
            if types.len() < least || (types.len() > parameters.len() && !function.variadic) {
                continue;
            }
            let spread = (0..types.len()).map(|at| parameters[at.min(parameters.len() - 1)]);
            accepted.push(spread.collect());
            candidates.push(function);
        }
        let shown = || {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            format!("{name}({})", types.join(", "))
        };
        match resolve::choose(&accepted, types, false) {
            resolve::Choice::One { candidate, types, element } => {
                let function = candidates[candidate];
                Ok((function, types, resolve::result_type(function.gives, element), element))
            }
            resolve::Choice::None => {
                let error = Error::new(Code::UndefinedFunction, format!("function {} does not exist", shown())).with_hint(
                    "No function matches the given name and argument types. You might need to add explicit type casts.",
                );
                Err(self.at(error, span))
            }
            resolve::Choice::Ambiguous => {
                let error = Error::new(
                    Code::AmbiguousFunction,
                    format!("function {} is not unique", shown()),
                )
                .with_hint(
                    "Could not choose a best candidate function. You might need to add explicit type casts.",
                );
                Err(self.at(error, span))
            }
        }
    }
}

/// How errors call a clause.
fn place_name(clause: &str) -> &str {
    match clause {
        "JOIN/ON" => "JOIN conditions",
        other => other,
    }
}
