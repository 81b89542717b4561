//! Sessions of the doors that are not SQL's own: each request gets a `sql::Session` for itself.
//!
//! Invariants:
//! - A caller is a role that a token proved; nothing a request says changes whose rights count.
//! - At most `operations_max` requests of one caller run at a time; more wait up to a second, then get `53400`.
//! - Dropping the rows of an answer ends the statement behind it and gives its place back.
//! - Read-only is the transaction's mode, enforced on the plan, never a look at the text.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use model::{
    Code, Error, Result, Value,
    id::{CommandId, PartitionId, SessionId},
    port::{BoxFuture, Dispatch, Handler},
    request::{Done, Parameter, Query, Request, Response, RowSource, Rows},
    value::binary::encode_binary,
};
use parking_lot::Mutex;
use sql::{
    engine::Engine,
    session::{Executed, Format, Login, Page, Parameters, Session},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    auth::secrets::Secrets,
    metrics::{Held, Metrics},
};

/// How long a request waits for one of its caller's places.
const PLACE_WAIT: Duration = Duration::from_secs(1);
/// Session ids of this kind; those of the SQL door count from 1.
const SESSION_ID_MIN: u64 = 1 << 48;

/// Finds callers by their token.
pub struct Callers {
    secrets: Arc<Secrets>,
    engine: Arc<Engine>,
    dispatch: Arc<dyn Dispatch>,
    metrics: Arc<Metrics>,
    database: String,
    operations_max: usize,
    known: Mutex<HashMap<String, Arc<Caller>>>,
}

/// One caller: a role in a database.
pub struct Caller {
    role: String,
    database: String,
    engine: Arc<Engine>,
    dispatch: Arc<dyn Dispatch>,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    next: std::sync::atomic::AtomicU64,
}

impl Callers {
    /// Callers of an engine, in its first database.
    pub fn new(
        secrets: Arc<Secrets>,
        engine: Arc<Engine>,
        dispatch: Arc<dyn Dispatch>,
        metrics: Arc<Metrics>,
        database: String,
        operations_max: usize,
    ) -> Self {
        Self { secrets, engine, dispatch, metrics, database, operations_max, known: Mutex::default() }
    }

    /// The caller with this token.
    pub fn find(&self, token: &str) -> Option<Arc<dyn Handler>> {
        let role = self.secrets.find_user_of_token(token)?;
        let mut known = self.known.lock();
        let caller = known.entry(role.to_owned()).or_insert_with(|| {
            Arc::new(Caller {
                role: role.to_owned(),
                database: self.database.clone(),
                engine: self.engine.clone(),
                dispatch: self.dispatch.clone(),
                metrics: self.metrics.clone(),
                places: Arc::new(Semaphore::new(self.operations_max)),
                next: std::sync::atomic::AtomicU64::new(SESSION_ID_MIN),
            })
        });
        Some(caller.clone())
    }
}

impl Handler for Caller {
    fn handle(&self, request: Request) -> BoxFuture<'_, Result<Response>> {
        Box::pin(async move {
            let place = self.place().await?;
            let answered = match request {
                Request::Query(query) => self.query(query, place).await,
                Request::Batch(queries) => self.batch(queries).await,
                Request::CommandStatus(id) => self.command_status(id).await,
            };
            match &answered {
                Ok(_) => self.metrics.statements_done.increment(),
                Err(_) => self.metrics.statements_failed.increment(),
            }
            answered
        })
    }
}

/// What a running request holds.
struct Place {
    _permit: OwnedSemaphorePermit,
    _held: Held,
}

