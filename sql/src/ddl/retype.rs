//! ALTER COLUMN … TYPE of a column whose stored values must change.
//!
//! The new values are put into a column of their own, beside the old ones; then one change of the catalog puts that column
//! in the place of the old one, which is dropped. What is on disk is at every moment the table as it was or as it will be:
//! a crash before that change leaves a hidden column that nobody reads, and that the next start drops.
//!
//! Invariants:
//! - Writers of the table wait from before the last look at its rows until the catalog has changed; those who planned on
//!   the old column plan again.
//! - A column keeps its place among the columns (`attnum`), its name, comment, rights and sequence; its number changes, and
//!   everything that names the number is changed in the same step.

use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use model::{
    Code, Error, Result, Type,
    access::{Grant, Object as Right},
    catalog::{Catalog, Change, Expected, Object, ObjectId},
    id::{ColumnNumber, IndexId, PartitionId},
    port::{LockMode, Lockable},
    schema::{Column, ColumnDefault, IndexState, Table},
    types::Typmod,
};

use super::{
    build::{HiddenColumns, drop_column},
    changed_table,
    table::{plain_column, quote, visible},
    take_table_lock,
};
use crate::{
    bind,
    execute::Cancel,
    functions::Volatility,
    session::{HeldLocks, Session},
};

/// How often the rows are looked at again because writers came in between.
const ROUNDS_MAX: usize = 20;

/// How many commands new values are written in.
const PIECES_MAX: usize = 1 << 16;

/// How long the lock is waited for behind the session's own command.
const HANDOVER: Duration = Duration::from_secs(3_600);

/// The name that the column of new values has while it is filled.
const WORKING_NAME: &str = "........pg.retyped........";

/// What a column becomes.
pub(super) struct Retype {
    pub(super) column: Column,
    pub(super) ty: Type,
    pub(super) typmod: Typmod,
    /// The new value, as SQL over the old columns.
    pub(super) value: String,
    /// The client wrote it.
    pub(super) is_given: bool,
}

impl Session {
    /// Changes the type of a column of a table with rows.
    pub(super) async fn retype(
        &mut self,
        table: &Arc<Table>,
        retype: &Retype,
        cancel: &Cancel,
    ) -> Result<()> {
        self.check_retype(table, retype)?;
        if self.is_transactional() {
            return Err(Error::unsupported(
                format!(
                    "changing the type of column \"{}\" rewrites the table and cannot be part of a transaction",
                    retype.column.name
                ),
                "Run it by itself, outside BEGIN … COMMIT.",
            ));
        }
        let number = u16::try_from(table.columns.len() + 1)
            .ok()
            .filter(|number| usize::from(*number) <= model::row::COLUMNS_MAX)
            .ok_or_else(|| Error::new(Code::TooManyColumns, "too many columns"))?;
        let number = ColumnNumber(number);
        let hidden = HiddenColumns::new(self.dispatch(), table.id, vec![number]);
        let before = self.add_working_column(table, number, &hidden, retype).await?;
        let done = self.fill_and_switch(&before, number, retype, cancel).await;
        if done.is_err() {
            self.roll_back_work().await;
        }
        hidden.drop_unread().await?;
        done
    }

    /// Refuses to change the type of a column that others read: views, generated columns and, where values are rewritten,
    /// expressions of indexes.
    pub(super) fn check_readers(&mut self, table: &Table, column: &Column, rewrites: bool) -> Result<()> {
        let name = &column.name;
        let names = self.current_names();
        let columns = visible(table);
        let mut context = self.new_context();
        for other in table.columns.iter().filter(|other| !other.dropped && (rewrites || !other.hidden)) {
            let Some(ColumnDefault::Generated(text)) = &other.default else { continue };
            let bound = bind::bind_alone(text, "column generation", &columns, None, &names, &mut context)?;
            if !bind::depends_on_columns(&bound).iter().any(|at| columns[*at].0 == *name) {
                continue;
            }
            return Err(if other.hidden {
                Error::unsupported(
                    format!("column \"{name}\" is read by an index expression or predicate"),
                    "Drop the index, change the type, and make the index again.",
                )
            } else {
                let message = "cannot alter type of a column used by a generated column";
                let detail = format!("Column \"{name}\" is used by generated column \"{}\".", other.name);
                Error::new(Code::FeatureNotSupported, message).with_detail(detail)
            });
        }
        if let Some(view) = self.reader_of(table, column) {
            let message = "cannot alter type of a column used by a view or rule";
            let detail = format!("rule _RETURN on view {} depends on column \"{name}\"", view.name);
            return Err(Error::new(Code::FeatureNotSupported, message).with_detail(detail));
        }
        Ok(())
    }

