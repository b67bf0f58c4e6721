//! The dashboard at `/`.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

pub(super) async fn overview() -> Response {
    "curtsy\n".into_response()
}

pub(super) async fn host(Path(_host): Path<String>) -> Response {
    "curtsy\n".into_response()
}

pub(super) async fn asset(Path(_name): Path<String>) -> StatusCode {
    StatusCode::NOT_FOUND
}
