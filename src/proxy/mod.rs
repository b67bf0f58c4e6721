//! The proxy itself: accepts client connections, passes requests on and returns the answers.
//!
//! The folders are in the order of a request; docs/life-of-a-request.md follows one through them. Every request ends in
//! the origin's answer or in one of curtsy's own, made in [`answer`] or [`pages`].

/// Takes connections and reads requests from them.
mod accept;
/// Turns what came back, or a failure, into the answer.
mod answer;
/// Answers requests from stored answers.
mod cached;
/// Says what would happen to a request, without sending it.
mod dry_run;
/// Pages that curtsy answers itself.
mod pages;
/// Finds out who asks for what, and leads the request through the steps below.
mod request;
/// Asks robots.txt about the request.
mod robots;
/// Lets requests for the same URL share one answer.
mod sharing;
/// Opens tunnels, looks into them and paces what is inside.
mod tunnel;
/// Waits for the request's turn and sends it.
mod visit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::Response;

use crate::cache::Cache;
use crate::config::{Config, Counts, Key};
use crate::connections::Connections;
use crate::events::Events;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::metrics::tally::TallyRow;
use crate::politeness::HostKey;
use crate::politeness::policy::{CacheMode, LearningPolicy, PolicyBook};
use crate::politeness::retries::RetryPolicy;
use crate::politeness::robots::Agents;
use crate::politeness::signals::{self, SignalFields, SignalPolicy, Signals};
use crate::politeness::time::Timestamp;
use crate::robots::Robots;
use crate::shutdown::{Live, Stop};
use crate::tls::{Leaves, ServerCert};
use crate::upstream::{CURTSY, Guard, Terms, Trust};

use self::cached::Refreshes;
use self::request::page_parts::Browsers;
use self::request::quotas::Quotas;
use self::sharing::flights::Flights;
use self::tunnel::ca_rejections::CaRejections;
use self::tunnel::early_closes::EarlyCloses;
use self::tunnel::notes::{Http2Refusals, Notes};
use self::visit::hints::Hints;

pub use self::accept::worker::Worker;
pub use self::answer::failure::BadRequest;
pub use self::cached::CacheForecast;
pub use self::dry_run::{Asker, DryRun, Inquiry, Prediction, Unenforced, Via};
pub use self::request::access_log::AccessLog;
pub use self::request::headers::Identity;
pub use self::request::target::Target;
pub use self::request::users::{BadUsersFile, Users};
pub use self::tunnel::intercept::NotIntercepted;
pub use self::visit::stopped_clients::StoppedClients;

#[cfg(any(fuzzing, test))]
pub use self::tunnel::fuzzing;

/// What all workers share.
#[derive(Debug)]
pub struct Shared {
    pub settings: ArcSwap<Settings>,
    pub metrics: Arc<Metrics>,
    pub identity: Identity,
    pub access_log: AccessLog,
    pub gate: Arc<Gate>,
    pub robots: Arc<Robots>,
    pub cache: Arc<Cache>,
    pub stops: Arc<StoppedClients>,
    /// Stored answers that are being asked for again.
    refreshes: Refreshes,
    /// Hosts with tunnels whose requests cannot be separated.
    unpaced: Notes,
    /// Clients whose HTTP/2 tunnels were closed.
    http2_refusals: Http2Refusals,
    /// Where it does harm to close tunnels behind answers.
    early_closes: EarlyCloses,
    pub stop: Stop,
    /// Where events are published.
    pub events: Arc<Events>,
    /// Accept loops that are running.
    pub listening: Live,
    /// Clients that do not trust our certificates.
    untrusting: CaRejections,
    /// Open client connections of all workers.
    connections: Arc<Connections>,
    /// Bytes of large request heads that wait, over all connections.
    heavy: AtomicUsize,
    /// Numbers the answers that curtsy makes itself, so that a client's report can be found in the log.
    answers: AtomicU64,
    /// Requests whose client has disconnected and whose answer is still awaited.
    orphans: AtomicUsize,
    /// Clients whose labels say which requests are parts of pages.
    browsers: Browsers,
    /// Requests that share answers.
    flights: Arc<Flights>,
}

/// What [`Shared`] is made of.
#[derive(Debug)]
pub struct SharedParts {
    pub settings: Settings,
    pub metrics: Arc<Metrics>,
    pub identity: Identity,
    pub access_log: AccessLog,
    pub gate: Arc<Gate>,
    pub robots: Arc<Robots>,
    pub cache: Arc<Cache>,
    pub stops: Arc<StoppedClients>,
    pub stop: Stop,
}

/// What may change while curtsy runs; a reload replaces it as a whole. Clones share counters.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: Config,
    pub guard: Guard,
    pub trust: Trust,
    /// The certificates that clients are shown where tunnels are intercepted.
    pub leaves: Option<Arc<Leaves>>,
    /// The proxy's own certificate, where clients speak TLS to it.
    pub own: Option<ServerCert>,
    pub users: Option<Arc<Users>>,
    /// The names by which clients look for their group in robots.txt, if not by their own.
    agents: Option<Arc<Agents>>,
    /// How answers are read, and when a request is sent again.
    listening: SignalPolicy,
    retrying: RetryPolicy,
    /// How fast clients may send requests; `None` if there is no limit.
    quotas: Option<Quotas>,
    /// Whether pages are counted at any host.
    counts_pages: bool,
    /// Whether the cache is on for any host.
    caches: bool,
    /// Which host is treated how; for what lanes do not know.
    policies: Arc<PolicyBook>,
    /// Different for every configuration that was loaded; clones keep it.
    generation: u64,
}