    /// Refuses what cannot follow the column.
    fn check_retype(&mut self, table: &Table, retype: &Retype) -> Result<()> {
        let Retype { column, ty, typmod, value, is_given } = retype;
        let (name, number) = (&column.name, column.number);
        let names = self.current_names();
        let columns = visible(table);
        let mut context = self.new_context();
        let bound = bind::bind_alone(
            value,
            "transform expression",
            &columns,
            Some((*ty, typmod.0)),
            &names,
            &mut context,
        )
        .map_err(|error| {
            if error.code() != Code::DatatypeMismatch {
                return error;
            }
            let what = if *is_given {
                format!("result of USING clause for column \"{name}\"")
            } else {
                format!("column \"{name}\"")
            };
            let error = Error::new(
                Code::DatatypeMismatch,
                format!("{what} cannot be cast automatically to type {ty}"),
            );
            if *is_given {
                return error.with_hint("You might need to add an explicit cast.");
            }
            error.with_hint(format!("You might need to specify \"USING {name}::{}\".", ty.name_with(*typmod)))
        })?;
        if bound.volatility() == Volatility::Volatile {
            return Err(Error::unsupported(
                "a volatile expression in USING",
                "Add a column of the new type, fill it with UPDATE, and drop the old one.",
            ));
        }
        if table.partition_by.contains(&number) {
            return Err(Error::unsupported(
                "the type of a partition column cannot be changed",
                "Make a new table.",
            ));
        }
        let same_key = !is_given && ty.is_integer() && column.data_type.is_integer();
        if table.key().is_some_and(|key| key.parts.iter().any(|part| part.column == number)) && !same_key {
            return Err(Error::unsupported(
                format!("column \"{name}\" is part of the key that the rows of \"{}\" lie under", table.name),
                "Drop the primary key, change the type, and add the key again.",
            ));
        }
        match &column.default {
            Some(ColumnDefault::Generated(_)) => {
                return Err(Error::unsupported(
                    "the type of a generated column cannot be changed",
                    "Drop the column and add it again.",
                ));
            }
            Some(ColumnDefault::Expression(text)) => {
                bind::bind_alone(text, "DEFAULT", &[], Some((*ty, typmod.0)), &names, &mut context).map_err(
                    |_| {
                        let message = format!(
                            "default for column \"{name}\" cannot be cast automatically to type {ty}"
                        );
                        Error::new(Code::DatatypeMismatch, message)
                    },
                )?;
            }
            Some(ColumnDefault::Identity { .. }) if !ty.is_integer() => {
                return Err(Error::new(
                    Code::InvalidParameterValue,
                    "identity column type must be smallint, integer, or bigint",
                ));
            }
            Some(ColumnDefault::Identity { .. }) | None => {}
        }
        let catalog = self.current_catalog();
        let alike = (ty.is_integer() && column.data_type.is_integer())
            || (ty.is_text() && column.data_type.is_text());
        let refers = |other: &Table| {
            other.foreign_keys.iter().any(|key| {
                (other.id == table.id && key.columns.contains(&number))
                    || (key.parent == table.id && key.parent_columns.contains(&number))
            })
        };
        if !alike && catalog.tables().any(|other| refers(other)) {
            return Err(Error::unsupported(
                format!("column \"{name}\" is part of a foreign key"),
                "Drop the foreign key, change the types on both sides, and add it again.",
            ));
        }
        Ok(())
    }

    /// Adds the column of new values, which no statement sees.
    async fn add_working_column(
        &mut self,
        table: &Arc<Table>,
        number: ColumnNumber,
        hidden: &Arc<HiddenColumns>,
        retype: &Retype,
    ) -> Result<Arc<Table>> {
        let mut column = plain_column(WORKING_NAME.to_owned(), retype.ty, retype.typmod);
        column.number = number;
        column.hidden = true;
        let mut after = (**table).clone();
        after.columns.push(column);
        hidden.add(changed_table(table, after)).await?;
        let now = self.current_catalog().table(table.id).cloned();
        now.ok_or_else(|| Error::new(Code::UndefinedTable, "the table was dropped meanwhile"))
    }

