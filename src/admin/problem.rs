//! Errors of the API: RFC 9457, as for the proxy's own refusals.

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiProblem {
    pub(super) status: StatusCode,
    pub(super) title: &'static str,
    pub(super) detail: String,
}

impl ApiProblem {
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        ApiProblem { status: StatusCode::BAD_REQUEST, title: "Bad request", detail: detail.into() }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let code = self.title.to_ascii_lowercase().replace(' ', "-");
        let problem = serde_json::json!({
            "type": format!("urn:curtsy:problem:{code}"),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let fields = [(CONTENT_TYPE, "application/problem+json"), (CACHE_CONTROL, "no-store")];
        (self.status, fields, format!("{problem:#}\n")).into_response()
    }
}
