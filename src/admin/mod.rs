//! The admin interface, on a listener of its own: health, metrics, the API and the dashboard.
//!
//! It is never reachable through the proxy (the guard refuses curtsy's own addresses), and a web page cannot misuse a
//! browser against it ([`auth`]). Every route of the API is in `openapi.json`, and a test compares the two.

mod auth;
mod body;
pub mod cache;
pub mod clients;
mod config;
mod dashboard;
mod events;
pub mod explain;
pub mod fleet;
mod health;
pub mod history;
pub mod hosts;
mod listener;
mod login;
mod path;
mod problem;
pub mod queue;
mod robots;
mod scrape;
mod state;
pub mod status;
mod time;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use tokio::sync::Semaphore;

use crate::clock;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::metrics::hosts::ROUND;
use crate::politeness::time::Timestamp;
use crate::proxy::DryRun;
use crate::robots::Robots;
use crate::shutdown::Stop;
use crate::store::Store;

use self::history::Histories;
use self::listener::{AdminListener, RequestsUnderWay, Visitor};
use self::status::LastCensus;

pub use self::config::{ConfigSteering, Reloaded, Repaced};
pub use self::path::segment;
pub use self::state::take_in;

#[derive(Debug)]
pub struct Admin {
    pub metrics: Arc<Metrics>,
    pub gate: Arc<Gate>,
    pub robots: Arc<Robots>,
    pub store: Arc<Store>,
    pub desk: DryRun,
    pub steering: Arc<dyn ConfigSteering>,
    pub stop: Stop,
    /// Required for everything but health, if set.
    pub token: Option<String>,
    pub address: SocketAddr,
    /// The addresses where clients connect.
    pub proxy: Vec<SocketAddr>,
    pub own: AdminState,
}

impl Admin {
    /// Returns why changes do not reach the disk now; None if they do, or if nothing is to be kept.
    fn not_kept(&self) -> Option<String> {
        self.store.health()?.trouble.map(|trouble| trouble.to_string())
    }
}

/// State that only this module uses.
#[derive(Debug)]
pub struct AdminState {
    /// Requested when all requests are over. Until then this listener answers, also while curtsy stops.
    closing: Stop,
    started: Timestamp,
    histories: Histories,
    census: LastCensus,
    /// Places for clients that follow the events.
    listeners: Arc<Semaphore>,
    /// Requests that hold places of the listener.
    under_way: Arc<RequestsUnderWay>,
    /// The value of the cookie that a browser gets for the token.
    session: String,
}

impl AdminState {
    pub fn new(closing: Stop) -> Self {
        AdminState {
            closing,
            started: time::now(),
            histories: Histories::default(),
            census: LastCensus::default(),
            listeners: Arc::new(Semaphore::new(events::MOST_LISTENERS)),
            under_way: Arc::default(),
            session: login::new_session(),
        }
    }
}

/// Serves until all requests of clients are over.
pub async fn serve(admin: Admin, listener: tokio::net::TcpListener) -> std::io::Result<()> {
    let mut closing = admin.own.closing.clone();
    let admin = Arc::new(admin);
    tokio::spawn(keep_time(admin.clone()));
    let app = router(admin);
    let app = app.into_make_service_with_connect_info::<Visitor>();
    axum::serve(AdminListener::new(listener), app)
        .with_graceful_shutdown(async move { closing.requested().await })
        .await
}

/// Returns all routes, with the checks in front of them.
pub fn router(admin: Arc<Admin>) -> Router {
    // Only for methods that a route has: any other gets 405, whatever it sends.
    let json = || middleware::from_fn(body::check_type);
    Router::new()
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/status", get(status::show))
        .route("/api/v1/history", get(history::show))
        .route("/api/v1/queue", get(queue::list))
        .route("/api/v1/events", get(events::follow))
        .route("/api/v1/robots", get(robots::show))
        .route("/api/v1/hosts", get(hosts::list))
        .route("/api/v1/hosts/{host}", get(hosts::show).patch(hosts::steer).delete(hosts::forget).route_layer(json()))
        .route("/api/v1/hosts/{host}/history", get(history::of_host))
        .route("/api/v1/clients", get(clients::list))
        .route("/api/v1/clients/{name}/stop", post(clients::stop).route_layer(json()))
        .route("/api/v1/clients/{name}/resume", post(clients::resume).route_layer(json()))
        .route("/api/v1/cache", get(cache::show).delete(cache::purge).route_layer(json()))
        .route("/api/v1/cache/entries", get(cache::list))
        .route("/api/v1/cache/entry", get(cache::one))
        .route("/api/v1/fleet", get(fleet::show))
        .route("/api/v1/fleet/{node}", delete(fleet::forget).route_layer(json()))
        .route("/api/v1/explain", get(explain::explain))
        .route("/api/v1/check", post(explain::check).route_layer(json()))
        .route("/api/v1/config", get(config::show).patch(config::change).route_layer(json()))
        .route("/api/v1/reload", post(config::reload).route_layer(json()))
        .route("/api/v1/state", get(state::export).post(state::import).route_layer(json()))
        .route("/metrics", get(scrape::metrics))
        .route("/ca.pem", get(ca))
        .route("/", get(dashboard::overview))
        .route("/hosts/{host}", get(dashboard::host))
        .route("/clients", get(dashboard::clients))
        .route("/fleet", get(dashboard::fleet))
        .layer(middleware::from_fn_with_state(admin.clone(), auth::check_token))
        .route("/login", post(login::login))
        .route("/assets/{name}", get(dashboard::asset))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .layer(middleware::from_fn(auth::check_site))
        .layer(middleware::from_fn_with_state(admin.clone(), auth::check_host))
        .layer(middleware::from_fn(auth::guard_answer))
        .layer(middleware::from_fn_with_state(admin.clone(), listener::hold))
        .with_state(admin)
}

/// Samples the present state for charts, and assigns metric series to the busiest hosts.
async fn keep_time(admin: Arc<Admin>) {
    let mut closing = admin.own.closing.clone();
    let mut seated = clock::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(history::STEP) => {
                if clock::now() - seated >= ROUND {
                    admin.gate.seat_the_busiest();
                    seated = clock::now();
                }
                admin.own.histories.take(&admin.gate, &admin.metrics);
                admin.desk.shared().events.rest();
            }
            () = closing.requested() => return,
        }
    }
}

/// `GET /api/v1/openapi.json`
async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], include_str!("openapi.json"))
}

async fn ca(State(admin): State<Arc<Admin>>) -> Response {
    match admin.desk.ca_pem() {
        Some(pem) => ([(CONTENT_TYPE, "application/x-pem-file")], pem).into_response(),
        None => {
            (StatusCode::NOT_FOUND, "HTTPS is not intercepted, so there is no CA (tls.intercept).\n").into_response()
        }
    }
}
