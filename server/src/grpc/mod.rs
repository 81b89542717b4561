//! The SDK's door: gRPC calls become requests of a session.
//!
//! Invariants:
//! - A call without a valid bearer token reaches no session (`UNAUTHENTICATED`).
//! - Rows leave in pages bounded by rows and bytes; a slow client holds back its own statement, nothing else.
//! - Every refusal carries all its fields (`sdk::convert`) beside a gRPC code from the total match in [`status`].
//!
//! Not here: who a token belongs to (`auth`), what a session does.

mod accept;
pub mod status;

use std::{pin::Pin, sync::Arc};

use futures::Stream;
use model::{
    port::Handler,
    request::{Request as Ask, Response as Answer, Rows},
};
use sdk::{
    convert,
    proto::{
        self,
        keystead_server::{Keystead, KeysteadServer},
        query_reply::Part,
    },
};
use tonic::{Request, Response, Status};

pub use accept::serve;

use self::status::refuse;

/// The session behind a token, if it is one.
pub type Callers = Arc<dyn Fn(&str) -> Option<Arc<dyn Handler>> + Send + Sync>;

/// Rows of a page, at most.
const PAGE_ROWS_MAX: usize = 256;

/// Bytes after which a page is closed.
const PAGE_BYTES_MAX: usize = 256 * 1024;

/// Rows a batch may answer in all, since its reply is one message.
const BATCH_ROWS_MAX: usize = 10_000;

