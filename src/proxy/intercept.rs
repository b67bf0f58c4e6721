//! Looking into a tunnel: its client is answered at once, and what it then says decides what the tunnel is.
//!
//! TLS, where the operator wants it intercepted, is answered with a certificate of the local CA, and the requests
//! inside take the path of all others. So do those of clients that send plain HTTP through a tunnel. Whatever else
//! comes is a tunnel after all. A certificate is only ever made for a host that may be visited: that is checked first.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http::header::USER_AGENT;
use rustls::server::Acceptor;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::body::Body;
use super::client::{Client, Inside};
use super::connect::{self, Wanted};
use super::failure::Failure;
use super::in_flight::InFlight;
use super::near::{Arrival, Near};
use super::serve::{self, TLS_HANDSHAKE};
use super::untrusting::Rejection;
use super::{Settings, Worker, handle, help, probe, wish};
use crate::clock;
use crate::config::OnUntrusted;
use crate::metrics::Handshake;
use crate::politeness::{HostKey, Origin, Scheme};
use crate::tls::Leaves;

/// Clients send plain HTTP through tunnels to this port.
const HTTP: u16 = 80;
/// Who leaves so soon after the handshake, without a request, has looked at the certificate. Browsers keep connections
/// in store for longer.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Whether this tunnel's client is answered before anything is claimed for it.
pub(super) fn looks_into(worker: &Worker, settings: &Settings, client: &Client, host: &HostKey, port: u16) -> bool {
    port == HTTP || leaves(worker, settings, client, host).is_some()
}

/// What a client is shown, if its tunnels to this host are intercepted.
fn leaves<'a>(worker: &Worker, settings: &'a Settings, client: &Client, host: &HostKey) -> Option<&'a Arc<Leaves>> {
    let (leaves, tls) = (settings.leaves.as_ref()?, &settings.config.tls);
    let listed = tls.only.is_empty() || tls.only.iter().any(|pattern| pattern.matches(host.as_str()));
    let meant = help::is_meant(host) || listed && !tls.bypass.iter().any(|pattern| pattern.matches(host.as_str()));
    let left_alone = tls.on_untrusted == OnUntrusted::Tunnel && worker.shared.untrusting.knows(client.peer.ip(), host);
    (probe::is_meant(host) || meant && !left_alone).then_some(leaves)
}

/// Answers the client and looks at what it says, in a task of its own.
pub(super) async fn begin(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    client: &Arc<Client>,
    mut wanted: Wanted,
    in_flight: &mut Option<Box<InFlight>>,
) -> Result<Response<Body>, Failure> {
    let origin = Origin { scheme: Scheme::Https, host: wanted.host.clone(), port: wanted.port };
    if !help::is_meant(&origin.host) && !probe::is_meant(&origin.host) {
        let client = wish::client(&worker.shared.gate, &wanted.parts.headers, wanted.user.as_deref(), client.id);
        worker.upstream.vet(settings.terms().of(client), &origin).await?;
    }
    if let Some(in_flight) = in_flight.take() {
        let arrival = Arrival::after(&mut wanted.parts);
        let look =
            Look { worker: worker.clone(), settings: settings.clone(), client: client.clone(), wanted, in_flight };
        tokio::spawn(look.after(arrival));
    }
    Ok(connect::established())
}

/// A tunnel that has been answered, and of which nothing is known.
struct Look {
    worker: Arc<Worker>,
    settings: Arc<Settings>,
    client: Arc<Client>,
    wanted: Wanted,
    in_flight: Box<InFlight>,
}

