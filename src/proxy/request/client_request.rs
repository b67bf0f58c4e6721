//! A request of a client while curtsy works on it: the worker and the settings that it began with, the client, and what
//! is counted and logged when it ends. Every step on the path of a request is handed this one value.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Response};

use super::access_log::LogEntry;
use super::in_flight::InFlight;
use super::label::{self, ClientName};
use super::options::{self, Peer};
use crate::config::Key;
use crate::gate::Permit;
use crate::metrics::clients::ClientIdentity;
use crate::metrics::{RequestKind, RequestOutcome};
use crate::politeness::HostKey;
use crate::politeness::visit::ClientId;
use crate::proxy::accept::client::Client;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::Refusal;
use crate::proxy::{Settings, Shared, Worker};
use crate::timeout_stream::Deadline;

pub(crate) struct ClientRequest {
    pub(crate) worker: Arc<Worker>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) client: Arc<Client>,
    /// The name that the client was admitted by: a proxy user, or what the client calls itself.
    pub(crate) user: Option<String>,
    /// The host that it asks for, once that is known.
    pub(crate) host: Option<HostKey>,
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
        let in_flight = InFlight::begin(worker.shared.clone(), client.clone(), &settings.config.limits, kind, entry);
        if let Some(origin) = client.first_asked_inside() {
            worker.shared.untrusting.note_trust(client.peer.ip(), &origin.host);
        }
        ClientRequest { worker, settings, client, user: None, host: None, in_flight: Some(in_flight) }
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

    /// The limit for the client's pauses within its request. A connection with several requests at once has no such
    /// limit.
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
            let agent = headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
            let logs_in = self.settings.users.is_some();
            let who = ClientIdentity { id, name, logs_in, address: self.address(), agent };
            self.shared().metrics.clients.meet(&who, label::program);
        }
        if let Some(in_flight) = &self.in_flight {
            in_flight.is_of(id);
        }
    }

    /// Notes the user that was admitted.
    pub(crate) fn admitted(&mut self, user: Option<String>, headers: &HeaderMap) {
        self.user = user;
        if self.entry().is_some() {
            let user = self.user.clone().filter(|_| self.settings.users.is_some());
            let name = self.name(headers).map(str::to_owned);
            if let Some(entry) = self.entry() {
                (entry.user, entry.name) = (user, name);
            }
        }
    }

    /// Notes the host that the request is for.
    pub(crate) fn asks_for(&mut self, host: &HostKey) {
        self.host = Some(host.clone());
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.asks_for(host);
        }
    }

    /// The log entry, if requests are logged.
    pub(crate) fn entry(&mut self) -> Option<&mut LogEntry> {
        self.in_flight.as_mut()?.entry()
    }

    /// Notes the answer.
    pub(crate) fn answered(&mut self, status: u16, outcome: RequestOutcome) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.answered(status, outcome);
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
        let budget = match (self.settings.config.pacing.key, &self.host, address) {
            (Key::Domain, Some(host), _) => host.domain(),
            (Key::Ip, _, Some(address)) => address.into(),
            _ => return,
        };
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.saves_at(budget);
        }
    }

    /// Notes that curtsy answers with a refusal.
    pub(crate) fn refused(&mut self, status: u16, outcome: RequestOutcome, code: &'static str) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.refused(status, outcome, code);
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
            host: self.host.take(),
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
