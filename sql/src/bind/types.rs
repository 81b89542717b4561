//! Types in the binder: names of types, coercion of expressions, one type for many (UNION, CASE, ARRAY, VALUES).
//!
//! Invariants:
//! - A literal of unknown type becomes a constant of its type here, with the literal's place in an error.
//! - A parameter of unknown type gets its type from the first context that asks for one.

use model::{
    Code, Error, Result, Type, Value,
    types::{TypeCategory, Typmod},
};
use sqlparser::{ast, tokenizer::Span};

use super::{Binder, resolve};
use crate::{
    expr::{Expr, Kind},
    functions::{CastContext, cast},
};

/// Where a coercion happens: which casts apply by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coercion {
    /// In an expression.
    Implicit,
    /// Into a column.
    Assignment,
    /// Written.
    Explicit,
}

impl Binder<'_> {
    /// The type that a type name in the text means.
    pub(super) fn data_type(&self, data_type: &ast::DataType) -> Result<(Type, i32)> {
        find_type(data_type)
    }

    /// Brings an expression to a type, or says that it cannot be: none.
    pub(super) fn try_coerce(
        &mut self,
        expr: Expr,
        to: Type,
        typmod: i32,
        how: Coercion,
        at: Span,
    ) -> Result<Option<Expr>> {
        if expr.ty == Type::Unknown {
            return self.coerce_unknown(expr, to, typmod, how, at).map(Some);
        }
        if expr.ty == to && (typmod < 0 || expr.typmod == typmod) {
            return Ok(Some(if how == Coercion::Explicit && typmod < 0 {
                Expr { typmod: -1, ..expr }
            } else {
                expr
            }));
        }
        let applies = if expr.ty == to {
            true
        } else {
            match cast::find(expr.ty, to) {
                None => false,
                Some(CastContext::Implicit) => true,
                Some(CastContext::Assignment) => how != Coercion::Implicit,
                Some(CastContext::Explicit) => how == Coercion::Explicit,
            }
        };
        if !applies {
            return Ok(None);
        }
        Ok(Some(Expr {
            kind: Kind::Cast { value: Box::new(expr), explicit: how == Coercion::Explicit },
            ty: to,
            typmod,
        }))
    }

    fn coerce_unknown(&mut self, expr: Expr, to: Type, typmod: i32, how: Coercion, at: Span) -> Result<Expr> {
        // `"any"` takes a literal as it is; a parameter is then a text.
        let to = match (to, &expr.kind) {
            (Type::Unknown, Kind::Parameter(_)) => Type::Text,
            (Type::Unknown, _) => return Ok(expr),
            (to, _) => to,
        };
        match expr.kind {
            Kind::Parameter(number) => {
                // A cast `$1::varchar(3)` gives the parameter the type and casts for the modifier.
                self.parameters.decide(number, to).map_err(|error| self.at(error, at))?;
                let parameter = Expr::new(Kind::Parameter(number), to);
                if typmod < 0 {
                    return Ok(parameter);
                }
                let kind = Kind::Cast { value: Box::new(parameter), explicit: how == Coercion::Explicit };
                Ok(Expr { kind, ty: to, typmod })
            }
            Kind::Constant(Value::Null) => Ok(Expr { kind: Kind::Constant(Value::Null), ty: to, typmod }),
            Kind::Constant(value) => self.literal(value, to, typmod, how == Coercion::Explicit, at),
            kind => {
                let value = Box::new(Expr::new(kind, Type::Unknown));
                Ok(Expr { kind: Kind::Cast { value, explicit: how == Coercion::Explicit }, ty: to, typmod })
            }
        }
    }

    /// A literal as a value of a type.
    fn literal(&mut self, value: Value, to: Type, typmod: i32, explicit: bool, at: Span) -> Result<Expr> {
        let waits = (to.is_oid() && to != Type::Oid) || means_now(&value, to);
        if waits || to == Type::Unknown {
            let value = Box::new(Expr::constant(value, Type::Unknown));
            return Ok(Expr { kind: Kind::Cast { value, explicit }, ty: to, typmod });
        }
        let value = cast::cast(self.context, &value, Type::Unknown, to, Typmod(typmod), explicit)
            .map_err(|error| self.at(error, at))?;
        Ok(Expr { kind: Kind::Constant(value), ty: to, typmod })
    }

    /// Brings an expression to a type; `42804` if it cannot be, in words of the caller.
    pub(super) fn coerce(
        &mut self,
        expr: Expr,
        to: Type,
        typmod: i32,
        how: Coercion,
        at: Span,
    ) -> Result<Expr> {
        let from = expr.ty;
        match self.try_coerce(expr, to, typmod, how, at)? {
            Some(expr) => Ok(expr),
            None => {
                Err(self.at(Error::new(Code::CannotCoerce, format!("cannot cast type {from} to {to}")), at))
            }
        }
    }

    /// A condition: `argument of WHERE must be type boolean, not type integer`.
    pub(super) fn coerce_condition(&mut self, expr: Expr, clause: &str, at: Span) -> Result<Expr> {
        let from = expr.ty;
        match self.try_coerce(expr, Type::Bool, -1, Coercion::Implicit, at)? {
            Some(expr) => Ok(expr),
            None => {
                let message = format!("argument of {clause} must be type boolean, not type {from}");
                Err(self.at(Error::new(Code::DatatypeMismatch, message), at))
            }
        }
    }

    /// The one type of several expressions (PostgreSQL 15, chapter 10.5); `what` names the construct in the error.
    pub(super) fn common_type(&self, types: &[(Type, Span)], what: &str) -> Result<Type> {
        let mut known = types.iter().filter(|(ty, _)| *ty != Type::Unknown);
        let Some((mut common, _)) = known.next().copied() else { return Ok(Type::Text) };
        for (ty, at) in known.copied() {
            if ty == common {
                continue;
            }
            let differs = ty.category() != common.category()
                || (matches!(
                    common.category(),
                    TypeCategory::User | TypeCategory::Array | TypeCategory::Pseudo
                ) && !resolve::is_implicit(common, ty)
                    && !resolve::is_implicit(ty, common));
            if differs {
                let message = format!("{what} types {common} and {ty} cannot be matched");
                return Err(self.at(Error::new(Code::DatatypeMismatch, message), at));
            }
            let goes_one_way = !resolve::is_implicit(ty, common) || ty.is_preferred();
            if !common.is_preferred() && resolve::is_implicit(common, ty) && goes_one_way {
                common = ty;
            }
        }
        Ok(common)
    }

    /// Brings several expressions to their one type.
    pub(super) fn unify(
        &mut self,
        mut list: Vec<(Expr, Span)>,
        what: &str,
    ) -> Result<(Vec<Expr>, Type, i32)> {
        let types: Vec<(Type, Span)> = list.iter().map(|(expr, at)| (expr.ty, *at)).collect();
        let common = self.common_type(&types, what)?;
        let first = list.first().map_or(-1, |(expr, _)| expr.typmod);
        let same = list.iter().all(|(expr, _)| expr.ty == common && expr.typmod == first);
        let typmod = if same { first } else { -1 };
        let mut out = Vec::with_capacity(list.len());
        for (expr, at) in list.drain(..) {
            let from = expr.ty;
            match self.try_coerce(expr, common, -1, Coercion::Implicit, at)? {
                Some(expr) => out.push(expr),
                None => {
                    let message = format!("{what} could not convert type {from} to {common}");
                    return Err(self.at(Error::new(Code::CannotCoerce, message), at));
                }
            }
        }
        Ok((out, common, typmod))
    }
}

