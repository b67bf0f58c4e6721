//! What a fetch of robots.txt means, and how its record may be used at a given time.
//!
//! RFC 9309, section 2.3.1: an answer that there is no file (4xx) allows everything; no answer (5xx, a network failure)
//! allows nothing, except what the last good copy allows. Promises: nothing is ever allowed because a fetch failed; a
//! file is requested again within a day; a host in trouble is asked rarely, and a refusal says when it will be asked
//! again.
//!
//! Pure: the fetcher reads fields and dates, follows redirects along a [`Trail`], and passes in the result.

use std::sync::Arc;
use std::time::Duration;

use super::Rules;
use super::freshness::{self, Freshness};
use crate::politeness::fault::{HostReply, OriginFault};
use crate::politeness::time::Timestamp;

/// How a fetch ended.
#[derive(Clone, Copy, Debug)]
pub enum Fetched<'f> {
    Answered(FetchReply<'f>),
    /// Too many redirects, a redirect loop, or a redirect that leads nowhere.
    Lost,
    /// No answer, or an incomplete one: timeout, DNS, TLS, reset, a body cut short; or, without a fault of the origin,
    /// a destination that is refused.
    Failed(Option<OriginFault>),
}

/// The answer at the end of the redirects.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchReply<'f> {
    pub status: u16,
    /// At most [`MAX_BODY`](super::MAX_BODY) plus one byte are read.
    pub body: &'f [u8],
    pub freshness: Freshness<'f>,
    pub etag: Option<&'f str>,
    pub last_modified: Option<&'f str>,
    /// Retry-After, as the time from now.
    pub retry_after: Option<Duration>,
}

/// What is known of one origin's robots.txt.
#[derive(Clone, Debug, PartialEq)]
pub struct RobotsRecordState {
    /// The last conclusive answer.
    pub answer: Option<RobotsAnswer>,
    /// The trouble since then, if later fetches were inconclusive.
    pub trouble: Option<Trouble>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RobotsAnswer {
    pub says: Says,
    pub fresh_until: Timestamp,
    /// May be used until then while the file is fetched again.
    pub stale_until: Timestamp,
    /// May be used until then while the origin is in trouble.
    pub last_resort_until: Timestamp,
    /// For If-None-Match.
    pub etag: Option<Box<str>>,
    /// For If-Modified-Since.
    pub last_modified: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Says {
    Rules(Arc<Rules>),
    /// There is no robots.txt, so nothing is forbidden.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// Begin of the trouble: the first inconclusive fetch after the last conclusive answer.
    pub since: Timestamp,
    /// Fetches in a row that ended like this.
    pub times: u32,
    /// No fetch before this time.
    pub retry_at: Timestamp,
    /// How the last fetch failed; `None` if the origin is not to blame, or an earlier version stored the record.
    pub cause: Option<HostReply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// 429: the host wants fewer requests, pages included.
    Throttled,
    Unreachable,
}

/// What to do with a request that needs the rules.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordLook<'r> {
    Use(&'r Says),
    /// Use the rules, and fetch again meanwhile.
    UseAndRefresh(&'r Says),
    /// Nothing is known until the file is fetched.
    MustFetch,
    /// Nothing is known, and it is too early to fetch.
    Refuse {
        kind: TroubleKind,
        cause: Option<HostReply>,
        retry_after: Duration,
    },
}

/// RFC 9309, section 2.4: no copy is used longer than this, unless the origin is unreachable.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);
/// RFC 9309's example of a reasonably long time, section 2.3.1.4.
const LAST_RESORT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long an answer that there is no file is believed.
const NONE_FRESH: Duration = Duration::from_secs(6 * 60 * 60);
/// How long an answer that access is denied is believed. A firewall may change its mind.
const FORBIDDEN_FRESH: Duration = Duration::from_secs(60 * 60);

/// The first wait and the longest one. Waits double in between.
const UNREACHABLE_WAITS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15 * 60));
const THROTTLED_WAITS: (Duration, Duration) = (Duration::from_secs(5 * 60), Duration::from_secs(60 * 60));
/// No origin can stop curtsy from asking for longer than this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// Longer than most delays, so that the page for which a file was fetched may still follow the fetch. The lane decides
/// whether it may: only one page does, and only if nothing was sent since.
const NEW: Duration = Duration::from_secs(60);

/// Longer validators are dropped, because they would cost more than they save.
const VALIDATOR_MAX: usize = 128;

impl RobotsRecordState {
    /// Returns the record after a fetch. `dice`, from 0 to 1, spreads the times, so that origins fetched together are
    /// not fetched together again.
    #[must_use]
    pub fn after(
        previous: Option<&RobotsRecordState>,
        fetched: &Fetched<'_>,
        now: Timestamp,
        dice: f64,
    ) -> RobotsRecordState {
        let answer = previous.and_then(|record| record.answer.as_ref());
        match fetched {
            Fetched::Lost => RobotsRecordState::none(NONE_FRESH, STALE, now, dice),
            Fetched::Failed(fault) => {
                let cause = fault.map(HostReply::Fault);
                let spell = Spell { kind: TroubleKind::Unreachable, asked: None, cause };
                RobotsRecordState::troubled(previous, spell, now, dice)
            }
            Fetched::Answered(reply) => match (reply.status, answer) {
                (200..=299, _) => RobotsRecordState::with(RobotsAnswer::of(reply, now, dice)),
                (304, Some(answer)) if answer.can_be_renewed() => {
                    RobotsRecordState::with(answer.renewed(reply, now, dice))
                }
                (401 | 403 | 451, _) => RobotsRecordState::none(FORBIDDEN_FRESH, Duration::ZERO, now, dice),
                (429, _) => RobotsRecordState::troubled(previous, Spell::of(TroubleKind::Throttled, reply), now, dice),
                // A redirect that is not followed leads nowhere: treated as if there were no file.
                (300..=303 | 305..=499, _) => RobotsRecordState::none(NONE_FRESH, STALE, now, dice),
                // Includes what no origin should send: 304 to a request without a condition, 1xx, 600 and above.
                _ => RobotsRecordState::troubled(previous, Spell::of(TroubleKind::Unreachable, reply), now, dice),
            },
        }
    }