    async fn fill_and_switch(
        &mut self,
        table: &Arc<Table>,
        number: ColumnNumber,
        retype: &Retype,
        cancel: &Cancel,
    ) -> Result<()> {
        let relation = self.qualified(table);
        let (working, value) = (quote(WORKING_NAME), &retype.value);
        // Types without equality are compared by their texts.
        let is_comparable = !matches!(retype.ty, Type::Json);
        let differs = if is_comparable {
            format!("{working} IS DISTINCT FROM CAST(({value}) AS {})", retype.ty.name_with(retype.typmod))
        } else {
            format!("{working}::text IS DISTINCT FROM ({value})::text")
        };
        let open = opened(&self.current_catalog(), table, number)?;
        let fill = format!("UPDATE {relation} SET {working} = {value} WHERE {differs}");
        let mut rounds = 0;
        for _ in 0..PIECES_MAX {
            let Some(lock) = self.fill_round(table, &open, &fill, cancel).await? else { continue };
            let switched =
                self.look_and_switch(table, number, retype, &open, &relation, &differs, cancel).await;
            self.roll_back_work().await;
            lock.release().await?;
            if switched? {
                return Ok(());
            }
            rounds += 1;
            if rounds >= ROUNDS_MAX {
                break;
            }
        }
        Err(Error::new(
            Code::SerializationFailure,
            "the table is written too busily to change a column's type",
        ))
    }

    /// Computes new values in one command, and answers with the table's lock held: it is asked for together with the
    /// command's own, so that no writer comes in between. Where the command was full, rows are left for the next and there
    /// is no lock.
    async fn fill_round(
        &mut self,
        table: &Arc<Table>,
        open: &Arc<Catalog>,
        fill: &str,
        cancel: &Cancel,
    ) -> Result<Option<HeldLocks>> {
        let partition = PartitionId::default_of(table.database, table.schema);
        self.begin_piece(open.clone());
        let everything = vec![(Lockable::Table(table.id), LockMode::Update)];
        let statement = self.begin_statement();
        let mut behind = pin!(take_table_lock(self, table, HANDOVER));
        {
            let mut own = pin!(statement.lock(&partition, everything, None));
            // Both stand in the queue, one behind the other, before either is waited for.
            let early = futures::poll!(own.as_mut());
            if let Poll::Ready(locked) = futures::poll!(behind.as_mut()) {
                drop(locked?);
                return Err(Error::internal("the second lock of a table was given before the first"));
            }
            match early {
                Poll::Ready(locked) => locked?,
                Poll::Pending => own.await?,
            };
        }
        self.run_alone(fill, cancel).await?;
        if self.is_piece_full() {
            self.commit_work().await?;
            return Ok(None);
        }
        let (locked, committed) = tokio::join!(behind, self.commit_work());
        let lock = locked?;
        committed?;
        Ok(Some(lock))
    }

    /// Under the table's lock: whether every row has its new value, and if so the change of the catalog.
    #[allow(clippy::too_many_arguments)]
    async fn look_and_switch(
        &mut self,
        table: &Arc<Table>,
        number: ColumnNumber,
        retype: &Retype,
        open: &Arc<Catalog>,
        relation: &str,
        differs: &str,
        cancel: &Cancel,
    ) -> Result<bool> {
        let catalog = self.current_catalog();
        let Some(now) = catalog.table(table.id).cloned() else {
            return Err(Error::new(Code::UndefinedTable, "the table was dropped meanwhile"));
        };
        if now.version != table.version {
            return Err(Error::new(
                Code::SerializationFailure,
                "could not serialize access due to concurrent schema change",
            ));
        }
        self.begin_work(open.clone());
        if self.run_alone(&format!("SELECT 1 FROM {relation} WHERE {differs} LIMIT 1"), cancel).await? > 0 {
            return Ok(false);
        }
        let name = &retype.column.name;
        let working = quote(WORKING_NAME);
        if retype.column.not_null
            && self
                .run_alone(&format!("SELECT 1 FROM {relation} WHERE {working} IS NULL LIMIT 1"), cancel)
                .await?
                > 0
        {
            let message = format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
            return Err(Error::new(Code::NotNullViolation, message));
        }
        for index in table.indexes.iter().filter(|index| index.unique && index.predicate.is_none()) {
            if Some(index.id) == table.primary_key
                || !index.parts.iter().any(|part| part.column == retype.column.number)
            {
                continue;
            }
            let part = |number: ColumnNumber| {
                if number == retype.column.number {
                    working.clone()
                } else {
                    quote(&table.column(number).name)
                }
            };
            let columns: Vec<String> = index.parts.iter().map(|part_of| part(part_of.column)).collect();
            let present: Vec<String> = columns.iter().map(|column| format!("{column} IS NOT NULL")).collect();
            let text = format!(
                "SELECT 1 FROM {relation} WHERE {} GROUP BY {} HAVING count(*) > 1 LIMIT 1",
                present.join(" AND "),
                columns.join(", ")
            );
            if self.run_alone(&text, cancel).await? > 0 {
                let message = format!("could not create unique index \"{}\"", index.name);
                return Err(
                    Error::new(Code::UniqueViolation, message).with_detail("Two rows have the same key.")
                );
            }
        }
        let change = self.switched(&catalog, &now, number, retype).await?;
        if let Some(Object::Table(after)) = change.put.first() {
            self.check_rows(&catalog, &change, after, relation, cancel).await?;
        }
        self.roll_back_work().await;
        self.change(change).await?;
        Ok(true)
    }

