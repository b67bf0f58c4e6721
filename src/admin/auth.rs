//! The checks that every request to the admin listener must pass, whatever it is for.
//!
//! They protect against a web page that misuses the operator's browser. The Host field must be an address, a name of
//! this machine or one that the operator lists, which a rebound name is not. A request that the browser marks as coming
//! from another site is refused, except a user who follows a link to a page. With a token, everything but health needs
//! the token, or the cookie that a page receives for it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_SECURITY_POLICY, HOST, HeaderValue, ORIGIN, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::ApiProblem;
use super::{Admin, login};
use crate::politeness::HostKey;

pub(super) async fn check_host(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let is_ours = {
        let settings = admin.desk.shared().settings.load();
        is_ours(request.headers(), admin.address, &settings.config.access.admin_hosts)
    };
    if is_ours {
        next.run(request).await
    } else {
        let advice = "This is curtsy's admin port. Use its address, or list the name in access.admin_hosts.\n";
        (StatusCode::MISDIRECTED_REQUEST, advice).into_response()
    }
}

/// An IP address cannot be rebound, localhost is this machine, and the operator vouches for `names`.
fn is_ours(headers: &HeaderMap, address: SocketAddr, names: &[HostKey]) -> bool {
    let Some(host) = headers.get(HOST).and_then(|value| value.to_str().ok()) else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let literal = name.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(ip) => ip == address.ip() || ip.is_loopback() || address.ip().is_unspecified(),
        Err(_) => name.eq_ignore_ascii_case("localhost") || is_one_of(name, names),
    }
}

fn is_one_of(name: &str, names: &[HostKey]) -> bool {
    !names.is_empty() && HostKey::parse(name).is_ok_and(|name| names.contains(&name))
}

/// A page of another site must not even make curtsy fetch something.
pub(super) async fn check_site(request: Request, next: Next) -> Response {
    let is_page = request.method() == Method::GET && !request.uri().path().starts_with("/api/");
    if is_of_another_site(request.headers()) && !(is_page && follows_a_link(request.headers())) {
        let detail = "the API takes no requests from pages of other sites".to_owned();
        return ApiProblem { status: StatusCode::FORBIDDEN, title: "Foreign origin", detail }.into_response();
    }
    next.run(request).await
}

/// Relies on what the browser says; other programs send none of these fields.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let own = text(headers, HOST.as_str()).unwrap_or_default();
    // https:// if a proxy in front of this listener speaks TLS.
    let is_another =
        |origin: &str| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) != Some(own);
    let foreign = text(headers, ORIGIN.as_str()).is_some_and(is_another);
    foreign || text(headers, "sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

/// A user navigates to a page in a window of its own: the page with the link cannot read anything of it.
fn follows_a_link(headers: &HeaderMap) -> bool {
    !headers.contains_key(ORIGIN)
        && text(headers, "sec-fetch-mode") == Some("navigate")
        && text(headers, "sec-fetch-dest") == Some("document")
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"))
}

pub(super) async fn check_token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let Some(token) = &admin.token else { return next.run(request).await };
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let by_token = given.is_some_and(|given| login::same(given, token));
    if by_token || login::is_in_session(request.headers(), &admin.own.session) {
        return next.run(request).await;
    }
    if request.method() == Method::GET && request.uri().path() == "/" {
        return login::page(&admin, request.uri());
    }
    let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"curtsy\"")];
    (StatusCode::UNAUTHORIZED, challenge, "Send Authorization: Bearer TOKEN (metrics.token).\n").into_response()
}

/// Allows only curtsy's own scripts, styles and calls, and no frame of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds fields that say what a browser must not do with any response from here.
pub(super) async fn guard_answer(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(host: &str, address: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        is_ours(&headers, address.parse().unwrap(), &[HostKey::parse("curtsy.example.org").unwrap()])
    }

    fn fields(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1:3129".parse().unwrap());
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_page_of_another_site_is_turned_away() {
        let foreign = |given: &[(&'static str, &str)]| is_of_another_site(&fields(given));
        assert!(!foreign(&[]));
        assert!(!foreign(&[("origin", "http://127.0.0.1:3129"), ("sec-fetch-site", "same-origin")]));
        assert!(!foreign(&[("sec-fetch-site", "none")]));
        assert!(!foreign(&[("origin", "https://127.0.0.1:3129"), ("sec-fetch-site", "same-origin")]));
        assert!(foreign(&[("origin", "http://evil.test")]) && foreign(&[("origin", "https://evil.test")]));
        assert!(foreign(&[("origin", "http://127.0.0.1:8080")]));
        assert!(foreign(&[("origin", "null")]));
        assert!(foreign(&[("sec-fetch-site", "cross-site")]));
        assert!(foreign(&[("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn a_link_may_be_followed_but_not_into_a_frame() {
        let follows = |given: &[(&'static str, &str)]| follows_a_link(&fields(given));
        assert!(follows(&[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")]));
        assert!(!follows(&[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")]));
        assert!(!follows(&[("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")]));
        assert!(!follows(&[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"), ("origin", "null")]));
    }

    #[test]
    fn a_rebound_name_is_turned_away() {
        assert!(ours("127.0.0.1:3129", "127.0.0.1:3129"));
        assert!(ours("localhost:3129", "127.0.0.1:3129"));
        assert!(ours("[::1]:3129", "[::1]:3129"));
        assert!(ours("10.0.0.7:3129", "0.0.0.0:3129"));
        assert!(!ours("evil.test:3129", "127.0.0.1:3129"));
        assert!(!ours("10.0.0.7:3129", "127.0.0.1:3129"));
        assert!(!ours("localhost.evil.test", "127.0.0.1:3129"));
        assert!(ours("Curtsy.example.org:3129", "127.0.0.1:3129") && ours("curtsy.example.org", "127.0.0.1:3129"));
        assert!(!ours("a.curtsy.example.org", "127.0.0.1:3129"));
    }
}