    pub fn look(&self, now: Timestamp) -> RecordLook<'_> {
        match (&self.answer, &self.trouble) {
            (Some(answer), None) if now < answer.fresh_until => RecordLook::Use(&answer.says),
            (Some(answer), None) if now < answer.stale_until => RecordLook::UseAndRefresh(&answer.says),
            (Some(answer), Some(trouble)) if now < answer.last_resort_until => {
                if now < trouble.retry_at {
                    RecordLook::Use(&answer.says)
                } else {
                    RecordLook::UseAndRefresh(&answer.says)
                }
            }
            (_, Some(trouble)) if now < trouble.retry_at => {
                let Trouble { kind, cause, retry_at, .. } = *trouble;
                RecordLook::Refuse { kind, cause, retry_after: retry_at.since(now) }
            }
            _ => RecordLook::MustFetch,
        }
    }

    /// Whether the answer arrived a moment ago, so that a page may follow the fetch.
    pub fn is_new(&self, now: Timestamp) -> bool {
        let came = self.answer.as_ref().filter(|_| self.trouble.is_none()).and_then(RobotsAnswer::came_at);
        came.is_some_and(|came| now.since(came) < NEW)
    }

    /// Whether the answer is a file that forbids something to some client.
    pub fn forbids_something(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| match &answer.says {
            Says::Rules(rules) => rules.forbids_something(),
            Says::Nothing => false,
        })
    }

    /// Returns the record without validators: the next fetch is unconditional and returns the whole file.
    #[must_use]
    pub fn without_validators(&self) -> RobotsRecordState {
        let answer = self.answer.clone().map(|answer| RobotsAnswer { etag: None, last_modified: None, ..answer });
        RobotsRecordState { answer, trouble: self.trouble }
    }

    /// Limits the times of a stored record to what a fetch could have produced, whatever the file or a clock says.
    #[must_use]
    pub fn remembered(mut self, fetched: Timestamp, now: Timestamp) -> RobotsRecordState {
        if let Some(answer) = &mut self.answer {
            answer.stale_until = answer.stale_until.min(fetched.min(now) + STALE);
            answer.fresh_until = answer.fresh_until.min(answer.stale_until);
            answer.last_resort_until = answer.last_resort_until.min(now + LAST_RESORT);
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.retry_at = trouble.retry_at.min(now + RETRY_AFTER_MAX);
        }
        self
    }

    fn with(answer: RobotsAnswer) -> RobotsRecordState {
        RobotsRecordState { answer: Some(answer), trouble: None }
    }

    /// The record if there is no robots.txt. Such an answer is not a last resort: that an origin once had no file says
    /// little about today.
    fn none(fresh: Duration, stale: Duration, now: Timestamp, dice: f64) -> RobotsRecordState {
        let fresh_until = now + freshness::spread(fresh, dice);
        let stale_until = fresh_until.max(now + stale);
        let last_resort_until = stale_until;
        let says = Says::Nothing;
        RobotsRecordState::with(RobotsAnswer {
            says,
            fresh_until,
            stale_until,
            last_resort_until,
            etag: None,
            last_modified: None,
        })
    }

    fn troubled(
        previous: Option<&RobotsRecordState>,
        Spell { kind, asked, cause }: Spell,
        now: Timestamp,
        dice: f64,
    ) -> RobotsRecordState {
        let before = previous.and_then(|record| record.trouble);
        let times = before.filter(|trouble| trouble.kind == kind).map_or(1, |trouble| trouble.times.saturating_add(1));
        let asked = asked.map(|wait| wait.min(RETRY_AFTER_MAX));
        let wait = match kind {
            TroubleKind::Throttled => asked.unwrap_or_else(|| doubled(THROTTLED_WAITS, times, dice)),
            TroubleKind::Unreachable => doubled(UNREACHABLE_WAITS, times, dice).max(asked.unwrap_or_default()),
        };
        let since = before.map_or(now, |trouble| trouble.since);
        RobotsRecordState {
            answer: previous.and_then(|record| record.answer.clone()),
            trouble: Some(Trouble { kind, since, times, retry_at: now + wait, cause }),
        }
    }
}

