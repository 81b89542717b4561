//! The catalog: every descriptor there is, as one immutable snapshot, and the changes that lead to the next.
//!
//! Invariants:
//! - A snapshot never changes; DDL makes a new one with a higher version and publishes it with one pointer store.
//! - Names are unique per namespace: databases and roles in the cluster, schemas in a database, relations (tables, views,
//!   sequences, indexes) in a schema; those of temporary tables in their session.
//! - A [`Change`] is all or nothing. It names the version of each object it was planned on; if one moved on, it is refused
//!   with `40001` and planned again.
//!
//! Not here: who decides (the control group, `storage::catalog`), system relations (`sql::pg_catalog`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    access::{self, Grant, Grantee, Privilege, Role},
    error::{Code, Error, Result},
    id::{CatalogVersion, DatabaseId, IndexId, RoleId, SchemaId, SequenceId, SessionId, TableId},
    schema::{Database, Schema, Sequence, Table, View},
};

/// The first object id that is given out; lower ones are PostgreSQL's own OIDs and ours.
pub const OBJECT_ID_MIN: u32 = 16_384;

/// The superuser that exists from the first start.
pub const ADMIN: RoleId = RoleId(10);

/// The database that tools of PostgreSQL connect to when they are given none, with PostgreSQL's OIDs for it and its schema.
const MAINTENANCE: (&str, DatabaseId, SchemaId) = ("postgres", DatabaseId(5), SchemaId(2200));

/// One state of all descriptors.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    version: CatalogVersion,
    next_id: u32,
    databases: BTreeMap<DatabaseId, Arc<Database>>,
    schemas: BTreeMap<SchemaId, Arc<Schema>>,
    tables: BTreeMap<TableId, Arc<Table>>,
    views: BTreeMap<TableId, Arc<View>>,
    sequences: BTreeMap<SequenceId, Arc<Sequence>>,
    roles: BTreeMap<RoleId, Arc<Role>>,
    grants: BTreeSet<Grant>,
    relation_names: BTreeMap<(SchemaId, String), Relation>,
    /// Those of temporary tables and their indexes, which only their session finds.
    temporary_names: BTreeMap<(SessionId, String), Relation>,
}

/// What a name in a schema stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Relation {
    /// A table or collection.
    Table(TableId),
    /// A view.
    View(TableId),
    /// A sequence.
    Sequence(SequenceId),
    /// An index of a table.
    Index(TableId, IndexId),
}

/// One object of the catalog, whole.
#[derive(Clone, PartialEq, Debug)]
pub enum Object {
    /// A database.
    Database(Database),
    /// A schema.
    Schema(Schema),
    /// A table with its indexes and constraints.
    Table(Table),
    /// A view.
    View(View),
    /// A sequence.
    Sequence(Sequence),
    /// A role.
    Role(Role),
}

/// Which object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectId {
    /// A database.
    Database(DatabaseId),
    /// A schema.
    Schema(SchemaId),
    /// A table.
    Table(TableId),
    /// A view.
    View(TableId),
    /// A sequence.
    Sequence(SequenceId),
    /// A role.
    Role(RoleId),
}

/// An atomic change of the catalog, decided by the control group.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Change {
    /// The objects as they must still be; `None` says the object must not exist.
    pub expect: Vec<(ObjectId, Option<Expected>)>,
    /// Objects that come or change.
    pub put: Vec<Object>,
    /// Objects that go, with their grants.
    pub drop: Vec<ObjectId>,
    /// Rights that come.
    pub grant: Vec<Grant>,
    /// Rights that go (`grantor` and `grantable` are not compared).
    pub revoke: Vec<Grant>,
}

/// How an object is recognised as unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// A table at this descriptor version.
    TableVersion(u64),
    /// Any other object that exists.
    Exists,
}

