//! What a request is aimed at. Read once; after this no code looks at the request line or the Host field again.
//!
//! The target decides, never the Host field (RFC 9112, section 3.2.2): two parsers that disagree about the host are how
//! requests reach places they must not.

use std::cell::RefCell;

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, Uri, Version};
use smol_str::SmolStr;

use super::headers::has;
use crate::politeness::{BadHost, HostKey, Origin, Scheme};
use crate::proxy::answer::failure::{BadRequest, Failure, Refusal};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `GET http://host/path`, or `https://` of a client that leaves TLS to us: to be forwarded.
    Forward(Origin),
    /// `CONNECT host:port`: a tunnel.
    Tunnel { host: HostKey, port: u16 },
    /// `GET /path` or `OPTIONS *`: meant for curtsy itself, never proxied.
    Own,
}

impl Target {
    pub fn read(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Target, BadRequest> {
        check_host_field(headers)?;
        match (uri.scheme(), uri.authority()) {
            _ if method == Method::CONNECT => tunnel(uri),
            (Some(scheme), Some(authority)) => {
                let scheme = match scheme.as_str() {
                    "http" => Scheme::Http,
                    "https" => Scheme::Https,
                    _ => return Err(BadRequest::Scheme),
                };
                Ok(Target::Forward(origin(scheme, authority)?))
            }
            (None, None) => Ok(Target::Own),
            _ => Err(BadRequest::Form),
        }
    }
}

thread_local! {
    /// The last authority that was read, and its origin. Most requests are for the origin of the one before, and
    /// reading it takes 4 % of a hit.
    static LAST_ORIGIN: RefCell<Option<(SmolStr, Origin)>> = const { RefCell::new(None) };
}

fn origin(scheme: Scheme, authority: &Authority) -> Result<Origin, BadRequest> {
    LAST_ORIGIN.with_borrow_mut(|last| match last {
        Some((text, origin)) if text == authority.as_str() && origin.scheme == scheme => Ok(origin.clone()),
        _ => {
            let (host, port) = split(authority)?;
            let port = port.map_or(Ok(scheme.default_port()), read_port)?;
            let origin = Origin { scheme, host: HostKey::parse(host)?, port };
            *last = Some((authority.as_str().into(), origin.clone()));
            Ok(origin)
        }
    })
}

/// Checks what must hold of a request whatever it is aimed at: HTTP/1.1 has a Host field (RFC 9112, section 3.2),
/// HTTP/2 an `:authority`, and `PRI` is not a method (RFC 9113, section 3.4). The h2 crate drops the scheme of a
/// request without an `:authority`, and a guess could send in the clear what was meant for `https`.
///
/// Inside a tunnel, the tunnel names the origin.
pub(crate) fn check(parts: &Parts, is_inside: bool) -> Result<(), BadRequest> {
    let is_named = is_inside || parts.uri.authority().is_some() || parts.uri.path() == "*";
    match parts.version {
        _ if parts.method.as_str() == "PRI" => Err(BadRequest::Preface),
        Version::HTTP_11 if !has(&parts.headers, &HOST) => Err(BadRequest::NoHost),
        Version::HTTP_2 if !is_named => Err(BadRequest::NoAuthority),
        _ => Ok(()),
    }
}

impl Target {
    /// Reads what a request inside a tunnel is aimed at: the tunnel's own origin. Anything else is refused. Most
    /// clients write only the path there, but some write the whole URI, and all HTTP/2 clients do.
    pub(crate) fn read_inside(
        tunnel: &Origin,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Target, Failure> {
        check_host_field(headers)?;
        if method == Method::CONNECT {
            return Err(BadRequest::ConnectInside.into());
        }
        let fits = |authority: &str| leads_to(authority, tunnel);
        let by_uri = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => scheme == tunnel.scheme.as_str() && fits(authority.as_str())?,
            (None, None) => true,
            _ => return Err(BadRequest::Form.into()),
        };
        // A request without Host is HTTP/1.0, or HTTP/2, which has its own field for it.
        let by_host = match headers.get(HOST) {
            Some(host) => fits(host.to_str().map_err(|_| BadRequest::Host(BadHost::Character))?)?,
            None => true,
        };
        if by_uri && by_host {
            Ok(Target::Forward(tunnel.clone()))
        } else {
            Err(Refusal::Misdirected(Box::new(tunnel.clone())).into())
        }
    }
}

/// Whether this authority means the tunnel's host and port.
fn leads_to(authority: &str, tunnel: &Origin) -> Result<bool, BadRequest> {
    // The spelling that nearly every client sends, accepted without parsing it.
    if tunnel.port == tunnel.scheme.default_port() && authority == tunnel.host.as_str() {
        return Ok(true);
    }
    let (host, port) = split_text(authority)?;
    let port = port.map_or(Ok(tunnel.scheme.default_port()), read_port)?;
    Ok(port == tunnel.port && HostKey::parse(host)? == tunnel.host)
}

fn tunnel(uri: &Uri) -> Result<Target, BadRequest> {
    let (None, Some(authority), None) = (uri.scheme(), uri.authority(), uri.path_and_query()) else {
        return Err(BadRequest::Form);
    };
    let (host, port) = split(authority)?;
    // RFC 9110, section 9.3.6: a CONNECT without a valid port is refused, not guessed.
    let port = read_port(port.ok_or(BadRequest::Port)?)?;
    Ok(Target::Tunnel { host: HostKey::parse(host)?, port })
}

/// Splits an authority into host and port text. Credentials in a URI are refused, never logged (RFC 9110, section
/// 4.2.4).
fn split(authority: &Authority) -> Result<(&str, Option<&str>), BadRequest> {
    split_text(authority.as_str())
}

fn split_text(text: &str) -> Result<(&str, Option<&str>), BadRequest> {
    // The first colon behind the last bracket. In one pass, because this runs for every request.
    let mut colon = None;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'@' => return Err(BadRequest::Userinfo),
            b']' => colon = None,
            b':' if colon.is_none() => colon = Some(at),
            _ => {}
        }
    }
    Ok(colon.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..]))))
}