/// The largest message taken, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The service, to be added to a tonic router.
pub fn service(callers: Callers) -> KeysteadServer<Door> {
    KeysteadServer::new(Door { callers }).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// Answers the calls of the contract.
#[derive(Clone)]
pub struct Door {
    callers: Callers,
}

impl Door {
    fn caller<T>(&self, request: &Request<T>) -> Result<Arc<dyn Handler>, Status> {
        let header = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer "));
        let session = token.and_then(|token| (self.callers)(token));
        session.ok_or_else(|| {
            let error = model::Error::new(model::Code::InvalidAuthorizationSpecification, "no valid token")
                .with_hint("Send the metadata `authorization: Bearer TOKEN`.");
            refuse(&error)
        })
    }
}

type Replies = Pin<Box<dyn Stream<Item = Result<proto::QueryReply, Status>> + Send>>;

#[tonic::async_trait]
impl Keystead for Door {
    type QueryStream = Replies;

    async fn query(&self, request: Request<proto::QueryRequest>) -> Result<Response<Replies>, Status> {
        let session = self.caller(&request)?;
        let query = convert::query(request.into_inner()).map_err(|error| refuse(&error))?;
        let answer = session.handle(Ask::Query(query)).await.map_err(|error| refuse(&error))?;
        let replies: Replies = match answer {
            Answer::Rows(rows) => Box::pin(pages(rows)),
            Answer::Done(done) => {
                let header = Part::Header(proto::Header::default());
                let parts = [header, Part::Done(convert::done(&done))];
                Box::pin(futures::stream::iter(parts.map(|part| Ok(proto::QueryReply { part: Some(part) }))))
            }
            Answer::Batch(_) | Answer::CommandStatus(_) => return Err(mismatched()),
        };
        Ok(Response::new(replies))
    }

    async fn batch(
        &self,
        request: Request<proto::BatchRequest>,
    ) -> Result<Response<proto::BatchReply>, Status> {
        let session = self.caller(&request)?;
        let message = request.into_inner();
        let command_id = convert::command_id(&message.command_id).map_err(|error| refuse(&error))?;
        let mut queries = Vec::with_capacity(message.statements.len());
        for statement in message.statements {
            let mut query = convert::query(statement).map_err(|error| refuse(&error))?;
            query.command_id = None;
            queries.push(query);
        }
        // The name belongs to the whole: its first statement carries it.
        if let Some(first) = queries.first_mut() {
            first.command_id = command_id;
        }
        let answer = session.handle(Ask::Batch(queries)).await.map_err(|error| refuse(&error))?;
        let Answer::Batch(answers) = answer else { return Err(mismatched()) };
        let mut results = Vec::with_capacity(answers.len());
        let mut room = BATCH_ROWS_MAX;
        for answer in answers {
            results.push(whole(answer, &mut room).await?);
        }
        Ok(Response::new(proto::BatchReply { results }))
    }

    async fn command_status(
        &self,
        request: Request<proto::CommandStatusRequest>,
    ) -> Result<Response<proto::CommandStatusReply>, Status> {
        let session = self.caller(&request)?;
        let id = convert::command_id(&request.into_inner().command_id).map_err(|error| refuse(&error))?;
        let id = id.ok_or_else(|| {
            refuse(&model::Error::new(model::Code::InvalidParameterValue, "command id is empty"))
        })?;
        match session.handle(Ask::CommandStatus(id)).await.map_err(|error| refuse(&error))? {
            Answer::CommandStatus(outcome) => Ok(Response::new(convert::status(outcome.as_ref()))),
            Answer::Rows(_) | Answer::Done(_) | Answer::Batch(_) => Err(mismatched()),
        }
    }
}

fn mismatched() -> Status {
    refuse(&model::Error::internal("a request was answered as something else"))
}

/// What a stream of pages goes through.
enum Step {
    Header(Rows),
    Pages(Rows, u64),
    End,
}

fn pages(rows: Rows) -> impl Stream<Item = Result<proto::QueryReply, Status>> + Send {
    futures::stream::unfold(Step::Header(rows), |step| async move {
        let (part, next) = match step {
            Step::End => return None,
            Step::Header(rows) => {
                let header = convert::header(&rows.columns);
                (Ok(Part::Header(header)), Step::Pages(rows, 0))
            }
            Step::Pages(mut rows, count) => match next_page(&mut rows).await {
                Ok(Some(page)) => {
                    let count = count + page.rows.len() as u64;
                    (Ok(Part::Page(page)), Step::Pages(rows, count))
                }
                Ok(None) => (Ok(Part::Done(proto::Done { tag: rows.source.tag(), rows: count })), Step::End),
                Err(error) => (Err(refuse(&error)), Step::End),
            },
        };
        Some((part.map(|part| proto::QueryReply { part: Some(part) }), next))
    })
}

async fn next_page(rows: &mut Rows) -> model::Result<Option<proto::Page>> {
    let mut page = proto::Page::default();
    let mut bytes = 0;
    while page.rows.len() < PAGE_ROWS_MAX && bytes < PAGE_BYTES_MAX {
        let Some(values) = rows.source.next(PAGE_ROWS_MAX - page.rows.len()).await? else { break };
        for row in values {
            let row = convert::row(&row, &rows.columns);
            bytes += row
                .cells
                .iter()
                .map(|cell| cell.value.as_ref().map_or(1, |value| value.len() + 4))
                .sum::<usize>();
            page.rows.push(row);
        }
    }
    Ok((!page.rows.is_empty()).then_some(page))
}

/// One statement's whole result, for the reply of a batch.
async fn whole(answer: Answer, room: &mut usize) -> Result<proto::Result, Status> {
    match answer {
        Answer::Done(done) => {
            Ok(proto::Result { done: Some(convert::done(&done)), ..proto::Result::default() })
        }
        Answer::Rows(mut rows) => {
            let header = convert::header(&rows.columns);
            let mut out = Vec::new();
            while let Some(page) = next_page(&mut rows).await.map_err(|error| refuse(&error))? {
                *room = room.checked_sub(page.rows.len()).ok_or_else(|| {
                    let message = format!("a batch answers at most {BATCH_ROWS_MAX} rows");
                    let error = model::Error::new(model::Code::ProgramLimitExceeded, message);
                    refuse(&error.with_hint("Read large results with a query of their own."))
                })?;
                out.extend(page.rows);
            }
            let done = proto::Done { tag: rows.source.tag(), rows: out.len() as u64 };
            Ok(proto::Result { header: Some(header), rows: out, done: Some(done) })
        }
        Answer::Batch(_) | Answer::CommandStatus(_) => Err(mismatched()),
    }
}
