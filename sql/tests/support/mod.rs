//! A session over a store in memory, and rows as text: what the tests of whole statements stand on.

#![allow(dead_code, missing_docs, unreachable_pub)]
#![expect(clippy::disallowed_methods, reason = "these tests bring the clock that the server otherwise gives")]

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use model::{
    Error, Result,
    id::SessionId,
    port::Dispatch,
    time::{Clock, Timestamp},
    value::text_io,
};
use sql::{
    engine::{Engine, Options},
    session::{Executed, Login, Page, Session},
};
use storage::standalone::Standalone;

/// The wall clock and the process's own.
pub struct SystemClock(Instant);

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Timestamp::from_unix_micros(i64::try_from(since.as_micros()).expect("before 294000"))
            .expect("in range")
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A server in memory.
pub struct Server {
    pub engine: Arc<Engine>,
    next: std::sync::atomic::AtomicU64,
}

/// What a statement gave: rows as text, and its tag.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub rows: Vec<Vec<Option<String>>>,
    pub tag: String,
}

impl Server {
    pub fn new() -> Self {
        Self::over(|store| Arc::new(store), Options::default())
    }

    /// A server over a store in memory that something stands before.
    pub fn over(front: impl FnOnce(Standalone) -> Arc<dyn Dispatch>, options: Options) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
        let store = front(Standalone::new(clock.clone()).expect("a store in memory"));
        let options = Options { lock_wait: Duration::from_secs(5), ..options };
        Self { engine: Engine::new(store, clock, options), next: 1.into() }
    }

    pub fn connect(&self) -> Connection {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let login = Login {
            session: SessionId(number),
            role: "admin".to_owned(),
            database: "keystead".to_owned(),
            process_id: number as i32,
            client: None,
            parameters: Vec::new(),
        };
        Connection(Session::open(&self.engine, login).expect("a session"))
    }
}

/// A session that answers in texts.
pub struct Connection(pub Session);

impl Connection {
    /// Runs a text of statements by the simple protocol; the answer of each.
    pub async fn simple(&mut self, text: &str) -> Result<Vec<Answer>> {
        let result = self.simple_steps(text).await;
        let synced = self.0.sync().await;
        result.and_then(|answers| synced.map(|()| answers))
    }

    async fn simple_steps(&mut self, text: &str) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for statement in self.0.split(text).await? {
            let description = self.0.begin_simple(&statement).await?;
            let mut answer = Answer::default();
            loop {
                match self.0.resume_simple().await? {
                    Executed::Rows(page) => {
                        let columns = description.columns.clone().expect("rows have columns");
                        answer.rows.extend(texts(&self.0, page, &columns));
                    }
                    Executed::Complete(tag) => {
                        answer.tag = tag;
                        break;
                    }
                    Executed::Empty => break,
                    _ => return Err(Error::internal("COPY in a test of simple statements")),
                }
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Runs a `COPY … FROM STDIN` and gives it its data.
    pub async fn copy_in(&mut self, text: &str, data: &str) -> Result<()> {
        let statements = self.0.split(text).await?;
        self.0.begin_simple(&statements[0]).await?;
        let begun = self.0.resume_simple().await?;
        assert!(matches!(begun, Executed::CopyIn(_)), "{text} takes no data");
        let copied = match self.0.copy_data(data.to_owned().into()).await {
            Ok(()) => self.0.copy_done().await.map(drop),
            Err(fault) => Err(fault),
        };
        let synced = self.0.sync().await;
        copied.and(synced)
    }

    /// Runs one statement.
    pub async fn run(&mut self, text: &str) -> Result<Answer> {
        Ok(self.simple(text).await?.pop().unwrap_or_default())
    }

    /// The rows of one statement, columns joined by `|`.
    pub async fn rows(&mut self, text: &str) -> Vec<String> {
        let answer = self.run(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        answer.rows.into_iter().map(joined).collect()
    }

    /// The SQLSTATE and message that a statement fails with.
    pub async fn fault(&mut self, text: &str) -> (String, String) {
        let error = self.run(text).await.err().unwrap_or_else(|| panic!("{text} was executed"));
        (error.code().sqlstate().to_owned(), error.message().to_owned())
    }
}

pub fn joined(row: Vec<Option<String>>) -> String {
    row.into_iter().map(|cell| cell.unwrap_or_else(|| "NULL".to_owned())).collect::<Vec<_>>().join("|")
}

fn texts(session: &Session, page: Page, columns: &[model::request::Column]) -> Vec<Vec<Option<String>>> {
    let context = session.text_context();
    page.into_values()
        .into_iter()
        .map(|row| {
            row.iter().zip(columns).map(|(value, column)| shown(value, column.data_type, &context)).collect()
        })
        .collect()
}

/// The text of a value; a type is shown by its name, as the wire shows it.
fn shown(value: &model::Value, ty: model::Type, context: &model::value::Context) -> Option<String> {
    match (value, ty) {
        (model::Value::Oid(oid), model::Type::Regtype) => {
            model::Type::from_oid(*oid).map(|ty| ty.to_string())
        }
        _ => text_io::to_text(value, ty, context),
    }
}
