//! Asks robots.txt about a request, before the request joins the queue of its host.
//!
//! Decides nothing itself: the record of the origin and its rules do. The paths inside a tunnel are invisible, so for a
//! tunnel only a file that forbids everything counts, and the delay.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::request::Parts;
use serde_json::json;
use tokio::time::timeout;

use crate::clock;
use crate::config::OnUnreachable;
use crate::gate::Label;
use crate::politeness::fault::HostReply;
use crate::politeness::policy::{self, Policy};
use crate::politeness::robots::reply::{RobotsRecordState, Says, TroubleKind};
use crate::politeness::robots::{Agents, Choice, Rule, Rules};
use crate::politeness::visit::{self, ClientId, Purpose, Visit};
use crate::politeness::{Origin, Scheme};
use crate::proxy::answer::failure::{Failure, Forbidden, Refusal};
use crate::proxy::request::client_request::ClientRequest;
use crate::proxy::{Settings, Worker};
use crate::robots::fetch::{self, FetchResult, FetchWay, Leave};
use crate::robots::{NoVerdict, Unknown};
use crate::upstream::{Terms, UpstreamError};

impl Settings {
    /// Returns the names by which robots.txt knows a client.
    pub(crate) fn agents(&self, user_agent: Option<&HeaderValue>) -> Arc<Agents> {
        self.agents.clone().unwrap_or_else(|| agents_of(user_agent))
    }

    /// Whether the rules of robots.txt apply to this method. Methods are compared without case, although they are
    /// case-sensitive (RFC 9110, section 9.1): some origins serve `get` as GET.
    pub(crate) fn applies_robots_to(&self, method: &str) -> bool {
        self.config.robots.apply_to.iter().any(|name| name.eq_ignore_ascii_case(method))
    }

    /// Whether robots.txt does not apply to this client.
    pub(crate) fn is_exempt(&self, user_agent: Option<&HeaderValue>) -> bool {
        let exempt = &self.config.robots.exempt_user_agents;
        !exempt.is_empty()
            && agents_of(user_agent).tokens().any(|token| exempt.iter().any(|name| name.eq_ignore_ascii_case(token)))
    }
}

thread_local! {
    /// The User-Agent of the last request, and its tokens. Most requests come from the client of the one before, and
    /// reading the tokens again would take 3 % of a request.
    static LAST_AGENTS: RefCell<(Box<[u8]>, Arc<Agents>)> = RefCell::default();
}

fn agents_of(user_agent: Option<&HeaderValue>) -> Arc<Agents> {
    let value = user_agent.map_or(&b""[..], HeaderValue::as_bytes);
    LAST_AGENTS.with_borrow_mut(|(last, agents)| {
        if **last != *value {
            let text = user_agent.and_then(|value| value.to_str().ok()).unwrap_or_default();
            (*last, *agents) = (value.into(), Arc::new(Agents::from_user_agent(text)));
        }
        agents.clone()
    })
}

/// What a request that may go on has to know from robots.txt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RobotsVerdict {
    /// The delay that the file asks of this client, within bounds; zero if none.
    pub(crate) crawl_delay: Duration,
    pub(crate) warning: Option<Warning>,
    /// If the request had to wait for the file: what is left of the time that it may wait.
    patience_left: Option<Duration>,
    /// The request may follow the fetch of the file at once.
    follows_fetch: bool,
}

impl RobotsVerdict {
    /// Returns the visit with what was heard.
    pub(crate) fn apply(self, visit: Visit) -> Visit {
        Visit {
            crawl_delay: self.crawl_delay,
            denied: self.warning.is_some(),
            max_wait: self.patience_left.or(visit.max_wait),
            purpose: if self.follows_fetch { Purpose::AfterRobotsFetch } else { Purpose::Page },
            ..visit
        }
    }
}

/// Why a request would have been refused, if robots.txt were enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// By the rule in this line; `None` if the file is too complicated.
    Denied(Option<u32>),
    Unknown,
}

/// What robots.txt is asked about.
#[derive(Clone, Copy)]
pub(crate) enum RobotsSubject<'a> {
    Path(&'a str),
    /// A tunnel: all requests in it are judged as one.
    Everything,
    /// A request that no rule applies to, because of its method. The delay counts all the same.
    Delay,
    /// robots.txt itself: like `Delay`, but the file need not be fetched first.
    RobotsTxt,
}

