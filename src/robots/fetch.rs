//! Fetches a robots.txt: follows redirects, checks each of them, and limits size and time.
//!
//! Sends the User-Agent of the client that needs the file, because some origins answer unknown agents with "forbidden",
//! which would read as "no rules". Sends nothing else of the client's. A file that arrives compressed although the
//! request did not offer it, is cut off or is late counts as not fetched.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_ENCODING, DATE, ETAG, EXPIRES, HOST, HeaderMap, HeaderName,
    HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LOCATION, USER_AGENT,
};
use http::{Request, Response, Uri};
use http_body::Body;
use url::Url;

use super::now;
use crate::clock;
use crate::config::Key;
use crate::gate::{Gate, Permit, Preparation};
use crate::politeness::fault::{HostReply, OriginFault};
use crate::politeness::robots::reply::{Fetched, RobotsRecordState, Trail};
use crate::politeness::robots::{self, Freshness, MAX_BODY};
use crate::politeness::signals::{self, SignalFields, SignalPolicy};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{LaneRefusal, Purpose, Visit, VisitOutcome};
use crate::politeness::{HostKey, Origin, Scheme};
use crate::upstream::{Answer, Message, Ready, Reply, RequestBody, Terms, Unanswered, Upstream, UpstreamError};

/// How to reach the origin.
#[derive(Clone, Copy, Debug)]
pub struct FetchWay<'a> {
    pub upstream: &'a Upstream,
    pub terms: Terms<'a>,
    pub user_agent: &'a HeaderValue,
    /// Time for all redirects together, not counting waits for turns.
    pub timeout: Duration,
    /// The longest time for which the file is used without asking again.
    pub cache_ttl: Duration,
    /// The gate that gives the fetch its turns; `None` if no curtsy runs.
    pub leave: Option<Leave<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Leave<'a> {
    pub gate: &'a Arc<Gate>,
    pub key: Key,
}

/// The result of a fetch, as shown to the operator.
#[derive(Debug)]
pub struct FetchResult {
    pub record: RobotsRecordState,
    /// Status of the last answer; `None` if there was none.
    pub status: Option<u16>,
    pub body: Vec<u8>,
    /// Why there was no answer.
    pub error: Option<String>,
    /// The URLs that were fetched, in order: more than one if redirects were followed.
    pub trail: Vec<String>,
}

/// Fetches the file from the origin and follows its redirects. Every request takes a turn in the lane of its host. If
/// the first request is refused there, nothing was sent and nothing is known.
pub async fn fetch(
    way: FetchWay<'_>,
    origin: &Origin,
    previous: Option<&RobotsRecordState>,
) -> Result<FetchResult, LaneRefusal> {
    let at = FetchAddress { origin: origin.clone(), path: "/robots.txt".to_owned() };
    let mut trail = Trail::new(at.to_string());
    let seen = follow(way, at, &mut trail, previous).await?;
    Ok(FetchResult { trail: trail.visited(), ..seen })
}

async fn follow(
    way: FetchWay<'_>,
    mut at: FetchAddress,
    trail: &mut Trail,
    previous: Option<&RobotsRecordState>,
) -> Result<FetchResult, LaneRefusal> {
    let (mut left, mut hop_kind, first) = (way.timeout, HopKind::First, at.origin.host.clone());
    // Conditions apply to the first address only.
    let mut conditions = previous.map_or_else(HeaderMap::new, conditions);
    loop {
        let hop = match one(&way, &at, hop_kind, std::mem::take(&mut conditions), &mut left).await {
            Ok(hop) => hop,
            Err(HopError::Refused(refusal)) if hop_kind == HopKind::First => return Err(refusal),
            Err(HopError::Refused(_)) => {
                let text = "its host is held, or too many requests wait for it".to_owned();
                return Ok(FetchResult::nothing(previous, HopFailure { text, fault: Some(OriginFault::Elsewhere) }));
            }
            Err(HopError::Failed(failure)) => {
                let fault = if hop_kind == HopKind::First { failure.fault } else { Some(OriginFault::Elsewhere) };
                return Ok(FetchResult::nothing(previous, HopFailure { fault, ..failure }));
            }
        };
        if !Trail::leads_on(hop.status) {
            return Ok(FetchResult::answer(previous, hop, way.cache_ttl));
        }
        match at.next(&hop).filter(|next| next.may_follow(&first) && trail.follow(&next.to_string())) {
            Some(next) => at = next,
            None => return Ok(FetchResult::lost(previous, hop.status)),
        }
        hop_kind = if at.origin.host == first { HopKind::SameHost } else { HopKind::OtherHost };
    }
}

