//! Reads what an answer says about time: too fast, not before, so many requests left.
//!
//! Promises: whatever an origin sends, reading it ends, allocates next to nothing and gives numbers within bounds; a
//! malformed field counts as absent. A response without such fields costs one pass over its field names. This module
//! only reads; the [`pace`](super::pace) decides what to do. It must not know the HTTP library: it receives names and
//! values.

mod http_date;
mod ratelimit;
mod retry_after;
mod span;
pub mod structured;

use std::time::Duration;

use super::time::Timestamp;

pub use self::http_date::strict as strict_date;
pub use self::ratelimit::Quota;

/// The settings for reading answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalPolicy {
    /// Statuses that count as "too fast". A 403 with a Retry-After or a used-up quota always does.
    pub statuses: Vec<u16>,
    /// Statuses that may mean "too fast", if they come only above a pace.
    pub suspects: Vec<u16>,
    /// No origin can close itself for longer than this with one answer.
    pub retry_after_max: Duration,
    pub ratelimit_fields: bool,
}

impl Default for SignalPolicy {
    fn default() -> Self {
        // GitHub's quotas reset within the hour. An origin that asks for more is tried again once an hour.
        let retry_after_max = Duration::from_secs(3600);
        SignalPolicy { statuses: vec![429, 503], suspects: vec![403], retry_after_max, ratelimit_fields: true }
    }
}

/// The header fields about time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalFields<'a> {
    pub date: Option<&'a str>,
    pub age: Option<&'a str>,
    pub retry_after: Option<&'a str>,
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11), one entry per line.
    pub ratelimit: [Option<&'a str>; LINES],
    pub ratelimit_policy: [Option<&'a str>; LINES],
    /// `RateLimit-Remaining` and `RateLimit-Reset` (draft 03), then their `X-` dialects.
    pub remaining: [Option<&'a str>; DIALECTS],
    pub reset: [Option<&'a str>; DIALECTS],
}

/// A list may be spread over several lines (RFC 9110, 5.3); no origin is known to send more than two.
const LINES: usize = 4;
/// `RateLimit-`, `X-RateLimit-`, `X-Rate-Limit-`.
const DIALECTS: usize = 3;

impl<'a> SignalFields<'a> {
    /// Picks these fields out of a response's header. Names must be lower-case.
    pub fn of(header: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut fields = SignalFields::default();
        for (name, value) in header {
            fields.notice(name, value);
        }
        fields
    }

    /// Whether a field of this name, in lower case, may say something about time. A date alone says nothing.
    pub fn may_tell(name: &str) -> bool {
        matches!(name.as_bytes(), [b'r', b'a' | b'e', ..] | [b'x', b'-', b'r', ..])
    }

    /// Whether there is nothing but perhaps a date, as in almost all responses.
    fn are_silent(&self) -> bool {
        self.retry_after.is_none() && self.ratelimit[0].is_none() && self.remaining == [None; DIALECTS]
    }

    fn notice(&mut self, name: &str, value: &'a [u8]) {
        if !matches!(name.as_bytes().first(), Some(b'a' | b'd' | b'r' | b'x')) {
            return;
        }
        let lines: &mut [Option<&'a str>] = match name {
            "date" => std::slice::from_mut(&mut self.date),
            "age" => std::slice::from_mut(&mut self.age),
            "retry-after" => std::slice::from_mut(&mut self.retry_after),
            "ratelimit" => &mut self.ratelimit,
            "ratelimit-policy" => &mut self.ratelimit_policy,
            "ratelimit-remaining" => &mut self.remaining[..1],
            "x-ratelimit-remaining" => &mut self.remaining[1..2],
            "x-rate-limit-remaining" => &mut self.remaining[2..],
            "ratelimit-reset" => &mut self.reset[..1],
            "x-ratelimit-reset" | "x-ratelimit-reset-after" => &mut self.reset[1..2],
            "x-rate-limit-reset" => &mut self.reset[2..],
            _ => return,
        };
        // If a field may have only one line, the first counts.
        if let (Some(free), Ok(text)) = (lines.iter_mut().find(|line| line.is_none()), str::from_utf8(value)) {
            *free = Some(text.trim_ascii());
        }
    }
}

/// The result of a request, as far as its host's pace is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceSignal {
    /// Served at this pace. A 404 proves that as well as a 200.
    Success,
    /// Too fast.
    Throttled,
    /// Says nothing about the pace: "forbidden" means "not you" far more often than "not so fast".
    Neutral,
    /// Says nothing about the pace, unless such answers come only above a pace.
    Suspect,
    /// A server error, or no answer at all.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    pub answer: PaceSignal,
    /// Only from a throttling answer; greater than zero, within bounds.
    pub retry_after: Option<Duration>,
    /// Time until a used-up quota resets.
    pub used_up: Option<Duration>,
    /// The tightest of the quotas that are not used up.
    pub quota: Option<Quota>,
}

impl Signals {
    /// Served, without any field about time.
    pub const SERVED: Signals = Signals { answer: PaceSignal::Success, retry_after: None, used_up: None, quota: None };
    /// No answer arrived: the connection failed, or it timed out.
    pub const FAILED: Signals = Signals { answer: PaceSignal::Failed, retry_after: None, used_up: None, quota: None };
}

/// Reads what an answer says. `now` replaces a missing `Date`.
pub fn read(status: u16, fields: &SignalFields<'_>, listening: &SignalPolicy, now: Timestamp) -> Signals {
    let said = if fields.are_silent() { SaidOfTime::default() } else { said(status, fields, listening, now) };
    let limited = said.retry_after.is_some() || said.quota.spent;
    let answer = match status {
        _ if listening.statuses.contains(&status) => PaceSignal::Throttled,
        // GitHub answers limits with 403.
        403 if limited => PaceSignal::Throttled,
        _ if listening.suspects.contains(&status) => PaceSignal::Suspect,
        // Forbidden, too slow, too early; and "too fast" if 429 is not among the configured statuses.
        403 | 408 | 425 | 429 => PaceSignal::Neutral,
        500.. => PaceSignal::Failed,
        _ => PaceSignal::Success,
    };
    let longest = listening.retry_after_max;
    Signals {
        answer,
        retry_after: said.retry_after.filter(|_| answer == PaceSignal::Throttled).map(|wait| wait.min(longest)),
        used_up: said.quota.used_up.map(|wait| wait.min(longest)),
        quota: said.quota.quota,
    }
}

/// What the fields of an answer say, whatever its status means.
#[derive(Default)]
struct SaidOfTime {
    retry_after: Option<Duration>,
    quota: ratelimit::SaidQuota,
}

fn said(status: u16, fields: &SignalFields<'_>, listening: &SignalPolicy, now: Timestamp) -> SaidOfTime {
    let sent = fields.date.and_then(|date| http_date::robust(date, now)).unwrap_or(now);
    // A stored answer says nothing about the present (draft 11, 7.3).
    let stored = fields.age.is_some_and(|age| age.bytes().any(|digit| digit != b'0'));
    let quota = match listening.ratelimit_fields && !stored {
        true => ratelimit::read(fields, sent),
        false => ratelimit::SaidQuota::default(),
    };
    let retry_after = match status {
        400.. => fields.retry_after.and_then(|text| retry_after::read(text, sent, now)),
        // On a redirect, Retry-After concerns only the redirect.
        _ => None,
    };
    SaidOfTime { retry_after, quota }
}

#[cfg(test)]
#[path = "signals_tests.rs"]
mod tests;
