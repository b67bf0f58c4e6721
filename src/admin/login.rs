//! Login for a browser: the user gives the token once, in a form or in the address, and gets a cookie that is valid as
//! long as this process runs.

use std::io::Read;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use url::form_urlencoded;

use super::Admin;

/// The name of the cookie that a page receives for its token. Browsers also send it to other ports of this machine, so
/// it is not the token.
const COOKIE_NAME: &str = "curtsy-session";

const PAGE: &str = include_str!("dashboard/web/login.html");

/// Returns 128 random bits; empty if the system has no randomness, and then there are no sessions.
pub(super) fn new_session() -> String {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or_else(|_| String::new(), |()| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn is_in_session(headers: &HeaderMap, session: &str) -> bool {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.any(|(name, value)| name == COOKIE_NAME && !session.is_empty() && same(value.as_bytes(), session))
}

/// Compares in constant time.
pub(super) fn same(given: &[u8], secret: &str) -> bool {
    given.ct_eq(secret.as_bytes()).into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_session_of_this_process_counts() {
        let inside = |cookie: &str, session: &str| {
            is_in_session(&HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())]), session)
        };
        assert!(inside("a=b; curtsy-session=xyz", "xyz"));
        assert!(!inside("curtsy-session=xy", "xyz") && !inside("session=xyz", "xyz"));
        assert!(!inside("curtsy-session=", ""), "without a session no cookie is valid");
    }
}