impl Catalog {
    /// What a new cluster starts with: the superuser, the first database, the database `postgres` that tools expect, and in
    /// each its schema `public`.
    pub fn bootstrap(admin: &str, password: Option<String>, database: &str) -> Self {
        let mut catalog = Self { next_id: OBJECT_ID_MIN, ..Self::default() };
        let role = Role {
            id: ADMIN,
            name: admin.to_owned(),
            superuser: true,
            login: true,
            create_database: true,
            create_role: true,
            inherit: true,
            connections_max: None,
            password,
            member_of: BTreeSet::new(),
        };
        let first = DatabaseId(catalog.allocate(1));
        let public = SchemaId(catalog.allocate(1));
        let mut put = vec![Object::Role(role)];
        put.extend(new_database(first, public, database, None));
        let (name, id, schema) = MAINTENANCE;
        if database != name {
            let about = Some("default administrative connection database".to_owned());
            put.extend(new_database(id, schema, name, about));
        }
        catalog.apply(&Change { put, ..Change::default() }).expect("the first change meets an empty catalog")
    }

    /// The version; grows with each change.
    pub fn version(&self) -> CatalogVersion {
        self.version
    }

    /// The next id that has not been given out.
    pub fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Gives out `count` ids that were never used and never will be again; answers the first.
    pub fn allocate(&mut self, count: u32) -> u32 {
        let first = self.next_id;
        self.next_id = first.checked_add(count).expect("four thousand million objects were never made");
        first
    }

    /// The catalog after `change`, or why it cannot be.
    pub fn apply(&self, change: &Change) -> Result<Self> {
        for (id, expected) in &change.expect {
            self.check_expected(*id, *expected)?;
        }
        let mut next = self.clone();
        next.version = CatalogVersion(self.version.0 + 1);
        for id in &change.drop {
            next.remove(*id);
        }
        for grant in &change.revoke {
            next.grants.retain(|held| {
                held.object != grant.object
                    || held.grantee != grant.grantee
                    || held.privilege != grant.privilege
            });
        }
        for object in &change.put {
            next.put(object)?;
        }
        next.grants.extend(change.grant.iter().copied());
        Ok(next)
    }

    fn check_expected(&self, id: ObjectId, expected: Option<Expected>) -> Result<()> {
        let holds = match expected {
            None => !self.exists(id),
            Some(Expected::Exists) => self.exists(id),
            Some(Expected::TableVersion(version)) => match id {
                ObjectId::Table(id) => self.tables.get(&id).is_some_and(|table| table.version == version),
                ObjectId::Database(_)
                | ObjectId::Schema(_)
                | ObjectId::View(_)
                | ObjectId::Sequence(_)
                | ObjectId::Role(_) => false,
            },
        };
        if holds {
            return Ok(());
        }
        Err(Error::new(
            Code::SerializationFailure,
            "could not serialize access due to concurrent schema change",
        )
        .with_hint("Run the statement again."))
    }

    fn exists(&self, id: ObjectId) -> bool {
        match id {
            ObjectId::Database(id) => self.databases.contains_key(&id),
            ObjectId::Schema(id) => self.schemas.contains_key(&id),
            ObjectId::Table(id) => self.tables.contains_key(&id),
            ObjectId::View(id) => self.views.contains_key(&id),
            ObjectId::Sequence(id) => self.sequences.contains_key(&id),
            ObjectId::Role(id) => self.roles.contains_key(&id),
        }
    }

    fn put(&mut self, object: &Object) -> Result<()> {
        match object {
            Object::Database(database) => {
                let taken =
                    self.databases.values().any(|at| at.name == database.name && at.id != database.id);
                refuse_if(taken, Code::DuplicateDatabase, "database", &database.name)?;
                self.databases.insert(database.id, Arc::new(database.clone()));
            }
            Object::Schema(schema) => {
                let taken = self
                    .schemas
                    .values()
                    .any(|at| at.database == schema.database && at.name == schema.name && at.id != schema.id);
                refuse_if(taken, Code::DuplicateSchema, "schema", &schema.name)?;
                self.schemas.insert(schema.id, Arc::new(schema.clone()));
            }
            Object::Role(role) => {
                let taken = self.roles.values().any(|at| at.name == role.name && at.id != role.id);
                refuse_if(taken, Code::DuplicateObject, "role", &role.name)?;
                self.roles.insert(role.id, Arc::new(role.clone()));
            }
            Object::Table(table) => {
                self.forget_names_of_table(table.id);
                self.claim_name_of_table(table, &table.name, Relation::Table(table.id))?;
                for index in &table.indexes {
                    self.claim_name_of_table(table, &index.name, Relation::Index(table.id, index.id))?;
                }
                self.tables.insert(table.id, Arc::new(table.clone()));
            }
            Object::View(view) => {
                self.relation_names.retain(|_, relation| *relation != Relation::View(view.id));
                self.claim_name(view.schema, &view.name, Relation::View(view.id))?;
                self.views.insert(view.id, Arc::new(view.clone()));
            }
            Object::Sequence(sequence) => {
                self.relation_names.retain(|_, relation| *relation != Relation::Sequence(sequence.id));
                self.claim_name(sequence.schema, &sequence.name, Relation::Sequence(sequence.id))?;
                self.sequences.insert(sequence.id, Arc::new(sequence.clone()));
            }
        }
        Ok(())
    }

