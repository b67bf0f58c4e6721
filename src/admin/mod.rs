//! The operator's door, on a listener of its own: health, metrics and the API.
//!
//! Never reachable through the proxy (the guard refuses curtsy's own addresses). A page in a browser cannot be used
//! against it: the Host field must be an address or a name of this machine, which a rebound name is not, and the API
//! answers no request that a browser says comes from elsewhere.

mod body;
pub mod clients;
mod config;
pub mod explain;
pub mod hosts;
mod problem;
mod robots;
mod time;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use subtle::ConstantTimeEq;

use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::proxy::Desk;
use crate::robots::Robots;
use crate::shutdown::Stop;

use self::problem::Problem;

pub use self::config::{Repaced, Steering};

#[derive(Debug)]
pub struct Admin {
    pub metrics: Arc<Metrics>,
    pub gate: Arc<Gate>,
    pub robots: Arc<Robots>,
    pub desk: Desk,
    pub steering: Arc<dyn Steering>,
    pub stop: Stop,
    /// Needed for everything but health, if set.
    pub token: Option<String>,
    pub address: SocketAddr,
}

/// Serves until told to stop.
pub async fn serve(admin: Admin, listener: tokio::net::TcpListener) -> std::io::Result<()> {
    let mut stop = admin.stop.clone();
    let admin = Arc::new(admin);
    let app = Router::new()
        .route("/api/v1/robots", get(robots::show))
        .route("/api/v1/hosts", get(hosts::list))
        .route("/api/v1/hosts/{host}", get(hosts::show).patch(hosts::steer).delete(hosts::forget))
        .route("/api/v1/clients", get(clients::list))
        .route("/api/v1/clients/{name}/stop", post(clients::stop))
        .route("/api/v1/clients/{name}/resume", post(clients::resume))
        .route("/api/v1/explain", get(explain::explain))
        .route("/api/v1/check", post(explain::check))
        .route("/api/v1/config", get(config::show).patch(config::change))
        .layer(middleware::from_fn(body::check_type))
        .layer(middleware::from_fn(check_site))
        .route("/metrics", get(metrics))
        .route("/ca.pem", get(ca))
        .layer(middleware::from_fn_with_state(admin.clone(), check_token))
        .route("/", get(index))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .layer(middleware::from_fn_with_state(admin.clone(), check_host))
        .with_state(admin);
    axum::serve(listener, app).with_graceful_shutdown(async move { stop.requested().await }).await
}

async fn index() -> &'static str {
    "curtsy

  /healthz                   is the process alive
  /readyz                    does it take requests
  /metrics                   for Prometheus
  /ca.pem                    the local CA, where HTTPS is intercepted
  /api/v1/robots?url=URL     what robots.txt means for a URL
                 &user_agent=UA   for this client
                 &fresh=1         fetched again
  /api/v1/hosts              what is known of every host
                 ?sort=wait&filter=TEXT&limit=N&offset=N
  /api/v1/hosts/HOST         of one; PATCH and DELETE steer it
  /api/v1/explain?url=URL    may it be fetched, and when?
  /api/v1/check              the same about many: POST {\"urls\": [...]}
  /api/v1/clients            clients that fail or were stopped
  /api/v1/config             the effective configuration; PATCH changes the pacing
"
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(admin): State<Arc<Admin>>) -> (StatusCode, &'static str) {
    if admin.stop.is_requested() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    // What can be asked for is not counted twice.
    admin.metrics.hosts.set(i64::try_from(admin.gate.hosts()).unwrap_or(i64::MAX));
    admin.metrics.robots.bytes.set(i64::try_from(admin.robots.bytes()).unwrap_or(i64::MAX));
    admin.gate.measure_store();
    admin.metrics.queued.set(i64::try_from(admin.gate.queued()).unwrap_or(i64::MAX));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], admin.metrics.render())
}

async fn ca(State(admin): State<Arc<Admin>>) -> Response {
    match admin.desk.ca_pem() {
        Some(pem) => ([(CONTENT_TYPE, "application/x-pem-file")], pem).into_response(),
        None => {
            (StatusCode::NOT_FOUND, "HTTPS is not intercepted, so there is no CA (tls.intercept).\n").into_response()
        }
    }
}

async fn check_host(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    if is_ours(request.headers(), admin.address) {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, "This is curtsy's admin port; use its address.\n").into_response()
    }
}

/// An IP address cannot be rebound, and localhost is this machine.
fn is_ours(headers: &HeaderMap, address: SocketAddr) -> bool {
    let Some(host) = headers.get(HOST).and_then(|value| value.to_str().ok()) else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let literal = name.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(ip) => ip == address.ip() || ip.is_loopback() || address.ip().is_unspecified(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

/// A page of another site must not even make curtsy fetch something.
async fn check_site(request: Request, next: Next) -> Response {
    if is_of_another_site(request.headers()) {
        let detail = "the API takes no requests from pages of other sites".to_owned();
        return Problem { status: StatusCode::FORBIDDEN, title: "Foreign origin", detail }.into_response();
    }
    next.run(request).await
}

/// As the browser says; other programs say nothing.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    let own = text(HOST.as_str()).unwrap_or_default();
    let foreign = text(ORIGIN.as_str()).is_some_and(|origin| origin.strip_prefix("http://") != Some(own));
    foreign || text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

async fn check_token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let Some(token) = &admin.token else { return next.run(request).await };
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if given.is_some_and(|given| given.ct_eq(token.as_bytes()).into()) {
        return next.run(request).await;
    }
    let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"curtsy\"")];
    (StatusCode::UNAUTHORIZED, challenge, "Send Authorization: Bearer TOKEN (metrics.token).\n").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(host: &str, address: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        is_ours(&headers, address.parse().unwrap())
    }

    #[test]
    fn a_page_of_another_site_is_turned_away() {
        let foreign = |fields: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:3129".parse().unwrap());
            for (name, value) in fields {
                headers.insert(*name, value.parse().unwrap());
            }
            is_of_another_site(&headers)
        };
        assert!(!foreign(&[]));
        assert!(!foreign(&[("origin", "http://127.0.0.1:3129"), ("sec-fetch-site", "same-origin")]));
        assert!(!foreign(&[("sec-fetch-site", "none")]));
        assert!(foreign(&[("origin", "http://evil.test")]));
        assert!(foreign(&[("origin", "null")]));
        assert!(foreign(&[("sec-fetch-site", "cross-site")]));
        assert!(foreign(&[("sec-fetch-site", "same-site")]));
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
    }
}
