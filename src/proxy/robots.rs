//! What robots.txt says about a request: asked before it joins the line of its host.
//!
//! Decides nothing itself: the record of the origin and its rules do. In a tunnel the paths are invisible, so there only
//! a file that forbids everything counts, and the delay.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::request::Parts;
use serde_json::json;

use super::failure::{Failure, Refusal};
use super::{Settings, Worker};
use crate::config::OnUnreachable;
use crate::politeness::policy::{self, Policy};
use crate::politeness::robots::reply::{Record, Says, TroubleKind};
use crate::politeness::robots::{Agents, Choice, Rule, Rules};
use crate::politeness::{HostKey, Origin, Scheme};
use crate::robots::Unknown;
use crate::robots::fetch::{self, Leave, Seen, Way};
use crate::upstream::UpstreamError;

/// What a request that may go on has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// What the file asks of this client, within bounds; zero if nothing.
    pub(super) crawl_delay: Duration,
    pub(super) warning: Option<Warning>,
}

/// Why a request would not have gone on, if robots.txt were enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warning {
    /// By the rule in this line.
    Denied(u32),
    Unknown,
}

/// The rule that forbids a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forbidden {
    pub(super) host: HostKey,
    pub(super) line: u32,
    /// As it stands in the file, in canonical spelling.
    pub(super) rule: String,
    /// Whom the group is for.
    pub(super) group: String,
    /// The request is a tunnel.
    pub(super) everything: bool,
}

/// What is asked about.
#[derive(Clone, Copy)]
enum About<'a> {
    Path(&'a str),
    Everything,
}

/// Asks about a request for a page.
pub(super) async fn ask(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    origin: &Origin,
    parts: &Parts,
) -> Result<Heard, Failure> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let concerned = settings.config.robots.apply_to.iter().any(|method| method == parts.method.as_str());
    if !concerned || path == "/robots.txt" {
        return Ok(Heard::default());
    }
    look(worker, settings, origin, parts, About::Path(path)).await
}

/// Asks about a tunnel. What comes through port 80 is taken for plain HTTP, the rest for HTTPS.
pub(super) async fn ask_about_tunnel(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    host: &HostKey,
    port: u16,
    parts: &Parts,
) -> Result<Heard, Failure> {
    let origin = Origin::of_tunnel(host.clone(), port);
    look(worker, settings, &origin, parts, About::Everything).await
}

async fn look(
    worker: &Arc<Worker>,
    settings: &Arc<Settings>,
    origin: &Origin,
    parts: &Parts,
    about: About<'_>,
) -> Result<Heard, Failure> {
    let policy = worker.shared.gate.policy(&origin.host);
    if policy.robots == policy::Robots::Off {
        return Ok(Heard::default());
    }
    let user_agent = parts.headers.get(USER_AGENT);
    if settings.is_exempt(user_agent) {
        return Ok(Heard::default());
    }
    let fetch = fetching(worker, settings, origin, user_agent);
    match worker.shared.robots.says(origin, fetch).await {
        Ok(Says::Nothing) => Ok(Heard::default()),
        Ok(Says::Rules(rules)) => weigh(worker, origin, &rules, &settings.agents(user_agent), about, &policy, settings),
        Err(unknown) => {
            // Where no page could be had either, that is the better answer.
            Box::pin(worker.upstream.vet(settings.terms(), origin)).await?;
            if let (Scheme::Https, Some(fault)) = (origin.scheme, settings.trust.fault(&origin.host)) {
                return Err(UpstreamError::Certificate(fault).into());
            }
            not_known(worker, settings, origin, unknown, &policy)
        }
    }
}