/// Which request of a fetch this is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HopKind {
    First,
    SameHost,
    OtherHost,
}

/// Why there is no answer.
enum HopError {
    Refused(LaneRefusal),
    Failed(HopFailure),
}

/// How a request of a fetch failed: for the operator, and in one word.
struct HopFailure {
    text: String,
    /// `None` if the host is not to blame: its address is refused, or too many names are looked up.
    fault: Option<OriginFault>,
}

impl From<UpstreamError> for HopError {
    fn from(error: UpstreamError) -> Self {
        HopError::Failed(HopFailure { text: error.to_string(), fault: error.fault() })
    }
}

/// The answer cannot be used, for this reason.
impl From<String> for HopError {
    fn from(text: String) -> Self {
        HopError::Failed(HopFailure { text, fault: Some(OriginFault::Garbled) })
    }
}

impl From<LaneRefusal> for HopError {
    fn from(refusal: LaneRefusal) -> Self {
        HopError::Refused(refusal)
    }
}

/// Returns the record for an answer that a client asked for.
pub fn overheard(
    previous: Option<&RobotsRecordState>,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    cache_ttl: Duration,
) -> RobotsRecordState {
    FetchResult::answer(previous, Hop { status, headers, body }, cache_ttl).record
}

/// Makes one request and reads its answer.
async fn one(
    way: &FetchWay<'_>,
    at: &FetchAddress,
    kind: HopKind,
    conditions: HeaderMap,
    left: &mut Duration,
) -> Result<Hop, HopError> {
    let (ready, mut permit) = take_turn(way, at, kind, left).await?;
    let began = clock::now();
    let exchange = exchange(way, ready, at.request(way, conditions)?, permit.as_mut());
    let hop = within(*left, exchange, OriginFault::Silent).await?;
    *left = left.saturating_sub(clock::now() - began);
    hop
}

/// Opens a connection and waits for the turn, in the lane of the address if lanes are kept per address. No turn and no
/// permit if no curtsy runs.
async fn take_turn(
    way: &FetchWay<'_>,
    at: &FetchAddress,
    kind: HopKind,
    left: &mut Duration,
) -> Result<(Ready, Option<Permit>), HopError> {
    let mut request = FetchVisit { way, terms: way.terms, at, left };
    let Some(Leave { gate, key }) = way.leave else {
        return Ok((request.get_ready().await?, None));
    };
    let lanes = way.upstream.lanes(way.terms, key, &at.origin.host).await?;
    let visit = Visit {
        urgency: 0,
        origin: gate.origin(&at.origin),
        // A redirect within the same host has waited before. A redirect from another host gets no priority.
        retry: kind == HopKind::SameHost,
        purpose: if kind == HopKind::First { Purpose::RobotsFetch } else { Purpose::Page },
        ..Visit::new(gate.client("robots.txt"), u64::from(at.origin.port))
    };
    let mut failure = HopError::from(UpstreamError::Dns("it has no address".to_owned()));
    for lane in lanes {
        request.terms.only = lane.address;
        match gate.visit(&lane.budget, visit, now(), &mut request).await {
            Ok((ready, permit)) => return Ok((ready, Some(permit))),
            Err(refused @ HopError::Refused(_)) => return Err(refused),
            Err(failed) => failure = failed,
        }
    }
    Err(failure)
}

/// One request of a fetch on its way to its turn.
struct FetchVisit<'a> {
    way: &'a FetchWay<'a>,
    terms: Terms<'a>,
    at: &'a FetchAddress,
    /// What is left of the time for the whole fetch.
    left: &'a mut Duration,
}

