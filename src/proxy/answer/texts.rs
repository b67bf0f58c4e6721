//! The text about each failure, in exhaustive matches. The codes are an interface: add, never rename.

mod origin;
mod tunnel;

use std::time::Duration;

use http::StatusCode;

use super::failure::{BadRequest, Failure, Forbidden, Refusal};
use crate::metrics::RequestOutcome;
use crate::politeness::fault::HostReply;
use crate::politeness::jobs::JobStop;
use crate::politeness::robots::reply::TroubleKind;
use crate::politeness::time::Timestamp;
use crate::politeness::{HostKey, visit};
use crate::proxy::request::quotas::{Exceeded, Whose};
use crate::robots::Unknown;
use crate::upstream::{BodyFault, Denied, UpstreamError};

/// The text about one failure, and the status and fields of its answer.
#[derive(Debug)]
pub(crate) struct RefusalText {
    pub(crate) status: StatusCode,
    /// At most 60 characters with the "(curtsy)" that is added.
    pub(crate) title: &'static str,
    /// The `Curtsy-Error` code; with `_` for `-` it is the metric's label.
    pub(crate) code: &'static str,
    /// The error type in `Proxy-Status` (RFC 9209, section 2.3).
    pub(crate) proxy_error: &'static str,
    pub(crate) outcome: RequestOutcome,
    pub(crate) detail: String,
    pub(crate) advice: String,
    /// What the advice would add to the configuration file, as TOML that can be pasted.
    pub(crate) toml: String,
    pub(crate) retry_after: Option<u32>,
    /// Whether nothing more may be read from this client.
    pub(crate) close: bool,
}

impl Failure {
    pub(crate) fn words(&self) -> RefusalText {
        match self {
            Failure::Bad(bad) => bad_request(*bad),
            Failure::Refused(refusal) => refused(refusal),
            Failure::Upstream(error) => origin::unreachable(error),
        }
    }
}

impl RefusalText {
    /// Names the limit that a request would have waited longer than: the operator's, or the client's own.
    pub(crate) fn name_limit(&mut self, max_wait: Duration) {
        let Some(seconds) = self.retry_after else { return };
        let limit = humantime::format_duration(max_wait);
        if u64::from(seconds) > max_wait.as_secs() {
            self.detail = format!("this request would wait about {seconds} s; politeness.max_wait is {limit}");
        } else {
            self.detail = format!(
                "this request would wait about {seconds} s, which is longer than its client allows \
                                   (Curtsy-Max-Wait, Prefer: wait); politeness.max_wait is {limit}"
            );
        }
    }
}

