//! MERGE.
//!
//! Invariants:
//! - The data is the left side of an outer join, so that a row of it without a partner comes with a null key of the target.
//! - `WHEN NOT MATCHED` sees only the data; `WHEN MATCHED` sees both.

use model::{Code, Error, Result, Value, access::Privilege};
use sqlparser::{ast, ast::Spanned};

use super::{Binder, Scope, expr::Frame, from::join, query::is_default, refuse, write::Written};
use crate::{
    expr::{Expr, Kind},
    plan::{
        JoinKind, MergeAction, MergeClause,
        logical::{self, Logical},
    },
};

impl Binder<'_> {
    pub(super) fn merge(&mut self, merge: &ast::Merge) -> Result<Written> {
        let ast::Merge { merge_token: _, optimizer_hints: _, into: _, table, source, on, clauses, output } =
            merge;
        refuse(output.is_some(), "OUTPUT of MERGE")?;
        self.writes = true;
        let (target, relation, table, scan) = self.write_target(table, "merge into")?;
        let data = ast::TableWithJoins { relation: source.clone(), joins: Vec::new() };
        let (plan, data_scope) = {
            let (plan, scope) = self.bind_from(std::slice::from_ref(&data), None)?;
            (
                plan,
                Scope { relations: scope.relations, flat: scope.flat, parent: None, unreachable: Vec::new() },
            )
        };
        let mut both: Scope<'static> = Scope::default();
        both.add(relation)?;
        both.join(data_scope.clone())?;
        let condition = {
            let mut frame = Frame::plain(&both, "JOIN/ON");
            self.condition(on, &mut frame)?
        };
        let source = join(JoinKind::Left, plan, scan, Some(condition));
        let (new, _) = self.row_relation(&table, None);
        let mut bound = Vec::new();
        for clause in clauses {
            let ast::MergeClause { when_token: _, clause_kind, predicate, action } = clause;
            let matched = match clause_kind {
                ast::MergeClauseKind::Matched => true,
                ast::MergeClauseKind::NotMatched | ast::MergeClauseKind::NotMatchedByTarget => false,
                ast::MergeClauseKind::NotMatchedBySource => {
                    return Err(super::unsupported(
                        "WHEN NOT MATCHED BY SOURCE",
                        "Use a DELETE or UPDATE of its own.",
                    ));
                }
            };
            let scope = if matched { &both } else { &data_scope };
            let condition = match predicate {
                None => None,
                Some(predicate) => {
                    let mut frame = Frame::plain(scope, "MERGE WHEN condition");
                    Some(self.condition(predicate, &mut frame)?)
                }
            };
            let action = self.merge_action(&table, matched, action, scope)?;
            bound.push(MergeClause { matched, condition, action });
        }
        let rules = self.row_rules(&table, &new)?;
        let plan = Logical::Merge(Box::new(logical::Merge {
            table,
            source,
            target: target.0,
            old: target.1,
            new,
            clauses: bound,
            rules,
        }));
        Ok((plan, Vec::new()))
    }

    fn merge_action(
        &mut self,
        table: &std::sync::Arc<model::schema::Table>,
        matched: bool,
        action: &ast::MergeAction,
        scope: &Scope<'_>,
    ) -> Result<MergeAction> {
        let misplaced = |what: &str| {
            Error::new(Code::SyntaxError, format!("syntax error: {what} cannot stand in this WHEN clause"))
        };
        match (action, matched) {
            (ast::MergeAction::DoNothing { .. }, _) => Ok(MergeAction::Nothing),
            (ast::MergeAction::Delete { .. }, true) => {
                self.need(table.id, Privilege::Delete, []);
                Ok(MergeAction::Delete)
            }
            (ast::MergeAction::Update(update), true) => {
                let ast::MergeUpdateExpr { update_token: _, kind, update_predicate, delete_predicate } =
                    update;
                refuse(update_predicate.is_some() || delete_predicate.is_some(), "this form of MERGE")?;
                let ast::MergeUpdateKind::Set(list) = kind else {
                    return Err(super::unsupported("UPDATE * in MERGE", "Name the columns."));
                };
                let (assignments, queries) = self.assignments(table, list, scope)?;
                refuse(queries.is_some(), "a sub-query assigned to several columns in MERGE")?;
                self.need(table.id, Privilege::Update, assignments.iter().map(|(number, _)| *number));
                Ok(MergeAction::Update(assignments))
            }
            (ast::MergeAction::Insert(insert), false) => self.merge_insert(table, insert, scope),
            (ast::MergeAction::Delete { .. }, false) => Err(misplaced("DELETE")),
            (ast::MergeAction::Update(_), false) => Err(misplaced("UPDATE")),
            (ast::MergeAction::Insert(_), true) => Err(misplaced("INSERT")),
        }
    }

    fn merge_insert(
        &mut self,
        table: &model::schema::Table,
        insert: &ast::MergeInsertExpr,
        scope: &Scope<'_>,
    ) -> Result<MergeAction> {
        let ast::MergeInsertExpr { insert_token: _, columns, kind_token: _, kind, insert_predicate } = insert;
        refuse(insert_predicate.is_some(), "this form of MERGE")?;
        let targets = self.insert_targets(table, columns)?;
        self.need(table.id, Privilege::Insert, targets.iter().map(|column| column.number));
        let ast::MergeInsertKind::Values(values) = kind else {
            return Err(super::unsupported("this form of INSERT in MERGE", "Use INSERT (…) VALUES (…)."));
        };
        let [row] = &values.rows[..] else {
            return Err(Error::new(Code::SyntaxError, "MERGE inserts one row per clause"));
        };
        let row = &row.content;
        if row.len() > targets.len() || (row.len() < targets.len() && !columns.is_empty()) {
            let more = if row.len() > targets.len() {
                "expressions than target columns"
            } else {
                "target columns than expressions"
            };
            return Err(Error::new(Code::SyntaxError, format!("INSERT has more {more}")));
        }
        let mut whole = Vec::with_capacity(table.columns.len());
        for column in &table.columns {
            let place = targets.iter().position(|target| target.number == column.number);
            let given = place.and_then(|place| row.get(place)).filter(|expr| !is_default(expr));
            whole.push(match given {
                None if column.dropped => Expr::new(Kind::Constant(Value::Null), column.data_type),
                None => self.default_of(column)?,
                Some(expr) => {
                    self.check_given(column, false, expr.span())?;
                    let mut frame = Frame::plain(scope, "VALUES");
                    self.assignable(expr, column, &mut frame)?
                }
            });
        }
        Ok(MergeAction::Insert(whole))
    }
}
