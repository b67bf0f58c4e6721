//! The errors on the way to an origin, by stage.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use rustls::InvalidMessage;

use super::guard::Denied;
use super::tls_fault::{CertificateFault, HandshakeFault, alert_words, of_certificate};
use crate::politeness::fault::OriginFault;

#[derive(Debug)]
pub enum UpstreamError {
    /// The name has no address. The text is the resolver's.
    Dns(String),
    DnsTimeout,
    /// Too many requests wait for name look-ups: a refusal, with the time after which to retry.
    DnsBusy(Duration),
    /// The address guard refused: a refusal, not a failure.
    Denied(Denied),
    Refused,
    Unroutable,
    Connect(io::Error),
    ConnectTimeout,
    /// The origin could not prove its identity.
    Certificate(CertificateFault),
    /// The TLS handshake failed for another reason.
    Handshake(HandshakeFault),
    /// The parent proxy did not open a tunnel.
    Parent(u16),
    /// The origin switched to a protocol that was not asked for.
    Upgrade,
    /// The connection was closed before the response head was complete.
    Closed,
    Reset,
    /// The origin accepted nothing of the request body for too long.
    WriteTimeout,
    ResponseTimeout,
    HeadTooLarge,
    /// Not HTTP, or HTTP that cannot be framed safely.
    Protocol(String),
    /// A transfer coding that cannot be passed on.
    TransferCoding,
    /// A status code below 100. Codes from 600 to 999 are passed on: a client has to treat them as 5xx (RFC 9110,
    /// section 15), and some origins answer crawlers with 999.
    Status(u16),
    /// The client's own body was cut off or malformed; the origin is not to blame.
    RequestBody(BodyFault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    Malformed,
    Stalled,
    Left,
}

impl UpstreamError {
    /// Whether the host failed, and not the client or the operator's rules.
    pub fn blames_the_origin(&self) -> bool {
        !matches!(
            self,
            UpstreamError::Denied(_)
                | UpstreamError::RequestBody(_)
                | UpstreamError::Parent(_)
                | UpstreamError::DnsBusy(_)
        )
    }

    /// The failure in one word; `None` if the origin is not to blame.
    pub fn fault(&self) -> Option<OriginFault> {
        Some(match self {
            UpstreamError::Dns(_) => OriginFault::NoName,
            UpstreamError::DnsTimeout => OriginFault::LookupTimeout,
            UpstreamError::Refused => OriginFault::Refused,
            UpstreamError::Unroutable => OriginFault::NoRoute,
            UpstreamError::ConnectTimeout => OriginFault::ConnectTimeout,
            UpstreamError::Connect(_) | UpstreamError::Parent(_) => OriginFault::NotConnected,
            UpstreamError::Certificate(_) | UpstreamError::Handshake(_) => OriginFault::Tls,
            UpstreamError::Closed | UpstreamError::Reset => OriginFault::Closed,
            UpstreamError::WriteTimeout | UpstreamError::ResponseTimeout => OriginFault::Silent,
            UpstreamError::Upgrade
            | UpstreamError::HeadTooLarge
            | UpstreamError::Protocol(_)
            | UpstreamError::TransferCoding
            | UpstreamError::Status(_) => OriginFault::Garbled,
            UpstreamError::DnsBusy(_) | UpstreamError::Denied(_) | UpstreamError::RequestBody(_) => return None,
        })
    }

    /// Returns the error that stands for a connection that could not be opened; `None` for other faults.
    pub fn of_no_connection(fault: OriginFault) -> Option<UpstreamError> {
        Some(match fault {
            OriginFault::NoName => UpstreamError::Dns(fault.text().to_owned()),
            OriginFault::LookupTimeout => UpstreamError::DnsTimeout,
            OriginFault::Refused => UpstreamError::Refused,
            OriginFault::NoRoute => UpstreamError::Unroutable,
            OriginFault::ConnectTimeout => UpstreamError::ConnectTimeout,
            OriginFault::NotConnected => UpstreamError::Connect(io::Error::other("no connection could be opened")),
            OriginFault::Tls
            | OriginFault::Closed
            | OriginFault::Silent
            | OriginFault::Garbled
            | OriginFault::Elsewhere => return None,
        })
    }

