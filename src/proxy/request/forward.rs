//! Forwards a plain request to its origin and returns the answer.

use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::client_request::ClientRequest;
use super::headers::Identity;
use super::label::ClientName;
use super::{check, headers, label, options};
use crate::config::ResponseHeaders;
use crate::gate::Permit;
use crate::metrics::RequestOutcome;
use crate::politeness::Origin;
use crate::politeness::visit::{ClientId, PagePart, Visit};
use crate::proxy::accept::upgrade::Upgrade;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::Failure;
use crate::proxy::answer::fields;
use crate::proxy::cached::{self, CacheStep, Confirmation, Looked, Passing};
use crate::proxy::robots::ask::{RobotsQuestion, Warning};
use crate::proxy::robots::capture::{self, RobotsCapture};
use crate::proxy::sharing::answer::Share;
use crate::proxy::sharing::flights::Membership;
use crate::proxy::sharing::landing;
use crate::proxy::tunnel::join;
use crate::proxy::tunnel::join::Ends;
use crate::proxy::visit::job::Job;
use crate::proxy::visit::send::may_take_long;
use crate::proxy::visit::send::{Delivered, Delivery, Sent};
use crate::proxy::{Settings, Shared};
use crate::upstream::{Answer, Message, RequestBody, UpstreamError};

/// Checks a request, asks robots.txt about it, sends it to its origin in its turn, and returns the answer.
pub(crate) async fn forward(
    request: &mut ClientRequest,
    origin: &Origin,
    mut parts: Box<Parts>,
    incoming: Incoming,
) -> Result<Response<Body>, Failure> {
    if let Some(response) = check::check(request, &mut parts)? {
        return Ok(request.answer_itself(response));
    }
    let (gate, user) = (&request.shared().gate, request.user.as_deref());
    let (visit, name) = options::visit(gate, origin, &parts, user, request.peer());
    let who = ClientName { name, address: request.address() };
    let may_share = request.settings.config.cache.collapse && parts.method == Method::GET;
    let visit = Visit { part: page_part(request, &parts, visit.client), may_share, ..visit };
    request.counts_for_client(visit.client, name, &parts.headers);
    let begin = |name| Job::begin(request.shared(), &request.settings, (name, who.address), &origin.host);
    let job = name.map(begin).transpose()?;
    let asking = RobotsQuestion::about_page(request, origin, &parts);
    let heard = asking.ask(&visit, || label::of_head(who, origin, &parts)).await;
    let heard = heard.inspect_err(|failure| failed(request, job.as_ref(), failure))?;
    let visit = heard.apply(visit);
    let mut step = CacheStep::Off;
    if request.settings.caches {
        let has_disk = request.shared().cache.disk.is_some();
        let on_disk = if has_disk { cached::from_disk(request, origin, &parts).await } else { None };
        match cached::look(request, &visit, origin, &parts, !incoming.is_end_stream(), on_disk)? {
            Looked::Answer(response) => return Ok(warned(request, response, heard.warning)),
            Looked::Ask(next) => step = next,
        }
    }
    let (may_teach, upgrade) = (capture::may_come(&parts), take_upgrade(&mut parts));
    let member = join_flight(request, &step).filter(|_| !may_teach);
    let plain = step.plan().and_then(|plan| plan.set_conditions(&mut parts));
    let body = client_body(request, incoming);
    let outgoing = prepare(request, origin, parts, body, upgrade.is_some());
    let plain = plain.map(|plain| prepare(request, origin, plain, RequestBody::Empty, false));
    let mut sent = match send(request, origin, visit, job.as_ref(), outgoing, member.as_ref()).await {
        Ok(Delivered::Sent(sent)) => sent,
        Ok(Delivered::Shared(share)) => return Ok(pass_share(request, share, &step, heard.warning)),
        Err(failure) => return cached::instead_of(&failure, &step, request).ok_or(failure),
    };
    if let (Answer::Response(response), Some(plain), Some(plan)) = (&sent.answer, plain, step.plan())
        && let Confirmation::Contradicts = plan.confirmed(response)
    {
        drop(sent);
        step.is_plain_again();
        member.iter().for_each(Membership::retries);
        sent = match Box::pin(send(request, origin, visit, job.as_ref(), plain, member.as_ref())).await? {
            Delivered::Sent(sent) => sent,
            Delivered::Shared(share) => return Ok(pass_share(request, share, &step, heard.warning)),
        };
    }
    let status = status(&sent.answer);
    answered(request, job.as_ref(), status)?;
    if let Some(response) = cached::replaces_error(status, &step, request) {
        keep(request, sent.permit, sent.took);
        return Ok(response);
    }
    pass_back(request, origin, sent, Expected { may_teach, upgrade, warning: heard.warning, step, member })
}

