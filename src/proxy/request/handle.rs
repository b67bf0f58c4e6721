//! The path of one request, from its head to an answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{ACCEPT, CONTENT_LENGTH, PROXY_AUTHORIZATION};
use http::request::Parts;
use http::{Method, Response, Uri, Version};
use hyper::body::Incoming;

use super::access_log::{LogEntry, shown};
use super::client_request::ClientRequest;
use super::target::Target;
use super::{forward, headers, target, users};
use crate::metrics::RequestKind;
use crate::politeness::visit::LaneRefusal;
use crate::politeness::{HostKey, Origin, Scheme};
use crate::proxy::accept::client::{Client, Inside};
use crate::proxy::accept::upgrade::Upgrade;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::{Failure, Refusal};
use crate::proxy::answer::response::{self, AnsweredRequest};
use crate::proxy::pages::{help, landing, probe};
use crate::proxy::tunnel::connect::WantedTunnel;
use crate::proxy::tunnel::{connect, intercept};
use crate::proxy::{Settings, Worker};

/// Answers a request, with the origin's answer or one of curtsy's own.
pub(crate) async fn handle(
    worker: Arc<Worker>,
    client: Arc<Client>,
    parts: Box<Parts>,
    body: Incoming,
) -> Response<Body> {
    let settings = worker.shared.settings.load_full();
    let asked = RequestSummary {
        method: parts.method.clone(),
        url: written(&parts.uri, client.inside()),
        version: parts.version,
        accept: parts.headers.get(ACCEPT).filter(|accept| *accept != "*/*").map(|accept| accept.as_bytes().into()),
    };
    let (shared, kind) = (&worker.shared, kind(&parts, client.inside()));
    let is_told = shared.access_log.is_on() || shared.events.is_watched() || shared.metrics.tally.is_kept();
    let entry = is_told
        .then(|| Box::new(LogEntry::new(client.peer, &parts.method, &asked.url, settings.config.log.query_strings)));
    let mut request = ClientRequest::begin(worker, client, settings, kind, entry);
    let mut response = match pass(&mut request, parts, body).await {
        Ok(response) => response,
        Err(failure) => refuse(&mut request, &asked, &failure),
    };
    // A proxy keeps no connection to an HTTP/1.0 client open (RFC 9112, section 9.3).
    if asked.version == Version::HTTP_10 {
        *response.version_mut() = Version::HTTP_10;
        response::close(response.headers_mut());
        if !response.headers().contains_key(CONTENT_LENGTH) {
            request.client.hears_the_end_by_close();
        }
    }
    request.finish(response)
}

/// Admits the client, finds out what the request is for, and passes the request to what answers it. Counts the request
/// against the quotas, even if its target cannot be read.
async fn pass(request: &mut ClientRequest, parts: Box<Parts>, body: Incoming) -> Result<Response<Body>, Failure> {
    let user = admit(&request.settings, &request.client, &parts).await?;
    request.admitted(user, &parts.headers);
    target::check(&parts, request.client.inside().is_some())?;
    let target = match request.client.inside() {
        None => Target::read(&parts.method, &parts.uri, &parts.headers).map_err(Failure::from),
        Some(inside) => Target::read_inside(&inside.origin, &parts.method, &parts.uri, &parts.headers),
    };
    if let Ok(Target::Forward(Origin { host, .. }) | Target::Tunnel { host, .. }) = &target {
        request.asks_for(host);
    }
    // A tunnel that curtsy looks into is counted by the requests inside it.
    let looks_inside =
        matches!(&target, Ok(Target::Tunnel { host, port }) if intercept::looks_into(request, host, *port));
    if !looks_inside {
        request.take_quota(&parts.headers)?;
    }
    match target? {
        Target::Forward(origin) => match own_page(request, &origin, &parts) {
            Some(response) => Ok(request.answer_itself(response)),
            None => forward::forward(request, &origin, parts, body).await,
        },
        Target::Tunnel { host, port } => tunnel(request, WantedTunnel { host, port, parts }).await,
        Target::Own => Ok(request.answer_itself(landing::page(&parts.method, &parts.uri, &parts.headers))),
    }
}

/// Returns the page for a name that curtsy answers for itself.
fn own_page(request: &ClientRequest, origin: &Origin, parts: &Parts) -> Option<Response<Body>> {
    if probe::is_meant(&origin.host) {
        return Some(probe::answer(request, origin, parts));
    }
    help::is_meant(&origin.host).then(|| help::page(&request.settings, parts))
}

