//! Mounts the agents' door: proves who calls, then hands over to the `mcp` crate.
//!
//! Invariants:
//! - A request without a valid bearer token gets 401 with a challenge and reaches no session.
//! - The token is never logged and never taken from the address.

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};

use crate::grpc::Callers;

/// The routes to merge into the HTTP door: `/mcp`.
pub fn routes(callers: Callers, options: mcp::Options) -> Router {
    Router::new()
        .nest_service("/mcp", mcp::service(options))
        .route_layer(middleware::from_fn_with_state(callers, authenticate))
}

async fn authenticate(State(callers): State<Callers>, mut request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer "));
    let Some(session) = token.and_then(|token| callers(token)) else {
        let challenge = HeaderValue::from_static("Bearer realm=\"keystead\"");
        return (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, challenge)],
            "a bearer token is needed\n",
        )
            .into_response();
    };
    request.extensions_mut().insert(mcp::Caller(session));
    next.run(request).await
}
