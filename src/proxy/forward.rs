//! Forwards a plain request to its origin and returns the answer.

use std::sync::Arc;
use std::time::Duration;

use http::header::{EXPECT, USER_AGENT};
use http::request::Parts;
use http::{Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::body::Body;
use super::failure::{BadRequest, Failure, Refusal};
use super::handle::answered;
use super::in_flight::InFlight;
use super::job::Job;
use super::label::Who;
use super::lesson::{self, Lesson};
use super::robots::{About, Asking};
use super::send::may_take_long;
use super::send::{Errand, Sent};
use super::wish::{Peer, Wish};
use super::{Settings, Worker, account, headers, heavy, label, max_forwards, tunnel};
use crate::config::ResponseHeaders;
use crate::gate::Permit;
use crate::metrics::Outcome;
use crate::politeness::Origin;
use crate::upstream::{Answer, Message, RequestBody, UpstreamError};

/// No registered method is longer than 17 characters; a longer one is an attempt at something else.
const LONGEST_METHOD: usize = 32;

pub(super) async fn forward(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    origin: &Origin,
    mut parts: Box<Parts>,
    incoming: Incoming,
    user: Option<&str>,
    in_flight: &mut Option<Box<InFlight>>,
) -> Result<Response<Body>, Failure> {
    check(worker, &mut parts)?;
    let asking = in_flight.as_ref().expect("a request is in flight until it is answered");
    let (peer, address) = (Peer::new(settings, asking.peer()), asking.address());
    if let Some(response) = max_forwards::answer(&mut parts)? {
        answered(in_flight, response.status().as_u16(), Outcome::Rejected);
        return Ok(response);
    }
    let wish = Wish::of(&parts.headers, user);
    let job = Job::begin(&worker.shared, settings, Who { name: wish.name(), address }, &origin.host)?;
    let who = Who { name: job.name(), address };
    let visit = wish.visit(&worker.shared.gate, origin, &parts.uri, peer);
    let about = About::page(settings, &parts);
    let robots = Asking { worker, settings, origin, user_agent: parts.headers.get(USER_AGENT), about };
    let heard = robots.ask(&visit, || label::of_head(who, origin, &parts)).await;
    let heard = heard.inspect_err(|failure| job.ended(&worker.shared, settings, failure))?;
    let visit = heard.apply(visit);
    let may_teach = lesson::may_come(&parts);
    let identity = settings.config.upstream.via.then_some(&worker.shared.identity);
    let (received, safe) = (parts.version, parts.method.is_safe());
    let upgrade = take_upgrade(&mut parts);
    let keep_body = safe && upgrade.is_none() && !parts.headers.contains_key(EXPECT);
    headers::outgoing(&mut parts.headers, origin, &parts.uri, upgrade.is_some(), identity, received);
    parts.version = Version::HTTP_11;
    if settings.config.upstream.proxy.is_some() {
        parts.uri = canonical(origin, parts.uri);
    }

    let asking = in_flight.as_ref().expect("a request is in flight until it is answered");
    let body = RequestBody::new(incoming, asking.limit(), settings.config.limits.client_stall, &worker.shared.metrics);
    // The head is serialised before the request waits, so that the buffer it was read into is freed.
    let message = Message::new(&parts, body, &settings.config.upstream);
    drop(parts);
    let _heavy = heavy::weigh(&worker.shared, asking.client(), message.head_size())?;
    let lanes =
        worker.upstream.lanes(settings.terms().of(visit.client), settings.config.politeness.key, &origin.host).await?;
    let upgrades = upgrade.is_some();
    let errand = Errand { worker, settings, origin, lanes: &lanes, visit, who, safe, keep_body, upgrade: upgrades };
    let sent = errand.send(message).await.inspect_err(|failure| job.ended(&worker.shared, settings, failure))?;
    let Sent { answer, permit, took, attempts } = sent;

    let (status, version) = status_line(&answer);
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        // If this were passed on, the client would show its curtsy password to another proxy.
        return Err(UpstreamError::Parent(status.as_u16()).into());
    }
    job.answered(&worker.shared, settings, status.as_u16());
    worker.shared.metrics.response(status.as_u16(), took);
    answered(in_flight, status.as_u16(), Outcome::Forwarded);
    match (answer, upgrade) {
        (Answer::Response(mut response), _) => {
            let lesson = may_teach.then(|| Lesson::begin(worker, settings, origin, &response)).flatten();
            headers::incoming(response.headers_mut(), identity, version);
            if settings.config.responses.headers == ResponseHeaders::Full {
                account::tell(response.headers_mut(), &permit, took, attempts, heard.warning, &worker.shared.identity);
            }
            keep(in_flight, permit, took, may_take_long(response.body()));
            // A proxy answers in its own version, whatever the origin speaks (RFC 9110, section 2.5).
            *response.version_mut() = Version::HTTP_11;
            Ok(response.map(|reply| Body::passing(reply).teaching(lesson)))
        }
        (Answer::Switched(response, stream, early), Some(upgrade)) if headers::is_websocket(response.headers()) => {
            permit.stays_open();
            keep(in_flight, permit, took, false);
            Ok(tunnel::switch(worker, settings, response, stream, early, upgrade, in_flight.take()))
        }
        (Answer::Switched(..), _) => Err(UpstreamError::Upgrade.into()),
    }
}

/// Takes the client's side of the connection, if it asks for a WebSocket.
fn take_upgrade(parts: &mut Parts) -> Option<OnUpgrade> {
    let is_asked = headers::asks_for_websocket(&parts.method, parts.version, &parts.headers);
    is_asked.then(|| parts.extensions.remove::<OnUpgrade>()).flatten()
}

fn status_line(answer: &Answer) -> (StatusCode, Version) {
    match answer {
        Answer::Response(response) => (response.status(), response.version()),
        Answer::Switched(response, ..) => (response.status(), response.version()),
    }
}

/// Keeps the permit until the request is over. If the body may take long, the place at the host is given back earlier.
fn keep(in_flight: &mut Option<Box<InFlight>>, permit: Permit, took: Duration, may_take_long: bool) {
    let Some(in_flight) = in_flight else { return };
    if may_take_long {
        permit.transfers();
    }
    if let Some(entry) = in_flight.entry() {
        entry.origin = Some(took);
        entry.wait = permit.waited();
    }
    in_flight.keep(permit);
}

/// A parent proxy must read the same host as curtsy did, so it gets the canonical spelling.
fn canonical(origin: &Origin, uri: Uri) -> Uri {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Uri::try_from(format!("{origin}{path}")).unwrap_or(uri)
}

fn check(worker: &Worker, parts: &mut Parts) -> Result<(), Failure> {
    if parts.method.as_str().len() > LONGEST_METHOD {
        return Err(BadRequest::Method.into());
    }
    headers::check_expectation(&parts.headers, parts.version)?;
    headers::check_framing(&mut parts.headers)?;
    if worker.shared.identity.has_signed(&parts.headers) {
        return Err(Refusal::Loop.into());
    }
    Ok(())
}
