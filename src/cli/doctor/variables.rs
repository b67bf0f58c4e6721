//! Checks the proxy variables: whether they are set, are equal, have a scheme, and point to curtsy.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use url::Url;

use super::finding::{Finding, Level};
use super::probe::{ProbeAnswer, Proxy};

pub(super) type Env = BTreeMap<String, String>;

/// Lower case first: curl and wget read only that for plain HTTP. No program reads only the upper case.
pub(super) const NAMES: [&str; 4] = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];

/// Where the variables should point.
pub(super) struct WantedVariable<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) admin: Option<SocketAddr>,
}

impl WantedVariable<'_> {
    pub(super) fn check(&self, env: &Env) -> Vec<Finding> {
        let set: Vec<&str> = NAMES.into_iter().filter(|name| value(env, name).is_some()).collect();
        if set.is_empty() {
            let fix = self.export(&NAMES);
            return vec![Finding::fail(
                "variables",
                "none of http_proxy, https_proxy, HTTP_PROXY, HTTPS_PROXY is set",
                fix,
            )];
        }
        let mut findings: Vec<Finding> = set.iter().filter_map(|name| self.look(name, &env[*name])).collect();
        findings.extend(self.missing(env));
        if findings.is_empty() {
            findings.extend(self.unequal(env, &set));
        }
        if findings.is_empty() {
            findings.push(Finding::ok("variables", format!("{} are set and equal", NAMES.join(" "))));
        }
        findings
    }

    fn missing(&self, env: &Env) -> Option<Finding> {
        let missing: Vec<&str> = NAMES.into_iter().filter(|name| value(env, name).is_none()).collect();
        let (first, fix) = (missing.first()?, self.export(&missing));
        let are = if missing.len() == 1 { "is" } else { "are" };
        let text = format!("{} {are} not set", missing.join(" "));
        // Upper-case names come last.
        if !first.starts_with('h') {
            return Some(Finding::warn("variables", format!("{text}: some programs read only this spelling"), fix));
        }
        let why = match value(env, &first.to_ascii_uppercase()) {
            Some(_) => "curl and wget read no other spelling".to_owned(),
            None => format!("{} requests bypass the proxy", first.trim_end_matches("_proxy")),
        };
        Some(Finding::fail("variables", format!("{text}: {why}"), fix))
    }

    fn unequal(&self, env: &Env, set: &[&str]) -> Option<Finding> {
        let differs = |name: &&&str| env[**name].trim_end_matches('/') != env[set[0]].trim_end_matches('/');
        let other = set.iter().find(differs)?;
        let text = format!("{other} is not the same as {}: which one is used depends on the program", set[0]);
        Some(Finding::warn("variables", text, self.export(&NAMES)))
    }

    /// Returns what is wrong with one variable.
    fn look(&self, name: &str, text: &str) -> Option<Finding> {
        let (fail, shown) = (|text: String| Some(Finding::fail("variables", text, self.export(&[name]))), shown(text));
        let Some((scheme, _)) = text.split_once("://") else {
            return fail(format!("{name}={shown} has no scheme: requests and aiohttp refuse it; write http://"));
        };
        let proxy = match Proxy::of_url(text) {
            Ok(proxy) => proxy,
            Err(error) => return fail(format!("{name}={shown} cannot be used: {error}")),
        };
        if self.admin == Some(proxy.address) {
            return fail(format!("{name}={shown} is the admin port; the proxy is {}", self.proxy.url()));
        }
        let heard = proxy.probe();
        match (scheme, &heard) {
            ("https", ProbeAnswer::Curtsy(_) | ProbeAnswer::Stranger) => {
                fail(format!("{name}={shown} starts with https://, but that port is plain HTTP; write http://"))
            }
            // The port may speak TLS itself; trying the clients shows whether they can use it.
            ("https", _) => None,
            ("http", ProbeAnswer::Curtsy(_)) => None,
            ("http", ProbeAnswer::Stranger) => {
                fail(format!("{name}={shown} has no valid user and password, and the proxy wants them"))
            }
            ("http", ProbeAnswer::Other(status)) => fail(format!("{name}={shown} is not curtsy: it answered {status}")),
            ("http", ProbeAnswer::Nobody(error)) => fail(format!("{name}={shown}: nothing answers there ({error})")),
            _ => fail(format!("{name}={shown} has a scheme that curtsy does not support; write http://")),
        }
    }

    fn export(&self, names: &[&str]) -> String {
        let url = self.proxy.url();
        let pairs: Vec<String> = names.iter().map(|name| format!("{name}={url}")).collect();
        format!("export {}", pairs.join(" "))
    }
}

