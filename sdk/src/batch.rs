//! Statements that succeed or fail together.

use model::id::CommandId;

use crate::{
    client::Client,
    convert,
    error::{Error, Result},
    proto,
    query::Parameter,
    row::Row,
};

/// Statements that are being put together.
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch<'a> {
    client: &'a Client,
    message: proto::BatchRequest,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        // Named from the start, so that the retry inside `commit` happens at most once.
        let id = uuid::Uuid::now_v7().as_u128();
        let command_id = id.to_be_bytes().to_vec();
        Self { client, message: proto::BatchRequest { statements: Vec::new(), command_id } }
    }

    /// The next statement.
    pub fn statement(mut self, sql: &str, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        let parameters = parameters.into_iter().map(|parameter| parameter.0).collect();
        let statement =
            proto::QueryRequest { sql: sql.to_owned(), parameters, ..proto::QueryRequest::default() };
        self.message.statements.push(statement);
        self
    }

    /// Names the write, instead of the id it has by itself.
    pub fn command_id(mut self, id: CommandId) -> Self {
        self.message.command_id = id.0.to_be_bytes().to_vec();
        self
    }

    /// Runs all statements in one transaction; answers the rows of each.
    pub async fn commit(self) -> Result<Vec<Vec<Row>>> {
        let reply =
            self.client.call(self.message, |mut door, request| async move { door.batch(request).await });
        let results = reply.await?.into_inner().results;
        let rows = |result: proto::Result| {
            let columns = convert::columns(&result.header.unwrap_or_default()).map_err(Error::Malformed)?;
            let columns: std::sync::Arc<[_]> = columns.into();
            let row = |row: &proto::Row| {
                let values = convert::values(row, &columns).map_err(Error::Malformed)?;
                Ok(Row::new(std::sync::Arc::clone(&columns), values))
            };
            result.rows.iter().map(row).collect()
        };
        results.into_iter().map(rows).collect()
    }
}
