//! One host that is followed: a point for each step.

use std::collections::VecDeque;
use std::collections::vec_deque;

use super::push;
use crate::admin::time::millis;
use crate::politeness::lane::View;
use crate::politeness::time::Timestamp;

#[derive(Debug)]
pub(super) struct Track {
    /// When the host last had a viewer or a queue.
    wanted: Timestamp,
    /// Visits that had left the queue when the last point was taken.
    served: u32,
    points: VecDeque<TrackPoint>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrackPoint {
    pub(super) delay_ms: u32,
    pub(super) requests: u32,
    pub(super) queued: u32,
    pub(super) waited_ms: u32,
}

impl Track {
    pub(super) fn new(view: Option<&View>, now: Timestamp) -> Self {
        Track { wanted: now, served: view.map_or(0, served), points: VecDeque::new() }
    }

    pub(super) fn want(&mut self, now: Timestamp) {
        self.wanted = now;
    }

    pub(super) fn wanted(&self) -> Timestamp {
        self.wanted
    }

    pub(super) fn points(&self) -> vec_deque::Iter<'_, TrackPoint> {
        self.points.iter()
    }

    /// `waiting`: since when the first request in the queue has waited.
    pub(super) fn take(&mut self, view: Option<&View>, waiting: Option<Timestamp>, now: Timestamp) {
        let served = view.map_or(0, served);
        // A lane that was dropped and created again counts from zero.
        let requests = if served < self.served { served } else { served - self.served };
        self.served = served;
        let point = TrackPoint {
            delay_ms: view.map_or(0, |view| short(millis(view.delays.effective()))),
            requests,
            queued: view.map_or(0, |view| short(view.queued as u64)),
            waited_ms: waiting.map_or(0, |since| short(millis(now.since(since)))),
        };
        push(&mut self.points, point);
    }
}

fn served(view: &View) -> u32 {
    view.visits.wrapping_sub(short(view.queued as u64))
}

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admin::history::{POINTS, STEP};
    use crate::politeness::lane::Lane;
    use crate::politeness::policy::Policy;

    #[test]
    fn what_was_served_is_counted_from_point_to_point() {
        let view = Lane::new(Policy { delay: Duration::from_secs(2), ..Policy::default() }, 0).view(Timestamp::START);
        let with = |visits, queued| View { visits, queued, ..view.clone() };
        let now = Timestamp::from_millis(1_000_000);
        let mut track = Track::new(Some(&with(10, 0)), now);
        track.take(Some(&with(19, 4)), Some(now), now + STEP);
        track.take(Some(&with(19, 0)), None, now + STEP * 2);
        track.take(None, None, now + STEP * 3);
        track.take(Some(&with(3, 1)), None, now + STEP * 4);
        let points: Vec<TrackPoint> = track.points().copied().collect();
        assert_eq!(points[0], TrackPoint { delay_ms: 2000, requests: 5, queued: 4, waited_ms: 5000 });
        assert_eq!(points.iter().map(|point| point.requests).collect::<Vec<_>>(), [5, 4, 0, 2]);
        (0..2 * POINTS).for_each(|_| track.take(None, None, now));
        assert_eq!(track.points().len(), POINTS);
    }
}
