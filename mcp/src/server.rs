//! The protocol's server: what it says of itself, which tools there are, and how a call reaches one.

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

use crate::{Caller, tools};

/// Stateless: made anew for every request.
#[derive(Clone, Copy, Debug)]
pub struct Server;

const INSTRUCTIONS: &str = "Keystead is a database. db_query runs one read-only SQL statement (PostgreSQL's dialect); \
    information_schema and pg_catalog describe what there is. Values of bigint and numeric come as strings.";

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info.server_info = Implementation::new("keystead", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(caller) = caller(&context) else {
            return Err(ErrorData::internal_error("the call carries no proven caller", None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let result: CallToolResult = match request.name.as_ref() {
            tools::query::NAME => tools::query::call(Arc::clone(&caller.0), arguments).await,
            unknown => return Err(ErrorData::invalid_params(format!("tool not found: {unknown}"), None)),
        };
        Ok(result.into())
    }
}

fn caller(context: &RequestContext<RoleServer>) -> Option<Caller> {
    let parts = context.extensions.get::<http::request::Parts>()?;
    parts.extensions.get::<Caller>().cloned()
}