impl<'a> RobotsSubject<'a> {
    fn page(settings: &Settings, parts: &'a Parts) -> Self {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        match () {
            () if path == "/robots.txt" => RobotsSubject::RobotsTxt,
            () if settings.applies_robots_to(parts.method.as_str()) => RobotsSubject::Path(path),
            () => RobotsSubject::Delay,
        }
    }
}

/// A request, as far as robots.txt is concerned.
#[derive(Clone, Copy)]
pub(crate) struct RobotsQuestion<'a> {
    pub(crate) request: &'a ClientRequest,
    pub(crate) origin: &'a Origin,
    pub(crate) user_agent: Option<&'a HeaderValue>,
    pub(crate) about: RobotsSubject<'a>,
}

impl<'a> RobotsQuestion<'a> {
    /// The question about a request for a page.
    pub(crate) fn about_page(request: &'a ClientRequest, origin: &'a Origin, parts: &'a Parts) -> Self {
        let (user_agent, about) = (parts.headers.get(USER_AGENT), RobotsSubject::page(&request.settings, parts));
        RobotsQuestion { request, origin, user_agent, about }
    }

    /// Asks robots.txt. If the file must be fetched first, the request waits for it as `visit`, shown to people as
    /// `label`.
    pub(crate) async fn ask(self, visit: &Visit, label: impl FnOnce() -> Label) -> Result<RobotsVerdict, Failure> {
        let RobotsQuestion { request: ClientRequest { worker, settings, .. }, origin, user_agent, about } = self;
        let policy = worker.shared.gate.policy(&origin.host);
        if policy.robots == policy::RobotsMode::Off || settings.is_exempt(user_agent) {
            return Ok(RobotsVerdict::default());
        }
        let robots = &worker.shared.robots;
        if let Some((says, is_new)) = robots.at_hand(origin, self.fetching(visit.client)) {
            let heard = match says {
                Ok(says) => self.weigh(&says, &policy)?,
                Err(reason) => Box::pin(self.without_verdict(reason, &policy)).await?,
            };
            return Ok(RobotsVerdict { follows_fetch: is_new && !settings.config.robots.takes_turn, ..heard });
        }
        // Boxed, because it is rare and its space would be part of every request.
        if let RobotsSubject::RobotsTxt = about {
            let record = Box::pin(robots.known(origin)).await;
            let says = record.and_then(|record| record.answer.as_ref().map(|answer| answer.says.clone()));
            return self.weigh(&says.unwrap_or(Says::Nothing), &policy);
        }
        Box::pin(self.wait(visit, label(), &policy)).await
    }

    /// Waits for the file, in the queue of the host.
    async fn wait(self, visit: &Visit, label: Label, policy: &Policy) -> Result<RobotsVerdict, Failure> {
        let RobotsQuestion { request: ClientRequest { worker, settings, .. }, origin, .. } = self;
        let key = settings.config.pacing.key;
        let budget = worker.upstream.budget(settings.terms().of(visit.client), key, &origin.host).await?;
        let place = worker.shared.gate.wait_for_robots(&budget, *visit, label)?;
        let (began, patience) = (clock::now(), policy.max_wait.min(visit.max_wait.unwrap_or(Duration::MAX)));
        let fetch = self.fetching(visit.client);
        // The fetch takes its own time, as opening a connection does, and also waits for its turn.
        let longest = patience.saturating_add(settings.config.robots.fetch_timeout);
        let says = timeout(longest, worker.shared.robots.find_out(origin, fetch)).await;
        let says = says.unwrap_or_else(|_| Err(NoVerdict::Refused(place.too_long())));
        drop(place);
        let heard = match says {
            Ok(says) => self.weigh(&says, policy)?,
            Err(reason) => self.without_verdict(reason, policy).await?,
        };
        let patience_left = Some(patience.saturating_sub(clock::now() - began));
        Ok(RobotsVerdict { patience_left, follows_fetch: !settings.config.robots.takes_turn, ..heard })
    }

