//! One statement: its text, its parameters, its rows.

use std::{collections::VecDeque, sync::Arc};

use model::{id::CommandId, request::Column};
use tonic::Streaming;

use crate::{
    client::Client,
    convert,
    error::{Error, Result},
    proto::{self, parameter::Value as Kind, query_reply::Part},
    row::Row,
};

/// A value of `$1`, `$2`, …; texts take whatever type the statement decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter(pub(crate) proto::Parameter);

impl From<&str> for Parameter {
    fn from(text: &str) -> Self {
        Self(convert::text(text))
    }
}

impl From<String> for Parameter {
    fn from(text: String) -> Self {
        Self(convert::text(&text))
    }
}

impl From<i32> for Parameter {
    fn from(number: i32) -> Self {
        Self(proto::Parameter { value: Some(Kind::Integer(i64::from(number))) })
    }
}

impl From<i64> for Parameter {
    fn from(number: i64) -> Self {
        Self(proto::Parameter { value: Some(Kind::Integer(number)) })
    }
}

impl From<f64> for Parameter {
    fn from(number: f64) -> Self {
        Self(proto::Parameter { value: Some(Kind::Float(number)) })
    }
}

impl From<bool> for Parameter {
    fn from(truth: bool) -> Self {
        Self(proto::Parameter { value: Some(Kind::Boolean(truth)) })
    }
}

impl From<Vec<u8>> for Parameter {
    fn from(bytes: Vec<u8>) -> Self {
        Self(proto::Parameter { value: Some(Kind::Bytes(bytes)) })
    }
}

impl<T: Into<Parameter>> From<Option<T>> for Parameter {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self(proto::Parameter { value: None }), Into::into)
    }
}

/// A statement that is being put together.
#[must_use = "a query does nothing until it is run"]
pub struct Query<'a> {
    client: &'a Client,
    message: proto::QueryRequest,
}

impl<'a> Query<'a> {
    pub(crate) fn new(client: &'a Client, sql: &str) -> Self {
        let message = proto::QueryRequest { sql: sql.to_owned(), ..proto::QueryRequest::default() };
        Self { client, message }
    }

    /// The next parameter.
    pub fn bind(mut self, value: impl Into<Parameter>) -> Self {
        self.message.parameters.push(value.into().0);
        self
    }

    /// Refuses anything that writes.
    pub fn read_only(mut self) -> Self {
        self.message.read_only = true;
        self
    }

    /// Names the write, so that sending it again does it at most once.
    pub fn command_id(mut self, id: CommandId) -> Self {
        self.message.command_id = id.0.to_be_bytes().to_vec();
        self
    }

    /// Runs it and pulls rows as they are made.
    pub async fn stream(self) -> Result<RowStream> {
        let replies =
            self.client.call(self.message, |mut door, request| async move { door.query(request).await });
        RowStream::open(replies.await?.into_inner()).await
    }

    /// Runs it and collects all rows.
    pub async fn rows(self) -> Result<Vec<Row>> {
        let mut stream = self.stream().await?;
        let mut rows = Vec::new();
        while let Some(row) = stream.next().await? {
            rows.push(row);
        }
        Ok(rows)
    }

    /// Runs it and answers how many rows it changed or returned.
    pub async fn execute(self) -> Result<u64> {
        let mut stream = self.stream().await?;
        while stream.next().await?.is_some() {}
        Ok(stream.rows_affected())
    }
}

/// Rows on their way. Dropping it ends the statement.
pub struct RowStream {
    replies: Streaming<proto::QueryReply>,
    columns: Arc<[Column]>,
    page: VecDeque<proto::Row>,
    done: Option<proto::Done>,
}

impl RowStream {
    async fn open(mut replies: Streaming<proto::QueryReply>) -> Result<Self> {
        let first = replies.message().await?.and_then(|reply| reply.part);
        let Some(Part::Header(header)) = first else {
            return Err(Error::Malformed("the header is missing".to_owned()));
        };
        let columns = convert::columns(&header).map_err(Error::Malformed)?;
        Ok(Self { replies, columns: columns.into(), page: VecDeque::new(), done: None })
    }

    /// The columns of the rows.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The next row; none at the end.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(row) = self.page.pop_front() {
                let values = convert::values(&row, &self.columns).map_err(Error::Malformed)?;
                return Ok(Some(Row::new(Arc::clone(&self.columns), values)));
            }
            if self.done.is_some() {
                return Ok(None);
            }
            match self.replies.message().await?.and_then(|reply| reply.part) {
                Some(Part::Page(page)) => self.page = page.rows.into(),
                Some(Part::Done(done)) => self.done = Some(done),
                Some(Part::Header(_)) => return Err(Error::Malformed("a second header".to_owned())),
                None => return Err(Error::Malformed("the end is missing".to_owned())),
            }
        }
    }

    /// How many rows were changed or returned; 0 before the end.
    pub fn rows_affected(&self) -> u64 {
        self.done.as_ref().map_or(0, |done| done.rows)
    }
}
