//! Bytes both ways, once client and origin speak something that curtsy does not: CONNECT and WebSocket.
//!
//! An end in one direction is passed on as an end; the other direction goes on. A tunnel in which nothing moves for
//! `upstream.idle_timeout` is closed.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use super::body::Body;
use super::in_flight::InFlight;
use super::worker::ClientStream;
use super::{Settings, Worker, headers};
use crate::patience::{Limit, Patient};
use crate::upstream::Stream;

/// Both buffers are allocated at once, so ten thousand tunnels cost 320 MB. Larger ones save little (measured: 16 KiB
/// 0.9 s of CPU per GiB, 64 KiB 0.87 s).
const BUFFER: usize = 16 * 1024;

/// Joins client and origin as soon as hyper hands the client's connection over.
pub(super) fn join(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    upgrade: OnUpgrade,
    origin: Stream,
    early: Bytes,
    in_flight: Option<InFlight>,
) {
    let working = worker.live.begin();
    let worker = worker.clone();
    let idle = settings.config.upstream.idle_timeout;
    tokio::spawn(async move {
        let _working = working;
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(client) = upgraded.downcast::<ClientStream>() else { return };
        worker.shared.metrics.tunnels.open.inc();
        let limit = Arc::new(Limit::none());
        limit.each_within(idle);
        let client_stream = client.io.into_inner().into_inner();
        let near = Patient::new(client_stream, limit.clone(), idle, idle);
        let far = Patient::new(origin, limit, idle, idle);
        let copied = copy(near, far, &client.read_buf, &early).await;
        worker.shared.metrics.tunnels.open.dec();
        if let Some(mut in_flight) = in_flight {
            in_flight.sent(copied.unwrap_or_default());
            in_flight.completed();
        }
    });
}

/// Answers 101 and joins the two connections that are behind it.
pub(super) fn switch(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    response: Response<()>,
    stream: Stream,
    early: Bytes,
    upgrade: OnUpgrade,
    in_flight: Option<InFlight>,
) -> Response<Body> {
    let protocol = response.headers().get(UPGRADE).cloned();
    let identity = settings.config.upstream.via.then_some(&worker.shared.identity);
    let version = response.version();
    let mut response = response.map(|()| Body::from(Bytes::new()));
    headers::incoming(response.headers_mut(), identity, version);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        response.headers_mut().insert(UPGRADE, protocol);
    }
    join(worker, settings, upgrade, stream, early, in_flight);
    response
}

/// Answers how many bytes the client was sent.
async fn copy(
    mut near: Patient<TcpStream>,
    mut far: Patient<Stream>,
    from_near: &[u8],
    from_far: &[u8],
) -> std::io::Result<usize> {
    far.write_all(from_near).await?;
    near.write_all(from_far).await?;
    let (_, down) = copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER).await?;
    Ok(usize::try_from(down).unwrap_or(usize::MAX) + from_far.len())
}
