//! DDL: statements become changes of the catalog, decided by the control group.
//!
//! Invariants:
//! - A statement makes one [`Change`], all or nothing. Outside a block it is decided at once; inside, it is laid over the
//!   session's catalog and decided at COMMIT.
//! - A change expects the objects it touches as the statement saw them; if one moved on it is `40001`.
//! - What depends on an object keeps it from being dropped (`2BP01`) unless CASCADE takes it along.
//!
//! Not here: how rows reach a new index (`build`, `Dispatch::build_index`).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use model::{
    Code, Error, Result,
    access::{Object as Right, Privilege},
    catalog::{Catalog, Change, Expected, Object, ObjectId},
    id::{PartitionId, RoleId, SchemaId},
    port::{LockMode, LockRequest, Lockable, Wait},
    schema::{Column, ColumnDefault, Table},
};
use sqlparser::ast;

use crate::{
    bind::{self, Names, unsupported},
    execute::Cancel,
    parse::Utility,
    session::{HeldLocks, Session},
};

mod alter;
mod build;
mod comment;
mod drop;
mod index;
mod maintain;
mod retype;
mod role;
mod sequence;
mod table;
mod view;

pub(crate) use self::build::{decide, drop_unfinished};

impl Session {
    /// Runs a statement of DDL; answers its tag.
    pub(crate) async fn definition(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        cancel: &Cancel,
    ) -> Result<String> {
        if !matches!(statement, ast::Statement::Truncate(_)) {
            self.check_may_define()?;
        }
        let tag = match statement {
            ast::Statement::CreateTable(create) => {
                if create.columns.is_empty()
                    && create.query.is_none()
                    && create.like.is_none()
                    && !text.contains('(')
                {
                    return Err(Error::new(Code::SyntaxError, "syntax error at end of input"));
                }
                return self.create_table(create, cancel).await;
            }
            ast::Statement::CreateSchema {
                schema_name,
                or_replace,
                if_not_exists,
                with,
                options,
                default_collate_spec,
                clone,
            } => {
                let plain = !or_replace
                    && with.is_none()
                    && options.is_none()
                    && default_collate_spec.is_none()
                    && clone.is_none();
                if !plain {
                    return Err(unsupported(
                        "this form of CREATE SCHEMA",
                        "CREATE SCHEMA name [AUTHORIZATION role] is.",
                    ));
                }
                self.create_schema(schema_name, *if_not_exists).await?;
                "CREATE SCHEMA"
            }
            ast::Statement::CreateIndex(create) => {
                self.create_index(create).await?;
                "CREATE INDEX"
            }
            ast::Statement::CreateView(create) => {
                self.create_view(create).await?;
                "CREATE VIEW"
            }
            ast::Statement::AlterTable(alter) => {
                self.alter_table(alter, cancel).await?;
                "ALTER TABLE"
            }
            ast::Statement::AlterIndex { name, operation } => {
                self.alter_index(name, operation).await?;
                "ALTER INDEX"
            }
            ast::Statement::AlterSchema(alter) => {
                self.alter_schema(alter).await?;
                "ALTER SCHEMA"
            }
            ast::Statement::Drop { .. } => return self.drop_objects(statement).await,
            ast::Statement::Truncate(truncate) => {
                self.truncate(truncate).await?;
                "TRUNCATE TABLE"
            }
            ast::Statement::Comment { object_type, object_name, comment, if_exists } => {
                self.comment(object_type, object_name, comment.as_deref(), *if_exists).await?;
                "COMMENT"
            }
            other => {
                let words: Vec<String> =
                    other.to_string().split_whitespace().take(2).map(str::to_uppercase).collect();
                return Err(unsupported(
                    &words.join(" "),
                    "See the list of supported statements in the documentation.",
                ));
            }
        };
        Ok(tag.to_owned())
    }

