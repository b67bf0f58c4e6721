//! The text about failures on the way to the origin, and the kind under which metrics count them.

use http::StatusCode;

use super::{Failure, Refusal, RefusalText};
use crate::metrics::RequestOutcome;
use crate::upstream::{HandshakeFault, UpstreamError};

impl Failure {
    /// The kind of origin error that metrics count.
    pub(crate) fn origin_error(&self) -> Option<&'static str> {
        let known_dead;
        let error = match self {
            Failure::Upstream(error) => error,
            Failure::Refused(Refusal::RobotsUnknown { unknown, .. }) => {
                known_dead = UpstreamError::of_no_connection(unknown.cause?.no_connection()?)?;
                &known_dead
            }
            Failure::Bad(_) | Failure::Refused(_) => return None,
        };
        Some(match error {
            UpstreamError::Dns(_) | UpstreamError::DnsTimeout => "dns",
            UpstreamError::Refused
            | UpstreamError::Unroutable
            | UpstreamError::Connect(_)
            | UpstreamError::Parent(_)
            | UpstreamError::Closed
            | UpstreamError::Reset => "connect",
            UpstreamError::ConnectTimeout | UpstreamError::WriteTimeout | UpstreamError::ResponseTimeout => "timeout",
            UpstreamError::Certificate(_) | UpstreamError::Handshake(_) => "tls",
            UpstreamError::HeadTooLarge
            | UpstreamError::Protocol(_)
            | UpstreamError::TransferCoding
            | UpstreamError::Upgrade
            | UpstreamError::Status(_) => "protocol",
            UpstreamError::Denied(_) | UpstreamError::RequestBody(_) | UpstreamError::DnsBusy(_) => return None,
        })
    }
}

pub(super) fn unreachable(error: &UpstreamError) -> RefusalText {
    const GATEWAY: StatusCode = StatusCode::BAD_GATEWAY;
    const TIMEOUT: StatusCode = StatusCode::GATEWAY_TIMEOUT;
    let (status, title, proxy_error) = match error {
        UpstreamError::Dns(text) if is_temporary(text) => {
            (StatusCode::SERVICE_UNAVAILABLE, "Origin unreachable: temporary DNS failure", "dns_error")
        }
        UpstreamError::Dns(_) => (GATEWAY, "Origin unreachable: no such name", "dns_error"),
        UpstreamError::DnsTimeout => (TIMEOUT, "Origin timed out: name look-up", "dns_timeout"),
        UpstreamError::Refused => (GATEWAY, "Origin unreachable: connection refused", "connection_refused"),
        UpstreamError::Unroutable => (GATEWAY, "Origin unreachable: no route", "destination_ip_unroutable"),
        UpstreamError::Connect(_) => (GATEWAY, "Origin unreachable: cannot connect", "connection_refused"),
        UpstreamError::ConnectTimeout => (TIMEOUT, "Origin timed out: connecting", "connection_timeout"),
        UpstreamError::Certificate(_) => (GATEWAY, "Origin unreachable: bad certificate", "tls_certificate_error"),
        UpstreamError::Handshake(HandshakeFault::Alert(_)) => {
            (GATEWAY, "Origin unreachable: it refused TLS", "tls_alert_received")
        }
        UpstreamError::Handshake(_) => (GATEWAY, "Origin unreachable: TLS failed", "tls_protocol_error"),
        UpstreamError::Parent(_) => (GATEWAY, "Parent proxy refused", "http_upgrade_failed"),
        UpstreamError::Upgrade => (GATEWAY, "Origin switched to another protocol", "http_upgrade_failed"),
        UpstreamError::Closed | UpstreamError::Reset => {
            (GATEWAY, "Origin unreachable: connection closed", "connection_terminated")
        }
        UpstreamError::WriteTimeout => (TIMEOUT, "Origin timed out: sending", "connection_write_timeout"),
        UpstreamError::ResponseTimeout => (TIMEOUT, "Origin timed out: no response", "http_response_timeout"),
        UpstreamError::HeadTooLarge => {
            (GATEWAY, "Origin's response head is too large", "http_response_header_section_size")
        }
        UpstreamError::Protocol(_) | UpstreamError::Status(_) => {
            (GATEWAY, "Origin's response is not HTTP", "http_protocol_error")
        }
        UpstreamError::TransferCoding => {
            (GATEWAY, "Origin's transfer coding is unknown", "http_response_transfer_coding")
        }
        // These become other failures before they get here; the text is right all the same.
        UpstreamError::DnsBusy(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "Too many names to look up", "connection_limit_reached")
        }
        UpstreamError::Denied(_) => (StatusCode::FORBIDDEN, "Destination not allowed", "destination_ip_prohibited"),
        UpstreamError::RequestBody(_) => (StatusCode::BAD_REQUEST, "Bad request", "http_request_error"),
    };
    RefusalText {
        status,
        title,
        code: if status == TIMEOUT { "origin-timeout" } else { "origin-unreachable" },
        proxy_error,
        outcome: RequestOutcome::Failed,
        detail: error.to_string(),
        advice: match error {
            UpstreamError::Certificate(fault) => fault.advice().to_owned(),
            UpstreamError::Dns(text) if is_temporary(text) => {
                "retry later: the name server of the proxy's machine did not answer".to_owned()
            }
            _ => String::new(),
        },
        toml: String::new(),
        retry_after: matches!(error, UpstreamError::Dns(text) if is_temporary(text)).then_some(RESOLVER_TIMEOUT),
        close: false,
    }
}

/// Seconds that resolvers wait for a name server before they try again (resolv.conf(5), `timeout`).
const RESOLVER_TIMEOUT: u32 = 5;

/// What getaddrinfo says for EAI_AGAIN: glibc's words, and musl's.
fn is_temporary(text: &str) -> bool {
    text.starts_with("Temporary failure") || text.starts_with("Try again")
}
