//! The rules by which a crawl is judged: what arrived goes in, a share from 0 to 1 with its evidence comes out. Pure.
//!
//! A rule that the client never met returns `None` and counts neither way. docs/judge.md explains each rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::web::{CRAWL_DELAY, MOVED, MOVED_TO, Manner, SyntheticWeb, TRAP_RULES};
use crate::politeness::robots::{Agents, Rules};

/// One request, and what was answered.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// The number of the host.
    pub host: usize,
    pub path: String,
    /// When the request arrived, since the web began.
    pub at: Duration,
    /// When it was answered, or when the client disconnected. `None` while it is in flight.
    pub done: Option<Duration>,
    pub status: u16,
    pub user_agent: String,
    /// Whether it has a From field.
    pub has_from: bool,
    /// Whether it has If-None-Match or If-Modified-Since.
    pub conditional: bool,
    pub wait: Option<AskedWait>,
}

/// A wait that an answer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedWait {
    RetryAfter(Duration),
    /// 429 without a time.
    Unexplained,
    /// The quota is used up until then.
    Quota(Duration),
}

/// The gap between two requests to a host that asks for nothing. The W3C's advice for crawlers is at least one second.
const USUAL_GAP: Duration = Duration::from_secs(1);
/// The least wait after a 429 that names no time.
const LEAST_BACKOFF: Duration = Duration::from_secs(1);
/// A client with several open requests may have sent the next one before it saw the answer to this one.
const ON_ITS_WAY: Duration = Duration::from_millis(20);
/// This much too early is not held against a client: its clock and ours differ.
const TOLERANCE: Duration = Duration::from_millis(50);
/// Requests in flight at a slow host: full points, and half.
const FEW: usize = 2;
const SEVERAL: usize = 4;
/// Pages of programs, which say nothing about who runs them.
const PROGRAM_PAGES: [&str; 3] = ["//scrapy.org", "//github.com/kurtmckee/feedparser", "//linkchecker.github.io"];
/// Share of the points for a User-Agent without a contact.
const WITHOUT_CONTACT: f64 = 0.4;

/// Everything that a rule may look at. Arrivals are in the order of their times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crawl<'c> {
    pub(super) web: &'c SyntheticWeb,
    pub(super) arrivals: &'c [Arrival],
}

/// How well a rule was kept, from 0 to 1, and the evidence for it.
pub(super) type Kept = Option<(f64, String)>;

#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedRule {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) points: u32,
    pub(super) source: &'static str,
    pub(super) judge: fn(Crawl<'_>) -> Kept,
}

const fn rule(
    id: &'static str,
    title: &'static str,
    points: u32,
    source: &'static str,
    judge: fn(Crawl<'_>) -> Kept,
) -> JudgedRule {
    JudgedRule { id, title, points, source, judge }
}

/// The points add up to 100.
#[rustfmt::skip]
pub(super) const RULES: [JudgedRule; 11] = [
    rule("robots-first", "asks for robots.txt first", 10, "RFC 9309 §2.3", robots_first),
    rule("robots-rules", "obeys robots.txt", 20, "RFC 9309 §2.2", robots_rules),
    rule("crawl-delay", "keeps Crawl-delay", 10, "robots.txt extension", crawl_delay),
    rule("pace", "leaves a second between requests", 10, "W3C Wiki: Write Web Crawler", pace),
    rule("concurrency", "does not pile up requests on a slow host", 10, "RFC 9112 §9.4; crawler best practices draft", concurrency),
    rule("retry-after", "waits for Retry-After (429, 503)", 15, "RFC 9110 §10.2.3; RFC 6585 §4", retry_after),
    rule("backoff", "backs off after a 429 without a time", 8, "RFC 6585 §4; crawler best practices draft", backoff),
    rule("quota", "keeps to RateLimit fields", 5, "draft-ietf-httpapi-ratelimit-headers", quota),
    rule("revalidation", "asks conditionally the second time", 5, "RFC 9111 §4.3; RFC 9110 §13.1", revalidation),
    rule("refusals", "takes a challenge or 402 for an answer", 4, "crawler best practices draft; RFC 9110 §15.5", refusals),
    rule("identity", "says what it is and how to reach its operator", 3, "RFC 9110 §10.1.5; crawler best practices draft", identity),
];

impl<'c> Crawl<'c> {
    fn at(self, host: usize) -> impl Iterator<Item = &'c Arrival> {
        self.arrivals.iter().filter(move |arrival| arrival.host == host)
    }

    /// The requests to a host except those for robots.txt, which may come right before a page.
    fn pages(self, host: usize) -> impl Iterator<Item = &'c Arrival> {
        self.at(host).filter(|arrival| !arrival.is_robots())
    }

    fn hosts(self) -> std::ops::Range<usize> {
        0..self.web.hosts.len()
    }

    fn with_manner(self, manner: Manner) -> impl Iterator<Item = usize> {
        self.hosts().filter(move |host| self.web.hosts[*host].manner == manner)
    }

    /// When the first request came that the client sent after this answer.
    fn next_after(self, host: usize, answered: Duration) -> Option<Duration> {
        let open = self.at(host).filter(|other| other.at <= answered && other.answered() >= answered).count();
        let from = if open > 1 { answered + ON_ITS_WAY } else { answered };
        self.at(host).map(|arrival| arrival.at).find(|at| *at > from)
    }

    /// "news.test: 14 requests in 1.2 s, shortest gap 0.0 s".
    fn speed(self, host: usize) -> String {
        let (name, count) = (self.web.name(host), self.pages(host).count());
        let gaps = gaps(self.pages(host));
        let shortest = seconds(gaps.iter().min().copied().unwrap_or_default());
        format!("{name}: {count} requests in {}, shortest gap {shortest}", seconds(gaps.iter().sum()))
    }
}

