//! Retries: whether a refused request may be sent again on the client's behalf.
//!
//! Three conditions must hold: the request has tries left; its answer is one that may change with time ([`may_retry`]),
//! by its status or because the host refuses in disguise ([`Lane::refuses_in_disguise`](super::lane::Lane));
//! and its host's budget has room ([`Budget`]), so that a host that refuses everything does not get several times the
//! requests. Whether the request can be sent again at all (its method, its body, how long its client waits) is for the
//! caller to know.

use std::time::Duration;

use super::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Tries besides the first.
    pub max: u32,
    pub statuses: Vec<u16>,
    /// The fraction of a host's requests that may be retries, in addition to a few that are always allowed.
    pub budget: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        // A tenth: gRPC's retry throttling (A6) and Google's SRE book use the same value.
        RetryPolicy { max: 3, statuses: vec![429, 503], budget: 0.1 }
    }
}

/// Whether to send a request again that was sent `tries` times and then answered with `status`. `disguised` says
/// whether that was a refusal by a status that is usually none.
pub fn may_retry(tries: u32, status: u16, disguised: impl FnOnce() -> bool, retrying: &RetryPolicy) -> bool {
    tries <= retrying.max && (retrying.statuses.contains(&status) || disguised())
}

/// The retry budget of one host. Every first request adds its share, every retry takes one.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Thousandths of a retry.
    saved: u32,
    counted: Timestamp,
}

const RETRY: u32 = 1_000;
/// The budget a host starts with, and the most it can save up: enough for a first burst of refusals at the usual
/// concurrency.
const SAVED: u32 = 10 * RETRY;
/// One retry is added per 20 s in any case: at a crawl of one request a minute, a tenth would be none at all.
const ONE_COMES_BACK: Duration = Duration::from_secs(20);

impl Default for Budget {
    fn default() -> Self {
        Budget { saved: SAVED, counted: Timestamp::START }
    }
}

impl Budget {
    pub fn new() -> Self {
        Budget::default()
    }

    /// Adds the share of a request that is sent for the first time.
    pub fn sent(&mut self, share: f64) {
        let share = (share.clamp(0.0, 1.0) * f64::from(RETRY)) as u32;
        self.saved = self.saved.saturating_add(share).min(SAVED);
    }

    /// Number of retries left.
    pub fn left(&self, now: Timestamp) -> u32 {
        self.saved.saturating_add(self.come_back(now)).min(SAVED) / RETRY
    }

    /// Takes one retry, if there is one.
    #[must_use]
    pub fn take(&mut self, now: Timestamp) -> bool {
        let back = self.come_back(now);
        if back > 0 {
            self.saved = self.saved.saturating_add(back).min(SAVED);
            self.counted = now;
        }
        let enough = self.saved >= RETRY;
        if enough {
            self.saved -= RETRY;
        }
        enough
    }

    /// Whether the budget is full.
    pub fn is_whole(&self, now: Timestamp) -> bool {
        self.saved.saturating_add(self.come_back(now)) >= SAVED
    }

    /// What time has added since the last count.
    fn come_back(&self, now: Timestamp) -> u32 {
        let back = now.since(self.counted).as_millis() * u128::from(RETRY) / ONE_COMES_BACK.as_millis();
        u32::try_from(back).unwrap_or(SAVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1_000)
    }

    /// An empty budget.
    fn spent(now: Timestamp) -> Budget {
        let mut budget = Budget::new();
        while budget.take(now) {}
        budget
    }

    #[test]
    fn three_more_tries_for_what_time_heals() {
        let retrying = RetryPolicy::default();
        let plain = |tries, status, retrying: &RetryPolicy| may_retry(tries, status, || false, retrying);
        assert!(plain(1, 429, &retrying) && plain(3, 503, &retrying));
        assert!(!plain(4, 429, &retrying));
        assert!(!plain(1, 403, &retrying) && !plain(1, 500, &retrying) && !plain(1, 200, &retrying));
        assert!(plain(1, 403, &RetryPolicy { statuses: vec![403], ..RetryPolicy::default() }));
        assert!(!plain(1, 429, &RetryPolicy { max: 0, ..RetryPolicy::default() }));
        assert!(may_retry(3, 403, || true, &retrying) && !may_retry(4, 403, || true, &retrying));
    }

    #[test]
    fn a_host_begins_with_a_few() {
        let mut budget = Budget::new();
        assert_eq!((budget.left(at(0)), spent(at(0)).left(at(0)), spent(at(0)).left(at(41))), (10, 0, 2));
        assert_eq!((0..100).filter(|_| budget.take(at(0))).count(), 10);
    }

    #[test]
    fn then_a_tenth_of_the_requests_may_be_retries() {
        let retrying = RetryPolicy::default();
        let mut budget = spent(at(0));
        let mut taken = 0;
        for _ in 0..1_000 {
            budget.sent(retrying.budget);
            taken += u32::from(budget.take(at(0)));
        }
        assert_eq!(taken, 100);
    }

    #[test]
    fn and_three_a_minute_in_any_case() {
        let none = RetryPolicy { budget: 0.0, ..RetryPolicy::default() };
        let mut budget = spent(at(0));
        let mut taken = 0;
        for second in 1..=600 {
            budget.sent(none.budget);
            taken += u32::from(budget.take(at(second)));
        }
        assert_eq!(taken, 30);
    }

    #[test]
    fn quiet_saves_up_no_more_than_there_was_in_the_beginning() {
        let mut budget = spent(at(0));
        assert_eq!((0..100).filter(|_| budget.take(at(1_000_000))).count(), 10);
        let wild = RetryPolicy { budget: f64::INFINITY, ..RetryPolicy::default() };
        (0..100).for_each(|_| budget.sent(wild.budget));
        assert_eq!((0..100).filter(|_| budget.take(at(1_000_000))).count(), 10);
        budget.sent(f64::NAN);
        assert!(!budget.take(at(1_000_000)));
    }
}
