//! Addresses, patterns, paths and names as they are written in the file: text to value and back.
//!
//! Each reader says what is wrong and what to write instead. None of them quotes a text that may contain a password.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use url::{Host, Url};

use super::values::{AccessLogTarget, BadValue, Destination, Listen, ResolverChoice, StateDir};
use super::{HostPattern, ParentProxy};
use crate::politeness::HostKey;

pub(super) type Read<T> = Result<T, BadValue>;

pub(super) fn listen(text: &str) -> Read<Listen> {
    if text.starts_with("unix:") {
        return Err(not_yet("a unix: listener", r#"listen on an address such as "127.0.0.1:3128""#));
    }
    address(text).map(Listen::Tcp)
}

pub(super) fn address(text: &str) -> Read<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).unwrap_or(3128);
    let advice = if text.contains("::") {
        format!("write an IPv6 address in brackets, such as \"[::1]:{port}\"")
    } else {
        format!("write an IP address and a port, such as \"127.0.0.1:{port}\"")
    };
    Err(BadValue::new(format!("is not an address to listen on: {text:?}"), advice))
}

pub(super) fn ip(text: &str) -> Read<IpAddr> {
    text.parse().map_err(|_| BadValue::new(format!("is not an IP address: {text:?}"), r#"write it as "192.0.2.7""#))
}

/// Reads a network such as "10.0.0.0/8", or one address.
pub(super) fn network(text: &str) -> Read<IpNet> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc()).map_err(|_| {
        BadValue::new(format!("is not a network: {text:?}"), r#"write a network such as "10.0.0.0/8" or one address"#)
    })
}

/// Writes a network. A single address is written without its prefix length, as users write it.
pub(super) fn write_network(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

pub(super) fn host_pattern(text: &str) -> Read<HostPattern> {
    if text == "*" {
        return Ok(HostPattern::Any);
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(net) = network(bare) {
        return Ok(HostPattern::Net(net));
    }
    match text.strip_prefix("*.") {
        Some(below) => host_name(text, below).map(HostPattern::Below),
        None => host_name(text, text).map(HostPattern::Name),
    }
}

/// Reads a name of the admin listener. A pattern would accept names of other sites.
pub(super) fn admin_host(text: &str) -> Read<HostKey> {
    let is_pattern = text.contains(['*', '/', ':', '@', '?']);
    HostKey::parse(text).ok().filter(|_| !is_pattern).ok_or_else(|| {
        let advice = r#"write each name alone, without scheme, port or star, such as "curtsy.example.org""#;
        BadValue::new(format!("is not a host name: {text:?}"), advice)
    })
}

fn host_name(whole: &str, name: &str) -> Read<String> {
    let wrong = |advice: &str| Err(BadValue::new(format!("is not a host pattern: {whole:?}"), advice));
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        return wrong(r#"write a name, "*.example.org", a network, or "*" for every host"#);
    }
    if name.contains('*') {
        return wrong(r#"a star stands alone or at the front, as in "*.example.org""#);
    }
    if name.contains(['/', ':', '@', '?']) {
        return wrong("write the host alone, without scheme, port or path");
    }
    match Host::parse(name) {
        Ok(Host::Domain(name)) if !name.split('.').any(str::is_empty) => Ok(name),
        _ => wrong(r#"write a name such as "example.org""#),
    }
}

pub(super) fn destination(text: &str) -> Read<Destination> {
    Ok(match host_pattern(text)? {
        HostPattern::Net(net) => Destination::Net(net),
        pattern => Destination::Host(pattern),
    })
}

/// Reads "http://user:password@host:port". The scheme may be missing, as it often is in `http_proxy` variables.
pub(super) fn parent_proxy(text: &str) -> Read<ParentProxy> {
    let advice = r#"write it as "http://user:password@host:port""#;
    let wrong = |message: &str| BadValue::new(message, advice);
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).map_err(|_| wrong("is not the URL of a proxy"))?;
    match url.scheme() {
        "http" => {}
        "https" => return Err(not_yet("a parent proxy over https", "use an http:// one")),
        other => return Err(BadValue::new(format!("cannot use a {other} proxy"), advice)),
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has more than a host and a port"));
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    let user = percent_decoded(url.username()).ok_or_else(|| wrong("has a user name that is not UTF-8"))?;
    let password = percent_decoded(url.password().unwrap_or_default());
    let password = password.ok_or_else(|| wrong("has a password that is not UTF-8"))?;
    let named = url.password().is_some() || !user.is_empty();
    Ok(ParentProxy { host, port, credentials: named.then_some((user, password)) })
}

/// Writes the URL without the password.
pub(super) fn write_parent_proxy(proxy: &ParentProxy) -> String {
    let host = if proxy.host.contains(':') { format!("[{}]", proxy.host) } else { proxy.host.clone() };
    let user = proxy.credentials.as_ref().map(|(user, _)| url::form_urlencoded::byte_serialize(user.as_bytes()));
    let credentials = user.map(|user| format!("{}:***@", user.collect::<String>().replace('+', "%20")));
    format!("http://{}{host}:{}", credentials.unwrap_or_default(), proxy.port)
}

pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = if *first == b'%' { after.get(..2).and_then(hex_byte) } else { None };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

pub(super) fn state_dir(text: &str) -> Read<StateDir> {
    match text {
        "auto" => Ok(StateDir::Auto),
        "memory" => Ok(StateDir::Memory),
        path => file_path(path).map(StateDir::Path),
    }
}

pub(super) fn access_log(text: &str) -> Read<AccessLogTarget> {
    match text {
        "off" => Ok(AccessLogTarget::Off),
        "-" => Ok(AccessLogTarget::Stdout),
        path => file_path(path).map(AccessLogTarget::Path),
    }
}

pub(super) fn file_path(text: &str) -> Read<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err(BadValue::new("is not a path", "write the path of a file"));
    }
    Ok(PathBuf::from(text))
}

pub(super) fn write_path(path: &std::path::Path) -> String {
    path.display().to_string()
}

pub(super) fn resolver(text: &str) -> Read<ResolverChoice> {
    match text {
        "system" => Ok(ResolverChoice::System),
        _ => Err(not_yet("a resolver of its own", r#"write "system""#)),
    }
}

/// Reads a name that Via and Proxy-Status can carry without quotes.
pub(super) fn name(text: &str) -> Read<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&text.len()) && text.chars().all(fits) {
        return Ok(text.to_owned());
    }
    Err(BadValue::new(format!("is not a name: {text:?}"), "up to 64 letters, digits, dots, dashes and underscores"))
}

/// Reads a product token or a method (RFC 9110, section 5.6.2).
pub(super) fn token(text: &str) -> Read<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if !text.is_empty() && text.chars().all(fits) {
        return Ok(text.to_owned());
    }
    Err(BadValue::new(format!("is not a single word: {text:?}"), "letters, digits and dashes, without spaces"))
}

/// Reads the name of a header field, in lower case.
pub(super) fn field_name(text: &str) -> Read<String> {
    token(text).map(|name| name.to_ascii_lowercase())
}

/// Reads a token that a client can send in an Authorization field.
pub(super) fn bearer(text: &str) -> Read<String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(BadValue::new("cannot be sent by clients", "use letters, digits and punctuation, without spaces"))
}

pub(super) fn one_line(text: &str) -> Read<String> {
    if text.len() <= 1000 && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(BadValue::new("is too long or not one line", "write at most 1000 bytes without line breaks"))
}

pub(super) fn tls_version(text: &str) -> Read<String> {
    match text {
        "1.2" | "1.3" => Ok(text.to_owned()),
        _ => Err(BadValue::new(format!("is not a TLS version curtsy speaks: {text:?}"), r#"write "1.2" or "1.3""#)),
    }
}

/// Reads a level, or `target=level` pairs. Checks the level because the log filter would take a misspelt level for a
/// target.
pub(super) fn log_level(text: &str) -> Read<String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let wrong = text.split(',').find(|part| {
        let level = part.rsplit('=').next().unwrap_or_default().trim();
        !LEVELS.contains(&level)
    });
    match wrong {
        None => Ok(text.to_owned()),
        Some(part) => {
            let advice = format!("one of {}, or \"curtsy::proxy=debug,info\"", LEVELS.join(", "));
            Err(BadValue::new(format!("has an unknown level: {:?}", part.trim()), advice))
        }
    }
}

fn not_yet(what: &str, advice: &str) -> BadValue {
    BadValue::new(format!("names {what}, which is not available yet"), advice)
}

impl Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
        }
    }
}

