//! Serves HTTP on a client's connection, whatever the connection is made of, until either side ends it or curtsy stops.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::client::Client;
use super::client_stream::{ClientStream, STREAM_WINDOW};
use super::first_bytes::TLS_HANDSHAKE;
use super::flood_guard::FloodGuard;
use super::request_line::{HttpStream, RequestLine};
use crate::clock;
use crate::config::Limits;
use crate::proxy::Worker;
use crate::proxy::answer::body::Body;
use crate::proxy::request::handle::handle;
use crate::telemetry::{LogLimiter, REPEAT};
use crate::timeout_stream::TimeoutStream;

/// hyper's smallest read buffer.
const LEAST_BUFFER: usize = 8192;

pub(crate) async fn http1(worker: Arc<Worker>, stream: ClientStream, client: Arc<Client>) {
    let peer = client.peer;
    let settings = worker.shared.settings.load_full();
    let limits = &settings.config.limits;
    let io: HttpStream = TokioIo::new(RequestLine::new(patient(stream, &client, limits), limits.head_size));
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(limits.head_size)
        .max_buf_size(limits.head_size.max(LEAST_BUFFER))
        .header_read_timeout(None);
    drop(settings);
    let mut stop = worker.shared.stop.clone();
    let mut connection = builder.serve_connection(io, service(worker, client.clone())).with_upgrades();
    let result = tokio::select! {
        // In this order, so that an answer that is ready at the same time as the stop says that the connection ends.
        biased;
        () = stop.requested() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
        result = &mut connection => result,
    };
    if let Err(error) = result {
        tracing::debug!(event = "client.error", client = %peer.ip(), %error, "a client connection ended early");
        let Some(parts) = connection.into_parts() else { return };
        if parts.read_buf.first() == Some(&TLS_HANDSHAKE) {
            hint_at_tls(peer);
        }
        // The answer broke off. An ordinary end would make it look complete to an HTTP/1.0 client.
        if error.is_user() && client.ends_by_close() {
            parts.io.into_inner().into_inner().into_inner().reset();
        }
    }
}

/// Serves HTTP/2, which is offered over TLS only, to clients that chose it.
pub(crate) async fn http2(worker: Arc<Worker>, stream: ClientStream, client: Arc<Client>) {
    let peer = client.peer;
    let settings = worker.shared.settings.load_full();
    let limits = &settings.config.limits;
    let io = TokioIo::new(FloodGuard::new(patient(stream, &client, limits)));
    let head_size = u32::try_from(limits.head_size).unwrap_or(u32::MAX).min(LARGEST_HEAD);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(head_size)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    let stall = limits.client_stall;
    drop(settings);
    let mut stop = worker.shared.stop.clone();
    let mut connection = std::pin::pin!(builder.serve_connection(io, service(worker, client.clone())));
    let result = tokio::select! {
        biased;
        () = stop.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        result = connection.as_mut() => result,
        () = taking_nothing(&client, stall) => {
            tracing::debug!(event = "client.stall", client = %peer.ip(), "a client takes nothing of an answer");
            return;
        }
    };
    if let Err(error) = result {
        tracing::debug!(event = "client.error", client = %peer.ip(), %error, "a client connection ended early");
    }
}

/// Resolves when the client has taken nothing of one of its answers for too long. That the connection is alive is no
/// excuse: an answer occupies a place at its host.
async fn taking_nothing(client: &Client, stall: Duration) {
    loop {
        let left = stall.saturating_sub(client.longest_untaken());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// Requests that one client may have under way on one connection. They wait for their turns there, so it is as many as
/// most servers allow.
const MOST_STREAMS: u32 = 100;
/// The largest head as HTTP/2 counts it, whatever `limits.head_size` allows: to repeat a field costs a client nothing.
/// nginx accepts as much by default (four buffers of 8 KiB), and Node half of it.
const LARGEST_HEAD: u32 = 32 * 1024;
/// Requests that the client cancelled before they were looked at; more of them at once are an attack (CVE-2023-44487).
const MOST_RESETS: usize = 20;
/// What a client may send of all uploads before their origins have taken it: a megabyte, so that several uploads do not
/// share the window of one.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// What is read from an origin before the client has taken it, for each request.
const SEND_BUFFER: usize = 64 * 1024;

fn service(
    worker: Arc<Worker>,
    client: Arc<Client>,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> {
    service_fn(move |request| {
        let (worker, client) = (worker.clone(), client.clone());
        let (parts, body) = Request::into_parts(request);
        let parts = Box::new(parts);
        // Boxed, because hyper keeps the space of this future for as long as the connection lives: 4.4 KiB for each
        // connection, even an idle one.
        Box::pin(async move { Ok(handle(worker, client, parts, body).await) })
    })
}

/// Returns the client's connection, which ends when the client is silent for too long.
fn patient(stream: ClientStream, client: &Client, limits: &Limits) -> TimeoutStream<ClientStream> {
    client.waits(limits.client_idle, limits.head_timeout, clock::now());
    let look = limits.client_idle.min(limits.head_timeout);
    TimeoutStream::new(stream, client.limit.clone(), limits.client_stall, look)
}

fn hint_at_tls(peer: SocketAddr) {
    static SAID: LogLimiter = LogLimiter::new();
    if let Some(more) = SAID.may_speak(REPEAT) {
        tracing::warn!(
            event = "client.tls", client = %peer.ip(), more,
            "a client speaks TLS to the proxy port, which is plain HTTP; write http:// in its https_proxy"
        );
    }
}
