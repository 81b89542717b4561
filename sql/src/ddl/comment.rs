//! COMMENT ON.

use model::{
    Code, Error, Result,
    catalog::{Change, Expected, Object, ObjectId},
};
use sqlparser::ast;

use super::{changed_table, last};
use crate::{
    bind::{self, Found, unsupported},
    session::Session,
};

impl Session {
    pub(super) async fn comment(
        &mut self,
        kind: &ast::CommentObject,
        name: &ast::ObjectName,
        text: Option<&str>,
        if_exists: bool,
    ) -> Result<()> {
        if if_exists {
            return Err(unsupported("COMMENT IF EXISTS", "Leave IF EXISTS out."));
        }
        let path = bind::path_of(name)?;
        let names = self.current_names();
        let comment = text.filter(|text| !text.is_empty()).map(str::to_owned);
        let change = match kind {
            ast::CommentObject::Table
            | ast::CommentObject::View
            | ast::CommentObject::Index
            | ast::CommentObject::Sequence => match names.get(&path)? {
                Found::Table(table) => {
                    self.need_owner(&names.catalog, table.owner, "table", &table.name)?;
                    let mut after = (*table).clone();
                    after.comment = comment;
                    changed_table(&table, after)
                }
                Found::View(view) => {
                    self.need_owner(&names.catalog, view.owner, "view", &view.name)?;
                    let mut after = (*view).clone();
                    after.comment = comment;
                    Change {
                        expect: vec![(ObjectId::View(view.id), Some(Expected::Exists))],
                        put: vec![Object::View(after)],
                        ..Change::default()
                    }
                }
                Found::Index(table, id) => {
                    self.need_owner(&names.catalog, table.owner, "index", &last(&path))?;
                    let mut after = (*table).clone();
                    after
                        .indexes
                        .iter_mut()
                        .filter(|index| index.id == id)
                        .for_each(|index| index.comment.clone_from(&comment));
                    changed_table(&table, after)
                }
                Found::Sequence(_) => {
                    return Err(unsupported("COMMENT ON SEQUENCE", "Comment on its table."));
                }
                Found::System(_) => {
                    return Err(Error::new(Code::InsufficientPrivilege, "system catalogs cannot be changed"));
                }
            },
            ast::CommentObject::Column => {
                let Some((column, relation)) = path.split_last() else {
                    return Err(Error::internal("a column without a name"));
                };
                let table = names.get_table(relation)?;
                self.need_owner(&names.catalog, table.owner, "table", &table.name)?;
                let mut after = (*table).clone();
                let found =
                    after.columns.iter_mut().find(|at| !at.dropped && !at.hidden && at.name == *column);
                match found {
                    Some(found) => found.comment = comment,
                    None => {
                        let message =
                            format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                        return Err(Error::new(Code::UndefinedColumn, message));
                    }
                }
                changed_table(&table, after)
            }
            ast::CommentObject::Schema => {
                let id = names.get_schema(&last(&path))?;
                let schema = names
                    .catalog
                    .schema(id)
                    .ok_or_else(|| Error::internal("a schema without a descriptor"))?;
                self.need_owner(&names.catalog, schema.owner, "schema", &schema.name)?;
                let mut after = (**schema).clone();
                after.comment = comment;
                Change {
                    expect: vec![(ObjectId::Schema(id), Some(Expected::Exists))],
                    put: vec![Object::Schema(after)],
                    ..Change::default()
                }
            }
            ast::CommentObject::Database => {
                let name = last(&path);
                let database = names.catalog.find_database(&name).ok_or_else(|| {
                    Error::new(Code::InvalidCatalogName, format!("database \"{name}\" does not exist"))
                })?;
                self.need_owner(&names.catalog, database.owner, "database", &name)?;
                let mut after = (**database).clone();
                after.comment = comment;
                Change {
                    expect: vec![(ObjectId::Database(database.id), Some(Expected::Exists))],
                    put: vec![Object::Database(after)],
                    ..Change::default()
                }
            }
            other => {
                return Err(unsupported(
                    &format!("COMMENT ON {other}"),
                    "Databases, schemas, tables, columns, views and indexes have comments.",
                ));
            }
        };
        self.change(change).await?;
        Ok(())
    }
}