/// A fetch that was inconclusive.
struct Spell {
    kind: TroubleKind,
    /// Retry-After.
    asked: Option<Duration>,
    cause: Option<HostReply>,
}

impl Spell {
    fn of(kind: TroubleKind, reply: &FetchReply<'_>) -> Spell {
        Spell { kind, asked: reply.retry_after, cause: Some(HostReply::Status(reply.status)) }
    }
}

impl RobotsAnswer {
    /// When the answer arrived, if what is stored of it shows that. After a denied access only the end of its validity
    /// is known.
    pub fn came_at(&self) -> Option<Timestamp> {
        let kept_for_a_day = matches!(self.says, Says::Rules(_)) || self.fresh_until < self.stale_until;
        kept_for_a_day.then(|| self.stale_until - STALE)
    }

    fn of(reply: &FetchReply<'_>, now: Timestamp, dice: f64) -> RobotsAnswer {
        let validator = |text: Option<&str>| text.filter(|text| text.len() <= VALIDATOR_MAX).map(Box::from);
        RobotsAnswer {
            says: Says::Rules(Arc::new(Rules::parse(reply.body))),
            fresh_until: now + reply.freshness.lifetime(now, dice),
            stale_until: now + STALE,
            last_resort_until: now + LAST_RESORT,
            etag: validator(reply.etag),
            last_modified: validator(reply.last_modified),
        }
    }

    /// Whether a conditional request is possible, which a 304 can answer.
    fn can_be_renewed(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// The answer after a 304: the same content, valid anew.
    fn renewed(&self, reply: &FetchReply<'_>, now: Timestamp, dice: f64) -> RobotsAnswer {
        let RobotsAnswer { says, etag, last_modified, .. } = self.clone();
        RobotsAnswer { says, etag, last_modified, ..RobotsAnswer::of(&FetchReply { body: &[], ..*reply }, now, dice) }
    }
}

fn doubled((first, longest): (Duration, Duration), times: u32, dice: f64) -> Duration {
    let doublings = times.saturating_sub(1).min(16);
    freshness::spread(first.saturating_mul(1 << doublings).min(longest), dice)
}

/// The redirects followed so far. RFC 9309, section 2.3.1.2, asks for at least five.
#[derive(Clone, Debug)]
pub struct Trail {
    visited: Vec<String>,
}

const MAX_REDIRECTS: usize = 5;

impl Trail {
    pub fn new(url: String) -> Trail {
        Trail { visited: vec![url] }
    }

    /// The URLs that were fetched, in order.
    pub fn visited(self) -> Vec<String> {
        self.visited
    }

    /// Whether this status is a redirect to follow, if there is a Location. The rules found there belong to the origin
    /// that was asked first.
    pub fn leads_on(status: u16) -> bool {
        matches!(status, 301 | 302 | 303 | 307 | 308)
    }

    /// Whether to follow a redirect to this URL. If not, or without a URL, the fetch is [`Fetched::Lost`].
    pub fn follow(&mut self, url: &str) -> bool {
        let follow = self.visited.len() <= MAX_REDIRECTS && !self.visited.iter().any(|visited| visited == url);
        if follow {
            self.visited.push(url.to_owned());
        }
        follow
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