    /// Runs DDL that has a grammar of its own.
    pub(crate) async fn define(&mut self, utility: &Utility) -> Result<String> {
        self.check_may_define()?;
        let tag = match utility {
            Utility::CreateCollection { name, if_not_exists, options } => {
                self.create_collection(name, *if_not_exists, options).await?;
                "CREATE COLLECTION"
            }
            Utility::CreateDatabase { name, options } => {
                self.create_database(name, options).await?;
                "CREATE DATABASE"
            }
            Utility::DropDatabase { name, if_exists } => {
                self.drop_database(name, *if_exists).await?;
                "DROP DATABASE"
            }
            Utility::AlterDatabase { name, rename, owner } => {
                self.alter_database(name, rename.as_deref(), owner.as_deref()).await?;
                "ALTER DATABASE"
            }
            Utility::CreateRole { name, options } => {
                self.create_role(name, options).await?;
                "CREATE ROLE"
            }
            Utility::AlterRole { name, options, rename } => {
                self.alter_role(name, options, rename.as_deref()).await?;
                "ALTER ROLE"
            }
            Utility::DropRole { names, if_exists } => {
                self.drop_roles(names, *if_exists).await?;
                "DROP ROLE"
            }
            Utility::Membership { roles, members, revoke } => {
                self.change_membership(roles, members, *revoke).await?;
                if *revoke { "REVOKE ROLE" } else { "GRANT ROLE" }
            }
            Utility::Privileges(privileges) => {
                self.change_privileges(privileges).await?;
                if privileges.revoke { "REVOKE" } else { "GRANT" }
            }
            Utility::CreateSequence { name, if_not_exists, options } => {
                self.create_sequence(name, *if_not_exists, options).await?;
                "CREATE SEQUENCE"
            }
            Utility::AlterSequence { name, if_exists, options } => {
                self.alter_sequence(name, *if_exists, options).await?;
                "ALTER SEQUENCE"
            }
            _ => return Err(Error::internal("no DDL")),
        };
        Ok(tag.to_owned())
    }

