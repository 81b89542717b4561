//! What a door asks of a session beside its messages: the limits it keeps while it waits for its client, and a word for
//! failures that the session did not see.

use std::time::Duration;

use model::Result;

use super::{Session, Status, run::read_only_error};

impl Session {
    /// `statement_timeout`, for the time in which a statement waits for its client; none for no limit.
    pub fn statement_timeout(&self) -> Option<Duration> {
        self.settings.limits().statement
    }

    /// `idle_session_timeout`: how long the session may be idle outside of a block (`57P05`); none for no limit.
    pub fn idle_timeout(&self) -> Option<Duration> {
        match self.status() {
            Status::Idle => self.settings.limits().idle,
            Status::InTransaction | Status::Failed => None,
        }
    }

    /// Notes a failure that the door found: a malformed message, a client that was waited for in vain, a panic. An open
    /// transaction is failed by it.
    pub async fn note_failure(&mut self) {
        self.cancel.end();
        self.copying = None;
        Box::pin(self.fail()).await;
        self.set_activity(self.state_name(), None);
    }

    /// `25006` in a read-only transaction, for statements that have no plan to look at.
    pub(super) fn check_read_write(&self, what: &str) -> Result<()> {
        let is_read_only = match &self.transaction {
            Some(transaction) => transaction.read_only,
            None => self.settings.limits().read_only,
        };
        if is_read_only { Err(read_only_error(what)) } else { Ok(()) }
    }
}
