//! The table of keys: every key of the file once, with its kind and its place in [`Config`].
//!
//! Reading, the names of variables, suggestions, `config show`, the schema and the reload log all use this table. A new
//! key needs one row here, one field in `config.rs` (or in the core's `Policy`), its default, and one line in
//! `config.toml`, whose comment is the key's description. Settings are shown in the order of the rows.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value as Json;

use super::kinds::{
    ChoiceKind, Flag, Given, KeyKind, List, OrNone, PerTime, Read, Size, SpanKind, Text, count, list, number, or_none,
    span, text,
};
use super::raw::Raw;
use super::redis_url::RedisUrl;
use super::texts;
use super::units;
use super::values::QuotaRate;
use super::{
    CacheMode, Config, Counts, HostPattern, HostRule, Http2Tunnels, Key as Paced, LogFormat, Mode, OnUnreachable,
    OnUntrusted, Order, Partition, Profile, QueryStrings, ResponseHeaders, RobotsMode,
};
use crate::politeness::pace::Learner;

/// One row: a key of the settings `C`, which are a [`Config`] or a [`HostRule`].
pub(super) struct KeyRow<C: 'static> {
    /// "upstream.keep_alive"; in a `[[host]]` rule "delay".
    pub(super) path: &'static str,
    pub(super) needs_restart: bool,
    field: Box<dyn Field<C>>,
}

/// All keys outside `[[host]]`.
pub(super) static KEYS: LazyLock<Vec<KeyRow<Config>>> = LazyLock::new(keys);

/// The keys of a `[[host]]` rule.
pub(super) static RULE_KEYS: LazyLock<Vec<KeyRow<HostRule>>> = LazyLock::new(rule_keys);

pub(super) const RULES: &str = "host";

pub(super) fn find(path: &str) -> Option<&'static KeyRow<Config>> {
    KEYS.iter().find(|row| row.path == path)
}

/// Returns the section of a key: "upstream" for "upstream.keep_alive", "" for "listen".
pub(super) fn section_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(section, _)| section)
}

pub(super) fn name_of(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Returns every section that has keys, in the order of the table. The first is "", the top of the file.
pub(super) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = KEYS.iter().map(|row| section_of(row.path)).collect();
    sections.dedup();
    sections
}

pub(super) fn names_in(section: &str) -> Vec<&'static str> {
    KEYS.iter().filter(|row| section_of(row.path) == section).map(|row| name_of(row.path)).collect()
}

/// The operations of a row that do not depend on the type of its value.
trait Field<C>: Send + Sync {
    fn set(&self, settings: &mut C, raw: &Raw<'_>) -> Read<()>;
    fn get(&self, settings: &C) -> Option<Json>;
    fn same(&self, a: &C, b: &C) -> bool;
    fn schema(&self) -> Json;
    fn may_hide(&self) -> bool;
    fn hides(&self, settings: &C) -> bool;
}

struct Typed<C, K: KeyKind> {
    kind: K,
    of: fn(&C) -> &K::Value,
    of_mut: fn(&mut C) -> &mut K::Value,
}

impl<C: 'static, K: KeyKind> Field<C> for Typed<C, K> {
    fn set(&self, settings: &mut C, raw: &Raw<'_>) -> Read<()> {
        *(self.of_mut)(settings) = self.kind.read(raw)?;
        Ok(())
    }

    fn get(&self, settings: &C) -> Option<Json> {
        self.kind.write((self.of)(settings))
    }

    fn same(&self, a: &C, b: &C) -> bool {
        (self.of)(a) == (self.of)(b)
    }

    fn schema(&self) -> Json {
        self.kind.schema()
    }

    fn may_hide(&self) -> bool {
        self.kind.may_hide()
    }

    fn hides(&self, settings: &C) -> bool {
        self.kind.hides((self.of)(settings))
    }
}

