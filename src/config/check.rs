//! Checks across keys: contradictions, dangers, and settings that probably do not do what the operator intended.

use std::net::IpAddr;
use std::time::Duration;

use super::HostPattern;
use super::exposed;
use super::keys::KEYS;
use super::load::Draft;
use super::problems::{ConfigProblem, FilePosition, ValueSource};
use super::redis_url::redis_mismatch;
use super::suggest::or;
use super::units::write_duration;
use super::values::{Destination, Listen};

/// Runs all checks and adds the problems to the draft. `in_open_file`: other users of this machine may read the
/// configuration file.
pub(super) fn check(draft: &mut Draft<'_>, in_open_file: bool) {
    let mut problems = Vec::new();
    problems.extend(open_proxy(draft));
    problems.extend(open_admin(draft));
    problems.extend(same_address(draft));
    problems.extend(half_an_authority(draft));
    problems.extend(half_a_listener(draft));
    problems.extend(everywhere(draft));
    problems.extend(pacing(draft));
    problems.extend(rules_never_reached(draft));
    problems.extend(odd_fleet(draft));
    problems.extend(exposed::files(draft));
    if in_open_file {
        problems.extend(secrets_in_the_file(draft));
    }
    draft.problems.extend(problems);
}

/// Checks `[politeness]`.
pub(super) fn pacing(draft: &Draft<'_>) -> Vec<ConfigProblem> {
    let warnings = no_pacing(draft).into_iter().chain(patience(draft)).chain(idle_profile(draft));
    queue_larger_than_all(draft).into_iter().chain(warnings).collect()
}

/// Requires access rules for a listener beyond loopback: an open proxy is abused within hours.
fn open_proxy(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let access = &draft.config.access;
    let wide = addresses(draft).find(|address| !is_loopback(address.ip()))?;
    if access.users_file.is_some() {
        return None;
    }
    if draft.origins.place("access.allow").is_none() {
        let key = if draft.config.tls.listen.contains(&Listen::Tcp(wide)) { "tls.listen" } else { "listen" };
        let message = format!("other machines can reach `{key}` {wide}, but nothing says who may use the proxy");
        let advice = "set access.allow to the networks of your clients, or access.users_file";
        return Some(ConfigProblem::error(message, advice, place(draft, key)));
    }
    let anyone = access.allow.iter().any(|net| net.prefix_len() == 0);
    let message = "anyone who can reach this proxy may use it";
    anyone.then(|| {
        ConfigProblem::warning(message, "name networks, or set access.users_file", place(draft, "access.allow"))
    })
}

fn open_admin(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let admin = draft.config.admin.filter(|address| !is_loopback(address.ip()))?;
    let message = format!("other machines can reach `admin` {admin}, and it would answer them without a token");
    let advice = r#"set metrics.token, or listen on "127.0.0.1""#;
    draft.config.metrics.token.is_none().then(|| ConfigProblem::error(message, advice, place(draft, "admin")))
}

fn same_address(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let mut seen: Vec<_> = draft.config.admin.into_iter().collect();
    for address in addresses(draft) {
        // Port 0 means a different free port each time.
        if address.port() != 0 && seen.contains(&address) {
            let other = if draft.config.admin == Some(address) { "`admin` has" } else { "`listen` already has" };
            let at = ["listen", "tls.listen", "admin"].into_iter().find_map(|key| place(draft, key));
            return Some(ConfigProblem::error(format!("{other} {address} too"), "use two ports", at));
        }
        seen.push(address);
    }
    None
}

fn half_an_authority(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let (given, missing) = match (&draft.config.tls.ca_cert, &draft.config.tls.ca_key) {
        (Some(_), None) => ("tls.ca_cert", "tls.ca_key"),
        (None, Some(_)) => ("tls.ca_key", "tls.ca_cert"),
        _ => return None,
    };
    let message = format!("`{given}` is no use without `{missing}`");
    Some(ConfigProblem::error(message, format!("set `{missing}` too"), place(draft, given)))
}

/// A TLS listener needs an address, a certificate and its key.
fn half_a_listener(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let tls = &draft.config.tls;
    let parts = [
        ("tls.listen", !tls.listen.is_empty()),
        ("tls.listen_cert", tls.listen_cert.is_some()),
        ("tls.listen_key", tls.listen_key.is_some()),
    ];
    let (given, _) = parts.iter().find(|(_, is_given)| *is_given)?;
    let (missing, _) = parts.iter().find(|(_, is_given)| !is_given)?;
    let message = format!("`{given}` is no use without `{missing}`");
    Some(ConfigProblem::error(message, format!("set `{missing}` too"), place(draft, given)))
}

fn queue_larger_than_all(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let (one, all) = (draft.config.politeness.max_queue, draft.config.pacing.max_queue_total);
    if one <= all {
        return None;
    }
    let message = format!("one host may queue more ({one}) than all hosts together ({all})");
    let at = place(draft, "politeness.max_queue").or_else(|| place(draft, "politeness.max_queue_total"));
    Some(ConfigProblem::error(message, "raise max_queue_total or lower max_queue", at))
}

