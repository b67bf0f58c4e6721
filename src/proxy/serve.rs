//! HTTP on a client's connection, whatever the connection is made of: requests in, answers out, until either side ends
//! it or curtsy stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::Worker;
use super::handle::{Client, handle};
use super::near::Near;
use crate::config::Limits;
use crate::patience::Patient;
use crate::telemetry::Seldom;

/// What hyper reads requests from.
pub(super) type ClientStream = TokioIo<Patient<Near>>;

/// hyper's smallest read buffer.
const LEAST_BUFFER: usize = 8192;
/// The first byte of a TLS connection.
pub(super) const TLS_HANDSHAKE: u8 = 0x16;
/// A warning that would repeat is said once in this time.
const REPEAT: Duration = Duration::from_secs(60);

pub(super) async fn http1(worker: Arc<Worker>, stream: Near, client: Arc<Client>) {
    let peer = client.peer;
    let settings = worker.shared.settings.load_full();
    let limits = &settings.config.limits;
    let io = patient(stream, &client, limits);
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(limits.head_size)
        .max_buf_size(limits.head_size.max(LEAST_BUFFER))
        .header_read_timeout(None);
    drop(settings);
    let mut stop = worker.shared.stop.clone();
    let service = service_fn(move |request| {
        let (worker, client) = (worker.clone(), client.clone());
        // Boxed, because hyper keeps the space of this future for as long as the connection lives: 4.4 KiB for each
        // client that waits.
        Box::pin(async move { Ok::<_, std::convert::Infallible>(handle(&worker, &client, request).await) })
    });
    let mut connection = builder.serve_connection(io, service).with_upgrades();
    let result = tokio::select! {
        // In this order, so that an answer that comes with the wish to stop says that the connection ends.
        biased;
        () = stop.requested() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
        result = &mut connection => result,
    };
    if let Err(error) = result {
        tracing::debug!(event = "client.error", client = %peer.ip(), %error, "a client connection ended early");
        let speaks_tls = connection.into_parts().is_some_and(|parts| parts.read_buf.first() == Some(&TLS_HANDSHAKE));
        if speaks_tls {
            hint_at_tls(peer);
        }
    }
}

/// The client's connection, which ends when the client is silent for too long.
fn patient(stream: Near, client: &Client, limits: &Limits) -> ClientStream {
    client.limit.begin_within(limits.client_idle, limits.head_timeout);
    let look = limits.client_idle.min(limits.head_timeout);
    TokioIo::new(Patient::new(stream, client.limit.clone(), limits.client_stall, look))
}

fn hint_at_tls(peer: SocketAddr) {
    static SAID: Seldom = Seldom::new();
    if let Some(more) = SAID.may_speak(REPEAT) {
        tracing::warn!(
            event = "client.tls", client = %peer.ip(), more,
            "a client speaks TLS to the proxy port, which is plain HTTP; write http:// in its https_proxy"
        );
    }
}