impl Look {
    /// Of a type that says nothing, because the requests inside come back here.
    fn after(self, arrival: Arrival) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let working = self.worker.live.begin();
        Box::pin(async move {
            let _working = working;
            if let Some(near) = arrival.arrive().await {
                self.at(near).await;
            }
        })
    }

    async fn at(self, mut near: Near) {
        let patience = self.settings.config.limits.head_timeout;
        let Ok(Ok(Some(first))) = timeout(patience, near.first_byte()).await else { return };
        let leaves = leaves(&self.worker, &self.settings, &self.client, &self.wanted.host).cloned();
        match (first, leaves) {
            (TLS_HANDSHAKE, Some(leaves)) => Box::pin(self.greet(near, &leaves, patience)).await,
            // Methods are written in capitals; whatever else begins so is answered as a bad request.
            (b'A'..=b'Z', _) => {
                let (worker, client) = (self.worker.clone(), Arc::new(self.inside(Scheme::Http, false)));
                self.in_flight.replaced();
                Box::pin(serve::http1(worker, near, client)).await;
            }
            _ => Box::pin(self.tunnel(near)).await,
        }
    }

    /// A tunnel after all. Its client has been told yes already, so that it can only be left if that was not true.
    async fn tunnel(self, near: Near) {
        let Look { worker, settings, client, wanted, in_flight } = self;
        let (host, mut in_flight) = (wanted.host.clone(), Some(in_flight));
        let counted = handle::count(&worker, &settings, &client, &wanted.parts, wanted.user.as_deref());
        let opened = match counted {
            Ok(()) => connect::connect(&worker, &settings, wanted, Arrival::Here(near), &mut in_flight).await,
            Err(refusal) => Err(refusal.into()),
        };
        if let Err(failure) = opened {
            let words = failure.words();
            worker.shared.metrics.rejection(words.code);
            handle::answered(&mut in_flight, words.status.as_u16(), words.outcome);
            tracing::info!(
                event = "tunnel.refused", client = %client.peer.ip(), %host, code = words.code, detail = words.detail,
                "a tunnel that was answered could not be opened"
            );
        }
    }

    async fn greet(self, near: Near, leaves: &Leaves, patience: Duration) {
        let (client, host) = (self.client.peer.ip(), &self.wanted.host);
        let metrics = self.worker.shared.metrics.clone();
        let hello = match timeout(patience, LazyConfigAcceptor::new(Acceptor::default(), near)).await {
            Ok(Ok(hello)) => hello,
            Ok(Err(error)) => {
                tracing::debug!(event = "client.tls", %client, %host, %error, "this is no TLS");
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
                Some(rejection) => rejected(&self.worker, &self.settings, &self.client, &self.wanted, rejection),
                None => {
                    tracing::debug!(event = "client.tls", %client, %host, %error, "a handshake failed");
                    metrics.handshake(Handshake::ClientFailed);
                }
            },
            Err(_) => metrics.handshake(Handshake::ClientFailed),
        }
    }

    async fn serve(self, tls: TlsStream<Near>) {
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let client = Arc::new(self.inside(Scheme::Https, http2));
        let Look { worker, settings, client: outside, wanted, in_flight } = self;
        in_flight.replaced();
        let began = clock::now();
        if http2 {
            serve::http2(worker.clone(), tls.into(), client.clone()).await;
        } else {
            serve::http1(worker.clone(), tls.into(), client.clone()).await;
        }
        if !client.has_asked() && clock::now() - began < AT_ONCE && !worker.shared.stop.is_requested() {
            rejected(&worker, &settings, &outside, &wanted, Rejection::Left);
        }
    }

    /// The client as those inside of the tunnel know it.
    fn inside(&self, scheme: Scheme, many_at_once: bool) -> Client {
        let Wanted { host, port, parts, user } = &self.wanted;
        let origin = Origin { scheme, host: host.clone(), port: *port };
        let name = wish::name(&parts.headers).map(str::to_owned);
        self.client.within(Inside { origin, user: user.clone(), name }, many_at_once)
    }
}

/// The client does not want our certificate.
fn rejected(worker: &Worker, settings: &Settings, client: &Client, wanted: &Wanted, rejection: Rejection) {
    let (shared, client, host) = (&worker.shared, client.peer.ip(), &wanted.host);
    // Whoever probes is told by what becomes of it.
    if probe::is_meant(host) {
        return;
    }
    shared.metrics.handshake(Handshake::ClientUntrusted);
    let tunnels = settings.config.tls.on_untrusted == OnUntrusted::Tunnel;
    if tunnels {
        shared.untrusting.note(client, host);
    }
    let agent = wanted.parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    shared.untrusting.tell(client, host, agent, rejection, tunnels);
}
