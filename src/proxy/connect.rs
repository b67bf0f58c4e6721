//! CONNECT: a tunnel to a host and port that the operator allows.
//!
//! The tunnel is opened first and 200 said afterwards, so that a failure still reaches the client as one. Bytes that
//! came with the request wait until then.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Request, Response};
use hyper::ext::ReasonPhrase;

use super::body::Body;
use super::failure::{BadRequest, Failure, Refusal};
use super::in_flight::InFlight;
use super::job::Job;
use super::robots::{self, Heard};
use super::wish::Wish;
use super::{Settings, Worker, tunnel};
use crate::metrics::Outcome;
use crate::politeness::HostKey;
use crate::upstream::Denied;

pub(super) async fn connect(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    host: HostKey,
    port: u16,
    parts: Parts,
    user: Option<&str>,
    in_flight: &mut Option<InFlight>,
) -> Result<Response<Body>, Failure> {
    if parts.headers.contains_key(TRANSFER_ENCODING) || parts.headers.get(CONTENT_LENGTH).is_some_and(|l| l != "0") {
        return Err(BadRequest::ConnectWithBody.into());
    }
    if settings.config.access.connect_ports.as_ref().is_some_and(|ports| !ports.contains(&port)) {
        return Err(Refusal::Destination(Denied::ConnectPort(port)).into());
    }
    if worker.shared.identity.has_signed(&parts.headers) {
        return Err(Refusal::Loop.into());
    }
    let peer = in_flight.as_ref().expect("a request is in flight until it is answered").peer();
    let wish = Wish::of(&parts.headers, user);
    let job = Job::begin(&worker.shared, wish.name())?;
    let budget = worker.upstream.budget(settings.terms(), settings.config.politeness.key, &host).await?;
    let heard = robots::ask_about_tunnel(worker, settings, &host, port, &parts).await;
    let Heard { crawl_delay, .. } = heard.inspect_err(|failure| job.ended(&worker.shared, settings, failure))?;
    let visit = wish.visit(&worker.shared.gate, &parts.uri, peer, crawl_delay);
    let mut place = worker.shared.gate.join(&budget, visit)?;
    place.called().await?;
    let opening = worker.upstream.tunnel(settings.terms(), &host, port).await;
    let opening = opening.inspect_err(|error| {
        if error.blames_the_origin() {
            place.failed();
        }
    });
    let (stream, early) =
        opening.map_err(Failure::from).inspect_err(|failure| job.ended(&worker.shared, settings, failure))?;
    // The tunnel is open, but nothing of the client's goes into it before the turn. It is charged when the first request
    // passes.
    let permit = place.turn().await?;
    job.answered(&worker.shared, settings, 200);
    let upgrade = hyper::upgrade::on(Request::from_parts(parts, ()));
    if let Some(in_flight) = in_flight.as_mut() {
        in_flight.answered(200, Outcome::Forwarded);
        in_flight.keep(permit);
    }
    let passage = tunnel::Passage { host, budget, visit, job };
    tunnel::join(worker, settings, upgrade, stream, early, in_flight.take(), Some(passage));
    let mut response = Response::new(Body::from(Bytes::new()));
    response.extensions_mut().insert(ReasonPhrase::from_static(b"Connection established"));
    Ok(response)
}