impl Preparation for FetchVisit<'_> {
    type Ready = Ready;
    type Error = HopError;

    async fn get_ready(&mut self) -> Result<Ready, HopError> {
        let began = clock::now();
        // A new connection, because an old one may turn out to be dead, and then this fetch would fail.
        let opening = self.way.upstream.ready_new(self.terms, &self.at.origin);
        let ready = within(*self.left, opening, OriginFault::ConnectTimeout).await;
        *self.left = self.left.saturating_sub(clock::now() - began);
        Ok(ready??)
    }

    fn fault(&self, error: &HopError) -> Option<OriginFault> {
        match error {
            HopError::Failed(failure) => failure.fault,
            HopError::Refused(_) => None,
        }
    }
}

async fn exchange(
    way: &FetchWay<'_>,
    ready: Ready,
    message: Box<Message>,
    mut permit: Option<&mut Permit>,
) -> Result<Hop, HopError> {
    let sent = || {
        if let Some(permit) = &mut permit {
            permit.sent();
        }
    };
    let answer = way.upstream.send(way.terms, ready, message, sent).await;
    if let Some(permit) = permit {
        let reply = match &answer {
            Ok(Answer::Response(response)) => Some(HostReply::Status(response.status().as_u16())),
            Ok(Answer::Switched(..)) => None,
            Err(unanswered) => unanswered.error.fault().map(HostReply::Fault),
        };
        permit.report_of(None, reply, outcome(&answer), now());
    }
    match answer {
        Ok(Answer::Response(response)) => Ok(Hop::read(*response).await?),
        Ok(Answer::Switched(..)) => Err(UpstreamError::Upgrade.into()),
        Err(unanswered) => Err(unanswered.error.into()),
    }
}

