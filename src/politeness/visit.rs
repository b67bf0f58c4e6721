//! What a client asks for, what it may be told, and how its request ended, as far as pacing is concerned.
//!
//! Values only. A refusal that ends with time carries that time, in whole seconds as in `Retry-After`.

use std::time::Duration;

use super::signals::Signals;
use super::time::Timestamp;

/// The client of a request, as a number: a keyed hash of the proxy user or of the peer address. The key prevents
/// clients from choosing numbers that collide. If a client at an address gives itself a name, the lower half is the
/// hash of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// Returns a client of the same owner with a name. The name proves nothing.
    pub fn named(self, name: ClientId) -> Self {
        ClientId(self.0 & !NAME | name.0 & NAME)
    }

    /// The user or address, which no client can choose. Two owners with the same number (one pair in four billion)
    /// share turns.
    pub fn owner(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

const NAME: u64 = u32::MAX as u64;

/// The origin of a visit, as a number: a keyed hash of scheme, host and port. Failures are counted per origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OriginId(pub u32);

/// One request that a client wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub client: ClientId,
    /// The client by its address alone, which it cannot choose as it can choose its name.
    pub peer: ClientId,
    pub origin: OriginId,
    /// A hash of the URL. Client and URL together identify a request that comes back after `Retry-After`.
    pub url: u64,
    /// RFC 9218 urgency: 0 goes first, 3 is the default. Orders only a client's own visits.
    pub urgency: u8,
    /// curtsy sends the request again. It has waited before.
    pub retry: bool,
    /// How long the client is willing to wait, if less than the policy allows.
    pub max_wait: Option<Duration>,
    /// What robots.txt asks of this client; zero if nothing.
    pub crawl_delay: Duration,
    /// robots.txt forbids the visit, but it is let through. If robots.txt were enforced, this visit would not be made.
    pub denied: bool,
    /// The request is inside a tunnel that curtsy does not look into, or opens it.
    pub tunnelled: bool,
    /// Another request for the same URL may make this visit needless, so it is not known how many go before it.
    pub may_share: bool,
    pub purpose: Purpose,
    pub part: PagePart,
}

/// What a request is for, as far as spacing is concerned: "the first request to a host waits for robots.txt and nothing
/// else".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nearly every request.
    Page,
    /// The first request of a robots.txt fetch. It takes a turn like any other. If it finds the host free, one page
    /// that waited for it may follow at once. If it has to queue, it counts as a page.
    RobotsFetch,
    /// A page whose request waited for its robots.txt. It may follow a `RobotsFetch` at once, if nothing was sent in
    /// between.
    AfterRobotsFetch,
}

/// Whether a request loads a part of a page, as its client labels it. The label counts only where pages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// A page, or a request without a label.
    No,
    /// An image, a style sheet, a script…
    Resource,
    /// What a script of the page fetches. Its turn carries no other parts: a program that copies a browser's header
    /// fields sends nothing else.
    Data,
}

/// RFC 9218, section 4.1.
pub const USUAL_URGENCY: u8 = 3;

impl Visit {
    /// An ordinary visit: usual urgency, not a retry, the policy's longest wait, no crawl delay.
    pub fn new(client: ClientId, url: u64) -> Self {
        let (peer, origin, max_wait, crawl_delay) = (client, OriginId::default(), None, Duration::ZERO);
        let (urgency, retry, denied, tunnelled, may_share) = (USUAL_URGENCY, false, false, false, false);
        Visit {
            client,
            peer,
            origin,
            url,
            urgency,
            retry,
            max_wait,
            crawl_delay,
            denied,
            tunnelled,
            may_share,
            purpose: Purpose::Page,
            part: PagePart::No,
        }
    }
}

/// A visit in a lane. The numbers of visits that have left are reused, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(super) number: u32,
    pub(super) generation: u32,
}

impl Ticket {
    /// Small and dense: callers can use it as an index.
    pub fn number(self) -> usize {
        self.number as usize
    }
}

/// curtsy refuses a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneRefusal {
    QueueFull {
        retry_after: Duration,
    },
    WaitTooLong {
        retry_after: Duration,
    },
    /// The host is held, or paused. A pause may have no known end.
    HostCooling {
        retry_after: Option<Duration>,
    },
    /// The origin has only failed lately.
    BreakerOpen {
        retry_after: Duration,
    },
    /// curtsy stops before the visit could start. The time is when the host would have taken the visit; `None` while it
    /// is paused.
    ShuttingDown {
        retry_after: Option<Duration>,
    },
    /// So many hosts are visited at once that there is no lane for another one.
    HostsFull {
        retry_after: Duration,
    },
}

impl LaneRefusal {
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            LaneRefusal::QueueFull { retry_after }
            | LaneRefusal::WaitTooLong { retry_after }
            | LaneRefusal::BreakerOpen { retry_after }
            | LaneRefusal::HostsFull { retry_after } => Some(retry_after),
            LaneRefusal::HostCooling { retry_after } | LaneRefusal::ShuttingDown { retry_after } => retry_after,
        }
    }
}

/// How a sent request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitOutcome {
    /// The response head arrived, with these signals about time.
    Heard(Signals),
    /// The origin answered, but curtsy cannot read the answer: a tunnel.
    Opened,
    /// No response head arrived.
    Failed,
    /// The response head arrived, but the body broke off.
    Truncated,
}

/// What the lane wants done next. The caller does it and asks again, until the lane says wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The visit's turn is near: make its connection ready, then call `ready`.
    Prepare(Ticket),
    /// The visit has a permit and a turn: write the head, then call `sent`.
    Start(Ticket),
    /// The visit has left the lane with this refusal.
    Refuse(Ticket, LaneRefusal),
    /// Nothing to do until the alarm. Without an alarm, nothing to do until something is reported.
    Wait(Option<Alarm>),
}

/// When to ask again, and which visit keeps the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    pub at: Timestamp,
    pub keeper: Ticket,
}
