//! What DDL needs of a session.

use std::sync::Arc;

use model::{
    Error, Result,
    access::{Object, Privilege},
    catalog::{Catalog, Change},
    id::{DatabaseId, RoleId, SessionId, TableId},
    port::Dispatch,
};

use super::Session;
use crate::{bind::Names, context::Context, rights};

/// What a definition that rewrites a table writes in one transaction.
const PIECE_BYTES_MAX: usize = 64 << 20;

impl Session {
    pub(crate) fn dispatch(&self) -> Arc<dyn Dispatch> {
        self.engine.dispatch.clone()
    }

    pub(crate) fn current_catalog(&self) -> Arc<Catalog> {
        self.catalog()
    }

    pub(crate) fn current_names(&self) -> Names {
        self.names(self.catalog())
    }

    pub(crate) fn new_context(&self) -> Context {
        self.context(self.catalog(), Vec::new())
    }

    pub(crate) fn database_id(&self) -> DatabaseId {
        self.database
    }

    pub(crate) fn session_id(&self) -> SessionId {
        self.login.session
    }

    /// How long a lock is waited for.
    pub(crate) fn lock_patience(&self) -> std::time::Duration {
        self.lock_wait()
    }

    pub(crate) fn role(&self) -> RoleId {
        self.current_user
    }

    pub(crate) fn is_superuser(&self, catalog: &Catalog) -> bool {
        rights::is_superuser(catalog, self.current_user)
    }

    pub(crate) fn has_right(
        &self,
        catalog: &Catalog,
        object: Object,
        privilege: Privilege,
        owner: Option<RoleId>,
    ) -> bool {
        rights::has_right(catalog, self.current_user, object, privilege, owner)
    }

    pub(crate) fn owns(&self, catalog: &Catalog, owner: RoleId) -> bool {
        self.is_superuser(catalog) || rights::roles_of(catalog, self.current_user).contains(&owner)
    }

    /// A NOTICE.
    pub(crate) fn tell(&mut self, error: Error) {
        self.notice("NOTICE", error);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.read_only)
    }

    /// Whether DDL waits for a COMMIT.
    pub(crate) fn is_transactional(&self) -> bool {
        self.transaction.is_some() || self.more_follows
    }

    /// Whether statements of the client follow in the same transaction.
    pub(crate) fn transaction_goes_on(&self) -> bool {
        self.in_block() || self.more_follows
    }

    /// Lays a change over the catalog of the open transaction.
    pub(crate) fn lay_over(&mut self, change: Change) -> Result<Arc<Catalog>> {
        self.ensure_transaction(false, true);
        let before = self.catalog();
        // An index of a table without rows is ready at once for this transaction's own plans; COMMIT builds it.
        let after = Arc::new(before.apply(&change)?);
        if let Some(transaction) = &mut self.transaction {
            transaction.catalog = Some(after.clone());
            transaction.changes.push(change);
            transaction.used = true;
        }
        Ok(after)
    }

    pub(crate) fn in_transaction_block(&self) -> bool {
        self.in_block()
    }
}

