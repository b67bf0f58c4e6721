//! A worker: one single-threaded runtime with its own accept loop and its own connections to origins.
//!
//! Workers share the listening sockets, so an idle one takes the next connection. The accept loop survives
//! errors: a proxy that dies of too many open files fails every client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::client::{Client, OpenClient};
use super::{handshake, serve};
use crate::connections::GivesWay;
use crate::proxy::Shared;
use crate::shutdown::{Live, Working};
use crate::telemetry::{LogLimiter, REPEAT};
use crate::timeout_stream::Deadline;
use crate::upstream::{Resolver, Upstream};

#[derive(Debug)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) upstream: Upstream,
    /// Connections and tunnels that a stop waits for.
    pub(crate) live: Live,
}

/// What the clients of a listener speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerProtocol {
    Plain,
    Tls,
}

/// The pause after an error of accept, so that a full file table does not become a busy loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);
/// How often idle connections to origins are checked. Half of the shortest sensible keep-alive.
const SWEEP: Duration = Duration::from_secs(1);

/// The most that Linux buffers for a slow client. By default it buffers megabytes, and then takes no more before a
/// third of them has been sent: a client that reads steadily, but slowly, would seem to take nothing for longer than
/// `client_stall`.
#[cfg(target_os = "linux")]
const MOST_UNSENT: u32 = 128 * 1024;

const TOO_MANY: &[u8] = b"HTTP/1.1 503 Too many connections (curtsy)\r\n\
    Connection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\nCache-Control: no-store\r\n\r\n";

impl Worker {
    pub fn new(shared: Arc<Shared>, resolver: Arc<Resolver>) -> Self {
        let upstream = Upstream::new(resolver, shared.metrics.clone());
        Worker { shared, upstream, live: Live::default() }
    }

    /// Accepts until told to stop, then waits for requests in flight, at most `shutdown_grace`. `starting` counts as
    /// listening until the accept loops do.
    pub async fn run(
        self: Arc<Self>,
        plain: Vec<std::net::TcpListener>,
        tls: Vec<std::net::TcpListener>,
        starting: Option<Working>,
    ) -> io::Result<()> {
        let mut stop = self.shared.stop.clone();
        let plain = plain.into_iter().map(|listener| (listener, ListenerProtocol::Plain));
        for (listener, door) in plain.chain(tls.into_iter().map(|listener| (listener, ListenerProtocol::Tls))) {
            let listener = TcpListener::from_std(listener)?;
            tokio::spawn(accept_loop(self.clone(), listener, door, self.shared.listening.begin()));
        }
        drop(starting);
        tokio::spawn(sweep_loop(self.clone()));
        stop.requested().await;
        let grace = self.shared.settings.load().config.shutdown_grace;
        let _ = tokio::time::timeout(grace, self.live.all_done()).await;
        Ok(())
    }
}

async fn accept_loop(worker: Arc<Worker>, listener: TcpListener, door: ListenerProtocol, _listening: Working) {
    let mut stop = worker.shared.stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.requested() => return,
        };
        match accepted {
            Ok((stream, peer)) => take(&worker, stream, peer, door),
            Err(error) => {
                worker.shared.metrics.accept_errors.inc();
                static SAID: LogLimiter = LogLimiter::new();
                if let Some(more) = SAID.may_speak(REPEAT) {
                    tracing::warn!(event = "accept.error", %error, more, "cannot accept a connection; trying again");
                }
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

fn take(worker: &Arc<Worker>, stream: TcpStream, peer: SocketAddr, door: ListenerProtocol) {
    let most = worker.shared.settings.load().config.access.max_client_connections;
    let limit = Arc::new(Deadline::watched());
    let Some(place) = worker.shared.connections.enter(peer.ip(), &limit, most, GivesWay::Others) else {
        refuse(worker, &stream, peer, door);
        return;
    };
    let open = OpenClient::new(worker.shared.clone(), place);
    let working = worker.live.begin();
    let worker = worker.clone();
    let client = Client::new(&worker.shared, peer, limit, Arc::new(open));
    // Answers are written whole; waiting for more to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(MOST_UNSENT);
    tokio::spawn(async move {
        let _working = working;
        match door {
            ListenerProtocol::Plain => serve::http1(worker, stream.into(), Arc::new(client)).await,
            ListenerProtocol::Tls => Box::pin(handshake::greet(worker, stream.into(), client)).await,
        }
    });
}

fn refuse(worker: &Worker, stream: &TcpStream, peer: SocketAddr, door: ListenerProtocol) {
    worker.shared.metrics.connections_refused.inc();
    static SAID: LogLimiter = LogLimiter::new();
    if let Some(more) = SAID.may_speak(REPEAT) {
        tracing::warn!(
            event = "connections.full", client = %peer.ip(), more,
            "a client connection is refused: access.max_client_connections are open"
        );
    }
    if door == ListenerProtocol::Plain {
        let _ = stream.try_write(TOO_MANY);
    }
}

async fn sweep_loop(worker: Arc<Worker>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let keep_alive = worker.shared.settings.load().config.upstream.keep_alive;
        worker.upstream.sweep(keep_alive);
    }
}