impl<C> KeyRow<C> {
    fn new<K: KeyKind>(
        path: &'static str,
        kind: K,
        of: fn(&C) -> &K::Value,
        of_mut: fn(&mut C) -> &mut K::Value,
    ) -> Self {
        KeyRow { path, needs_restart: false, field: Box::new(Typed { kind, of, of_mut }) }
    }

    /// Reads the value into its field, or returns everything that is wrong with it and changes nothing.
    pub(super) fn set(&self, settings: &mut C, raw: &Raw<'_>) -> Read<()> {
        self.field.set(settings, raw)
    }

    /// Returns the value as it is written in the file, without secrets; `None` if another key writes it or it is not
    /// set.
    pub(super) fn get(&self, settings: &C) -> Option<Json> {
        self.field.get(settings)
    }

    pub(super) fn same(&self, a: &C, b: &C) -> bool {
        self.field.same(a, b)
    }

    pub(super) fn schema(&self) -> Json {
        self.field.schema()
    }

    /// Whether the text of this key must not be shown.
    pub(super) fn may_hide(&self) -> bool {
        self.field.may_hide()
    }

    /// Whether this key is set to a secret.
    pub(super) fn hides(&self, settings: &C) -> bool {
        self.field.hides(settings)
    }
}

/// Marks a key that takes effect only after a restart.
fn restart<C>(row: KeyRow<C>) -> KeyRow<C> {
    KeyRow { needs_restart: true, ..row }
}

/// `row!(upstream.keep_alive, kind)` is the row of the key "upstream.keep_alive", stored in the field of that name.
/// `row!("upstream.other", upstream.keep_alive, kind)` is a key that is stored in a field of another name.
macro_rules! row {
    ($path:literal, $first:ident $(. $rest:ident)*, $kind:expr) => {
        KeyRow::new($path, $kind, |c| &c.$first $(.$rest)*, |c| &mut c.$first $(.$rest)*)
    };
    ($first:ident $(. $rest:ident)*, $kind:expr) => {
        KeyRow::new(
            concat!(stringify!($first) $(, ".", stringify!($rest))*),
            $kind,
            |c| &c.$first $(.$rest)*,
            |c| &mut c.$first $(.$rest)*,
        )
    };
}

const MODES: ChoiceKind<Mode> = ChoiceKind(&[("enforce", Mode::Enforce), ("report", Mode::Report), ("off", Mode::Off)]);
const COUNTS: ChoiceKind<Counts> = ChoiceKind(&[("requests", Counts::Requests), ("pages", Counts::Pages)]);
const ROBOTS_MODES: ChoiceKind<RobotsMode> =
    ChoiceKind(&[("enforce", RobotsMode::Enforce), ("warn", RobotsMode::Warn), ("off", RobotsMode::Off)]);
const LEARNERS: ChoiceKind<Learner> =
    ChoiceKind(&[("steps", Learner::Steps), ("auto", Learner::Auto), ("off", Learner::Off)]);
const CACHE_MODES: ChoiceKind<CacheMode> = ChoiceKind(&[("shared", CacheMode::Shared), ("off", CacheMode::Off)]);
const PROFILES: ChoiceKind<Profile> = ChoiceKind(&[
    ("conservative", Profile::Conservative),
    ("standard", Profile::Standard),
    ("aggressive", Profile::Aggressive),
]);

fn keys() -> Vec<KeyRow<Config>> {
    [general(), pacing(), learning(), robots(), cache(), tls(), connections(), people()].into_iter().flatten().collect()
}

fn general() -> Vec<KeyRow<Config>> {
    let listen = list(text(texts::listen, ToString::to_string)).never_empty("name at least one address");
    vec![
        restart(row!(listen, listen)),
        restart(row!(admin, or_none("off", text(texts::address, ToString::to_string)))),
        restart(row!(state_dir, text(texts::state_dir, ToString::to_string))),
        restart(row!(name, or_none("auto", text(texts::name, Clone::clone)))),
        restart(row!(workers, count(0, 1024))),
        row!(watch, Flag),
        row!(shutdown_grace, span(ZERO, HOUR)),
    ]
}