fn read_port(text: &str) -> Result<u16, BadRequest> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadRequest::Port);
    }
    text.parse().ok().filter(|port| *port > 0).ok_or(BadRequest::Port)
}

/// Refuses more than one Host, or a list in one, whatever the target says (RFC 9112, section 3.2).
fn check_host_field(headers: &HeaderMap) -> Result<(), BadRequest> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(BadRequest::TwoHosts),
        (Some(host), None) if host.as_bytes().iter().any(|byte| matches!(byte, b',' | b' ' | b'@' | b'/')) => {
            Err(BadRequest::TwoHosts)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, target: &str) -> Result<String, String> {
        let uri: Uri = target.parse().map_err(|error| format!("not a URI: {error}"))?;
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        match Target::read(&method, &uri, &HeaderMap::new()) {
            Ok(Target::Forward(origin)) => Ok(origin.to_string()),
            Ok(Target::Tunnel { host, port }) => Ok(format!("tunnel {host}:{port}")),
            Ok(Target::Own) => Ok("own".to_owned()),
            Err(error) => Err(format!("{error:?}")),
        }
    }

    fn check(method: &str, target: &str, expected: &str) {
        assert_eq!(read(method, target).as_deref(), Ok(expected), "{method} {target}");
    }

    fn refuse(method: &str, targets: &[&str]) {
        for target in targets {
            assert!(read(method, target).is_err(), "{method} {target} gave {:?}", read(method, target));
        }
    }

    #[test]
    fn absolute_form_is_forwarded() {
        check("GET", "http://a.test/x", "http://a.test");
        check("GET", "HTTP://A.test:80/x", "http://a.test");
        check("GET", "http://a.test:8080", "http://a.test:8080");
        check("GET", "http://[::1]:8080/", "http://[::1]:8080");
        check("GET", "https://a.test/", "https://a.test");
    }

    /// What was read last must not answer for another target.
    #[test]
    fn each_target_has_its_own_origin() {
        check("GET", "http://a.test/x", "http://a.test");
        check("GET", "http://a.test/y", "http://a.test");
        check("GET", "https://a.test/y", "https://a.test");
        check("GET", "http://a.test:81/y", "http://a.test:81");
        refuse("GET", &["http://a.test:0/", "http://u@a.test:81/"]);
        check("GET", "http://b.test/", "http://b.test");
    }

    #[test]
    fn origin_form_is_for_curtsy_itself() {
        check("GET", "/", "own");
        check("OPTIONS", "*", "own");
    }

    #[test]
    fn connect_needs_a_host_and_a_port() {
        check("CONNECT", "a.test:443", "tunnel a.test:443");
        check("CONNECT", "[2001:db8::1]:443", "tunnel [2001:db8::1]:443");
        refuse("CONNECT", &["a.test", "a.test:", "a.test:0", "a.test:65536", "a.test:4294967739", "a.test:+443"]);
        refuse(
            "CONNECT",
            &["a.test:0x1bb", "a.test:443x", "u@a.test:443", "http://a.test:443/", "/x", "2001:db8::1:443"],
        );
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        refuse("GET", &["ftp://a.test/", "http://u:p@a.test/", "http://a@b/", "http:///b/", "http://a.test:99999/"]);
        refuse(
            "GET",
            &["http://a.test:/x:y", "http://a.test:-1/", "http://[::1%25lo]/", "http://[a.test]/", "a.test:80"],
        );
    }

    #[test]
    fn inside_a_tunnel_only_its_own_origin_is_meant() {
        let read = |tunnel: &str, target: &str, host: Option<&str>| {
            let uri: Uri = tunnel.parse().unwrap();
            let Ok(Target::Forward(origin)) = Target::read(&Method::GET, &uri, &HeaderMap::new()) else { panic!() };
            let headers = host.map(|host| (HOST, host.parse().unwrap())).into_iter().collect();
            match Target::read_inside(&origin, &Method::GET, &target.parse().unwrap(), &headers) {
                Ok(Target::Forward(origin)) => origin.to_string(),
                Err(Failure::Refused(Refusal::Misdirected(_))) => "misdirected".to_owned(),
                other => format!("{other:?}"),
            }
        };
        for (target, host) in [
            ("/", Some("a.test")),
            ("/", Some("A.test:443")),
            ("/", None),
            ("https://a.test/", Some("a.test")),
            ("https://a.test:443/", None),
        ] {
            assert_eq!(read("https://a.test/", target, host), "https://a.test", "{target} {host:?}");
        }
        for (target, host) in [
            ("/", Some("b.test")),
            ("/", Some("a.test:8443")),
            ("/", Some("a.test:80")),
            ("https://b.test/", Some("a.test")),
            ("https://a.test/", Some("b.test")),
            ("http://a.test/", Some("a.test")),
            ("https://a.test:444/", None),
        ] {
            assert_eq!(read("https://a.test/", target, host), "misdirected", "{target} {host:?}");
        }
        assert_eq!(read("https://a.test:444/", "/", Some("a.test")), "misdirected");
        assert_eq!(read("http://[::1]:81/", "/", Some("[::1]:81")), "http://[::1]:81");
        assert!(read("https://a.test/", "/", Some("a.test:x")).contains("Port"));
    }

    #[test]
    fn there_is_no_tunnel_in_a_tunnel() {
        let Ok(Target::Forward(origin)) =
            Target::read(&Method::GET, &"https://a.test/".parse().unwrap(), &HeaderMap::new())
        else {
            panic!()
        };
        let read = Target::read_inside(&origin, &Method::CONNECT, &"a.test:443".parse().unwrap(), &HeaderMap::new());
        assert!(matches!(read, Err(Failure::Bad(BadRequest::ConnectInside))), "{read:?}");
    }

    #[test]
    fn two_hosts_are_refused() {
        let uri: Uri = "http://a.test/".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.append(HOST, "a.test".parse().unwrap());
        assert!(Target::read(&Method::GET, &uri, &headers).is_ok());
        headers.append(HOST, "a.test".parse().unwrap());
        assert!(Target::read(&Method::GET, &uri, &headers).is_err());
        headers.insert(HOST, "a.test,b.test".parse().unwrap());
        assert!(Target::read(&Method::GET, &uri, &headers).is_err());
    }
}
