//! CONNECT: a tunnel to a host and port that the operator allows.
//!
//! The tunnel is opened first and 200 sent afterwards, so that a failure still reaches the client as a failure. Bytes
//! that came with the request wait until then.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, USER_AGENT};
use http::request::Parts;
use hyper::ext::ReasonPhrase;

use super::join;
use super::join::Ends;
use super::pacer::PacedTunnel;
use crate::config::Http2Tunnels;
use crate::gate::{Label, Permit, Preparation, now};
use crate::metrics::{Handshake, RequestOutcome};
use crate::politeness::fault::OriginFault;
use crate::politeness::visit::Visit;
use crate::politeness::{HostKey, Origin, Scheme};
use crate::proxy::Worker;
use crate::proxy::accept::client::{Client, Inside};
use crate::proxy::accept::upgrade::Upgrade;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::{BadRequest, Failure, Refusal};
use crate::proxy::pages::{help, probe};
use crate::proxy::request::client_request::ClientRequest;
use crate::proxy::request::label::ClientName;
use crate::proxy::request::{label, options};
use crate::proxy::robots::ask::{RobotsQuestion, RobotsSubject};
use crate::proxy::visit::job::Job;
use crate::upstream::{Denied, LaneAddresses, Stream, Terms, UpstreamError};

/// A tunnel that a client asks for.
pub(crate) struct WantedTunnel {
    pub(crate) host: HostKey,
    pub(crate) port: u16,
    pub(crate) parts: Box<Parts>,
}

impl WantedTunnel {
    /// Returns the client as the requests inside the tunnel see it.
    pub(crate) fn inside(&self, request: &ClientRequest, scheme: Scheme, many_at_once: bool) -> Client {
        let WantedTunnel { host, port, parts } = self;
        let origin = Origin { scheme, host: host.clone(), port: *port };
        let name = options::name(&parts.headers).map(str::to_owned);
        request.client.within(Inside { origin, user: request.user.clone(), name }, many_at_once)
    }
}

/// Checks what can be checked of a CONNECT without waiting for anything.
pub(crate) fn check(request: &ClientRequest, wanted: &WantedTunnel) -> Result<(), Failure> {
    let WantedTunnel { port, parts, .. } = wanted;
    if parts.headers.contains_key(TRANSFER_ENCODING) || parts.headers.get(CONTENT_LENGTH).is_some_and(|l| l != "0") {
        return Err(BadRequest::ConnectWithBody.into());
    }
    if request.settings.config.access.connect_ports.as_ref().is_some_and(|ports| !ports.contains(port)) {
        return Err(Refusal::Destination(Denied::ConnectPort(*port)).into());
    }
    if request.shared().identity.has_signed(&parts.headers) {
        return Err(Refusal::Loop.into());
    }
    Ok(())
}

/// A tunnel whose turn has come. No bytes of the client have gone into it yet.
pub(crate) struct OpenedTunnel {
    pub(crate) stream: Stream,
    /// Bytes that the origin has sent already.
    pub(crate) early: Bytes,
    permit: Permit,
    passage: PacedTunnel,
}

impl OpenedTunnel {
    /// Charges the turn of a tunnel that is not used: the origin has seen a connection all the same.
    pub(crate) fn charge(mut self) {
        self.permit.spent();
    }
}

/// Opens the tunnel and joins it with the client. `client` is the client's end, which is at hand already if something
/// has been read from it.
pub(crate) async fn connect(
    request: &mut ClientRequest,
    wanted: WantedTunnel,
    client: Upgrade,
) -> Result<Response<Body>, Failure> {
    let opened = open_in_turn(request, &wanted, &Arc::default()).await?;
    Ok(join(request, opened, client))
}

