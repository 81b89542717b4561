//! Commands and outcomes as bytes. Version 1.

use bytes::Bytes;
use model::{
    Code,
    command::{Command, Condition, Effect, Identity, LockSet, Outcome, Receipt, Rejection, Write},
    expr::{Arithmetic, Comparison, DEPTH_MAX, Expr, Program},
    id::{
        Boot, CatalogVersion, ColumnNumber, CommandId, Epoch, IndexId, NodeId, PartitionId, Revision, RoleId,
        SequenceId, SessionId, TableId,
    },
};

use super::{Put as _, Reader, Result, put_list, put_option, value};

/// The version that is written.
const VERSION: u8 = 1;

/// Appends a command.
pub fn encode(out: &mut Vec<u8>, command: &Command) {
    out.push(VERSION);
    match command.identity {
        Identity::Named { id, attempt, fingerprint, remember_secs } => {
            out.push(1);
            out.put_u128(id.0);
            out.put_varint(attempt.into());
            out.put_u128(fingerprint);
            out.put_varint(remember_secs.into());
        }
        Identity::Slot { node, boot, slot, number } => {
            out.push(2);
            out.put_varint(node.0.into());
            out.put_varint(boot.0);
            out.put_varint(slot.into());
            out.put_varint(number);
        }
        Identity::Sweep => out.push(3),
    }
    put_option(out, command.time_left, |out, left| out.put_varint(left));
    out.put_blob(command.partition.as_bytes());
    out.put_varint(command.principal.0.into());
    out.put_varint(command.catalog.0);
    put_option(out, command.locks, |out, locks| {
        out.put_varint(locks.epoch.0);
        out.put_varint(locks.session.0);
        out.put_varint(locks.id);
    });
    put_list(out, command.conditions.iter(), put_condition);
    put_list(out, command.writes.iter(), put_write);
}

/// A command's bytes.
pub fn to_bytes(command: &Command) -> Bytes {
    let mut out = Vec::with_capacity(128);
    encode(&mut out, command);
    out.into()
}