impl Caller {
    async fn place(&self) -> Result<Place> {
        match tokio::time::timeout(PLACE_WAIT, self.places.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Place { _permit: permit, _held: self.metrics.operations.hold() }),
            Ok(Err(_)) => Err(Error::new(Code::CannotConnectNow, "the server is shutting down")),
            Err(_) => Err(Error::new(
                Code::ConfigurationLimitExceeded,
                "too many operations of this caller at once",
            )
            .with_hint("Wait for one of them to end.")),
        }
    }

    fn open(&self, is_read_only: bool) -> Result<Session> {
        let mut parameters = vec![("application_name".to_owned(), "keystead".to_owned())];
        if is_read_only {
            parameters.push(("default_transaction_read_only".to_owned(), "on".to_owned()));
        }
        let session = SessionId(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        Session::open(
            &self.engine,
            Login {
                session,
                role: self.role.clone(),
                database: self.database.clone(),
                process_id: 0,
                client: None,
                parameters,
            },
        )
    }

    async fn query(&self, query: Query, place: Place) -> Result<Response> {
        let mut session = self.open(query.read_only)?;
        if let Some(id) = query.command_id {
            run(&mut session, &format!("SET keystead.command_id = '{id}'")).await?;
        }
        start(session, &query, place).await
    }

    async fn batch(&self, queries: Vec<Query>) -> Result<Response> {
        let is_read_only = !queries.is_empty() && queries.iter().all(|query| query.read_only);
        let mut session = self.open(is_read_only)?;
        if let Some(id) = queries.iter().find_map(|query| query.command_id) {
            run(&mut session, &format!("SET keystead.command_id = '{id}'")).await?;
        }
        run(&mut session, "BEGIN").await?;
        let mut answers = Vec::with_capacity(queries.len());
        for query in &queries {
            if query.read_only && !is_read_only {
                return Err(Error::unsupported(
                    "a batch with writes cannot hold a read-only statement",
                    "Send it by itself, or leave the mark out.",
                ));
            }
            answers.push(collect(&mut session, query).await?);
        }
        run(&mut session, "COMMIT").await?;
        Ok(Response::Batch(answers))
    }

    /// Named commands of these doors are kept in the default partition of `public`.
    async fn command_status(&self, id: CommandId) -> Result<Response> {
        let catalog = self.dispatch.catalog();
        let database = catalog.find_database(&self.database);
        let schema = database.and_then(|database| catalog.find_schema(database.id, "public"));
        let role = catalog.find_role(&self.role);
        let (Some(schema), Some(role)) = (schema, role) else { return Ok(Response::CommandStatus(None)) };
        let partition = PartitionId::default_of(schema.database, schema.id);
        Ok(Response::CommandStatus(self.dispatch.command_status(&partition, role.id, id).await?))
    }
}

/// Runs a statement without parameters to its end.
async fn run(session: &mut Session, text: &str) -> Result<()> {
    for statement in session.split(text).await? {
        session.begin_simple(&statement).await?;
        while let Executed::Rows(_) | Executed::CopyData(_) = session.resume_simple().await? {}
    }
    session.sync().await
}

/// Parses and binds a statement as the unnamed portal.
async fn bind(session: &mut Session, query: &Query) -> Result<()> {
    let types: Vec<u32> = query
        .parameters
        .iter()
        .map(|parameter| match parameter {
            Parameter::Typed(_, of) => of.oid(),
            Parameter::Text(_) | Parameter::Null => 0,
        })
        .collect();
    let mut parameters = Parameters::default();
    for parameter in &query.parameters {
        let (format, value) = match parameter {
            Parameter::Typed(value, _) if value.is_null() => (Format::Binary, None),
            Parameter::Typed(value, of) => {
                let mut bytes = Vec::new();
                encode_binary(value, *of, &mut bytes);
                (Format::Binary, Some(Bytes::from(bytes)))
            }
            Parameter::Text(text) => (Format::Text, Some(Bytes::from(text.clone()))),
            Parameter::Null => (Format::Text, None),
        };
        parameters.formats.push(format);
        parameters.values.push(value);
    }
    session.parse("", &query.text, &types).await?;
    session.bind("", "", parameters, vec![Format::Binary]).await
}