fn bad_request(bad: BadRequest) -> RefusalText {
    let (status, title) = match bad {
        BadRequest::Method => (StatusCode::NOT_IMPLEMENTED, "Unknown method"),
        BadRequest::TransferCoding => (StatusCode::NOT_IMPLEMENTED, "Unknown transfer coding"),
        BadRequest::ConnectInside => (StatusCode::NOT_IMPLEMENTED, "Tunnel in a tunnel"),
        BadRequest::Expectation => (StatusCode::EXPECTATION_FAILED, "Expectation failed"),
        BadRequest::Body(BodyFault::Stalled) => (StatusCode::REQUEST_TIMEOUT, "Request body stalled"),
        BadRequest::Host(_)
        | BadRequest::NoHost
        | BadRequest::NoAuthority
        | BadRequest::Preface
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
    RefusalText {
        status,
        title,
        code: "bad-request",
        proxy_error: "http_request_error",
        outcome: RequestOutcome::Rejected,
        detail: bad.to_string(),
        advice: String::new(),
        toml: String::new(),
        retry_after: None,
        close: bad.is_about_framing(),
    }
}

/// Builds the text of a refusal, with the values that most refusals share.
fn words(
    status: StatusCode,
    title: &'static str,
    code: &'static str,
    proxy_error: &'static str,
    detail: &str,
    advice: &str,
) -> RefusalText {
    RefusalText {
        status,
        title,
        code,
        proxy_error,
        outcome: RequestOutcome::Denied,
        detail: detail.to_owned(),
        advice: advice.to_owned(),
        toml: String::new(),
        retry_after: None,
        close: false,
    }
}

fn refused(refusal: &Refusal) -> RefusalText {
    match refusal {
        Refusal::Destination(denied) => not_allowed(denied),
        Refusal::Misdirected(origin) => words(
            StatusCode::MISDIRECTED_REQUEST,
            "Wrong host for this tunnel",
            "misdirected",
            "http_request_error",
            &format!("this tunnel goes to {origin} and carries only requests for it"),
            "open a tunnel for each host, scheme and port",
        ),
        Refusal::Robots(forbidden) => by_robots(forbidden),
        Refusal::RobotsUnknown { host, unknown } => by_missing_robots(host, *unknown),
        Refusal::HeadsFull { retry_after } => by_large_heads(*retry_after),
        Refusal::Lane(refusal) => by_lane(*refusal),
        Refusal::TooManyNames { retry_after } => too_many_names(*retry_after),
        Refusal::Quota(exceeded) => over_quota(*exceeded),
        Refusal::Loop => words(
            StatusCode::BAD_GATEWAY,
            "Loop through curtsy",
            "loop",
            "proxy_loop_detected",
            "the request has come back to the proxy that sent it",
            "check the client's proxy settings and upstream.proxy",
        ),
        Refusal::Own => words(
            StatusCode::BAD_GATEWAY,
            "That is curtsy itself",
            "loop",
            "proxy_loop_detected",
            "this address is one of curtsy's own listeners: its proxy port, or the admin port with the dashboard",
            "connect to it directly, without the proxy: add its address to NO_PROXY",
        ),
        Refusal::JobStopped { stop, left } => job_stopped(stop, *left),
        Refusal::ClientDenied => client_denied(),
        Refusal::AuthRequired => words(
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "Proxy credentials needed",
            "auth-required",
            "http_request_denied",
            "a user name and password are needed, or those given are wrong",
            "put them into the proxy URL: http://user:password@host:3128",
        ),
        Refusal::Http2Tunnel => tunnel::http2_tunnel(),
        Refusal::NotIntercepted => tunnel::not_intercepted(),
        Refusal::NotCached => not_cached(),
    }
}

fn client_denied() -> RefusalText {
    RefusalText {
        toml: "[access]\nallow = [\"127.0.0.0/8\", \"::1\", \"192.168.0.0/16\"]\n".to_owned(),
        ..words(
            StatusCode::FORBIDDEN,
            "Client not allowed",
            "client-denied",
            "http_request_denied",
            "your address may not use this proxy",
            "add your network to `allow` in the proxy's configuration file, for example",
        )
    }
}

/// RFC 9111, section 5.2.1.7.
fn not_cached() -> RefusalText {
    RefusalText {
        outcome: RequestOutcome::Rejected,
        ..words(
            StatusCode::GATEWAY_TIMEOUT,
            "Not in the cache",
            "not-cached",
            "http_request_denied",
            "the request says `Cache-Control: only-if-cached`, and no stored answer may be used for it",
            "send it without only-if-cached to have it asked for",
        )
    }
}

fn too_many_names(retry_after: Duration) -> RefusalText {
    RefusalText {
        retry_after: u32::try_from(retry_after.as_secs() + 1).ok(),
        outcome: RequestOutcome::Rejected,
        ..words(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many names to look up",
            "queue-full",
            "connection_limit_reached",
            "too many requests are waiting for name look-ups",
            "request fewer new hosts at once, and check that the system's resolver answers",
        )
    }
}

fn job_stopped(stop: &JobStop, left: Duration) -> RefusalText {
    let (detail, advice, toml) = match stop.last {
        Some(_) => (
            stop.to_string(),
            "find out why, then run: curtsy client NAME resume; to turn this off, set in the configuration file",
            "[breaker]\njob_failures = 0\n",
        ),
        None => ("the operator of this proxy has stopped this client".to_owned(), "ask the operator to resume it", ""),
    };
    let words = words(StatusCode::FORBIDDEN, "Job stopped", "job-stopped", "http_request_denied", &detail, advice);
    let retry_after = (stop.until < Timestamp::NEVER).then(|| whole_seconds(left));
    RefusalText { retry_after, toml: toml.to_owned(), ..words }
}

fn over_quota(exceeded: Exceeded) -> RefusalText {
    let detail = match exceeded.whose {
        Whose::Client => "this client sends requests faster than one client may (access.client_rate), over all hosts",
        Whose::All => "all clients together send requests faster than they may (access.total_rate), over all hosts",
    };
    let retry_after = whole_seconds(exceeded.retry_after).max(1);
    RefusalText {
        status: StatusCode::TOO_MANY_REQUESTS,
        title: "Too many requests",
        code: "quota-exceeded",
        proxy_error: "http_request_denied",
        outcome: RequestOutcome::Rejected,
        detail: detail.to_owned(),
        advice: format!("retry in {retry_after} s, or ask the operator for a higher quota"),
        toml: String::new(),
        retry_after: Some(retry_after),
        close: false,
    }
}

fn by_large_heads(retry_after: Duration) -> RefusalText {
    RefusalText {
        retry_after: Some(whole_seconds(retry_after)),
        ..words(
            StatusCode::TOO_MANY_REQUESTS,
            "Politeness queue full",
            "queue-full",
            "connection_limit_reached",
            "too many requests with large heads are waiting already",
            "send fewer at once, or smaller heads: those up to 8 KiB are not counted",
        )
    }
}

fn by_robots(forbidden: &Forbidden) -> RefusalText {
    RefusalText {
        toml: robots_off(&forbidden.host),
        ..words(
            StatusCode::FORBIDDEN,
            "Denied by robots.txt",
            "robots-denied",
            "http_request_denied",
            &told_by_robots(forbidden),
            IGNORE_ROBOTS,
        )
    }
}

/// If no connection could be opened for robots.txt, the answer is the one that a page would get.
fn by_missing_robots(host: &HostKey, unknown: Unknown) -> RefusalText {
    let retry_after = Some(whole_seconds(unknown.retry_after));
    let dead = unknown.cause.and_then(HostReply::no_connection).and_then(UpstreamError::of_no_connection);
    if let Some(error) = dead {
        let words = origin::unreachable(&error);
        let detail = format!("{}, when curtsy asked {host} for robots.txt", words.detail);
        let advice = format!(
            "curtsy tries {host} again in {} s; until then requests get this answer",
            whole_seconds(unknown.retry_after)
        );
        return RefusalText { retry_after, detail, advice, ..words };
    }
    RefusalText {
        retry_after,
        toml: robots_off(host),
        ..words(
            StatusCode::SERVICE_UNAVAILABLE,
            "robots.txt unreachable",
            "robots-unreachable",
            "destination_unavailable",
            &not_told_by_robots(host, unknown),
            IGNORE_ROBOTS,
        )
    }
}

fn told_by_robots(forbidden: &Forbidden) -> String {
    let Forbidden { host, rule, group, everything } = forbidden;
    let why = if *everything { "; the whole host is disallowed, and a tunnel hides its paths" } else { "" };
    match rule {
        Some((line, rule)) => format!("robots.txt of {host}, line {line}, group \"{group}\": {rule}{why}"),
        None => format!("robots.txt of {host} is too complicated to judge this path by (group \"{group}\")"),
    }
}

fn not_told_by_robots(host: &HostKey, unknown: Unknown) -> String {
    let why = match (unknown.kind, unknown.cause) {
        (TroubleKind::Throttled, _) => "may not be fetched now: the host has had too many requests".to_owned(),
        (TroubleKind::Unreachable, Some(HostReply::Status(status))) => {
            format!("could not be fetched: the host answered {status}")
        }
        (TroubleKind::Unreachable, Some(HostReply::Fault(fault))) => {
            format!("could not be fetched: {}", fault.text())
        }
        (TroubleKind::Unreachable, None) => "could not be fetched".to_owned(),
    };
    format!("robots.txt of {host} {why}. curtsy cannot tell what is allowed (RFC 9309)")
}

const IGNORE_ROBOTS: &str = "if the host's owner agrees, add to the end of the configuration file";

fn robots_off(host: &HostKey) -> String {
    format!("[[host]]\nmatch = \"{host}\"\nrobots = \"off\"\n")
}

/// Rounds up: a client that retries then must not be early.
fn whole_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// Builds the text of a lane's refusal. The lane has computed when it is worth retrying.
fn by_lane(refusal: visit::LaneRefusal) -> RefusalText {
    let (status, title, code, proxy_error, detail) = lane_text(refusal);
    let retry_after = refusal.retry_after().map(|wait| u32::try_from(wait.as_secs()).unwrap_or(u32::MAX));
    RefusalText {
        status,
        title,
        code,
        proxy_error,
        outcome: RequestOutcome::Rejected,
        detail: detail.to_owned(),
        advice: match (refusal, retry_after) {
            (visit::LaneRefusal::ShuttingDown { .. }, Some(seconds)) => {
                format!("retry in {seconds} s, when the host would have taken the request")
            }
            (visit::LaneRefusal::HostsFull { .. }, Some(seconds)) => {
                format!("retry in {seconds} s, or raise hosts.max")
            }
            (_, Some(seconds)) => format!("retry in {seconds} s, and this request goes first"),
            (_, None) => String::new(),
        },
        toml: String::new(),
        retry_after,
        close: false,
    }
}

/// Returns status, title, code, error type and detail.
fn lane_text(refusal: visit::LaneRefusal) -> (StatusCode, &'static str, &'static str, &'static str, &'static str) {
    match refusal {
        visit::LaneRefusal::QueueFull { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            "Politeness queue full",
            "queue-full",
            "connection_limit_reached",
            "too many requests are waiting for this host",
        ),
        visit::LaneRefusal::WaitTooLong { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            "Would wait longer than max_wait",
            "wait-too-long",
            "connection_limit_reached",
            "the turn of this request would come later than politeness.max_wait or the client allows",
        ),
        visit::LaneRefusal::HostCooling { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Host cooling down",
            "host-cooling",
            "destination_unavailable",
            "the host asked for a pause, or the operator paused it",
        ),
        visit::LaneRefusal::BreakerOpen { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Origin failing, paused for a while",
            "breaker-open",
            "destination_unavailable",
            "the last requests to this origin (scheme, host and port) all failed, so curtsy tries it again later",
        ),
        visit::LaneRefusal::ShuttingDown { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Stopping",
            "shutting-down",
            "proxy_internal_response",
            "curtsy stops before the turn of this request comes",
        ),
        visit::LaneRefusal::HostsFull { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many hosts at once",
            "hosts-full",
            "connection_limit_reached",
            "curtsy already paces hosts.max other hosts, and all of them were visited just now",
        ),
    }
}

/// A destination that the operator's rules forbid, by its address or by its port.
fn not_allowed(denied: &Denied) -> RefusalText {
    let (title, proxy_error, toml) = match denied {
        Denied::Address { ip, .. } => (
            "Destination not allowed",
            "destination_ip_prohibited",
            format!("[access]\nallow_destinations = [\"{ip}\"]\n"),
        ),
        // The defaults stay in the list.
        Denied::ConnectPort(port) => {
            ("Port not allowed", "http_request_denied", format!("[access]\nconnect_ports = [443, 80, 8443, {port}]\n"))
        }
        Denied::Port(_) => ("Port not allowed", "http_request_denied", String::new()),
        Denied::Own => ("That is curtsy itself", "proxy_loop_detected", String::new()),
    };
    let advice = if toml.is_empty() { "" } else { "if this is intended, set in the proxy's configuration file" };
    let detail = denied.to_string();
    RefusalText { toml, ..words(StatusCode::FORBIDDEN, title, "destination-denied", proxy_error, &detail, advice) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, FileChoice, Sources};
    use crate::politeness::jobs;

    fn host() -> HostKey {
        HostKey::parse("news.test").unwrap()
    }

    /// Everything that the advice offers to paste is a valid configuration.
    #[test]
    fn every_fix_is_read_by_the_loader() {
        let forbidden = Forbidden {
            host: host(),
            rule: Some((3, "Disallow: /".to_owned())),
            group: "*".to_owned(),
            everything: true,
        };
        let cause = Some(HostReply::Status(500));
        let unknown = Unknown { kind: TroubleKind::Unreachable, cause, retry_after: Duration::from_secs(1) };
        let denied = |ip: &str| Denied::Address { ip: ip.parse().unwrap(), kind: "private" };
        let stop = jobs::JobStop {
            last: Some(jobs::JobFailure::Status(503)),
            failures: 20,
            since: Timestamp::START,
            until: Timestamp::NEVER,
            at_host: false,
        };
        let refusals = [
            Refusal::Destination(denied("10.0.0.1")),
            Refusal::Destination(denied("fd00::1")),
            Refusal::Destination(Denied::ConnectPort(22)),
            Refusal::Robots(Box::new(forbidden)),
            Refusal::RobotsUnknown { host: host(), unknown },
            Refusal::RobotsUnknown { host: HostKey::parse("[::1]").unwrap(), unknown },
            Refusal::ClientDenied,
            Refusal::Http2Tunnel,
            Refusal::NotIntercepted,
            Refusal::JobStopped { stop, left: Duration::ZERO },
        ];
        for refusal in refusals {
            let words = Failure::Refused(refusal.clone()).words();
            assert!(!words.toml.is_empty() && !words.advice.contains('['), "{refusal:?}");
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("curtsy.toml");
            std::fs::write(&path, &words.toml).unwrap();
            let sources = Sources { file: FileChoice::Path(path), ..Sources::default() };
            if let Err(problems) = config::load(&sources) {
                panic!("{}\n{problems}", words.toml);
            }
        }
    }

    #[test]
    fn ports_temporary_failures_and_own_listeners_are_named() {
        let port = Failure::Refused(Refusal::Destination(Denied::ConnectPort(22))).words();
        assert_eq!(
            (port.title, port.proxy_error, port.code),
            ("Port not allowed", "http_request_denied", "destination-denied")
        );
        let dns = |text: &str| {
            let words = Failure::Upstream(UpstreamError::Dns(text.to_owned())).words();
            (words.status.as_u16(), words.title, words.retry_after.is_some())
        };
        let temporary = (503, "Origin unreachable: temporary DNS failure", true);
        assert_eq!(dns("Temporary failure in name resolution"), temporary);
        assert_eq!(dns("Name or service not known"), (502, "Origin unreachable: no such name", false));
        let own = Failure::from(UpstreamError::Denied(Denied::Own)).words();
        assert!(own.code == "loop" && own.detail.contains("admin port"), "{own:?}");
    }

    #[test]
    fn titles_fit_a_status_line() {
        let failures = [
            Failure::Bad(BadRequest::Port),
            Failure::Refused(Refusal::AuthRequired),
            Failure::Refused(Refusal::NotIntercepted),
            Failure::Refused(Refusal::Own),
            Failure::Upstream(UpstreamError::Dns("Temporary failure".to_owned())),
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