/// Reads a command; it must be all there is.
pub fn decode(bytes: &Bytes) -> Result<Command> {
    let mut reader = Reader::new(bytes, "a command");
    let command = read(&mut reader)?;
    reader.end()?;
    Ok(command)
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Command> {
    let version = reader.u8()?;
    if version != VERSION {
        return reader.unknown("the version of a command", version.into());
    }
    let identity = match reader.u8()? {
        1 => Identity::Named {
            id: CommandId(reader.u128()?),
            attempt: reader.u32()?,
            fingerprint: reader.u128()?,
            remember_secs: reader.u32()?,
        },
        2 => Identity::Slot {
            node: NodeId(reader.u32()?),
            boot: Boot(reader.varint()?),
            slot: reader.u16()?,
            number: reader.varint()?,
        },
        3 => Identity::Sweep,
        kind => return reader.unknown("an identity", kind.into()),
    };
    Ok(Command {
        identity,
        time_left: reader.option(Reader::varint)?,
        partition: read_partition(reader)?,
        principal: RoleId(reader.u32()?),
        catalog: CatalogVersion(reader.varint()?),
        locks: reader.option(|reader| {
            Ok(LockSet {
                epoch: Epoch(reader.varint()?),
                session: SessionId(reader.varint()?),
                id: reader.varint()?,
            })
        })?,
        conditions: reader.list(read_condition)?,
        writes: reader.list(read_write)?,
    })
}

/// A partition id in its one spelling.
pub(super) fn read_partition(reader: &mut Reader<'_>) -> Result<PartitionId> {
    let canonical = reader.blob()?;
    if canonical.len() > crate::keyspace::PARTITION_BYTES_MAX {
        return Err(reader.malformed());
    }
    PartitionId::parse(&canonical).map_err(|_| reader.malformed())
}

fn put_condition(out: &mut Vec<u8>, condition: &Condition) {
    match condition {
        Condition::RowRevision { table, key, revision } => {
            out.push(1);
            put_row(out, *table, key);
            out.put_varint(revision.0);
        }
        Condition::RowExists { table, key } => {
            out.push(2);
            put_row(out, *table, key);
        }
        Condition::RowAbsent { table, key } => {
            out.push(3);
            put_row(out, *table, key);
        }
        Condition::UniqueFree { table, index, key } => {
            out.push(4);
            put_row(out, *table, key);
            out.put_varint(index.0.into());
        }
        Condition::RangeEmpty { table, index, from, to } => {
            out.push(5);
            put_range(out, *table, *index, from, to);
        }
        Condition::RangeDigest { table, index, from, to, digest } => {
            out.push(6);
            put_range(out, *table, *index, from, to);
            out.put_u128(*digest);
        }
        Condition::TableUntouched { table, since } => {
            out.push(7);
            out.put_varint(table.0.into());
            out.put_varint(since.0);
        }
    }
}

fn read_condition(reader: &mut Reader<'_>) -> Result<Condition> {
    Ok(match reader.u8()? {
        1 => {
            let (table, key) = read_row(reader)?;
            Condition::RowRevision { table, key, revision: Revision(reader.varint()?) }
        }
        2 => {
            let (table, key) = read_row(reader)?;
            Condition::RowExists { table, key }
        }
        3 => {
            let (table, key) = read_row(reader)?;
            Condition::RowAbsent { table, key }
        }
        4 => {
            let (table, key) = read_row(reader)?;
            Condition::UniqueFree { table, index: IndexId(reader.u32()?), key }
        }
        5 => {
            let (table, index, from, to) = read_range(reader)?;
            Condition::RangeEmpty { table, index, from, to }
        }
        6 => {
            let (table, index, from, to) = read_range(reader)?;
            Condition::RangeDigest { table, index, from, to, digest: reader.u128()? }
        }
        7 => Condition::TableUntouched { table: TableId(reader.u32()?), since: Revision(reader.varint()?) },
        kind => return reader.unknown("a condition", kind.into()),
    })
}

fn put_row(out: &mut Vec<u8>, table: TableId, key: &[u8]) {
    out.put_varint(table.0.into());
    out.put_blob(key);
}

fn read_row(reader: &mut Reader<'_>) -> Result<(TableId, Bytes)> {
    Ok((TableId(reader.u32()?), reader.blob()?))
}

fn put_range(out: &mut Vec<u8>, table: TableId, index: Option<IndexId>, from: &[u8], to: &[u8]) {
    out.put_varint(table.0.into());
    put_option(out, index, |out, index| out.put_varint(index.0.into()));
    out.put_blob(from);
    out.put_blob(to);
}

fn read_range(reader: &mut Reader<'_>) -> Result<(TableId, Option<IndexId>, Bytes, Bytes)> {
    let table = TableId(reader.u32()?);
    let index = reader.option(|reader| Ok(IndexId(reader.u32()?)))?;
    Ok((table, index, reader.blob()?, reader.blob()?))
}

fn put_write(out: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Insert { table, key, row } => {
            out.push(1);
            put_row(out, *table, key);
            out.put_blob(row);
        }
        Write::Put { table, key, row } => {
            out.push(2);
            put_row(out, *table, key);
            out.put_blob(row);
        }
        Write::Delete { table, key } => {
            out.push(3);
            put_row(out, *table, key);
        }
        Write::Program { table, key, program, returning } => {
            out.push(4);
            put_row(out, *table, key);
            put_program(out, program);
            out.put_bool(*returning);
        }
        Write::Truncate { table } => {
            out.push(5);
            out.put_varint(table.0.into());
        }
        Write::Reserve { sequence, count } => {
            out.push(6);
            out.put_varint(sequence.0.into());
            out.put_varint((*count).into());
        }
        Write::SetSequence { sequence, value, called } => {
            out.push(7);
            out.put_varint(sequence.0.into());
            out.put_signed(*value);
            out.put_bool(*called);
        }
    }
}

fn read_write(reader: &mut Reader<'_>) -> Result<Write> {
    Ok(match reader.u8()? {
        1 => {
            let (table, key) = read_row(reader)?;
            Write::Insert { table, key, row: reader.blob()? }
        }
        2 => {
            let (table, key) = read_row(reader)?;
            Write::Put { table, key, row: reader.blob()? }
        }
        3 => {
            let (table, key) = read_row(reader)?;
            Write::Delete { table, key }
        }
        4 => {
            let (table, key) = read_row(reader)?;
            Write::Program { table, key, program: read_program(reader)?, returning: reader.bool()? }
        }
        5 => Write::Truncate { table: TableId(reader.u32()?) },
        6 => Write::Reserve { sequence: SequenceId(reader.u32()?), count: reader.u32()? },
        7 => Write::SetSequence {
            sequence: SequenceId(reader.u32()?),
            value: reader.signed()?,
            called: reader.bool()?,
        },
        kind => return reader.unknown("a write", kind.into()),
    })
}

fn put_program(out: &mut Vec<u8>, program: &Program) {
    put_option(out, program.guard.as_ref(), put_expr);
    put_list(out, program.assignments.iter(), |out, (column, expr)| {
        out.put_varint(column.0.into());
        put_expr(out, expr);
    });
}