    fn check_may_define(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::new(
                Code::ReadOnlySqlTransaction,
                "cannot execute DDL in a read-only transaction",
            ));
        }
        Ok(())
    }

    /// Decides a change, or lays it over the catalog of the open transaction.
    pub(crate) async fn change(&mut self, change: Change) -> Result<Arc<Catalog>> {
        if is_empty(&change) {
            return Ok(self.current_catalog());
        }
        if self.is_transactional() {
            return self.lay_over(change);
        }
        let dispatch = self.dispatch();
        if build::begins_index(&dispatch.catalog(), &change) {
            build::decide(dispatch.clone(), change, None, |_| {}).await?;
        } else {
            dispatch.change_catalog(change).await?;
        }
        Ok(dispatch.catalog())
    }

    /// A table's name as statements about it are written.
    fn qualified(&self, table: &Table) -> String {
        if table.temporary.is_some() {
            return format!("pg_temp.{}", table::quote(&table.name));
        }
        let schema = self.current_catalog().schema(table.schema).map(|schema| schema.name.clone());
        format!("{}.{}", table::quote(&schema.unwrap_or_default()), table::quote(&table.name))
    }

    /// The schema in which a new object is made, and its name.
    pub(crate) fn place(&self, names: &Names, path: &[String]) -> Result<(SchemaId, String)> {
        let (schema, name) = match path {
            [name] => (names.creation_schema()?, name.clone()),
            [schema, name] => {
                if schema == "pg_catalog" || schema == "information_schema" {
                    let message = format!("permission denied to create \"{}\"", path.join("."));
                    return Err(Error::new(Code::InsufficientPrivilege, message)
                        .with_detail("System catalog modifications are currently disallowed."));
                }
                (names.get_schema(schema)?, name.clone())
            }
            [database, schema, name]
                if names.catalog.database(names.database).is_some_and(|at| at.name == *database) =>
            {
                (names.get_schema(schema)?, name.clone())
            }
            _ => {
                let message =
                    format!("cross-database references are not implemented: \"{}\"", path.join("."));
                return Err(Error::new(Code::FeatureNotSupported, message));
            }
        };
        self.need_right_in(&names.catalog, schema, Privilege::Create)?;
        Ok((schema, name))
    }

    fn need_right_in(&self, catalog: &Catalog, schema: SchemaId, privilege: Privilege) -> Result<()> {
        let found = catalog.schema(schema);
        let owner = found.map(|schema| schema.owner);
        if self.has_right(catalog, Right::Schema(schema), privilege, owner) {
            return Ok(());
        }
        let name = found.map(|schema| schema.name.clone()).unwrap_or_default();
        Err(Error::new(Code::InsufficientPrivilege, format!("permission denied for schema {name}")))
    }

    /// `42501` unless the session's role owns the object.
    pub(crate) fn need_owner(&self, catalog: &Catalog, owner: RoleId, kind: &str, name: &str) -> Result<()> {
        if self.owns(catalog, owner) {
            return Ok(());
        }
        Err(Error::new(Code::InsufficientPrivilege, format!("must be owner of {kind} {name}")))
    }

    async fn create_schema(&mut self, name: &ast::SchemaName, if_not_exists: bool) -> Result<()> {
        let catalog = self.current_catalog();
        let (name, owner) = match name {
            ast::SchemaName::Simple(name) => (last(&bind::path_of(name)?), None),
            ast::SchemaName::UnnamedAuthorization(role) => (bind::fold(role), Some(bind::fold(role))),
            ast::SchemaName::NamedAuthorization(name, role) => {
                (last(&bind::path_of(name)?), Some(bind::fold(role)))
            }
        };
        let database = self.database_id();
        let here = catalog.database(database).map(|database| database.owner);
        if !self.has_right(&catalog, Right::Database(database), Privilege::Create, here) {
            let shown = catalog.database(database).map(|database| database.name.clone()).unwrap_or_default();
            return Err(Error::new(
                Code::InsufficientPrivilege,
                format!("permission denied for database {shown}"),
            ));
        }
        if name.starts_with("pg_") {
            return Err(Error::new(Code::ReservedName, format!("unacceptable schema name \"{name}\""))
                .with_detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        if catalog.find_schema(database, &name).is_some() || name == "information_schema" {
            return self.exists_already(if_not_exists, Code::DuplicateSchema, "schema", &name);
        }
        let owner = match owner {
            None => self.role(),
            Some(owner) => get_role(&catalog, &owner)?,
        };
        let id = SchemaId(self.dispatch().allocate_ids(1).await?);
        let schema = model::schema::Schema { id, database, name, owner, comment: None };
        let change = Change {
            expect: vec![(ObjectId::Schema(id), None)],
            put: vec![Object::Schema(schema)],
            ..Change::default()
        };
        self.change(change).await?;
        Ok(())
    }

    /// `IF NOT EXISTS`: a notice instead of the error.
    pub(crate) fn exists_already(
        &mut self,
        tolerated: bool,
        code: Code,
        kind: &str,
        name: &str,
    ) -> Result<()> {
        if tolerated {
            let error = Error::new(code, format!("{kind} \"{name}\" already exists, skipping"));
            self.tell(error);
            return Ok(());
        }
        Err(Error::new(code, format!("{kind} \"{name}\" already exists")))
    }
}

/// Takes a table's lock beside any transaction: no writer of it goes on until the lock is given back.
fn take_table_lock(
    session: &Session,
    table: &Table,
    wait: Duration,
) -> impl Future<Output = Result<HeldLocks>> + use<> {
    let (dispatch, partition) = (session.dispatch(), PartitionId::default_of(table.database, table.schema));
    let (id, locks) = (session.session_id(), vec![(Lockable::Table(table.id), LockMode::Update)]);
    async move {
        let set = dispatch.begin_locks(&partition, id).await?;
        let held = HeldLocks::new(dispatch.clone(), partition.clone(), set);
        dispatch.lock(LockRequest { partition, set, locks, wait: Wait::For(wait) }).await?;
        Ok(held)
    }
}

/// The last part of a name.
pub(super) fn last(path: &[String]) -> String {
    path.last().cloned().unwrap_or_default()
}

/// The role with a name.
pub(super) fn get_role(catalog: &Catalog, name: &str) -> Result<RoleId> {
    catalog
        .find_role(name)
        .map(|role| role.id)
        .ok_or_else(|| Error::new(Code::UndefinedObject, format!("role \"{name}\" does not exist")))
}

/// Whether rows that meet what a table demanded then meet what it demands now, as they are.
pub(crate) fn asks_the_same(then: &Table, now: &Table, catalog: &Catalog) -> bool {
    if then.version == now.version {
        return true;
    }
    // A key that leads to it may have come since.
    if catalog.tables().any(|child| child.foreign_keys.iter().any(|key| key.parent == now.id)) {
        return false;
    }
    let same = |(then, now): (&Column, &Column)| {
        (then.data_type, then.typmod, then.not_null, then.dropped, then.hidden)
            == (now.data_type, now.typmod, now.not_null, now.dropped, now.hidden)
    };
    // A column that came since gives rows that lack it its default.
    let fits = |column: &Column| {
        let computed = matches!(column.default, Some(ColumnDefault::Generated(_)));
        !computed && (!column.not_null || column.missing.is_some())
    };
    then.columns.len() <= now.columns.len()
        && then.columns.iter().zip(&now.columns).all(same)
        && now.columns[then.columns.len()..].iter().all(fits)
        && then.checks == now.checks
        && then.foreign_keys == now.foreign_keys
        && then.primary_key == now.primary_key
}

/// A change of one table's descriptor.
pub(super) fn changed_table(before: &Table, mut after: Table) -> Change {
    after.version = before.version + 1;
    Change {
        expect: vec![(ObjectId::Table(before.id), Some(Expected::TableVersion(before.version)))],
        put: vec![Object::Table(after)],
        ..Change::default()
    }
}

/// Whether a change does nothing.
pub(crate) fn is_empty(change: &Change) -> bool {
    change.put.is_empty() && change.drop.is_empty() && change.grant.is_empty() && change.revoke.is_empty()
}

fn id_of(object: &Object) -> ObjectId {
    match object {
        Object::Database(at) => ObjectId::Database(at.id),
        Object::Schema(at) => ObjectId::Schema(at.id),
        Object::Table(at) => ObjectId::Table(at.id),
        Object::View(at) => ObjectId::View(at.id),
        Object::Sequence(at) => ObjectId::Sequence(at.id),
        Object::Role(at) => ObjectId::Role(at.id),
    }
}

/// Several changes, one after the other, as one.
pub(crate) fn merge(changes: Vec<Change>) -> Change {
    let mut merged = Change::default();
    let mut made: BTreeSet<ObjectId> = BTreeSet::new();
    for change in changes {
        for (id, expected) in change.expect {
            let touched = merged.expect.iter().any(|(at, _)| *at == id) || made.contains(&id);
            if !touched {
                merged.expect.push((id, expected));
            }
        }
        for id in change.drop {
            merged.put.retain(|object| id_of(object) != id);
            if !made.remove(&id) {
                merged.drop.push(id);
            }
        }
        for object in change.put {
            let id = id_of(&object);
            let is_new = merged.expect.iter().any(|(at, expected)| *at == id && expected.is_none());
            if is_new {
                made.insert(id);
            }
            match merged.put.iter_mut().find(|at| id_of(at) == id) {
                Some(at) => *at = object,
                None => merged.put.push(object),
            }
        }
        for grant in change.revoke {
            merged.grant.retain(|held| {
                held.object != grant.object
                    || held.grantee != grant.grantee
                    || held.privilege != grant.privilege
            });
            merged.revoke.push(grant);
        }
        merged.grant.extend(change.grant);
    }
    // What was made and dropped again leaves nothing to expect.
    merged
        .expect
        .retain(|(id, expected)| expected.is_some() || merged.put.iter().any(|object| id_of(object) == *id));
    merged
}

/// The change that leads from after `change` back to `before`.
pub(crate) fn inverse(change: &Change, before: &Catalog) -> Change {
    let mut inverse = Change::default();
    let old: Vec<Object> = before.objects();
    let find = |id: ObjectId| old.iter().find(|object| id_of(object) == id).cloned();
    for object in &change.put {
        let id = id_of(object);
        match find(id) {
            None => inverse.drop.push(id),
            Some(Object::Table(mut table)) => {
                if let Object::Table(now) = object {
                    table.version = now.version + 1;
                }
                inverse.put.push(Object::Table(table));
            }
            Some(object) => inverse.put.push(object),
        }
    }
    for id in &change.drop {
        inverse.put.extend(find(*id));
    }
    inverse.grant.clone_from(&change.revoke);
    inverse.revoke.clone_from(&change.grant);
    inverse
}