    /// Whether no connection to the address could be opened, so that another address may be tried.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            UpstreamError::Refused
                | UpstreamError::Unroutable
                | UpstreamError::Connect(_)
                | UpstreamError::ConnectTimeout
        )
    }

    /// Returns the same error for another request that waited for the same connection.
    pub(super) fn again(&self) -> Self {
        match self {
            UpstreamError::Dns(text) => UpstreamError::Dns(text.clone()),
            UpstreamError::DnsTimeout => UpstreamError::DnsTimeout,
            UpstreamError::DnsBusy(retry_after) => UpstreamError::DnsBusy(*retry_after),
            UpstreamError::Denied(denied) => UpstreamError::Denied(denied.clone()),
            UpstreamError::Refused => UpstreamError::Refused,
            UpstreamError::Unroutable => UpstreamError::Unroutable,
            UpstreamError::Connect(error) => UpstreamError::Connect(io::Error::new(error.kind(), error.to_string())),
            UpstreamError::ConnectTimeout => UpstreamError::ConnectTimeout,
            UpstreamError::Certificate(fault) => UpstreamError::Certificate(fault.clone()),
            UpstreamError::Handshake(fault) => UpstreamError::Handshake(fault.clone()),
            UpstreamError::Parent(status) => UpstreamError::Parent(*status),
            UpstreamError::Upgrade => UpstreamError::Upgrade,
            UpstreamError::Closed => UpstreamError::Closed,
            UpstreamError::Reset => UpstreamError::Reset,
            UpstreamError::WriteTimeout => UpstreamError::WriteTimeout,
            UpstreamError::ResponseTimeout => UpstreamError::ResponseTimeout,
            UpstreamError::HeadTooLarge => UpstreamError::HeadTooLarge,
            UpstreamError::Protocol(text) => UpstreamError::Protocol(text.clone()),
            UpstreamError::TransferCoding => UpstreamError::TransferCoding,
            UpstreamError::Status(status) => UpstreamError::Status(*status),
            UpstreamError::RequestBody(fault) => UpstreamError::RequestBody(*fault),
        }
    }

    pub(super) fn connecting(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => UpstreamError::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => UpstreamError::Unroutable,
            io::ErrorKind::TimedOut => UpstreamError::ConnectTimeout,
            _ => UpstreamError::Connect(error),
        }
    }

    /// Converts an error that occurs between the request and the response head.
    pub(super) fn reading(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => UpstreamError::ResponseTimeout,
            io::ErrorKind::UnexpectedEof => UpstreamError::Closed,
            // In TLS 1.3 a server can still refuse when the client considers the handshake complete.
            io::ErrorKind::InvalidData => UpstreamError::tls(error),
            _ => UpstreamError::Reset,
        }
    }

    /// Returns what an error of a TLS stream means.
    pub(super) fn tls(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        UpstreamError::Handshake(match inner {
            Some(rustls::Error::InvalidCertificate(fault)) => return UpstreamError::Certificate(of_certificate(fault)),
            Some(rustls::Error::AlertReceived(alert)) => HandshakeFault::Alert(alert_words(*alert)),
            Some(rustls::Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            )) => HandshakeFault::NotTls,
            Some(rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol) => {
                HandshakeFault::NothingInCommon
            }
            Some(other) => HandshakeFault::Other(other.to_string()),
            None => match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    HandshakeFault::Closed
                }
                _ => HandshakeFault::Other(error.to_string()),
            },
        })
    }

    /// Whether the origin cannot have begun to respond, so that a request that is safe to repeat may be sent again.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self, UpstreamError::Closed | UpstreamError::Reset)
    }
}

/// Returns the first cause of this type. hyper wraps what our own streams and bodies report.
pub(super) fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamError::Dns(text) => write!(f, "the name does not resolve: {text}"),
            UpstreamError::DnsTimeout => f.write_str("the name did not resolve in time"),
            UpstreamError::DnsBusy(_) => f.write_str("too many names wait to be looked up"),
            UpstreamError::Denied(denied) => denied.fmt(f),
            UpstreamError::Refused => f.write_str("connection refused"),
            UpstreamError::Unroutable => f.write_str("no route to the host"),
            UpstreamError::Connect(error) => write!(f, "cannot connect: {error}"),
            UpstreamError::ConnectTimeout => f.write_str("connecting took too long"),
            UpstreamError::Certificate(fault) => fault.fmt(f),
            UpstreamError::Handshake(fault) => fault.fmt(f),
            UpstreamError::Parent(status) => write!(f, "the parent proxy answered {status}"),
            UpstreamError::Upgrade => f.write_str("the origin switched to a protocol that was not asked for"),
            UpstreamError::Closed => f.write_str("closed without an answer"),
            UpstreamError::Reset => f.write_str("connection reset before an answer"),
            UpstreamError::WriteTimeout => f.write_str("the request was not taken in time"),
            UpstreamError::ResponseTimeout => f.write_str("no answer in time"),
            UpstreamError::HeadTooLarge => f.write_str("the response head is too large"),
            UpstreamError::Protocol(text) => write!(f, "not an HTTP response: {text}"),
            UpstreamError::TransferCoding => f.write_str("the response uses a transfer coding other than chunked"),
            UpstreamError::Status(status) => write!(f, "the response has status {status}, which HTTP does not know"),
            UpstreamError::RequestBody(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BodyFault::Malformed => "the request body is malformed",
            BodyFault::Stalled => "the request body stalled",
            BodyFault::Left => "the client left in the middle of the request body",
        })
    }
}

impl Error for UpstreamError {}
impl Error for BodyFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_socket_is_no_mystery() {
        let fault = UpstreamError::tls(&io::ErrorKind::ConnectionReset.into());
        assert!(matches!(fault, UpstreamError::Handshake(HandshakeFault::Closed)));
    }
}
