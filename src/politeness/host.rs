//! The names of hosts (which are paced) and of origins (which have a robots.txt).
//!
//! A [`HostKey`] is one budget, however a client spells it: `Example.COM.`, `example.com` and `example.com:80` are one
//! host, and so are `127.1`, `0x7f000001` and `127.0.0.1`. An [`Origin`] adds scheme and port. They are different types
//! on purpose: pace belongs to a host, robots.txt to an origin, and mixing them is the classic bug.
//!
//! After [`HostKey::parse`] no code handles a host as text again, so policy and dialling cannot read it differently.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smol_str::{SmolStr, ToSmolStr};

/// A host in its canonical spelling: lower-case A-labels without a trailing dot, or an IP address in canonical form.
/// IPv6 without brackets. Most names fit inline, so that comparing two follows no pointer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HostKey(SmolStr);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

/// Scheme, host and port: what a robots.txt belongs to (RFC 9309, section 2.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub scheme: Scheme,
    pub host: HostKey,
    pub port: u16,
}

/// Why a text is not a valid host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHost {
    Empty,
    TooLong,
    EmptyLabel,
    LabelTooLong,
    Character,
    Address,
    Zone,
    Name,
}

impl HostKey {
    /// Parses a host as written in a URI authority, without the port: `example.org`, `10.0.0.1` or `[::1]`.
    pub fn parse(host: &str) -> Result<Self, BadHost> {
        if host.is_empty() {
            return Err(BadHost::Empty);
        }
        if let Some(inner) = host.strip_prefix('[') {
            return Self::parse_v6(inner.strip_suffix(']').ok_or(BadHost::Address)?);
        }
        if is_plain_name(host) {
            return Self::from_ascii(host);
        }
        // Four decimal numbers without leading zeros: the parser accepts no other spelling.
        if host.parse::<Ipv4Addr>().is_ok() {
            return Ok(HostKey(host.into()));
        }
        // Numbers in other bases, IDN and the like: read as a browser reads them (WHATWG URL, host parsing).
        if host.bytes().any(|byte| matches!(byte, b'%' | b':' | b'[' | b']')) {
            return Err(BadHost::Character);
        }
        match url::Host::parse(host) {
            Ok(url::Host::Domain(name)) => Self::from_ascii(&name),
            Ok(url::Host::Ipv4(ip)) => Ok(Self::from(IpAddr::V4(ip))),
            Ok(url::Host::Ipv6(ip)) => Ok(Self::from(IpAddr::V6(ip))),
            Err(_) => Err(BadHost::Name),
        }
    }

    fn parse_v6(inner: &str) -> Result<Self, BadHost> {
        if inner.contains('%') {
            return Err(BadHost::Zone);
        }
        inner.parse::<Ipv6Addr>().map(|ip| Self::from(IpAddr::V6(ip))).map_err(|_| BadHost::Address)
    }

    fn from_ascii(name: &str) -> Result<Self, BadHost> {
        let name = name.strip_suffix('.').unwrap_or(name);
        check_name(name)?;
        let shouts = name.bytes().any(|byte| byte.is_ascii_uppercase());
        Ok(HostKey(if shouts { name.to_ascii_lowercase().into() } else { name.into() }))
    }

    /// Parses what [`HostKey::as_str`] returns, in exactly that spelling.
    pub fn of_key(key: &str) -> Result<Self, BadHost> {
        if key.contains(':') { Self::parse_v6(key) } else { Self::parse(key) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The registrable domain by the public suffix list, which includes private suffixes such as `github.io` (one owner
    /// for each name below). An address, or a name that is itself a suffix, is its own domain.
    #[must_use]
    pub fn domain(&self) -> HostKey {
        match (self.ip(), psl::domain_str(&self.0)) {
            (None, Some(domain)) if domain.len() < self.0.len() => HostKey(domain.into()),
            _ => self.clone(),
        }
    }

    /// The address, if the host was given as one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }
}

impl From<IpAddr> for HostKey {
    /// An IPv4 address inside IPv6 (`::ffff:1.2.3.4`) becomes the IPv4 address: it reaches the same machine.
    fn from(ip: IpAddr) -> Self {
        let ip = ip.to_canonical();
        HostKey(ip.to_smolstr())
    }
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl Origin {
    /// The origin that a CONNECT tunnel leads to. The protocol inside is unknown: port 80 counts as HTTP, every other
    /// port as HTTPS.
    pub fn of_tunnel(host: HostKey, port: u16) -> Self {
        let scheme = if port == Scheme::Http.default_port() { Scheme::Http } else { Scheme::Https };
        Origin { scheme, host, port }
    }

    /// Host and port as written in a Host field: IPv6 in brackets, without the scheme's default port.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// IPv6 in brackets, as in a URI.
impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name has no colon.
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(&self.0) }
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

impl fmt::Display for BadHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadHost::Empty => "the host is empty",
            BadHost::TooLong => "the host is longer than 253 characters",
            BadHost::EmptyLabel => "the host has an empty label",
            BadHost::LabelTooLong => "the host has a label longer than 63 characters",
            BadHost::Character => "the host has a character that no host name has",
            BadHost::Address => "the host is not a valid IP address",
            BadHost::Zone => "the host is an IPv6 address with a zone",
            BadHost::Name => "the host is not a valid name",
        })
    }
}

