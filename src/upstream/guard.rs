//! The address guard: decides which addresses clients may make curtsy visit.
//!
//! The very address that is dialled is judged, after resolution, so that no spelling, redirect or DNS answer gets round
//! it. Every address that is not on the public internet is refused unless the operator lists it
//! (`access.allow_destinations`), and curtsy's own listeners are refused always. A name with both public and private
//! addresses is refused as a whole, because DNS rebinding looks like that.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::config::Destination;
use crate::politeness::HostKey;

#[derive(Clone, Debug, Default)]
pub struct Guard {
    allow: Vec<Destination>,
    /// The addresses on which curtsy itself listens.
    own: Vec<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The address is of a kind that only the operator may allow.
    Address { ip: IpAddr, kind: &'static str },
    /// The port belongs to another protocol, where a request could do harm.
    Port(u16),
    /// A CONNECT port that is not in `access.connect_ports`.
    ConnectPort(u16),
    /// The address is one of curtsy's own listeners.
    Own,
}

impl Guard {
    pub fn new(allow: Vec<Destination>, own: Vec<SocketAddr>) -> Self {
        Guard { allow, own }
    }

    /// Judges all addresses that a host resolved to. One bad address refuses all of them.
    pub fn judge(&self, host: &HostKey, port: u16, ips: &[IpAddr]) -> Result<(), Denied> {
        if ips.iter().any(|ip| self.is_own(SocketAddr::new(*ip, port))) {
            return Err(Denied::Own);
        }
        if BAD_PORTS.contains(&port) || DATA_STORES.contains(&port) {
            return Err(Denied::Port(port));
        }
        if self.allows_host(host) {
            return Ok(());
        }
        for &ip in ips {
            if let Some(kind) = special(ip)
                && !self.allows_ip(ip)
            {
                return Err(Denied::Address { ip, kind });
            }
        }
        Ok(())
    }

    /// Judges a host that a parent proxy will resolve, by what can be known without an address.
    pub fn judge_unresolved(&self, host: &HostKey, port: u16) -> Result<(), Denied> {
        let name = host.as_str();
        let is_local = name == "localhost" || name.ends_with(".localhost");
        match host.ip() {
            Some(ip) => self.judge(host, port, &[ip]),
            None if is_local => self.judge(host, port, &[IpAddr::from([127, 0, 0, 1])]),
            None => self.judge(host, port, &[]),
        }
    }

    /// Whether a connection leads to a curtsy listener that accepts connections on every address of this machine.
    ///
    /// The connection's own source address says nothing: `upstream.bind` sets it.
    pub fn is_own_connection(&self, peer: SocketAddr) -> bool {
        self.own.iter().any(|own| own.port() == peer.port() && own.ip().is_unspecified()) && is_of_this_machine(peer)
    }

    fn is_own(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.own.iter().any(|own| {
            own.port() == address.port()
                && (own.ip().to_canonical() == ip
                    || ip.is_unspecified()
                    || (own.ip().is_unspecified() && ip.is_loopback()))
        })
    }

    fn allows_host(&self, host: &HostKey) -> bool {
        self.allow.iter().any(|entry| match entry {
            Destination::Host(pattern) => pattern.matches(host.as_str()),
            Destination::Net(_) => false,
        })
    }

    fn allows_ip(&self, ip: IpAddr) -> bool {
        let plain = innermost(ip);
        self.allow.iter().any(|entry| match entry {
            Destination::Net(net) => net.contains(&ip) || net.contains(&plain),
            Destination::Host(_) => false,
        })
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Address { ip, kind } => write!(f, "{ip} is {kind}"),
            Denied::Port(port) => write!(f, "port {port} belongs to another protocol"),
            Denied::ConnectPort(port) => write!(f, "CONNECT to port {port} is not allowed"),
            Denied::Own => f.write_str("that is curtsy itself"),
        }
    }
}

