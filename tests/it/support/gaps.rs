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

/// What a busy machine may take from a gap, once, on a connection that several requests share: what was read together
/// with a head may have come later, and the note is of the last of it.
const SHARED_ROOM: Duration = ms(100);

/// The same for such a connection. All gaps together are judged, too.
#[track_caller]
pub(crate) fn expect_gaps_on_shared(times: &[Duration], least: Duration) {
    let gaps = gaps(times);
    assert!(gaps.iter().all(|gap| *gap + SHARED_ROOM >= least), "{least:?} are due, not {gaps:?}");
    let whole: Duration = gaps.iter().sum();
    assert!(whole + SHARED_ROOM >= least * gaps.len() as u32, "{least:?} are due each time, not {gaps:?}");
}
