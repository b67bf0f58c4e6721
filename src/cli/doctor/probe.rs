//! Asks a proxy whether it is curtsy: requests `http://probe.curtsy.invalid/`, which only curtsy answers.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use url::Url;

use crate::cli::admin::CONNECT_PATIENCE;
use crate::cli::http::{self, HttpResponse};

pub(super) const HTTP: &str = "http://probe.curtsy.invalid/";
pub(super) const HTTPS: &str = "https://probe.curtsy.invalid/";
/// This text is in every answer to a probe.
pub(super) const MARK: &str = r#""probe":"curtsy""#;

const PATIENCE: Duration = Duration::from_secs(3);
/// The largest answer in bytes; more than any answer has.
const LONGEST_ANSWER: u64 = 1 << 20;

/// The answer to a probe.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Probe {
    pub(super) version: String,
    pub(super) name: String,
    pub(super) client: String,
    /// Whether the proxy decrypts HTTPS.
    pub(super) intercepts: bool,
    pub(super) mode: String,
    pub(super) max_wait_s: f64,
}

/// What answered at an address.
#[derive(Clone, Debug)]
pub(super) enum ProbeAnswer {
    Curtsy(Box<Probe>),
    /// A proxy that requires a user and a password, or rejects those that it got.
    Stranger,
    /// Another server, with its status.
    Other(String),
    Nobody(String),
}

/// The address of a proxy, and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    /// `user:password`
    pub(super) credentials: Option<String>,
}

impl Proxy {
    pub(super) fn at(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            ip if ip.is_unspecified() && ip.is_ipv4() => [127, 0, 0, 1].into(),
            ip if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Proxy { address: SocketAddr::new(ip, address.port()), credentials: None }
    }

    /// Reads a URL with any scheme; the caller checks whether the scheme can be used.
    pub(super) fn of_url(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        let host = url.host_str().ok_or("it names no host")?;
        let port = url.port_or_known_default().unwrap_or(DEFAULT_PORT);
        let found = (host.trim_matches(['[', ']']), port).to_socket_addrs().map_err(|error| error.to_string())?.next();
        let address = found.ok_or_else(|| format!("{host} has no address"))?;
        let credentials = (!url.username().is_empty())
            .then(|| format!("{}:{}", decoded(url.username()), decoded(url.password().unwrap_or_default())));
        Ok(Proxy { address, credentials })
    }

    /// Returns the URL to show or paste, without user and password.
    pub(super) fn url(&self) -> String {
        match &self.credentials {
            Some(_) => format!("http://USER:PASSWORD@{}", self.address),
            None => format!("http://{}", self.address),
        }
    }

    /// Returns the URL to pass to programs, with user and password.
    pub(super) fn secret_url(&self) -> String {
        let (user, password) = self.credentials.as_deref().and_then(|pair| pair.split_once(':')).unwrap_or_default();
        let url = Url::parse(&format!("http://{}", self.address)).map(|mut url| {
            // Cannot fail: the URL has a host.
            let _ = url.set_username(user);
            let _ = url.set_password((!user.is_empty()).then_some(password));
            url
        });
        url.map_or_else(|_| self.url(), |url| url.as_str().trim_end_matches('/').to_owned())
    }

    pub(super) fn probe(&self) -> ProbeAnswer {
        match self.get(HTTP) {
            Err(error) => ProbeAnswer::Nobody(error.to_string()),
            Ok((407, _)) => ProbeAnswer::Stranger,
            Ok((status, body)) => match serde_json::from_str(&body) {
                Ok(probe) if body.contains(MARK) => ProbeAnswer::Curtsy(Box::new(probe)),
                _ if body.starts_with('{') && body.contains("curtsy") => {
                    ProbeAnswer::Other(format!("{status} of curtsy"))
                }
                _ => ProbeAnswer::Other(status.to_string()),
            },
        }
    }

    /// Returns the CA that clients have to trust, in PEM.
    pub(super) fn ca(&self) -> Option<String> {
        self.get("http://curtsy.invalid/ca.pem").ok().filter(|(status, _)| *status == 200).map(|(_, body)| body)
    }

    fn get(&self, url: &str) -> io::Result<(u16, String)> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_PATIENCE)?;
        let authorization = self.credentials.as_ref().map_or_else(String::new, |credentials| {
            format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(credentials))
        });
        let request =
            format!("GET {url} HTTP/1.0\r\nHost: curtsy.invalid\r\nUser-Agent: curtsy-doctor\r\n{authorization}\r\n");
        http::begin(&stream, PATIENCE, &request)?;
        let response = HttpResponse::read(&stream).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP"),
            _ => error,
        })?;
        // A server that keeps the connection open anyway is not curtsy, but it has answered, so a timeout is no error.
        Ok((response.status, response.text(LONGEST_ANSWER).0))
    }
}

/// The port of a proxy URL without a port.
const DEFAULT_PORT: u16 = 3128;

fn decoded(text: &str) -> String {
    // The decoder is for form names, where `+`, `&` and `=` have a meaning, so these three are escaped first.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let mut query = url::form_urlencoded::parse(text.as_bytes());
    query.next().map(|(name, _)| name.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_an_address_and_credentials_that_are_not_shown() {
        let plain = Proxy::of_url("http://127.0.0.1:3128/").unwrap();
        assert_eq!((plain.url().as_str(), plain.credentials), ("http://127.0.0.1:3128", None));
        let secret = Proxy::of_url("http://ada:l%20+&ace@127.0.0.1:3128").unwrap();
        assert_eq!(secret.credentials.as_deref(), Some("ada:l +&ace"));
        assert_eq!(secret.url(), "http://USER:PASSWORD@127.0.0.1:3128");
        assert_eq!(secret.secret_url(), "http://ada:l%20+&ace@127.0.0.1:3128");
        assert!(Proxy::of_url("127.0.0.1:3128").is_err());
        assert_eq!(Proxy::at("0.0.0.0:1".parse().unwrap()).url(), "http://127.0.0.1:1");
    }
}
