//! The state of a session, and what every part of it needs.

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use model::{
    Code, Error, Result, Value,
    catalog::Catalog,
    id::{DatabaseId, RoleId, SessionId, TableId},
    request::Column,
    time::Timestamp,
};
use parking_lot::Mutex;

use super::{
    CancelHandle, Login, Notice, Status, portal::Portal, sequences::Numbers, transaction::Transaction,
};
use crate::{
    bind::Names,
    cache::Prepared,
    context::{self, Activity, Context},
    engine::Engine,
    execute::Making,
    settings::Settings,
};

/// What is shown of a statement; a longer text is not kept for it.
const QUERY_CHARS_MAX: usize = 1_024;

/// One connection's session.
pub struct Session {
    pub(super) engine: Arc<Engine>,
    pub(super) login: Login,
    pub(super) database: DatabaseId,
    pub(super) session_user: RoleId,
    pub(super) current_user: RoleId,
    pub(super) authenticated: RoleId,
    pub(super) settings: Settings,
    pub(super) numbers: Numbers,
    /// The same two, as expressions see them.
    shared_settings: Arc<dyn context::Settings>,
    shared_numbers: Arc<dyn context::Sequences>,
    pub(super) cancel: CancelHandle,
    pub(super) activity: Arc<Mutex<Activity>>,
    pub(super) statements: HashMap<String, Prepared>,
    pub(super) portals: HashMap<String, Portal>,
    /// How many portals Bind and DECLARE made.
    pub(super) portals_made: u64,
    pub(super) transaction: Option<Transaction>,
    /// The name of the next command and what it is made of.
    pub(super) named: Option<super::name::Named>,
    pub(super) notices: Vec<Notice>,
    /// More statements follow in the same implicit transaction.
    pub(super) more_follows: bool,
    /// A COPY FROM that waits for data.
    pub(super) copying: Option<Box<super::copy::CopyIn>>,
    /// Search path and text settings, as part of a plan's key, and of which generation of the settings.
    pub(super) plan_settings: Option<(u64, Arc<str>)>,
    /// It made a temporary table.
    pub(super) has_temporary: bool,
    /// Temporary tables that are emptied (`false`) or dropped (`true`) at the next commit.
    pub(super) on_commit: Vec<(TableId, bool)>,
    /// A command was sent since the last commit, and there are such tables.
    pub(super) is_commit_due: bool,
    known: Mutex<Option<Known>>,
}

/// What is derived from settings and catalog, kept until one of them changes.
#[derive(Clone)]
struct Known {
    settings: u64,
    catalog: model::id::CatalogVersion,
    overlaid: bool,
    search_path: Arc<[String]>,
    text: model::value::Context,
}

impl Session {
    /// Opens a session; `3D000` for an unknown database, `28000` for an unknown role or one that may not log in.
    pub fn open(engine: &Arc<Engine>, login: Login) -> Result<Self> {
        let catalog = engine.dispatch.catalog();
        let role = catalog.find_role(&login.role).ok_or_else(|| {
            Error::new(
                Code::InvalidAuthorizationSpecification,
                format!("role \"{}\" does not exist", login.role),
            )
        })?;
        if !role.login {
            let message = format!("role \"{}\" is not permitted to log in", login.role);
            return Err(Error::new(Code::InvalidAuthorizationSpecification, message));
        }
        let database = catalog.find_database(&login.database).ok_or_else(|| {
            Error::new(Code::InvalidCatalogName, format!("database \"{}\" does not exist", login.database))
        })?;
        let registry = engine.registry.clone();
        let settings = Settings::new(&login.parameters, Arc::new(move || registry.activity()))?;
        settings.force("session_authorization", &login.role);
        settings.force("is_superuser", if role.superuser { "on" } else { "off" });
        let now = now(engine);
        let activity = Activity {
            process_id: login.process_id,
            database: database.id,
            role: role.id,
            application_name: settings.get("application_name"),
            client_address: login.client.clone(),
            backend_start: now,
            transaction_start: None,
            query_start: None,
            state_change: Some(now),
            state: "idle",
            query: Arc::default(),
        };
        let activity = Arc::new(Mutex::new(activity));
        let cancel = CancelHandle::default();
        engine.registry.add(login.session.0, cancel.clone(), activity.clone());
        let numbers = Numbers::new(engine.dispatch.clone());
        Ok(Self {
            database: database.id,
            session_user: role.id,
            current_user: role.id,
            authenticated: role.id,
            shared_settings: Arc::new(settings.clone()),
            shared_numbers: Arc::new(numbers.clone()),
            numbers,
            engine: engine.clone(),
            login,
            settings,
            cancel,
            activity,
            statements: HashMap::new(),
            portals: HashMap::new(),
            portals_made: 0,
            transaction: None,
            named: None,
            notices: Vec::new(),
            more_follows: false,
            copying: None,
            plan_settings: None,
            has_temporary: false,
            on_commit: Vec::new(),
            is_commit_due: false,
            known: Mutex::default(),
        })
    }

