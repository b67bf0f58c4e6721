//! Looks into tunnels: curtsy answers the CONNECT at once, and the client's first bytes decide what the tunnel is.
//!
//! If they are TLS, and the operator wants it intercepted, curtsy answers with a certificate of the local CA, and the
//! requests inside take the path of all others. So do requests that clients send as plain HTTP through a tunnel.
//! Anything else is an ordinary tunnel after all, and so is one in which the origin speaks first. A certificate is made
//! only for a host that may be visited: that is checked first.

use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use http::Response;
use http::header::USER_AGENT;
use rustls::server::Acceptor;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::ca_rejections::Rejection;
use super::connect::{self, OpenedTunnel, WantedTunnel};
use crate::clock;
use crate::config::{HostPattern, OnUntrusted};
use crate::metrics::Handshake;
use crate::politeness::{HostKey, Origin, Scheme};
use crate::programs;
use crate::proxy::accept::client::Client;
use crate::proxy::accept::client_stream::ClientStream;
use crate::proxy::accept::first_bytes::FirstBytes;
use crate::proxy::accept::serve;
use crate::proxy::accept::upgrade::Upgrade;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::Failure;
use crate::proxy::pages::{help, probe};
use crate::proxy::request::client_request::ClientRequest;
use crate::proxy::request::options;
use crate::proxy::{Settings, Shared, Worker};
use crate::tls::Leaves;

/// Clients send plain HTTP through tunnels to this port.
const HTTP: u16 = 80;
/// A client that disconnects this soon after the handshake, without a request, has looked at the certificate and
/// rejected it: browsers keep spare connections open for longer. And a client that sends nothing for this long after
/// its CONNECT was answered may wait for the origin to speak: TLS and HTTP clients speak at once.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How long a client that only looked at the handshake may take to send its request over another connection. Crawlee
/// takes a few milliseconds. Shorter than the time that `curtsy exec` gives the last requests of its command.
const SECOND_CONNECTION: Duration = Duration::from_millis(300);
/// Larger than most greetings of origins that speak first.
const FIRST_WORD: usize = 1024;

/// Whether this tunnel's client is answered before a turn is claimed for it.
pub(crate) fn looks_into(request: &ClientRequest, host: &HostKey, port: u16) -> bool {
    port == HTTP || leaves(request, host).is_some()
}

/// The certificates that a client is shown, if its tunnels to this host are intercepted.
fn leaves<'a>(request: &'a ClientRequest, host: &HostKey) -> Option<&'a Arc<Leaves>> {
    certificates(&request.settings, request.shared(), request.address(), host).ok()
}

/// Why tunnels of a client to a host are not intercepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotIntercepted {
    /// `tls.intercept` is off.
    Off,
    /// `tls.only` lists other hosts.
    NotListed,
    /// `tls.bypass` lists the host.
    Bypassed,
    /// The client has rejected curtsy's certificate for this host lately.
    Untrusting,
}

/// Returns the certificates that a client at this address is shown, or why its tunnels to this host are not
/// intercepted.
pub(crate) fn certificates<'a>(
    settings: &'a Settings,
    shared: &Shared,
    client: IpAddr,
    host: &HostKey,
) -> Result<&'a Arc<Leaves>, NotIntercepted> {
    let (leaves, tls) = (settings.leaves.as_ref().ok_or(NotIntercepted::Off)?, &settings.config.tls);
    let matches = |patterns: &[HostPattern]| patterns.iter().any(|pattern| pattern.matches(host.as_str()));
    let is_own = help::is_meant(host);
    match () {
        () if probe::is_meant(host) => Ok(leaves),
        () if !is_own && !tls.only.is_empty() && !matches(&tls.only) => Err(NotIntercepted::NotListed),
        () if !is_own && matches(&tls.bypass) => Err(NotIntercepted::Bypassed),
        () if tls.on_untrusted == OnUntrusted::Tunnel && shared.untrusting.knows(client, host) => {
            Err(NotIntercepted::Untrusting)
        }
        () => Ok(leaves),
    }
}

/// Answers the client, and looks at its first bytes in a separate task.
pub(crate) async fn begin(request: &mut ClientRequest, mut wanted: WantedTunnel) -> Result<Response<Body>, Failure> {
    let origin = Origin { scheme: Scheme::Https, host: wanted.host.clone(), port: wanted.port };
    if !help::is_meant(&origin.host) && !probe::is_meant(&origin.host) {
        let (gate, user) = (&request.shared().gate, request.user.as_deref());
        let client = options::client(gate, &wanted.parts.headers, user, request.peer());
        request.worker.upstream.vet(request.settings.terms().of(client), &origin).await?;
    }
    let arrival = Upgrade::after(&mut wanted.parts);
    tokio::spawn(PendingTunnel { request: request.hand_over(), wanted }.after(arrival));
    Ok(connect::established())
}

