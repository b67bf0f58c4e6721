//! Predicts what would happen to a request that came now: its destination, robots.txt, the queue of its host.
//!
//! Makes the checks of a request, in the same order and with the same parts, but takes no place in any queue. It uses
//! the robots.txt that is known, or can be fetched within the given time; a fetch goes on after that, for the next
//! question.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::config::OnUnreachable;
use crate::gate::now;
use crate::metrics::RequestOutcome;
use crate::politeness::lane::{Expectation, Objection};
use crate::politeness::policy;
use crate::politeness::visit::{Purpose, Visit};
use crate::politeness::{HostKey, Scheme};
use crate::proxy::Settings;
use crate::proxy::answer::failure::{Failure, Refusal};
use crate::proxy::cached::{self, CacheForecast, ForecastRequest};
use crate::proxy::dry_run::DryRun;
use crate::proxy::request::label::ClientName;
use crate::proxy::request::options::{self, Peer};
use crate::proxy::tunnel::intercept::{self, NotIntercepted};
use crate::proxy::visit::job::Job;
use crate::robots::{LOST, Question, Report, ReportMode, ReportVerdict, Unknown};
use crate::upstream::{Denied, UpstreamError};

/// How a request reaches curtsy, which decides what curtsy sees of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// With its whole URL in the request line, `https://` included: curtsy sees everything.
    Plain,
    /// Inside a CONNECT tunnel that passes through unread: curtsy sees the host only.
    Tunnel,
    /// Inside a tunnel that curtsy decrypts: curtsy sees everything.
    Intercepted,
}

/// The request to predict.
#[derive(Clone, Debug)]
pub struct Inquiry {
    pub question: Question,
    pub method: Arc<str>,
    /// `None` stands for the way that a usual client takes.
    pub via: Option<Via>,
    pub client: Asker,
}

/// The client whose request is predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub address: IpAddr,
    /// A proxy user, or what the client calls itself.
    pub name: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Prediction {
    pub via: Via,
    /// The host whose budget the request is taken from; `None` if that is not known.
    pub host: Option<HostKey>,
    /// What robots.txt says; `None` if that is not known in time, or does not matter.
    pub report: Option<Report>,
    /// Whether robots.txt matters for this request.
    pub asks_robots: bool,
    /// Why the request is served although robots.txt says no.
    pub unenforced: Option<Unenforced>,
    pub expected: Option<Expectation>,
    /// Why the request would not be passed on, as a `Curtsy-Error` code.
    pub refusal: Option<&'static str>,
    /// The detail of a refusal that is not about the rules of robots.txt and not about the queue.
    pub trouble: Option<String>,
    /// Whether the request would be served, whenever its turn comes; `None` if that is not known.
    pub allowed: Option<bool>,
    /// What the cache would do; `None` if the request is hidden in a tunnel.
    pub cache: Option<CacheForecast>,
}

/// Why curtsy does not act on a rule that forbids the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unenforced {
    /// A tunnel hides the path. `None` if the question asked for a tunnel that would be intercepted.
    Tunnel(Option<NotIntercepted>),
    /// `robots = "warn"` for this host.
    Warns,
    /// `robots.exempt_user_agents` lists the client.
    Exempt,
    /// `robots.apply_to` does not list the method.
    Method,
}

/// What robots.txt decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decides {
    /// The URL.
    Path,
    /// The tunnel as a whole.
    Everything,
    /// Only the delay.
    Delay,
}

impl Via {
    pub fn word(self) -> &'static str {
        match self {
            Via::Plain => "plain",
            Via::Tunnel => "tunnel",
            Via::Intercepted => "intercepted",
        }
    }

    pub fn parse(word: &str) -> Option<Via> {
        [Via::Plain, Via::Tunnel, Via::Intercepted].into_iter().find(|via| via.word() == word)
    }
}