async fn tunnel(request: &mut ClientRequest, mut wanted: WantedTunnel) -> Result<Response<Body>, Failure> {
    request.counts_for(&wanted.parts.headers);
    connect::check(request, &wanted)?;
    if intercept::looks_into(request, &wanted.host, wanted.port) {
        return Box::pin(intercept::begin(request, wanted)).await;
    }
    let upgrade = Upgrade::after(&mut wanted.parts);
    Box::pin(connect::connect(request, wanted, upgrade)).await
}

/// Checks whether this client may use the proxy at all, and returns its name.
async fn admit(settings: &Settings, client: &Client, parts: &Parts) -> Result<Option<String>, Failure> {
    let ip = client.peer.ip().to_canonical();
    if !settings.config.access.allow.iter().any(|net| net.contains(&ip)) {
        return Err(Refusal::ClientDenied.into());
    }
    // Inside a tunnel the client is the one that opened it, whatever the request says.
    if let Some(inside) = client.inside() {
        return Ok(inside.user.clone().or_else(|| inside.name.clone()));
    }
    let is_named = headers::has(&parts.headers, &PROXY_AUTHORIZATION);
    let credentials = is_named.then(|| parts.headers.get(PROXY_AUTHORIZATION)).flatten();
    match &settings.users {
        // No client has to log in, so a name is only what the client calls itself.
        None => Ok(credentials.and_then(users::label)),
        Some(users) => {
            Box::pin(users.check(credentials, ip)).await.map(Some).ok_or_else(|| Refusal::AuthRequired.into())
        }
    }
}

fn refuse(request: &mut ClientRequest, asked: &RequestSummary, failure: &Failure) -> Response<Body> {
    let mut words = failure.words();
    let (worker, settings) = (request.worker.clone(), request.settings.clone());
    let shared = &worker.shared;
    if let (Failure::Refused(Refusal::Lane(LaneRefusal::WaitTooLong { .. })), Some(host)) = (failure, request.host()) {
        words.name_limit(shared.gate.policy(host).max_wait);
    }
    let id = shared.answers.fetch_add(1, Relaxed);
    shared.metrics.rejection(words.code);
    if let Some(kind) = failure.origin_error() {
        shared.metrics.origin_error(kind);
    }
    tracing::debug!(
        event = "answer",
        code = words.code,
        status = words.status.as_u16(),
        id,
        url = %shown(&asked.url, settings.config.log.query_strings),
        detail = words.detail
    );
    request.refused(words.status.as_u16(), words.outcome, words.code);
    let (host, is_connect) = (request.host().map(HostKey::as_str), asked.method == Method::CONNECT);
    let form = response::preferred(asked.accept.as_deref());
    let asked = AnsweredRequest { url: &asked.url, host, form, is_connect, id };
    response::respond(&words, &asked, &shared.identity, &settings.config.responses)
}

/// What an answer needs of a request that has been passed on. Copied, because any piece of a request keeps its whole
/// read buffer alive.
struct RequestSummary {
    method: Method,
    /// For people, without credentials.
    url: String,
    version: Version,
    /// What the client accepts, if not anything. Read only if curtsy answers.
    accept: Option<Box<[u8]>>,
}

fn kind(parts: &Parts, inside: Option<&Inside>) -> RequestKind {
    match inside {
        Some(inside) if inside.origin.scheme == Scheme::Https => RequestKind::Https,
        None if parts.method == Method::CONNECT => RequestKind::Tunnel,
        None if parts.uri.scheme() == Some(&http::uri::Scheme::HTTPS) => RequestKind::Absolute,
        _ => RequestKind::Http,
    }
}

/// Writes the URI without credentials, as the client would have requested it without the tunnel that it is inside of.
/// By hand: this runs for every request, and formatting costs three times as much.
fn written(uri: &Uri, inside: Option<&Inside>) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    // Authorities are short: looking at each byte is faster here than a search that is made for long texts.
    let host = authority.bytes().rposition(|byte| byte == b'@').map_or(0, |at| at + 1);
    let authority = &authority[host..];
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    if let (Some(inside), "") = (inside, authority) {
        return format!("{}{path}", inside.origin);
    }
    let scheme = uri.scheme_str().unwrap_or_default();
    let mut text = String::with_capacity(scheme.len() + 3 + authority.len() + path.len());
    if !scheme.is_empty() {
        text.push_str(scheme);
        text.push_str("://");
    }
    text.push_str(authority);
    text.push_str(path);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_without_its_credentials() {
        let told = |uri: &str| written(&uri.parse().unwrap(), None);
        assert_eq!(told("http://me:secret@a.test:81/x?y"), "http://a.test:81/x?y");
        assert_eq!(told("a.test:443"), "a.test:443");
        assert_eq!(told("/x?y"), "/x?y");
        assert_eq!(told("*"), "*");
    }
}
