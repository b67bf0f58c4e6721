//! The path of one request, from its head to an answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{ACCEPT, CONTENT_LENGTH, PROXY_AUTHORIZATION};
use http::request::Parts;
use http::{Method, Response, Uri, Version};
use hyper::body::Incoming;

use super::access_log::{Entry, shown};
use super::answer::{self, Asked, Form};
use super::body::Body;
use super::client::{Client, Inside};
use super::connect::Wanted;
use super::failure::{Failure, Refusal};
use super::in_flight::InFlight;
use super::label::Who;
use super::near::Arrival;
use super::target::Target;
use super::{Settings, Worker, connect, forward, help, intercept, landing, probe, target, users, wish};
use crate::metrics::{Kind, Outcome};
use crate::politeness::Scheme;

/// Answers a request, with the origin's answer or one of curtsy's own.
pub(super) async fn handle(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    parts: Box<Parts>,
    body: Incoming,
) -> Response<Body> {
    let settings = worker.shared.settings.load_full();
    let asked = Kept::of(&parts, client.inside());
    let shared = &worker.shared;
    let is_told = shared.access_log.is_on() || shared.events.is_watched() || shared.metrics.tally.is_kept();
    let entry = is_told
        .then(|| Box::new(Entry::new(client.peer, &parts.method, &asked.url, settings.config.log.query_strings)));
    let in_flight = InFlight::begin(worker.shared.clone(), client.clone(), &settings.config.limits, asked.kind, entry);
    let mut in_flight = Some(in_flight);
    let mut response = match pass(worker, &settings, client, parts, body, &mut in_flight).await {
        Ok(response) => response,
        Err(failure) => refuse(worker, &settings, &asked, &failure, in_flight.as_deref_mut()),
    };
    // A proxy keeps no connection to an HTTP/1.0 client open (RFC 9112, section 9.3).
    if asked.version == Version::HTTP_10 {
        *response.version_mut() = Version::HTTP_10;
        answer::close(response.headers_mut());
        if !response.headers().contains_key(CONTENT_LENGTH) {
            client.hears_the_end_by_close();
        }
    }
    match in_flight {
        Some(in_flight) => response.map(|body| body.keeping(in_flight)),
        None => response,
    }
}

async fn pass(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    client: &Arc<Client>,
    parts: Box<Parts>,
    body: Incoming,
    in_flight: &mut Option<Box<InFlight>>,
) -> Result<Response<Body>, Failure> {
    let user = admit(settings, client, &parts).await?;
    let user = user.as_deref();
    if let Some(entry) = in_flight.as_mut().and_then(|in_flight| in_flight.entry()) {
        entry.user = user.filter(|_| settings.users.is_some()).map(str::to_owned);
        entry.name = user.or_else(|| wish::name(&parts.headers)).map(str::to_owned);
    }
    target::check(&parts, client.inside().is_some())?;
    let target = match client.inside() {
        None => Target::read(&parts.method, &parts.uri, &parts.headers).map_err(Failure::from),
        Some(inside) => Target::read_inside(&inside.origin, &parts.method, &parts.uri, &parts.headers),
    };
    // A tunnel that curtsy looks into is counted by the requests inside it.
    let looks_inside = matches!(&target, Ok(Target::Tunnel { host, port })
        if intercept::looks_into(worker, settings, client, host, *port));
    if !looks_inside {
        count(worker, settings, client, &parts, user)?;
    }
    match target? {
        Target::Forward(origin) if probe::is_meant(&origin.host) => {
            let who = Who { name: user.or_else(|| wish::name(&parts.headers)), address: client.peer.ip() };
            let inside = client.inside().is_some();
            let response = probe::answer(&worker.shared, settings, &origin, inside, who, &parts.method);
            answered(in_flight, response.status().as_u16(), Outcome::Rejected);
            Ok(response)
        }
        Target::Forward(origin) if help::is_meant(&origin.host) => {
            let response = help::page(settings, &parts);
            answered(in_flight, response.status().as_u16(), Outcome::Rejected);
            Ok(response)
        }
        Target::Forward(origin) => forward::forward(worker, settings, &origin, parts, body, user, in_flight).await,
        Target::Tunnel { host, port } => {
            connect::check(worker, settings, port, &parts)?;
            let mut wanted = Wanted { host, port, parts, user: user.map(str::to_owned), client: client.clone() };
            if looks_inside {
                return Box::pin(intercept::begin(worker, settings, wanted, in_flight)).await;
            }
            let upgrade = Arrival::after(&mut wanted.parts);
            Box::pin(connect::connect(worker, settings, wanted, upgrade, in_flight)).await
        }
        Target::Own => {
            let response = landing::page(&parts.method, &parts.uri, &parts.headers);
            answered(in_flight, response.status().as_u16(), Outcome::Rejected);
            Ok(response)
        }
    }
}