/// Begins a statement: its rows are pulled by whoever asked, all else is run to its end.
async fn start(mut session: Session, query: &Query, place: Place) -> Result<Response> {
    bind(&mut session, query).await?;
    let columns = session.describe_portal("").await?.columns;
    let first = session.execute("", 0).await?;
    match columns {
        Some(columns) => {
            let mut source = Pulled {
                session,
                place: Some(place),
                ready: Vec::new().into_iter(),
                tag: String::new(),
                is_done: false,
            };
            source.take(first).await?;
            Ok(Response::Rows(Rows { columns, source: Box::new(source) }))
        }
        None => {
            let done = finish(&mut session, first).await?;
            session.sync().await?;
            Ok(Response::Done(done))
        }
    }
}

/// Runs a statement of a batch; its rows are kept.
async fn collect(session: &mut Session, query: &Query) -> Result<Response> {
    bind(session, query).await?;
    let columns = session.describe_portal("").await?.columns;
    let mut step = session.execute("", 0).await?;
    let Some(columns) = columns else { return Ok(Response::Done(finish(session, step).await?)) };
    let mut rows = Vec::new();
    let tag = loop {
        match step {
            Executed::Rows(page) => rows.extend(values(page)),
            Executed::Complete(tag) => break tag,
            Executed::Empty => break String::new(),
            other => return Err(unfit(&other)),
        }
        step = session.resume("").await?;
    };
    Ok(Response::Rows(Rows { columns, source: Box::new(Kept { rows: rows.into_iter(), tag }) }))
}

async fn finish(session: &mut Session, mut step: Executed) -> Result<Done> {
    loop {
        match step {
            Executed::Complete(tag) => {
                let rows = tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
                return Ok(Done { tag, rows });
            }
            Executed::Empty => return Ok(Done::default()),
            Executed::Rows(_) => step = session.resume("").await?,
            other => return Err(unfit(&other)),
        }
    }
}

fn unfit(step: &Executed) -> Error {
    match step {
        Executed::CopyIn(_) | Executed::CopyOut(_) | Executed::CopyData(_) => Error::unsupported(
            "COPY through standard input or output is for the SQL door",
            "Use INSERT or SELECT.",
        ),
        Executed::Suspended | Executed::Rows(_) | Executed::Complete(_) | Executed::Empty => {
            Error::internal("a statement stopped where it could not")
        }
    }
}

fn values(page: Page) -> Vec<Box<[Value]>> {
    page.into_values().into_iter().map(Vec::into_boxed_slice).collect()
}

/// Rows that are pulled from a running statement.
struct Pulled {
    session: Session,
    place: Option<Place>,
    ready: std::vec::IntoIter<Box<[Value]>>,
    tag: String,
    is_done: bool,
}

impl Pulled {
    async fn take(&mut self, step: Executed) -> Result<()> {
        match step {
            Executed::Rows(page) => self.ready = values(page).into_iter(),
            Executed::Complete(tag) => {
                self.tag = tag;
                self.end().await?;
            }
            Executed::Empty => self.end().await?,
            other => return Err(unfit(&other)),
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        self.is_done = true;
        self.session.sync().await?;
        self.place = None;
        Ok(())
    }
}

impl RowSource for Pulled {
    fn next(&mut self, rows_max: usize) -> BoxFuture<'_, Result<Option<Vec<Box<[Value]>>>>> {
        Box::pin(async move {
            loop {
                let rows: Vec<Box<[Value]>> = self.ready.by_ref().take(rows_max.max(1)).collect();
                if !rows.is_empty() {
                    return Ok(Some(rows));
                }
                if self.is_done {
                    return Ok(None);
                }
                let step = self.session.resume("").await?;
                self.take(step).await?;
            }
        })
    }

    fn tag(&self) -> String {
        self.tag.clone()
    }
}

/// Rows of a batch, which are all here.
struct Kept {
    rows: std::vec::IntoIter<Box<[Value]>>,
    tag: String,
}

impl RowSource for Kept {
    fn next(&mut self, rows_max: usize) -> BoxFuture<'_, Result<Option<Vec<Box<[Value]>>>>> {
        let rows: Vec<Box<[Value]>> = self.rows.by_ref().take(rows_max.max(1)).collect();
        Box::pin(std::future::ready(Ok((!rows.is_empty()).then_some(rows))))
    }

    fn tag(&self) -> String {
        self.tag.clone()
    }
}
