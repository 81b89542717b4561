//! The tools, one per file: name, schema, call. This list is their table of contents.

pub(crate) mod query;

use rmcp::model::Tool;

/// Every tool that works.
pub(crate) fn all() -> Vec<Tool> {
    vec![query::tool()]
}