impl Arrival {
    pub(super) fn is_robots(&self) -> bool {
        self.path == "/robots.txt"
    }

    /// When the client knew the answer.
    fn answered(&self) -> Duration {
        self.done.unwrap_or(Duration::MAX)
    }
}

fn robots_first(crawl: Crawl<'_>) -> Kept {
    let visited: Vec<usize> = crawl.hosts().filter(|host| crawl.pages(*host).next().is_some()).collect();
    let first = |host: usize| crawl.at(host).next();
    let late: Vec<usize> =
        visited.iter().copied().filter(|host| first(*host).is_some_and(|arrival| !arrival.is_robots())).collect();
    let told = match late.first() {
        None => format!("asked before the first page at all {} hosts", visited.len()),
        Some(host) => {
            let path = first(*host).map_or("", |arrival| &arrival.path);
            format!("not asked first at {} of {} hosts: {}{path}", late.len(), visited.len(), crawl.web.name(*host))
        }
    };
    share(visited.len() - late.len(), visited.len()).map(|kept| (kept, told))
}

/// Each kind of rule counts once, however often it was broken. A redirect into a disallowed path is a kind of its own.
fn robots_rules(crawl: Crawl<'_>) -> Kept {
    let (mut broken, mut requests, mut example) = (BTreeSet::new(), 0, None);
    for host in crawl.hosts() {
        let Some(text) = crawl.web.robots(host) else { continue };
        let rules = Rules::parse(text.as_bytes());
        for arrival in crawl.pages(host) {
            let verdict = rules.verdict(&Agents::from_user_agent(&arrival.user_agent), &arrival.path);
            if let Some(rule) = verdict.rule.filter(|_| !verdict.allowed) {
                requests += 1;
                broken.insert(if arrival.path == MOVED_TO { "redirect".to_owned() } else { rule.to_string() });
                example.get_or_insert_with(|| format!("{}{} ({rule})", crawl.web.name(host), arrival.path));
            }
        }
    }
    let pages: BTreeSet<&str> = crawl.pages(0).map(|arrival| arrival.path.as_str()).collect();
    let followed = pages.len() > 1 || !broken.is_empty();
    let redirected = crawl.arrivals.iter().any(|arrival| arrival.path == MOVED);
    let met = if followed { TRAP_RULES } else { 0 } + usize::from(redirected);
    let told = match example {
        None => format!("followed no link to a disallowed page ({met} kinds of rules)"),
        Some(example) => format!("{requests} requests to disallowed pages, such as {example}"),
    };
    share(met.saturating_sub(broken.len()), met).map(|kept| (kept, told))
}

fn crawl_delay(crawl: Crawl<'_>) -> Kept {
    let asked = Duration::from_secs(CRAWL_DELAY);
    let host = crawl.with_manner(Manner::CrawlDelay).find(|host| crawl.pages(*host).count() > 1)?;
    let gaps = gaps(crawl.pages(host));
    let kept = gaps.iter().filter(|gap| **gap + TOLERANCE >= asked).count();
    let told = format!("{}, asked for 1 per {CRAWL_DELAY} s", crawl.speed(host));
    share(kept, gaps.len()).map(|share| (share, told))
}

/// Half the usual gap is worth half the points.
fn pace(crawl: Crawl<'_>) -> Kept {
    let hosts: Vec<usize> = crawl.with_manner(Manner::Plain).filter(|host| crawl.pages(*host).count() > 1).collect();
    let all: Vec<Duration> = hosts.iter().flat_map(|host| gaps(crawl.pages(*host))).collect();
    let worth = |gap: &Duration| match *gap + TOLERANCE >= USUAL_GAP {
        true => 1.0,
        false => gap.as_secs_f64() / USUAL_GAP.as_secs_f64(),
    };
    let kept = all.iter().map(worth).sum::<f64>() / all.len().max(1) as f64;
    let fastest = hosts.into_iter().max_by_key(|host| crawl.pages(*host).count())?;
    Some((kept, format!("{}, usual is 1 per second", crawl.speed(fastest))))
}

fn concurrency(crawl: Crawl<'_>) -> Kept {
    let host = crawl.with_manner(Manner::Slow).find(|host| crawl.pages(*host).count() > 1)?;
    let open =
        |moment: Duration| crawl.pages(host).filter(|other| other.at <= moment && moment < other.answered()).count();
    let most = crawl.pages(host).map(|arrival| open(arrival.at)).max().unwrap_or(0);
    let kept = match most {
        _ if most <= FEW => 1.0,
        _ if most <= SEVERAL => 0.5,
        _ => 0.0,
    };
    Some((kept, format!("{}: {most} at the same time", crawl.web.name(host))))
}

