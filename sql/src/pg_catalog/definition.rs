//! Definitions as SQL text: `pg_get_indexdef`, `pg_get_constraintdef` and their siblings.

use model::{
    Type,
    catalog::Catalog,
    id::{ColumnNumber, IndexId},
    schema::{ColumnDefault, ForeignKey, Index, KeyConstraint, Referential, Table},
};

use super::derived_oid;
use crate::{context::Context, functions::text::quote_identifier};

/// One constraint of a table, of any kind.
#[derive(Clone, Copy)]
pub(crate) enum Constraint<'a> {
    Primary(&'a Index),
    Unique(&'a Index),
    Check(&'a model::schema::Check),
    Foreign(&'a ForeignKey),
}

impl<'a> Constraint<'a> {
    /// All constraints of a table.
    pub(crate) fn of(table: &'a Table) -> Vec<Self> {
        let keyed = table.indexes.iter().filter_map(|index| match index.constraint? {
            KeyConstraint::Primary => Some(Self::Primary(index)),
            KeyConstraint::Unique => Some(Self::Unique(index)),
        });
        let checks = table.checks.iter().map(Self::Check);
        let foreign = table.foreign_keys.iter().map(Self::Foreign);
        keyed.chain(checks).chain(foreign).collect()
    }

    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Primary(index) | Self::Unique(index) => &index.name,
            Self::Check(check) => &check.name,
            Self::Foreign(key) => &key.name,
        }
    }

    pub(crate) fn oid(self, table: &Table) -> u32 {
        derived_oid(table.id.0, "constraint", self.name())
    }

    /// `pg_constraint.contype`.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::Primary(_) => "p",
            Self::Unique(_) => "u",
            Self::Check(_) => "c",
            Self::Foreign(_) => "f",
        }
    }

    /// The columns it is about.
    pub(crate) fn columns(self) -> Vec<ColumnNumber> {
        match self {
            Self::Primary(index) | Self::Unique(index) => {
                index.parts.iter().map(|part| part.column).collect()
            }
            Self::Check(_) => Vec::new(),
            Self::Foreign(key) => key.columns.clone(),
        }
    }

    /// `pg_get_constraintdef`.
    pub(crate) fn definition(self, context: &Context, table: &Table, pretty: bool) -> String {
        match self {
            Self::Primary(index) => {
                format!("PRIMARY KEY ({})", names(table, index.parts.iter().map(|part| part.column)))
            }
            Self::Unique(index) => {
                let nulls = if index.nulls_not_distinct { "NULLS NOT DISTINCT " } else { "" };
                format!("UNIQUE {nulls}({})", names(table, index.parts.iter().map(|part| part.column)))
            }
            Self::Check(check) if pretty => format!("CHECK ({})", check.expression),
            Self::Check(check) => format!("CHECK ({})", parenthesised(&check.expression)),
            Self::Foreign(key) => foreign(context, table, key),
        }
    }
}

fn parenthesised(expression: &str) -> String {
    format!("({expression})")
}

fn names(table: &Table, columns: impl Iterator<Item = ColumnNumber>) -> String {
    let names: Vec<String> = columns.map(|column| quote_identifier(&table.column(column).name)).collect();
    names.join(", ")
}

fn foreign(context: &Context, table: &Table, key: &ForeignKey) -> String {
    let columns = names(table, key.columns.iter().copied());
    let mut out = format!("FOREIGN KEY ({columns}) REFERENCES ");
    out.push_str(&crate::functions::cast::relation_name(context, key.parent.0));
    if let Some(parent) = context.catalog.table(key.parent) {
        out.push_str(&format!("({})", names(parent, key.parent_columns.iter().copied())));
    }
    for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        let action = match action {
            Referential::NoAction => continue,
            Referential::Cascade => "CASCADE",
            Referential::SetNull => "SET NULL",
            Referential::SetDefault => "SET DEFAULT",
        };
        out.push_str(&format!(" ON {event} {action}"));
    }
    out
}

/// The table and index with this index id.
pub(crate) fn find_index(catalog: &Catalog, oid: u32) -> Option<(&std::sync::Arc<Table>, &Index)> {
    let id = IndexId(oid);
    catalog.tables().find_map(|table| table.find_index(id).map(|index| (table, index)))
}

/// The access method by which an index is declared.
pub(crate) const INDEX_METHOD: &str = "btree";

/// `pg_get_indexdef(index)`.
pub(crate) fn index_definition(context: &Context, table: &Table, index: &Index) -> String {
    let unique = if index.unique { "UNIQUE " } else { "" };
    let parts: Vec<String> = (0..index.parts.len()).map(|place| index_part(table, index, place)).collect();
    let relation = match context.catalog.schema(table.schema) {
        Some(schema) => format!("{}.{}", quote_identifier(&schema.name), quote_identifier(&table.name)),
        None => quote_identifier(&table.name),
    };
    let mut out = format!(
        "CREATE {unique}INDEX {} ON {relation} USING {INDEX_METHOD} ({})",
        quote_identifier(&index.name),
        parts.join(", ")
    );
    if index.nulls_not_distinct {
        out.push_str(" NULLS NOT DISTINCT");
    }
    if let Some(predicate) = &index.predicate_text {
        out.push_str(&format!(" WHERE ({predicate})"));
    }
    out
}

/// One column of `pg_get_indexdef`, with what differs from the defaults.
pub(crate) fn index_part(table: &Table, index: &Index, place: usize) -> String {
    let part = &index.parts[place];
    let mut out = index_part_name(table, index, place);
    if part.order.desc {
        out.push_str(" DESC");
    }
    match (part.order.desc, part.order.nulls_first) {
        (false, true) => out.push_str(" NULLS FIRST"),
        (true, false) => out.push_str(" NULLS LAST"),
        (false, false) | (true, true) => {}
    }
    out
}

/// The column's name, or its expression.
pub(crate) fn index_part_name(table: &Table, index: &Index, place: usize) -> String {
    let column = table.column(index.parts[place].column);
    match (&column.default, column.hidden) {
        (Some(ColumnDefault::Generated(expression)), true) => {
            let is_call = expression.ends_with(')') && !expression.starts_with('(');
            if is_call { expression.clone() } else { parenthesised(expression) }
        }
        _ => quote_identifier(&column.name),
    }
}

/// The SQL text of a column's default or generation expression, if it shows one.
pub(crate) fn default_text(context: &Context, default: &ColumnDefault, of: Type) -> Option<String> {
    match default {
        // A text constant is shown with its type, as PostgreSQL shows it.
        ColumnDefault::Expression(expression) | ColumnDefault::Generated(expression) => {
            let inside = expression.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            let constant = inside.is_some_and(|inside| !inside.contains('\''));
            Some(if constant { format!("{expression}::{}", of.display_name()) } else { expression.clone() })
        }
        ColumnDefault::Identity { sequence, .. } => {
            let name = crate::functions::cast::relation_name(context, sequence.0);
            Some(format!("nextval({}::regclass)", crate::functions::text::quote_literal(&name)))
        }
    }
}
