//! How far apart requests came.

use std::time::Duration;

use super::deadline::ms;

/// How much shorter a gap may be by the kernel's timestamps. curtsy counts it from the return of the write, and the two
/// clocks do not agree to the microsecond.
pub(crate) const ROOM: Duration = ms(1);

/// The gaps between consecutive times, after sorting: threads may have noted the times in another order.
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

/// How much shorter a gap may be, once, on a connection that several requests share. Bytes that were read together with
/// a head may have come later, and the timestamp is that of the last byte.
const SHARED_ROOM: Duration = ms(100);

/// The same for a connection that several requests share. Also checks all gaps together.
#[track_caller]
pub(crate) fn expect_gaps_on_shared(times: &[Duration], least: Duration) {
    let gaps = gaps(times);
    assert!(gaps.iter().all(|gap| *gap + SHARED_ROOM >= least), "{least:?} are due, not {gaps:?}");
    let whole: Duration = gaps.iter().sum();
    assert!(whole + SHARED_ROOM >= least * gaps.len() as u32, "{least:?} are due each time, not {gaps:?}");
}