impl DryRun {
    pub async fn foresee(&self, inquiry: &Inquiry, patience: Duration) -> Prediction {
        let settings = self.worker.shared.settings.load_full();
        let Inquiry { question, client, .. } = inquiry;
        let (via, tunnelled) = self.way_of(&settings, inquiry);
        let nothing = Prediction::nothing(via);
        if let Err(refusal) = self.check_before_robots(&settings, question, client, via) {
            return nothing.failed(&refusal.into());
        }
        match timeout(patience, Box::pin(self.worker.upstream.vet(settings.terms(), &question.origin))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return nothing.failed(&error.into()),
            Err(_) => return nothing,
        }
        let asks_robots = self.worker.shared.gate.policy(&question.origin.host).robots != policy::RobotsMode::Off;
        let decides = match via {
            Via::Tunnel => Decides::Everything,
            Via::Plain | Via::Intercepted if settings.applies_robots_to(&inquiry.method) => Decides::Path,
            Via::Plain | Via::Intercepted => Decides::Delay,
        };
        let report = if asks_robots { timeout(patience, self.ask(question)).await.ok() } else { None };
        let host = timeout(patience, self.budget(&question.origin.host)).await.ok().flatten();
        let expected = host.as_ref().map(|host| {
            let visit = self.visit_of(&settings, inquiry, via, report.as_ref());
            self.worker.shared.gate.foresee(host, &visit)
        });
        let denies_unknown = settings.config.robots.on_unreachable == OnUnreachable::Deny;
        let ruling = report.as_ref().map_or(Ruled::Served, |report| ruling(report, decides, denies_unknown));
        let unenforced = report.as_ref().filter(|_| ruling == Ruled::Served);
        let unenforced = unenforced.and_then(|report| unenforced_by(report, decides, tunnelled));
        let by_lane = expected.and_then(|expected| refused_by_lane(&expected));
        let (refusal, allowed) = match (ruling, &report) {
            (Ruled::Denied, _) => (Some("robots-denied"), Some(false)),
            (_, None) if asks_robots && decides != Decides::Delay => (by_lane, None),
            _ => (by_lane, Some(true)),
        };
        let cache = match via {
            Via::Tunnel => None,
            Via::Plain | Via::Intercepted => timeout(patience, self.cached(&settings, inquiry)).await.ok(),
        };
        // An answer from the cache waits for nothing.
        let answered = allowed == Some(true) && cache.is_some_and(|cache| cache.answers());
        let refusal = refusal.filter(|_| !answered);
        let told = Prediction { host, report, asks_robots, unenforced, expected, refusal, allowed, cache, ..nothing };
        if ruling == Ruled::Unknown { told.failed(&self.without_robots(&settings, question)) } else { told }
    }

    async fn cached(&self, settings: &Settings, inquiry: &Inquiry) -> CacheForecast {
        let Inquiry { question, client, method, .. } = inquiry;
        let who = ClientName { name: client.name.as_deref(), address: client.address };
        let request = ForecastRequest {
            origin: &question.origin,
            path: &question.path,
            method,
            user_agent: question.user_agent.as_ref(),
            partition: &cached::partition_of(settings, who),
        };
        cached::forecast(&self.worker.shared, settings, &request).await
    }

    /// Returns the failure of a request whose robots.txt cannot be fetched.
    fn without_robots(&self, settings: &Settings, question: &Question) -> Failure {
        let origin = &question.origin;
        if let (Scheme::Https, Some(fault)) = (origin.scheme, settings.trust.fault(&origin.host)) {
            return UpstreamError::Certificate(fault).into();
        }
        let trouble = self.worker.shared.robots.record(origin).and_then(|record| record.trouble);
        let unknown = trouble.map_or(LOST, |trouble| Unknown::new(&trouble, now()));
        Refusal::RobotsUnknown { host: origin.host.clone(), unknown }.into()
    }

    /// Returns which way the request would take, and if that is a tunnel, why curtsy does not look into it.
    fn way_of(&self, settings: &Settings, inquiry: &Inquiry) -> (Via, Option<NotIntercepted>) {
        let Inquiry { question, client, via, .. } = inquiry;
        let shown = intercept::certificates(settings, &self.worker.shared, client.address, &question.origin.host);
        let usual = match (question.origin.scheme, &shown) {
            (Scheme::Http, _) => Via::Plain,
            (Scheme::Https, Ok(_)) => Via::Intercepted,
            (Scheme::Https, Err(_)) => Via::Tunnel,
        };
        (via.unwrap_or(usual), shown.err())
    }

