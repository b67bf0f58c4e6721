//! How an origin failed to answer, in one word: for robots.txt, for the state file, and for people.

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFault {
    NoName,
    LookupTimeout,
    Refused,
    NoRoute,
    ConnectTimeout,
    /// Any other failure to connect.
    NotConnected,
    Tls,
    /// The connection ended before the answer was complete.
    Closed,
    /// No answer in time.
    Silent,
    /// An answer that cannot be used.
    Garbled,
    /// A redirect leads to another host, which failed.
    Elsewhere,
}

impl OriginFault {
    pub const ALL: [OriginFault; 11] = [
        OriginFault::NoName,
        OriginFault::LookupTimeout,
        OriginFault::Refused,
        OriginFault::NoRoute,
        OriginFault::ConnectTimeout,
        OriginFault::NotConnected,
        OriginFault::Tls,
        OriginFault::Closed,
        OriginFault::Silent,
        OriginFault::Garbled,
        OriginFault::Elsewhere,
    ];

    /// The word in the API and in the state file. Words are an interface: add, never rename.
    pub fn word(self) -> &'static str {
        match self {
            OriginFault::NoName => "no-name",
            OriginFault::LookupTimeout => "lookup-timeout",
            OriginFault::Refused => "connection-refused",
            OriginFault::NoRoute => "no-route",
            OriginFault::ConnectTimeout => "connect-timeout",
            OriginFault::NotConnected => "not-connected",
            OriginFault::Tls => "tls-failed",
            OriginFault::Closed => "closed",
            OriginFault::Silent => "no-answer",
            OriginFault::Garbled => "not-http",
            OriginFault::Elsewhere => "redirect-failed",
        }
    }

    pub fn parse(word: &str) -> Option<OriginFault> {
        OriginFault::ALL.into_iter().find(|fault| fault.word() == word)
    }

    /// The fault for people.
    pub fn text(self) -> &'static str {
        match self {
            OriginFault::NoName => "no such name",
            OriginFault::LookupTimeout => "name look-up timed out",
            OriginFault::Refused => "connection refused",
            OriginFault::NoRoute => "no route to the host",
            OriginFault::ConnectTimeout => "connecting timed out",
            OriginFault::NotConnected => "cannot connect",
            OriginFault::Tls => "TLS failed",
            OriginFault::Closed => "connection closed without an answer",
            OriginFault::Silent => "no answer in time",
            OriginFault::Garbled => "unusable answer",
            OriginFault::Elsewhere => "its redirect leads to a host that failed",
        }
    }

    /// Whether no connection could be opened. No other request to the origin would fare better.
    pub fn is_no_connection(self) -> bool {
        match self {
            OriginFault::NoName
            | OriginFault::LookupTimeout
            | OriginFault::Refused
            | OriginFault::NoRoute
            | OriginFault::ConnectTimeout
            | OriginFault::NotConnected => true,
            OriginFault::Tls
            | OriginFault::Closed
            | OriginFault::Silent
            | OriginFault::Garbled
            | OriginFault::Elsewhere => false,
        }
    }
}

/// What came back from a host: the status of an answer, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostReply {
    Status(u16),
    Fault(OriginFault),
}

impl HostReply {
    pub fn status(self) -> Option<u16> {
        match self {
            HostReply::Status(status) => Some(status),
            HostReply::Fault(_) => None,
        }
    }

    pub fn fault(self) -> Option<OriginFault> {
        match self {
            HostReply::Status(_) => None,
            HostReply::Fault(fault) => Some(fault),
        }
    }

    /// The fault, if no connection could be opened.
    pub fn no_connection(self) -> Option<OriginFault> {
        self.fault().filter(|fault| fault.is_no_connection())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_known_by_its_word() {
        for fault in OriginFault::ALL {
            assert_eq!(OriginFault::parse(fault.word()), Some(fault));
            assert!(!fault.word().contains(' '), "the state file separates words by spaces");
        }
        assert_eq!(OriginFault::parse("tired"), None);
    }
}
