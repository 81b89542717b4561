//! Identities: what things are called on the wire, in keys and in the log.
//!
//! Invariants:
//! - Ids of databases, schemas, tables, indexes, sequences, roles and nodes are allotted by the control group and
//!   never reused.
//! - A [`PartitionId`] has exactly one spelling: its canonical bytes, made by [`crate::key`]. Whoever receives bytes
//!   parses them again and refuses any other spelling.
//! - The point of a partition is the high half of xxh3-64 over its canonical bytes.
//!
//! Not here: how rows are keyed inside a partition (`storage::keyspace`).

use std::{fmt, str::FromStr};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::{Code, Error, Result},
    key,
    value::Value,
};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A database.
    DatabaseId(u32), "d"
);
id!(
    /// A schema: a namespace, and the transaction domain.
    SchemaId(u32), "h"
);
id!(
    /// A table or collection. Also its `pg_class.oid`: object ids share one number space, so they are unique as OIDs.
    TableId(u32), "t"
);
id!(
    /// A secondary or primary index of a table.
    IndexId(u32), "i"
);
id!(
    /// A sequence.
    SequenceId(u32), "q"
);
id!(
    /// A role: who may do what.
    RoleId(u32), "r"
);
id!(
    /// A server process with a data directory, as the control group numbered it.
    NodeId(u32), "n"
);
id!(
    /// A contiguous ring range with one Raft group. Shard 0 is the control group.
    ShardId(u32), "s"
);
id!(
    /// An ownership view.
    ViewId(u64), "v"
);
id!(
    /// One client connection's session, issued by the server.
    SessionId(u64), "x"
);
id!(
    /// A shard's own counter: one step per applied command. Never the Raft index.
    Revision(u64), ""
);
id!(
    /// A place in a Raft log.
    LogIndex(u64), ""
);
id!(
    /// Counts changes of owner of a shard; allotted by the claim in the shard's log.
    Epoch(u64), "e"
);
id!(
    /// Counts starts of a node's process; synced before it listens, it only grows.
    Boot(u64), "b"
);
id!(
    /// A version of the catalog.
    CatalogVersion(u64), "c"
);
id!(
    /// A column's number: 1-based, never reused (`pg_attribute.attnum`).
    ColumnNumber(u16), "#"
);
id!(
    /// A place on the 32-bit hash ring.
    Point(u32), "@"
);

/// A table's rows lie under a storage id, so that TRUNCATE and a big load are a switch of one number.
///
/// Generation 0 is what a partition starts with; a later one is the revision of the entry that made it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StorageId {
    /// The table.
    pub table: TableId,
    /// Which of its generations.
    pub generation: Revision,
}

/// The name of one attempt to change something, chosen by the client or its gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub u128);

impl CommandId {
    /// The milliseconds since 1970 inside a UUIDv7 (RFC 9562 §5.7); none for other versions.
    pub fn unix_millis(self) -> Option<u64> {
        let version = (self.0 >> 76) & 0xf;
        (version == 7).then_some((self.0 >> 80) as u64)
    }
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_u128(self.0).fmt(f)
    }
}

impl FromStr for CommandId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match uuid::Uuid::try_parse(text) {
            Ok(id) if !id.is_nil() && id.hyphenated().to_string() == text => Ok(Self(id.as_u128())),
            _ => Err(Error::new(
                Code::InvalidTextRepresentation,
                format!("invalid command id: \"{}\"", text.escape_debug()),
            )
            .with_hint("A command id is a UUID in lower-case, hyphenated form.")),
        }
    }
}

/// The unit of atomicity, order and linearizability: (database, schema, partition key).
///
/// Cheap to clone; carries its canonical bytes and its point.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    canonical: Bytes,
    point: Point,
}

/// The longest text inside a partition key, in bytes.
pub const PARTITION_TEXT_BYTES_MAX: usize = 256;

impl PartitionId {
    /// The partition of `schema` whose key is `key`; an empty key names the schema's default partition.
    ///
    /// Text in a key is at most 256 bytes, not blank, without control characters (`22023`).
    pub fn new(database: DatabaseId, schema: SchemaId, key: &[Value]) -> Result<Self> {
        check_partition_key(key)?;
        let mut values = vec![Value::Int8(i64::from(database.0)), Value::Int8(i64::from(schema.0))];
        values.extend_from_slice(key);
        let mut canonical = Vec::with_capacity(8 + 16 * key.len());
        key::encode_tuple(&mut canonical, &values).map_err(|refused| {
            Error::new(Code::FeatureNotSupported, refused.to_string())
                .with_hint("Partition by columns of a scalar type that has an order.")
        })?;
        Ok(Self::from_canonical_unchecked(canonical.into()))
    }

