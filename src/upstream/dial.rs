//! Opens connections: resolves the name, lets the guard judge the addresses, and connects to one of those addresses.
//!
//! Addresses are raced as in RFC 8305, 250 ms apart, alternating between the families. If lanes are per address, only
//! the lane's address is dialled. Nothing is resolved again between judging and connecting, so a name cannot change in
//! between.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::Terms;
use super::error::UpstreamError;
use super::guard::Denied;
use super::resolve::Resolver;
use crate::clock;
use crate::config;
use crate::politeness::HostKey;

/// RFC 8305, section 5: the recommended pause before the next address is tried.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// A fresh TCP connection.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) stream: TcpStream,
    /// When `connect_timeout` is over. It covers everything that makes the connection ready.
    pub(super) until: Instant,
}

/// Opens a TCP connection to an address that the guard has approved.
pub(super) async fn connect(
    resolver: &Resolver,
    terms: Terms<'_>,
    host: &HostKey,
    port: u16,
) -> Result<Dialled, UpstreamError> {
    let Terms { config, guard, client, .. } = terms;
    let mut ips = resolver.lookup(host, client, config.dns_timeout).await?;
    guard.judge(host, port, &ips).map_err(UpstreamError::Denied)?;
    if let Some(only) = terms.only {
        // The name may have got other addresses while the request waited. The request still goes to the address of its
        // lane.
        ips = Arc::new([only]);
        guard.judge(host, port, &ips).map_err(UpstreamError::Denied)?;
    }
    let dialled = reach(&ips, port, config).await?;
    if let Some(only) = terms.only {
        resolver.reached(host, only);
    }
    if dialled.stream.peer_addr().is_ok_and(|peer| guard.is_own_connection(peer)) {
        return Err(UpstreamError::Denied(Denied::Own));
    }
    Ok(dialled)
}

/// Opens a TCP connection to the parent proxy. The operator named it, so the guard is not asked.
pub(super) async fn connect_parent(
    resolver: &Resolver,
    terms: Terms<'_>,
    parent: &config::ParentProxy,
) -> Result<Dialled, UpstreamError> {
    let host = HostKey::parse(&parent.host).map_err(|error| UpstreamError::Dns(error.to_string()))?;
    let ips = resolver.lookup(&host, terms.client, terms.config.dns_timeout).await?;
    reach(&ips, parent.port, terms.config).await
}

async fn reach(ips: &Arc<[IpAddr]>, port: u16, config: &config::Upstream) -> Result<Dialled, UpstreamError> {
    let until = clock::now() + config.connect_timeout;
    let connecting = async {
        match **ips {
            [ip] => open(SocketAddr::new(ip, port), config.bind).await,
            _ => race(interleaved(ips), port, config.bind).await,
        }
    };
    let stream = timeout_at(until, connecting)
        .await
        .map_err(|_| UpstreamError::ConnectTimeout)?
        .map_err(UpstreamError::connecting)?;
    // Requests are written whole; waiting for more data to fill a packet would only delay them.
    stream.set_nodelay(true).map_err(UpstreamError::connecting)?;
    Ok(Dialled { stream, until })
}

async fn race(ips: Vec<IpAddr>, port: u16, bind: Option<IpAddr>) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut next = ips.into_iter();
    let mut last_error = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        let more = next.next();
        let is_last = more.is_none();
        if let Some(ip) = more {
            attempts.spawn(open(SocketAddr::new(ip, port), bind));
        }
        let outcome = if is_last {
            attempts.join_next().await
        } else {
            match timeout(NEXT_ADDRESS_AFTER, attempts.join_next()).await {
                Ok(outcome) => outcome,
                Err(_) => continue,
            }
        };
        match outcome {
            None => return Err(last_error),
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => last_error = error,
            Some(Err(_)) => {}
        }
    }
}

async fn open(address: SocketAddr, bind: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(source) = bind.filter(|source| source.is_ipv4() == address.is_ipv4()) else {
        return TcpStream::connect(address).await;
    };
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

/// Returns IPv6 and IPv4 addresses in turn, starting with the family that the resolver put first.
fn interleaved(ips: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v6 = ips.first().is_some_and(IpAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) = ips.iter().copied().partition(|ip| ip.is_ipv6() == first_is_v6);
    first.reverse();
    second.reverse();
    let mut order = Vec::with_capacity(ips.len());
    while let Some(ip) = first.pop() {
        order.push(ip);
        order.extend(second.pop());
    }
    order.extend(second.into_iter().rev());
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns() {
        assert_eq!(interleaved(&ips(&["::1", "::2", "::3", "1.1.1.1"])), ips(&["::1", "1.1.1.1", "::2", "::3"]));
        assert_eq!(interleaved(&ips(&["1.1.1.1", "1.1.1.2", "::1"])), ips(&["1.1.1.1", "::1", "1.1.1.2"]));
    }

    #[tokio::test]
    async fn a_dead_first_address_does_not_stop_the_second() {
        let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = race(ips(&["127.0.0.3", "127.0.0.2"]), port, None).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 2]));
    }

    #[tokio::test]
    async fn when_all_fail_the_last_error_is_told() {
        let error = race(ips(&["127.0.0.3", "127.0.0.2"]), 1, None).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
