//! Clients that do not trust curtsy's certificates: how that shows, what the log says, and which tunnels are left
//! alone.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use quick_cache::sync::Cache;
use rustls::AlertDescription;
use tokio::time::Instant;

use crate::clock;
use crate::politeness::HostKey;
use crate::programs::{self, TrustWay};
use crate::telemetry::LogLimiter;

/// How long such a client's tunnels to the host are not intercepted. Long enough for a crawl to go on, short enough
/// that a client that was fixed is noticed.
const LEFT_ALONE: Duration = Duration::from_secs(10 * 60);
/// Clients and hosts remembered, at about 100 bytes each.
const MOST: usize = 4096;
/// Logged at most once in this time for each client, and each of its programs.
const REPEAT: Duration = Duration::from_secs(60 * 60);

/// Which clients have rejected our certificate, and for which hosts; and what was logged about which client.
#[derive(Debug)]
pub(crate) struct CaRejections {
    left_alone: Cache<(IpAddr, HostKey), Instant>,
    /// In `curtsy exec`: clients that have sent a request in an intercepted tunnel to the host.
    trusting: Cache<(IpAddr, HostKey), ()>,
    /// In `curtsy exec`: tunnels are left alone as long as this proxy runs, and the advice is about its options.
    for_one_command: AtomicBool,
    /// By address and name of the program.
    said: Cache<(IpAddr, &'static str), Arc<LogLimiter>>,
}

impl Default for CaRejections {
    fn default() -> Self {
        let (left_alone, trusting, said) = (Cache::new(MOST), Cache::new(MOST), Cache::new(MOST));
        CaRejections { left_alone, trusting, for_one_command: AtomicBool::new(false), said }
    }
}

impl CaRejections {
    /// For the proxy of one command, which ends before a client could be fixed.
    pub(crate) fn serve_one_command(&self) {
        self.for_one_command.store(true, Relaxed);
    }

    /// Notes a rejection. Returns whether it is the first of this client for the host in a while.
    fn note(&self, client: IpAddr, host: &HostKey) -> bool {
        let first = !self.knows(client, host);
        self.left_alone.insert((client, host.clone()), clock::now() + LEFT_ALONE);
        first
    }

    pub(crate) fn knows(&self, client: IpAddr, host: &HostKey) -> bool {
        let until = self.left_alone.get(&(client, host.clone()));
        until.is_some_and(|until| self.for_one_command.load(Relaxed) || clock::now() < until)
    }

    /// Notes that the client has sent a request to this host in an intercepted tunnel. Only for one command: in a proxy
    /// that runs for long, a client may lose its trust when the CA is replaced.
    pub(crate) fn note_trust(&self, client: IpAddr, host: &HostKey) {
        if self.for_one_command.load(Relaxed) && !self.trusts(client, host) {
            self.trusting.insert((client, host.clone()), ());
        }
    }

    /// Whether the client has trusted our certificate for this host before, so that leaving early is no rejection.
    pub(crate) fn trusts(&self, client: IpAddr, host: &HostKey) -> bool {
        self.trusting.get(&(client, host.clone())).is_some()
    }

    /// Notes that a client has rejected our certificate, and logs the client and what it needs.
    pub(crate) fn note_and_tell(
        &self,
        client: IpAddr,
        host: &HostKey,
        agent: Option<&str>,
        rejection: Rejection,
        tunnels: bool,
    ) {
        let program = programs::of_user_agent(agent.unwrap_or_default());
        let first = self.note(client, host);
        if self.for_one_command.load(Relaxed) {
            if first {
                tell_user(host, program, rejection, tunnels);
            }
            return;
        }
        let Some(more) = self.may_speak(client, program.map_or("", |program| program.name)) else { return };
        let trust = program.map_or_else(|| programs::USUAL_TRUST.to_owned(), |program| program.trust.words());
        let then = if tunnels { "; its tunnels to this host are not intercepted for 10 minutes" } else { "" };
        let (how, agent) = (rejection.words(), agent.unwrap_or("a client"));
        tracing::warn!(
            event = "client.untrusting", %client, %host, agent, more,
            "{agent} does not trust curtsy's CA: {how}. The CA is at http://curtsy.invalid/ca.pem through this proxy, \
             or from: curtsy ca export (bundle.pem: --format bundle). Then {trust}, or list the host in tls.bypass{then}"
        );
    }

