//! Expressions: every node of the syntax tree that gives a value.
//!
//! Invariants:
//! - A literal string and an undecided parameter stay of type `unknown` until something asks for a type.
//! - Chains of AND and OR are walked without recursion: there are programs that write thousands of them.
//! - An operand that appears twice in the meaning (BETWEEN, CASE with an operand) is bound once and copied; if it is volatile
//!   the statement is refused rather than evaluated twice.

use std::collections::BTreeMap;

use model::{
    Code, Error, Result, Type, Value,
    types::{Typmod, interval_range},
    value::Numeric,
};
use sqlparser::{ast, ast::Spanned, tokenizer::Span};

use super::{
    Binder, Scope, fold, group::Calls, path_of, refuse, resolve, span_of, types::Coercion, unsupported,
};
use crate::{
    expr::{Expr, Kind, Query, Subquery, SubqueryKind, Subscript},
    functions::{self, Accepts, Operator, Volatility, cast},
    parse::rewrite::SYMMETRIC,
};

/// Where an expression stands: what it may name and which calls it may hold.
pub(super) struct Frame<'s> {
    /// The names in reach.
    pub(super) scope: &'s Scope<'s>,
    /// The clause, for errors.
    pub(super) clause: &'static str,
    /// Aggregates, window functions and set-returning functions found so far; none where they are refused.
    pub(super) calls: Option<&'s mut Calls>,
    /// Inside an aggregate's arguments, a window's, or a set-returning function's.
    pub(super) inside: Inside,
    /// Where each column was named first.
    pub(super) places: BTreeMap<usize, Span>,
}

/// Inside which call's arguments an expression stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inside {
    Nothing,
    Aggregate,
    Window,
    Set,
}

impl<'s> Frame<'s> {
    /// A frame in which there are only scalar expressions.
    pub(super) fn plain(scope: &'s Scope<'s>, clause: &'static str) -> Self {
        Self { scope, clause, calls: None, inside: Inside::Nothing, places: BTreeMap::new() }
    }

    /// A frame that collects calls.
    pub(super) fn collecting(scope: &'s Scope<'s>, clause: &'static str, calls: &'s mut Calls) -> Self {
        Self { scope, clause, calls: Some(calls), inside: Inside::Nothing, places: BTreeMap::new() }
    }
}

