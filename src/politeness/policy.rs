//! The settings of one host, and the book that assigns them to hosts.
//!
//! Promises: the effective delay is the largest of the configured delay, the delay that robots.txt asks for and the
//! learned delay, so nothing from outside makes curtsy faster than configured. In the book the first matching rule wins
//! and replaces only what it names. This module does not know the configuration file: `config` reads the file into
//! these types and defines how they are written.

use core::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::breaker::Tolerance;
use super::pace::{Learner, Learning};
use super::retries::RetryPolicy;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    /// Every visit starts at once. What pacing would have done is only reported.
    Report,
    Off,
}

impl Mode {
    pub fn word(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Report => "report",
            Mode::Off => "off",
        }
    }
}

/// Which client of a lane goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Round robin between clients.
    Fair,
    /// First come, first served, across all clients.
    Fifo,
}

/// What takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Every request.
    Requests,
    /// Every page. The parts of a page ride on its turn ([`rides`](super::rides)).
    Pages,
}

impl Counts {
    pub fn word(self) -> &'static str {
        match self {
            Counts::Requests => "requests",
            Counts::Pages => "pages",
        }
    }
}

/// How robots.txt is applied to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsMode {
    Enforce,
    /// A request that robots.txt forbids is sent and reported.
    Warn,
    /// robots.txt is not fetched.
    Off,
}

/// Whether answers of a host are stored and used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// Nothing is stored, served or shared.
    Off,
    /// By the rules of a shared cache ([`reuse`](super::reuse)).
    Shared,
}

/// How one host is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    pub mode: Mode,
    pub order: Order,
    pub count: Counts,
    /// The most parts that ride on one turn, if pages are counted.
    pub page_parts: u32,
    /// Time between two starts. Zero turns spacing off; holds and concurrency still apply.
    pub delay: Duration,
    /// Starts allowed at once after a quiet time; 0 is read as 1.
    pub burst: u32,
    /// Largest number of visits in flight; 0 is read as 1.
    pub concurrency: u32,
    /// The largest fraction of the delay that is added at random.
    pub jitter: f64,
    /// The delay is at least this many times the last response time.
    pub delay_factor: f64,
    pub max_wait: Duration,
    pub max_queue: usize,
    /// How the pace is learned.
    pub learner: Learner,
    pub robots: RobotsMode,
    /// The longest delay that robots.txt may ask for.
    pub max_crawl_delay: Duration,
    pub cache: CacheMode,
    /// While the host must be left alone: how long past its lifetime a stored answer is still given.
    pub stale: Duration,
    /// A stored URL is asked for no sooner than this.
    pub min_refresh: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            mode: Mode::Enforce,
            order: Order::Fair,
            count: Counts::Requests,
            page_parts: 100,
            delay: Duration::from_secs(1),
            burst: 1,
            concurrency: 4,
            jitter: 0.0,
            delay_factor: 0.0,
            max_wait: Duration::from_secs(150),
            max_queue: 1000,
            learner: Learner::Auto,
            robots: RobotsMode::Enforce,
            max_crawl_delay: Duration::from_secs(60),
            cache: CacheMode::Shared,
            stale: Duration::from_secs(3600),
            min_refresh: Duration::ZERO,
        }
    }
}

#[cfg(test)]
impl Policy {
    pub fn steps() -> Self {
        Policy { learner: Learner::Steps, ..Policy::default() }
    }
}

/// What the operator sets for one host while curtsy runs. A given value replaces the one of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub delay: Option<Duration>,
    pub burst: Option<u32>,
    pub concurrency: Option<u32>,
}

impl Overrides {
    pub fn over(&self, policy: &Policy) -> Policy {
        Policy {
            delay: self.delay.unwrap_or(policy.delay),
            burst: self.burst.unwrap_or(policy.burst),
            concurrency: self.concurrency.unwrap_or(policy.concurrency),
            ..*policy
        }
    }
}

/// The parts of a host's delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    pub configured: Duration,
    /// What robots.txt asks for; zero if it asks for nothing.
    pub robots: Duration,
    /// The learned delay; zero if none.
    pub learned: Duration,
    /// `delay_factor` times the last response time.
    pub response: Duration,
}

impl Delays {
    pub fn effective(&self) -> Duration {
        self.configured.max(self.robots).max(self.learned).max(self.response)
    }

    /// Names the largest part in one word.
    pub fn why(&self) -> &'static str {
        let effective = self.effective();
        if effective == self.learned && !effective.is_zero() {
            "learned"
        } else if effective == self.robots && effective > self.configured {
            "robots"
        } else if effective == self.response && effective > self.configured {
            "response-time"
        } else {
            "configured"
        }
    }

    /// Whether only the configured delay counts: robots.txt asks for nothing, nothing is learned, and the response time
    /// asks for no more. Only then does a burst count.
    pub fn only_configured(&self) -> bool {
        self.robots.is_zero() && self.learned.is_zero() && self.response <= self.configured
    }
}

