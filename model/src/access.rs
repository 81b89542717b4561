//! Who may do what: principals, roles, privileges, and one pure function that decides.
//!
//! Invariants:
//! - Authorization is a function of (roles and grants of one catalog snapshot, principal, privilege, object). Nothing
//!   the client says about itself takes part.
//! - A superuser may do everything; an owner may do everything with what it owns.
//!
//! Not here: authentication (`server::auth`), row policies.

use std::collections::BTreeSet;

use crate::id::{ColumnNumber, DatabaseId, RoleId, SchemaId, TableId};

/// A role: a user, a group, or both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// Its id, also its `pg_authid.oid`.
    pub id: RoleId,
    /// Its name.
    pub name: String,
    /// May do everything.
    pub superuser: bool,
    /// May log in.
    pub login: bool,
    /// May create databases.
    pub create_database: bool,
    /// May create roles.
    pub create_role: bool,
    /// Has the rights of the roles it is a member of without `SET ROLE`.
    pub inherit: bool,
    /// How many connections it may hold; none for no limit.
    pub connections_max: Option<u32>,
    /// SCRAM-SHA-256 verifier in PostgreSQL's text form (RFC 5803); none if it has no password.
    pub password: Option<String>,
    /// The roles it is a member of.
    pub member_of: BTreeSet<RoleId>,
}

/// What can be granted (PostgreSQL's ACL letters in brackets).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Privilege {
    /// Read rows (r).
    Select,
    /// Add rows (a).
    Insert,
    /// Change rows (w).
    Update,
    /// Remove rows (d).
    Delete,
    /// Empty a table (D).
    Truncate,
    /// Refer to a table by a foreign key (x).
    References,
    /// Attach triggers (t); kept for the grammar, there are no triggers.
    Trigger,
    /// Use a schema or sequence (U).
    Usage,
    /// Create objects inside (C).
    Create,
    /// Connect to a database (c).
    Connect,
    /// Create temporary tables in a database (T).
    Temporary,
}

/// What a privilege is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Object {
    /// A database.
    Database(DatabaseId),
    /// A schema.
    Schema(SchemaId),
    /// A table, view or sequence: they share one number space.
    Table(TableId),
    /// One column of a table.
    Column(TableId, ColumnNumber),
}

/// To whom: a role, or everyone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Grantee {
    /// Everyone.
    Public,
    /// One role and those who inherit from it.
    Role(RoleId),
}

/// One granted right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Grant {
    /// On what.
    pub object: Object,
    /// To whom.
    pub grantee: Grantee,
    /// What.
    pub privilege: Privilege,
    /// By whom.
    pub grantor: RoleId,
    /// May be passed on.
    pub grantable: bool,
}
