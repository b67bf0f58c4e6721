//! A request that waits for its robots.txt before it may join the lane of its host.
//!
//! The request counts as waiting, for its host and in total, and the API lists it. Dropping it gives its place back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::shared_lane::SharedLane;
use super::waiting_list::{Label, VisitClient};
use super::{Gate, now, too_many};
use crate::politeness::HostKey;
use crate::politeness::visit::{LaneRefusal, Visit};

/// `Retry-After` without a lane to compute one: the smallest value it can carry.
const SOON: Duration = Duration::from_secs(1);

/// A request that waits for robots.txt.
#[derive(Debug)]
pub struct RobotsWait {
    visit: Visit,
    /// `None` if no host is paced: then there is no line.
    place: Option<WaitingPlace>,
}

#[derive(Debug)]
struct WaitingPlace {
    gate: Arc<Gate>,
    lane: Arc<SharedLane>,
    /// The request's number in the line of all hosts.
    number: u64,
}

impl Gate {
    /// Lets a request wait for robots.txt, or returns at once why it is refused.
    pub fn wait_for_robots(
        self: &Arc<Self>,
        host: &HostKey,
        visit: Visit,
        label: Label,
    ) -> Result<RobotsWait, LaneRefusal> {
        if self.off.load(Relaxed) {
            return Ok(RobotsWait { visit, place: None });
        }
        let now = now();
        let lane = match self.registry.known(host) {
            Some(lane) => lane,
            None => self.registry.lane(host, &self.book.load(), now)?,
        };
        let expected = lane.look(|state| {
            state.used(now);
            state.lane.wait_for_robots(&visit, now)
        })?;
        self.waiting.fetch_add(1, Relaxed);
        let number = self.line.enter(&lane, VisitClient::of(&visit), now, expected);
        self.line.label(number, label);
        self.line.waits_for_robots(number);
        let place = WaitingPlace { gate: self.clone(), lane, number };
        if self.is_crowded_for(visit.peer) {
            return Err(too_many(expected, now));
        }
        Ok(RobotsWait { visit, place: Some(place) })
    }
}

impl RobotsWait {
    /// Returns the refusal for a request that waited longer than its client would wait for its turn.
    pub fn too_long(&self) -> LaneRefusal {
        let told =
            |place: &WaitingPlace| place.lane.look(|state| state.lane.robots_wait_was_too_long(&self.visit, now()));
        self.place.as_ref().map_or(LaneRefusal::WaitTooLong { retry_after: SOON }, told)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.lane.look(|state| state.lane.leave_robots_wait());
        self.gate.waiting.fetch_sub(1, Relaxed);
        self.gate.line.leave(self.number);
    }
}
