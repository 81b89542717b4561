//! Roles, rights, databases.

use std::collections::BTreeSet;

use model::{
    Code, Error, Result,
    access::{Grant, Grantee, Object as Right, Privilege, Role},
    catalog::{Catalog, Change, Expected, Object, ObjectId},
    id::{DatabaseId, RoleId, SchemaId, TableId},
    schema::{Database, Schema},
};

use super::get_role;
use crate::{
    bind::{Found, unsupported},
    parse::utility::{GrantObject, Privileges, RoleOption},
    session::Session,
};

impl Session {
    fn need_create_role(&self, catalog: &Catalog, what: &str) -> Result<()> {
        let may =
            self.is_superuser(catalog) || catalog.role(self.role()).is_some_and(|role| role.create_role);
        if may {
            Ok(())
        } else {
            Err(Error::new(Code::InsufficientPrivilege, format!("permission denied to {what} role")))
        }
    }

    pub(super) async fn create_role(&mut self, name: &str, options: &[RoleOption]) -> Result<()> {
        let catalog = self.current_catalog();
        self.need_create_role(&catalog, "create")?;
        if name.starts_with("pg_") || name == "public" || name == "none" {
            return Err(Error::new(Code::ReservedName, format!("role name \"{name}\" is reserved")));
        }
        if catalog.find_role(name).is_some() {
            return self.exists_already(false, Code::DuplicateObject, "role", name);
        }
        let id = RoleId(self.dispatch().allocate_ids(1).await?);
        let mut role = Role {
            id,
            name: name.to_owned(),
            superuser: false,
            login: false,
            create_database: false,
            create_role: false,
            inherit: true,
            connections_max: None,
            password: None,
            member_of: BTreeSet::new(),
        };
        let mut change = Change { expect: vec![(ObjectId::Role(id), None)], ..Change::default() };
        self.put_options(&catalog, &mut role, options, &mut change)?;
        change.put.insert(0, Object::Role(role));
        self.change(change).await?;
        Ok(())
    }

