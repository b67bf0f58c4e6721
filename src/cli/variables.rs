//! The environment variables that send clients to a proxy and make them trust its certificates.
//!
//! No single variable reaches every client: curl and wget read `http_proxy` only in lower case, Ruby also uses it for
//! https, and Node reads it only if another variable is set. So all of them are set. Old values are kept where both can
//! apply.

use super::trust::TrustFiles;

/// Both cases of each: some clients read only one. The last ones belong to single programs.
const PROXY: [&str; 10] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "CGI_HTTP_PROXY",
    "GLOBAL_AGENT_HTTP_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
];
const NO_PROXY: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// Some clients read the proxy variables only if one of these is set. The last one is a marker for scripts.
const SWITCHES: [&str; 3] = ["NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY", ACTIVE];
pub(super) const ACTIVE: &str = "CURTSY_ACTIVE";
/// These replace the roots that a client trusts, so they name a file that includes the system's roots.
const BUNDLE: [&str; 14] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "npm_config_cafile",
    "GIT_SSL_CAINFO",
    "PERL_LWP_SSL_CA_FILE",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "HTTPLIB2_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "HEX_CACERTS_PATH",
];
/// These add to the roots that a client trusts.
const EXTRA: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
const JAVA: &str = "JAVA_TOOL_OPTIONS";
const PHP: &str = "PHP_INI_SCAN_DIR";
const WGET: &str = "WGETRC";

/// Names that are never sent through a proxy, because they mean this machine.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

pub(super) type Variable = (&'static str, String);

/// The address of a proxy for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name or an address, an IPv6 one in brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The name of the client.
    pub(super) name: Option<String>,
}

impl Address {
    /// Whether the proxy is on this machine.
    pub(super) fn is_here(&self) -> bool {
        self.host.starts_with("127.") || self.host == "[::1]" || self.host == "localhost"
    }

    /// Returns a URL such as `http://127.0.0.1:3128`. Some clients do not send a name without a password, so the
    /// password is "x".
    pub(super) fn url(&self) -> String {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!("{name}:x@"));
        format!("http://{name}{}:{}", self.host, self.port)
    }
}

/// What the variables should contain.
#[derive(Clone, Debug)]
pub(super) struct WantedProxy<'a> {
    pub(super) proxy: &'a Address,
    pub(super) trust: Option<&'a TrustFiles>,
    /// Every JVM prints a line about its variable, so it is set only on request.
    pub(super) java: bool,
}

/// Returns every variable with its value. `before` returns the current value of a variable.
pub(super) fn variables(wanted: &WantedProxy<'_>, before: impl Fn(&str) -> Option<String>) -> Vec<Variable> {
    let url = wanted.proxy.url();
    let mut all: Vec<Variable> = PROXY.iter().map(|&name| (name, url.clone())).collect();
    let exempt = exempt(NO_PROXY.iter().find_map(|name| before(name)).as_deref().unwrap_or_default());
    all.extend(NO_PROXY.iter().map(|&name| (name, exempt.clone())));
    all.extend(SWITCHES.iter().map(|&name| (name, "1".to_owned())));
    if let Some(trust) = wanted.trust {
        let shown = |path: &std::path::Path| path.display().to_string();
        all.extend(BUNDLE.iter().map(|&name| (name, shown(&trust.bundle))));
        all.extend(EXTRA.iter().map(|&name| (name, shown(&trust.ca))));
        all.push((WGET, shown(&trust.wgetrc)));
        all.push((PHP, php(before(PHP).unwrap_or_default(), &shown(&trust.php))));
    }
    if wanted.java {
        let options = java(wanted, &exempt, before(JAVA).unwrap_or_default());
        all.push((JAVA, options));
    }
    all
}

/// Returns the names that may hold the path of a file with roots.
pub(super) fn root_files() -> impl Iterator<Item = &'static str> {
    BUNDLE.iter().chain(&EXTRA).copied()
}

/// Returns every name that may be set.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let all = PROXY.iter().chain(&NO_PROXY).chain(&SWITCHES).chain(&BUNDLE).chain(&EXTRA);
    all.copied().chain([WGET, PHP, JAVA])
}

/// Returns the new `no_proxy`. Names that were exempt before stay exempt.
fn exempt(before: &str) -> String {
    let mut parts: Vec<&str> = before.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    for local in LOCAL {
        if !parts.contains(&local) {
            parts.push(local);
        }
    }
    parts.join(",")
}

/// Returns the new `PHP_INI_SCAN_DIR`. An empty part means the folder that PHP was built with.
fn php(before: String, folder: &str) -> String {
    if before.split(':').any(|part| part == folder) { before } else { format!("{before}:{folder}") }
}