    fn claim_name(&mut self, schema: SchemaId, name: &str, relation: Relation) -> Result<()> {
        let taken = self.relation_names.contains_key(&(schema, name.to_owned()));
        refuse_if(taken, Code::DuplicateTable, "relation", name)?;
        self.relation_names.insert((schema, name.to_owned()), relation);
        Ok(())
    }

    fn claim_name_of_table(&mut self, table: &Table, name: &str, relation: Relation) -> Result<()> {
        let Some(session) = table.temporary else { return self.claim_name(table.schema, name, relation) };
        let taken = self.temporary_names.contains_key(&(session, name.to_owned()));
        refuse_if(taken, Code::DuplicateTable, "relation", name)?;
        self.temporary_names.insert((session, name.to_owned()), relation);
        Ok(())
    }

    fn forget_names_of_table(&mut self, id: TableId) {
        let Some(table) = self.tables.get(&id) else { return };
        for name in table.indexes.iter().map(|index| &index.name).chain([&table.name]) {
            match table.temporary {
                Some(session) => self.temporary_names.remove(&(session, name.clone())),
                None => self.relation_names.remove(&(table.schema, name.clone())),
            };
        }
    }

    fn remove(&mut self, id: ObjectId) {
        match id {
            ObjectId::Database(id) => {
                self.databases.remove(&id);
                self.grants.retain(|grant| grant.object != access::Object::Database(id));
            }
            ObjectId::Schema(id) => {
                self.schemas.remove(&id);
                self.grants.retain(|grant| grant.object != access::Object::Schema(id));
            }
            ObjectId::Table(id) => {
                self.forget_names_of_table(id);
                self.tables.remove(&id);
                self.forget_grants_on(id);
            }
            ObjectId::View(id) => {
                self.relation_names.retain(|_, relation| *relation != Relation::View(id));
                self.views.remove(&id);
                self.forget_grants_on(id);
            }
            ObjectId::Sequence(id) => {
                self.relation_names.retain(|_, relation| *relation != Relation::Sequence(id));
                self.sequences.remove(&id);
                self.forget_grants_on(TableId(id.0));
            }
            ObjectId::Role(id) => {
                self.roles.remove(&id);
                self.grants.retain(|grant| grant.grantee != access::Grantee::Role(id));
            }
        }
    }

    fn forget_grants_on(&mut self, relation: TableId) {
        self.grants.retain(|grant| match grant.object {
            access::Object::Table(id) | access::Object::Column(id, _) => id != relation,
            access::Object::Database(_) | access::Object::Schema(_) => true,
        });
    }

    /// A catalog from its stored parts, for `storage::catalog`; names are checked as by [`Catalog::apply`].
    pub fn restore(
        version: CatalogVersion,
        next_id: u32,
        objects: &[Object],
        grants: impl IntoIterator<Item = Grant>,
    ) -> Result<Self> {
        let mut catalog = Self { version, next_id, ..Self::default() };
        for object in objects {
            catalog.put(object)?;
        }
        catalog.grants.extend(grants);
        Ok(catalog)
    }

