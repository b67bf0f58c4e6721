//! Simulated hosts with rate limits as real origins build them, for trials in virtual time.
//!
//! Time is in seconds. A limit sees requests in the order of arrival and decides about each. What the host then writes
//! into its answer, true or not, is up to the [`Server`].

use std::collections::VecDeque;
use std::fmt::Debug;

use super::dice::Dice;

/// What a limit does with a request.
#[derive(Clone, Copy, Debug)]
pub struct ServerTaken {
    pub served: bool,
    /// If refused: how long until a request would be served.
    pub wait: f64,
    /// Requests left, and the seconds for which they must last.
    pub left: Option<(u32, f64)>,
    /// How long the answer takes, if not as long as others.
    pub queued: Option<f64>,
}

impl ServerTaken {
    pub(super) fn served(left: Option<(u32, f64)>) -> Self {
        ServerTaken { served: true, wait: 0.0, left, queued: None }
    }

    pub(super) fn refused(wait: f64) -> Self {
        ServerTaken { served: false, wait, left: Some((0, wait)), queued: None }
    }
}

pub trait ServerLimit: Debug {
    /// `work` is how long the request takes if it is served.
    fn take(&mut self, at: f64, work: f64, dice: &mut Dice) -> ServerTaken;

    /// Requests per second that the limit allows in the long run.
    fn rate(&self, at: f64) -> f64;

    /// Requests that the limit allows in addition, once.
    fn burst(&self) -> f64 {
        0.0
    }
}

/// A number that changes: its first value, and later ones with the times from which they apply.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    pub first: f64,
    pub later: Vec<(f64, f64)>,
}

impl ServerPlan {
    fn at(&self, at: f64) -> f64 {
        self.later.iter().rev().find(|(from, _)| at >= *from).map_or(self.first, |(_, value)| *value)
    }
}

impl From<f64> for ServerPlan {
    fn from(first: f64) -> Self {
        ServerPlan { first, later: Vec::new() }
    }
}

/// A quota for each window.
#[derive(Debug)]
pub struct FixedWindow {
    quota: ServerPlan,
    seconds: f64,
    /// Where windows begin by the host's own clock. If `None`, with the first request after the last window.
    phase: Option<f64>,
    begin: f64,
    count: u32,
}

impl FixedWindow {
    pub fn new(quota: impl Into<ServerPlan>, seconds: f64, phase: Option<f64>) -> Self {
        FixedWindow { quota: quota.into(), seconds, phase, begin: f64::NEG_INFINITY, count: 0 }
    }
}

impl ServerLimit for FixedWindow {
    fn take(&mut self, at: f64, _: f64, _: &mut Dice) -> ServerTaken {
        let begin = match self.phase {
            Some(phase) => ((at + phase) / self.seconds).floor() * self.seconds - phase,
            None if at < self.begin + self.seconds => self.begin,
            None => at,
        };
        if begin != self.begin {
            (self.begin, self.count) = (begin, 0);
        }
        let reset = begin + self.seconds - at;
        let quota = self.quota.at(at) as u32;
        if self.count >= quota {
            return ServerTaken::refused(reset);
        }
        self.count += 1;
        ServerTaken::served(Some((quota - self.count, reset)))
    }

    fn rate(&self, at: f64) -> f64 {
        self.quota.at(at) / self.seconds
    }
}

/// A quota for any stretch of time. Refused requests may count, too.
#[derive(Debug)]
pub struct SlidingLog {
    quota: usize,
    seconds: f64,
    refusals_count: bool,
    log: VecDeque<f64>,
}

impl SlidingLog {
    pub fn new(quota: usize, seconds: f64, refusals_count: bool) -> Self {
        SlidingLog { quota, seconds, refusals_count, log: VecDeque::new() }
    }

    /// How long until there is room.
    fn wait(&mut self, at: f64) -> f64 {
        while self.log.front().is_some_and(|first| *first <= at - self.seconds) {
            self.log.pop_front();
        }
        if self.log.len() < self.quota { 0.0 } else { self.log[0] + self.seconds - at }
    }
}

impl ServerLimit for SlidingLog {
    fn take(&mut self, at: f64, _: f64, _: &mut Dice) -> ServerTaken {
        let wait = self.wait(at);
        if wait > 0.0 {
            if self.refusals_count {
                self.log.push_back(at);
                self.log.pop_front();
            }
            return ServerTaken::refused(wait);
        }
        self.log.push_back(at);
        ServerTaken::served(Some(((self.quota - self.log.len()) as u32, self.log[0] + self.seconds - at)))
    }

    fn rate(&self, _: f64) -> f64 {
        self.quota as f64 / self.seconds
    }
}