/// Whether the address is one of this machine's: no socket can be bound to any other. If the system does not give a
/// clear answer (no descriptor left, or `ip_nonlocal_bind`), returns true: a refused request does less harm than an
/// open admin listener.
fn is_of_this_machine(mut address: SocketAddr) -> bool {
    address.set_port(0);
    !matches!(UdpSocket::bind(address), Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// The bad ports of the Fetch standard (section 2.9, "Port blocking"), all of them: mail, remote shells, telephony and
/// the like, where a request can be a command. Browsers do not fetch from them either.
const BAD_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
    5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

/// Ports of file shares and databases. They are not in that list, and these protocols also read commands line by line:
/// SMB, MySQL, PostgreSQL, Redis, memcached.
const DATA_STORES: [u16; 5] = [445, 3306, 5432, 6379, 11211];

/// Returns what is special about an address, or None if it is on the public internet.
fn special(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => special_v4(v4).or_else(|| special_v6(v6)),
            None => special_v6(v6),
        },
    }
}

fn innermost(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => embedded_v4(v6).map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// Checks IANA's special-purpose registry, and the metadata services with addresses outside it.
fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = ip.octets();
    Some(match (a, b, c, d) {
        (127, ..) => "a loopback address",
        (169, 254, 169, 254) | (169, 254, 170, 2) | (100, 100, 100, 200) | (192, 0, 0, 192) | (168, 63, 129, 16) => {
            "a cloud metadata address"
        }
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => "a private address",
        (169, 254, ..) => "a link-local address",
        (100, 64..=127, ..) => "a shared (carrier) address",
        (0, ..) => "an address of this network",
        (192, 0, 0 | 2, _) | (198, 51, 100, _) | (203, 0, 113, _) | (192, 88, 99, _) => "a reserved address",
        (198, 18..=19, ..) => "a benchmarking address",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return None,
    })
}

/// Checks the same for IPv6, with two exceptions. All of 2001::/23 (IETF protocol assignments) is refused, although the
/// registry lists a few of its parts as globally reachable: they are relays (2001:1::1, 2001:3::/32), name servers
/// (2001:4:112::/48) and identifiers (2001:20::/28, 2001:30::/28), none of them an origin. And 2620:4f:8000::/48
/// (AS112) passes, because the registry lists it as globally reachable.
fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let segments = ip.segments();
    let [s0, s1, s2, ..] = segments;
    Some(match () {
        () if ip.is_loopback() => "a loopback address",
        () if ip.is_unspecified() => "an address of this network",
        () if matches!((s0, s1), (0xfd00, 0x0ec2) | (0xfd20, 0x00ce)) => "a cloud metadata address",
        () if s0 & 0xfe00 == 0xfc00 => "a private address",
        () if s0 & 0xffc0 == 0xfe80 => "a link-local address",
        () if s0 & 0xffc0 == 0xfec0 => "a site-local address",
        () if s0 & 0xff00 == 0xff00 => "a multicast address",
        () if segments[..6] == [0; 6] => "an IPv4-compatible address",
        () if (s0, s1, s2) == (0x64, 0xff9b, 1) => "a local translation address",
        () if segments[..4] == [0x100, 0, 0, 0] => "a discard address",
        // RFC 9780: the dummy prefix.
        () if segments[..4] == [0x100, 0, 0, 1] => "a reserved address",
        () if s0 == 0x2001 && s1 < 0x200 => "a reserved address",
        () if (s0, s1) == (0x2001, 0x0db8) || s0 == 0x3fff && s1 & 0xf000 == 0 || s0 == 0x5f00 => "a reserved address",
        () => return None,
    })
}