fn everywhere(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let is_all = |destination: &Destination| match destination {
        Destination::Net(net) => net.prefix_len() == 0,
        Destination::Host(pattern) => *pattern == HostPattern::Any,
    };
    let any = draft.config.access.allow_destinations.iter().any(is_all);
    let message = "clients may reach this machine, its network and cloud metadata services through the proxy";
    let at = place(draft, "access.allow_destinations");
    any.then(|| ConfigProblem::warning(message, "list the private networks they need", at))
}

fn no_pacing(draft: &Draft<'_>) -> Vec<ConfigProblem> {
    let warning = |at| ConfigProblem::warning("a delay of zero turns pacing off", "every request goes out at once", at);
    let general = draft.config.politeness.delay.is_zero().then(|| warning(place(draft, "politeness.delay")));
    let rules = draft.config.host.iter().enumerate();
    let rules = rules.filter(|(_, rule)| rule.delay == Some(Duration::ZERO));
    let rules = rules.map(|(index, _)| warning(draft.origins.rule_place(index, "delay").cloned()));
    general.into_iter().chain(rules).collect()
}

/// Warns of a profile whose delay and burst are both set elsewhere.
fn idle_profile(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let profile = draft.config.pacing.profile.and(draft.origins.place("politeness.profile"))?;
    let is_set = |path| draft.origins.place(path).is_some_and(|place| place != profile);
    let message = "`profile` changes nothing: delay and burst are set too";
    let advice = "remove the lines with delay (or rate) and burst, or this one";
    (is_set("politeness.delay") && is_set("politeness.burst"))
        .then(|| ConfigProblem::warning(message, advice, Some(profile.clone())))
}

/// How long common clients wait for an answer before they give up; curl's limit is the one for CONNECT.
const PATIENCE: [(&str, u64); 3] = [("Scrapy", 180), ("aiohttp", 300), ("curl", 300)];

fn patience(draft: &Draft<'_>) -> Vec<ConfigProblem> {
    let warning = |wait: Duration, at| {
        let gone = PATIENCE.iter().filter(|(_, seconds)| wait > Duration::from_secs(*seconds));
        let gone: Vec<String> = gone.map(|(client, seconds)| format!("{client} ({seconds} s)")).collect();
        let message = format!("max_wait {} is longer than {} waits by default", write_duration(wait), or(&gone));
        (!gone.is_empty()).then(|| ConfigProblem::warning(message, "they give up before their turn", at))
    };
    let general = warning(draft.config.politeness.max_wait, place(draft, "politeness.max_wait"));
    let rules = draft.config.host.iter().enumerate();
    let rules =
        rules.filter_map(|(index, rule)| warning(rule.max_wait?, draft.origins.rule_place(index, "max_wait").cloned()));
    general.into_iter().chain(rules).collect()
}

/// Requires that the URLs in `fleet.redis` lead to one Redis.
fn odd_fleet(draft: &Draft<'_>) -> Option<ConfigProblem> {
    let bad = redis_mismatch(&draft.config.fleet.redis)?;
    Some(ConfigProblem::error(format!("`fleet.redis` {}", bad.message), bad.advice, place(draft, "fleet.redis")))
}

fn rules_never_reached(draft: &Draft<'_>) -> Vec<ConfigProblem> {
    let rules = &draft.config.host;
    let coverer = |pattern: &HostPattern, earlier: usize| {
        let rules = rules[..earlier].iter().enumerate();
        rules.flat_map(|(index, rule)| rule.patterns.iter().map(move |p| (index, p))).find(|(_, p)| p.covers(pattern))
    };
    let mut problems = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let covered: Option<Vec<_>> = rule.patterns.iter().map(|pattern| coverer(pattern, index)).collect();
        let Some((by, pattern)) = covered.and_then(|covered| covered.first().copied()) else { continue };
        let message = format!("[[host]] #{} can never match: \"{pattern}\" in #{} comes first", index + 1, by + 1);
        let at = draft.origins.rule_place(index, "match").cloned();
        problems.push(ConfigProblem::warning(message, "move it up, or leave it out", at));
    }
    problems
}

fn secrets_in_the_file(draft: &Draft<'_>) -> Vec<ConfigProblem> {
    let in_file = |path: &str| matches!(draft.origins.of(path), Some(ValueSource::File { .. }));
    let rows = KEYS.iter().filter(|row| row.hides(&draft.config) && in_file(row.path));
    rows.map(|row| {
        let message = format!("`{}` is a secret, and others on this machine can read the file", row.path);
        let advice = format!("chmod 600 it, or put the secret in {}_FILE", super::environment::variable(row.path));
        ConfigProblem::warning(message, advice, place(draft, row.path))
    })
    .collect()
}

fn addresses(draft: &Draft<'_>) -> impl Iterator<Item = std::net::SocketAddr> {
    draft.config.listen.iter().chain(&draft.config.tls.listen).map(|listen| match listen {
        Listen::Tcp(address) => *address,
    })
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn place(draft: &Draft<'_>, path: &str) -> Option<FilePosition> {
    draft.origins.place(path).cloned()
}