/// Counts an answer for the client, if it has a name. Refuses the one that must not be passed on.
fn answered(request: &ClientRequest, job: Option<&Job>, status: StatusCode) -> Result<(), UpstreamError> {
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        // If this were passed on, the client would show its curtsy password to another proxy.
        return Err(UpstreamError::Parent(status.as_u16()));
    }
    job.into_iter().for_each(|job| job.answered(request.shared(), &request.settings, status.as_u16()));
    Ok(())
}

/// Counts a failure for the client, if it has a name.
fn failed(request: &ClientRequest, job: Option<&Job>, failure: &Failure) {
    job.into_iter().for_each(|job| job.ended(request.shared(), &request.settings, failure));
}

/// Adds the objection of robots.txt to an answer from the cache.
fn warned(request: &ClientRequest, mut response: Response<Body>, warning: Option<Warning>) -> Response<Body> {
    if let (Some(warning), ResponseHeaders::Full) = (warning, request.settings.config.responses.headers) {
        fields::warn(response.headers_mut(), warning);
    }
    response
}

fn client_body(request: &ClientRequest, incoming: Incoming) -> RequestBody {
    let stall = request.settings.config.limits.client_stall;
    RequestBody::new(incoming, request.limit(), stall, &request.shared().metrics)
}

/// Returns whether the request loads a part of a page. Reads no header field where requests are counted.
fn page_part(request: &ClientRequest, parts: &Parts, client: ClientId) -> PagePart {
    if request.settings.counts_pages { request.shared().browsers.part(client, &parts.headers) } else { PagePart::No }
}

/// A request as it is sent to its origin.
struct Outgoing {
    message: Box<Message>,
    safe: bool,
    keep_body: bool,
    upgrade: bool,
}

/// Serialises the head before the request waits, so that the buffer it was read into is freed.
fn prepare(
    request: &ClientRequest,
    origin: &Origin,
    mut parts: Box<Parts>,
    body: RequestBody,
    upgrade: bool,
) -> Outgoing {
    let (settings, safe) = (&request.settings, parts.method.is_safe());
    let keep_body = safe && !upgrade && !headers::has(&parts.headers, &EXPECT);
    let via = headers::outgoing(&mut parts, origin, upgrade, identity(request));
    if settings.config.upstream.proxy.is_some() {
        parts.uri = canonical(origin, parts.uri);
    }
    Outgoing { message: Message::new(&parts, via, body, &settings.config.upstream), safe, keep_body, upgrade }
}

/// Waits for the turn of the request and sends it.
async fn send(
    request: &ClientRequest,
    origin: &Origin,
    visit: Visit,
    job: Option<&Job>,
    outgoing: Outgoing,
    member: Option<&Membership>,
) -> Result<Delivered, Failure> {
    let Outgoing { message, safe, keep_body, upgrade } = outgoing;
    let (worker, settings, size) = (&request.worker, &request.settings, message.head_size());
    let is_large = size > check::USUAL_HEAD;
    let _large = if is_large { Some(check::weigh(request.shared(), &request.client, size)?) } else { None };
    let who = ClientName { name: job.map(Job::name), address: request.address() };
    let delivery = Delivery { worker, settings, origin, visit, who, safe, keep_body, upgrade, member };
    delivery.send(message).await.inspect_err(|failure| failed(request, job, failure))
}

/// What else becomes of an answer that is passed on.
struct Expected {
    /// Whether it may be a robots.txt to learn from.
    may_teach: bool,
    /// The client's side of the connection, if it asked for a WebSocket.
    upgrade: Option<OnUpgrade>,
    warning: Option<Warning>,
    /// How the cache is concerned.
    step: CacheStep,
    /// Its part in a flight.
    member: Option<Membership>,
}