    fn weigh(self, says: &Says, policy: &Policy) -> Result<RobotsVerdict, Failure> {
        match says {
            Says::Rules(rules) if !rules.is_empty() => self.weigh_rules(rules, policy),
            Says::Rules(_) | Says::Nothing => Ok(RobotsVerdict::default()),
        }
    }

    async fn without_verdict(self, reason: NoVerdict, policy: &Policy) -> Result<RobotsVerdict, Failure> {
        match reason {
            _ if matches!(self.about, RobotsSubject::Delay | RobotsSubject::RobotsTxt) => Ok(RobotsVerdict::default()),
            NoVerdict::Refused(refusal) => Err(refusal.into()),
            NoVerdict::Unknown(unknown) => self.not_known(unknown, policy).await,
        }
    }

    fn weigh_rules(self, rules: &Rules, policy: &Policy) -> Result<RobotsVerdict, Failure> {
        let RobotsQuestion { request: ClientRequest { worker, settings, .. }, origin, user_agent, about } = self;
        let agents = &settings.agents(user_agent);
        // The rule that denies it, if it is denied.
        let denied = match about {
            RobotsSubject::Path(path) => {
                Some(rules.verdict(agents, path)).filter(|found| !found.allowed).map(|found| found.rule)
            }
            RobotsSubject::Everything => rules.denies_everything(agents).map(Some),
            RobotsSubject::Delay | RobotsSubject::RobotsTxt => None,
        };
        let mut heard = RobotsVerdict::default();
        if let Some(rule) = denied {
            let line = rule.map(|rule| rule.line);
            let text = || rule.map_or_else(|| "(too complicated)".to_owned(), |rule| rule.to_string());
            worker.shared.count_in_tally(&origin.host, |row| row.forbidden_by(line.unwrap_or_default(), text));
            if policy.robots == policy::RobotsMode::Enforce {
                return Err(Refusal::Robots(Box::new(forbidden(origin, rules, agents, rule, about))).into());
            }
            worker.shared.metrics.robots.warned.inc();
            heard.warning = Some(Warning::Denied(line));
        }
        if settings.config.robots.crawl_delay {
            let asked = rules.delay(agents).unwrap_or_default();
            if asked > policy.max_crawl_delay {
                worker.shared.metrics.robots.crawl_delays_capped.inc();
            }
            heard.crawl_delay = asked.min(policy.max_crawl_delay);
        }
        Ok(heard)
    }

    /// Returns the fetch for a request, with the client's share of name look-ups. Copies what it needs only if it runs.
    fn fetching(self, client: ClientId) -> impl FnOnce(Option<Arc<RobotsRecordState>>) -> Fetching + 'a {
        move |previous| {
            let ClientRequest { worker, settings, .. } = self.request;
            let (worker, settings, origin) = (worker.clone(), settings.clone(), self.origin.clone());
            let user_agent = self.user_agent.cloned().unwrap_or(HeaderValue::from_static(OWN_USER_AGENT));
            Box::pin(async move {
                let fetch =
                    RobotsFetch { worker: &worker, settings: &settings, origin: &origin, user_agent: &user_agent };
                fetch.run(settings.terms().of(client), previous.as_deref()).await.map(|seen| seen.record)
            })
        }
    }

    /// An unreachable robots.txt denies (RFC 9309, section 2.3.1.4) unless `on_unreachable = "allow"`.
    async fn not_known(self, unknown: Unknown, policy: &Policy) -> Result<RobotsVerdict, Failure> {
        let RobotsQuestion { request: ClientRequest { worker, settings, .. }, origin, .. } = self;
        // If pages cannot be fetched either, that is the better answer.
        worker.upstream.vet(settings.terms(), origin).await?;
        if let (Scheme::Https, Some(fault)) = (origin.scheme, settings.trust.fault(&origin.host)) {
            return Err(UpstreamError::Certificate(fault).into());
        }
        let denies = settings.config.robots.on_unreachable == OnUnreachable::Deny;
        // A request to a dead host counts as failed when it ends.
        let is_dead = unknown.cause.and_then(HostReply::no_connection).is_some();
        if denies && !is_dead {
            worker.shared.count_in_tally(&origin.host, |row| row.unknown += 1);
        }
        if denies && policy.robots == policy::RobotsMode::Enforce {
            return Err(Refusal::RobotsUnknown { host: origin.host.clone(), unknown }.into());
        }
        worker.shared.metrics.robots.warned.inc();
        Ok(RobotsVerdict { warning: Some(Warning::Unknown), ..RobotsVerdict::default() })
    }
}