/// The requests of this window and a share of those of the window before, refused ones included, as HAProxy counts.
#[derive(Debug)]
pub struct SlidingCounter {
    quota: f64,
    seconds: f64,
    window: f64,
    /// Requests in the window before and in this one.
    counts: (f64, f64),
}

impl SlidingCounter {
    pub fn new(quota: f64, seconds: f64) -> Self {
        SlidingCounter { quota, seconds, window: 0.0, counts: (0.0, 0.0) }
    }
}

impl ServerLimit for SlidingCounter {
    fn take(&mut self, at: f64, _: f64, _: &mut Dice) -> ServerTaken {
        let window = (at / self.seconds).floor();
        if window > self.window {
            self.counts = (if window == self.window + 1.0 { self.counts.1 } else { 0.0 }, 0.0);
            self.window = window;
        }
        self.counts.1 += 1.0;
        let left = window + 1.0 - at / self.seconds;
        if self.counts.1 + (self.counts.0 * left).floor() > self.quota {
            return ServerTaken::refused(left * self.seconds);
        }
        ServerTaken::served(None)
    }

    fn rate(&self, _: f64) -> f64 {
        self.quota / self.seconds
    }
}

/// Two limits at once.
#[derive(Debug)]
pub struct Both(pub SlidingLog, pub SlidingLog);

impl ServerLimit for Both {
    fn take(&mut self, at: f64, work: f64, dice: &mut Dice) -> ServerTaken {
        let wait = self.0.wait(at).max(self.1.wait(at));
        if wait > 0.0 {
            return ServerTaken::refused(wait);
        }
        self.0.take(at, work, dice);
        self.1.take(at, work, dice)
    }

    fn rate(&self, at: f64) -> f64 {
        self.0.rate(at).min(self.1.rate(at))
    }
}

/// Tokens arrive at a rate and are saved up. Other clients may take some.
#[derive(Debug)]
pub struct TokenBucket {
    rate: ServerPlan,
    size: f64,
    tokens: f64,
    counted: f64,
    /// The rate at which other clients' requests arrive, and when the next one does.
    others: Option<(f64, f64)>,
}

impl TokenBucket {
    pub fn new(rate: impl Into<ServerPlan>, size: f64) -> Self {
        TokenBucket { rate: rate.into(), size, tokens: size, counted: 0.0, others: None }
    }

    /// Other clients take this many requests a second.
    pub fn shared(self, others: Option<f64>) -> Self {
        TokenBucket { others: others.map(|rate| (rate, 0.0)), ..self }
    }

    fn fill(&mut self, at: f64) {
        self.tokens = self.size.min(self.tokens + (at - self.counted) * self.rate.at(at));
        self.counted = at;
    }

    fn serve_others(&mut self, at: f64, dice: &mut Dice) {
        while let Some((rate, next)) = self.others.filter(|(_, next)| *next <= at) {
            self.fill(next);
            self.tokens -= if self.tokens >= 1.0 { 1.0 } else { 0.0 };
            self.others = Some((rate, next + dice.gap(rate)));
        }
    }
}

impl ServerLimit for TokenBucket {
    fn take(&mut self, at: f64, _: f64, dice: &mut Dice) -> ServerTaken {
        self.serve_others(at, dice);
        self.fill(at);
        let rate = self.rate.at(at);
        if self.tokens < 1.0 {
            return ServerTaken::refused((1.0 - self.tokens) / rate);
        }
        self.tokens -= 1.0;
        let left = self.tokens.floor();
        ServerTaken::served(Some((left as u32, (left + 1.0) / rate)))
    }

    fn rate(&self, at: f64) -> f64 {
        self.rate.at(at) - self.others.map_or(0.0, |(rate, _)| rate)
    }

    fn burst(&self) -> f64 {
        self.size
    }
}

/// A leaky bucket as a meter: requests must keep their distance, with some tolerance.
#[derive(Debug)]
pub struct GcraServer {
    rate: f64,
    burst: f64,
    due: f64,
}

impl GcraServer {
    pub fn new(rate: f64, burst: f64) -> Self {
        GcraServer { rate, burst, due: 0.0 }
    }
}

impl ServerLimit for GcraServer {
    fn take(&mut self, at: f64, _: f64, _: &mut Dice) -> ServerTaken {
        let early = self.due - (self.burst - 1.0) / self.rate - 1e-9;
        if at < early {
            return ServerTaken::refused(early - at);
        }
        self.due = self.due.max(at) + 1.0 / self.rate;
        ServerTaken::served(None)
    }

    fn rate(&self, _: f64) -> f64 {
        self.rate
    }

    fn burst(&self) -> f64 {
        self.burst
    }
}