    /// Returns how often this was not logged since the last time, if it may be logged now.
    fn may_speak(&self, client: IpAddr, program: &'static str) -> Option<u64> {
        let key = (client, program);
        let seldom = self.said.get(&key).unwrap_or_else(|| {
            let seldom = Arc::new(LogLimiter::new());
            self.said.insert(key, seldom.clone());
            seldom
        });
        seldom.may_speak(REPEAT)
    }
}

/// Tells the user of `curtsy exec`, once for each host. Variables that make clients trust the CA are set already.
fn tell_user(host: &HostKey, program: Option<&programs::Program>, rejection: Rejection, tunnels: bool) {
    let (how, name) = (rejection.words(), program.map_or("the command", |program| program.name));
    let then = match tunnels {
        true => format!("HTTPS to it is tunnelled from now on, unread; --bypass {host} does so from the start"),
        false => format!("--bypass {host} tunnels HTTPS to it, unread"),
    };
    let trust = match program.map(|program| program.trust) {
        Some(TrustWay::Other(words)) => format!(". To have it read: {words}; the files are beside $SSL_CERT_FILE"),
        _ => String::new(),
    };
    tracing::warn!(event = "client.untrusting", %host, "{name} rejected curtsy's certificate for {host}: {how}. {then}{trust}");
}

/// How a client shows that it does not trust a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// It sends an alert.
    Alert(AlertDescription),
    /// It closes in the middle of the handshake.
    Closed,
    /// It disconnects after the handshake, without a request.
    Left,
}

impl Rejection {
    pub(crate) fn in_handshake(error: &io::Error) -> Option<Self> {
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
            Rejection::Closed => "it closed the connection when it saw the certificate".to_owned(),
            Rejection::Left => "it left at once, without a request".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (untrusting, client) = (CaRejections::default(), IpAddr::from([127, 0, 0, 1]));
        let [a, b] = ["a.test", "b.test"].map(|name| HostKey::parse(name).unwrap());
        untrusting.note(client, &a);
        assert!(untrusting.knows(client, &a) && !untrusting.knows(client, &b));
        assert!(!untrusting.knows(IpAddr::from([127, 0, 0, 2]), &a));
        tokio::time::advance(LEFT_ALONE).await;
        assert!(!untrusting.knows(client, &a));
    }

    #[tokio::test(start_paused = true)]
    async fn the_proxy_of_one_command_leaves_it_alone_to_the_end() {
        let (untrusting, client) = (CaRejections::default(), IpAddr::from([127, 0, 0, 1]));
        let [a, b] = ["a.test", "b.test"].map(|name| HostKey::parse(name).unwrap());
        untrusting.serve_one_command();
        untrusting.note(client, &a);
        tokio::time::advance(100 * LEFT_ALONE).await;
        assert!(untrusting.knows(client, &a) && !untrusting.knows(client, &b));
        assert!(!untrusting.note(client, &a) && untrusting.note(client, &b), "each host is reported once");
    }

    #[tokio::test(start_paused = true)]
    async fn each_program_of_each_client_is_named_once_an_hour() {
        let untrusting = CaRejections::default();
        let [here, there] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        assert_eq!(untrusting.may_speak(here, "curl"), Some(0));
        assert_eq!(untrusting.may_speak(here, "curl"), None);
        assert_eq!((untrusting.may_speak(here, ""), untrusting.may_speak(there, "curl")), (Some(0), Some(0)));
        tokio::time::advance(REPEAT).await;
        assert_eq!(untrusting.may_speak(here, "curl"), Some(1));
    }

    #[test]
    fn many_clients_are_not_remembered_for_ever() {
        let (untrusting, host) = (CaRejections::default(), HostKey::parse("a.test").unwrap());
        for n in 0..20_000u32 {
            untrusting.note(IpAddr::from(n.to_be_bytes()), &host);
        }
        assert!(untrusting.left_alone.len() <= MOST);
    }
}