/// The signals that the host sends with this answer, as with any other.
fn outcome(answer: &Result<Answer, Unanswered>) -> VisitOutcome {
    match answer {
        Ok(Answer::Response(response)) => {
            let fields =
                SignalFields::of(response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
            let status = response.status().as_u16();
            VisitOutcome::Heard(signals::read(status, &fields, &SignalPolicy::default(), now()))
        }
        Ok(Answer::Switched(..)) => VisitOutcome::Opened,
        Err(_) => VisitOutcome::Failed,
    }
}

/// Does the work in the time that is left; if it takes longer, that is this fault.
async fn within<T>(left: Duration, work: impl Future<Output = T>, fault: OriginFault) -> Result<T, HopError> {
    let done = tokio::time::timeout(left, work).await;
    done.map_err(|_| HopError::Failed(HopFailure { text: "it took too long".to_owned(), fault: Some(fault) }))
}

/// Conditions that ask for the file only if it has changed.
fn conditions(previous: &RobotsRecordState) -> HeaderMap {
    let mut conditions = HeaderMap::new();
    let Some(answer) = &previous.answer else { return conditions };
    for (name, known) in [(IF_NONE_MATCH, &answer.etag), (IF_MODIFIED_SINCE, &answer.last_modified)] {
        if let Some(value) = known.as_ref().and_then(|text| HeaderValue::from_str(text).ok()) {
            conditions.insert(name, value);
        }
    }
    conditions
}

struct FetchAddress {
    origin: Origin,
    path: String,
}

impl fmt::Display for FetchAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

impl FetchAddress {
    /// Whether to follow a redirect to this address. On another host only a file called robots: anything else is a page
    /// (a front page, a login), has no rules in it, and may be forbidden by that host's own robots.txt. RFC 9309,
    /// section 2.3.1.2, lets a crawler treat such a file as missing.
    fn may_follow(&self, first: &HostKey) -> bool {
        let path = self.path.split('?').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        self.origin.host == *first || name.to_ascii_lowercase().contains("robots")
    }

    /// Returns the target of the redirect, if it is an HTTP or HTTPS URL.
    fn next(&self, hop: &Hop) -> Option<FetchAddress> {
        let url = Url::parse(&self.to_string()).ok()?.join(hop.field(&LOCATION)?).ok()?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let host = HostKey::parse(url.host_str()?).ok()?;
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        Some(FetchAddress {
            origin: Origin { scheme, host, port: url.port_or_known_default()? },
            path: path.to_owned(),
        })
    }

    fn request(&self, way: &FetchWay<'_>, conditions: HeaderMap) -> Result<Box<Message>, String> {
        let uri = Uri::try_from(self.to_string()).map_err(|error| error.to_string())?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(authority).map_err(|error| error.to_string())?;
        let mut request = Request::new(RequestBody::Empty);
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, way.user_agent.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("text/plain, */*;q=0.5"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(conditions);
        let (parts, body) = request.into_parts();
        Ok(Message::new(&parts, None, body, way.terms.config))
    }
}

/// An answer, read as far as needed.
struct Hop {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Hop {
    async fn read(response: Response<Reply>) -> Result<Hop, String> {
        let (parts, reply) = response.into_parts();
        let mut hop = Hop { status: parts.status.as_u16(), headers: parts.headers, body: Vec::new() };
        if !parts.status.is_success() {
            return Ok(hop);
        }
        if let Some(coding) = hop.field(&CONTENT_ENCODING).filter(|coding| !coding.eq_ignore_ascii_case("identity")) {
            return Err(format!("it came compressed ({coding}), which was not asked for"));
        }
        hop.body = collect(reply).await?;
        Ok(hop)
    }

    fn field(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn answer(&self, cache_ttl: Duration) -> robots::reply::FetchReply<'_> {
        let (now, date) = (now(), |name| self.field(&name).map(|text| signals::strict_date(text, now())));
        let fields = SignalFields::of(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        let listening = SignalPolicy { statuses: vec![self.status], ..SignalPolicy::default() };
        robots::reply::FetchReply {
            status: self.status,
            body: &self.body,
            freshness: Freshness {
                cache_control: self.field(&CACHE_CONTROL),
                expires: date(EXPIRES).map(|expires| expires.unwrap_or(Timestamp::START)),
                date: date(DATE).flatten(),
                age: self.field(&AGE).and_then(|age| age.trim().parse().ok()).map(Duration::from_secs),
                at_most: Some(cache_ttl),
            },
            etag: self.field(&ETAG),
            last_modified: self.field(&LAST_MODIFIED),
            retry_after: signals::read(self.status, &fields, &listening, now).retry_after,
        }
    }
}

/// Reads as much of the body as is parsed. The rest is not worth the wait.
async fn collect(mut reply: Reply) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut reply).poll_frame(cx)).await {
        let frame = frame.map_err(|broken| broken.to_string())?;
        if let Ok(piece) = frame.into_data() {
            let room = MAX_BODY + 1 - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        if body.len() > MAX_BODY {
            break;
        }
    }
    Ok(body)
}

impl FetchResult {
    fn answer(previous: Option<&RobotsRecordState>, hop: Hop, cache_ttl: Duration) -> FetchResult {
        let record = after(previous, &Fetched::Answered(hop.answer(cache_ttl)));
        FetchResult { record, status: Some(hop.status), body: hop.body, error: None, trail: Vec::new() }
    }

    fn lost(previous: Option<&RobotsRecordState>, status: u16) -> FetchResult {
        let error = Some("its redirects lead nowhere".to_owned());
        let record = after(previous, &Fetched::Lost);
        FetchResult { record, status: Some(status), body: Vec::new(), error, trail: Vec::new() }
    }

    fn nothing(previous: Option<&RobotsRecordState>, HopFailure { text, fault }: HopFailure) -> FetchResult {
        let record = after(previous, &Fetched::Failed(fault));
        FetchResult { record, status: None, body: Vec::new(), error: Some(text), trail: Vec::new() }
    }
}

fn after(previous: Option<&RobotsRecordState>, fetched: &Fetched<'_>) -> RobotsRecordState {
    RobotsRecordState::after(previous, fetched, now(), fastrand::f64())
}
