//! What a session answers on the spot, without a future: reads by key above all.
//!
//! Invariants:
//! - It means what the awaited form means: the same rights, the same checks, the same row, the same state afterwards.
//! - What would have to wait, or fails, gives nothing and has done nothing: the awaited form is taken.
//!
//! Not here: Bind, which never waits (`message`).

use std::{borrow::Cow, cell::OnceCell, sync::Arc};

use bytes::Bytes;
use model::{Result, Type, Value, catalog::Catalog, read::At, request::Column, value};

use super::{
    Format, PortalDescription, Session, SimpleStatement, StatementDescription, Status,
    message::no_portal,
    portal::{Run, describe},
};
use crate::{
    cache::{Planned, Prepared},
    direct::Direct,
    txn::Isolation,
};

/// The answer to a read by keys: complete, in one piece.
pub struct Got<'a> {
    /// The columns of the result.
    pub columns: &'a [Column],
    /// One format per column.
    pub formats: &'a [Format],
    /// The values of all rows, one row behind the other.
    pub values: Vec<Value>,
    /// How many rows there are.
    pub count: usize,
    /// How values are written as text.
    pub text: value::Context,
}

impl Got<'_> {
    /// Its command tag.
    pub fn tag(&self) -> Cow<'static, str> {
        match self.count {
            0 => "SELECT 0".into(),
            1 => "SELECT 1".into(),
            count => format!("SELECT {count}").into(),
        }
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = &[Value]> {
        let width = self.columns.len();
        (0..self.count).map(move |row| &self.values[row * width..][..width])
    }
}

/// The formats of a simple query's result, for as many columns as one reads by key with.
static TEXTS: [Format; 256] = [Format::Text; 256];

impl Session {
    /// Parse of a text whose plan is known.
    pub fn parse_now(&mut self, name: &str, text: &str, types: &[u32]) -> Option<()> {
        if self.status() == Status::Failed || !name.is_empty() && self.statements.contains_key(name) {
            return None;
        }
        let given = |oid: &u32| match oid {
            0 => Some(None),
            oid => Type::from_oid(*oid).map(Some),
        };
        let given = types.iter().map(given).collect::<Option<Vec<_>>>()?;
        let prepared = self.find_prepared(text, &given)?;
        self.statements.insert(name.to_owned(), prepared);
        Some(())
    }

    /// Describe of a statement, which waits for nobody. After an error [`Session::note_failure`] must be called.
    pub fn describe_statement_now(&self, name: &str) -> Result<StatementDescription> {
        let prepared = self.statement(name)?;
        // As PostgreSQL: what gives rows is not described in a failed block.
        if prepared.columns.is_some() {
            self.check_not_failed()?;
        }
        Ok(StatementDescription {
            parameters: prepared.parameters.to_vec(),
            columns: prepared.columns.clone(),
        })
    }