    fn put_options(
        &self,
        catalog: &Catalog,
        role: &mut Role,
        options: &[RoleOption],
        change: &mut Change,
    ) -> Result<()> {
        for option in options {
            match option {
                RoleOption::Superuser(on) => {
                    if !self.is_superuser(catalog) {
                        return Err(Error::new(
                            Code::InsufficientPrivilege,
                            "must be superuser to change superuser attribute",
                        ));
                    }
                    role.superuser = *on;
                }
                RoleOption::Login(on) => role.login = *on,
                RoleOption::CreateDatabase(on) => role.create_database = *on,
                RoleOption::CreateRole(on) => role.create_role = *on,
                RoleOption::Inherit(on) => role.inherit = *on,
                RoleOption::Password(None) => role.password = None,
                RoleOption::Password(Some(text)) => role.password = Some(self.verifier(text)),
                RoleOption::ConnectionLimit(count) => role.connections_max = u32::try_from(*count).ok(),
                RoleOption::InRole(names) => {
                    for name in names {
                        role.member_of.insert(get_role(catalog, name)?);
                    }
                }
                RoleOption::Members(names) => {
                    for name in names {
                        let member = get_role(catalog, name)?;
                        let found = catalog
                            .role(member)
                            .ok_or_else(|| Error::internal("a role without a descriptor"))?;
                        let mut after = (**found).clone();
                        after.member_of.insert(role.id);
                        change.put.push(Object::Role(after));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) async fn alter_role(
        &mut self,
        name: &str,
        options: &[RoleOption],
        rename: Option<&str>,
    ) -> Result<()> {
        let catalog = self.current_catalog();
        let id = if matches!(name, "current_user" | "current_role") {
            self.role()
        } else {
            get_role(&catalog, name)?
        };
        let own_password = id == self.role()
            && options.iter().all(|option| matches!(option, RoleOption::Password(_)))
            && rename.is_none();
        if !own_password {
            self.need_create_role(&catalog, "alter")?;
        }
        let found = catalog.role(id).ok_or_else(|| Error::internal("a role without a descriptor"))?;
        if found.superuser && !self.is_superuser(&catalog) {
            return Err(Error::new(
                Code::InsufficientPrivilege,
                "must be superuser to alter superuser roles or change superuser attribute",
            ));
        }
        let mut role = (**found).clone();
        let mut change =
            Change { expect: vec![(ObjectId::Role(id), Some(Expected::Exists))], ..Change::default() };
        self.put_options(&catalog, &mut role, options, &mut change)?;
        if let Some(rename) = rename {
            role.name = rename.to_owned();
        }
        change.put.insert(0, Object::Role(role));
        self.change(change).await?;
        Ok(())
    }

    pub(super) async fn drop_roles(&mut self, names: &[String], if_exists: bool) -> Result<()> {
        let catalog = self.current_catalog();
        self.need_create_role(&catalog, "drop")?;
        let mut change = Change::default();
        for name in names {
            let Some(role) = catalog.find_role(name) else {
                if if_exists {
                    self.tell(Error::new(
                        Code::UndefinedObject,
                        format!("role \"{name}\" does not exist, skipping"),
                    ));
                    continue;
                }
                return Err(Error::new(Code::UndefinedObject, format!("role \"{name}\" does not exist")));
            };
            if role.id == self.role() || role.id == model::catalog::ADMIN {
                return Err(Error::new(Code::ObjectInUse, "current user cannot be dropped"));
            }
            let owned = catalog
                .tables()
                .find(|table| table.owner == role.id)
                .map(|table| format!("owner of table {}", table.name))
                .or_else(|| {
                    catalog
                        .views()
                        .find(|view| view.owner == role.id)
                        .map(|view| format!("owner of view {}", view.name))
                })
                .or_else(|| {
                    catalog
                        .databases()
                        .find(|at| at.owner == role.id)
                        .map(|at| format!("owner of database {}", at.name))
                })
                .or_else(|| {
                    let granted = catalog.grants().any(|grant| grant.grantee == Grantee::Role(role.id));
                    granted.then(|| "privileges on objects".to_owned())
                });
            if let Some(what) = owned {
                let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
                return Err(Error::new(Code::DependentObjectsStillExist, message).with_detail(what));
            }
            change.expect.push((ObjectId::Role(role.id), Some(Expected::Exists)));
            change.drop.push(ObjectId::Role(role.id));
        }
        self.change(change).await?;
        Ok(())
    }

    pub(super) async fn change_membership(
        &mut self,
        roles: &[String],
        members: &[String],
        revoke: bool,
    ) -> Result<()> {
        let catalog = self.current_catalog();
        self.need_create_role(&catalog, "grant")?;
        let mut change = Change::default();
        for member in members {
            let id = get_role(&catalog, member)?;
            let found = catalog.role(id).ok_or_else(|| Error::internal("a role without a descriptor"))?;
            let mut after = (**found).clone();
            for role in roles {
                let role_id = get_role(&catalog, role)?;
                if revoke {
                    after.member_of.remove(&role_id);
                    continue;
                }
                let mut above = BTreeSet::new();
                let mut open = vec![role_id];
                while let Some(next) = open.pop() {
                    if above.insert(next) {
                        open.extend(catalog.role(next).iter().flat_map(|role| role.member_of.iter()));
                    }
                }
                if above.contains(&id) {
                    let message = format!("role \"{role}\" is a member of role \"{member}\"");
                    return Err(Error::new(Code::InvalidGrantOperation, message));
                }
                after.member_of.insert(role_id);
            }
            change.expect.push((ObjectId::Role(id), Some(Expected::Exists)));
            change.put.push(Object::Role(after));
        }
        self.change(change).await?;
        Ok(())
    }

    pub(super) async fn change_privileges(&mut self, statement: &Privileges) -> Result<()> {
        let names = self.current_names();
        let catalog = names.catalog.clone();
        let mut targets: Vec<(Right, RoleId, String, Option<TableId>)> = Vec::new();
        let relation = |path: &Vec<String>| -> Result<(Right, RoleId, String, Option<TableId>)> {
            Ok(match names.get(path)? {
                Found::Table(table) => {
                    (Right::Table(table.id), table.owner, table.name.clone(), Some(table.id))
                }
                Found::View(view) => (Right::Table(view.id), view.owner, view.name.clone(), None),
                Found::Sequence(sequence) => {
                    (Right::Table(TableId(sequence.id.0)), sequence.owner, sequence.name.clone(), None)
                }
                Found::Index(..) | Found::System(_) => {
                    return Err(Error::new(
                        Code::WrongObjectType,
                        format!("\"{}\" is not a table", path.join(".")),
                    ));
                }
            })
        };
        let (all, kind): (&[Privilege], &str) = match &statement.object {
            GrantObject::Tables(paths) => {
                for path in paths {
                    targets.push(relation(path)?);
                }
                (TABLE, "table")
            }
            GrantObject::Sequences(paths) => {
                for path in paths {
                    targets.push(relation(path)?);
                }
                (&[Privilege::Usage, Privilege::Select, Privilege::Update], "sequence")
            }
            GrantObject::Schemas(schemas) => {
                for name in schemas {
                    let id = names.get_schema(name)?;
                    let owner = catalog.schema(id).map_or(self.role(), |schema| schema.owner);
                    targets.push((Right::Schema(id), owner, name.clone(), None));
                }
                (&[Privilege::Usage, Privilege::Create], "schema")
            }
            GrantObject::Databases(databases) => {
                for name in databases {
                    let database = catalog.find_database(name).ok_or_else(|| {
                        Error::new(Code::InvalidCatalogName, format!("database \"{name}\" does not exist"))
                    })?;
                    targets.push((Right::Database(database.id), database.owner, name.clone(), None));
                }
                (&[Privilege::Connect, Privilege::Create, Privilege::Temporary], "database")
            }
            GrantObject::AllTablesIn(schemas) => {
                for name in schemas {
                    let id = names.get_schema(name)?;
                    let tables = catalog.tables().filter(|table| table.schema == id);
                    targets.extend(tables.map(|table| {
                        (Right::Table(table.id), table.owner, table.name.clone(), Some(table.id))
                    }));
                    let views = catalog.views().filter(|view| view.schema == id);
                    targets.extend(
                        views.map(|view| (Right::Table(view.id), view.owner, view.name.clone(), None)),
                    );
                }
                (TABLE, "table")
            }
            GrantObject::AllSequencesIn(schemas) => {
                for name in schemas {
                    let id = names.get_schema(name)?;
                    let sequences = catalog.sequences().filter(|sequence| sequence.schema == id);
                    targets.extend(
                        sequences.map(|at| (Right::Table(TableId(at.id.0)), at.owner, at.name.clone(), None)),
                    );
                }
                (&[Privilege::Usage, Privilege::Select, Privilege::Update], "sequence")
            }
        };
        let mut grants = Vec::new();
        for (object, owner, name, table) in &targets {
            let may = self.owns(&catalog, *owner)
                || catalog.grants().any(|grant| {
                    grant.object == *object && grant.grantee == Grantee::Role(self.role()) && grant.grantable
                });
            if !may {
                return Err(Error::new(
                    Code::InsufficientPrivilege,
                    format!("permission denied for {kind} {name}"),
                ));
            }
            for grantee in &statement.grantees {
                let grantee = match grantee.as_str() {
                    "" => Grantee::Public,
                    "current_user" | "current_role" => Grantee::Role(self.role()),
                    name => Grantee::Role(get_role(&catalog, name)?),
                };
                for (right, columns) in wanted(&statement.privileges, all, kind)? {
                    let objects = if columns.is_empty() {
                        // What is taken back of a table is taken back of its columns too.
                        let columns = table
                            .filter(|_| statement.revoke)
                            .and_then(|id| catalog.table(id))
                            .map_or(&[][..], |table| &table.columns);
                        let on_columns = columns.iter().filter_map(|column| match object {
                            Right::Table(id) => Some(Right::Column(*id, column.number)),
                            _ => None,
                        });
                        std::iter::once(*object).chain(on_columns).collect()
                    } else {
                        let Some(table) = table.and_then(|id| catalog.table(id)) else {
                            return Err(unsupported(
                                "rights on columns of what is no table",
                                "Grant on the whole.",
                            ));
                        };
                        let mut objects = Vec::new();
                        for column in columns {
                            let found = table.find_column(&column).ok_or_else(|| {
                                let message = format!(
                                    "column \"{column}\" of relation \"{}\" does not exist",
                                    table.name
                                );
                                Error::new(Code::UndefinedColumn, message)
                            })?;
                            objects.push(Right::Column(table.id, found.number));
                        }
                        objects
                    };
                    grants.extend(objects.into_iter().map(|object| Grant {
                        object,
                        grantee,
                        privilege: right,
                        grantor: *owner,
                        grantable: statement.grant_option,
                    }));
                }
            }
        }
        let _ = statement.cascade;
        let change = if statement.revoke && statement.grant_option {
            // REVOKE GRANT OPTION FOR: the right stays, without the option.
            let held = grants.iter().filter(|grant| {
                catalog.grants().any(|at| {
                    at.object == grant.object
                        && at.grantee == grant.grantee
                        && at.privilege == grant.privilege
                })
            });
            let kept = held.map(|grant| Grant { grantable: false, ..*grant }).collect();
            Change { revoke: grants.clone(), grant: kept, ..Change::default() }
        } else if statement.revoke {
            Change { revoke: grants, ..Change::default() }
        } else {
            Change { grant: grants, ..Change::default() }
        };
        self.change(change).await?;
        Ok(())
    }

    pub(super) async fn create_database(&mut self, name: &str, options: &[(String, String)]) -> Result<()> {
        if self.in_transaction_block() {
            return Err(Error::new(
                Code::ActiveSqlTransaction,
                "CREATE DATABASE cannot run inside a transaction block",
            ));
        }
        let catalog = self.current_catalog();
        let may =
            self.is_superuser(&catalog) || catalog.role(self.role()).is_some_and(|role| role.create_database);
        if !may {
            return Err(Error::new(Code::InsufficientPrivilege, "permission denied to create database"));
        }
        if catalog.find_database(name).is_some() {
            return self.exists_already(false, Code::DuplicateDatabase, "database", name);
        }
        let mut owner = self.role();
        for (option, value) in options {
            match option.as_str() {
                "owner" => owner = get_role(&catalog, value)?,
                "encoding" if value.to_lowercase().replace('-', "") == "utf8" => {}
                "template" if matches!(value.as_str(), "template0" | "template1") => {}
                "lc_collate" | "lc_ctype" | "locale"
                    if matches!(value.as_str(), "C" | "POSIX" | "c" | "posix" | "C.UTF-8") => {}
                "tablespace" if value == "pg_default" => {}
                other => return Err(unsupported(&format!("option {other} of CREATE DATABASE"), "OWNER is.")),
            }
        }
        let first = self.dispatch().allocate_ids(2).await?;
        let (id, schema) = (DatabaseId(first), SchemaId(first + 1));
        let change = Change {
            expect: vec![(ObjectId::Database(id), None), (ObjectId::Schema(schema), None)],
            put: vec![
                Object::Database(Database { id, name: name.to_owned(), owner, comment: None }),
                Object::Schema(Schema {
                    id: schema,
                    database: id,
                    name: "public".to_owned(),
                    owner,
                    comment: Some("standard public schema".to_owned()),
                }),
            ],
            ..Change::default()
        };
        self.change(change).await?;
        Ok(())
    }

    pub(super) async fn drop_database(&mut self, name: &str, if_exists: bool) -> Result<()> {
        if self.in_transaction_block() {
            return Err(Error::new(
                Code::ActiveSqlTransaction,
                "DROP DATABASE cannot run inside a transaction block",
            ));
        }
        let catalog = self.current_catalog();
        let Some(database) = catalog.find_database(name).cloned() else {
            if if_exists {
                self.tell(Error::new(
                    Code::InvalidCatalogName,
                    format!("database \"{name}\" does not exist, skipping"),
                ));
                return Ok(());
            }
            return Err(Error::new(Code::InvalidCatalogName, format!("database \"{name}\" does not exist")));
        };
        self.need_owner(&catalog, database.owner, "database", name)?;
        if database.id == self.database_id() {
            return Err(Error::new(Code::ObjectInUse, "cannot drop the currently open database"));
        }
        let mut change = Change {
            expect: vec![(ObjectId::Database(database.id), Some(Expected::Exists))],
            ..Change::default()
        };
        change
            .drop
            .extend(catalog.views().filter(|at| at.database == database.id).map(|at| ObjectId::View(at.id)));
        change.drop.extend(
            catalog.tables().filter(|at| at.database == database.id).map(|at| ObjectId::Table(at.id)),
        );
        change.drop.extend(
            catalog.sequences().filter(|at| at.database == database.id).map(|at| ObjectId::Sequence(at.id)),
        );
        change.drop.extend(catalog.schemas(database.id).map(|at| ObjectId::Schema(at.id)));
        change.drop.push(ObjectId::Database(database.id));
        self.change(change).await?;
        Ok(())
    }

    pub(super) async fn alter_database(
        &mut self,
        name: &str,
        rename: Option<&str>,
        owner: Option<&str>,
    ) -> Result<()> {
        let catalog = self.current_catalog();
        let database = catalog.find_database(name).ok_or_else(|| {
            Error::new(Code::InvalidCatalogName, format!("database \"{name}\" does not exist"))
        })?;
        self.need_owner(&catalog, database.owner, "database", name)?;
        let mut after = (**database).clone();
        if let Some(rename) = rename {
            if database.id == self.database_id() {
                return Err(Error::new(Code::FeatureNotSupported, "current database cannot be renamed"));
            }
            after.name = rename.to_owned();
        }
        if let Some(owner) = owner {
            after.owner = get_role(&catalog, owner)?;
        }
        let change = Change {
            expect: vec![(ObjectId::Database(database.id), Some(Expected::Exists))],
            put: vec![Object::Database(after)],
            ..Change::default()
        };
        self.change(change).await?;
        Ok(())
    }
}

const TABLE: &[Privilege] = &[
    Privilege::Select,
    Privilege::Insert,
    Privilege::Update,
    Privilege::Delete,
    Privilege::Truncate,
    Privilege::References,
    Privilege::Trigger,
];

/// The rights that a statement names.
fn wanted(
    privileges: &[(String, Vec<String>)],
    all: &[Privilege],
    kind: &str,
) -> Result<Vec<(Privilege, Vec<String>)>> {
    if privileges.is_empty() {
        return Ok(all.iter().map(|privilege| (*privilege, Vec::new())).collect());
    }
    let mut found = Vec::new();
    for (name, columns) in privileges {
        let privilege = match name.as_str() {
            "select" => Privilege::Select,
            "insert" => Privilege::Insert,
            "update" => Privilege::Update,
            "delete" => Privilege::Delete,
            "truncate" => Privilege::Truncate,
            "references" => Privilege::References,
            "trigger" => Privilege::Trigger,
            "usage" => Privilege::Usage,
            "create" => Privilege::Create,
            "connect" => Privilege::Connect,
            "temporary" | "temp" => Privilege::Temporary,
            "all" => {
                found.extend(
                    [Privilege::Select, Privilege::Insert, Privilege::Update, Privilege::References]
                        .map(|right| (right, columns.clone())),
                );
                continue;
            }
            other => {
                return Err(Error::new(
                    Code::SyntaxError,
                    format!("unrecognized privilege type \"{other}\""),
                ));
            }
        };
        if !all.contains(&privilege) {
            let message = format!("invalid privilege type {} for {kind}", name.to_uppercase());
            return Err(Error::new(Code::InvalidGrantOperation, message));
        }
        found.push((privilege, columns.clone()));
    }
    Ok(found)
}
