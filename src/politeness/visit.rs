//! What a client wishes, what it may be told, and what became of it: as far as pacing cares.
//!
//! Values only. A refusal that time heals carries the time, in whole seconds as `Retry-After` speaks them.

use std::time::Duration;

use super::signals::Signals;
use super::time::Timestamp;

/// The client of a request, as a number: a keyed hash of the proxy user or of the peer address. The key keeps clients
/// from choosing numbers that collide. If an address gives itself a name, the lower half is the name's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// A client of the same owner, with a name that proves nothing.
    pub fn named(self, name: ClientId) -> Self {
        ClientId(self.0 & !NAME | name.0 & NAME)
    }

    /// The user or address, which no client can choose. Two that share a number, one pair in four billions, share turns.
    pub fn owner(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

const NAME: u64 = u32::MAX as u64;

/// The origin a visit is for, as a number: a keyed hash of scheme, host and port. Failures are counted by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OriginId(pub u32);

/// One wish to send one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub client: ClientId,
    /// The client by its address alone, which it cannot choose as it can its name.
    pub peer: ClientId,
    pub origin: OriginId,
    /// A hash of the URL. With the client it tells who comes back as told.
    pub url: u64,
    /// RFC 9218 urgency: 0 goes first, 3 is usual. Orders only a client's own visits.
    pub urgency: u8,
    /// curtsy sends the request again: it has waited before.
    pub retry: bool,
    /// How long the client is willing to wait, if less than the policy allows.
    pub max_wait: Option<Duration>,
    /// What robots.txt asks of this client; zero if nothing.
    pub crawl_delay: Duration,
    /// robots.txt is against it, and it is let through all the same: if it counted, this visit would not be made.
    pub denied: bool,
    pub purpose: Purpose,
}

/// What a request is for, as far as spacing cares: "the first request to a host waits for robots.txt and nothing else".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nearly every request.
    Page,
    /// The first request of a robots.txt fetch. It takes a turn like any other. If it finds the host free, one page that
    /// waited for it may follow at once; if it stands in the queue, it counts as a page.
    RobotsFetch,
    /// A page whose request waited for its robots.txt. It may follow a `RobotsFetch` at once, if nothing was sent since.
    AfterRobotsFetch,
}

/// RFC 9218, section 4.1.
pub const USUAL_URGENCY: u8 = 3;

impl Visit {
    /// As most are: neither urgent nor again, as patient as the policy, and robots.txt asks for nothing.
    pub fn new(client: ClientId, url: u64) -> Self {
        let (peer, origin, max_wait, crawl_delay) = (client, OriginId::default(), None, Duration::ZERO);
        let (urgency, retry, denied, purpose) = (USUAL_URGENCY, false, false, Purpose::Page);
        Visit { client, peer, origin, url, urgency, retry, max_wait, crawl_delay, denied, purpose }
    }
}

/// A visit in a lane. Numbers of visits that are gone are used again, but not with the same generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(super) number: u32,
    pub(super) generation: u32,
}

impl Ticket {
    /// Small and dense: an index into whatever a caller keeps beside the lane.
    pub fn number(self) -> usize {
        self.number as usize
    }
}

/// curtsy says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    QueueFull {
        retry_after: Duration,
    },
    WaitTooLong {
        retry_after: Duration,
    },
    /// The host is held, or paused: then nobody knows until when.
    HostCooling {
        retry_after: Option<Duration>,
    },
    /// The origin has only failed lately.
    BreakerOpen {
        retry_after: Duration,
    },
    /// curtsy stops before the visit could start. The time is when the host would have taken it; none while it is paused.
    ShuttingDown {
        retry_after: Option<Duration>,
    },
    /// So many hosts are visited at once that there is no lane for another one.
    HostsFull {
        retry_after: Duration,
    },
}

impl Refusal {
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Refusal::QueueFull { retry_after }
            | Refusal::WaitTooLong { retry_after }
            | Refusal::BreakerOpen { retry_after }
            | Refusal::HostsFull { retry_after } => Some(retry_after),
            Refusal::HostCooling { retry_after } | Refusal::ShuttingDown { retry_after } => retry_after,
        }
    }
}

/// What became of a request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response head came, and says this about time.
    Heard(Signals),
    /// Somebody answers, but nobody can read what: a tunnel.
    Opened,
    /// No response head came.
    Failed,
    /// The response head came, and its body broke off.
    Truncated,
}

/// What the lane wants done next. Whoever asked obeys, and asks again until it is told to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its turn is near: make its connection ready, then call `ready`.
    Prepare(Ticket),
    /// It has a permit and a turn: write the head, then call `sent`.
    Start(Ticket),
    /// It has left the lane with this answer.
    Refuse(Ticket, Refusal),
    /// Nothing to do until the alarm, or until something is reported if there is none.
    Wait(Option<Alarm>),
}

/// When to ask again, and which visit keeps the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    pub at: Timestamp,
    pub keeper: Ticket,
}