    /// As [`Session::describe_statement_now`], of a portal.
    pub fn describe_portal_now(&self, name: &str) -> Result<PortalDescription> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        if portal.prepared.columns.is_some() {
            self.check_not_failed()?;
        }
        Ok(describe(portal))
    }

    /// Execute of a portal that reads by keys and has not been run. Positive `rows_max` is a limit.
    pub fn execute_now(&mut self, name: &str, rows_max: i32) -> Option<Got<'_>> {
        let portal = self.portals.get(name)?;
        let is_odd = portal.formats.iter().any(|format| matches!(format, Format::Unknown(_)));
        if !matches!(portal.run, Run::Ready) || portal.cursor.is_some() || is_odd {
            return None;
        }
        let (values, count) = self.read_now(&portal.prepared, &portal.parameters, rows_max > 0)?;
        self.note_read(&portal.prepared.parsed.text);
        if let Some(transaction) = &mut self.transaction {
            transaction.used = true;
        }
        let portal = self.portals.get_mut(name)?;
        let columns = portal.prepared.columns.as_deref().unwrap_or_default();
        let got = Got { columns, formats: &portal.formats, values, count, text: self.settings.text() };
        portal.run = Run::Done(got.tag());
        Some(got)
    }

    /// The statement of a simple query, if it reads by key.
    pub fn get_simple_now<'a>(&mut self, statement: &'a SimpleStatement) -> Option<Got<'a>> {
        let (prepared, values) = statement.planned()?;
        let columns = prepared.columns.as_deref()?;
        let formats = TEXTS.get(..columns.len())?;
        if prepared.parameters.len() != values.len() {
            return None;
        }
        let (values, count) = self.read_now(prepared, values, false)?;
        self.more_follows = false;
        self.note_read(&prepared.parsed.text);
        if let Some(transaction) = &mut self.transaction {
            transaction.used = true;
        }
        Some(Got { columns, formats, values, count, text: self.settings.text() })
    }

    /// Sync where it ends nothing.
    pub fn sync_now(&mut self) -> Option<()> {
        if self.transaction.as_ref().is_some_and(|transaction| !transaction.block) {
            return None;
        }
        self.more_follows = false;
        self.end_portals();
        self.set_activity(self.state_name(), None);
        Some(())
    }

    /// The values of all rows, and how many rows they are.
    fn read_now(
        &self,
        prepared: &Prepared,
        parameters: &[Value],
        is_limited: bool,
    ) -> Option<(Vec<Value>, usize)> {
        let planned: &Arc<Planned> = prepared.planned.as_ref()?;
        if planned.failure.is_some() {
            return None;
        }
        if planned.direct.is_none() && planned.join.is_none() && (planned.range.is_none() || is_limited) {
            return None;
        }
        if let Some(transaction) = &self.transaction
            && (!transaction.block
                || transaction.failed
                || transaction.catalog.is_some()
                || transaction.state.isolation != Isolation::ReadCommitted)
        {
            return None;
        }
        // Without a transaction one may begin here.
        if self.transaction.is_none() && !self.settings.limits().is_read_committed {
            return None;
        }
        let catalog = self.engine.dispatch.catalog();
        if planned.catalog != catalog.version() {
            return None;
        }
        self.authorize(&catalog, &planned.access).ok()?;
        if let Some(range) = &planned.range {
            let transaction = self.transaction.as_ref();
            if transaction.is_some_and(|transaction| transaction.overlay.touches(range.rows().table().id)) {
                return None;
            }
            return range.read(self.engine.dispatch.as_ref(), parameters);
        }
        let row = self.read_row_now(planned, &catalog, parameters)?;
        let count = usize::from(row.is_some());
        Some((row.unwrap_or_default(), count))
    }

    /// The one row of a read by key; the inner none says that there is none.
    fn read_row_now(
        &self,
        planned: &Planned,
        catalog: &Arc<Catalog>,
        parameters: &[Value],
    ) -> Option<Option<Vec<Value>>> {
        // Most reads evaluate nothing that would have to be stopped.
        let stoppable = OnceCell::new();
        let context = || {
            stoppable.get_or_init(|| self.cancel.begin_unguarded(self.settings.limits().statement));
            self.context(catalog.clone(), parameters.to_vec())
        };
        if let Some(direct) = &planned.direct {
            let Some(key) = direct.locate(parameters).ok()? else { return Some(None) };
            return match self.row_now(direct, &key, &At::Latest)? {
                Some(row) => direct.project(&key, &row, context).ok(),
                None => Some(None),
            };
        }
        let join = planned.join.as_ref()?;
        let Some((first, key)) = join.first(parameters).ok()? else { return Some(None) };
        // Both rows are of one moment.
        let at = At::Point(self.engine.dispatch.read_point(first.partition()).here()?.ok()?);
        let Some(row) = self.row_now(first, &key, &at)? else { return Some(None) };
        let Some(values) = first.project(&key, &row, context).ok()? else { return Some(None) };
        let second = match join.second_key(&values, parameters).ok()? {
            Some(key) => match self.row_now(join.second(), &key, &at)? {
                Some(row) => join.second().project(&key, &row, context).ok()?,
                None => None,
            },
            None => None,
        };
        join.project(values, second, context).ok()
    }

    /// A row as the transaction sees it.
    fn row_now(&self, direct: &Direct, key: &[u8], at: &At) -> Option<Option<Bytes>> {
        // What the transaction wrote is found by the rows' own keys only.
        let touches = |overlay: &crate::txn::Overlay| overlay.touches(direct.table().id);
        if !direct.is_by_own_key() && self.transaction.as_ref().is_some_and(|it| touches(&it.overlay)) {
            return None;
        }
        let written = self
            .transaction
            .as_ref()
            .and_then(|transaction| transaction.overlay.get(direct.partition(), direct.table().id, key));
        match written {
            Some(row) => Some(row.cloned()),
            None => direct.get(self.engine.dispatch.as_ref(), key, at).here()?.ok(),
        }
    }

    fn note_read(&self, text: &Arc<str>) {
        self.set_activity(self.state_name(), Some(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// A future is moved whole when it is made: what is rare and large is boxed where it is called.
    #[test]
    fn the_futures_of_messages_are_small() {
        type On = &'static mut Session;
        let sizes = [
            ("parse", size(|session: On| session.parse("", "", &[]))),
            ("execute", size(|session: On| session.execute("", 0))),
            ("resume", size(|session: On| session.resume(""))),
            (
                "begin_simple",
                size(|(session, statement): (On, &'static SimpleStatement)| session.begin_simple(statement)),
            ),
            ("split", size(|session: On| session.split(""))),
            ("sync", size(|session: On| session.sync())),
        ];
        for (name, bytes) in sizes {
            assert!(bytes <= 1_536, "{name}: {bytes} bytes");
        }
    }

    #[test]
    fn a_tag_counts_the_rows() {
        let text = value::Context::default;
        let tag = |count| Got { columns: &[], formats: &[], values: Vec::new(), count, text: text() }.tag();
        assert_eq!([tag(0), tag(1), tag(20)].concat(), "SELECT 0SELECT 1SELECT 20");
    }
}
