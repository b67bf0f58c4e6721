//! Decides which header fields pass, in both directions (RFC 9110, section 7.6), and signs messages with Via.
//!
//! Fields that concern one connection are removed: `Connection`, the fields it names, and the well-known ones. curtsy's
//! own fields (`Curtsy-*`) never pass either way. `Host` is written anew. Everything else passes, and fields of one
//! name keep their order.

use std::mem;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Uri, Version};

use crate::politeness::Origin;

/// Upgrades are passed on for this protocol only: `h2c` and unknown protocols would open a tunnel past every check.
const WEBSOCKET: &str = "websocket";

/// Prepares the fields and the version of a request for the next hop. Returns our Via if it comes after all fields: to
/// add it to the map would cost most requests a larger map.
pub(crate) fn outgoing<'a>(
    parts: &mut Parts,
    origin: &Origin,
    upgrade: bool,
    identity: Option<&'a Identity>,
) -> Option<&'a HeaderValue> {
    let received = mem::replace(&mut parts.version, Version::HTTP_11);
    let headers = &mut parts.headers;
    let wants_trailers = has(headers, &header::TE) && accepts_trailers(headers);
    let hole = strip(headers, |name| is_own(name) || *name == header::EXPECT);
    if !names_origin(headers, origin, &parts.uri) {
        set_host(headers, origin);
    }
    if received == Version::HTTP_2 {
        join_cookies(headers);
    }
    if upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
    } else if wants_trailers {
        headers.insert(header::CONNECTION, HeaderValue::from_static("TE"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    // The only field to remove was TE, and it has been set again.
    let hole = hole.filter(|_| !wants_trailers);
    if hole.is_none() && !has(headers, &header::VIA) {
        return identity.map(|identity| identity.via(received));
    }
    sign(headers, identity, received, hole);
    None
}

/// Prepares the fields of a response for the client.
pub(crate) fn incoming(headers: &mut HeaderMap, identity: Option<&Identity>, received: Version) {
    let hole = strip(headers, is_own);
    sign(headers, identity, received, hole);
}

/// Whether the client wants to switch to a protocol that curtsy passes on.
pub(crate) fn asks_for_websocket(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    let may_be_asked = method == Method::GET && version == Version::HTTP_11 && has(headers, &header::UPGRADE);
    may_be_asked && nominates(headers, "upgrade") && is_websocket(headers)
}

/// Whether the origin switched to what was asked for.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// Whether the Host field may stay: nearly every client sends the target's own spelling, which is the canonical one.
fn names_origin(headers: &HeaderMap, origin: &Origin, uri: &Uri) -> bool {
    let given = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // Inside a tunnel the Host field has been read instead of an authority.
    let as_written = uri.authority().map_or(given, |authority| authority.as_str());
    given == as_written && is_canonical(as_written, origin)
}

fn set_host(headers: &mut HeaderMap, origin: &Origin) {
    let authority = HeaderValue::try_from(origin.authority()).expect("a host key has only visible characters");
    match headers.get_mut(header::HOST) {
        Some(host) => *host = authority,
        None => {
            // Where there was no Host, it goes first (RFC 9110, section 7.2).
            let rest = mem::replace(headers, HeaderMap::with_capacity(headers.len() + 2));
            headers.insert(header::HOST, authority);
            headers.extend(rest);
        }
    }
}

/// Joins cookies: HTTP/2 clients may send each in its own field, HTTP/1.1 wants them in one (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, cookie);
    }
}

/// Whether this is exactly what [`Origin::authority`] would write.
fn is_canonical(authority: &str, origin: &Origin) -> bool {
    let has_own_port = origin.port != origin.scheme.default_port();
    match authority.strip_prefix(origin.host.as_str()) {
        Some("") => !has_own_port,
        Some(port) => has_own_port && port.strip_prefix(':').is_some_and(|port| !port.starts_with('0')),
        None => false,
    }
}

/// Removes the fields that concern this connection only, and those that `also` names; keeps the order of the rest. A
/// single field to remove, which is the usual case, is left to [`sign`]: rebuilding the map costs 7 % of a request.
fn strip(headers: &mut HeaderMap, also: impl Fn(&HeaderName) -> bool) -> Option<HeaderName> {
    let mut leaving = headers.keys().filter(|name| is_hop_by_hop(name) || also(name));
    let first = leaving.next()?;
    if leaving.next().is_none() && !has(headers, &header::VIA) && nominates_nothing(headers) {
        return Some(first.clone());
    }
    let nominated = nominated(headers);
    let all = mem::replace(headers, HeaderMap::with_capacity(headers.len() + 1));
    let mut last = None;
    for (name, value) in all {
        // A repeated field comes without its name.
        if let Some(name) = name {
            let goes = is_hop_by_hop(&name) || also(&name) || nominated.contains(&name);
            last = (!goes).then_some(name);
        }
        if let Some(name) = &last {
            headers.append(name, value);
        }
    }
    None
}