impl std::error::Error for BadHost {}

/// Whether the host has only letters, digits, hyphens, underscores and dots, and a last label that cannot be a number.
/// Nearly every request has this form, which is read without the full parser.
fn is_plain_name(host: &str) -> bool {
    host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !ends_in_number(host)
        && !has_punycode(host)
}

fn ends_in_number(host: &str) -> bool {
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or_default();
    last.bytes().next().is_some_and(|b| b.is_ascii_digit())
}

/// Whether a label starts with `xn--`. The full parser must check such an A-label: `xn--a` may decode to nothing.
fn has_punycode(host: &str) -> bool {
    host.split('.').any(|label| label.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("xn--")))
}

fn check_name(name: &str) -> Result<(), BadHost> {
    if name.is_empty() {
        return Err(BadHost::Empty);
    }
    if name.len() > 253 {
        return Err(BadHost::TooLong);
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err(BadHost::EmptyLabel),
            64.. => return Err(BadHost::LabelTooLong),
            _ => {}
        }
        if !label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            return Err(BadHost::Character);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spellings: &[&str], canonical: &str) {
        for spelling in spellings {
            let host = HostKey::parse(spelling).unwrap_or_else(|error| panic!("{spelling}: {error}"));
            assert_eq!(host.as_str(), canonical, "{spelling}");
        }
    }

    fn refuse(spellings: &[&str]) {
        for spelling in spellings {
            assert!(HostKey::parse(spelling).is_err(), "{spelling} was accepted");
        }
    }

    #[test]
    fn one_host_however_it_is_spelt() {
        check(&["example.com", "EXAMPLE.com", "example.com.", "Example.Com."], "example.com");
        check(&["bücher.example", "BÜCHER.example", "xn--bcher-kva.example"], "xn--bcher-kva.example");
        check(&["_dmarc.example.com"], "_dmarc.example.com");
        check(&["1and1.example"], "1and1.example");
    }

    #[test]
    fn one_address_however_it_is_spelt() {
        check(
            &["127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "0x7f.1", "127.0.0.1.", "①②⑦.⓪.⓪.①"],
            "127.0.0.1",
        );
        check(&["[::ffff:127.0.0.1]", "[::ffff:7f00:1]"], "127.0.0.1");
        check(&["[::1]", "[0:0:0:0:0:0:0:1]"], "::1");
        assert_eq!(HostKey::parse("[::1]").unwrap().to_string(), "[::1]");
    }

    #[test]
    fn a_domain_is_the_registrable_name() {
        let domain = |host: &str| HostKey::parse(host).unwrap().domain().to_string();
        assert_eq!(domain("www.example.co.uk"), "example.co.uk");
        assert_eq!(domain("example.co.uk"), "example.co.uk");
        assert_eq!(domain("a.b.someone.github.io"), "someone.github.io");
        assert_eq!(domain("co.uk"), "co.uk");
        assert_eq!(domain("localhost"), "localhost");
        assert_eq!(domain("10.1.2.3"), "10.1.2.3");
        assert_eq!(domain("[::1]"), "[::1]");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        refuse(&["", ".", "..", "example.com..", "a..b", ".example.com", "exa%6dple.com", "[example.com]"]);
        refuse(&["[[example.com]]", "[::1", "::1", "[::1%25lo]", "[::1%lo]", "a b", "a/b", "a@b", "a*b", "1.2.3.4.5"]);
        refuse(&["256.1.1.1", "xn--a.example", "a\u{0}b", "0x7g.1"]);
        refuse(&[&"a".repeat(64), &format!("{}.com", "a.".repeat(130))]);
    }

    #[test]
    fn an_authority_leaves_out_the_schemes_own_port() {
        let origin = |scheme, host, port| Origin { scheme, host: HostKey::parse(host).unwrap(), port }.to_string();
        assert_eq!(origin(Scheme::Http, "a.test", 80), "http://a.test");
        assert_eq!(origin(Scheme::Http, "a.test", 443), "http://a.test:443");
        assert_eq!(origin(Scheme::Https, "[::1]", 8443), "https://[::1]:8443");
    }
}
