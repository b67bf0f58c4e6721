//! When requests reach the origin: how many, how late, how early.
//!
//! One time per request, and no allocation. The origin notes a request when it gets round to it, so what it sees of
//! a busy machine is its own lateness, too: a gap is too short after one that was noted too late.

use std::time::Duration;

use tokio::time::Instant;

/// Gaps are told apart to this.
const STEP: Duration = Duration::from_micros(100);
/// Later than so many steps, 2 s, is as bad as that.
const STEPS: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Audit {
    delay: Duration,
    /// The last start of each host.
    last: Vec<Option<Instant>>,
    watching: bool,
    /// Starts, by how many whole steps the gap to the one before was longer than the delay.
    late: Vec<u64>,
    /// All these gaps together.
    gaps: Duration,
    early: Duration,
    /// Of each host: was there a start?
    seen: Vec<bool>,
}

impl Audit {
    pub(crate) fn new(hosts: usize, delay: Duration) -> Self {
        Audit {
            delay,
            last: vec![None; hosts],
            watching: false,
            late: vec![0; STEPS],
            gaps: Duration::ZERO,
            early: Duration::ZERO,
            seen: vec![false; hosts],
        }
    }

    /// From now on it counts.
    pub(crate) fn begin(&mut self) {
        self.watching = true;
    }

    pub(crate) fn end(&mut self) {
        self.watching = false;
    }

    /// A request to this host has come.
    pub(crate) fn start(&mut self, host: usize, now: Instant) {
        let before = self.last[host].replace(now);
        if let (true, Some(before)) = (self.watching, before) {
            let gap = now - before;
            self.gaps += gap;
            self.early = self.early.max(self.delay.saturating_sub(gap));
            let steps = gap.saturating_sub(self.delay).div_duration_f64(STEP) as usize;
            self.late[steps.min(STEPS - 1)] += 1;
            self.seen[host] = true;
        }
    }

    pub(crate) fn starts(&self) -> u64 {
        self.late.iter().sum()
    }

    /// The delay over the mean gap. Starts over time would say the same of long times only: in ten seconds, ten starts
    /// with gaps of 1.05 s look like what a delay of 1 s allows.
    pub(crate) fn used(&self) -> f64 {
        self.delay.as_secs_f64() * self.starts() as f64 / self.gaps.as_secs_f64()
    }

    /// By how much the worst gap was too short.
    pub(crate) fn early(&self) -> Duration {
        self.early
    }

    /// All but one gap in a hundred were longer than the delay by less than this.
    pub(crate) fn late_p99(&self) -> Duration {
        let most = self.starts() - self.starts() / 100;
        let mut so_far = 0;
        let enough = |count: &u64| {
            so_far += count;
            so_far >= most
        };
        STEP * (self.late.iter().position(enough).unwrap_or(STEPS) + 1) as u32
    }

    /// Hosts without a start, which no gap tells of.
    pub(crate) fn unvisited(&self) -> usize {
        self.seen.iter().filter(|&&seen| !seen).count()
    }
}