    /// Checks what does not depend on the host: that the client is not stopped, and that the port is for tunnels.
    fn check_before_robots(
        &self,
        settings: &Settings,
        question: &Question,
        client: &Asker,
        via: Via,
    ) -> Result<(), Refusal> {
        let (port, ports) = (question.origin.port, settings.config.access.connect_ports.as_ref());
        if via != Via::Plain && ports.is_some_and(|ports| !ports.contains(&port)) {
            return Err(Refusal::Destination(Denied::ConnectPort(port)));
        }
        let Some(name) = client.name.as_deref() else { return Ok(()) };
        Job::begin(&self.worker.shared, settings, (name, client.address), &question.origin.host).map(drop)
    }

    /// Returns the visit that the request would be.
    fn visit_of(&self, settings: &Settings, inquiry: &Inquiry, via: Via, report: Option<&Report>) -> Visit {
        let (Inquiry { question, client, .. }, gate) = (inquiry, &self.worker.shared.gate);
        let peer = Peer::new(settings, gate.client(client.address.to_canonical()));
        let record = self.worker.shared.robots.record(&question.origin);
        let follows =
            report.is_some() && !settings.config.robots.takes_turn && record.is_some_and(|record| record.is_new(now()));
        // A CONNECT has no path.
        let path = if via == Via::Tunnel { "/" } else { &question.path };
        Visit {
            origin: gate.origin(&question.origin),
            peer: peer.id,
            crawl_delay: Duration::from_millis(report.map_or(0, |report| report.delay.obeyed_ms)),
            purpose: if follows { Purpose::AfterRobotsFetch } else { Purpose::Page },
            ..Visit::new(peer.named(gate, client.name.as_deref()), options::digest(path))
        }
    }
}

impl Prediction {
    /// Nothing is known.
    fn nothing(via: Via) -> Prediction {
        let (host, report, expected, unenforced, asks_robots) = (None, None, None, None, false);
        let (refusal, trouble, allowed, cache) = (None, None, None, None);
        Prediction { via, host, report, asks_robots, unenforced, expected, refusal, trouble, allowed, cache }
    }

    /// The request would fail like this. Whether it is allowed is not known, unless the operator's rules forbid it.
    fn failed(self, failure: &Failure) -> Prediction {
        let words = failure.words();
        let allowed = (words.outcome == RequestOutcome::Denied && words.code != "robots-unreachable").then_some(false);
        Prediction { refusal: Some(words.code), trouble: Some(words.detail), allowed, ..self }
    }
}

/// What robots.txt means for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ruled {
    Served,
    Denied,
    /// The file cannot be fetched, which denies.
    Unknown,
}

fn ruling(report: &Report, decides: Decides, denies_unknown: bool) -> Ruled {
    let enforced = report.mode == ReportMode::Enforce && !report.exempt;
    let denied = match decides {
        Decides::Path => report.verdict == ReportVerdict::Denied,
        Decides::Everything => report.everything_denied,
        Decides::Delay => false,
    };
    let unknown = report.verdict == ReportVerdict::Unknown && denies_unknown && decides != Decides::Delay;
    match () {
        () if enforced && denied => Ruled::Denied,
        () if enforced && unknown => Ruled::Unknown,
        () => Ruled::Served,
    }
}

/// Returns why a request is served that the rules forbid.
fn unenforced_by(report: &Report, decides: Decides, tunnelled: Option<NotIntercepted>) -> Option<Unenforced> {
    if report.verdict != ReportVerdict::Denied {
        return None;
    }
    Some(match (report.mode, decides) {
        _ if report.exempt => Unenforced::Exempt,
        (ReportMode::Warn, _) => Unenforced::Warns,
        (_, Decides::Everything) => Unenforced::Tunnel(tunnelled),
        _ => Unenforced::Method,
    })
}

fn refused_by_lane(expected: &Expectation) -> Option<&'static str> {
    Some(match expected.objection? {
        Objection::Paused | Objection::Held => "host-cooling",
        Objection::Broken => "breaker-open",
        Objection::Full => "queue-full",
        Objection::TooLong => "wait-too-long",
        Objection::Draining => "shutting-down",
    })
}