fn read_program(reader: &mut Reader<'_>) -> Result<Program> {
    Ok(Program {
        guard: reader.option(|reader| read_expr(reader, 0))?,
        assignments: reader.list(|reader| Ok((ColumnNumber(reader.u16()?), read_expr(reader, 0)?)))?,
    })
}

fn put_expr(out: &mut Vec<u8>, expr: &Expr) {
    match expr {
        Expr::Column(column, of) => {
            out.push(1);
            out.put_varint(column.0.into());
            value::put_type(out, *of);
        }
        Expr::Constant(constant, of) => {
            out.push(2);
            value::put_type(out, *of);
            value::put(out, constant, *of);
        }
        Expr::Arithmetic(operator, left, right) => {
            out.push(3);
            out.push(match operator {
                Arithmetic::Add => 1,
                Arithmetic::Subtract => 2,
                Arithmetic::Multiply => 3,
                Arithmetic::Divide => 4,
                Arithmetic::Modulo => 5,
            });
            put_expr(out, left);
            put_expr(out, right);
        }
        Expr::Compare(operator, left, right) => {
            out.push(4);
            out.push(match operator {
                Comparison::Equal => 1,
                Comparison::NotEqual => 2,
                Comparison::Less => 3,
                Comparison::LessOrEqual => 4,
                Comparison::Greater => 5,
                Comparison::GreaterOrEqual => 6,
            });
            put_expr(out, left);
            put_expr(out, right);
        }
        Expr::And(left, right) => {
            out.push(5);
            put_expr(out, left);
            put_expr(out, right);
        }
        Expr::Or(left, right) => {
            out.push(6);
            put_expr(out, left);
            put_expr(out, right);
        }
        Expr::Not(inner) => {
            out.push(7);
            put_expr(out, inner);
        }
        Expr::IsNull(inner) => {
            out.push(8);
            put_expr(out, inner);
        }
        Expr::Coalesce(items) => {
            out.push(9);
            put_list(out, items.iter(), put_expr);
        }
        Expr::Concat(left, right) => {
            out.push(10);
            put_expr(out, left);
            put_expr(out, right);
        }
    }
}

fn read_expr(reader: &mut Reader<'_>, depth: usize) -> Result<Expr> {
    if depth > DEPTH_MAX {
        return Err(reader.malformed());
    }
    let operand = |reader: &mut Reader<'_>| read_expr(reader, depth + 1).map(Box::new);
    Ok(match reader.u8()? {
        1 => Expr::Column(ColumnNumber(reader.u16()?), value::read_type(reader)?),
        2 => {
            let of = value::read_type(reader)?;
            Expr::Constant(value::read(reader, of)?, of)
        }
        3 => {
            let operator = match reader.u8()? {
                1 => Arithmetic::Add,
                2 => Arithmetic::Subtract,
                3 => Arithmetic::Multiply,
                4 => Arithmetic::Divide,
                5 => Arithmetic::Modulo,
                kind => return reader.unknown("an arithmetic operator", kind.into()),
            };
            Expr::Arithmetic(operator, operand(reader)?, operand(reader)?)
        }
        4 => {
            let operator = match reader.u8()? {
                1 => Comparison::Equal,
                2 => Comparison::NotEqual,
                3 => Comparison::Less,
                4 => Comparison::LessOrEqual,
                5 => Comparison::Greater,
                6 => Comparison::GreaterOrEqual,
                kind => return reader.unknown("a comparison operator", kind.into()),
            };
            Expr::Compare(operator, operand(reader)?, operand(reader)?)
        }
        5 => Expr::And(operand(reader)?, operand(reader)?),
        6 => Expr::Or(operand(reader)?, operand(reader)?),
        7 => Expr::Not(operand(reader)?),
        8 => Expr::IsNull(operand(reader)?),
        9 => Expr::Coalesce(reader.list(|reader| read_expr(reader, depth + 1))?),
        10 => Expr::Concat(operand(reader)?, operand(reader)?),
        kind => return reader.unknown("an expression", kind.into()),
    })
}

/// Appends an outcome.
pub fn encode_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    out.push(VERSION);
    match outcome {
        Outcome::Applied(receipt) => {
            out.push(1);
            out.put_varint(receipt.revision.0);
            put_list(out, receipt.effects.iter(), put_effect);
        }
        Outcome::Rejected(rejection) => {
            out.push(2);
            put_rejection(out, rejection);
        }
    }
}

/// Reads an outcome; it must be all there is.
pub fn decode_outcome(bytes: &Bytes) -> Result<Outcome> {
    let mut reader = Reader::new(bytes, "an outcome");
    let outcome = read_outcome(&mut reader)?;
    reader.end()?;
    Ok(outcome)
}

