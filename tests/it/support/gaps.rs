//! How far apart requests came.

use std::time::Duration;

use super::deadline::ms;

/// What a gap may be short of by the kernel's notes: it is counted from when the write had returned, but not to the
/// microsecond by two clocks.
pub(crate) const ROOM: Duration = ms(1);

/// From each to the next, in the order in which they came: threads may have noted them in another.
pub(crate) fn gaps(times: &[Duration]) -> Vec<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[track_caller]
pub(crate) fn expect_gaps(times: &[Duration], least: Duration) {
    let gaps = gaps(times);
    assert!(gaps.iter().all(|gap| *gap + ROOM >= least), "{least:?} are due, not {gaps:?}");
}