impl Policy {
    /// The delay that follows from a slow answer.
    pub fn response_delay(&self, response_time: Duration) -> Duration {
        let seconds = response_time.as_secs_f64() * self.delay_factor;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO).min(LONGEST_RESPONSE_DELAY)
    }
}

/// Heritrix's `maxDelayMs`: one stuck answer must not close a host for an hour.
const LONGEST_RESPONSE_DELAY: Duration = Duration::from_secs(30);

/// Settings for learning, which are the same for every host, except for [`Policy::learner`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearningPolicy {
    pub learning: Learning,
    pub tolerance: Tolerance,
    pub retrying: RetryPolicy,
}

/// Which host gets which policy. There are few policies and many hosts, so hosts share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyBook {
    pub schooling: LearningPolicy,
    general: Arc<Policy>,
    /// The patterns of each rule, and the policy for hosts that match: the rule applied to the general policy.
    rules: Vec<(Vec<HostPattern>, Arc<Policy>)>,
}

/// A rule for hosts that match: a `[[host]]` of the configuration. A given value replaces the general one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostRule {
    pub patterns: Vec<HostPattern>,
    pub mode: Option<Mode>,
    pub count: Option<Counts>,
    pub page_parts: Option<u32>,
    pub delay: Option<Duration>,
    pub burst: Option<u32>,
    pub concurrency: Option<u32>,
    pub jitter: Option<f64>,
    pub delay_factor: Option<f64>,
    pub max_wait: Option<Duration>,
    pub max_queue: Option<usize>,
    pub learner: Option<Learner>,
    pub robots: Option<RobotsMode>,
    pub max_crawl_delay: Option<Duration>,
    pub cache: Option<CacheMode>,
    pub stale: Option<Duration>,
    pub min_refresh: Option<Duration>,
    /// A note of the operator. It has no effect.
    pub note: String,
}

/// The hosts that a rule applies to. Names are lower-case and have no trailing dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    Any,
    Name(String),
    /// Every name below this one, but not the name itself.
    Below(String),
    /// Hosts that are IP literals in this network.
    Net(IpNet),
}

impl PolicyBook {
    pub fn new(general: Policy, rules: Vec<HostRule>, schooling: LearningPolicy) -> Self {
        let rules = rules.into_iter().map(|rule| (Arc::new(rule.over(&general)), rule.patterns));
        PolicyBook {
            schooling,
            rules: rules.map(|(policy, patterns)| (patterns, policy)).collect(),
            general: Arc::new(general),
        }
    }

    /// `host` is lower-case without a trailing dot; an IP literal comes without brackets.
    pub fn policy(&self, host: &str) -> &Arc<Policy> {
        let meant = |patterns: &[HostPattern]| patterns.iter().any(|pattern| pattern.matches(host));
        self.rules.iter().find(|(patterns, _)| meant(patterns)).map_or(&self.general, |(_, policy)| policy)
    }

    /// The policy of hosts that match no rule.
    pub fn general(&self) -> &Arc<Policy> {
        &self.general
    }

    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }
}

/// A book with one policy for every host.
impl From<Policy> for PolicyBook {
    fn from(policy: Policy) -> Self {
        PolicyBook::new(policy, Vec::new(), LearningPolicy::default())
    }
}

impl HostRule {
    fn over(&self, general: &Policy) -> Policy {
        Policy {
            mode: self.mode.unwrap_or(general.mode),
            order: general.order,
            count: self.count.unwrap_or(general.count),
            page_parts: self.page_parts.unwrap_or(general.page_parts),
            delay: self.delay.unwrap_or(general.delay),
            burst: self.burst.unwrap_or(general.burst),
            concurrency: self.concurrency.unwrap_or(general.concurrency),
            jitter: self.jitter.unwrap_or(general.jitter),
            delay_factor: self.delay_factor.unwrap_or(general.delay_factor),
            max_wait: self.max_wait.unwrap_or(general.max_wait),
            max_queue: self.max_queue.unwrap_or(general.max_queue),
            learner: self.learner.unwrap_or(general.learner),
            robots: self.robots.unwrap_or(general.robots),
            max_crawl_delay: self.max_crawl_delay.unwrap_or(general.max_crawl_delay),
            cache: self.cache.unwrap_or(general.cache),
            stale: self.stale.unwrap_or(general.stale),
            min_refresh: self.min_refresh.unwrap_or(general.min_refresh),
        }
    }
}