    /// The default partition of a schema: where tables without `PARTITION BY` live.
    pub fn default_of(database: DatabaseId, schema: SchemaId) -> Self {
        Self::new(database, schema, &[]).expect("an empty key has nothing to refuse")
    }

    /// Parses canonical bytes; any other spelling is refused (`22023`).
    pub fn parse(canonical: &[u8]) -> Result<Self> {
        let (database, schema, key) = Self::split(canonical)?;
        let id = Self::new(database, schema, &key)?;
        if id.canonical != canonical {
            return Err(non_canonical());
        }
        Ok(id)
    }

    /// The canonical bytes: order-preserving and self-delimiting.
    pub fn as_bytes(&self) -> &[u8] {
        &self.canonical
    }

    /// The canonical bytes, shared.
    pub fn to_bytes(&self) -> Bytes {
        self.canonical.clone()
    }

    /// Its place on the ring.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Database, schema and key values it is made of.
    pub fn parts(&self) -> (DatabaseId, SchemaId, Vec<Value>) {
        Self::split(&self.canonical).expect("a partition id holds canonical bytes")
    }

    fn split(canonical: &[u8]) -> Result<(DatabaseId, SchemaId, Vec<Value>)> {
        let values = key::decode_tuple(canonical).map_err(|_| non_canonical())?;
        let mut values = values.into_iter();
        let mut id = || match values.next() {
            Some(Value::Int8(id)) => u32::try_from(id).map_err(|_| non_canonical()),
            _ => Err(non_canonical()),
        };
        let database = DatabaseId(id()?);
        let schema = SchemaId(id()?);
        Ok((database, schema, values.collect()))
    }

    fn from_canonical_unchecked(canonical: Bytes) -> Self {
        let point = Point((xxh3_64(&canonical) >> 32) as u32);
        Self { canonical, point }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (database, schema, key) = self.parts();
        write!(f, "{database}/{schema}/(")?;
        for (index, value) in key.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{value:?}")?;
        }
        write!(f, ")")
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn check_partition_key(key: &[Value]) -> Result<()> {
    for value in key {
        let fault = match value {
            Value::Null => "a partition key cannot be null",
            Value::Text(text) if text.len() > PARTITION_TEXT_BYTES_MAX => {
                "text in a partition key is too long"
            }
            Value::Text(text) if text.trim().is_empty() => "text in a partition key is blank",
            Value::Text(text) if text.chars().any(char::is_control) => {
                "text in a partition key holds a control character"
            }
            _ => continue,
        };
        return Err(Error::new(Code::InvalidParameterValue, fault)
            .with_hint("Text in a partition key is 1 to 256 bytes, not blank, without control characters."));
    }
    Ok(())
}

fn non_canonical() -> Error {
    Error::new(Code::InvalidParameterValue, "partition id is not in canonical form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_id_has_one_spelling() {
        let id = PartitionId::new(DatabaseId(1), SchemaId(2), &[Value::text("acme"), Value::Int8(7)])
            .expect("a plain key");
        assert_eq!(PartitionId::parse(id.as_bytes()).expect("its own bytes"), id);
        let mut other = id.as_bytes().to_vec();
        other.push(0);
        assert!(PartitionId::parse(&other).is_err());
    }

    #[test]
    fn integers_of_every_width_name_the_same_partition() {
        let wide = PartitionId::new(DatabaseId(1), SchemaId(2), &[Value::Int8(7)]).expect("a plain key");
        let narrow = PartitionId::new(DatabaseId(1), SchemaId(2), &[Value::Int2(7)]).expect("a plain key");
        assert_eq!(wide, narrow);
    }

    #[test]
    fn blank_long_and_control_texts_are_refused() {
        for text in ["", "  ", "a\u{7}b", &"x".repeat(257)] {
            assert!(PartitionId::new(DatabaseId(1), SchemaId(2), &[Value::text(text)]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_a_version_7_id_carries_a_time() {
        let v7: CommandId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().expect("a uuid");
        assert_eq!(v7.unix_millis(), Some(0x0190_163d_8694));
        let v4: CommandId = "9b2b5c0e-6a6b-4f0e-8a34-0d1f2c3b4a59".parse().expect("a uuid");
        assert_eq!(v4.unix_millis(), None);
        assert!("9B2B5C0E-6A6B-4F0E-8A34-0D1F2C3B4A59".parse::<CommandId>().is_err());
    }
}