/// Returns the new `JAVA_TOOL_OPTIONS`. The last value of an option applies, so ours come last.
fn java(wanted: &WantedProxy<'_>, exempt: &str, before: String) -> String {
    let Address { host, port, .. } = wanted.proxy;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut ours =
        format!("-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port}");
    ours.push_str(&format!(" -Dhttp.nonProxyHosts={}", java_exempt(exempt)));
    if let Some(trust) = wanted.trust {
        // A JVM splits the variable at spaces, and reads quotes.
        let store = trust.java.display().to_string();
        let store = if store.contains(' ') { format!("\"{store}\"") } else { store };
        ours.push_str(&format!(" -Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"));
    }
    match before {
        before if before.is_empty() || before.contains(&ours) => ours,
        before => format!("{before} {ours}"),
    }
}

/// Converts exempt names for Java, which uses patterns, while other clients use names that include all names below
/// them. Java also exempts all of 127.* by itself.
fn java_exempt(exempt: &str) -> String {
    let patterns = exempt.split(',').filter(|part| !part.contains([' ', '/', '|'])).flat_map(|part| {
        match part.strip_prefix('.') {
            Some(name) => vec![format!("*.{name}")],
            None if part.contains(':') => vec![format!("[{part}]")],
            None if part.starts_with(|c: char| c.is_ascii_digit()) || !part.contains('.') => vec![part.to_owned()],
            None => vec![part.to_owned(), format!("*.{part}")],
        }
    });
    patterns.collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> Address {
        Address { host: "127.0.0.1".to_owned(), port: 3128, name: None }
    }

    fn trust() -> TrustFiles {
        let at = |name: &str| std::path::PathBuf::from(format!("/s/{name}"));
        TrustFiles { ca: at("ca.pem"), bundle: at("bundle.pem"), wgetrc: at("wgetrc"), php: at("php"), java: at("j") }
    }

    fn all(trust: Option<&TrustFiles>, java: bool, before: &[(&str, &str)]) -> Vec<Variable> {
        let find = |name: &str| before.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        variables(&WantedProxy { proxy: &proxy(), trust, java }, find)
    }

    fn value<'a>(all: &'a [Variable], name: &str) -> Option<&'a str> {
        all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn both_cases_are_set_and_what_was_exempt_stays_so() {
        let all = all(None, false, &[("NO_PROXY", "intra.test, ::1")]);
        for name in ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            assert_eq!(value(&all, name), Some("http://127.0.0.1:3128"), "{name}");
        }
        assert_eq!(value(&all, "no_proxy"), Some("intra.test,::1,localhost,127.0.0.1"));
        assert_eq!((value(&all, "SSL_CERT_FILE"), value(&all, JAVA)), (None, None));
    }

    #[test]
    fn trust_names_the_bundle_where_it_replaces_and_the_authority_where_it_adds() {
        let (trust, before) = (trust(), [(PHP, "/mine")]);
        let all = all(Some(&trust), true, &before);
        assert_eq!(value(&all, "SSL_CERT_FILE"), Some("/s/bundle.pem"));
        assert_eq!(value(&all, "NODE_EXTRA_CA_CERTS"), Some("/s/ca.pem"));
        assert_eq!(value(&all, PHP), Some("/mine:/s/php"));
        assert!(all.iter().all(|(name, _)| names().any(|known| known == *name)), "not all can be taken back");
    }

    #[test]
    fn a_folder_with_a_space_is_quoted_for_java() {
        let trust = TrustFiles { java: "/my files/j".into(), ..trust() };
        let told = all(Some(&trust), true, &[]);
        assert!(value(&told, JAVA).unwrap().contains(" -Djavax.net.ssl.trustStore=\"/my files/j\" "));
    }

    #[test]
    fn what_java_was_told_before_it_is_told_still() {
        let told = all(None, true, &[(JAVA, "-Xmx1g")]);
        let value = value(&told, JAVA).unwrap().to_owned();
        assert!(value.starts_with("-Xmx1g -Dhttp.proxyHost=127.0.0.1") && value.contains("-Dhttps.proxyPort=3128"));
        assert!(value.ends_with(" -Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]"), "{value}");
        assert_eq!(java_exempt("a.test,.b.test,10.0.0.0/8,::1"), "a.test|*.a.test|*.b.test|[::1]");
    }

    #[test]
    fn saying_it_twice_changes_nothing() {
        let trust = trust();
        let once = all(Some(&trust), true, &[("no_proxy", "a.test"), (PHP, ":/mine")]);
        let before: Vec<(&str, &str)> = once.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(all(Some(&trust), true, &before), once);
    }

    #[test]
    fn a_name_goes_into_the_url() {
        let named = Address { name: Some("news".to_owned()), ..proxy() };
        assert_eq!(named.url(), "http://news:x@127.0.0.1:3128");
    }
}
