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

/// The same for a connection that several requests share, with times since a moment before the first request. Requests
/// that wait in the origin's socket are dated late, with the time at which the last of them came, so the gap after a
/// late one looks short. No request is dated early: each must come after all gaps before it.
#[track_caller]
pub(crate) fn expect_gaps_on_shared(times: &[Duration], least: Duration) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let early = (0..).zip(&times).find(|(before, time)| **time + ROOM < least * *before);
    assert_eq!(early, None, "{least:?} are due each time, not {:?}", gaps(&times));
}
