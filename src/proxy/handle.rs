//! The path of one request, from its head to an answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{ACCEPT, PROXY_AUTHORIZATION};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Uri, Version};
use hyper::body::Incoming;

use super::access_log::Entry;
use super::answer::{self, Asked};
use super::body::Body;
use super::failure::{Failure, Refusal};
use super::in_flight::InFlight;
use super::target::Target;
use super::worker::Open;
use super::{Settings, Worker, connect, forward, landing};
use crate::metrics::{Kind, Outcome};
use crate::patience::Limit;
use crate::politeness::visit::ClientId;

/// Who is at the other end of a client connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    /// By its address.
    pub(super) id: ClientId,
    pub(super) limit: Arc<Limit>,
    /// Counted as open until the connection, or the tunnel that it became, is over.
    pub(super) _open: Open,
}

/// Answers every request, one way or the other.
pub(super) async fn handle(worker: &Arc<Worker>, client: &Arc<Client>, request: Request<Incoming>) -> Response<Body> {
    let settings = worker.shared.settings.load_full();
    let asked = Kept::of(&request);
    let entry =
        worker.shared.access_log.is_on().then(|| {
            Box::new(Entry::new(client.peer, request.method(), &asked.url(), settings.config.log.query_strings))
        });
    let in_flight =
        InFlight::begin(worker.shared.clone(), client.clone(), &settings.config.limits, asked.kind(), entry);
    let mut in_flight = Some(in_flight);
    let mut response = match pass(worker, &settings, client, request, &mut in_flight).await {
        Ok(response) => response,
        Err(failure) => refuse(worker, &settings, &asked, &failure, in_flight.as_mut()),
    };
    // A proxy keeps no connection to an HTTP/1.0 client open (RFC 9112, section 9.3).
    if asked.version == Version::HTTP_10 {
        *response.version_mut() = Version::HTTP_10;
        answer::close(response.headers_mut());
    }
    match in_flight {
        Some(in_flight) => response.map(|body| body.keeping(in_flight)),
        None => response,
    }
}

async fn pass(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    client: &Client,
    request: Request<Incoming>,
    in_flight: &mut Option<InFlight>,
) -> Result<Response<Body>, Failure> {
    let (parts, body) = request.into_parts();
    if worker.shared.stop.is_requested() {
        return Err(Refusal::ShuttingDown.into());
    }
    let user = admit(settings, client.peer.ip(), &parts, in_flight).await?;
    let user = user.as_deref();
    match Target::read(&parts.method, &parts.uri, &parts.headers)? {
        Target::Forward(origin) => forward::forward(worker, settings, &origin, parts, body, user, in_flight).await,
        Target::Tunnel { host, port } => connect::connect(worker, settings, host, port, parts, user, in_flight).await,
        Target::Own => {
            let response = landing::page(&parts.method, &parts.uri, &parts.headers);
            answered(in_flight, response.status().as_u16(), Outcome::Rejected);
            Ok(response)
        }
    }
}

/// Whether this client may use the proxy at all, and by which name.
async fn admit(
    settings: &Settings,
    ip: IpAddr,
    parts: &Parts,
    in_flight: &mut Option<InFlight>,
) -> Result<Option<String>, Failure> {
    let ip = ip.to_canonical();
    if !settings.config.access.allow.iter().any(|net| net.contains(&ip)) {
        return Err(Refusal::ClientDenied.into());
    }
    let Some(users) = &settings.users else { return Ok(None) };
    let user = users.check(parts.headers.get(PROXY_AUTHORIZATION)).await.ok_or(Refusal::AuthRequired)?;
    if let Some(entry) = in_flight.as_mut().and_then(InFlight::entry) {
        entry.user = Some(user.clone());
    }
    Ok(Some(user))
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
    let url = asked.url();
    tracing::debug!(
        event = "answer",
        code = words.code,
        status = words.status.as_u16(),
        id,
        url,
        detail = words.detail
    );
    if let Some(in_flight) = in_flight {
        in_flight.answered(words.status.as_u16(), words.outcome);
        if let Some(entry) = in_flight.entry() {
            entry.error = Some(words.code);
        }
    }
    let asked = Asked {
        url: &url,
        host: asked.uri.host(),
        accept: asked.accept.as_ref(),
        is_connect: asked.method == Method::CONNECT,
        id,
    };
    answer::respond(&words, &asked, &shared.identity, &settings.config.responses)
}

pub(super) fn answered(in_flight: &mut Option<InFlight>, status: u16, outcome: Outcome) {
    if let Some(in_flight) = in_flight {
        in_flight.answered(status, outcome);
    }
}

/// What an answer needs of a request that has been passed on. Cheap: the parts are shared, not copied.
struct Kept {
    method: Method,
    uri: Uri,
    version: Version,
    accept: Option<HeaderValue>,
}

impl Kept {
    fn of(request: &Request<Incoming>) -> Self {
        Kept {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            accept: request.headers().get(ACCEPT).cloned(),
        }
    }

    fn kind(&self) -> Kind {
        if self.method == Method::CONNECT { Kind::Tunnel } else { Kind::Http }
    }

    /// For people: credentials in a URL are left out.
    fn url(&self) -> String {
        let text = self.uri.to_string();
        match (text.find("://"), self.uri.authority().and_then(|authority| authority.as_str().rfind('@'))) {
            (Some(scheme), Some(at)) => format!("{}{}", &text[..scheme + 3], &text[scheme + 4 + at..]),
            (None, Some(at)) => text[at + 1..].to_owned(),
            (_, None) => text,
        }
    }
}
