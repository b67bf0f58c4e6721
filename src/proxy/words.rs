//! What is said about each failure, in one exhaustive match. The codes are an interface: add, never rename.

use std::time::Duration;

use http::StatusCode;

use super::failure::{BadRequest, Failure, Refusal};
use super::quotas::{Exceeded, Whose};
use super::robots::Forbidden;
use crate::metrics::Outcome;
use crate::politeness::jobs::Stop;
use crate::politeness::robots::reply::TroubleKind;
use crate::politeness::time::Timestamp;
use crate::politeness::{HostKey, visit};
use crate::robots::Unknown;
use crate::upstream::{BodyFault, Denied, HandshakeFault, UpstreamError};

/// What is said about one failure.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) status: StatusCode,
    /// At most 60 characters with the "(curtsy)" that is added.
    pub(super) title: &'static str,
    /// `Curtsy-Error`, and with `_` for `-` the metric's label.
    pub(super) code: &'static str,
    /// RFC 9209, section 2.3.
    pub(super) proxy_error: &'static str,
    pub(super) outcome: Outcome,
    pub(super) detail: String,
    pub(super) advice: String,
    pub(super) retry_after: Option<u32>,
    /// Whether nothing more may be read from this client.
    pub(super) close: bool,
}

impl Failure {
    pub(super) fn words(&self) -> Words {
        match self {
            Failure::Bad(bad) => bad_request(*bad),
            Failure::Refused(refusal) => refused(refusal),
            Failure::Upstream(error) => unreachable_origin(error),
        }
    }

