//! A worker: one single-threaded runtime with its own accept loop and its own connections to origins.
//!
//! Workers share the listening sockets, so an idle one takes the next connection. An error of accept is survived: a
//! proxy that dies of too many open files fails everybody.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use super::Shared;
use super::handle::{Client, handle};
use crate::patience::{Limit, Patient};
use crate::shutdown::Live;
use crate::telemetry::Seldom;
use crate::upstream::{Resolver, Upstream};

pub(super) type ClientStream = TokioIo<Patient<TcpStream>>;

#[derive(Debug)]
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) upstream: Upstream,
    /// Connections and tunnels that a stop waits for.
    pub(super) live: Live,
}

/// After an error of accept, so that a full file table does not become a busy loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);
/// How often idle connections to origins are looked through. Half of the shortest sensible keep-alive.
const SWEEP: Duration = Duration::from_secs(1);

/// A warning that would repeat is said once in this time.
const REPEAT: Duration = Duration::from_secs(60);
/// What the kernel takes on behalf of a slow client. Left alone it takes megabytes, and then no more before a third of
/// them is gone: a client that reads steadily, but slowly, would seem to take nothing for longer than `client_stall`.
const MOST_UNSENT: u32 = 128 * 1024;

const TOO_MANY: &[u8] = b"HTTP/1.1 503 Too many connections (curtsy)\r\n\
    Connection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\nCache-Control: no-store\r\n\r\n";

impl Worker {
    pub fn new(shared: Arc<Shared>, resolver: Arc<Resolver>) -> Self {
        Worker { shared, upstream: Upstream::new(resolver), live: Live::default() }
    }

    /// Accepts until told to stop, then waits for what is in flight, at most `shutdown_grace`.
    pub async fn run(self: Arc<Self>, listeners: Vec<std::net::TcpListener>) -> io::Result<()> {
        let mut stop = self.shared.stop.clone();
        for listener in listeners {
            let listener = TcpListener::from_std(listener)?;
            tokio::spawn(accept_loop(self.clone(), listener));
        }
        tokio::spawn(sweep_loop(self.clone()));
        stop.requested().await;
        let grace = self.shared.settings.load().config.shutdown_grace;
        let _ = tokio::time::timeout(grace, self.live.all_done()).await;
        Ok(())
    }
}

async fn accept_loop(worker: Arc<Worker>, listener: TcpListener) {
    let _listening = worker.shared.listening.begin();
    let mut stop = worker.shared.stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.requested() => return,
        };
        match accepted {
            Ok((stream, peer)) => take(&worker, stream, peer),
            Err(error) => {
                worker.shared.metrics.accept_errors.inc();
                static SAID: Seldom = Seldom::new();
                if let Some(more) = SAID.may_speak(REPEAT) {
                    tracing::warn!(event = "accept.error", %error, more, "cannot take a connection; trying on");
                }
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

fn take(worker: &Arc<Worker>, stream: TcpStream, peer: SocketAddr) {
    let most = worker.shared.settings.load().config.access.max_client_connections;
    let open = Open::new(worker.shared.clone());
    if open.others >= most {
        worker.shared.metrics.connections_refused.inc();
        let _ = stream.try_write(TOO_MANY);
        return;
    }
    let working = worker.live.begin();
    let worker = worker.clone();
    tokio::spawn(async move {
        let _working = working;
        serve(worker, stream, peer, open).await;
    });
}

async fn sweep_loop(worker: Arc<Worker>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let keep_alive = worker.shared.settings.load().config.upstream.keep_alive;
        worker.upstream.sweep(keep_alive);
    }
}

async fn serve(worker: Arc<Worker>, stream: TcpStream, peer: SocketAddr, open: Open) {
    // Answers are written whole; waiting for more to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_notsent_lowat(MOST_UNSENT);
    let settings = worker.shared.settings.load_full();
    let limits = &settings.config.limits;
    let client = Arc::new(Client {
        peer,
        id: worker.shared.gate.client(peer.ip()),
        limit: Arc::new(Limit::none()),
        _open: open,
    });
    client.limit.begin_within(limits.client_idle, limits.head_timeout);
    let look = limits.client_idle.min(limits.head_timeout);
    let io: ClientStream = TokioIo::new(Patient::new(stream, client.limit.clone(), limits.client_stall, look));
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

/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

fn hint_at_tls(peer: SocketAddr) {
    static SAID: Seldom = Seldom::new();
    if let Some(more) = SAID.may_speak(REPEAT) {
        tracing::warn!(
            event = "client.tls", client = %peer.ip(), more,
            "a client speaks TLS to the proxy port, which is plain HTTP; write http:// in its https_proxy"
        );
    }
}

/// hyper's smallest read buffer.
const LEAST_BUFFER: usize = 8192;

/// An open client connection, counted while it lives.
#[derive(Debug)]
pub(super) struct Open {
    shared: Arc<Shared>,
    others: usize,
}

impl Open {
    fn new(shared: Arc<Shared>) -> Self {
        let others = shared.connections.fetch_add(1, Ordering::Relaxed);
        shared.metrics.client_connections.inc();
        Open { shared, others }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics.client_connections.dec();
    }
}