/// Counts the request against the quotas, and refuses it if the client is over one.
pub(super) fn count(
    worker: &Worker,
    settings: &Settings,
    client: &Client,
    parts: &Parts,
    user: Option<&str>,
) -> Result<(), Refusal> {
    let Some(quotas) = &settings.quotas else { return Ok(()) };
    let peer = wish::Peer::new(settings, client.id);
    let client = wish::client(&worker.shared.gate, &parts.headers, user, peer);
    quotas.take(client).map_err(Refusal::Quota)
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
    let credentials = parts.headers.get(PROXY_AUTHORIZATION);
    match &settings.users {
        // No client has to log in, so a name is only what the client calls itself.
        None => Ok(credentials.and_then(users::label)),
        Some(users) => {
            Box::pin(users.check(credentials, ip)).await.map(Some).ok_or_else(|| Refusal::AuthRequired.into())
        }
    }
}

fn refuse(
    worker: &Worker,
    settings: &Settings,
    asked: &Kept,
    failure: &Failure,
    in_flight: Option<&mut InFlight>,
) -> Response<Body> {
    let words = failure.words();
    let shared = &worker.shared;
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
    if let Some(in_flight) = in_flight {
        in_flight.answered(words.status.as_u16(), words.outcome);
        if let Some(entry) = in_flight.entry() {
            entry.error = Some(words.code);
        }
    }
    let uri = Uri::try_from(&asked.url).unwrap_or_default();
    let asked =
        Asked { url: &asked.url, host: uri.host(), form: asked.form, is_connect: asked.method == Method::CONNECT, id };
    answer::respond(&words, &asked, &shared.identity, &settings.config.responses)
}

pub(super) fn answered(in_flight: &mut Option<Box<InFlight>>, status: u16, outcome: Outcome) {
    if let Some(in_flight) = in_flight {
        in_flight.answered(status, outcome);
    }
}

/// What an answer needs of a request that has been passed on. Copied, because any piece of a request keeps its whole
/// read buffer alive.
struct Kept {
    method: Method,
    /// For people, without credentials.
    url: String,
    version: Version,
    form: Form,
    kind: Kind,
}

impl Kept {
    fn of(parts: &Parts, inside: Option<&Inside>) -> Self {
        let (method, uri) = (parts.method.clone(), &parts.uri);
        let kind = match inside {
            Some(inside) if inside.origin.scheme == Scheme::Https => Kind::Https,
            Some(_) => Kind::Http,
            None if method == Method::CONNECT => Kind::Tunnel,
            None if uri.scheme() == Some(&http::uri::Scheme::HTTPS) => Kind::Absolute,
            None => Kind::Http,
        };
        let url = match inside {
            // As the client would have requested it without the tunnel.
            Some(inside) if uri.authority().is_none() => format!("{}{}", inside.origin, written(uri)),
            _ => written(uri),
        };
        Kept { method, url, version: parts.version, form: answer::preferred(parts.headers.get(ACCEPT)), kind }
    }
}

/// Writes the URI without credentials. By hand: this runs for every request, and formatting costs three times as much.
fn written(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = uri.path_and_query().map_or("", |path| path.as_str());
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
        let told = |uri: &str| written(&uri.parse().unwrap());
        assert_eq!(told("http://me:secret@a.test:81/x?y"), "http://a.test:81/x?y");
        assert_eq!(told("a.test:443"), "a.test:443");
        assert_eq!(told("/x?y"), "/x?y");
        assert_eq!(told("*"), "*");
    }
}