impl Settings {
    /// Without certificates and users, which the caller sets.
    pub fn new(config: Config, guard: Guard, trust: Trust) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let tokens = &config.robots.user_agent;
        let agents = (!tokens.is_empty()).then(|| Agents::from_tokens(tokens.iter().map(String::as_str)).into());
        let adaptive = &config.adaptive;
        let listening = SignalPolicy {
            statuses: adaptive.statuses.clone(),
            suspects: adaptive.suspects.clone(),
            retry_after_max: adaptive.retry_after_max,
            ratelimit_fields: adaptive.ratelimit_fields,
        };
        let retrying = config.retry.clone();
        let quotas = Quotas::new(&config.access, None);
        let generation = GENERATIONS.fetch_add(1, Relaxed);
        let mut counts = config.host.iter().filter_map(|rule| rule.count).chain([config.politeness.count]);
        let mut caches = config.host.iter().filter_map(|rule| rule.cache).chain([config.politeness.cache]);
        let caches = caches.any(|mode| mode != CacheMode::Off);
        let policies = PolicyBook::new(config.politeness, config.host.clone(), LearningPolicy::default());
        let counts_pages = counts.any(|count| count == Counts::Pages);
        Settings {
            config,
            guard,
            trust,
            leaves: None,
            own: None,
            users: None,
            agents,
            listening,
            retrying,
            quotas,
            counts_pages,
            caches,
            policies: Arc::new(policies),
            generation,
        }
    }

    /// Continues the counting of the settings that it replaces, so that a reload grants no client a fresh burst.
    pub fn succeed(&mut self, before: &Settings) {
        self.quotas = Quotas::new(&self.config.access, before.quotas.as_ref());
        self.leaves = self.leaves.take().map(|leaves| match &before.leaves {
            Some(before) => leaves.following(before),
            None => leaves,
        });
        self.own = self.own.take().map(|own| match &before.own {
            Some(before) => own.following(before),
            None => own,
        });
    }

    /// Forgets clients that send no more requests.
    pub fn sweep(&self) {
        if let Some(quotas) = &self.quotas {
            quotas.sweep();
        }
    }

    /// Returns what an answer says about pacing. Most answers have no field that has to be read for it.
    fn signals<T>(&self, response: &Response<T>, heard: Timestamp) -> Signals {
        let mut fields = SignalFields::default();
        if response.headers().keys().any(|name| SignalFields::may_tell(name.as_str())) {
            fields = SignalFields::of(response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        }
        signals::read(response.status().as_u16(), &fields, &self.listening, heard)
    }

    fn terms(&self) -> Terms<'_> {
        Terms {
            config: &self.config.upstream,
            guard: &self.guard,
            trust: &self.trust,
            head_size: self.config.limits.head_size,
            generation: self.generation,
            http2: self.config.upstream.http2,
            client: CURTSY,
            only: None,
        }
    }
}

impl Shared {
    pub fn new(parts: SharedParts) -> Self {
        let SharedParts { settings, metrics, identity, access_log, gate, robots, cache, stops, stop } = parts;
        let hints = Hints::new(gate.events().clone(), stop.clone());
        gate.on_leaving(move |leaving| hints.tell(leaving));
        Shared {
            settings: ArcSwap::from_pointee(settings),
            flights: Flights::new(cache.clone(), metrics.clone()),
            metrics,
            identity,
            access_log,
            robots,
            cache,
            stops,
            refreshes: Refreshes::default(),
            unpaced: Notes::default(),
            http2_refusals: Http2Refusals::default(),
            early_closes: EarlyCloses::default(),
            stop,
            events: gate.events().clone(),
            gate,
            listening: Live::default(),
            untrusting: CaRejections::default(),
            connections: Arc::default(),
            heavy: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
            orphans: AtomicUsize::new(0),
            browsers: Browsers::default(),
        }
    }

    /// For the proxy of `curtsy exec`: counts requests for its summary, and never intercepts a client again that has
    /// rejected a certificate.
    pub fn serve_one_command(&self) {
        self.metrics.tally.begin();
        self.untrusting.serve_one_command();
    }

    /// Counts a request in the summary of `curtsy exec`. With `politeness.key = "domain"` the gate counts visits in
    /// the row of the domain, so this counts there too.
    fn count_in_tally(&self, host: &HostKey, count: impl FnOnce(&mut TallyRow)) {
        if self.metrics.tally.is_kept() {
            self.metrics.tally.count(tally_row(self.settings.load().config.pacing.key, host).as_str(), count);
        }
    }

    /// Counts an answer that says "too fast".
    fn count_throttled(&self, budget: &HostKey, status: u16) {
        self.metrics.lessons.throttle(status);
        self.metrics.tally.count(budget.as_str(), |row| row.throttled += 1);
    }

    /// The number of open client connections.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }
}

fn tally_row(key: Key, host: &HostKey) -> HostKey {
    match key {
        Key::Domain => host.domain(),
        Key::Host | Key::Ip => host.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_of_a_domain_share_a_row_if_they_share_a_budget() {
        let host = HostKey::parse("www.example.com").unwrap();
        assert_eq!(tally_row(Key::Domain, &host).as_str(), "example.com");
        assert_eq!(tally_row(Key::Host, &host).as_str(), "www.example.com");
    }
}