/// Turns the origin's answer into the one for the client.
fn pass_back(
    request: &mut ClientRequest,
    origin: &Origin,
    sent: Sent,
    expected: Expected,
) -> Result<Response<Body>, Failure> {
    let Sent { answer, permit, took, attempts } = sent;
    let status = status(&answer).as_u16();
    request.shared().metrics.response(status, took);
    request.answered(status, RequestOutcome::Forwarded);
    match (answer, expected.upgrade) {
        (Answer::Response(mut response), _) => {
            let (shared, settings) = (request.shared(), &request.settings);
            let lesson =
                expected.may_teach.then(|| RobotsCapture::begin(shared, settings, origin, &response)).flatten();
            let version = response.version();
            headers::incoming(response.headers_mut(), identity(request), version);
            // A proxy answers in its own version, whatever the origin speaks (RFC 9110, section 2.5).
            *response.version_mut() = Version::HTTP_11;
            if let Some(plan) = expected.step.plan()
                && let Confirmation::Yes = plan.confirmed(&response)
                && let Some(stored) = expected.step.answer_confirmed(request, response.headers(), took)
            {
                expected.member.iter().for_each(Membership::share_stored);
                keep(request, permit, took);
                return Ok(stored);
            }
            let share = expected.member.and_then(|member| landing::land(&member, &response, took));
            let tap = match &expected.step {
                CacheStep::Off => None,
                step => Passing::begin(step, request, &mut response, took).tap,
            };
            if request.settings.config.responses.headers == ResponseHeaders::Full {
                let identity = &request.shared().identity;
                if let Some(warning) = expected.warning {
                    fields::warn(response.headers_mut(), warning);
                }
                fields::tell(response.headers_mut(), &permit, took, attempts, identity);
            }
            if may_take_long(response.body()) {
                permit.transfers();
            }
            if let Some(Share::Coming(answer, reader)) = share {
                note_times(request, &permit, took);
                let (head, reply) = (*response).into_parts();
                landing::fill(&answer, Body::passing(reply).storing(tap), permit);
                return Ok(Response::from_parts(head, Body::shared(reader, true)));
            }
            keep(request, permit, took);
            Ok((*response).map(|reply| Body::passing(reply).teaching(lesson).storing(tap)))
        }
        (Answer::Switched(response, stream, early), Some(upgrade)) if headers::is_websocket(response.headers()) => {
            permit.stays_open();
            keep(request, permit, took);
            let ends = Ends { client: Upgrade::Coming(Some(upgrade)), origin: stream, early };
            Ok(join::switch(request, response, ends))
        }
        (Answer::Switched(..), _) => Err(UpstreamError::Upgrade.into()),
    }
}

/// The name by which curtsy signs messages, if it does.
pub(crate) fn identity(request: &ClientRequest) -> Option<&Identity> {
    signature(&request.settings, request.shared())
}

/// The same, for a request of curtsy's own.
pub(crate) fn signature<'a>(settings: &Settings, shared: &'a Shared) -> Option<&'a Identity> {
    settings.config.upstream.via.then_some(&shared.identity)
}

/// Takes the client's side of the connection, if it asks for a WebSocket.
fn take_upgrade(parts: &mut Parts) -> Option<OnUpgrade> {
    let is_asked = headers::asks_for_websocket(&parts.method, parts.version, &parts.headers);
    is_asked.then(|| parts.extensions.remove::<OnUpgrade>()).flatten()
}

fn status(answer: &Answer) -> StatusCode {
    match answer {
        Answer::Response(response) => response.status(),
        Answer::Switched(response, ..) => response.status(),
    }
}

/// Keeps the permit until the request is over.
fn keep(request: &mut ClientRequest, permit: Permit, took: Duration) {
    note_times(request, &permit, took);
    request.keep(permit);
}

fn note_times(request: &mut ClientRequest, permit: &Permit, took: Duration) {
    let waited = permit.waited();
    if let Some(entry) = request.entry() {
        (entry.origin, entry.wait) = (Some(took), waited);
    }
}

/// Joins the requests for the same thing that are under way, if this one may share their answer.
fn join_flight(request: &ClientRequest, step: &CacheStep) -> Option<Membership> {
    let plan = step.shareable().filter(|_| request.settings.config.cache.collapse)?;
    request.shared().flights.join(plan)
}

/// Answers with the answer to another client's request.
fn pass_share(request: &mut ClientRequest, share: Share, step: &CacheStep, warning: Option<Warning>) -> Response<Body> {
    let response = match share {
        Share::Stored(entry) => step.answer_shared(request, &entry),
        Share::Coming(answer, reader) => {
            if let Some(entry) = request.entry() {
                entry.origin = Some(answer.took);
            }
            let response = step.pass_shared(request, answer.head(), answer.address);
            response.map(|is_head| if is_head { Body::from(Bytes::new()) } else { Body::shared(reader, false) })
        }
    };
    warned(request, response, warning)
}

/// A parent proxy must read the same host as curtsy did, so it gets the canonical spelling.
fn canonical(origin: &Origin, uri: Uri) -> Uri {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Uri::try_from(format!("{origin}{path}")).unwrap_or(uri)
}