fn weigh(
    worker: &Worker,
    origin: &Origin,
    rules: &Rules,
    agents: &Agents,
    about: About<'_>,
    policy: &Policy,
    settings: &Settings,
) -> Result<Heard, Failure> {
    let forbidding = match about {
        About::Path(path) => rules.verdict(agents, path).rule.filter(|rule| !rule.allow),
        About::Everything => rules.denies_everything(agents),
    };
    let mut heard = Heard::default();
    if let Some(rule) = forbidding {
        let tally = &worker.shared.metrics.tally;
        tally.count(origin.host.as_str(), |row| row.forbidden_by(rule.line, || rule.to_string()));
        if policy.robots == policy::Robots::Enforce {
            return Err(Refusal::Robots(Box::new(forbidden(origin, rules, agents, rule, about))).into());
        }
        worker.shared.metrics.robots.warned.inc();
        heard.warning = Some(Warning::Denied(rule.line));
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

fn forbidden(origin: &Origin, rules: &Rules, agents: &Agents, rule: Rule<'_>, about: About<'_>) -> Forbidden {
    let group = match rules.choice(agents) {
        Choice::Named(name) => name.to_owned(),
        Choice::Everybody | Choice::Nobody => "*".to_owned(),
    };
    Forbidden {
        host: origin.host.clone(),
        line: rule.line,
        rule: rule.to_string(),
        group,
        everything: matches!(about, About::Everything),
    }
}

/// Not to know is no leave (RFC 9309, section 2.3.1.4), unless the operator takes it upon himself.
fn not_known(
    worker: &Worker,
    settings: &Settings,
    origin: &Origin,
    unknown: Unknown,
    policy: &Policy,
) -> Result<Heard, Failure> {
    let enforced = policy.robots == policy::Robots::Enforce;
    if settings.config.robots.on_unreachable == OnUnreachable::Deny {
        worker.shared.metrics.tally.count(origin.host.as_str(), |row| row.unknown += 1);
    }
    if enforced && settings.config.robots.on_unreachable == OnUnreachable::Deny {
        return Err(Refusal::RobotsUnknown { host: origin.host.clone(), unknown }.into());
    }
    worker.shared.metrics.robots.warned.inc();
    Ok(Heard { warning: Some(Warning::Unknown), ..Heard::default() })
}

/// The fetch for a request. What it needs is copied only if it is needed.
fn fetching<'a>(
    worker: &'a Arc<Worker>,
    settings: &'a Arc<Settings>,
    origin: &'a Origin,
    user_agent: Option<&'a HeaderValue>,
) -> impl FnOnce(Option<Arc<Record>>) -> Fetching + 'a {
    move |previous| {
        let (worker, settings, origin) = (worker.clone(), settings.clone(), origin.clone());
        let user_agent = user_agent.cloned().unwrap_or(HeaderValue::from_static(OWN_USER_AGENT));
        Box::pin(async move { fetch(&worker, &settings, &origin, &user_agent, previous.as_deref()).await.record })
    }
}

type Fetching = std::pin::Pin<Box<dyn Future<Output = Record> + Send>>;

/// For clients that have no name.
pub(super) const OWN_USER_AGENT: &str = concat!("curtsy/", env!("CARGO_PKG_VERSION"));

pub(super) async fn fetch(
    worker: &Worker,
    settings: &Settings,
    origin: &Origin,
    user_agent: &HeaderValue,
    previous: Option<&Record>,
) -> Seen {
    let (gate, config, key) = (&worker.shared.gate, &settings.config.robots, settings.config.politeness.key);
    let way = Way {
        upstream: &worker.upstream,
        terms: settings.terms(),
        user_agent,
        timeout: config.fetch_timeout,
        cache_ttl: config.cache_ttl,
        leave: Some(Leave { gate, key, takes_turn: config.takes_turn }),
    };
    let seen = fetch::fetch(way, origin, previous).await;
    worker.shared.metrics.robots.fetch(result(&seen));
    tracing::debug!(event = "robots.fetched", %origin, status = seen.status, error = seen.error, "robots.txt fetched");
    worker.shared.events.tell(
        "robots.fetched",
        Some(origin.host.as_str()),
        || json!({ "origin": origin.to_string(), "result": result(&seen), "status": seen.status, "why": seen.error }),
    );
    let throttled = seen.record.trouble.filter(|trouble| trouble.kind == TroubleKind::Throttled);
    if let (Some(trouble), Ok(budget)) = (throttled, way.upstream.budget(way.terms, key, &origin.host).await) {
        // Who is too fast for robots.txt is too fast for the pages.
        gate.hold(&budget, trouble.retry_at);
    }
    tell_of_cap(worker, settings, origin, user_agent, &seen.record);
    seen
}

fn result(seen: &Seen) -> &'static str {
    match (seen.status, &seen.error) {
        (Some(200..=299 | 304), None) => "ok",
        (Some(401 | 403 | 451), None) => "forbidden",
        (Some(400..=499), None) => "missing",
        (Some(300..=399), _) => "invalid",
        _ => "unreachable",
    }
}

fn tell_of_cap(worker: &Worker, settings: &Settings, origin: &Origin, user_agent: &HeaderValue, record: &Record) {
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