/// Whether a literal is one of the words that stand for the transaction's time, and so waits for the execution.
fn means_now(value: &Value, to: Type) -> bool {
    let is_time = matches!(to, Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz);
    is_time
        && value.as_str().is_some_and(|text| {
            let text = text.trim().to_ascii_lowercase();
            text.split_whitespace().any(|word| matches!(word, "now" | "today" | "tomorrow" | "yesterday"))
        })
}

/// The type a type name means, with its modifier.
pub(crate) fn find_type(data_type: &ast::DataType) -> Result<(Type, i32)> {
    let unknown = |name: String| Error::new(Code::UndefinedObject, format!("type \"{name}\" does not exist"));
    let found = match data_type {
        ast::DataType::Array(element) => {
            let inner = match element {
                ast::ArrayElemTypeDef::SquareBracket(inner, _)
                | ast::ArrayElemTypeDef::AngleBracket(inner)
                | ast::ArrayElemTypeDef::Parenthesis(inner) => inner,
                _ => return Err(unknown("array".to_owned())),
            };
            let (ty, typmod) = find_type(inner)?;
            if ty.is_array() {
                return Ok((ty, typmod));
            }
            let array = ty.array().ok_or_else(|| unknown(format!("{ty}[]")))?;
            return Ok((array, typmod));
        }
        ast::DataType::JSON => Type::Json,
        ast::DataType::JSONB => Type::Jsonb,
        ast::DataType::Regclass => Type::Regclass,
        ast::DataType::String(None) => return Err(unknown("string".to_owned())),
        other => {
            let name = other.to_string();
            let name = if name.contains('"') { name } else { name.to_lowercase() };
            // `float(24)` and the like carry their argument inside; `numeric(10, 2)` may hold a blank.
            let (ty, typmod) = Type::parse(&name)?;
            let Typmod(typmod) = match (ty, other) {
                // `char` alone is char(1).
                (Type::Bpchar, ast::DataType::Char(None) | ast::DataType::Character(None)) => {
                    Typmod::of_length(1)
                }
                _ => typmod,
            };
            return Ok((ty, typmod));
        }
    };
    Ok((found, -1))
}