/// Opens the tunnel and waits for the turn of the CONNECT. A caller that drops this future while it waits, for another
/// reason than that the client has disconnected, sets `withdrawn` first.
pub(crate) async fn open_in_turn(
    request: &ClientRequest,
    wanted: &WantedTunnel,
    withdrawn: &Arc<AtomicBool>,
) -> Result<OpenedTunnel, Failure> {
    let (WantedTunnel { host, port, parts }, ClientRequest { worker, settings, .. }) = (wanted, request);
    if probe::is_meant(host) {
        return Err(Refusal::NotIntercepted.into());
    }
    if help::is_meant(host) {
        let why = "curtsy answers for this name itself, under http://; the name is never looked up";
        return Err(UpstreamError::Dns(why.to_owned()).into());
    }
    let origin = Origin::of_tunnel(host.clone(), *port);
    let peer = request.peer();
    let (visit, name) = options::visit(&worker.shared.gate, &origin, parts, request.user.as_deref(), peer);
    let who = ClientName { name, address: request.address() };
    let refuses_http2 = settings.config.tls.tunnel.http2 == Http2Tunnels::Refuse;
    if refuses_http2 && worker.shared.http2_refusals.take(peer.id, host) {
        return Err(Refusal::Http2Tunnel.into());
    }
    let begin = |name| Job::begin(&worker.shared, settings, (name, who.address), host);
    let job = name.map(begin).transpose()?;
    let failed = |failure: &Failure| job.iter().for_each(|job| job.ended(&worker.shared, settings, failure));
    let terms = settings.terms().of(visit.client);
    let lanes = worker.upstream.lanes(terms, settings.config.pacing.key, host).await?;
    let label = || label::of_tunnel(who, host, *port, &parts.headers);
    let user_agent = parts.headers.get(USER_AGENT);
    let asking = RobotsQuestion { request, origin: &origin, user_agent, about: RobotsSubject::Everything };
    let heard = asking.ask(&visit, label).await;
    let heard = heard.inspect_err(failed)?;
    let visit = Visit { tunnelled: true, ..heard.apply(visit) };
    // The tunnel is open at its turn, and no bytes of the client go into it before. The turn is charged when the first
    // request passes.
    let tunnel = TunnelVisit { worker, terms, origin: &origin, label, withdrawn };
    let opened = tunnel.open(lanes, visit).await;
    let ((stream, early), permit, budget) = opened.inspect_err(failed)?;
    permit.opened();
    job.iter().for_each(|job| job.answered(&worker.shared, settings, 200));
    let (label, client) = (Arc::new(label()), Arc::new(wanted.inside(request, Scheme::Http, false)));
    let passage = PacedTunnel { host: host.clone(), budget, visit, job, label, client };
    Ok(OpenedTunnel { stream, early, permit, passage })
}

/// Joins an open tunnel with its client.
pub(crate) fn join(request: &mut ClientRequest, opened: OpenedTunnel, client: Upgrade) -> Response<Body> {
    let OpenedTunnel { stream, early, permit, passage } = opened;
    if request.settings.leaves.is_some() && matches!(client, Upgrade::Coming(_)) {
        request.shared().metrics.handshake(Handshake::Bypassed);
    }
    request.answered(200, RequestOutcome::Forwarded);
    request.keep(permit);
    join::join(request, Ends { client, origin: stream, early }, Some(passage));
    established()
}

/// A tunnel on its way to its turn.
struct TunnelVisit<'a, L> {
    worker: &'a Worker,
    terms: Terms<'a>,
    origin: &'a Origin,
    label: L,
    withdrawn: &'a Arc<AtomicBool>,
}

impl<L: Fn() -> Label + Send + Sync> TunnelVisit<'_, L> {
    /// Connects in its turn to the first address that can be reached. Each address has its own lane. Also returns the
    /// budget whose turn was taken.
    async fn open(mut self, lanes: LaneAddresses, visit: Visit) -> Result<(OpenTunnel, Permit, HostKey), Failure> {
        let mut lanes = lanes.into_iter().peekable();
        loop {
            let lane = lanes.next().expect("there is a first lane, and another one where the loop goes on");
            self.terms.only = lane.address;
            match self.worker.shared.gate.visit(&lane.budget, visit, now(), &mut self).await {
                Ok((tunnel, permit)) => return Ok((tunnel, permit, lane.budget)),
                Err(Failure::Upstream(error)) if error.is_unreachable() && lanes.peek().is_some() => {}
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// A connection, and the bytes that the origin has sent already.
type OpenTunnel = (Stream, Bytes);

impl<L: Fn() -> Label + Send + Sync> Preparation for TunnelVisit<'_, L> {
    type Ready = OpenTunnel;
    type Error = Failure;

    async fn get_ready(&mut self) -> Result<OpenTunnel, Failure> {
        Ok(self.worker.upstream.tunnel(self.terms, &self.origin.host, self.origin.port).await?)
    }

    fn blamed(&self, error: &Failure) -> Option<&Origin> {
        error.blames_the_origin().then_some(self.origin)
    }

    fn fault(&self, error: &Failure) -> Option<OriginFault> {
        error.fault()
    }

    fn label(&self) -> Option<Label> {
        Some((self.label)())
    }

    fn withdrawn(&self) -> Option<Arc<AtomicBool>> {
        Some(self.withdrawn.clone())
    }
}

pub(crate) fn established() -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::new()));
    response.extensions_mut().insert(ReasonPhrase::from_static(b"Connection established"));
    response
}
