//! The connection: one HTTP/2 channel, shared by all clones of a client.
//!
//! Invariants:
//! - A call that was not answered because the connection could not be made is tried again, at most [`TRIES_MAX`] times.
//! - A call that may have reached the server is tried again only if it carries a command id.

use std::{future::Future, time::Duration};

use model::id::CommandId;
use tonic::{
    Code, Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

use crate::{
    batch::Batch,
    convert,
    error::{Error, Result},
    proto::{self, command_status_reply::Status as Known, keystead_client::KeysteadClient},
    query::Query,
};

const TRIES_MAX: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

type Door = KeysteadClient<Channel>;

/// A client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    door: Door,
    authorization: MetadataValue<Ascii>,
}

/// A message whose repetition is harmless, or not.
pub(crate) trait Repeatable {
    fn may_repeat(&self) -> bool;
}

impl Repeatable for proto::QueryRequest {
    fn may_repeat(&self) -> bool {
        self.read_only || !self.command_id.is_empty()
    }
}

impl Repeatable for proto::BatchRequest {
    fn may_repeat(&self) -> bool {
        !self.command_id.is_empty()
    }
}

impl Repeatable for proto::CommandStatusRequest {
    fn may_repeat(&self) -> bool {
        true
    }
}

impl Client {
    /// Connects to a server's gRPC address, such as `http://127.0.0.1:7450`, with a token.
    pub async fn connect(address: &str, token: &str) -> Result<Self> {
        let endpoint =
            Endpoint::from_shared(address.to_owned()).map_err(|error| Error::Address(error.to_string()))?;
        let channel = endpoint.connect().await.map_err(|error| Error::Connection(error.to_string()))?;
        let authorization = format!("Bearer {token}").parse();
        let authorization = authorization.map_err(|_| Error::Address("the token is not ASCII".to_owned()))?;
        Ok(Self { door: KeysteadClient::new(channel), authorization })
    }

    /// One statement.
    pub fn query(&self, sql: &str) -> Query<'_> {
        Query::new(self, sql)
    }

    /// Statements that succeed or fail together.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// What became of a command id: the revision it made, none if it is not known.
    ///
    /// A rejected command is an error: [`Error::Refused`].
    pub async fn command_status(&self, id: CommandId) -> Result<Option<u64>> {
        let message = proto::CommandStatusRequest { command_id: id.0.to_be_bytes().to_vec() };
        let reply = self.call(message, |mut door, request| async move { door.command_status(request).await });
        let reply = reply.await?.into_inner();
        match reply.status() {
            Known::Unknown => Ok(None),
            Known::Applied => Ok(Some(reply.revision)),
            Known::Rejected => {
                let detail = reply.error.unwrap_or_default();
                let code = model::Code::from_sqlstate(&detail.code);
                let code = code.ok_or_else(|| Error::Malformed(format!("SQLSTATE {}", detail.code)))?;
                Err(Error::Refused(model::Error::new(code, detail.message)))
            }
        }
    }

    pub(crate) async fn call<M, R, F>(
        &self,
        message: M,
        send: impl Fn(Door, Request<M>) -> F,
    ) -> Result<Response<R>>
    where
        M: Clone + Repeatable,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        loop {
            let mut request = Request::new(message.clone());
            request.metadata_mut().insert("authorization", self.authorization.clone());
            let status = match send(self.door.clone(), request).await {
                Ok(response) => return Ok(response),
                Err(status) => status,
            };
            let again = match convert::error_from_status(&status) {
                Some(refused) => refused.code().is_retryable() && message.may_repeat(),
                None => status.code() == Code::Unavailable && message.may_repeat(),
            };
            if !again || tries == TRIES_MAX {
                return Err(status.into());
            }
            tries += 1;
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}
