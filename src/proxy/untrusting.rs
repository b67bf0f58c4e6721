//! Clients that want no certificate of curtsy's: how that shows, what they are told, and who is left alone for it.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use quick_cache::sync::Cache;
use rustls::AlertDescription;
use tokio::time::Instant;

use crate::clock;
use crate::politeness::HostKey;
use crate::telemetry::Seldom;

/// How long such a client's tunnels to the host are not intercepted. Long enough for a crawl to get on, short enough
/// that a client which was put right is noticed.
const LEFT_ALONE: Duration = Duration::from_secs(10 * 60);
/// Clients and hosts remembered, at about 100 bytes each.
const MOST: usize = 4096;
/// Said once in this time.
const REPEAT: Duration = Duration::from_secs(60);

/// Which clients are left alone, and with which hosts.
#[derive(Debug)]
pub(super) struct Untrusting(Cache<(IpAddr, HostKey), Instant>);

impl Default for Untrusting {
    fn default() -> Self {
        Untrusting(Cache::new(MOST))
    }
}

impl Untrusting {
    pub(super) fn note(&self, client: IpAddr, host: &HostKey) {
        self.0.insert((client, host.clone()), clock::now() + LEFT_ALONE);
    }

    pub(super) fn knows(&self, client: IpAddr, host: &HostKey) -> bool {
        self.0.get(&(client, host.clone())).is_some_and(|until| clock::now() < until)
    }
}

/// How a client shows that it does not trust a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// It says so.
    Alert(AlertDescription),
    /// It closes in the middle of the handshake.
    Closed,
    /// It leaves after the handshake, without a request.
    Left,
}

impl Rejection {
    pub(super) fn in_handshake(error: &io::Error) -> Option<Self> {
        use AlertDescription::{
            AccessDenied, BadCertificate, CertificateExpired, CertificateRevoked, CertificateUnknown, UnknownCA,
            UnsupportedCertificate,
        };
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
        match (tls, error.kind()) {
            (
                Some(rustls::Error::AlertReceived(
                    alert @ (AccessDenied
                    | BadCertificate
                    | CertificateExpired
                    | CertificateRevoked
                    | CertificateUnknown
                    | UnknownCA
                    | UnsupportedCertificate),
                )),
                _,
            ) => Some(Rejection::Alert(*alert)),
            (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                Some(Rejection::Closed)
            }
            _ => None,
        }
    }

    fn words(self) -> String {
        match self {
            Rejection::Alert(alert) => format!("it answered with the alert {alert:?}"),
            Rejection::Closed => "it closed the connection at the sight of it".to_owned(),
            Rejection::Left => "it left at once, without a request".to_owned(),
        }
    }
}

/// Names the client and what it needs.
pub(super) fn tell(client: IpAddr, host: &HostKey, agent: Option<&str>, rejection: Rejection, tunnels: bool) {
    static SAID: Seldom = Seldom::new();
    let Some(more) = SAID.may_speak(REPEAT) else { return };
    let (how, fix) = (rejection.words(), advice(agent.unwrap_or_default()));
    let then = if tunnels { "; its tunnels to this host are not intercepted for 10 minutes" } else { "" };
    let agent = agent.unwrap_or("a client");
    tracing::warn!(
        event = "client.untrusting", %client, %host, agent, more,
        "{agent} does not trust curtsy's CA: {how}. The CA is at http://curtsy.invalid/ca.pem through this proxy, \
         or from: curtsy ca export. Then {fix}, or list the host in tls.bypass{then}"
    );
}

/// What makes a program trust one more CA, by how its User-Agent begins. Where a setting replaces all other roots, it
/// wants the bundle.
const ADVICE: [(&str, &str); 17] = [
    ("curl", "curl --cacert ca.pem, or CURL_CA_BUNDLE=bundle.pem"),
    ("wget", "wget --ca-certificate=bundle.pem: it reads no variable for it"),
    ("git", "GIT_SSL_CAINFO=bundle.pem"),
    ("python-requests", "REQUESTS_CA_BUNDLE=bundle.pem"),
    ("pip", "PIP_CERT=bundle.pem"),
    ("python", "SSL_CERT_FILE=bundle.pem"),
    ("scrapy", "SSL_CERT_FILE=bundle.pem"),
    ("npm", "npm_config_cafile=bundle.pem"),
    ("node", "NODE_EXTRA_CA_CERTS=ca.pem"),
    ("undici", "NODE_EXTRA_CA_CERTS=ca.pem"),
    ("axios", "NODE_EXTRA_CA_CERTS=ca.pem"),
    ("bun", "NODE_EXTRA_CA_CERTS=ca.pem"),
    ("deno", "DENO_CERT=ca.pem"),
    ("go-http-client", "SSL_CERT_FILE=bundle.pem"),
    ("java", "import ca.pem with keytool, or set javax.net.ssl.trustStore"),
    ("libwww-perl", "PERL_LWP_SSL_CA_FILE=bundle.pem"),
    ("mozilla", "import ca.pem into the browser, as an authority for web sites"),
];

fn advice(agent: &str) -> &'static str {
    let begins = |name: &str| agent.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let known = ADVICE.iter().find(|(name, _)| begins(name));
    known.map_or("SSL_CERT_FILE=bundle.pem for most programs (curtsy ca export --format bundle)", |(_, fix)| fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_told_its_own_remedy() {
        for (agent, has) in [
            ("curl/7.88.1", "--cacert"),
            ("Wget/1.21.3", "--ca-certificate"),
            ("python-requests/2.34", "REQUESTS_CA_BUNDLE"),
            ("python-httpx/0.28", "SSL_CERT_FILE"),
            ("node", "NODE_EXTRA_CA_CERTS"),
            ("Go-http-client/1.1", "SSL_CERT_FILE"),
            ("", "SSL_CERT_FILE"),
            ("é", "SSL_CERT_FILE"),
        ] {
            assert!(advice(agent).contains(has), "{agent}: {}", advice(agent));
        }
    }

    #[test]
    fn what_a_client_does_shows_what_it_thinks() {
        let alert = |alert| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert));
        assert_eq!(
            Rejection::in_handshake(&alert(AlertDescription::UnknownCA)),
            Some(Rejection::Alert(AlertDescription::UnknownCA))
        );
        assert_eq!(Rejection::in_handshake(&alert(AlertDescription::ProtocolVersion)), None);
        assert_eq!(Rejection::in_handshake(&io::ErrorKind::UnexpectedEof.into()), Some(Rejection::Closed));
        assert_eq!(Rejection::in_handshake(&io::ErrorKind::TimedOut.into()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_left_alone_for_a_while_and_with_that_host_only() {
        let (untrusting, client) = (Untrusting::default(), IpAddr::from([127, 0, 0, 1]));
        let [a, b] = ["a.test", "b.test"].map(|name| HostKey::parse(name).unwrap());
        untrusting.note(client, &a);
        assert!(untrusting.knows(client, &a) && !untrusting.knows(client, &b));
        assert!(!untrusting.knows(IpAddr::from([127, 0, 0, 2]), &a));
        tokio::time::advance(LEFT_ALONE).await;
        assert!(!untrusting.knows(client, &a));
    }

    #[test]
    fn many_clients_are_not_remembered_for_ever() {
        let (untrusting, host) = (Untrusting::default(), HostKey::parse("a.test").unwrap());
        for n in 0..20_000u32 {
            untrusting.note(IpAddr::from(n.to_be_bytes()), &host);
        }
        assert!(untrusting.0.len() <= MOST);
    }
}
