//! Entries of the control group as bytes: `version u8 · kind u8 · id u128 · body`, and the answers it remembers.

use bytes::Bytes;
use model::{
    Code,
    catalog::Change,
    id::{CatalogVersion, ShardId, TableId, ViewId},
};

use super::{Put as _, Reader, Result, catalog, put_option};

const VERSION: u8 = 1;

/// One entry of the control group's log.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// Drawn at random by who asks; the same id gets the same answer, for as long as it is among the last 4,096.
    pub id: u128,
    /// What is asked.
    pub body: Body,
}

/// What can be asked of the control group.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// The first entry of a cluster: its superuser, first database and schema `public`.
    Bootstrap {
        /// The superuser's name.
        admin: String,
        /// Its SCRAM verifier.
        password: Option<String>,
        /// The first database's name.
        database: String,
    },
    /// So many object ids.
    AllocateIds(u32),
    /// A change of the catalog.
    Change(Change),
    /// A shard is going to hold a table.
    RegisterHolder {
        /// The shard.
        shard: ShardId,
        /// The table.
        table: TableId,
    },
    /// The next view, as `cluster` encodes it.
    PutView {
        /// Its number.
        id: ViewId,
        /// The one before; none for the first.
        predecessor: Option<ViewId>,
        /// Its bytes.
        view: Bytes,
    },
}

/// What the control group answers: a value, equal on all replicas.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// The first of the ids.
    Ids(u32),
    /// The catalog has this version now.
    Changed(CatalogVersion),
    /// The shard is a holder; it must hold at least this version of the descriptor.
    Registered(u64),
    /// The view is published.
    Published,
    /// No.
    Refused {
        /// The code.
        code: Code,
        /// The message.
        message: String,
    },
}

/// A request's bytes.
pub fn to_bytes(request: &Request) -> Bytes {
    let mut out = Vec::with_capacity(128);
    out.push(VERSION);
    let kind = match &request.body {
        Body::Bootstrap { .. } => 1,
        Body::AllocateIds(_) => 2,
        Body::Change(_) => 3,
        Body::RegisterHolder { .. } => 4,
        Body::PutView { .. } => 5,
    };
    out.push(kind);
    out.put_u128(request.id);
    match &request.body {
        Body::Bootstrap { admin, password, database } => {
            out.put_blob(admin.as_bytes());
            put_option(&mut out, password.as_deref(), |out, text| out.put_blob(text.as_bytes()));
            out.put_blob(database.as_bytes());
        }
        Body::AllocateIds(count) => out.put_varint((*count).into()),
        Body::Change(change) => catalog::put_change(&mut out, change),
        Body::RegisterHolder { shard, table } => {
            out.put_varint(shard.0.into());
            out.put_varint(table.0.into());
        }
        Body::PutView { id, predecessor, view } => {
            out.put_varint(id.0);
            put_option(&mut out, *predecessor, |out, id| out.put_varint(id.0));
            out.put_blob(view);
        }
    }
    out.into()
}

/// Reads a request; it must be all there is.
pub fn decode(bytes: &Bytes) -> Result<Request> {
    let mut reader = Reader::new(bytes, "an entry of the control group");
    let version = reader.u8()?;
    if version != VERSION {
        return reader.unknown("the version of an entry of the control group", version.into());
    }
    let kind = reader.u8()?;
    let id = reader.u128()?;
    let body = match kind {
        1 => Body::Bootstrap {
            admin: reader.text()?,
            password: reader.option(Reader::text)?,
            database: reader.text()?,
        },
        2 => Body::AllocateIds(reader.u32()?),
        3 => Body::Change(catalog::read_change(&mut reader)?),
        4 => Body::RegisterHolder { shard: ShardId(reader.u32()?), table: TableId(reader.u32()?) },
        5 => Body::PutView {
            id: ViewId(reader.varint()?),
            predecessor: reader.option(|reader| Ok(ViewId(reader.varint()?)))?,
            view: reader.blob()?,
        },
        kind => return reader.unknown("an entry of the control group", kind.into()),
    };
    reader.end()?;
    Ok(Request { id, body })
}

/// A remembered answer's bytes.
pub fn answer_to_bytes(id: u128, answer: &Answer) -> Bytes {
    let mut out = vec![VERSION];
    out.put_u128(id);
    match answer {
        Answer::Ids(first) => {
            out.push(1);
            out.put_varint((*first).into());
        }
        Answer::Changed(version) => {
            out.push(2);
            out.put_varint(version.0);
        }
        Answer::Registered(version) => {
            out.push(3);
            out.put_varint(*version);
        }
        Answer::Published => out.push(4),
        Answer::Refused { code, message } => {
            out.push(5);
            out.put_blob(code.sqlstate().as_bytes());
            out.put_blob(message.as_bytes());
        }
    }
    out.into()
}

/// Reads a remembered answer and the id it was for.
pub fn decode_answer(bytes: &Bytes) -> Result<(u128, Answer)> {
    let mut reader = Reader::new(bytes, "an answer of the control group");
    let version = reader.u8()?;
    if version != VERSION {
        return reader.unknown("the version of an answer", version.into());
    }
    let id = reader.u128()?;
    let answer = match reader.u8()? {
        1 => Answer::Ids(reader.u32()?),
        2 => Answer::Changed(CatalogVersion(reader.varint()?)),
        3 => Answer::Registered(reader.varint()?),
        4 => Answer::Published,
        5 => {
            let state = reader.text()?;
            let code = Code::from_sqlstate(&state).ok_or_else(|| reader.malformed())?;
            Answer::Refused { code, message: reader.text()? }
        }
        kind => return reader.unknown("an answer", kind.into()),
    };
    reader.end()?;
    Ok((id, answer))
}