fn pacing() -> Vec<KeyRow<Config>> {
    vec![
        row!(politeness.mode, MODES),
        row!(
            "politeness.key",
            pacing.key,
            ChoiceKind(&[("host", Paced::Host), ("domain", Paced::Domain), ("ip", Paced::Ip)])
        ),
        row!("politeness.profile", pacing.profile, or_none("none", PROFILES)),
        row!(politeness.delay, delay()),
        row!("politeness.rate", politeness.delay, rate()),
        row!(politeness.count, COUNTS),
        row!(politeness.page_parts, count(1, 1000)),
        row!(politeness.burst, count(1, 1000)),
        row!(politeness.concurrency, count(1, 1000)),
        row!(politeness.jitter, number(0.0, 10.0)),
        row!(politeness.delay_factor, number(0.0, 100.0)),
        row!(politeness.max_wait, span(ZERO, DAY)),
        row!(politeness.max_queue, count(0, 1_000_000)),
        row!("politeness.max_queue_total", pacing.max_queue_total, count(0, 1_000_000)),
        row!(politeness.order, ChoiceKind(&[("fair", Order::Fair), ("fifo", Order::Fifo)])),
        row!(hosts.max, count(1, 10_000_000)),
        row!(hosts.idle, span(SECOND, YEAR)),
        row!(hosts.sweep, span(SECOND, DAY)),
        restart(row!(state.hosts, count(100, 10_000_000))),
        restart(row!(state.robots, Size(MEBI..=1024 * MEBI))),
    ]
}

fn learning() -> Vec<KeyRow<Config>> {
    vec![
        row!("adaptive.policy", politeness.learner, LEARNERS),
        row!(adaptive.step_up, span(MILLISECOND, HOUR)),
        row!(adaptive.step_down, span(MILLISECOND, HOUR)),
        row!(adaptive.successes, count(1, 1_000_000)),
        row!(adaptive.max_delay, span(MILLISECOND, DAY)),
        row!(adaptive.statuses, list(count(400, 999))),
        row!(adaptive.suspects, list(count(400, 999))),
        row!(adaptive.concurrency_step, span(MILLISECOND, DAY)),
        row!(adaptive.retry_after_max, span(ZERO, YEAR)),
        row!(adaptive.ratelimit_fields, Flag),
        row!(adaptive.remember, span(ZERO, YEAR)),
        row!(retry.max, count(0, 20)),
        row!(retry.statuses, list(count(400, 999))),
        row!(retry.budget, number(0.0, 1.0)),
        row!(breaker.failures, count(0, 1_000_000)),
        row!(breaker.cooldown, span(MILLISECOND, DAY)),
        row!(breaker.throttled, count(0, 1_000_000)),
        row!(breaker.job_failures, count(0, 1_000_000)),
    ]
}

fn robots() -> Vec<KeyRow<Config>> {
    let token = || text(texts::token, Clone::clone);
    vec![
        row!("robots.mode", politeness.robots, ROBOTS_MODES),
        row!(robots.user_agent, list(token()).or_word("auto")),
        row!(robots.crawl_delay, Flag),
        row!("robots.max_crawl_delay", politeness.max_crawl_delay, span(ZERO, DAY)),
        row!(robots.cache_ttl, span(TEN_MINUTES, DAY)),
        row!(robots.cache_size, Size(MEBI..=1024 * MEBI)),
        row!(robots.fetch_timeout, timeout()),
        row!(robots.on_unreachable, ChoiceKind(&[("deny", OnUnreachable::Deny), ("allow", OnUnreachable::Allow)])),
        row!(robots.takes_turn, Flag),
        row!(robots.apply_to, list(token())),
        row!(robots.exempt_user_agents, list(token())),
    ]
}