/// Adds our Via at the end, and takes out the field that [`strip`] left. The map fills the hole with its last field, so
/// Via takes the place of that field and no other field moves.
fn sign(headers: &mut HeaderMap, identity: Option<&Identity>, received: Version, hole: Option<HeaderName>) {
    if let Some(identity) = identity {
        identity.sign(headers, received);
    }
    if let Some(name) = hole {
        headers.remove(name);
    }
}

/// Whether there is a field of this name. Most messages have few fields, and comparing all names costs less than a
/// hash.
pub(crate) fn has(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|known| known == name)
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    if !matches!(name.as_str().as_bytes().first(), Some(b'c' | b'h' | b'k' | b'p' | b't' | b'u')) {
        return false;
    }
    const NAMES: [HeaderName; 8] = [
        header::CONNECTION,
        header::PROXY_AUTHORIZATION,
        header::PROXY_AUTHENTICATE,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    NAMES.contains(name) || matches!(name.as_str(), "proxy-authentication-info" | "http2-settings")
}

/// `Curtsy`, `Curtsy-Max-Wait`, and so on.
fn is_own(name: &HeaderName) -> bool {
    name.as_str().strip_prefix("curtsy").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the names that `Connection` declares to be for this connection only. A field that frames, routes or protects
/// the message cannot be declared away.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    const KEPT: [HeaderName; 10] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::HOST,
        header::MAX_FORWARDS,
        header::SET_COOKIE,
        header::VIA,
    ];
    options(headers)
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .filter(|name| !KEPT.contains(name))
        .collect()
}

/// Whether `Connection` names no field. `close` and `keep-alive` are about the connection itself.
fn nominates_nothing(headers: &HeaderMap) -> bool {
    options(headers).all(|option| option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive"))
}

fn nominates(headers: &HeaderMap, option: &str) -> bool {
    options(headers).any(|given| given.eq_ignore_ascii_case(option.as_bytes()))
}

fn options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    })
}

/// The name of this deployment in Via and Proxy-Status.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    via_10: HeaderValue,
    via_11: HeaderValue,
    via_2: HeaderValue,
    status_name: String,
}