impl Binder<'_> {
    /// Binds an expression; its type may still be `unknown`.
    pub(super) fn expr(&mut self, expr: &ast::Expr, frame: &mut Frame<'_>) -> Result<Expr> {
        let span = || expr.span();
        match expr {
            ast::Expr::Identifier(ident) => self.column(std::slice::from_ref(ident), frame),
            ast::Expr::CompoundIdentifier(parts) => self.column(parts, frame),
            ast::Expr::Nested(inner) => self.expr(inner, frame),
            ast::Expr::Value(value) => self.value(&value.value, value.span),
            ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And | ast::BinaryOperator::Or, right } => {
                self.chain(expr, left, right, frame)
            }
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right, frame),
            ast::Expr::UnaryOp { op, expr: inner } => self.unary(op, inner, frame, span()),
            ast::Expr::Cast { kind, expr: inner, data_type, format } => {
                refuse(format.is_some(), "CAST … FORMAT")?;
                refuse(matches!(kind, ast::CastKind::TryCast | ast::CastKind::SafeCast), "TRY_CAST")?;
                self.cast(inner, data_type, frame, span())
            }
            ast::Expr::TypedString(typed) => {
                let (ty, typmod) = self.data_type(&typed.data_type)?;
                let value = self.value(&typed.value.value, typed.value.span)?;
                self.coerce(value, ty, typmod, Coercion::Explicit, typed.value.span)
            }
            ast::Expr::Interval(interval) => self.interval(interval, frame),
            ast::Expr::IsNull(inner) => self.is_null(inner, false, frame),
            ast::Expr::IsNotNull(inner) => self.is_null(inner, true, frame),
            ast::Expr::IsTrue(inner) => self.is_truth(inner, Some(true), false, "IS TRUE", frame),
            ast::Expr::IsNotTrue(inner) => self.is_truth(inner, Some(true), true, "IS NOT TRUE", frame),
            ast::Expr::IsFalse(inner) => self.is_truth(inner, Some(false), false, "IS FALSE", frame),
            ast::Expr::IsNotFalse(inner) => self.is_truth(inner, Some(false), true, "IS NOT FALSE", frame),
            ast::Expr::IsUnknown(inner) => self.is_truth(inner, None, false, "IS UNKNOWN", frame),
            ast::Expr::IsNotUnknown(inner) => self.is_truth(inner, None, true, "IS NOT UNKNOWN", frame),
            ast::Expr::IsDistinctFrom(left, right) => self.is_distinct(left, right, false, frame),
            ast::Expr::IsNotDistinctFrom(left, right) => self.is_distinct(left, right, true, frame),
            ast::Expr::Between { expr: inner, negated, low, high } => {
                self.between(inner, *negated, low, high, frame)
            }
            ast::Expr::In { expr: inner, target, negated, global } => {
                refuse(*global, "GLOBAL IN")?;
                match target {
                    ast::InTarget::List(list) => self.in_list(inner, list, *negated, frame, span()),
                    ast::InTarget::Subquery(query) => self.in_subquery(inner, query, *negated, frame, span()),
                    ast::InTarget::Unnest(_) | ast::InTarget::Table { .. } => {
                        Err(unsupported("this form of IN", "Use = ANY (array)."))
                    }
                }
            }
            ast::Expr::Like { negated, any, expr: inner, pattern, escape_char } => {
                let symbol = if *negated { "!~~" } else { "~~" };
                self.like(symbol, *any, inner, pattern, escape_char.as_deref(), frame)
            }
            ast::Expr::ILike { negated, any, expr: inner, pattern, escape_char } => {
                let symbol = if *negated { "!~~*" } else { "~~*" };
                self.like(symbol, *any, inner, pattern, escape_char.as_deref(), frame)
            }
            ast::Expr::SimilarTo { negated, expr: inner, pattern, escape_char } => {
                self.similar(*negated, inner, pattern, escape_char.as_deref(), frame)
            }
            ast::Expr::AnyOp { left, compare_op, right, is_some: _ } => {
                self.any_all(left, compare_op, right, false, frame, span())
            }
            ast::Expr::AllOp { left, compare_op, right } => {
                self.any_all(left, compare_op, right, true, frame, span())
            }
            ast::Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), frame)
            }
            ast::Expr::Function(function) => self.function(function, frame),
            ast::Expr::Exists { subquery, negated } => {
                let text = subquery.to_string().into();
                let query = self.query(subquery, Some(frame.scope))?;
                let query = Query::Logical(Box::new(self.settle(query)?.plan));
                let subquery = Subquery { kind: SubqueryKind::Exists, query, text };
                let exists = Expr::new(Kind::Subquery(Box::new(subquery)), Type::Bool);
                Ok(if *negated { Expr::new(Kind::Not(Box::new(exists)), Type::Bool) } else { exists })
            }
            ast::Expr::Subquery(query) => self.scalar_subquery(query, SubqueryKind::Scalar, frame, span()),
            ast::Expr::Array(array) => self.array(&array.elem, None, frame, span()),
            ast::Expr::Tuple(fields) => self.row(fields, frame),
            ast::Expr::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain, frame),
            ast::Expr::AtTimeZone { timestamp, time_zone } => {
                let zone = self.expr(time_zone, frame)?;
                let value = self.expr(timestamp, frame)?;
                self.call("timezone", vec![(zone, time_zone.span()), (value, timestamp.span())], span())
            }
            ast::Expr::Extract { field, syntax: _, expr: inner } => {
                let field = field.to_string().trim_matches('\'').trim_matches('"').to_lowercase();
                let field = Expr::constant(Value::text(field), Type::Text);
                let value = self.expr(inner, frame)?;
                self.call("extract", vec![(field, span()), (value, inner.span())], span())
            }
            ast::Expr::Ceil { expr: inner, field } => self.rounding("ceil", inner, field, frame, span()),
            ast::Expr::Floor { expr: inner, field } => self.rounding("floor", inner, field, frame, span()),
            ast::Expr::Position { expr: inner, r#in } => {
                let part = self.expr(inner, frame)?;
                let whole = self.expr(r#in, frame)?;
                self.call("position", vec![(whole, r#in.span()), (part, inner.span())], span())
            }
            ast::Expr::Substring { expr: inner, substring_from, substring_for, special: _, shorthand } => {
                let name = if *shorthand { "substr" } else { "substring" };
                self.substring(
                    name,
                    inner,
                    substring_from.as_deref(),
                    substring_for.as_deref(),
                    frame,
                    span(),
                )
            }
            ast::Expr::Trim { trim_where, trim_what, expr: inner, trim_characters } => {
                let name = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    Some(ast::TrimWhereField::Both) | None => "btrim",
                };
                let mut arguments = vec![(self.expr(inner, frame)?, inner.span())];
                let characters = trim_characters.iter().flatten();
                for what in trim_what.as_deref().into_iter().chain(characters) {
                    arguments.push((self.expr(what, frame)?, what.span()));
                }
                self.call(name, arguments, span())
            }
            ast::Expr::Overlay { expr: inner, overlay_what, overlay_from, overlay_for } => {
                let mut arguments = Vec::new();
                let parts = [inner, overlay_what, overlay_from];
                for part in parts.into_iter().chain(overlay_for) {
                    arguments.push((self.expr(part, frame)?, part.span()));
                }
                self.call("overlay", arguments, span())
            }
            ast::Expr::Collate { expr: inner, collation } => {
                let name = path_of(collation)?.pop().unwrap_or_default();
                if !matches!(name.as_str(), "C" | "POSIX" | "default" | "ucs_basic" | "c" | "posix") {
                    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
                    return Err(self.error(Code::UndefinedObject, message, span_of(collation)));
                }
                let value = self.expr(inner, frame)?;
                self.settle_expr(value, inner.span())
            }
            ast::Expr::IsNormalized { .. } => {
                Err(unsupported("IS NORMALIZED", "Compare with normalize(text)."))
            }
            ast::Expr::IsJson { .. } => {
                Err(unsupported("IS JSON", "Cast to json, which refuses what is none."))
            }
            ast::Expr::GroupingSets(_) | ast::Expr::Cube(_) | ast::Expr::Rollup(_) => {
                Err(self.error(Code::SyntaxError, "grouping sets are only allowed in GROUP BY", span()))
            }
            ast::Expr::JsonAccess { .. }
            | ast::Expr::RLike { .. }
            | ast::Expr::Convert { .. }
            | ast::Expr::Prefixed { .. }
            | ast::Expr::Struct { .. }
            | ast::Expr::Named { .. }
            | ast::Expr::Dictionary(_)
            | ast::Expr::Map(_)
            | ast::Expr::MatchAgainst { .. }
            | ast::Expr::Wildcard(_)
            | ast::Expr::QualifiedWildcard(..)
            | ast::Expr::OuterJoin(_)
            | ast::Expr::Prior(_)
            | ast::Expr::Lambda(_)
            | ast::Expr::MemberOf(_) => {
                let text: String = expr.to_string().chars().take(40).collect();
                Err(self.error(Code::SyntaxError, format!("syntax error at or near \"{text}\""), span()))
            }
        }
    }

    /// Binds an expression and gives a literal of unknown type the type text.
    pub(super) fn settled(&mut self, expr: &ast::Expr, frame: &mut Frame<'_>) -> Result<Expr> {
        let bound = self.expr(expr, frame)?;
        self.settle_expr(bound, expr.span())
    }

    /// Gives a literal or parameter of unknown type the type text.
    pub(super) fn settle_expr(&mut self, expr: Expr, at: Span) -> Result<Expr> {
        if expr.ty != Type::Unknown {
            return Ok(expr);
        }
        self.coerce(expr, Type::Text, -1, Coercion::Implicit, at)
    }

    /// A condition of WHERE, ON, HAVING, FILTER.
    pub(super) fn condition(&mut self, expr: &ast::Expr, frame: &mut Frame<'_>) -> Result<Expr> {
        let clause = frame.clause;
        let bound = self.expr(expr, frame)?;
        self.coerce_condition(bound, clause, expr.span())
    }

    fn column(&mut self, parts: &[ast::Ident], frame: &mut Frame<'_>) -> Result<Expr> {
        if let Some(first) = parts.first() {
            super::check_reserved(first).map_err(|error| self.at(error, first.span))?;
        }
        let path: Vec<String> = parts.iter().map(fold).collect();
        let span = parts.first().map_or_else(Span::empty, |part| part.span);
        let found = frame.scope.find(&path, &self.columns).map_err(|error| self.at(error, span))?;
        if let Some(id) = found {
            frame.places.entry(id).or_insert(span);
            return Ok(self.read(id));
        }
        if let [ident] = parts {
            if let Some(function) = bare_function(ident) {
                return self.call(function, Vec::new(), span);
            }
            if let Some(relation) = frame.scope.find_relation_anywhere(&path[0]) {
                if let (true, [(_, id)]) = (relation.scalar, &relation.columns[..]) {
                    frame.places.entry(*id).or_insert(span);
                    return Ok(self.read(*id));
                }
                let fields = relation.columns.iter().map(|(_, id)| self.read(*id)).collect();
                return Ok(Expr::new(Kind::Row(fields), Type::Record));
            }
        }
        Err(self.undefined_column(&path, frame.scope, span))
    }

    fn undefined_column(&self, path: &[String], scope: &Scope<'_>, span: Span) -> Error {
        let column = path.last().map_or("", String::as_str);
        let error = match path {
            [_] => {
                let error = Error::new(Code::UndefinedColumn, format!("column \"{column}\" does not exist"));
                match scope.names().find(|(_, name)| is_near(name, column)) {
                    Some((relation, name)) => error.with_hint(format!(
                        "Perhaps you meant to reference the column \"{relation}.{name}\"."
                    )),
                    None => error,
                }
            }
            [.., relation, _] => {
                let missing = format!("missing FROM-clause entry for table \"{relation}\"");
                if scope.is_unreachable(relation) {
                    let message = format!("invalid reference to FROM-clause entry for table \"{relation}\"");
                    Error::new(Code::UndefinedTable, message).with_hint(format!(
                        "There is an entry for table \"{relation}\", but it cannot be referenced from this part of the query."
                    ))
                } else {
                    Error::new(Code::UndefinedTable, missing)
                }
            }
            [] => Error::internal("a column without a name"),
        };
        self.at(error, span)
    }

    pub(super) fn value(&mut self, value: &ast::Value, span: Span) -> Result<Expr> {
        Ok(match value {
            ast::Value::Number(text, _) => self.number(text, span)?,
            ast::Value::SingleQuotedString(text)
            | ast::Value::EscapedStringLiteral(text)
            | ast::Value::UnicodeStringLiteral(text)
            | ast::Value::NationalStringLiteral(text) => {
                Expr::constant(Value::text(text.as_str()), Type::Unknown)
            }
            ast::Value::DollarQuotedString(text) => {
                Expr::constant(Value::text(text.value.as_str()), Type::Unknown)
            }
            ast::Value::Boolean(value) => Expr::bool(*value),
            ast::Value::Null => Expr::null(Type::Unknown),
            ast::Value::Placeholder(text) => {
                let (number, ty) = self.parameters.read(text).map_err(|error| self.at(error, span))?;
                Expr::new(Kind::Parameter(number), ty)
            }
            ast::Value::SingleQuotedByteStringLiteral(_) | ast::Value::HexStringLiteral(_) => {
                return Err(self.at(unsupported("a bit string", "Use an integer, or bytea as '\\x…'."), span));
            }
            other => {
                let message = format!("syntax error at or near \"{other}\"");
                return Err(self.error(Code::SyntaxError, message, span));
            }
        })
    }

    fn number(&mut self, text: &str, span: Span) -> Result<Expr> {
        if let Ok(number) = text.parse::<i32>() {
            return Ok(Expr::constant(Value::Int4(number), Type::Int4));
        }
        if let Ok(number) = text.parse::<i64>() {
            return Ok(Expr::constant(Value::Int8(number), Type::Int8));
        }
        let number: Numeric = match cast::cast(
            self.context,
            &Value::text(text),
            Type::Unknown,
            Type::Numeric,
            Typmod::NONE,
            false,
        ) {
            Ok(Value::Numeric(number)) => number,
            Ok(_) => return Err(Error::internal("a numeric literal is no numeric")),
            Err(error) => return Err(self.at(error, span)),
        };
        Ok(Expr::constant(Value::Numeric(number), Type::Numeric))
    }

    /// AND and OR, without recursion along the chain.
    fn chain(
        &mut self,
        whole: &ast::Expr,
        left: &ast::Expr,
        right: &ast::Expr,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let is_and = matches!(whole, ast::Expr::BinaryOp { op: ast::BinaryOperator::And, .. });
        let clause = if is_and { "AND" } else { "OR" };
        let mut operands = vec![right];
        let mut rest = left;
        while let ast::Expr::BinaryOp { left, op, right } = rest {
            let same =
                matches!((op, is_and), (ast::BinaryOperator::And, true) | (ast::BinaryOperator::Or, false));
            if !same {
                break;
            }
            operands.push(right);
            rest = left;
        }
        operands.push(rest);
        let mut bound = Vec::with_capacity(operands.len());
        for operand in operands.into_iter().rev() {
            let value = self.expr(operand, frame)?;
            bound.push(self.coerce_condition(value, clause, operand.span())?);
        }
        Ok(Expr::new(if is_and { Kind::And(bound) } else { Kind::Or(bound) }, Type::Bool))
    }

    fn binary(
        &mut self,
        left: &ast::Expr,
        op: &ast::BinaryOperator,
        right: &ast::Expr,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let span = left.span();
        let symbol = match op {
            ast::BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
            ast::BinaryOperator::NotEq => "<>".to_owned(),
            ast::BinaryOperator::Overlaps => return self.overlaps(left, right, frame),
            ast::BinaryOperator::Xor => {
                return Err(self.error(Code::SyntaxError, "syntax error at or near \"XOR\"", span));
            }
            other => other.to_string(),
        };
        if let (ast::Expr::Tuple(lefts), ast::Expr::Tuple(rights)) = (strip(left), strip(right)) {
            return self.compare_rows(lefts, &symbol, rights, frame, span);
        }
        if let (ast::Expr::Tuple(lefts), ast::Expr::Subquery(query)) = (strip(left), strip(right)) {
            return self.row_against_query(lefts, &symbol, query, frame, span);
        }
        // Comparisons do not stand in a chain: `a < b < c` says nothing.
        if let ast::Expr::BinaryOp { op: before, .. } = left
            && is_comparison(before)
            && is_comparison(op)
        {
            return Err(Error::new(Code::SyntaxError, format!("syntax error at or near \"{op}\"")));
        }
        let left_expr = self.expr(left, frame)?;
        let right_expr = self.expr(right, frame)?;
        self.operate(&symbol, (left_expr, left.span()), (right_expr, right.span()))
    }

    fn overlaps(&mut self, left: &ast::Expr, right: &ast::Expr, frame: &mut Frame<'_>) -> Result<Expr> {
        let (ast::Expr::Tuple(lefts), ast::Expr::Tuple(rights)) = (strip(left), strip(right)) else {
            return Err(self.error(
                Code::SyntaxError,
                "wrong number of parameters on left side of OVERLAPS expression",
                left.span(),
            ));
        };
        let mut arguments = Vec::new();
        for part in lefts.iter().chain(rights) {
            arguments.push((self.expr(part, frame)?, part.span()));
        }
        self.call("overlaps", arguments, left.span())
    }

    /// An operator on two operands that are bound.
    pub(super) fn operate(&mut self, symbol: &str, left: (Expr, Span), right: (Expr, Span)) -> Result<Expr> {
        let (operator, types, ty) = self.find_operator(symbol, Some(left.0.ty), right.0.ty, left.1)?;
        let left_expr = self.coerce(left.0, types[0], -1, Coercion::Implicit, left.1)?;
        let right_expr = self.coerce(right.0, types[1], -1, Coercion::Implicit, right.1)?;
        // An array and null are the array, or one with a null in it; operators give null for null.
        let function = match (operator.symbol, operator.left, operator.right) {
            ("||", Some(Accepts::Array), Accepts::Array) => Some("array_cat"),
            ("||", Some(Accepts::Array), _) => Some("array_append"),
            ("||", _, Accepts::Array) => Some("array_prepend"),
            _ => None,
        };
        if let Some(function) = function.and_then(|name| functions::find_functions(name).first()) {
            return Ok(Expr::new(Kind::Call(function, vec![left_expr, right_expr]), ty));
        }
        Ok(Expr::new(Kind::Operator(operator, vec![left_expr, right_expr]), ty))
    }

    /// The operator that a symbol means for operands of these types, the types they must have, and the type it gives.
    pub(super) fn find_operator(
        &self,
        symbol: &str,
        left: Option<Type>,
        right: Type,
        span: Span,
    ) -> Result<(&'static Operator, Vec<Type>, Type)> {
        let symbol = if symbol == "!=" { "<>" } else { symbol };
        let operators: Vec<&'static Operator> = functions::find_operators(symbol)
            .iter()
            .filter(|operator| operator.left.is_some() == left.is_some())
            .collect();
        let candidates: Vec<Vec<Accepts>> = operators
            .iter()
            .map(|operator| operator.left.into_iter().chain([operator.right]).collect())
            .collect();
        let arguments: Vec<Type> = left.into_iter().chain([right]).collect();
        match resolve::choose(&candidates, &arguments, true) {
            resolve::Choice::One { candidate, types, element } => {
                let operator = operators[candidate];
                Ok((operator, types, resolve::result_type(operator.gives, element)))
            }
            resolve::Choice::None => {
                Err(self.no_operator("operator does not exist", symbol, left, right, span))
            }
            resolve::Choice::Ambiguous => {
                Err(self.no_operator("operator is not unique", symbol, left, right, span))
            }
        }
    }

    fn no_operator(&self, what: &str, symbol: &str, left: Option<Type>, right: Type, span: Span) -> Error {
        let shown = match left {
            Some(left) => format!("{left} {symbol} {right}"),
            None => format!("{symbol} {right}"),
        };
        let (code, hint) = if what.ends_with("unique") {
            (
                Code::AmbiguousFunction,
                "Could not choose a best candidate operator. You might need to add explicit type casts.",
            )
        } else {
            (
                Code::UndefinedFunction,
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            )
        };
        self.at(Error::new(code, format!("{what}: {shown}")).with_hint(hint), span)
    }

    fn unary(
        &mut self,
        op: &ast::UnaryOperator,
        inner: &ast::Expr,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        if *op == ast::UnaryOperator::Not {
            let value = self.expr(inner, frame)?;
            let value = self.coerce_condition(value, "NOT", inner.span())?;
            return Ok(Expr::new(Kind::Not(Box::new(value)), Type::Bool));
        }
        if let (ast::UnaryOperator::Minus, ast::Expr::Value(value)) = (op, inner)
            && let ast::Value::Number(text, _) = &value.value
        {
            return self.number(&format!("-{text}"), span);
        }
        if *op == ast::UnaryOperator::Minus
            && let ast::Expr::BinaryOp { left, op: ast::BinaryOperator::PGExp, right } = inner
        {
            // PostgreSQL's unary minus binds tighter than `^`.
            let base = ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: left.clone() };
            return self.binary(&base, &ast::BinaryOperator::PGExp, right, frame);
        }
        let symbol = match op {
            ast::UnaryOperator::BangNot => "!".to_owned(),
            other => other.to_string(),
        };
        let value = self.expr(inner, frame)?;
        let (operator, types, ty) = self.find_operator(&symbol, None, value.ty, span)?;
        let value = self.coerce(value, types[0], -1, Coercion::Implicit, inner.span())?;
        Ok(Expr::new(Kind::Operator(operator, vec![value]), ty))
    }

    fn cast(
        &mut self,
        inner: &ast::Expr,
        data_type: &ast::DataType,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let (ty, typmod) = self.data_type(data_type).map_err(|error| self.at(error, span))?;
        if let (ast::Expr::Array(array), true) = (strip(inner), ty.is_array()) {
            return self.array(&array.elem, Some((ty, typmod)), frame, span);
        }
        let value = self.expr(inner, frame)?;
        let at = inner.span();
        self.coerce(value, ty, typmod, Coercion::Explicit, at)
    }

    fn interval(&mut self, interval: &ast::Interval, frame: &mut Frame<'_>) -> Result<Expr> {
        let ast::Interval {
            value,
            leading_field,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        } = interval;
        let span = value.span();
        let bound = self.expr(value, frame)?;
        if bound.ty != Type::Unknown {
            return Err(self.error(Code::SyntaxError, "syntax error: an interval literal is a string", span));
        }
        let typmod = match leading_field {
            None => match leading_precision.or(*fractional_seconds_precision) {
                None => Typmod::NONE,
                Some(digits) => Typmod::of_interval(interval_range::FULL, digits.min(6) as u16),
            },
            Some(first) => {
                let last = last_field.as_ref().unwrap_or(first);
                let (Some(first), Some(last)) = (field_bit(first), field_bit(last)) else {
                    return Err(self.error(Code::SyntaxError, "syntax error in interval fields", span));
                };
                let order = [
                    interval_range::YEAR,
                    interval_range::MONTH,
                    interval_range::DAY,
                    interval_range::HOUR,
                    interval_range::MINUTE,
                    interval_range::SECOND,
                ];
                let place = |bit: u16| order.iter().position(|at| *at == bit).unwrap_or(0);
                let range =
                    order[place(first)..=place(last).max(place(first))].iter().fold(0, |all, bit| all | bit);
                let digits = fractional_seconds_precision.map_or(0xffff, |digits| digits.min(6) as u16);
                Typmod::of_interval(range, digits)
            }
        };
        self.coerce(bound, Type::Interval, typmod.0, Coercion::Explicit, span)
    }

    fn is_null(&mut self, inner: &ast::Expr, negated: bool, frame: &mut Frame<'_>) -> Result<Expr> {
        let value = self.expr(inner, frame)?;
        let value = match value.kind {
            Kind::Parameter(_) => value,
            _ => self.settle_expr(value, inner.span())?,
        };
        Ok(Expr::new(Kind::IsNull { value: Box::new(value), negated }, Type::Bool))
    }

    fn is_truth(
        &mut self,
        inner: &ast::Expr,
        truth: Option<bool>,
        negated: bool,
        clause: &str,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let value = self.expr(inner, frame)?;
        let value = Box::new(self.coerce_condition(value, clause, inner.span())?);
        Ok(Expr::new(Kind::IsTruth { value, truth, negated }, Type::Bool))
    }

    fn is_distinct(
        &mut self,
        left: &ast::Expr,
        right: &ast::Expr,
        negated: bool,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let (left, right) =
            ((self.expr(left, frame)?, left.span()), (self.expr(right, frame)?, right.span()));
        let (left, right) = self.comparable(left, right)?;
        Ok(Expr::new(Kind::IsDistinct { left: Box::new(left), right: Box::new(right), negated }, Type::Bool))
    }

    /// Two operands brought to what `=` compares.
    fn comparable(&mut self, left: (Expr, Span), right: (Expr, Span)) -> Result<(Expr, Expr)> {
        let (_, types, _) = self.find_operator("=", Some(left.0.ty), right.0.ty, left.1)?;
        let left_expr = self.coerce(left.0, types[0], -1, Coercion::Implicit, left.1)?;
        let right_expr = self.coerce(right.0, types[1], -1, Coercion::Implicit, right.1)?;
        Ok((left_expr, right_expr))
    }

    fn check_copied(&self, value: &Expr, span: Span) -> Result<()> {
        if value.volatility() == Volatility::Volatile {
            let error = unsupported("a volatile operand here", "Compute it in a sub-query first.");
            return Err(self.at(error, span));
        }
        Ok(())
    }

    fn between(
        &mut self,
        inner: &ast::Expr,
        negated: bool,
        low: &ast::Expr,
        high: &ast::Expr,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let value = self.expr(inner, frame)?;
        let span = inner.span();
        self.check_copied(&value, span)?;
        let either_order = symmetric_bound(low);
        let low = either_order.unwrap_or(low);
        let low_expr = self.expr(low, frame)?;
        let high_expr = self.expr(high, frame)?;
        let (low, high) = ((low_expr, low.span()), (high_expr, high.span()));
        let mut both = self.lies_within((value.clone(), span), low.clone(), high.clone())?;
        if either_order.is_some() {
            self.check_copied(&low.0, low.1)?;
            self.check_copied(&high.0, high.1)?;
            let swapped = self.lies_within((value, span), high, low)?;
            both = Expr::new(Kind::Or(vec![both, swapped]), Type::Bool);
        }
        Ok(if negated { Expr::new(Kind::Not(Box::new(both)), Type::Bool) } else { both })
    }

    fn lies_within(&mut self, value: (Expr, Span), low: (Expr, Span), high: (Expr, Span)) -> Result<Expr> {
        let above = self.operate(">=", value.clone(), low)?;
        let below = self.operate("<=", value, high)?;
        Ok(Expr::new(Kind::And(vec![above, below]), Type::Bool))
    }

    fn in_list(
        &mut self,
        inner: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        if let ast::Expr::Tuple(lefts) = strip(inner) {
            return self.rows_in_list(lefts, list, negated, frame, span);
        }
        let value = self.expr(inner, frame)?;
        let mut items = vec![(value, inner.span())];
        for item in list {
            items.push((self.expr(item, frame)?, item.span()));
        }
        let types: Vec<(Type, Span)> = items.iter().map(|(expr, at)| (expr.ty, *at)).collect();
        if let Ok(common) = self.common_type(&types, "IN")
            && self
                .find_operator("=", Some(common), common, span)
                .is_ok_and(|(_, types, _)| types == [common, common])
        {
            let mut coerced = Vec::with_capacity(items.len());
            for (item, at) in items {
                coerced.push(self.coerce(item, common, -1, Coercion::Implicit, at)?);
            }
            let value = Box::new(coerced.remove(0));
            return Ok(Expr::new(Kind::InList { value, list: coerced, negated }, Type::Bool));
        }
        let (value, at) = items.remove(0);
        self.check_copied(&value, at)?;
        let mut equal = Vec::new();
        for item in items {
            equal.push(self.operate("=", (value.clone(), at), item)?);
        }
        let any = Expr::new(Kind::Or(equal), Type::Bool);
        Ok(if negated { Expr::new(Kind::Not(Box::new(any)), Type::Bool) } else { any })
    }

    fn rows_in_list(
        &mut self,
        lefts: &[ast::Expr],
        list: &[ast::Expr],
        negated: bool,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let mut alternatives = Vec::new();
        for item in list {
            let ast::Expr::Tuple(rights) = strip(item) else {
                return Err(self.error(
                    Code::SyntaxError,
                    "unequal number of entries in row expressions",
                    item.span(),
                ));
            };
            alternatives.push(self.compare_rows(lefts, "=", rights, frame, span)?);
        }
        let any = match alternatives.len() {
            1 => alternatives.remove(0),
            _ => Expr::new(Kind::Or(alternatives), Type::Bool),
        };
        Ok(if negated { Expr::new(Kind::Not(Box::new(any)), Type::Bool) } else { any })
    }

    /// `(a, b) < (c, d)`, by PostgreSQL's rules for row comparison.
    fn compare_rows(
        &mut self,
        lefts: &[ast::Expr],
        symbol: &str,
        rights: &[ast::Expr],
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        if lefts.len() != rights.len() {
            return Err(self.error(Code::SyntaxError, "unequal number of entries in row expressions", span));
        }
        let mut pairs = Vec::new();
        for (left, right) in lefts.iter().zip(rights) {
            let left = (self.expr(left, frame)?, left.span());
            let right = (self.expr(right, frame)?, right.span());
            pairs.push((left, right));
        }
        let mut parts = Vec::new();
        match symbol {
            "=" | "<>" | "!=" => {
                for (left, right) in pairs {
                    parts.push(self.operate(symbol, left, right)?);
                }
                let kind = if symbol == "=" { Kind::And(parts) } else { Kind::Or(parts) };
                Ok(one_or(kind))
            }
            "<" | "<=" | ">" | ">=" => {
                let strict = &symbol[..1];
                let mut result: Option<Expr> = None;
                for (left, right) in pairs.into_iter().rev() {
                    let step = match result {
                        None => self.operate(symbol, left, right)?,
                        Some(rest) => {
                            let less = self.operate(strict, left.clone(), right.clone())?;
                            let equal = self.operate("=", left, right)?;
                            let tail = Expr::new(Kind::And(vec![equal, rest]), Type::Bool);
                            Expr::new(Kind::Or(vec![less, tail]), Type::Bool)
                        }
                    };
                    result = Some(step);
                }
                result.ok_or_else(|| {
                    self.error(Code::FeatureNotSupported, "cannot compare rows of zero length", span)
                })
            }
            _ => {
                let message =
                    format!("could not determine interpretation of row comparison operator {symbol}");
                Err(self.error(Code::FeatureNotSupported, message, span))
            }
        }
    }

    fn like(
        &mut self,
        symbol: &str,
        any: bool,
        inner: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let value = self.expr(inner, frame)?;
        if any {
            return self.any_all_bound(value, symbol, pattern, false, frame, inner.span());
        }
        let right = self.expr(pattern, frame)?;
        if let Some(escape) = escape {
            let escape_expr = self.expr(escape, frame)?;
            let negated = symbol.starts_with('!');
            let function = if symbol.ends_with('*') { "texticlike" } else { "like" };
            let arguments =
                vec![(value, inner.span()), (right, pattern.span()), (escape_expr, escape.span())];
            let found = self.call(function, arguments, pattern.span())?;
            return Ok(if negated { Expr::new(Kind::Not(Box::new(found)), Type::Bool) } else { found });
        }
        self.operate(symbol, (value, inner.span()), (right, pattern.span()))
    }

    fn similar(
        &mut self,
        negated: bool,
        inner: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let value = self.expr(inner, frame)?;
        let mut arguments = vec![(value, inner.span()), (self.expr(pattern, frame)?, pattern.span())];
        if let Some(escape) = escape {
            arguments.push((self.expr(escape, frame)?, escape.span()));
        }
        let found = self.call("similar_to", arguments, pattern.span())?;
        Ok(if negated { Expr::new(Kind::Not(Box::new(found)), Type::Bool) } else { found })
    }

    fn any_all(
        &mut self,
        left: &ast::Expr,
        op: &ast::BinaryOperator,
        right: &ast::Expr,
        all: bool,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let symbol = op.to_string();
        if let ast::Expr::Subquery(query) = strip(right) {
            if let ast::Expr::Tuple(lefts) = strip(left) {
                let bound = self.row_operands(lefts, frame)?;
                return self.compare_query(bound, &symbol, all, query, frame, span);
            }
            let value = self.expr(left, frame)?;
            return self.compare_query(vec![(value, left.span())], &symbol, all, query, frame, span);
        }
        let value = self.expr(left, frame)?;
        self.any_all_bound(value, &symbol, right, all, frame, span)
    }

    fn any_all_bound(
        &mut self,
        value: Expr,
        symbol: &str,
        right: &ast::Expr,
        all: bool,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let array = self.expr(right, frame)?;
        let element = match array.ty {
            Type::Unknown => Type::Unknown,
            ty => match ty.element() {
                Some(element) => element,
                None => {
                    let message = "op ANY/ALL (array) requires array on right side";
                    return Err(self.error(Code::WrongObjectType, message, right.span()));
                }
            },
        };
        let (operator, types, ty) = self.find_operator(symbol, Some(value.ty), element, span)?;
        if ty != Type::Bool {
            return Err(self.error(
                Code::WrongObjectType,
                "op ANY/ALL (array) requires operator to yield boolean",
                span,
            ));
        }
        let left = Box::new(self.coerce(value, types[0], -1, Coercion::Implicit, span)?);
        let wanted = if element == types[1] { array.ty } else { types[1].array().unwrap_or(array.ty) };
        let array = Box::new(self.coerce(array, wanted, -1, Coercion::Implicit, right.span())?);
        Ok(Expr::new(Kind::AnyAll { operator, left, array, all }, Type::Bool))
    }

    fn row_operands(&mut self, fields: &[ast::Expr], frame: &mut Frame<'_>) -> Result<Vec<(Expr, Span)>> {
        fields.iter().map(|field| Ok((self.expr(field, frame)?, field.span()))).collect()
    }

    fn in_subquery(
        &mut self,
        inner: &ast::Expr,
        query: &ast::Query,
        negated: bool,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let operands = match strip(inner) {
            ast::Expr::Tuple(fields) => self.row_operands(fields, frame)?,
            _ => vec![(self.expr(inner, frame)?, inner.span())],
        };
        let found = self.compare_query(operands, "=", false, query, frame, span)?;
        Ok(if negated { Expr::new(Kind::Not(Box::new(found)), Type::Bool) } else { found })
    }

    fn compare_query(
        &mut self,
        operands: Vec<(Expr, Span)>,
        symbol: &str,
        all: bool,
        query: &ast::Query,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let bound = self.query(query, Some(frame.scope))?;
        if bound.outputs.len() != operands.len() {
            let message = if bound.outputs.len() > operands.len() {
                "subquery has too many columns"
            } else {
                "subquery has too few columns"
            };
            return Err(self.error(Code::SyntaxError, message, span));
        }
        let mut bound = bound;
        let mut left = Vec::new();
        let mut operators = Vec::new();
        let mut targets = Vec::new();
        for ((value, at), (_, id)) in operands.into_iter().zip(&bound.outputs) {
            let right = self.columns.get(*id).ty;
            let (operator, types, _) = self.find_operator(symbol, Some(value.ty), right, at)?;
            left.push(self.coerce(value, types[0], -1, Coercion::Implicit, at)?);
            operators.push(operator);
            targets.push((types[1], -1));
        }
        self.coerce_outputs(&mut bound, &targets, Coercion::Implicit, span)?;
        let kind = SubqueryKind::Compare { left, operators, all };
        let text = query.to_string().into();
        let subquery = Subquery { kind, query: Query::Logical(Box::new(bound.plan)), text };
        Ok(Expr::new(Kind::Subquery(Box::new(subquery)), Type::Bool))
    }

    /// `(a, b) = (SELECT …)`: the query gives one row.
    fn row_against_query(
        &mut self,
        lefts: &[ast::Expr],
        symbol: &str,
        query: &ast::Query,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        if symbol != "=" {
            let error = unsupported("this comparison of a row with a sub-query", "Compare column by column.");
            return Err(self.at(error, span));
        }
        let operands = self.row_operands(lefts, frame)?;
        self.compare_query(operands, "=", false, query, frame, span)
    }

    pub(super) fn scalar_subquery(
        &mut self,
        query: &ast::Query,
        kind: SubqueryKind,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let bound = self.query(query, Some(frame.scope))?;
        let bound = self.settle(bound)?;
        let [(_, id)] = bound.outputs[..] else {
            return Err(self.error(Code::SyntaxError, "subquery must return only one column", span));
        };
        let info = self.columns.get(id);
        let (ty, typmod) = (info.ty, info.typmod);
        let ty = match kind {
            SubqueryKind::Array if !ty.is_array() => match ty.array() {
                Some(array) => array,
                None => {
                    let message = format!("could not find array type for data type {ty}");
                    return Err(self.error(Code::UndefinedObject, message, span));
                }
            },
            _ => ty,
        };
        let text = query.to_string().into();
        let subquery = Subquery { kind, query: Query::Logical(Box::new(bound.plan)), text };
        Ok(Expr { kind: Kind::Subquery(Box::new(subquery)), ty, typmod })
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
        frame: &mut Frame<'_>,
    ) -> Result<Expr> {
        let operand = match operand {
            None => None,
            Some(operand) => {
                let value = self.expr(operand, frame)?;
                let value = self.settle_expr(value, operand.span())?;
                self.check_copied(&value, operand.span())?;
                Some((value, operand.span()))
            }
        };
        let mut tests = Vec::new();
        // PostgreSQL takes ELSE first when it looks for the common type.
        let mut results = Vec::new();
        match otherwise {
            Some(otherwise) => results.push((self.expr(otherwise, frame)?, otherwise.span())),
            None => results.push((Expr::null(Type::Unknown), Span::empty())),
        }
        for ast::CaseWhen { condition, result } in conditions {
            let test = self.expr(condition, frame)?;
            let test = match &operand {
                Some(operand) => self.operate("=", operand.clone(), (test, condition.span()))?,
                None => self.coerce_condition(test, "CASE/WHEN", condition.span())?,
            };
            tests.push(test);
            results.push((self.expr(result, frame)?, result.span()));
        }
        let (mut results, ty, typmod) = self.unify(results, "CASE")?;
        let otherwise = Box::new(results.remove(0));
        let branches = tests.into_iter().zip(results).collect();
        Ok(Expr { kind: Kind::Case { branches, otherwise }, ty, typmod })
    }

    /// `ARRAY[…]`, to a type if a cast says so.
    fn array(
        &mut self,
        elements: &[ast::Expr],
        wanted: Option<(Type, i32)>,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        if elements.is_empty() {
            let Some((ty, typmod)) = wanted else {
                let error = Error::new(Code::IndeterminateDatatype, "cannot determine type of empty array")
                    .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].");
                return Err(self.at(error, span));
            };
            return Ok(Expr { kind: Kind::Array(Vec::new()), ty, typmod });
        }
        let mut bound = Vec::new();
        for element in elements {
            let value = match (strip(element), wanted) {
                (ast::Expr::Array(inner), wanted) => {
                    self.array(&inner.elem, wanted, frame, element.span())?
                }
                _ => self.expr(element, frame)?,
            };
            bound.push((value, element.span()));
        }
        if let Some((ty, typmod)) = wanted {
            let element = ty.element().unwrap_or(Type::Text);
            let mut coerced = Vec::new();
            for (value, at) in bound {
                let to = if value.ty.is_array() { ty } else { element };
                coerced.push(self.coerce(value, to, typmod, Coercion::Explicit, at)?);
            }
            return Ok(Expr { kind: Kind::Array(coerced), ty, typmod });
        }
        let (elements, common, _) = self.unify(bound, "ARRAY")?;
        let ty = if common.is_array() { Some(common) } else { common.array() };
        let Some(ty) = ty else {
            let message = format!("could not find array type for data type {common}");
            return Err(self.error(Code::UndefinedObject, message, span));
        };
        Ok(Expr::new(Kind::Array(elements), ty))
    }

    pub(super) fn row(&mut self, fields: &[ast::Expr], frame: &mut Frame<'_>) -> Result<Expr> {
        let mut bound = Vec::new();
        for field in fields {
            bound.push(self.settled(field, frame)?);
        }
        Ok(Expr::new(Kind::Row(bound), Type::Record))
    }

    fn access(&mut self, root: &ast::Expr, chain: &[ast::AccessExpr], frame: &mut Frame<'_>) -> Result<Expr> {
        // `t.column[1]` comes as a chain that starts with names.
        let mut names: Vec<ast::Ident> = match strip(root) {
            ast::Expr::Identifier(ident) => vec![ident.clone()],
            ast::Expr::CompoundIdentifier(parts) => parts.clone(),
            _ => Vec::new(),
        };
        let mut rest = chain;
        if !names.is_empty() {
            while let [ast::AccessExpr::Dot(ast::Expr::Identifier(ident)), tail @ ..] = rest {
                names.push(ident.clone());
                rest = tail;
            }
        }
        let value = if names.is_empty() { self.expr(root, frame)? } else { self.column(&names, frame)? };
        let span = root.span();
        if rest.is_empty() {
            return Ok(value);
        }
        let mut subscripts = Vec::new();
        for access in rest {
            match access {
                ast::AccessExpr::Subscript(subscript) => subscripts.push(subscript),
                ast::AccessExpr::Dot(_) => {
                    return Err(self.at(
                        unsupported("field selection from a row", "Name the columns of the query instead."),
                        span,
                    ));
                }
            }
        }
        if value.ty == Type::Jsonb {
            return self.json_subscripts(value, &subscripts, frame, span);
        }
        let Some(element) = value.ty.element() else {
            let message =
                format!("cannot subscript type {} because it does not support subscripting", value.ty);
            return Err(self.error(Code::DatatypeMismatch, message, span));
        };
        let mut bound = Vec::new();
        let mut slice = false;
        for subscript in subscripts {
            bound.push(match subscript {
                ast::Subscript::Index { index } => Subscript::Index(self.subscript(index, frame)?),
                ast::Subscript::Slice { lower_bound, upper_bound, stride } => {
                    refuse(stride.is_some(), "a stride in a slice")?;
                    slice = true;
                    let lower = lower_bound.as_ref().map(|bound| self.subscript(bound, frame)).transpose()?;
                    let upper = upper_bound.as_ref().map(|bound| self.subscript(bound, frame)).transpose()?;
                    Subscript::Slice(lower, upper)
                }
            });
        }
        let ty = if slice { value.ty } else { element };
        let typmod = value.typmod;
        Ok(Expr { kind: Kind::Subscript { array: Box::new(value), subscripts: bound }, ty, typmod })
    }

    fn subscript(&mut self, index: &ast::Expr, frame: &mut Frame<'_>) -> Result<Expr> {
        let value = self.expr(index, frame)?;
        let from = value.ty;
        match self.try_coerce(value, Type::Int4, -1, Coercion::Assignment, index.span())? {
            Some(value) => Ok(value),
            None => {
                let message = format!("array subscript must have type integer, not {from}");
                Err(self.error(Code::DatatypeMismatch, message, index.span()))
            }
        }
    }

    fn json_subscripts(
        &mut self,
        mut value: Expr,
        subscripts: &[&ast::Subscript],
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        for subscript in subscripts {
            let ast::Subscript::Index { index } = subscript else {
                return Err(self.error(
                    Code::DatatypeMismatch,
                    "jsonb subscript does not support slices",
                    span,
                ));
            };
            let key = self.expr(index, frame)?;
            value = self.operate("->", (value, span), (key, index.span()))?;
        }
        Ok(value)
    }

    fn rounding(
        &mut self,
        name: &'static str,
        inner: &ast::Expr,
        field: &ast::CeilFloorKind,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let plain = matches!(field, ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime));
        refuse(!plain, "CEIL or FLOOR with a scale")?;
        let value = self.expr(inner, frame)?;
        self.call(name, vec![(value, inner.span())], span)
    }

    fn substring(
        &mut self,
        name: &'static str,
        inner: &ast::Expr,
        from: Option<&ast::Expr>,
        length: Option<&ast::Expr>,
        frame: &mut Frame<'_>,
        span: Span,
    ) -> Result<Expr> {
        let mut arguments = vec![(self.expr(inner, frame)?, inner.span())];
        match (from, length) {
            (Some(from), _) => arguments.push((self.expr(from, frame)?, from.span())),
            (None, Some(_)) => arguments.push((Expr::constant(Value::Int4(1), Type::Int4), span)),
            (None, None) => {}
        }
        if let Some(length) = length {
            arguments.push((self.expr(length, frame)?, length.span()));
        }
        self.call(name, arguments, span)
    }
}

