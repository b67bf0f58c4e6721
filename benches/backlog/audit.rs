//! Records when requests reach the origin: how many, how late, how early.
//!
//! Takes one timestamp per request, and allocates nothing. The origin records a request when its task runs, so on a
//! busy machine its own lateness is included: after a gap that was recorded too late, the next gap looks too short.

use std::time::Duration;

use tokio::time::Instant;

/// Resolution of gaps.
const STEP: Duration = Duration::from_micros(100);
/// Number of steps. Everything later than that, 2 s, counts as the last step.
const STEPS: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Audit {
    delay: Duration,
    /// The last start of each host.
    last: Vec<Option<Instant>>,
    watching: bool,
    /// Number of starts, indexed by how many whole steps their gap was longer than the delay.
    late: Vec<u64>,
    /// Sum of these gaps.
    gaps: Duration,
    early: Duration,
    /// Whether there was a start, for each host.
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

    /// Starts counting.
    pub(crate) fn begin(&mut self) {
        self.watching = true;
    }

    pub(crate) fn end(&mut self) {
        self.watching = false;
    }

    /// Records the arrival of a request to this host.
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

    /// The delay divided by the mean gap. Starts divided by time would give the same only over long times: in ten
    /// seconds, ten starts with gaps of 1.05 s look like what a delay of 1 s allows.
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

    /// Number of hosts without a start, which no gap shows.
    pub(crate) fn unvisited(&self) -> usize {
        self.seen.iter().filter(|&&seen| !seen).count()
    }
}
