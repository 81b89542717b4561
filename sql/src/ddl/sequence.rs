//! Sequences.

use model::{
    Code, Error, Result, Type,
    catalog::{Change, Expected, Object, ObjectId},
    id::SequenceId,
    schema::{Sequence, Table},
};
use sqlparser::ast;

use super::last;
use crate::{
    bind::{Found, unsupported},
    parse::utility::SequenceOption,
    session::Session,
};

/// How many numbers a gateway reserves unless CACHE says otherwise.
const CACHE: u32 = 64;

/// A sequence with its defaults.
pub(super) fn new_sequence(id: SequenceId, table: &Table, name: String, ty: Type) -> Sequence {
    Sequence {
        id,
        database: table.database,
        schema: table.schema,
        name,
        owner: table.owner,
        data_type: ty,
        start: 1,
        increment: 1,
        min: 1,
        max: bounds(ty).1,
        cache: CACHE,
        cycle: false,
        owned_by: None,
    }
}

fn bounds(ty: Type) -> (i64, i64) {
    match ty {
        Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Options of `GENERATED … AS IDENTITY (…)`.
pub(super) fn apply_ast_options(sequence: &mut Sequence, options: &[ast::SequenceOptions]) -> Result<()> {
    let number = |expr: &ast::Expr| {
        expr.to_string()
            .replace(' ', "")
            .parse::<i64>()
            .map_err(|_| Error::new(Code::SyntaxError, format!("syntax error at or near \"{expr}\"")))
    };
    let mut parsed = Vec::new();
    for option in options {
        parsed.push(match option {
            ast::SequenceOptions::DataType(ty) => SequenceOption::Type(ty.to_string().to_lowercase()),
            ast::SequenceOptions::IncrementBy(expr, _) => SequenceOption::Increment(number(expr)?),
            ast::SequenceOptions::MinValue(bound) => {
                SequenceOption::Min(bound.as_ref().map(number).transpose()?)
            }
            ast::SequenceOptions::MaxValue(bound) => {
                SequenceOption::Max(bound.as_ref().map(number).transpose()?)
            }
            ast::SequenceOptions::StartWith(expr, _) => SequenceOption::Start(number(expr)?),
            ast::SequenceOptions::Cache(expr) => SequenceOption::Cache(number(expr)?),
            ast::SequenceOptions::Cycle(no_cycle) => SequenceOption::Cycle(!no_cycle),
            ast::SequenceOptions::OwnedBy(_) => {
                return Err(unsupported("OWNED BY of an identity column", "Leave it out."));
            }
        });
    }
    apply(sequence, &parsed, true)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidParameterValue, message)
}

/// Puts options into a sequence and checks the whole.
fn apply(sequence: &mut Sequence, options: &[SequenceOption], fresh: bool) -> Result<()> {
    let mut start = None;
    let (mut min, mut max) = (None, None);
    for option in options {
        match option {
            SequenceOption::Type(name) => {
                let (ty, _) = Type::parse(name)?;
                if !ty.is_integer() {
                    return Err(invalid("sequence type must be smallint, integer, or bigint"));
                }
                sequence.data_type = ty;
                if fresh {
                    sequence.max = bounds(ty).1;
                }
            }
            SequenceOption::Increment(0) => return Err(invalid("INCREMENT must not be zero")),
            SequenceOption::Increment(by) => sequence.increment = *by,
            SequenceOption::Min(bound) => min = Some(*bound),
            SequenceOption::Max(bound) => max = Some(*bound),
            SequenceOption::Start(at) => start = Some(*at),
            SequenceOption::Cache(count) => {
                let count = u32::try_from(*count).ok().filter(|count| *count > 0);
                sequence.cache = count.ok_or_else(|| invalid("CACHE must be greater than zero"))?;
            }
            SequenceOption::Cycle(cycle) => sequence.cycle = *cycle,
            SequenceOption::Restart(_)
            | SequenceOption::OwnedBy(_)
            | SequenceOption::OwnerTo(_)
            | SequenceOption::RenameTo(_) => {}
        }
    }
    let up = sequence.increment > 0;
    let (low, high) = bounds(sequence.data_type);
    if fresh || min.is_some() {
        sequence.min = min.flatten().unwrap_or(if up { 1 } else { low });
    }
    if fresh || max.is_some() {
        sequence.max = max.flatten().unwrap_or(if up { high } else { -1 });
    }
    if sequence.min > sequence.max {
        return Err(invalid(format!(
            "MINVALUE ({}) must be less than MAXVALUE ({})",
            sequence.min, sequence.max
        )));
    }
    if fresh || start.is_some() {
        sequence.start = start.unwrap_or(if up { sequence.min } else { sequence.max });
    }
    if sequence.start < sequence.min {
        return Err(invalid(format!(
            "START value ({}) cannot be less than MINVALUE ({})",
            sequence.start, sequence.min
        )));
    }
    if sequence.start > sequence.max {
        return Err(invalid(format!(
            "START value ({}) cannot be greater than MAXVALUE ({})",
            sequence.start, sequence.max
        )));
    }
    Ok(())
}

impl Session {
    pub(super) async fn create_sequence(
        &mut self,
        path: &[String],
        if_not_exists: bool,
        options: &[SequenceOption],
    ) -> Result<()> {
        let names = self.current_names();
        let (schema, name) = self.place(&names, path)?;
        if names.catalog.find_relation(schema, &name).is_some() {
            return self.exists_already(if_not_exists, Code::DuplicateTable, "relation", &name);
        }
        let id = SequenceId(self.dispatch().allocate_ids(1).await?);
        let mut sequence = Sequence {
            id,
            database: self.database_id(),
            schema,
            name,
            owner: self.role(),
            data_type: Type::Int8,
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cache: CACHE,
            cycle: false,
            owned_by: None,
        };
        apply(&mut sequence, options, true)?;
        self.set_owner_column(&mut sequence, options)?;
        let change = Change {
            expect: vec![(ObjectId::Sequence(id), None)],
            put: vec![Object::Sequence(sequence)],
            ..Change::default()
        };
        self.change(change).await?;
        Ok(())
    }

    fn set_owner_column(&self, sequence: &mut Sequence, options: &[SequenceOption]) -> Result<()> {
        for option in options {
            if let SequenceOption::OwnedBy(owner) = option {
                sequence.owned_by = match owner {
                    None => None,
                    Some(path) => {
                        let (column, table) =
                            path.split_last().ok_or_else(|| invalid("invalid OWNED BY option"))?;
                        let table = self.current_names().get_table(table)?;
                        let found = table.find_column(column).ok_or_else(|| {
                            let message =
                                format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                            Error::new(Code::UndefinedColumn, message)
                        })?;
                        Some((table.id, found.number))
                    }
                };
            }
        }
        Ok(())
    }

    pub(super) async fn alter_sequence(
        &mut self,
        path: &[String],
        if_exists: bool,
        options: &[SequenceOption],
    ) -> Result<()> {
        let names = self.current_names();
        let found = match names.find(path)? {
            Some(Found::Sequence(sequence)) => sequence,
            Some(_) => {
                return Err(Error::new(
                    Code::WrongObjectType,
                    format!("\"{}\" is not a sequence", last(path)),
                ));
            }
            None if if_exists => {
                self.tell(Error::new(
                    Code::UndefinedTable,
                    format!("relation \"{}\" does not exist, skipping", path.join(".")),
                ));
                return Ok(());
            }
            None => return Err(crate::bind::undefined_table(path)),
        };
        self.need_owner(&names.catalog, found.owner, "sequence", &found.name)?;
        let mut sequence = (*found).clone();
        apply(&mut sequence, options, false)?;
        self.set_owner_column(&mut sequence, options)?;
        let mut restart = None;
        for option in options {
            match option {
                SequenceOption::Restart(at) => restart = Some(at.unwrap_or(sequence.start)),
                SequenceOption::OwnerTo(role) => sequence.owner = super::get_role(&names.catalog, role)?,
                SequenceOption::RenameTo(name) => sequence.name.clone_from(name),
                _ => {}
            }
        }
        let id = sequence.id;
        let change = Change {
            expect: vec![(ObjectId::Sequence(id), Some(Expected::Exists))],
            put: vec![Object::Sequence(sequence)],
            ..Change::default()
        };
        self.change(change).await?;
        if let Some(value) = restart {
            self.restart_sequence(id, value).await?;
        }
        Ok(())
    }
}