fn cache() -> Vec<KeyRow<Config>> {
    let partitions = &[("shared", Partition::Shared), ("client", Partition::Client)];
    vec![
        row!("cache.mode", politeness.cache, CACHE_MODES),
        restart(row!(cache.memory, Size(MEBI..=1024 * 1024 * MEBI))),
        restart(row!(cache.disk, Size(0..=1024 * 1024 * MEBI))),
        restart(row!(cache.dir, or_none("auto", text(texts::file_path, |path| texts::write_path(path))))),
        row!(cache.max_object, Size(KIBI..=1024 * 1024 * MEBI)),
        row!(cache.collapse, Flag),
        row!("cache.stale", politeness.stale, span(ZERO, YEAR)),
        row!("cache.min_refresh", politeness.min_refresh, span(ZERO, YEAR)),
        row!(cache.heuristic, number(0.0, 1.0)),
        row!(cache.partition, ChoiceKind(partitions)),
        row!(cache.unkeyed, list(text(texts::field_name, Clone::clone))),
    ]
}

fn tls() -> Vec<KeyRow<Config>> {
    let untrusted = &[("error", OnUntrusted::Error), ("tunnel", OnUntrusted::Tunnel)];
    let file = || text(texts::file_path, |path| texts::write_path(path));
    vec![
        row!(tls.intercept, Flag),
        row!(tls.only, host_patterns()),
        row!(tls.bypass, host_patterns()),
        row!(tls.on_untrusted, ChoiceKind(untrusted)),
        row!(tls.http2_clients, Flag),
        restart(row!(tls.listen, list(text(texts::listen, ToString::to_string)))),
        row!(tls.listen_cert, or_none("", file())),
        row!(tls.listen_key, or_none("", file())),
        row!(tls.extra_roots, list(file())),
        row!(tls.min_version, text(texts::tls_version, Clone::clone)),
        row!(tls.ca_cert, or_none("", file())),
        row!(tls.ca_key, or_none("", file())),
        row!(tls.tunnel.pace_requests, Flag),
        row!(tls.tunnel.http2, ChoiceKind(&[("allow", Http2Tunnels::Allow), ("refuse", Http2Tunnels::Refuse)])),
        row!(tls.tunnel.max_lifetime, span(SECOND, DAY)),
    ]
}

fn connections() -> Vec<KeyRow<Config>> {
    let parent = text(texts::parent_proxy, texts::write_parent_proxy).secret(|proxy| proxy.credentials.is_some());
    let users_file = text(texts::file_path, |path| texts::write_path(path));
    let networks = list(text(texts::network, texts::write_network)).never_empty("no client could use the proxy");
    vec![
        row!(upstream.connect_timeout, timeout()),
        row!(upstream.dns_timeout, timeout()),
        row!(upstream.response_timeout, timeout()),
        row!(upstream.idle_timeout, timeout()),
        row!(upstream.keep_alive, span(ZERO, HOUR)),
        row!(upstream.pool_per_host, count(0, 1024)),
        row!(upstream.http2, Flag),
        row!(upstream.proxy, or_none("", parent)),
        row!(upstream.bind, or_none("", text(texts::ip, ToString::to_string))),
        row!(upstream.resolver, text(texts::resolver, ToString::to_string)),
        row!(upstream.via, Flag),
        row!(access.allow, networks),
        row!(access.users_file, or_none("", users_file)),
        row!(access.allow_destinations, list(text(texts::destination, ToString::to_string))),
        row!(access.connect_ports, or_none("*", list(count(1, u16::MAX)))),
        row!(access.max_client_connections, count(1, 1_000_000)),
        row!(access.admin_hosts, list(text(texts::admin_host, ToString::to_string))),
        row!(access.client_rate, quota()),
        row!(access.total_rate, quota()),
        row!(limits.head_size, Size(LEAST_HEAD..=LARGEST_HEAD)),
        row!(limits.head_timeout, timeout()),
        row!(limits.client_idle, timeout()),
        row!(limits.client_stall, timeout()),
    ]
}

