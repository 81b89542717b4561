//! What a new row goes through: defaults, generated and hidden columns, CHECK constraints, from the SQL text of the catalog.

use model::{
    Code, Error, Result, Type, Value,
    id::SequenceId,
    schema::{Column, ColumnDefault, Table},
};
use sqlparser::tokenizer::Span;

use super::{Binder, Names, Parameters, Scope, expr::Frame, from::plain_relation, types::Coercion};
use crate::{
    context::Context,
    expr::{Expr, Kind},
    functions, parse,
    plan::RowRules,
};

impl Binder<'_> {
    /// The rules of a table over a row whose columns have these ids; no right to read them is needed.
    pub(super) fn row_rules(&mut self, table: &Table, row: &[usize]) -> Result<RowRules> {
        let mut rules = RowRules { generated: Vec::new(), checks: Vec::new() };
        let texts = table.columns.iter().filter(|column| !column.dropped).filter_map(|column| match &column
            .default
        {
            Some(ColumnDefault::Generated(text)) => Some((column, text)),
            Some(ColumnDefault::Expression(_) | ColumnDefault::Identity { .. }) | None => None,
        });
        for (column, text) in texts {
            let value = self.stored_expression(text, table, row)?;
            let value =
                self.coerce(value, column.data_type, column.typmod.0, Coercion::Assignment, Span::empty())?;
            rules.generated.push((column.number, value));
        }
        for check in &table.checks {
            let value = self.stored_expression(&check.expression, table, row)?;
            let value = self.coerce_condition(value, "CHECK", Span::empty())?;
            rules.checks.push((check.name.clone(), value));
        }
        Ok(rules)
    }

    /// An expression of the catalog over a row.
    fn stored_expression(&mut self, text: &str, table: &Table, row: &[usize]) -> Result<Expr> {
        let parsed = parse::parse_expression(text)?;
        let columns = table
            .columns
            .iter()
            .zip(row)
            .filter(|(column, _)| !column.dropped)
            .map(|(column, id)| (column.name.clone(), *id));
        let mut scope = Scope::default();
        scope.add(plain_relation(table.name.clone(), columns.collect()))?;
        self.views_open.push(table.id);
        let mut frame = Frame::plain(&scope, "CHECK");
        let bound = self.expr(&parsed, &mut frame);
        self.views_open.pop();
        bound
    }

    /// What fills a column that is given no value.
    pub(super) fn default_of(&mut self, column: &Column) -> Result<Expr> {
        match &column.default {
            None | Some(ColumnDefault::Generated(_)) => {
                Ok(Expr { kind: Kind::Constant(Value::Null), ty: column.data_type, typmod: column.typmod.0 })
            }
            Some(ColumnDefault::Identity { sequence, always: _ }) => self.next_value(*sequence, column),
            Some(ColumnDefault::Expression(text)) => {
                let parsed = parse::parse_expression(text)?;
                let scope = Scope::default();
                self.views_open.push(model::id::TableId(0));
                let mut frame = Frame::plain(&scope, "DEFAULT");
                let bound = self.expr(&parsed, &mut frame);
                self.views_open.pop();
                self.coerce(bound?, column.data_type, column.typmod.0, Coercion::Assignment, Span::empty())
            }
        }
    }

    /// The sequence of an identity column belongs to the table: whoever may add rows may take its numbers.
    fn next_value(&mut self, sequence: SequenceId, column: &Column) -> Result<Expr> {
        let id = Expr::constant(Value::Oid(sequence.0), Type::Regclass);
        let value = Expr::new(Kind::Call(functions::nextval(), vec![id, Expr::bool(true)]), Type::Int8);
        self.coerce(value, column.data_type, column.typmod.0, Coercion::Assignment, Span::empty())
    }
}

/// Binds an expression that stands alone over named columns; column n is `Kind::Column(n)`. For DDL: defaults, checks,
/// index expressions.
pub(crate) fn bind_alone(
    text: &str,
    clause: &'static str,
    columns: &[(String, Type, i32)],
    to: Option<(Type, i32)>,
    names: &Names,
    context: &mut Context,
) -> Result<Expr> {
    let parsed = parse::parse_expression(text)?;
    let mut binder = Binder::new(text, names, context, Parameters::default());
    let mut named = Vec::new();
    for (name, ty, typmod) in columns {
        named.push((name.clone(), binder.columns.add(name.clone(), *ty, *typmod)));
    }
    let mut scope = Scope::default();
    scope.add(plain_relation(String::new(), named))?;
    let bound = {
        let mut frame = Frame::plain(&scope, clause);
        binder.expr(&parsed, &mut frame)?
    };
    if bound.any(&mut |expr| matches!(expr.kind, Kind::Subquery(_))) {
        let what =
            if clause == "CHECK" { "check constraint".to_owned() } else { format!("{clause} expression") };
        return Err(Error::new(Code::FeatureNotSupported, format!("cannot use subquery in {what}")));
    }
    binder.parameters.finish()?;
    match to {
        None => binder.settle_expr(bound, Span::empty()),
        Some((ty, typmod)) => {
            let from = bound.ty;
            binder.try_coerce(bound, ty, typmod, Coercion::Assignment, Span::empty())?.ok_or_else(|| {
                Error::new(Code::DatatypeMismatch, format!("expression is of type {from}, not {ty}"))
                    .with_hint("You will need to rewrite or cast the expression.")
            })
        }
    }
}

/// The columns that an expression bound by [`bind_alone`] reads.
pub(crate) fn depends_on_columns(expr: &Expr) -> std::collections::BTreeSet<usize> {
    let mut read = std::collections::BTreeSet::new();
    crate::plan::logical::read_columns(expr, &mut read);
    read
}

/// The rules of a table by themselves: column n of the row is `Kind::Column(n - 1)`.
pub(crate) fn table_rules(table: &Table, names: &Names, context: &mut Context) -> Result<RowRules> {
    let mut binder = Binder::new("", names, context, Parameters::default());
    let row: Vec<usize> = table
        .columns
        .iter()
        .map(|column| binder.columns.add(column.name.clone(), column.data_type, column.typmod.0))
        .collect();
    binder.row_rules(table, &row)
}

/// What fills a column of a table that is given no value; none for null.
pub(crate) fn column_default(column: &Column, names: &Names, context: &mut Context) -> Result<Option<Expr>> {
    let mut binder = Binder::new("", names, context, Parameters::default());
    let value = binder.default_of(column)?;
    Ok((!matches!(value.kind, Kind::Constant(Value::Null))).then_some(value))
}
