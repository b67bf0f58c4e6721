//! TLS to the proxy itself, for clients that connect to `tls.listen`.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client::Client;
use super::client_stream::ClientStream;
use super::first_bytes::TLS_HANDSHAKE;
use super::serve;
use crate::metrics::Handshake;
use crate::proxy::Worker;
use crate::proxy::tunnel::ca_rejections::Rejection;
use crate::telemetry::{LogLimiter, REPEAT};

/// Sent to clients that do not speak TLS where it is expected: they cannot be told over TLS.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 This port speaks TLS (curtsy)\r\n\
    Connection: close\r\nContent-Length: 0\r\nCache-Control: no-store\r\n\r\n";

/// Shakes hands with the client, then serves it until either side ends the connection.
pub(crate) async fn greet(worker: Arc<Worker>, near: ClientStream, client: Client) {
    let settings = worker.shared.settings.load_full();
    let patience = settings.config.limits.head_timeout;
    let Some(own) = settings.own.as_ref().map(|own| own.config()) else { return };
    drop(settings);
    let mut stop = worker.shared.stop.clone();
    client.limit.rest_within(patience);
    let handshake = timeout(patience, shake_hands(&worker, near, TlsAcceptor::from(own), client.peer));
    let Some(tls) = (tokio::select! {
        shaken = handshake => shaken.ok().flatten(),
        () = client.limit.dismissal() => None,
        () = stop.requested() => None,
    }) else {
        return;
    };
    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    if is_http2 {
        serve::http2(worker, tls.into(), Arc::new(client.with_many_at_once())).await;
    } else {
        serve::http1(worker, tls.into(), Arc::new(client)).await;
    }
}

async fn shake_hands(
    worker: &Worker,
    mut near: ClientStream,
    acceptor: TlsAcceptor,
    peer: SocketAddr,
) -> Option<TlsStream<ClientStream>> {
    if near.first_byte().await.ok()?? != TLS_HANDSHAKE {
        hint_at_plain(peer);
        // A client that does not speak HTTP either loses nothing by this.
        let _ = near.write_all(NOT_TLS).await;
        let _ = near.shutdown().await;
        return None;
    }
    let shaken = acceptor.accept(near).await;
    worker.shared.metrics.handshake(match &shaken {
        Ok(_) => Handshake::ClientOk,
        Err(error) => match Rejection::in_handshake(error) {
            Some(Rejection::Alert(_)) => Handshake::ClientUntrusted,
            _ => Handshake::ClientFailed,
        },
    });
    shaken
        .inspect_err(|error| tracing::debug!(event = "client.tls", client = %peer.ip(), %error, "a handshake failed"))
        .ok()
}

fn hint_at_plain(peer: SocketAddr) {
    static SAID: LogLimiter = LogLimiter::new();
    if let Some(more) = SAID.may_speak(REPEAT) {
        tracing::warn!(
            event = "client.plain", client = %peer.ip(), more,
            "a client speaks plain HTTP to tls.listen; write https:// in its proxy settings, or use another port"
        );
    }
}