/// Returns the IPv4 address that a packet to this IPv6 address reaches: mapped, SIIT (RFC 2765), NAT64, 6to4, ISATAP.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = ip.segments();
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] => v4(high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => v4(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostPattern;

    fn kind(ip: &str) -> Option<&'static str> {
        special(ip.parse().unwrap())
    }

    #[test]
    fn public_addresses_pass() {
        for ip in [
            "1.1.1.1",
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2001:200::1",
            "64:ff9b::101:101",
        ] {
            assert_eq!(kind(ip), None, "{ip}");
        }
    }

    #[test]
    fn special_addresses_do_not() {
        let v4 = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.1.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
        ];
        let v6 = [
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:0:127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:1::1",
            "2001:1:0:1::1",
            "2001:2::1",
            "2001:2:1::1",
            "2001:3::1",
            "2001:4:112::1",
            "2001:5::1",
            "2001:30::1",
            "2001:1ff::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "2001:470::5efe:10.0.0.1",
        ];
        for ip in v4.iter().chain(&v6) {
            assert!(kind(ip).is_some(), "{ip} passed");
        }
    }

    fn guard(allow: &[Destination]) -> Guard {
        Guard::new(allow.to_vec(), vec!["127.0.0.1:3128".parse().unwrap(), "0.0.0.0:3129".parse().unwrap()])
    }

    fn judge(guard: &Guard, host: &str, port: u16, ips: &[&str]) -> Result<(), Denied> {
        let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        guard.judge(&HostKey::parse(host).unwrap(), port, &ips)
    }

    /// X2
    #[test]
    fn one_private_address_spoils_the_set() {
        assert!(judge(&guard(&[]), "a.test", 80, &["1.1.1.1", "10.0.0.1"]).is_err());
        assert!(judge(&guard(&[]), "a.test", 80, &["1.1.1.1"]).is_ok());
    }

    #[test]
    fn the_operator_may_open_networks_and_hosts() {
        let net = guard(&[Destination::Net("10.0.0.0/8".parse().unwrap())]);
        assert!(judge(&net, "a.test", 80, &["10.1.2.3"]).is_ok());
        assert!(judge(&net, "a.test", 80, &["::ffff:10.1.2.3"]).is_ok());
        assert!(judge(&net, "a.test", 80, &["192.168.0.1"]).is_err());
        let host = guard(&[Destination::Host(HostPattern::Below("corp.test".into()))]);
        assert!(judge(&host, "wiki.corp.test", 80, &["192.168.0.1"]).is_ok());
        assert!(judge(&host, "corp.test", 80, &["192.168.0.1"]).is_err());
    }

    #[test]
    fn curtsy_itself_cannot_be_allowed() {
        let open = guard(&[Destination::Net("127.0.0.0/8".parse().unwrap()), Destination::Host(HostPattern::Any)]);
        assert_eq!(judge(&open, "localhost", 3128, &["127.0.0.1"]), Err(Denied::Own));
        assert_eq!(judge(&open, "localhost", 3129, &["127.0.0.9"]), Err(Denied::Own));
        assert_eq!(judge(&open, "localhost", 3128, &["0.0.0.0"]), Err(Denied::Own));
        assert!(judge(&open, "localhost", 3128, &["127.0.0.2"]).is_ok());
        let leads_here = |peer: &str| open.is_own_connection(peer.parse().unwrap());
        assert!(leads_here("127.0.0.77:3129"), "it listens on every address of this machine");
        assert!(!leads_here("127.0.0.77:3130"));
        assert!(!leads_here("198.51.100.77:3129"), "a documentation address is no machine's");
        assert!(!leads_here("127.0.0.77:3128"), "that listener is on one address");
    }

    #[test]
    fn ports_of_other_protocols_are_refused() {
        for port in [0, 1, 7, 25, 43, 79, 514, 636, 2049, 5060, 6000, 6667, 6697, 10080, 445, 3306, 5432, 6379, 11211] {
            assert_eq!(judge(&guard(&[]), "a.test", port, &["1.1.1.1"]), Err(Denied::Port(port)));
        }
        for port in [80, 443, 591, 1024, 3000, 5000, 6001, 8000, 8080, 8443, 10000, 65535] {
            assert_eq!(judge(&guard(&[]), "a.test", port, &["1.1.1.1"]), Ok(()));
        }
    }
}