pub(super) fn read_outcome(reader: &mut Reader<'_>) -> Result<Outcome> {
    let version = reader.u8()?;
    if version != VERSION {
        return reader.unknown("the version of an outcome", version.into());
    }
    Ok(match reader.u8()? {
        1 => Outcome::Applied(Receipt {
            revision: Revision(reader.varint()?),
            effects: reader.list(read_effect)?,
        }),
        2 => Outcome::Rejected(read_rejection(reader)?),
        kind => return reader.unknown("an outcome", kind.into()),
    })
}

fn put_effect(out: &mut Vec<u8>, effect: &Effect) {
    match effect {
        Effect::Rows(rows) => {
            out.push(1);
            out.put_varint(*rows);
        }
        Effect::Row(row) => {
            out.push(2);
            out.put_blob(row);
        }
        Effect::Reserved { first, count } => {
            out.push(3);
            out.put_signed(*first);
            out.put_varint((*count).into());
        }
    }
}

fn read_effect(reader: &mut Reader<'_>) -> Result<Effect> {
    Ok(match reader.u8()? {
        1 => Effect::Rows(reader.varint()?),
        2 => Effect::Row(reader.blob()?),
        3 => Effect::Reserved { first: reader.signed()?, count: reader.u32()? },
        kind => return reader.unknown("an effect", kind.into()),
    })
}

fn put_rejection(out: &mut Vec<u8>, rejection: &Rejection) {
    match rejection {
        Rejection::RowChanged { table, key } => {
            out.push(1);
            put_row(out, *table, key);
        }
        Rejection::RowMissing { table, key } => {
            out.push(2);
            put_row(out, *table, key);
        }
        Rejection::UniqueViolation { table, index, key } => {
            out.push(3);
            put_row(out, *table, key);
            put_option(out, *index, |out, index| out.put_varint(index.0.into()));
        }
        Rejection::RangeChanged { table } => {
            out.push(4);
            out.put_varint(table.0.into());
        }
        Rejection::DescriptorChanged { table } => {
            out.push(5);
            out.put_varint(table.0.into());
        }
        Rejection::TableMissing { table } => {
            out.push(6);
            out.put_varint(table.0.into());
        }
        Rejection::Program { code, message } => {
            out.push(7);
            out.put_blob(code.sqlstate().as_bytes());
            out.put_blob(message.as_bytes());
        }
        Rejection::SequenceExhausted { sequence } => {
            out.push(8);
            out.put_varint(sequence.0.into());
        }
        Rejection::DeadlinePassed => out.push(9),
        Rejection::IdentityConflict => out.push(10),
        Rejection::Superseded => out.push(11),
        Rejection::IdentityExpired => out.push(12),
        Rejection::OutcomeUnknown => out.push(13),
        Rejection::BootSuperseded => out.push(14),
        Rejection::Fenced => out.push(15),
        Rejection::TooLarge { bytes, bytes_max } => {
            out.push(16);
            out.put_varint(*bytes);
            out.put_varint(*bytes_max);
        }
    }
}

fn read_rejection(reader: &mut Reader<'_>) -> Result<Rejection> {
    Ok(match reader.u8()? {
        1 => {
            let (table, key) = read_row(reader)?;
            Rejection::RowChanged { table, key }
        }
        2 => {
            let (table, key) = read_row(reader)?;
            Rejection::RowMissing { table, key }
        }
        3 => {
            let (table, key) = read_row(reader)?;
            let index = reader.option(|reader| Ok(IndexId(reader.u32()?)))?;
            Rejection::UniqueViolation { table, index, key }
        }
        4 => Rejection::RangeChanged { table: TableId(reader.u32()?) },
        5 => Rejection::DescriptorChanged { table: TableId(reader.u32()?) },
        6 => Rejection::TableMissing { table: TableId(reader.u32()?) },
        7 => {
            let state = reader.text()?;
            let code = Code::from_sqlstate(&state).ok_or_else(|| reader.malformed())?;
            Rejection::Program { code, message: reader.text()? }
        }
        8 => Rejection::SequenceExhausted { sequence: SequenceId(reader.u32()?) },
        9 => Rejection::DeadlinePassed,
        10 => Rejection::IdentityConflict,
        11 => Rejection::Superseded,
        12 => Rejection::IdentityExpired,
        13 => Rejection::OutcomeUnknown,
        14 => Rejection::BootSuperseded,
        15 => Rejection::Fenced,
        16 => Rejection::TooLarge { bytes: reader.varint()?, bytes_max: reader.varint()? },
        kind => return reader.unknown("a rejection", kind.into()),
    })
}