fn forbidden(
    origin: &Origin,
    rules: &Rules,
    agents: &Agents,
    rule: Option<Rule<'_>>,
    about: RobotsSubject<'_>,
) -> Forbidden {
    let group = match rules.choice(agents) {
        Choice::Named(name) => name.to_owned(),
        Choice::Everybody | Choice::Nobody => "*".to_owned(),
    };
    Forbidden {
        host: origin.host.clone(),
        rule: rule.map(|rule| (rule.line, rule.to_string())),
        group,
        everything: matches!(about, RobotsSubject::Everything),
    }
}

type Fetching = std::pin::Pin<Box<dyn Future<Output = Result<RobotsRecordState, visit::LaneRefusal>> + Send>>;

/// The User-Agent of fetches for clients that send none.
pub(crate) const OWN_USER_AGENT: &str = concat!("curtsy/", env!("CARGO_PKG_VERSION"));

/// A fetch of robots.txt for a client.
#[derive(Clone, Copy)]
pub(crate) struct RobotsFetch<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) settings: &'a Settings,
    pub(crate) origin: &'a Origin,
    pub(crate) user_agent: &'a HeaderValue,
}

impl RobotsFetch<'_> {
    pub(crate) async fn run(
        self,
        terms: Terms<'_>,
        previous: Option<&RobotsRecordState>,
    ) -> Result<FetchResult, visit::LaneRefusal> {
        let RobotsFetch { worker, settings, origin, user_agent } = self;
        let (gate, config, key) = (&worker.shared.gate, &settings.config.robots, settings.config.pacing.key);
        let way = FetchWay {
            upstream: &worker.upstream,
            terms,
            user_agent,
            timeout: config.fetch_timeout,
            cache_ttl: config.cache_ttl,
            leave: Some(Leave { gate, key }),
        };
        let seen = fetch::fetch(way, origin, previous).await?;
        worker.shared.metrics.robots.fetch(result(&seen));
        tracing::debug!(event = "robots.fetched", %origin, status = seen.status, error = seen.error, "robots.txt fetched");
        worker.shared.events.tell(
        "robots.fetched",
        Some(origin.host.as_str()),
        || json!({ "origin": origin.to_string(), "result": result(&seen), "status": seen.status, "why": seen.error }),
    );
        if let Some(trouble) = seen.record.trouble
            && let Ok(budget) = way.upstream.budget(way.terms, key, &origin.host).await
        {
            match trouble.kind {
                // A host that throttles requests for robots.txt throttles those for pages too.
                TroubleKind::Throttled => gate.hold(&budget, trouble.retry_at),
                TroubleKind::Unreachable => {
                    let denies = config.on_unreachable == OnUnreachable::Deny && seen.record.answer.is_none();
                    if denies && gate.policy(&origin.host).robots == policy::RobotsMode::Enforce {
                        gate.note_refused(&budget, trouble.retry_at);
                    }
                }
            }
        }
        self.tell_of_cap(&seen.record);
        Ok(seen)
    }

    fn tell_of_cap(self, record: &RobotsRecordState) {
        let RobotsFetch { worker, settings, origin, user_agent } = self;
        let Some(Says::Rules(rules)) = record.answer.as_ref().map(|answer| &answer.says) else { return };
        let most = worker.shared.gate.policy(&origin.host).max_crawl_delay;
        let asked = rules.delay(&settings.agents(Some(user_agent))).unwrap_or_default();
        if settings.config.robots.crawl_delay && asked > most {
            tracing::info!(
                event = "robots.delay_capped", %origin, asked_s = asked.as_secs_f64(), most_s = most.as_secs_f64(),
                "robots.txt asks for a longer delay than robots.max_crawl_delay"
            );
        }
    }
}

fn result(seen: &FetchResult) -> &'static str {
    match (seen.status, &seen.error) {
        (Some(200..=299 | 304), None) => "ok",
        (Some(401 | 403 | 451), None) => "forbidden",
        (Some(400..=499), None) => "missing",
        (Some(300..=399), _) => "invalid",
        _ => "unreachable",
    }
}