    /// What ReadyForQuery says.
    pub fn status(&self) -> Status {
        match &self.transaction {
            Some(transaction) if transaction.block && transaction.failed => Status::Failed,
            Some(transaction) if transaction.block => Status::InTransaction,
            _ => Status::Idle,
        }
    }

    /// Stops what this session runs.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Notices since the last call.
    pub fn drain_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Parameters to report that changed since the last call.
    pub fn drain_parameters(&mut self) -> Vec<(&'static str, String)> {
        self.settings.drain_changed()
    }

    /// All parameters that are reported at the start of a connection.
    pub fn reported_parameters(&self) -> Vec<(&'static str, String)> {
        self.settings.reported()
    }

    /// How values are written as text now.
    pub fn text_context(&self) -> model::value::Context {
        self.settings.text()
    }

    /// How long the session may be idle inside a transaction block (`25P03`); none for no limit.
    pub fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        match self.status() {
            Status::Idle => None,
            Status::InTransaction | Status::Failed => self.settings.limits().idle_in_transaction,
        }
    }

    /// Says that more statements follow before Sync, so that they share one implicit transaction.
    pub fn set_more_follows(&mut self, more: bool) {
        self.more_follows = more;
    }

    pub(super) fn notice(&mut self, severity: &'static str, error: Error) {
        let hidden = match self.settings.get("client_min_messages").as_str() {
            "error" => true,
            "warning" => severity == "NOTICE",
            _ => false,
        };
        if hidden {
            return;
        }
        self.notices.push(Notice { severity, error });
    }

    /// The catalog as this session sees it: with the DDL of its open transaction.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        match self.transaction.as_ref().and_then(|transaction| transaction.catalog.clone()) {
            Some(catalog) => catalog,
            None => self.engine.dispatch.catalog(),
        }
    }

    /// Where names are looked up.
    pub(super) fn names(&self, catalog: Arc<Catalog>) -> Names {
        let search_path = if self.is_overlaid() {
            self.search_path(&catalog).into()
        } else {
            self.known(&catalog).search_path
        };
        let (database, temporary, role) = (self.database, self.temporary(), self.current_user);
        Names { catalog, database, search_path, temporary, role }
    }

    /// This session, if it has or had temporary tables.
    pub(super) fn temporary(&self) -> Option<SessionId> {
        self.has_temporary.then_some(self.login.session)
    }

    /// Text settings and the schemas of `search_path` that exist, kept until a setting or the catalog changes.
    fn known(&self, catalog: &Catalog) -> Known {
        let settings = self.settings.generation();
        let mut known = self.known.lock();
        if let Some(known) = known.as_ref().filter(|known| {
            known.settings == settings
                && known.catalog == catalog.version()
                && known.overlaid == self.is_overlaid()
        }) {
            return known.clone();
        }
        let fresh = Known {
            settings,
            catalog: catalog.version(),
            overlaid: self.is_overlaid(),
            search_path: self.search_path(catalog).into(),
            text: self.settings.text(),
        };
        *known = Some(fresh.clone());
        fresh
    }

    fn is_overlaid(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.catalog.is_some())
    }

    /// The schemas of `search_path` that exist.
    fn search_path(&self, catalog: &Catalog) -> Vec<String> {
        let text = self.settings.get("search_path");
        let user = catalog.role(self.current_user).map(|role| role.name.clone()).unwrap_or_default();
        split_list(&text)
            .into_iter()
            .map(|name| if name == "$user" { user.clone() } else { name })
            .filter(|name| name == "information_schema" || catalog.find_schema(self.database, name).is_some())
            .collect()
    }

    /// What expressions of a statement may know.
    pub(super) fn context(&self, catalog: Arc<Catalog>, parameters: Vec<Value>) -> Context {
        let statement = now(&self.engine);
        let now = self.transaction.as_ref().map_or(statement, |transaction| transaction.began);
        let Known { search_path, mut text, .. } = self.known(&catalog);
        text.now = model::value::Timestamp::from_unix_micros(now.unix_micros()).ok();
        Context {
            search_path,
            catalog,
            now,
            statement,
            clock: self.engine.clock.clone(),
            text,
            session_user: self.session_user,
            current_user: self.current_user,
            database: self.database,
            process_id: self.login.process_id,
            pauses: crate::context::Pauses::default(),
            making: {
                let budget = self.engine.pool.budget(self.engine.options.statement_bytes_max);
                Making::new(self.cancel.running(), budget.charge("expressions"))
            },
            temporary: self.temporary(),
            parameters,
            settings: self.shared_settings.clone(),
            sequences: self.shared_numbers.clone(),
            random: {
                let engine = self.engine.clone();
                Box::new(move || engine.random())
            },
        }
    }

    /// Search path and text settings as one text, for the key of a plan.
    pub(super) fn plan_settings(&mut self) -> Arc<str> {
        let generation = self.settings.generation();
        if let Some((known, settings)) = &self.plan_settings
            && *known == generation
        {
            return settings.clone();
        }
        let parts = ["search_path", "TimeZone", "DateStyle"].map(|name| self.settings.get(name));
        // Whoever has temporary tables may mean them, and shares no plan.
        let own = self.temporary().map(|session| session.0.to_string()).unwrap_or_default();
        let parts = [parts.join("\u{1f}"), self.current_user.0.to_string(), own];
        let text: Arc<str> = parts.join("\u{1f}").into();
        self.plan_settings = Some((generation, text.clone()));
        text
    }

    /// What `pg_stat_activity` shows of this session; with the text of a statement that begins.
    pub(super) fn set_activity(&self, state: &'static str, query: Option<&Arc<str>>) {
        let began = self.transaction.as_ref().map(|transaction| transaction.began);
        let mut activity = self.activity.lock();
        if query.is_none() && activity.state == state && activity.transaction_start == began {
            return;
        }
        let at = now(&self.engine);
        activity.state = state;
        activity.state_change = Some(at);
        activity.transaction_start = began;
        if let Some(query) = query {
            if query.len() > QUERY_CHARS_MAX {
                activity.query = query.chars().take(QUERY_CHARS_MAX).collect::<String>().into();
            } else if !Arc::ptr_eq(&activity.query, query) {
                activity.query = query.clone();
            }
            activity.query_start = Some(at);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.registry.remove(self.login.session.0);
        self.cancel.end();
        if let Some(transaction) = self.transaction.take() {
            transaction.abandon(&self.engine.dispatch);
        }
        self.abandon_temporary();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.login.session)
    }
}

/// The gateway's clock.
pub(super) fn now(engine: &Engine) -> Timestamp {
    engine.clock.wall()
}

/// The names of a list such as `"$user", public`.
pub(super) fn split_list(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            name = quoted[..end].to_owned();
            rest = quoted.get(end + 1..).unwrap_or("").trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            name = rest[..end].trim().trim_matches('\'').to_lowercase();
            rest = rest.get(end + 1..).unwrap_or("").trim_start();
        }
        if !name.is_empty() {
            names.push(name);
        }
    }
    names
}

/// Result columns of a statement that gives texts, such as SHOW.
pub(super) fn text_columns(names: &[&str]) -> Arc<[Column]> {
    names
        .iter()
        .map(|name| Column {
            name: (*name).to_owned(),
            data_type: model::Type::Text,
            typmod: model::types::Typmod::NONE,
            origin: (0, 0),
        })
        .collect()
}

/// Rows of texts.
pub(super) fn text_rows(rows: Vec<Vec<String>>) -> Vec<Vec<Value>> {
    rows.into_iter().map(|row| row.into_iter().map(Value::text).collect()).collect()
}
