//! Every way a request can end without the origin's answer.

use std::fmt;
use std::time::Duration;

use crate::politeness::fault::OriginFault;
use crate::politeness::jobs::JobStop;
use crate::politeness::{BadHost, HostKey, Origin, visit};
use crate::proxy::request::quotas::Exceeded;
use crate::robots::Unknown;
use crate::upstream::{BodyFault, Denied, UpstreamError};

/// Why robots.txt forbids a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forbidden {
    pub(crate) host: HostKey,
    /// The line of the rule, and the rule as it is in the file, in canonical spelling; `None` if the file is too
    /// complicated to judge the path by.
    pub(crate) rule: Option<(u32, String)>,
    /// The User-agent that the group is for.
    pub(crate) group: String,
    /// The request is a tunnel.
    pub(crate) everything: bool,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is wrong.
    Bad(BadRequest),
    /// curtsy refuses it.
    Refused(Refusal),
    /// The network failed.
    Upstream(UpstreamError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    Host(BadHost),
    NoHost,
    TwoHosts,
    /// HTTP/2 with only a Host field: its scheme cannot be seen.
    NoAuthority,
    /// The connection preface of HTTP/2, sent as a request.
    Preface,
    Userinfo,
    Port,
    Scheme,
    Form,
    Method,
    Expectation,
    MaxForwards,
    ContentLength,
    TransferCoding,
    ConnectWithBody,
    /// A CONNECT inside a tunnel.
    ConnectInside,
    Body(BodyFault),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Destination(Denied),
    /// The request is for another host than the tunnel it came through.
    Misdirected(Box<Origin>),
    Loop,
    /// The destination is one of curtsy's own listeners.
    Own,
    /// robots.txt forbids it.
    Robots(Box<Forbidden>),
    /// It is not known what robots.txt says.
    RobotsUnknown {
        host: HostKey,
        unknown: Unknown,
    },
    /// Too many bytes of large request heads wait already.
    HeadsFull {
        retry_after: Duration,
    },
    /// The host's lane refuses it.
    Lane(visit::LaneRefusal),
    /// Too many requests wait for name look-ups.
    TooManyNames {
        retry_after: Duration,
    },
    /// Too many requests, counted over all hosts.
    Quota(Exceeded),
    ClientDenied,
    /// A named client whose last visits all failed, or that the operator stopped.
    JobStopped {
        stop: JobStop,
        left: Duration,
    },
    AuthRequired,
    /// The client's last tunnel to this host had HTTP/2 inside, which `tls.tunnel.http2` refuses.
    Http2Tunnel,
    /// An HTTPS probe while interception is off.
    NotIntercepted,
    /// The client wants a stored answer only (`only-if-cached`), and there is none that may be used.
    NotCached,
}

impl BadRequest {
    /// Whether it is unclear where this request ends and the next one begins.
    pub(crate) fn is_about_framing(self) -> bool {
        matches!(
            self,
            BadRequest::TwoHosts
                | BadRequest::Preface
                | BadRequest::ContentLength
                | BadRequest::TransferCoding
                | BadRequest::ConnectWithBody
                | BadRequest::Body(_)
        )
    }
}

impl Failure {
    /// Whether the host failed, and not the client or the operator's rules.
    pub(crate) fn blames_the_origin(&self) -> bool {
        matches!(self, Failure::Upstream(error) if error.blames_the_origin())
    }

    /// How the origin failed, in one word.
    pub(crate) fn fault(&self) -> Option<OriginFault> {
        match self {
            Failure::Upstream(error) => error.fault(),
            Failure::Bad(_) | Failure::Refused(_) => None,
        }
    }
}

impl From<BadRequest> for Failure {
    fn from(bad: BadRequest) -> Self {
        Failure::Bad(bad)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

impl From<visit::LaneRefusal> for Failure {
    fn from(refusal: visit::LaneRefusal) -> Self {
        Failure::Refused(Refusal::Lane(refusal))
    }
}

impl From<BadHost> for BadRequest {
    fn from(bad: BadHost) -> Self {
        BadRequest::Host(bad)
    }
}

/// A verdict of the guard and a full queue of name look-ups are refusals, and a broken request body is the client's
/// fault; the rest is the network's.
impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::Denied(Denied::Own) => Failure::Refused(Refusal::Own),
            UpstreamError::Denied(denied) => Failure::Refused(Refusal::Destination(denied)),
            UpstreamError::RequestBody(fault) => Failure::Bad(BadRequest::Body(fault)),
            UpstreamError::DnsBusy(retry_after) => Failure::Refused(Refusal::TooManyNames { retry_after }),
            error => Failure::Upstream(error),
        }
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadRequest::Host(bad) => return bad.fmt(f),
            BadRequest::NoHost => "an HTTP/1.1 request must have a Host field",
            BadRequest::NoAuthority => "an HTTP/2 request to a proxy must name its origin in :authority",
            BadRequest::Preface => "PRI is not a method; curtsy speaks HTTP/2 over TLS only",
            BadRequest::TwoHosts => "the request names its host more than once",
            BadRequest::Userinfo => "a user name or password in the URL is not accepted; send Authorization instead",
            BadRequest::Port => "the port is missing or not a number from 1 to 65535",
            BadRequest::Scheme => "only http:// and https:// URLs can be forwarded",
            BadRequest::Form => "the request target is neither a URL nor host:port",
            BadRequest::Method => "the method is longer than any known one",
            BadRequest::Expectation => "the expectation is not 100-continue",
            BadRequest::MaxForwards => "Max-Forwards is not a number",
            BadRequest::ContentLength => "Content-Length is not written as a plain number",
            BadRequest::TransferCoding => "only the transfer coding \"chunked\" is understood",
            BadRequest::ConnectWithBody => "a CONNECT request must not have a body",
            BadRequest::ConnectInside => "a tunnel cannot be opened inside a tunnel; send CONNECT to the proxy itself",
            BadRequest::Body(fault) => return fault.fmt(f),
        })
    }
}
