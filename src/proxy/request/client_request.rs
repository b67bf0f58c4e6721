//! A request of a client while curtsy works on it: the worker and the settings that it began with, the client, and what
//! is counted and logged when it ends, however it ends. Every step on the path of a request is handed this one value.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Response};
use tokio::time::Instant;

use super::access_log::{CutBy, Ending, LogEntry};
use super::label::{self, ClientName};
use super::options::{self, Peer};
use crate::clock;
use crate::config::Key;
use crate::events::REQUEST;
use crate::gate::{Account, Permit, at, now};
use crate::metrics::clients::{ClientEnding, ClientIdentity};
use crate::metrics::savings::Saved;
use crate::metrics::{DisconnectStage, RequestKind, RequestOutcome};
use crate::politeness::HostKey;
use crate::politeness::visit::{self, ClientId};
use crate::proxy::accept::client::Client;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::Refusal;
use crate::proxy::{Settings, Shared, Worker};
use crate::timeout_stream::Deadline;
use crate::upstream::Broken;

pub(crate) struct ClientRequest {
    pub(crate) worker: Arc<Worker>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) client: Arc<Client>,
    /// The name that the client was admitted by: a proxy user, or what the client calls itself.
    pub(crate) user: Option<String>,
    /// `None` once a tunnel has taken it over.
    in_flight: Option<Box<InFlight>>,
}