/// A limit on requests at the same time.
#[derive(Debug)]
pub struct Crowded {
    places: usize,
    work: f64,
    busy: Vec<f64>,
}

impl Crowded {
    pub fn new(places: usize, work: f64) -> Self {
        Crowded { places, work, busy: Vec::new() }
    }
}

impl ServerLimit for Crowded {
    fn take(&mut self, at: f64, work: f64, _: &mut Dice) -> ServerTaken {
        self.busy.retain(|end| *end > at);
        if self.busy.len() >= self.places {
            return ServerTaken::refused(0.1);
        }
        self.busy.push(at + work);
        ServerTaken::served(None)
    }

    fn rate(&self, _: f64) -> f64 {
        self.places as f64 / (self.work + 0.03)
    }
}

/// No limit, but a share of the requests is refused at random.
#[derive(Debug)]
pub struct Moody(pub f64);

impl ServerLimit for Moody {
    fn take(&mut self, _: f64, _: f64, dice: &mut Dice) -> ServerTaken {
        if dice.unit() < self.0 { ServerTaken::refused(1.0) } else { ServerTaken::served(None) }
    }

    fn rate(&self, _: f64) -> f64 {
        f64::INFINITY
    }
}

/// No limit, but one worker that takes requests one after the other: answers become slow before any is refused.
#[derive(Debug)]
pub struct OneWorker {
    rate: f64,
    free: f64,
}

impl OneWorker {
    pub fn new(rate: f64) -> Self {
        OneWorker { rate, free: 0.0 }
    }
}

impl ServerLimit for OneWorker {
    fn take(&mut self, at: f64, _: f64, dice: &mut Dice) -> ServerTaken {
        let done = self.free.max(at) + dice.gap(self.rate);
        if done - at > 30.0 {
            return ServerTaken::refused(done - at);
        }
        self.free = done;
        ServerTaken { queued: Some(done - at), ..ServerTaken::served(None) }
    }

    fn rate(&self, _: f64) -> f64 {
        self.rate
    }
}

/// What the host says in its answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerSays {
    Nothing,
    /// Retry-After: the truth.
    Wait,
    /// Retry-After: always this.
    Always(u64),
    /// RateLimit: the truth.
    Left,
    /// RateLimit: this many more than there are, even when refusing.
    LeftAnd(u32),
}

#[derive(Debug)]
pub struct Server {
    pub limit: Box<dyn ServerLimit>,
    pub says: ServerSays,
    /// How long a request takes on average.
    pub work: f64,
    /// How much longer a message may take than another one on its way to or from the host.
    pub jitter: f64,
    /// The status of a refusal.
    pub refusal: u16,
    /// The share of pages that are forbidden whatever the pace: they get 403 and count for the limit.
    pub forbidden: f64,
}

/// A status, the field that goes with it, and the time the answer takes.
#[derive(Debug)]
pub struct ServerReply {
    pub status: u16,
    pub field: Option<(&'static str, String)>,
    pub after: f64,
    /// Whether the limit let the request through.
    pub served: bool,
}

impl Server {
    pub fn new(limit: impl ServerLimit + 'static) -> Self {
        Server {
            limit: Box::new(limit),
            says: ServerSays::Nothing,
            work: 0.15,
            jitter: 0.02,
            refusal: 429,
            forbidden: 0.0,
        }
    }

    /// `page` is the number of the page that is asked for: a forbidden one stays forbidden.
    pub fn answer(&mut self, at: f64, page: u32, dice: &mut Dice) -> ServerReply {
        let work = self.work * (0.3 * dice.normal() - 0.045).exp();
        let taken = self.limit.take(at, work, dice);
        let field = self.field(&taken);
        let forbidden = Dice(page.into()).unit() < self.forbidden;
        match taken.served {
            true if forbidden => ServerReply { status: 403, field, after: work, served: true },
            true => ServerReply { status: 200, field, after: taken.queued.unwrap_or(work), served: true },
            false => ServerReply { status: self.refusal, field, after: 0.03, served: false },
        }
    }

    fn field(&self, taken: &ServerTaken) -> Option<(&'static str, String)> {
        let quota = |more: u32| {
            let (left, reset) = taken.left?;
            Some(("ratelimit", format!("\"default\";r={};t={}", left + more, reset.ceil())))
        };
        match self.says {
            ServerSays::Left => quota(0),
            ServerSays::LeftAnd(more) => quota(more),
            ServerSays::Wait if !taken.served => Some(("retry-after", taken.wait.ceil().max(1.0).to_string())),
            ServerSays::Always(seconds) if !taken.served => Some(("retry-after", seconds.to_string())),
            ServerSays::Nothing | ServerSays::Wait | ServerSays::Always(_) => None,
        }
    }
}
