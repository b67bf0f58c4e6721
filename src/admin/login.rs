//! Login for a browser: the user gives the token once, in a form or in the address, and gets a cookie that is valid as
//! long as this process runs.

use std::io::Read;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use url::form_urlencoded;

use super::Admin;
use super::auth::{COOKIE_NAME, same};

const PAGE: &str = include_str!("dashboard/web/login.html");

/// Returns 128 random bits; empty if the system has no randomness, and then there are no sessions.
pub(super) fn new_session() -> String {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or_else(|_| String::new(), |()| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Answers a user without a session: logs in with the token in the address, or asks for the token.
pub(super) fn page(admin: &Admin, uri: &Uri) -> Response {
    match token(uri.query().unwrap_or_default().as_bytes()) {
        Some(token) => enter(admin, &token),
        None => ask(),
    }
}

/// `POST /login` with a form.
pub(super) async fn login(State(admin): State<Arc<Admin>>, said: Result<Bytes, BytesRejection>) -> Response {
    enter(&admin, &token(&said.unwrap_or_default()).unwrap_or_default())
}

fn enter(admin: &Admin, token: &str) -> Response {
    if !admin.token.as_ref().is_some_and(|secret| same(token.as_bytes(), secret)) {
        return ask();
    }
    let cookie = format!("{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Strict", admin.own.session);
    let fields = [(LOCATION, "/"), (SET_COOKIE, cookie.as_str()), (CACHE_CONTROL, "no-store")];
    (StatusCode::SEE_OTHER, fields).into_response()
}

fn ask() -> Response {
    let fields = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    (StatusCode::UNAUTHORIZED, fields, PAGE).into_response()
}

fn token(form: &[u8]) -> Option<String> {
    form_urlencoded::parse(form).find(|(name, _)| name == "token").map(|(_, value)| value.into_owned())
}