impl ClientRequest {
    /// Begins a request, which counts as in flight from now on.
    pub(crate) fn begin(
        worker: Arc<Worker>,
        client: Arc<Client>,
        settings: Arc<Settings>,
        kind: RequestKind,
        entry: Option<Box<LogEntry>>,
    ) -> Self {
        let (shared, limits, number) = (&worker.shared, &settings.config.limits, client.is_busy());
        shared.metrics.inflight.inc();
        if let Some(origin) = client.first_asked_inside() {
            shared.untrusting.note_trust(client.peer.ip(), &origin.host);
        }
        let in_flight = Box::new(InFlight {
            shared: shared.clone(),
            client: client.clone(),
            idle: limits.client_idle,
            head_timeout: limits.head_timeout,
            kind,
            outcome: None,
            complete: false,
            status: 0,
            bytes: 0,
            served: 0,
            entry: entry.map(|entry| (entry, clock::now())),
            permit: None,
            code: None,
            counted_for: AtomicU64::new(0),
            host: None,
            saved_at: None,
            number,
            replaced: false,
        });
        ClientRequest { worker, settings, client, user: None, in_flight: Some(in_flight) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.worker.shared
    }

    /// The client's end of the connection, as lanes and quotas know it.
    pub(crate) fn peer(&self) -> Peer {
        Peer::new(&self.settings, self.client.id)
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.client.peer.ip()
    }

    /// The client as people know it.
    pub(crate) fn who<'a>(&'a self, headers: &'a HeaderMap) -> ClientName<'a> {
        ClientName { name: self.name(headers), address: self.address() }
    }

    fn name<'a>(&'a self, headers: &'a HeaderMap) -> Option<&'a str> {
        self.user.as_deref().or_else(|| options::name(headers))
    }

    /// The limit for the client's pauses within its request; `None` if its connection has several requests at once.
    pub(crate) fn limit(&self) -> Option<&Arc<Deadline>> {
        self.client.has_one_at_a_time().then_some(&self.client.limit)
    }

    /// Counts the request against the quotas, and refuses it if the client is over one.
    pub(crate) fn take_quota(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(quotas) = &self.settings.quotas else { return Ok(()) };
        let client = options::client(&self.shared().gate, headers, self.user.as_deref(), self.peer());
        quotas.take(client).map_err(Refusal::Quota).inspect_err(|_| self.counts_for(headers))
    }

    /// Notes which client the request is counted for, if only its head is known.
    pub(crate) fn counts_for(&self, headers: &HeaderMap) {
        let name = self.name(headers);
        self.counts_for_client(self.peer().named(&self.shared().gate, name), name, headers);
    }

    /// Notes which client the request is counted for.
    pub(crate) fn counts_for_client(&self, id: ClientId, name: Option<&str>, headers: &HeaderMap) {
        if self.client.is_met_first(id) {
            self.meet(id, name, headers);
        }
        if let Some(in_flight) = &self.in_flight {
            in_flight.counted_for.store(id.0, Relaxed);
        }
    }

    /// Introduces the client to the table of clients.
    fn meet(&self, id: ClientId, name: Option<&str>, headers: &HeaderMap) {
        let agent = headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
        let who = ClientIdentity { id, name, logs_in: self.settings.users.is_some(), address: self.address(), agent };
        self.shared().metrics.clients.meet(&who, label::program);
    }

    /// Notes the user that was admitted.
    pub(crate) fn admitted(&mut self, user: Option<String>, headers: &HeaderMap) {
        self.user = user;
        if let Some(entry) = self.in_flight.as_mut().and_then(|in_flight| in_flight.entry()) {
            entry.name = self.user.clone().or_else(|| options::name(headers).map(str::to_owned));
            entry.user = self.user.clone().filter(|_| self.settings.users.is_some());
        }
    }

    /// Notes the host that the request is for.
    pub(crate) fn asks_for(&mut self, host: &HostKey) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.host = Some(host.clone());
        }
    }

    /// The host that the request is for, once that is known.
    pub(crate) fn host(&self) -> Option<&HostKey> {
        self.in_flight.as_ref()?.host.as_ref()
    }

    /// The log entry, if requests are logged.
    pub(crate) fn entry(&mut self) -> Option<&mut LogEntry> {
        self.in_flight.as_mut()?.entry()
    }

    /// Notes the answer.
    pub(crate) fn answered(&mut self, status: u16, outcome: RequestOutcome) {
        if let Some(in_flight) = &mut self.in_flight {
            (in_flight.status, in_flight.outcome) = (status, Some(outcome));
        }
    }

    /// Notes what the cache did for the request, for the access log.
    pub(crate) fn cached(&mut self, word: &'static str) {
        if let Some(entry) = self.entry() {
            entry.cache = Some(word);
        }
    }

    /// Notes whose budget the cache saved: depending on `politeness.key`, that of the domain or of the address that the
    /// answer came from.
    pub(crate) fn saves(&mut self, address: Option<IpAddr>) {
        let budget = match (self.settings.config.pacing.key, self.host(), address) {
            (Key::Domain, Some(host), _) => host.domain(),
            (Key::Ip, _, Some(address)) => address.into(),
            _ => return,
        };
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.saved_at = Some(budget);
        }
    }

    /// Notes that curtsy answers with a refusal.
    pub(crate) fn refused(&mut self, status: u16, outcome: RequestOutcome, code: &'static str) {
        self.answered(status, outcome);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.code = Some(code);
            in_flight.entry().into_iter().for_each(|entry| entry.error = Some(code));
        }
    }

    /// Answers with one of curtsy's own pages.
    pub(crate) fn answer_itself(&mut self, response: Response<Body>) -> Response<Body> {
        self.answered(response.status().as_u16(), RequestOutcome::Rejected);
        response
    }

    /// Holds the permit until the request is over.
    pub(crate) fn keep(&mut self, permit: Permit) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.keep(permit);
        }
    }

    /// Hands over what is counted when the request ends; the caller ends it from now on.
    pub(crate) fn take_in_flight(&mut self) -> Option<Box<InFlight>> {
        self.in_flight.take()
    }

    /// Hands the request over to a task of its own.
    pub(crate) fn hand_over(&mut self) -> ClientRequest {
        ClientRequest {
            worker: self.worker.clone(),
            settings: self.settings.clone(),
            client: self.client.clone(),
            user: self.user.take(),
            in_flight: self.in_flight.take(),
        }
    }

    /// Ties the end of the request to the end of its answer.
    pub(crate) fn finish(self, response: Response<Body>) -> Response<Body> {
        match self.in_flight {
            Some(in_flight) => response.map(|body| body.keeping(in_flight)),
            None => response,
        }
    }
}