    /// Every object, for `storage::catalog` to write down.
    pub fn objects(&self) -> Vec<Object> {
        let databases = self.databases.values().map(|at| Object::Database(at.as_ref().clone()));
        let schemas = self.schemas.values().map(|at| Object::Schema(at.as_ref().clone()));
        let tables = self.tables.values().map(|at| Object::Table(at.as_ref().clone()));
        let views = self.views.values().map(|at| Object::View(at.as_ref().clone()));
        let sequences = self.sequences.values().map(|at| Object::Sequence(at.as_ref().clone()));
        let roles = self.roles.values().map(|at| Object::Role(at.as_ref().clone()));
        roles.chain(databases).chain(schemas).chain(tables).chain(views).chain(sequences).collect()
    }

    /// The database with this name.
    pub fn find_database(&self, name: &str) -> Option<&Arc<Database>> {
        self.databases.values().find(|database| database.name == name)
    }

    /// The database that was made first and is not the one that only tools expect, unless there is no other.
    pub fn first_database(&self) -> Option<&Arc<Database>> {
        let made = self.databases.values().find(|database| database.id.0 >= OBJECT_ID_MIN);
        made.or_else(|| self.databases.values().next())
    }

    /// The database with this id.
    pub fn database(&self, id: DatabaseId) -> Option<&Arc<Database>> {
        self.databases.get(&id)
    }

    /// All databases.
    pub fn databases(&self) -> impl Iterator<Item = &Arc<Database>> {
        self.databases.values()
    }

    /// The schema of a database with this name.
    pub fn find_schema(&self, database: DatabaseId, name: &str) -> Option<&Arc<Schema>> {
        self.schemas.values().find(|schema| schema.database == database && schema.name == name)
    }

    /// The schema with this id.
    pub fn schema(&self, id: SchemaId) -> Option<&Arc<Schema>> {
        self.schemas.get(&id)
    }

    /// The schemas of a database.
    pub fn schemas(&self, database: DatabaseId) -> impl Iterator<Item = &Arc<Schema>> {
        self.schemas.values().filter(move |schema| schema.database == database)
    }

    /// What a name in a schema stands for.
    pub fn find_relation(&self, schema: SchemaId, name: &str) -> Option<Relation> {
        self.relation_names.get(&(schema, name.to_owned())).copied()
    }

    /// What a name stands for among the temporary tables of a session.
    pub fn find_temporary(&self, session: SessionId, name: &str) -> Option<Relation> {
        self.temporary_names.get(&(session, name.to_owned())).copied()
    }

    /// The table with this id.
    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// The view with this id.
    pub fn view(&self, id: TableId) -> Option<&Arc<View>> {
        self.views.get(&id)
    }

    /// All views.
    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.views.values()
    }

    /// The sequence with this id.
    pub fn sequence(&self, id: SequenceId) -> Option<&Arc<Sequence>> {
        self.sequences.get(&id)
    }

    /// All sequences.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.sequences.values()
    }

    /// The role with this name.
    pub fn find_role(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.values().find(|role| role.name == name)
    }

    /// The role with this id.
    pub fn role(&self, id: RoleId) -> Option<&Arc<Role>> {
        self.roles.get(&id)
    }

    /// All roles.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    /// The grants on one object.
    pub fn grants_on(&self, object: access::Object) -> impl Iterator<Item = &Grant> {
        let first = Grant {
            object,
            grantee: Grantee::Public,
            privilege: Privilege::Select,
            grantor: RoleId(0),
            grantable: false,
        };
        self.grants.range(first..).take_while(move |grant| grant.object == object)
    }

    /// All grants.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter()
    }
}

/// A database of the superuser's with its schema `public`.
fn new_database(id: DatabaseId, public: SchemaId, name: &str, comment: Option<String>) -> [Object; 2] {
    [
        Object::Database(Database { id, name: name.to_owned(), owner: ADMIN, comment }),
        Object::Schema(Schema {
            id: public,
            database: id,
            name: "public".to_owned(),
            owner: ADMIN,
            comment: Some("standard public schema".to_owned()),
        }),
    ]
}