    /// The kind of origin error that metrics count.
    pub(super) fn origin_error(&self) -> Option<&'static str> {
        let Failure::Upstream(error) = self else { return None };
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

fn bad_request(bad: BadRequest) -> Words {
    let (status, title) = match bad {
        BadRequest::Method => (StatusCode::NOT_IMPLEMENTED, "Unknown method"),
        BadRequest::TransferCoding => (StatusCode::NOT_IMPLEMENTED, "Unknown transfer coding"),
        BadRequest::ConnectInside => (StatusCode::NOT_IMPLEMENTED, "Tunnel in a tunnel"),
        BadRequest::Expectation => (StatusCode::EXPECTATION_FAILED, "Expectation failed"),
        BadRequest::Body(BodyFault::Stalled) => (StatusCode::REQUEST_TIMEOUT, "Request body stalled"),
        BadRequest::Host(_)
        | BadRequest::TwoHosts
        | BadRequest::Userinfo
        | BadRequest::Port
        | BadRequest::Scheme
        | BadRequest::Form
        | BadRequest::MaxForwards
        | BadRequest::ContentLength
        | BadRequest::ConnectWithBody
        | BadRequest::Body(_) => (StatusCode::BAD_REQUEST, "Bad request"),
    };
    Words {
        status,
        title,
        code: "bad-request",
        proxy_error: "http_request_error",
        outcome: Outcome::Rejected,
        detail: bad.to_string(),
        advice: String::new(),
        retry_after: None,
        close: bad.is_about_framing(),
    }
}

/// A refusal, as most of them are worded.
fn words(
    status: StatusCode,
    title: &'static str,
    code: &'static str,
    proxy_error: &'static str,
    detail: &str,
    advice: &str,
) -> Words {
    Words {
        status,
        title,
        code,
        proxy_error,
        outcome: Outcome::Denied,
        detail: detail.to_owned(),
        advice: advice.to_owned(),
        retry_after: None,
        close: false,
    }
}

fn refused(refusal: &Refusal) -> Words {
    match refusal {
        Refusal::Destination(denied) => words(
            StatusCode::FORBIDDEN,
            "Destination not allowed",
            "destination-denied",
            "destination_ip_prohibited",
            &denied.to_string(),
            &how_to_allow(denied),
        ),
        Refusal::Misdirected(origin) => words(
            StatusCode::MISDIRECTED_REQUEST,
            "Not what this tunnel leads to",
            "misdirected",
            "http_request_error",
            &format!("the tunnel leads to {origin}, and only requests for it go through"),
            "open a tunnel for each host, scheme and port",
        ),
        Refusal::Robots(forbidden) => by_robots(forbidden),
        Refusal::RobotsUnknown { host, unknown } => by_missing_robots(host, *unknown),
        Refusal::Lane(refusal) => by_lane(*refusal),
        Refusal::TooManyNames { retry_after } => Words {
            retry_after: u32::try_from(retry_after.as_secs() + 1).ok(),
            outcome: Outcome::Rejected,
            ..words(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many names to look up",
                "queue-full",
                "connection_limit_reached",
                "too many requests wait for the addresses of their hosts",
                "ask for fewer new hosts at once, and see whether the system's resolver answers",
            )
        },
        Refusal::Quota(exceeded) => over_quota(*exceeded),
        Refusal::Loop => words(
            StatusCode::BAD_GATEWAY,
            "Loop through curtsy",
            "loop",
            "proxy_loop_detected",
            "the request has come back to the proxy that sent it",
            "check the client's proxy settings and upstream.proxy",
        ),
        Refusal::JobStopped { stop, left } => job_stopped(stop, *left),
        Refusal::ClientDenied => words(
            StatusCode::FORBIDDEN,
            "Client not allowed",
            "client-denied",
            "http_request_denied",
            "your address may not use this proxy",
            "[access] allow = [\"your network\"]",
        ),
        Refusal::AuthRequired => words(
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "Proxy credentials needed",
            "auth-required",
            "http_request_denied",
            "a user name and password are needed, or those given are wrong",
            "put them into the proxy URL: http://user:password@host:3128",
        ),
        Refusal::NotIntercepted => Words {
            outcome: Outcome::Rejected,
            ..words(
                StatusCode::NOT_IMPLEMENTED,
                "Routing works, interception is off",
                "bad-request",
                "http_request_error",
                "the tunnel came to curtsy, which does not read HTTPS here, so it cannot answer inside",
                "nothing is wrong; tls.intercept = true reads HTTPS with the local CA",
            )
        },
    }
}

fn job_stopped(stop: &Stop, left: Duration) -> Words {
    let (detail, advice) = match stop.last {
        Some(last) => (
            format!("the last {} requests of this client failed, the last one with {last}", stop.failures),
            "find out why before it goes on; [breaker] job_failures = 0 turns this off",
        ),
        None => ("the operator of this proxy has stopped this client".to_owned(), "ask whoever runs the proxy"),
    };
    let words = words(StatusCode::FORBIDDEN, "Job stopped", "job-stopped", "http_request_denied", &detail, advice);
    let retry_after = (stop.until < Timestamp::NEVER).then(|| whole_seconds(left));
    Words { retry_after, ..words }
}

fn over_quota(exceeded: Exceeded) -> Words {
    let detail = match exceeded.whose {
        Whose::Client => "you ask faster than one client may (access.client_rate), whatever the host",
        Whose::All => "all clients together ask faster than they may (access.total_rate), whatever the host",
    };
    let retry_after = whole_seconds(exceeded.retry_after).max(1);
    Words {
        status: StatusCode::TOO_MANY_REQUESTS,
        title: "Asked too often",
        code: "quota-exceeded",
        proxy_error: "http_request_denied",
        outcome: Outcome::Rejected,
        detail: detail.to_owned(),
        advice: format!("come back in {retry_after} s, or ask the operator for more"),
        retry_after: Some(retry_after),
        close: false,
    }
}

fn by_robots(forbidden: &Forbidden) -> Words {
    words(
        StatusCode::FORBIDDEN,
        "Denied by robots.txt",
        "robots-denied",
        "http_request_denied",
        &told_by_robots(forbidden),
        &how_to_ignore(&forbidden.host),
    )
}

fn by_missing_robots(host: &HostKey, unknown: Unknown) -> Words {
    Words {
        retry_after: Some(whole_seconds(unknown.retry_after)),
        ..words(
            StatusCode::SERVICE_UNAVAILABLE,
            "robots.txt unreachable",
            "robots-unreachable",
            "destination_unavailable",
            &not_told_by_robots(host, unknown.kind),
            &how_to_ignore(host),
        )
    }
}

fn told_by_robots(forbidden: &Forbidden) -> String {
    let Forbidden { host, line, rule, group, everything } = forbidden;
    let why = if *everything { "; all of the host is closed to you, and a tunnel shows no more" } else { "" };
    format!("robots.txt of {host}, line {line}, group \"{group}\": {rule}{why}")
}

fn not_told_by_robots(host: &HostKey, kind: TroubleKind) -> String {
    let why = match kind {
        TroubleKind::Unreachable => "could not be fetched",
        TroubleKind::Throttled => "may not be fetched now: the host has had too many requests",
    };
    format!("robots.txt of {host} {why}, so nobody knows what may be visited (RFC 9309)")
}

fn how_to_ignore(host: &HostKey) -> String {
    format!("if the host's owner agrees: [[host]] match = \"{host}\" robots = \"off\"")
}

/// Rounded up: who comes back then must not be early.
fn whole_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// The lane has computed when it is worth coming back.
fn by_lane(refusal: visit::Refusal) -> Words {
    let (status, title, code, proxy_error, detail) = match refusal {
        visit::Refusal::QueueFull { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            "Politeness queue full",
            "queue-full",
            "connection_limit_reached",
            "too many requests wait for this host",
        ),
        visit::Refusal::WaitTooLong { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            "Would wait longer than max_wait",
            "wait-too-long",
            "connection_limit_reached",
            "this host's turn for you comes later than you or curtsy would wait",
        ),
        visit::Refusal::HostCooling { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Host cooling down",
            "host-cooling",
            "destination_unavailable",
            "nobody may visit this host now",
        ),
        visit::Refusal::BreakerOpen { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Origin left alone for a while",
            "breaker-open",
            "destination_unavailable",
            "this origin (scheme, host and port) has only failed lately, so it is tried again later",
        ),
        visit::Refusal::ShuttingDown { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Stopping",
            "shutting-down",
            "proxy_internal_response",
            "curtsy stops before this host's turn for you comes",
        ),
    };
    let retry_after = refusal.retry_after().map(|wait| u32::try_from(wait.as_secs()).unwrap_or(u32::MAX));
    Words {
        status,
        title,
        code,
        proxy_error,
        outcome: Outcome::Rejected,
        detail: detail.to_owned(),
        advice: match (refusal, retry_after) {
            (visit::Refusal::ShuttingDown { .. }, Some(seconds)) => {
                format!("come back in {seconds} s, when the host would have taken the request")
            }
            (_, Some(seconds)) => format!("come back in {seconds} s and you go first"),
            (_, None) => String::new(),
        },
        retry_after,
        close: false,
    }
}

fn how_to_allow(denied: &Denied) -> String {
    match denied {
        Denied::Address { ip, .. } => format!("[access] allow_destinations = [\"{ip}\"]"),
        Denied::ConnectPort(port) => format!("[access] connect_ports = [443, {port}]"),
        Denied::Port(_) | Denied::Own => String::new(),
    }
}

fn unreachable_origin(error: &UpstreamError) -> Words {
    const GATEWAY: StatusCode = StatusCode::BAD_GATEWAY;
    const TIMEOUT: StatusCode = StatusCode::GATEWAY_TIMEOUT;
    let (status, title, proxy_error) = match error {
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
        // These become other failures before they get here; the words are right all the same.
        UpstreamError::DnsBusy(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "Too many names to look up", "connection_limit_reached")
        }
        UpstreamError::Denied(_) => (StatusCode::FORBIDDEN, "Destination not allowed", "destination_ip_prohibited"),
        UpstreamError::RequestBody(_) => (StatusCode::BAD_REQUEST, "Bad request", "http_request_error"),
    };
    Words {
        status,
        title,
        code: if status == TIMEOUT { "origin-timeout" } else { "origin-unreachable" },
        proxy_error,
        outcome: Outcome::Failed,
        detail: error.to_string(),
        advice: match error {
            UpstreamError::Certificate(fault) => fault.advice().to_owned(),
            _ => String::new(),
        },
        retry_after: None,
        close: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_fit_a_status_line() {
        let failures = [
            Failure::Bad(BadRequest::Port),
            Failure::Refused(Refusal::AuthRequired),
            Failure::Refused(Refusal::NotIntercepted),
            Failure::Upstream(UpstreamError::HeadTooLarge),
            Failure::Upstream(UpstreamError::TransferCoding),
            Failure::Upstream(UpstreamError::Refused),
        ];
        for failure in failures {
            let phrase = format!("{} (curtsy)", failure.words().title);
            assert!(phrase.len() <= 60 && phrase.is_ascii(), "{phrase}");
        }
    }
}