/// The bound inside `symmetric(bound)`, as `BETWEEN SYMMETRIC` reaches the parser.
fn symmetric_bound(low: &ast::Expr) -> Option<&ast::Expr> {
    let ast::Expr::Function(call) = low else { return None };
    let [ast::ObjectNamePart::Identifier(name)] = &call.name.0[..] else { return None };
    let ast::FunctionArguments::List(list) = &call.args else { return None };
    match &list.args[..] {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(bound))]
            if name.value == SYMMETRIC && name.quote_style.is_none() =>
        {
            Some(bound)
        }
        _ => None,
    }
}

fn is_comparison(op: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// What stands inside parentheses.
pub(super) fn strip(mut expr: &ast::Expr) -> &ast::Expr {
    while let ast::Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

fn one_or(kind: Kind) -> Expr {
    match kind {
        Kind::And(mut parts) | Kind::Or(mut parts) if parts.len() == 1 => parts.remove(0),
        kind => Expr::new(kind, Type::Bool),
    }
}

fn field_bit(field: &ast::DateTimeField) -> Option<u16> {
    Some(match field {
        ast::DateTimeField::Year | ast::DateTimeField::Years => interval_range::YEAR,
        ast::DateTimeField::Month | ast::DateTimeField::Months => interval_range::MONTH,
        ast::DateTimeField::Day | ast::DateTimeField::Days => interval_range::DAY,
        ast::DateTimeField::Hour | ast::DateTimeField::Hours => interval_range::HOUR,
        ast::DateTimeField::Minute | ast::DateTimeField::Minutes => interval_range::MINUTE,
        ast::DateTimeField::Second | ast::DateTimeField::Seconds => interval_range::SECOND,
        _ => return None,
    })
}

/// Functions that are written without parentheses.
fn bare_function(ident: &ast::Ident) -> Option<&'static str> {
    if ident.quote_style.is_some() {
        return None;
    }
    const BARE: [&str; 11] = [
        "current_date",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "current_user",
        "current_role",
        "session_user",
        "user",
        "current_catalog",
        "current_schema",
    ];
    BARE.into_iter().find(|name| ident.value.eq_ignore_ascii_case(name))
}

/// Whether two names differ by one or two letters.
fn is_near(name: &str, wanted: &str) -> bool {
    if name.len() < 3 || name.len().abs_diff(wanted.len()) > 1 || name == wanted {
        return false;
    }
    let (name, wanted): (Vec<char>, Vec<char>) = (name.chars().collect(), wanted.chars().collect());
    let prefix = name.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
    let suffix = name.iter().rev().zip(wanted.iter().rev()).take_while(|(a, b)| a == b).count();
    prefix + suffix + 1 >= name.len().max(wanted.len())
}