impl Display for StateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateDir::Auto => f.write_str("auto"),
            StateDir::Memory => f.write_str("memory"),
            StateDir::Path(path) => path.display().fmt(f),
        }
    }
}

impl Display for AccessLogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessLogTarget::Off => f.write_str("off"),
            AccessLogTarget::Stdout => f.write_str("-"),
            AccessLogTarget::Path(path) => path.display().fmt(f),
        }
    }
}

impl Display for ResolverChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolverChoice::System => f.write_str("system"),
        }
    }
}

impl Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Any => f.write_str("*"),
            HostPattern::Name(name) => f.write_str(name),
            HostPattern::Below(suffix) => write!(f, "*.{suffix}"),
            HostPattern::Net(net) => f.write_str(&write_network(net)),
        }
    }
}

impl Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Net(net) => f.write_str(&write_network(net)),
            Destination::Host(pattern) => pattern.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_patterns_are_tidied() {
        for (text, written) in [
            ("*", "*"),
            ("Example.ORG.", "example.org"),
            ("*.Example.org", "*.example.org"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("[::1]", "::1"),
            ("my_host.internal", "my_host.internal"),
        ] {
            assert_eq!(host_pattern(text).map(|pattern| pattern.to_string()), Ok(written.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_pattern() {
        for text in [
            "",
            ".",
            "*.",
            "**",
            "*.*",
            "a*.org",
            "http://a.org",
            "a.org:80",
            "a.org/x",
            "a..org",
            "a b",
            "10.0.0.0/99",
        ] {
            assert!(host_pattern(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_knows_what_it_covers() {
        let covers = |a: &str, b: &str| host_pattern(a).unwrap().covers(&host_pattern(b).unwrap());
        for (a, b) in [
            ("*", "10.0.0.0/8"),
            ("*.a.org", "b.a.org"),
            ("*.a.org", "*.a.org"),
            ("*.a.org", "*.b.a.org"),
            ("10.0.0.0/8", "10.1.0.0/16"),
        ] {
            assert!(covers(a, b), "{a} {b}");
        }
        for (a, b) in
            [("*.a.org", "a.org"), ("*.a.org", "*.org"), ("*.a.org", "xa.org"), ("a.org", "*"), ("::/0", "10.0.0.1")]
        {
            assert!(!covers(a, b), "{a} {b}");
        }
    }

    #[test]
    fn a_parent_proxy_is_taken_apart() {
        let proxy = parent_proxy("http://me:p%40ss@[2001:db8::1]:8080/").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("2001:db8::1", 8080));
        assert_eq!(proxy.credentials, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!(write_parent_proxy(&proxy), "http://me:***@[2001:db8::1]:8080");
        let short = parent_proxy("corp.example:3128").unwrap();
        assert_eq!((short.host.as_str(), short.port, short.credentials), ("corp.example", 3128, None));
    }

    #[test]
    fn a_wrong_parent_proxy_is_refused_without_quoting_it() {
        for text in [
            "https://u:hunter2@a",
            "socks5://u:hunter2@a",
            "http://u:hunter2@a/x",
            "http://u:hunter2@",
            "http://u:%ffhunter2@a",
        ] {
            let bad = parent_proxy(text).unwrap_err();
            assert!(!format!("{bad:?}").contains("hunter2"), "{bad:?}");
        }
        assert!(parent_proxy("https://a").unwrap_err().message.contains("not available yet"));
    }

    #[test]
    fn odd_percent_signs_are_kept() {
        assert_eq!(percent_decoded("a%zz%4").as_deref(), Some("a%zz%4"));
        assert_eq!(percent_decoded("%+1"), Some("%+1".to_owned()));
        assert_eq!(percent_decoded("%ff"), None);
    }

    #[test]
    fn a_wrong_listen_address_says_what_to_write() {
        for (text, advice) in [
            ("3128", "127.0.0.1:3128"),
            (":8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("::1:8080", "[::1]:8080"),
        ] {
            assert!(address(text).unwrap_err().advice.contains(advice), "{text}");
        }
        assert!(listen("unix:/run/curtsy.sock").unwrap_err().message.contains("not available yet"));
    }

    #[test]
    fn one_address_is_a_network() {
        assert_eq!(network("::1").unwrap().to_string(), "::1/128");
        assert!(network("10.0.0.0/33").is_err());
    }

    #[test]
    fn a_misspelt_log_level_is_noticed() {
        assert!(log_level("curtsy::queue=debug, info").is_ok());
        for text in ["", "inof", "curtsy=", "curtsy=debug,warning"] {
            assert!(log_level(text).is_err(), "{text}");
        }
    }
}