fn people() -> Vec<KeyRow<Config>> {
    let headers =
        &[("full", ResponseHeaders::Full), ("errors", ResponseHeaders::Errors), ("off", ResponseHeaders::Off)];
    let queries = &[("keep", QueryStrings::Keep), ("redact", QueryStrings::Redact), ("drop", QueryStrings::Drop)];
    let formats = &[("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
    let redis = text(RedisUrl::read, ToString::to_string).secret(|url: &RedisUrl| url.password.is_some());
    vec![
        row!(responses.headers, ChoiceKind(headers)),
        row!(responses.reason_phrases, Flag),
        row!(responses.contact, text(texts::one_line, Clone::clone)),
        row!(log.level, text(texts::log_level, Clone::clone)),
        row!(log.format, ChoiceKind(formats)),
        row!(log.access, text(texts::access_log, ToString::to_string)),
        row!(log.query_strings, ChoiceKind(queries)),
        row!(metrics.hosts, count(0, 10_000)),
        row!(metrics.token, or_none("", text(texts::bearer, |_| "***".to_owned()).secret(|_| true))),
        restart(row!(fleet.redis, list(redis).or_word(""))),
        restart(row!(fleet.name, text(texts::name, Clone::clone))),
        restart(row!(fleet.timeout, span(TEN_MILLISECONDS, 10 * SECOND))),
        restart(row!(fleet.nodes, count(0, 10_000))),
    ]
}

fn rule_keys() -> Vec<KeyRow<HostRule>> {
    vec![
        row!("match", patterns, host_patterns().never_empty("name the hosts the rule is for")),
        row!(mode, Given(MODES)),
        row!(delay, Given(delay())),
        row!("rate", delay, Given(rate())),
        row!(count, Given(COUNTS)),
        row!(page_parts, Given(count(1, 1000))),
        row!(burst, Given(count(1, 1000))),
        row!(concurrency, Given(count(1, 1000))),
        row!(jitter, Given(number(0.0, 10.0))),
        row!(delay_factor, Given(number(0.0, 100.0))),
        row!(max_wait, Given(span(ZERO, DAY))),
        row!(max_queue, Given(count(0, 1_000_000))),
        row!("adaptive", learner, Given(LEARNERS)),
        row!(robots, Given(ROBOTS_MODES)),
        row!(max_crawl_delay, Given(span(ZERO, DAY))),
        row!(cache, Given(CACHE_MODES)),
        row!(stale, Given(span(ZERO, YEAR))),
        row!(min_refresh, Given(span(ZERO, YEAR))),
        row!(note, text(texts::one_line, Clone::clone)),
    ]
}

fn host_patterns() -> List<Text<HostPattern>> {
    list(text(texts::host_pattern, ToString::to_string))
}

fn delay() -> SpanKind {
    span(ZERO, DAY)
}

fn rate() -> PerTime {
    PerTime(MILLISECOND..=DAY)
}

fn quota() -> OrNone<Text<QuotaRate>> {
    or_none("", text(units::read_quota, units::write_quota))
}

/// The allowed range of a timeout. No network reliably answers in less than ten milliseconds, and no client waits
/// longer than an hour.
fn timeout() -> SpanKind {
    span(TEN_MILLISECONDS, HOUR)
}

const ZERO: Duration = Duration::ZERO;
const MILLISECOND: Duration = Duration::from_millis(1);
const TEN_MILLISECONDS: Duration = Duration::from_millis(10);
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// Bytes.
const KIBI: usize = 1024;
const MEBI: usize = 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// hyper reads heads into a buffer of at least this size.
const LEAST_HEAD: usize = 8 * 1024;
/// Far more than any server sends. A client can make curtsy allocate this much.
const LARGEST_HEAD: usize = 1024 * 1024;