fn refuse_if(taken: bool, code: Code, kind: &str, name: &str) -> Result<()> {
    if taken {
        return Err(Error::new(code, format!("{kind} \"{name}\" already exists")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_cluster_has_its_admin_database_and_public_schema() {
        let catalog = Catalog::bootstrap("admin", None, "keystead");
        let database = catalog.find_database("keystead").expect("made by bootstrap");
        assert!(catalog.find_schema(database.id, "public").is_some());
        assert!(catalog.find_role("admin").is_some_and(|role| role.superuser));
        let tools = catalog.find_database("postgres").expect("made by bootstrap");
        assert!(catalog.find_schema(tools.id, "public").is_some());
        assert_eq!(catalog.first_database().map(|first| first.id), Some(database.id));
        let only = Catalog::bootstrap("admin", None, "postgres");
        assert_eq!(only.databases().count(), 1);
    }

    #[test]
    fn a_name_is_given_once_and_a_change_is_all_or_nothing() {
        let catalog = Catalog::bootstrap("admin", None, "keystead");
        let database = catalog.find_database("keystead").expect("made by bootstrap").id;
        let schema = |id, name: &str| {
            Object::Schema(Schema {
                id: SchemaId(id),
                database,
                name: name.to_owned(),
                owner: ADMIN,
                comment: None,
            })
        };
        let change = Change { put: vec![schema(20_000, "a"), schema(20_001, "a")], ..Change::default() };
        let refused = catalog.apply(&change).expect_err("the same name twice");
        assert_eq!(refused.code(), Code::DuplicateSchema);
        assert!(catalog.find_schema(database, "a").is_none());
    }

    #[test]
    fn the_name_of_a_temporary_table_is_found_by_its_session_alone_and_taken_by_nobody() {
        let catalog = Catalog::bootstrap("admin", None, "keystead");
        let database = catalog.find_database("keystead").expect("made by bootstrap").id;
        let public = catalog.find_schema(database, "public").expect("made by bootstrap").id;
        let table = |id, name: &str, temporary| {
            Object::Table(Table {
                id: TableId(id),
                database,
                schema: public,
                name: name.to_owned(),
                owner: ADMIN,
                kind: crate::schema::Kind::Table,
                version: 1,
                columns: Vec::new(),
                primary_key: None,
                indexes: Vec::new(),
                partition_by: Vec::new(),
                checks: Vec::new(),
                foreign_keys: Vec::new(),
                feed: true,
                temporary,
                comment: None,
            })
        };
        let put = vec![table(20_000, "7\u{1}t", None), table(20_001, "t", Some(SessionId(8)))];
        let catalog = catalog.apply(&Change { put, ..Change::default() }).expect("two names");
        assert_eq!(catalog.find_temporary(SessionId(7), "t"), None);
        assert_eq!(catalog.find_temporary(SessionId(8), "t"), Some(Relation::Table(TableId(20_001))));
        assert_eq!(catalog.find_relation(public, "t"), None);
        let put = vec![table(20_002, "t", None), table(20_003, "t", Some(SessionId(7)))];
        let catalog = catalog.apply(&Change { put, ..Change::default() }).expect("names of others");
        let again = Change { put: vec![table(20_004, "t", Some(SessionId(7)))], ..Change::default() };
        assert_eq!(catalog.apply(&again).expect_err("taken").code(), Code::DuplicateTable);
        let gone = Change { drop: vec![ObjectId::Table(TableId(20_003))], ..Change::default() };
        let catalog = catalog.apply(&gone).expect("dropped");
        assert_eq!(catalog.find_temporary(SessionId(7), "t"), None);
        assert_eq!(catalog.find_relation(public, "t"), Some(Relation::Table(TableId(20_002))));
    }

    #[test]
    fn a_restored_catalog_equals_what_was_stored() {
        let catalog = Catalog::bootstrap("admin", None, "keystead");
        let again = Catalog::restore(
            catalog.version(),
            catalog.next_id(),
            &catalog.objects(),
            catalog.grants().copied(),
        )
        .expect("its own objects");
        assert_eq!(again.objects(), catalog.objects());
        assert_eq!(again.version(), catalog.version());
    }
}