fn retry_after(crawl: Crawl<'_>) -> Kept {
    waits(crawl, |wait| if let AskedWait::RetryAfter(time) = wait { Some(time) } else { None })
}

fn backoff(crawl: Crawl<'_>) -> Kept {
    waits(crawl, |wait| (wait == AskedWait::Unexplained).then_some(LEAST_BACKOFF))
}

fn quota(crawl: Crawl<'_>) -> Kept {
    waits(crawl, |wait| if let AskedWait::Quota(time) = wait { Some(time) } else { None })
}

/// Returns the share of waits that were kept: the next request to the host came when the time was over. A wait that no
/// request followed does not count: the client may have had nothing left to ask for.
fn waits(crawl: Crawl<'_>, asked: impl Fn(AskedWait) -> Option<Duration>) -> Kept {
    let (mut told, mut kept, mut worst) = (0, 0, None::<(Duration, String)>);
    for arrival in crawl.arrivals {
        let Some((time, answered)) = arrival.wait.and_then(&asked).zip(arrival.done) else { continue };
        let Some(next) = crawl.next_after(arrival.host, answered) else { continue };
        told += 1;
        let after = next - answered;
        if after + TOLERANCE >= time {
            kept += 1;
        } else if worst.as_ref().is_none_or(|(least, _)| after < *least) {
            let name = crawl.web.name(arrival.host);
            worst = Some((after, format!("{name}: came back after {}, asked for {}", seconds(after), seconds(time))));
        }
    }
    let text = match worst {
        None => format!("kept {kept} of {told} waits"),
        Some((_, text)) => format!("kept {kept} of {told} waits; {text}"),
    };
    share(kept, told).map(|share| (share, text))
}

/// Only pages with validators count. A page that is still fresh need not be fetched at all, but asking conditionally is
/// cheap for the host.
fn revalidation(crawl: Crawl<'_>) -> Kept {
    let (mut seen, mut again, mut conditional, mut example) = (BTreeSet::new(), 0, 0, None);
    for host in crawl.with_manner(Manner::Feed) {
        for arrival in crawl.pages(host).filter(|arrival| matches!(arrival.status, 200 | 304)) {
            if seen.insert(&arrival.path) {
                continue;
            }
            again += 1;
            conditional += usize::from(arrival.conditional);
            if !arrival.conditional {
                example.get_or_insert_with(|| format!(": {}{}", crawl.web.name(host), arrival.path));
            }
        }
    }
    let told = format!("{conditional} of {again} repeated fetches were conditional{}", example.unwrap_or_default());
    share(conditional, again).map(|kept| (kept, told))
}

/// A URL that was refused for good must not be fetched again.
fn refusals(crawl: Crawl<'_>) -> Kept {
    let mut asked: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for host in crawl.with_manner(Manner::Challenge).chain(crawl.with_manner(Manner::Paid)) {
        for arrival in crawl.pages(host).filter(|arrival| matches!(arrival.status, 402 | 403)) {
            *asked.entry((host, &arrival.path)).or_default() += 1;
        }
    }
    let accepted = asked.values().filter(|times| **times == 1).count();
    let told = match asked.iter().max_by_key(|(_, times)| **times) {
        Some(((host, path), times)) if *times > 1 => {
            format!("{}{path}: asked {times} times, although it was refused", crawl.web.name(*host))
        }
        _ => format!("{} refused pages, none asked for again", asked.len()),
    };
    share(accepted, asked.len()).map(|kept| (kept, told))
}

fn identity(crawl: Crawl<'_>) -> Kept {
    // The User-Agent of most pages counts: robots.txt may be fetched by another part of the client.
    let mut agents: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for arrival in crawl.arrivals.iter().filter(|arrival| !arrival.is_robots()) {
        let seen = agents.entry(&arrival.user_agent).or_default();
        *seen = (seen.0 + 1, arrival.has_from);
    }
    let (agent, (_, has_from)) = agents.into_iter().max_by_key(|(_, (count, _))| *count)?;
    let names_program = PROGRAM_PAGES.iter().any(|page| agent.contains(page));
    let has_contact = has_from || agent.contains('@') || (agent.contains("://") && !names_program);
    Some(match (agent.is_empty(), has_contact) {
        (_, true) => (1.0, format!("{agent:?} says how to reach its operator")),
        (false, false) => (WITHOUT_CONTACT, format!("{agent:?} does not say how to reach its operator")),
        (true, false) => (0.0, "no User-Agent".to_owned()),
    })
}

fn gaps<'a>(arrivals: impl Iterator<Item = &'a Arrival>) -> Vec<Duration> {
    let times: Vec<Duration> = arrivals.map(|arrival| arrival.at).collect();
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
}

/// `None` if there was nothing to keep.
fn share(kept: usize, of: usize) -> Option<f64> {
    (of > 0).then(|| kept as f64 / of as f64)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
