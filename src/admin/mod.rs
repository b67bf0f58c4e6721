//! The operator's door, on a listener of its own: health and metrics so far.
//!
//! Never reachable through the proxy (the guard refuses curtsy's own addresses). A page in a browser cannot be used
//! against it: the Host field must be an address or a name of this machine, which a rebound name is not.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use subtle::ConstantTimeEq;

use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::robots::Robots;
use crate::shutdown::Stop;

#[derive(Debug)]
pub struct Admin {
    pub metrics: Arc<Metrics>,
    pub gate: Arc<Gate>,
    pub robots: Arc<Robots>,
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
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(admin.clone(), check_token))
        .route("/", get(index))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .layer(middleware::from_fn_with_state(admin.clone(), check_host))
        .with_state(admin);
    axum::serve(listener, app).with_graceful_shutdown(async move { stop.requested().await }).await
}

async fn index() -> &'static str {
    "curtsy\n\n  /healthz  is the process alive\n  /readyz   does it take requests\n  /metrics  for Prometheus\n"
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