/// Whether programs can use the variables as they are.
pub(super) fn are_usable(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level != Level::Fail)
}

fn value<'a>(env: &'a Env, name: &str) -> Option<&'a str> {
    env.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
}

/// Returns the URL without user and password.
fn shown(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        (None, Some((_, rest))) => format!("…@{rest}"),
        _ => text.to_owned(),
    }
}

/// Returns findings about what bypasses the proxy because of `no_proxy`. `targets` are the URLs in the command.
pub(super) fn exceptions(env: &Env, targets: &[Url]) -> Vec<Finding> {
    let list = value(env, "no_proxy").or_else(|| value(env, "NO_PROXY")).unwrap_or_default();
    let entries: Vec<&str> = list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    if entries.contains(&"*") {
        let text = "no_proxy is *: every request bypasses the proxy";
        return vec![Finding::fail("exceptions", text, "unset no_proxy NO_PROXY")];
    }
    let mut findings: Vec<Finding> = targets.iter().filter_map(|target| goes_round(target, &entries)).collect();
    if findings.is_empty() && !entries.is_empty() {
        findings.push(Finding::ok("exceptions", format!("no_proxy: only {} bypass the proxy", entries.join(", "))));
    }
    findings
}

fn goes_round(target: &Url, entries: &[&str]) -> Option<Finding> {
    let host = target.host_str()?.trim_matches(['[', ']']).to_ascii_lowercase();
    if let Some(entry) = entries.iter().find(|entry| covers(entry, &host)) {
        let text = format!("{host} bypasses the proxy: no_proxy has {entry}");
        return Some(Finding::warn("exceptions", text, "export no_proxy= NO_PROXY="));
    }
    let text = format!("{host}: many programs use no proxy for this machine (Go, Ruby, Java, node, browsers)");
    is_here(&host)
        .then(|| Finding::warn("exceptions", text, "try it with a name of another machine, not with localhost"))
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether a `no_proxy` entry covers a host, as most programs read it: a name, all names under it, an address or a
/// network.
fn covers(entry: &str, host: &str) -> bool {
    let entry = entry.to_ascii_lowercase();
    let name = entry.trim_start_matches('*').trim_start_matches('.');
    let name = name.split_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(name, |(name, _)| name);
    let in_network = || Some(entry.parse::<ipnet::IpNet>().ok()?.contains(&host.parse::<std::net::IpAddr>().ok()?));
    host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')) || in_network() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn found(pairs: &[(&str, &str)], targets: &[&str]) -> Vec<(Level, String)> {
        let targets: Vec<Url> = targets.iter().map(|target| target.parse().unwrap()).collect();
        let findings = exceptions(&env(pairs), &targets);
        findings.into_iter().map(|finding| (finding.level, finding.text)).collect()
    }

    #[test]
    fn what_goes_round_the_proxy_is_told() {
        assert_eq!(found(&[], &[]), []);
        assert_eq!(found(&[("no_proxy", "*")], &[])[0].0, Level::Fail);
        assert_eq!(found(&[("NO_PROXY", "localhost")], &["http://example.com/"])[0].0, Level::Ok);
        for (entry, target) in [
            ("localhost", "http://localhost:8000/"),
            (".example.com", "https://www.example.com/"),
            ("example.com", "https://www.example.com/"),
            ("10.0.0.0/8", "http://10.1.2.3/"),
            ("a.test:80", "http://a.test/"),
        ] {
            assert_eq!(found(&[("no_proxy", entry)], &[target])[0].0, Level::Warn, "{entry}");
        }
        assert!(!covers("ample.com", "example.com") && !covers(".example.org", "example.com"));
    }

    #[test]
    fn a_test_against_this_machine_is_told_to_prove_nothing() {
        let told = found(&[], &["http://127.0.0.1:8000/"]);
        assert!(told[0].0 == Level::Warn && told[0].1.contains("use no proxy for this machine"), "{told:?}");
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(shown("http://ada:lace@h:1"), "http://…@h:1");
        assert_eq!(shown("ada:lace@h:1"), "…@h:1");
        assert_eq!(shown("h:1"), "h:1");
    }
}