/// A request from its arrival to its last byte: what is counted and logged when it ends.
///
/// Dropping it settles everything, so no path can forget to: a client that disconnects, an origin that breaks off, a
/// panic. Always boxed, because the value is handed on many times.
#[derive(Debug)]
pub(crate) struct InFlight {
    shared: Arc<Shared>,
    /// When this request is over, its connection waits for the next one.
    client: Arc<Client>,
    idle: Duration,
    head_timeout: Duration,
    kind: RequestKind,
    /// `None` while no answer is known: dropping it then means that the client disconnected.
    outcome: Option<RequestOutcome>,
    complete: bool,
    status: u16,
    bytes: u64,
    /// Bytes that came from the cache, of `bytes`.
    served: u64,
    /// The log entry and when the request began. Only if there is an access log, an event listener or a tally.
    entry: Option<(Box<LogEntry>, Instant)>,
    /// Settled when the request ends.
    permit: Option<Permit>,
    /// The Curtsy-Error code, if curtsy refused the request.
    code: Option<&'static str>,
    /// The number of the client that it is counted for; 0 until its name is known.
    counted_for: AtomicU64,
    host: Option<HostKey>,
    /// The host whose budget the cache saved, if it has another name.
    saved_at: Option<HostKey>,
    /// Distinguishes the answers on one connection.
    number: u64,
    /// Other requests are counted and logged instead of this one.
    replaced: bool,
}

impl InFlight {
    /// Holds the permit until the request is over.
    pub(crate) fn keep(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    pub(crate) fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    pub(crate) fn permit_mut(&mut self) -> Option<&mut Permit> {
        self.permit.as_mut()
    }

    /// Gives the permit back before the request is over.
    pub(crate) fn release(&mut self) {
        self.permit = None;
    }

    pub(crate) fn entry(&mut self) -> Option<&mut LogEntry> {
        self.entry.as_mut().map(|(entry, _)| &mut **entry)
    }

    /// Counts a piece of an origin's answer that is handed on.
    pub(crate) fn passed(&mut self, bytes: usize) {
        self.shared.metrics.transfers.down(bytes as u64);
        self.sent(bytes);
    }

    /// Counts a piece of curtsy's own answer that is handed on.
    pub(crate) fn said(&mut self, bytes: usize) {
        self.shared.metrics.transfers.own(bytes as u64);
        self.sent(bytes);
    }

    /// Counts a piece of a stored answer that is handed on.
    pub(crate) fn served(&mut self, bytes: usize) {
        self.shared.metrics.cache.served_bytes.inc_by(bytes as u64);
        self.served += bytes as u64;
        self.sent(bytes);
    }

    fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.client.is_handed_on(self.number);
    }

    /// Adds the bytes that a tunnel has handed on. The metrics have counted them already.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Notes that the client has taken what it was sent.
    pub(crate) fn taken(&self) {
        self.client.is_taken(self.number);
    }

    /// Publishes the request to event listeners.
    fn tell(&self, entry: &LogEntry, took: Duration) {
        if !self.shared.events.is_watched() {
            return;
        }
        let url = label::without_query(&entry.url);
        let ending = Ending {
            status: self.status,
            bytes: self.bytes,
            took,
            cut_by: self.cut_by(),
            why: self.permit.as_ref().and_then(Permit::account).map(Account::why),
        };
        self.shared.events.tell(REQUEST, self.host.as_ref().map(HostKey::as_str), || entry.told(&url, &ending));
    }

