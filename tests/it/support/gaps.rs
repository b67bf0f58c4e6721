//! How far apart requests came.

use std::time::Duration;

use super::deadline::ms;
use super::http2_origin::Arrival;

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

/// How much shorter a gap may be between requests on shared connections. curtsy hands a head to the task that writes
/// to the connection, and a busy machine may let that task wait: 1.4 ms were seen beside four busy loops.
const ROOM_ON_SHARED: Duration = ms(10);

/// The same for requests that may share a connection, whose times may be late: no two of them can have come closer to
/// each other, wherever they came between their times.
#[track_caller]
pub(crate) fn expect_gaps_on_shared(arrivals: &[Arrival], least: Duration) {
    expect_gaps_since_start(arrivals, least);
    let times: Vec<(Duration, Duration)> = arrivals.iter().map(|arrival| (arrival.from, arrival.at)).collect();
    for (index, (from, at)) in times.iter().enumerate() {
        for (other_from, other_at) in &times[..index] {
            let longest = at.saturating_sub(*other_from).max(other_at.saturating_sub(*from));
            assert!(longest + ROOM_ON_SHARED >= least, "{least:?} are due, not {longest:?}: {times:?}");
        }
    }
}

/// Each request comes after all gaps since the start of the origin. For requests behind an upload on one connection:
/// the kernel sends them when the origin has read enough of it, so the gap after one that was late is short.
#[track_caller]
pub(crate) fn expect_gaps_since_start(arrivals: &[Arrival], least: Duration) {
    let mut times: Vec<Duration> = arrivals.iter().map(|arrival| arrival.at).collect();
    times.sort_unstable();
    let early = (0..).zip(&times).find(|(before, time)| **time + ROOM < least * *before);
    assert_eq!(early, None, "{least:?} are due each time, not {:?}", gaps(&times));
}