/// A tunnel that has been answered, and whose content is not known yet.
struct PendingTunnel {
    request: ClientRequest,
    wanted: WantedTunnel,
}

impl PendingTunnel {
    /// Returns a type-erased future, because the requests inside come back here.
    fn after(self, arrival: Upgrade) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let working = self.request.worker.live.begin();
        Box::pin(async move {
            let _working = working;
            if let Some(near) = arrival.arrive().await {
                self.at(near).await;
            }
        })
    }

    async fn at(self, mut near: ClientStream) {
        match timeout(AT_ONCE, near.opening()).await {
            Ok(Ok(Some(opening))) => self.goes_on(near, opening).await,
            Ok(Ok(None) | Err(_)) => {}
            Err(_) => Box::pin(self.ask_origin(near)).await,
        }
    }

    /// The certificates that the client is shown, if it is intercepted.
    fn leaves(&self) -> Option<Arc<Leaves>> {
        leaves(&self.request, &self.wanted.host).cloned()
    }

    /// Whether curtsy itself answers a client that begins like this.
    fn answers(&self, opening: FirstBytes) -> bool {
        opening == FirstBytes::Request || (opening == FirstBytes::Tls && self.leaves().is_some())
    }

    /// Continues according to the client's first bytes.
    async fn goes_on(mut self, near: ClientStream, opening: FirstBytes) {
        let patience = self.request.settings.config.limits.head_timeout;
        match (opening, self.leaves()) {
            (FirstBytes::Tls, Some(leaves)) => Box::pin(self.greet(near, &leaves, patience)).await,
            (FirstBytes::Request, _) => {
                let (worker, client) = self.replace_by_inside(Scheme::Http, false);
                Box::pin(serve::http1(worker, near, client)).await;
            }
            _ => Box::pin(self.tunnel(near)).await,
        }
    }

    /// Opens an ordinary tunnel after all.
    async fn tunnel(self, near: ClientStream) {
        match self.open(&Arc::default()).await {
            Ok(opened) => self.join(near, opened),
            Err(failure) => self.refuse(&failure),
        }
    }

    /// Opens the tunnel because the client is silent: the origin may be the one to speak first. The origin is visited
    /// in the turn of the CONNECT. Until it speaks, the client may still send something that curtsy answers itself.
    async fn ask_origin(self, mut near: ClientStream) {
        let withdrawn = Arc::<AtomicBool>::default();
        let opened = {
            let mut open = pin!(self.open(&withdrawn));
            tokio::select! {
                biased;
                opening = near.opening() => {
                    withdrawn.store(true, Relaxed);
                    Err(opening)
                }
                opened = &mut open => Ok(opened),
            }
        };
        match opened {
            Err(Ok(Some(opening))) => self.goes_on(near, opening).await,
            Err(Ok(None) | Err(_)) => {}
            Ok(Err(failure)) => self.refuse(&failure),
            Ok(Ok(opened)) => self.first_word(near, opened).await,
        }
    }

    /// Waits for either side to speak.
    async fn first_word(self, mut near: ClientStream, mut opened: OpenedTunnel) {
        let patience = self.request.settings.config.limits.head_timeout;
        let mut said = BytesMut::with_capacity(FIRST_WORD);
        let opening = if opened.early.is_empty() {
            let first = async {
                tokio::select! {
                    biased;
                    opening = near.opening() => Some(opening),
                    _ = opened.stream.read_buf(&mut said) => None,
                }
            };
            timeout(patience, first).await
        } else {
            Ok(None)
        };
        match opening {
            // If the origin has closed the connection, joining closes the tunnel.
            Ok(None) => {
                if opened.early.is_empty() {
                    opened.early = said.freeze();
                }
                self.join(near, opened);
            }
            Ok(Some(Ok(Some(opening)))) if self.answers(opening) => {
                opened.charge();
                self.goes_on(near, opening).await;
            }
            Ok(Some(Ok(Some(_)))) => self.join(near, opened),
            Ok(Some(Ok(None) | Err(_))) | Err(_) => opened.charge(),
        }
    }

    async fn open(&self, withdrawn: &Arc<AtomicBool>) -> Result<OpenedTunnel, Failure> {
        self.request.take_quota(&self.wanted.parts.headers)?;
        connect::open_in_turn(&self.request, &self.wanted, withdrawn).await
    }

    fn join(mut self, near: ClientStream, opened: OpenedTunnel) {
        connect::join(&mut self.request, opened, Upgrade::Here(near));
    }

    /// Ends the CONNECT: the requests inside are counted instead. Returns the client as they see it.
    fn replace_by_inside(&mut self, scheme: Scheme, many_at_once: bool) -> (Arc<Worker>, Arc<Client>) {
        let client = self.wanted.inside(&self.request, scheme, many_at_once);
        if let Some(in_flight) = self.request.take_in_flight() {
            in_flight.replaced();
        }
        (self.request.worker.clone(), Arc::new(client))
    }

    /// The client has been answered 200 already, so curtsy can only close the connection.
    fn refuse(mut self, failure: &Failure) {
        let words = failure.words();
        self.request.shared().metrics.rejection(words.code);
        self.request.answered(words.status.as_u16(), words.outcome);
        tracing::info!(
            event = "tunnel.refused", client = %self.request.address(), host = %self.wanted.host, code = words.code,
            detail = words.detail, "a tunnel that was answered could not be opened"
        );
    }

    async fn greet(self, near: ClientStream, leaves: &Leaves, patience: Duration) {
        let (client, host) = (self.request.address(), &self.wanted.host);
        let metrics = self.request.shared().metrics.clone();
        let hello = match timeout(patience, LazyConfigAcceptor::new(Acceptor::default(), near)).await {
            Ok(Ok(hello)) => hello,
            Ok(Err(error)) => {
                tracing::debug!(event = "client.tls", %client, %host, %error, "the client's hello is not TLS");
                return metrics.handshake(Handshake::ClientFailed);
            }
            Err(_) => return metrics.handshake(Handshake::ClientFailed),
        };
        match timeout(patience, hello.into_stream(leaves.of(host))).await {
            Ok(Ok(tls)) => {
                metrics.handshake(Handshake::ClientOk);
                self.serve(tls).await;
            }
            Ok(Err(error)) => match Rejection::in_handshake(&error) {
                Some(Rejection::Closed) => self.closed_silently(Rejection::Closed).await,
                Some(rejection) => rejected(&self.request, &self.wanted, rejection),
                None => {
                    tracing::debug!(event = "client.tls", %client, %host, %error, "a handshake failed");
                    metrics.handshake(Handshake::ClientFailed);
                }
            },
            Err(_) => metrics.handshake(Handshake::ClientFailed),
        }
    }

    async fn serve(mut self, tls: TlsStream<ClientStream>) {
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let (worker, client) = self.replace_by_inside(Scheme::Https, http2);
        let began = clock::now();
        if http2 {
            serve::http2(worker.clone(), tls.into(), client.clone()).await;
        } else {
            serve::http1(worker.clone(), tls.into(), client.clone()).await;
        }
        if !client.has_asked() && clock::now() - began < AT_ONCE && !worker.shared.stop.is_requested() {
            self.closed_silently(Rejection::Left).await;
        }
    }

    /// Handles a client that closes without an alert: it rejects the certificate, unless it sends a request over
    /// another connection. Some clients open one only to learn whether the origin speaks HTTP/2 (got, Crawlee).
    async fn closed_silently(&self, rejection: Rejection) {
        tokio::time::sleep(SECOND_CONNECTION).await;
        if !self.request.shared().untrusting.trusts(self.request.address(), &self.wanted.host) {
            rejected(&self.request, &self.wanted, rejection);
        }
    }
}

/// Handles a client that rejects our certificate.
fn rejected(request: &ClientRequest, wanted: &WantedTunnel, rejection: Rejection) {
    let (shared, client, host) = (request.shared(), request.address(), &wanted.host);
    // `curtsy doctor` learns this from the result of its own probe.
    if probe::is_meant(host) {
        return;
    }
    shared.metrics.handshake(Handshake::ClientUntrusted);
    let tunnels = request.settings.config.tls.on_untrusted == OnUntrusted::Tunnel;
    let agent = wanted.parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    shared.untrusting.note_and_tell(client, host, agent, rejection, tunnels);
    let program = programs::of_user_agent(agent.unwrap_or_default()).map(|program| program.name);
    shared.count_in_tally(host, |row| row.rejected_by(program));
}
