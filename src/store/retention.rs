//! How much state is kept, and for how long.

use std::time::Duration;

use super::record::HostRecord;

/// The bounds of a store, for memory and disk alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Number of hosts. Each costs about 60 B of memory and 100 B of disk.
    pub hosts: usize,
    /// Bytes of robots.txt, on disk only.
    pub robots_bytes: u64,
    /// Stopped jobs: as many as curtsy can have at once.
    pub jobs: usize,
    /// How long a learned delay is used.
    pub remember: Duration,
    /// How long the time of a send may still matter: at least the longest delay that can be configured or requested.
    pub spacing: Duration,
}

impl Default for Retention {
    /// A million hosts take about 60 MB of memory. With the robots.txt of some 50 000 origins the file stays under
    /// 200 MB.
    fn default() -> Self {
        Retention {
            hosts: 1_000_000,
            robots_bytes: 64 << 20,
            jobs: 1_000,
            remember: Duration::from_secs(30 * 24 * 3600),
            spacing: Duration::from_secs(24 * 3600),
        }
    }
}

impl Retention {
    /// Whether this record can still change a decision. Times in the future count as now: a clock that was set back
    /// must not make curtsy forget.
    pub(super) fn matters(&self, record: &HostRecord, now_us: u64) -> bool {
        record.is_steered(now_us)
            || record.held_until_us > now_us
            || record.has_learned() && within(record.updated_us, self.remember, now_us)
            || within(record.last_sent_us, self.spacing, now_us)
    }
}

fn within(at_us: u64, span: Duration, now_us: u64) -> bool {
    let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    at_us.saturating_add(span) > now_us && at_us > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::StoredOverrides;

    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 24 * 3600 * SECOND;
    const NOW: u64 = 20_000 * DAY;

    fn check(record: HostRecord, expected: bool) {
        assert_eq!(Retention::default().matters(&record, NOW), expected, "{record:?}");
    }

    #[test]
    fn what_can_change_a_decision_is_kept() {
        let nothing = HostRecord::default();
        check(nothing, false);
        check(HostRecord { paused: true, ..nothing }, true);
        check(HostRecord { paused_until_us: NOW + 1, ..nothing }, true);
        check(HostRecord { paused_until_us: NOW, ..nothing }, false);
        check(
            HostRecord { overrides: StoredOverrides { burst: Some(2), ..StoredOverrides::default() }, ..nothing },
            true,
        );
        check(HostRecord { held_until_us: NOW + 1, ..nothing }, true);
        check(HostRecord { held_until_us: NOW, ..nothing }, false);
    }

    #[test]
    fn what_was_learned_or_sent_long_ago_is_not() {
        let nothing = HostRecord::default();
        let learned = HostRecord { learned_ms: 1, ..nothing };
        check(HostRecord { updated_us: NOW - 29 * DAY, ..learned }, true);
        check(HostRecord { updated_us: NOW - 30 * DAY, ..learned }, false);
        check(HostRecord { updated_us: NOW - 29 * DAY, ..nothing }, false);
        check(HostRecord { floor_ms: 1, updated_us: NOW - 29 * DAY, ..nothing }, true);
        check(HostRecord { last_sent_us: NOW - DAY + 1, ..nothing }, true);
        check(HostRecord { last_sent_us: NOW - DAY, ..nothing }, false);
    }

    #[test]
    fn a_clock_that_was_set_back_forgets_nothing() {
        let record = HostRecord { last_sent_us: NOW + DAY, ..HostRecord::default() };
        check(record, true);
        check(HostRecord { last_sent_us: u64::MAX, ..record }, true);
    }
}
