//! Who may do what, by the roles and grants of one catalog.
//!
//! Invariants:
//! - A superuser may do everything, an owner everything with what it owns; a role has the rights of those it inherits from.
//! - A right on a whole relation is one on each of its columns.
//!
//! Not here: which rights a statement needs (`bind`), where that is checked (`session::planning`).

use std::collections::BTreeSet;

use model::{
    Code, Error,
    access::{Grantee, Object, Privilege, Role},
    catalog::Catalog,
    id::{ColumnNumber, RoleId, SchemaId, SequenceId, TableId},
};

pub(crate) fn is_superuser(catalog: &Catalog, role: RoleId) -> bool {
    catalog.role(role).is_some_and(|role| role.superuser)
}

/// Whether a role is a member of another, directly or not, whether or not it has its rights.
pub(crate) fn is_member(catalog: &Catalog, role: RoleId, group: RoleId) -> bool {
    closure(catalog, role, |_| true).contains(&group)
}

/// A role and all whose rights it has.
pub(crate) fn roles_of(catalog: &Catalog, role: RoleId) -> BTreeSet<RoleId> {
    closure(catalog, role, |role| role.inherit)
}

fn closure(catalog: &Catalog, role: RoleId, passes: impl Fn(&Role) -> bool) -> BTreeSet<RoleId> {
    let mut roles = BTreeSet::new();
    let mut open = vec![role];
    while let Some(next) = open.pop() {
        if roles.insert(next)
            && let Some(role) = catalog.role(next)
            && passes(role)
        {
            open.extend(&role.member_of);
        }
    }
    roles
}

/// Whether a role has a right on an object that has this owner.
pub(crate) fn has_right(
    catalog: &Catalog,
    role: RoleId,
    object: Object,
    privilege: Privilege,
    owner: Option<RoleId>,
) -> bool {
    if is_superuser(catalog, role) {
        return true;
    }
    let roles = roles_of(catalog, role);
    owner.is_some_and(|owner| roles.contains(&owner)) || is_granted(catalog, &roles, object, privilege)
}

/// Whether a role may do something to these columns of a table or view; where none are named, to any one of them.
pub(crate) fn may_with_columns(
    catalog: &Catalog,
    role: RoleId,
    relation: TableId,
    privilege: Privilege,
    columns: &BTreeSet<ColumnNumber>,
) -> bool {
    if is_superuser(catalog, role) {
        return true;
    }
    let roles = roles_of(catalog, role);
    let owner = catalog
        .table(relation)
        .map(|table| table.owner)
        .or_else(|| catalog.view(relation).map(|view| view.owner));
    if owner.is_some_and(|owner| roles.contains(&owner))
        || is_granted(catalog, &roles, Object::Table(relation), privilege)
    {
        return true;
    }
    let on = |column: ColumnNumber| is_granted(catalog, &roles, Object::Column(relation, column), privilege);
    match catalog.table(relation) {
        Some(table) if columns.is_empty() => table.columns.iter().any(|column| on(column.number)),
        _ => !columns.is_empty() && columns.iter().all(|column| on(*column)),
    }
}

/// Whether a role may use what is in a schema. Everyone may use `public`, as in a new database of PostgreSQL.
pub(crate) fn may_use_schema(catalog: &Catalog, role: RoleId, schema: SchemaId) -> bool {
    catalog.schema(schema).is_some_and(|found| {
        found.name == "public"
            || has_right(catalog, role, Object::Schema(schema), Privilege::Usage, Some(found.owner))
    })
}

/// `42501` for a schema.
pub(crate) fn no_schema(name: &str) -> Error {
    Error::new(Code::InsufficientPrivilege, format!("permission denied for schema {name}"))
}

/// Whether a role has one of these rights on a sequence.
pub(crate) fn may_use_sequence(
    catalog: &Catalog,
    role: RoleId,
    sequence: SequenceId,
    privileges: &[Privilege],
) -> bool {
    let owner = catalog.sequence(sequence).map(|sequence| sequence.owner);
    let object = Object::Table(TableId(sequence.0));
    privileges.iter().any(|privilege| has_right(catalog, role, object, *privilege, owner))
}

fn is_granted(catalog: &Catalog, roles: &BTreeSet<RoleId>, object: Object, privilege: Privilege) -> bool {
    catalog.grants_on(object).any(|grant| {
        let to_us = match grant.grantee {
            Grantee::Public => true,
            Grantee::Role(id) => roles.contains(&id),
        };
        to_us && grant.privilege == privilege
    })
}