    /// Counts the request in the tally. A request for curtsy itself is not a visit.
    fn count(&self, entry: &LogEntry) {
        let outcome = self.outcome.unwrap_or(RequestOutcome::Abandoned);
        let own = outcome == RequestOutcome::Rejected && entry.error.is_none();
        if own || !self.shared.metrics.tally.is_kept() {
            return;
        }
        if let Some(host) = &self.host {
            self.shared.count_in_tally(host, |row| {
                row.ended(outcome, entry.error);
                row.shared += u64::from(outcome == RequestOutcome::Cached && entry.cache == Some("shared"));
            });
        }
    }

    /// Returns the client that the request is counted for: its address, if it was refused before its name was known.
    fn counted_client(&self) -> ClientId {
        let known = ClientId(self.counted_for.load(Relaxed));
        if known == ClientId(0) { self.meet_address() } else { known }
    }

    fn meet_address(&self) -> ClientId {
        let (id, address) = (self.client.id, self.client.peer.ip());
        let who = ClientIdentity { id, name: None, logs_in: false, address, agent: b"" };
        self.shared.metrics.clients.meet(&who, |_| String::new());
        id
    }

    /// Counts what the cache saved for the host.
    fn count_savings(&self, outcome: RequestOutcome) {
        let requests = u64::from(outcome == RequestOutcome::Cached);
        if let Some(host) = self.saved_at.as_ref().or(self.host.as_ref()).filter(|_| requests > 0 || self.served > 0) {
            self.shared.metrics.saved(host, Saved { requests, bytes: self.served });
        }
    }

    /// Ends a tunnel that curtsy looks into: the requests inside are counted instead.
    #[expect(clippy::boxed_local, reason = "this consumes the value, which every caller has in a box")]
    pub(crate) fn replaced(mut self: Box<Self>) {
        self.replaced = true;
    }

    /// Notes that the origin broke off in the middle of its answer: a failure of the origin, not a client that
    /// disconnected.
    pub(crate) fn truncated(&mut self, broken: Broken) {
        self.outcome = Some(RequestOutcome::Truncated);
        self.shared.metrics.origin_error(match broken {
            Broken::Truncated | Broken::Reset => "truncated",
            Broken::TimedOut => "timeout",
            Broken::Malformed => "protocol",
        });
        if let Some(permit) = &mut self.permit {
            permit.report(visit::VisitOutcome::Truncated, now());
        }
    }

    /// The side that cut short an answer that is not complete.
    fn cut_by(&self) -> Option<CutBy> {
        match (self.complete, self.outcome) {
            (true, _) => None,
            (false, Some(RequestOutcome::Truncated)) => Some(CutBy::Origin),
            (false, _) => Some(CutBy::Client),
        }
    }

    /// Notes that all of the answer was handed on.
    pub(crate) fn completed(&mut self) {
        self.complete = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let (metrics, now) = (&self.shared.metrics, clock::now());
        metrics.inflight.dec();
        self.taken();
        self.client.is_idle(self.idle, self.head_timeout, now);
        if self.replaced {
            return;
        }
        let outcome = self.outcome.unwrap_or(RequestOutcome::Abandoned);
        metrics.request(self.kind, outcome);
        let (host, kind, code, bytes) = (self.host.as_ref(), self.kind, self.code, self.bytes);
        let ending = ClientEnding { host, kind, outcome, code, bytes, now };
        if !metrics.clients.ended(self.counted_client(), &ending) {
            self.client.is_forgotten();
        }
        self.count_savings(outcome);
        if matches!(self.outcome, Some(RequestOutcome::Forwarded | RequestOutcome::Cached)) && !self.complete {
            metrics.disconnect(DisconnectStage::Response);
        }
        if let Some((entry, began)) = self.entry.take() {
            let took = now.duration_since(began);
            self.count(&entry);
            self.shared.access_log.write(&entry, self.status, self.bytes, took, self.cut_by());
            self.tell(&entry, took);
        }
        if let Some(permit) = self.permit.take() {
            permit.leave(at(now));
        }
    }
}