    /// CHECK constraints hold for the new values too.
    async fn check_rows(
        &mut self,
        catalog: &Catalog,
        change: &Change,
        after: &Table,
        relation: &str,
        cancel: &Cancel,
    ) -> Result<()> {
        self.roll_back_work().await;
        self.begin_work(Arc::new(catalog.apply(change)?));
        for check in &after.checks {
            let text = format!("SELECT 1 FROM {relation} WHERE NOT ({}) LIMIT 1", check.expression);
            if self.run_alone(&text, cancel).await? > 0 {
                let message = format!(
                    "check constraint \"{}\" of relation \"{}\" is violated by some row",
                    check.name, after.name
                );
                return Err(Error::new(Code::CheckViolation, message));
            }
        }
        Ok(())
    }

    /// The change that puts the new column in the place of the old one.
    async fn switched(
        &mut self,
        catalog: &Catalog,
        table: &Table,
        number: ColumnNumber,
        retype: &Retype,
    ) -> Result<Change> {
        let old = retype.column.number;
        let renumber = |at: &mut ColumnNumber| {
            if *at == old {
                *at = number;
            }
        };
        let mut after = table.clone();
        let (place, working_place) = (table.column(old).place(), table.column(number).place());
        let new = &mut after.columns[usize::from(number.0) - 1];
        *new = Column {
            number,
            data_type: retype.ty,
            typmod: retype.typmod,
            missing: None,
            hidden: false,
            moved: Some(place),
            ..retype.column.clone()
        };
        let gone = &mut after.columns[usize::from(old.0) - 1];
        drop_column(gone);
        gone.moved = Some(working_place);
        let own_key = table.primary_key;
        for index in &mut after.indexes {
            if !index.parts.iter().any(|part| part.column == old) {
                continue;
            }
            index.parts.iter_mut().for_each(|part| renumber(&mut part.column));
            if own_key != Some(index.id) {
                index.id = IndexId(self.dispatch().allocate_ids(1).await?);
                index.state = IndexState::Building;
            }
        }
        for key in &mut after.foreign_keys {
            key.columns.iter_mut().for_each(renumber);
            if key.parent == table.id {
                key.parent_columns.iter_mut().for_each(renumber);
            }
        }
        let mut change = changed_table(table, after);
        for child in catalog.tables() {
            let refers =
                |key: &model::schema::ForeignKey| key.parent == table.id && key.parent_columns.contains(&old);
            if child.id == table.id || !child.foreign_keys.iter().any(refers) {
                continue;
            }
            let mut child_after = (**child).clone();
            for key in child_after.foreign_keys.iter_mut().filter(|key| key.parent == table.id) {
                key.parent_columns.iter_mut().for_each(renumber);
            }
            let part = changed_table(child, child_after);
            change.expect.extend(part.expect);
            change.put.extend(part.put);
        }
        for sequence in catalog.sequences().filter(|at| at.owned_by == Some((table.id, old))) {
            let mut owned = (**sequence).clone();
            owned.owned_by = Some((table.id, number));
            change.expect.push((ObjectId::Sequence(owned.id), Some(Expected::Exists)));
            change.put.push(Object::Sequence(owned));
        }
        for grant in catalog.grants().filter(|grant| grant.object == Right::Column(table.id, old)) {
            change.revoke.push(*grant);
            change.grant.push(Grant { object: Right::Column(table.id, number), ..*grant });
        }
        Ok(change)
    }
}

/// The catalog in which the working column can be named.
fn opened(catalog: &Catalog, table: &Table, number: ColumnNumber) -> Result<Arc<Catalog>> {
    let mut open = table.clone();
    open.columns[usize::from(number.0) - 1].hidden = false;
    // Rows that are made by it are of the table as it is.
    Ok(Arc::new(catalog.apply(&Change { put: vec![Object::Table(open)], ..Change::default() })?))
}