impl Session {
    /// Runs a statement that DDL needs, in the session's transaction or by itself; how many rows it gave or changed.
    pub(crate) async fn run_alone(&mut self, text: &str, cancel: &crate::execute::Cancel) -> Result<u64> {
        let more = std::mem::replace(&mut self.more_follows, false);
        let result = Box::pin(async {
            let prepared = self.prepare(text, &[]).await?;
            let mut portal = super::portal::Portal::new(prepared, Vec::new(), Vec::new());
            self.run_to_end(&mut portal, cancel).await
        })
        .await;
        self.more_follows = more;
        let tag = match result? {
            super::run::Gave::Tag(tag) | super::run::Gave::Rows(_, tag) => tag,
        };
        Ok(tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// Notes a temporary table that this session made, and whether a commit empties (`false`) or drops (`true`) it.
    pub(crate) fn note_temporary(&mut self, table: TableId, on_commit: Option<bool>) {
        self.has_temporary = true;
        self.plan_settings = None;
        self.on_commit.extend(on_commit.map(|drops| (table, drops)));
        self.is_commit_due = !self.on_commit.is_empty();
    }

    /// Begins work of a definition that reads and writes rows under a catalog of its own, as a transaction.
    pub(crate) fn begin_work(&mut self, catalog: Arc<Catalog>) {
        self.ensure_transaction(false, true);
        if let Some(transaction) = &mut self.transaction {
            transaction.catalog = Some(catalog);
        }
    }

    /// As [`Session::begin_work`]: an UPDATE ends when a piece of what a transaction may write is full.
    pub(crate) fn begin_piece(&mut self, catalog: Arc<Catalog>) {
        let piece_bytes_max = PIECE_BYTES_MAX.min(self.engine.options.transaction_bytes_max / 4);
        self.begin_work(catalog);
        if let Some(transaction) = &mut self.transaction {
            transaction.piece_bytes_max = Some(piece_bytes_max);
        }
    }

    /// Whether an UPDATE in the piece may have ended early.
    pub(crate) fn is_piece_full(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| {
            transaction.piece_bytes_max.is_some_and(|piece| transaction.overlay.bytes() >= piece)
        })
    }

    /// Ends it; what was written is sent.
    pub(crate) async fn commit_work(&mut self) -> Result<()> {
        self.commit().await
    }

    /// Ends it; what was written is forgotten.
    pub(crate) async fn roll_back_work(&mut self) {
        if !self.in_block() {
            self.roll_back().await;
        }
    }

    /// Sets a sequence.
    pub(crate) async fn set_sequence(&mut self, id: model::id::SequenceId, value: i64) -> Result<()> {
        self.numbers.set_value(id, value, false).await
    }

    /// Keeps what ANALYZE found.
    pub(crate) fn keep_statistics(
        &self,
        table: model::id::TableId,
        statistics: crate::stats::TableStatistics,
    ) {
        self.engine.statistics.set(table, statistics, self.engine.clock.monotonic());
    }

    /// Plans are made again with new statistics.
    pub(crate) fn forget_plans(&self) {
        self.engine.cache.clear();
    }

    /// Empties tables in one partition.
    pub(crate) async fn truncate_in(
        &mut self,
        partition: &model::id::PartitionId,
        tables: &[model::id::TableId],
    ) -> Result<()> {
        if self.transaction.is_some() || self.more_follows {
            let statement = self.begin_statement();
            let locks = tables
                .iter()
                .map(|table| (model::port::Lockable::Table(*table), model::port::LockMode::Update))
                .collect();
            statement.lock(partition, locks, None).await?;
            for table in tables {
                statement.truncate(partition, *table)?;
            }
            let (writes, catalog) = (statement.take_writes(), self.catalog());
            if let Some(transaction) = &mut self.transaction {
                transaction.absorb(writes, &catalog);
            }
            return Ok(());
        }
        let writes = tables.iter().map(|table| model::command::Write::Truncate { table: *table }).collect();
        let newest = self.dispatch().catalog().version();
        match self.send(partition.clone(), Vec::new(), writes, None, newest).await? {
            model::command::Outcome::Applied(_) => Ok(()),
            model::command::Outcome::Rejected(rejection) => Err(self.rejection_error(&rejection)),
        }
    }

    /// What is kept of a password: a SCRAM-SHA-256 verifier (RFC 5803), as given or made now.
    pub(crate) fn verifier(&self, password: &str) -> String {
        if password.starts_with("SCRAM-SHA-256$") {
            return password.to_owned();
        }
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&self.engine.random().to_le_bytes());
        salt[8..].copy_from_slice(&self.engine.random().to_le_bytes());
        crate::session::scram::verifier(password, &salt)
    }
}