impl HostPattern {
    /// Whether the pattern matches `host`, which must be lower-case without a trailing dot; an IP literal without
    /// brackets.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Name(name) => name == host,
            HostPattern::Below(suffix) => host
                .strip_suffix(suffix.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            HostPattern::Net(net) => host.parse::<IpAddr>().is_ok_and(|ip| net.contains(&ip)),
        }
    }

    /// Whether every host that `other` matches is matched by this pattern too.
    pub fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (HostPattern::Any, _) => true,
            (HostPattern::Name(name), HostPattern::Name(other)) => name == other,
            (HostPattern::Below(_), HostPattern::Name(name)) => self.matches(name),
            (HostPattern::Below(suffix), HostPattern::Below(other)) => suffix == other || self.matches(other),
            (HostPattern::Net(net), HostPattern::Net(other)) => net.contains(other),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_largest_delay_counts() {
        let delays = Delays { configured: secs(2), robots: secs(1), learned: secs(5), response: secs(3) };
        assert_eq!(delays.effective(), secs(5));
        assert_eq!(Delays { learned: secs(0), ..delays }.effective(), secs(3));
        assert_eq!(Delays { configured: secs(9), ..delays }.effective(), secs(9));
    }

    #[test]
    fn the_largest_part_is_the_reason() {
        let delays = |configured, robots, learned, response| Delays {
            configured: secs(configured),
            robots: secs(robots),
            learned: secs(learned),
            response: secs(response),
        };
        assert_eq!(delays(1, 0, 0, 0).why(), "configured");
        assert_eq!(delays(1, 5, 0, 0).why(), "robots");
        assert_eq!(delays(1, 5, 5, 0).why(), "learned");
        assert_eq!(delays(1, 1, 0, 3).why(), "response-time");
        assert_eq!(delays(0, 0, 0, 0).why(), "configured");
    }

    #[test]
    fn a_burst_counts_only_with_the_configured_delay() {
        let calm = Delays { configured: secs(1), ..Delays::default() };
        assert!(calm.only_configured());
        assert!(!Delays { robots: Duration::from_millis(1), ..calm }.only_configured());
        assert!(!Delays { learned: Duration::from_millis(1), ..calm }.only_configured());
        assert!(!Delays { response: secs(2), ..calm }.only_configured());
        assert!(Delays { response: secs(1), ..calm }.only_configured());
    }

    #[test]
    fn a_slow_answer_lengthens_the_delay_within_bounds() {
        let policy = Policy { delay_factor: 2.0, ..Policy::default() };
        assert_eq!(policy.response_delay(Duration::from_millis(700)), Duration::from_millis(1_400));
        assert_eq!(policy.response_delay(secs(600)), secs(30));
        assert_eq!(Policy::default().response_delay(secs(600)), Duration::ZERO);
        let nonsense = Policy { delay_factor: -1.0, ..Policy::default() };
        assert_eq!(nonsense.response_delay(secs(1)), Duration::ZERO);
    }

    #[test]
    fn per_host_override_beats_global() {
        let slow = HostRule {
            patterns: vec![HostPattern::Name("a.org".into())],
            delay: Some(secs(9)),
            learner: Some(Learner::Auto),
            ..HostRule::default()
        };
        let general = Policy { burst: 3, ..Policy::default() };
        let book = PolicyBook::new(general, vec![slow], LearningPolicy::default());
        let policy = book.policy("a.org");
        assert_eq!((policy.delay, policy.burst, policy.learner), (secs(9), 3, Learner::Auto));
        assert_eq!(**book.policy("b.org"), general);
    }

    #[test]
    fn the_first_matching_rule_wins_whole() {
        let rule = |pattern: HostPattern, delay: u64, burst: Option<u32>| HostRule {
            patterns: vec![pattern],
            delay: Some(secs(delay)),
            burst,
            ..HostRule::default()
        };
        let rules = vec![
            rule(HostPattern::Below("a.org".into()), 2, None),
            rule(HostPattern::Net("10.0.0.0/8".parse().unwrap()), 3, None),
            rule(HostPattern::Any, 4, Some(7)),
        ];
        let book = PolicyBook::new(Policy::default(), rules, LearningPolicy::default());
        let of = |host: &str| (book.policy(host).delay, book.policy(host).burst);
        assert_eq!(of("x.a.org"), (secs(2), 1));
        assert_eq!(of("a.org"), (secs(4), 7));
        assert_eq!(of("xa.org"), (secs(4), 7));
        assert_eq!(of(".a.org"), (secs(4), 7));
        assert_eq!(of("10.1.2.3"), (secs(3), 1));
        assert_eq!(of("11.1.2.3"), (secs(4), 7));
    }
}