impl Identity {
    /// `name` is a token (RFC 9110, section 5.6.2): the configuration checks it.
    pub fn new(name: &str) -> Self {
        let value = |version: &str| {
            HeaderValue::from_maybe_shared(Bytes::from(format!("{version} {name}"))).expect("a token is a valid value")
        };
        // A structured-field token begins with a letter; any other name is written as a string.
        let is_token = name.starts_with(|c: char| c.is_ascii_alphabetic());
        let status_name = if is_token { name.to_owned() } else { format!("\"{name}\"") };
        Identity { via_10: value("1.0"), via_11: value("1.1"), via_2: value("2"), status_name, name: name.to_owned() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The member name of Proxy-Status.
    pub(crate) fn status_name(&self) -> &str {
        &self.status_name
    }

    /// Adds our entry after all others. `received` is the HTTP version that the message came in.
    pub(crate) fn sign(&self, headers: &mut HeaderMap, received: Version) {
        headers.append(header::VIA, self.via(received).clone());
    }

    fn via(&self, received: Version) -> &HeaderValue {
        match received {
            Version::HTTP_10 => &self.via_10,
            Version::HTTP_2 => &self.via_2,
            _ => &self.via_11,
        }
    }

    /// Whether this message has passed through here before: an entry of a Via field has exactly our name.
    pub(crate) fn has_signed(&self, headers: &HeaderMap) -> bool {
        headers
            .get_all(header::VIA)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|entry| received_by(entry).is_some_and(|by| by.eq_ignore_ascii_case(self.name.as_bytes())))
    }
}

/// `1.1 name (comment)`: the second word.
fn received_by(entry: &[u8]) -> Option<&[u8]> {
    entry.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::{HostKey, Scheme};

    fn sent(uri: &str, fields: &[(&str, &str)]) -> Vec<String> {
        let uri: Uri = uri.parse().unwrap();
        let origin = Origin {
            scheme: Scheme::Http,
            host: HostKey::parse(uri.host().unwrap()).unwrap(),
            port: uri.port_u16().unwrap_or(80),
        };
        let (mut parts, ()) = http::Request::get(uri).body(()).unwrap().into_parts();
        for (name, value) in fields {
            parts.headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let identity = Identity::new("me");
        let via = outgoing(&mut parts, &origin, false, Some(&identity)).map(|via| (&header::VIA, via));
        parts.headers.iter().chain(via).map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn fields_of_the_connection_stay_on_it() {
        let fields = sent(
            "http://a.test/",
            &[
                ("host", "a.test"),
                ("connection", "X-Foo, close"),
                ("x-foo", "1"),
                ("accept", "*/*"),
                ("keep-alive", "5"),
                ("proxy-connection", "keep-alive"),
                ("proxy-authorization", "Basic eA=="),
                ("curtsy-max-wait", "5"),
                ("http2-settings", "x"),
                ("x-bar", "2"),
            ],
        );
        assert_eq!(fields, ["host: a.test", "accept: */*", "x-bar: 2", "via: 1.1 me"]);
    }

    #[test]
    fn one_field_that_goes_moves_no_other() {
        let fields = [("host", "a.test"), ("proxy-connection", "keep-alive"), ("accept", "*/*"), ("x", "1")];
        assert_eq!(sent("http://a.test/", &fields), ["host: a.test", "via: 1.1 me", "accept: */*", "x: 1"]);
        let fields = [("connection", "x"), ("host", "a.test"), ("x", "1"), ("y", "2")];
        assert_eq!(sent("http://a.test/", &fields), ["host: a.test", "y: 2", "via: 1.1 me"]);
    }

    #[test]
    fn needed_fields_cannot_be_declared_away() {
        let fields = sent(
            "http://a.test/",
            &[("host", "a.test"), ("connection", "Host, Content-Length, connection, Via"), ("content-length", "3")],
        );
        assert_eq!(fields, ["host: a.test", "content-length: 3", "via: 1.1 me"]);
    }

    #[test]
    fn the_target_names_the_host() {
        assert_eq!(sent("http://a.test/", &[("host", "b.test")])[0], "host: a.test");
        assert_eq!(sent("http://A.test:80/", &[("host", "A.test:80")])[0], "host: a.test");
        assert_eq!(sent("http://a.test:81/", &[("accept", "*/*")]), ["host: a.test:81", "accept: */*", "via: 1.1 me"]);
    }

    #[test]
    fn repeated_fields_stay_repeated() {
        let fields = sent("http://a.test/", &[("x", "1"), ("te", "gzip"), ("keep-alive", "1"), ("x", "2"), ("y", "3")]);
        assert_eq!(fields, ["host: a.test", "x: 1", "x: 2", "y: 3", "via: 1.1 me"]);
    }

    #[test]
    fn te_trailers_is_said_again() {
        let fields = sent("http://a.test/", &[("te", "gzip;q=0.5, trailers"), ("connection", "te")]);
        assert_eq!(fields, ["host: a.test", "connection: TE", "te: trailers", "via: 1.1 me"]);
    }

    #[test]
    fn readiness_for_trailers_needs_no_nomination() {
        let sent = sent("http://a.test/", &[("host", "a.test"), ("te", "trailers"), ("x", "1")]);
        for field in ["te: trailers", "connection: TE", "x: 1"] {
            assert!(sent.contains(&field.to_owned()), "{sent:?}");
        }
    }

    fn signed(via: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::VIA, via.parse().unwrap());
        Identity::new("curtsy-1").has_signed(&headers)
    }

    #[test]
    fn knows_its_own_name_and_no_other() {
        assert!(signed("1.1 curtsy-1"));
        assert!(signed("1.0 fred, 1.1 CURTSY-1 (x), 1.1 p"));
        assert!(!signed("1.1 curtsy-12"));
        assert!(!signed("1.1 my-curtsy-1"));
        assert!(!signed("1.1 p (curtsy-1)"));
    }

    #[test]
    fn signs_behind_the_others() {
        let mut headers = HeaderMap::new();
        headers.insert(header::VIA, "1.1 first".parse().unwrap());
        Identity::new("curtsy-1").sign(&mut headers, Version::HTTP_10);
        let all: Vec<_> = headers.get_all(header::VIA).iter().collect();
        assert_eq!(all, ["1.1 first", "1.0 curtsy-1"]);
    }
}
