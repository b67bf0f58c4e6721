//! A request's time on a link: knows whether the request has started.
//!
//! A turn that was claimed and not used goes back to the host. So nothing may leave for the origin after its request
//! was given up: if the head is still waiting to be written then, the connection is closed.

use std::task::Waker;

use super::link::{Link, StreamSlot};

#[derive(Debug)]
pub(super) struct StreamGuard {
    seat: StreamSlot,
    pub(super) stream: u32,
    started: bool,
}

impl StreamGuard {
    pub(super) fn new(seat: StreamSlot, stream: u32) -> Self {
        StreamGuard { seat, stream, started: false }
    }

    pub(super) fn link(&self) -> &Link {
        self.seat.link()
    }

    /// Whether the head has left since the last call. Otherwise wakes the task when it leaves.
    pub(super) fn starts(&mut self, waker: &Waker) -> bool {
        if self.started {
            return false;
        }
        let mut record = self.seat.link().record();
        self.started = record.has_left(self.stream);
        if !self.started {
            record.watch(waker);
        }
        self.started
    }

    /// Whether the head is known to have left.
    pub(super) fn has_started(&self) -> bool {
        self.started
    }

    /// Whether the head may have left, now that the connection is over. Returns true at most once.
    pub(super) fn may_have_started(&mut self) -> bool {
        let before = std::mem::replace(&mut self.started, true);
        !before && !self.seat.link().record().was_kept(self.stream)
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if !self.started && !self.seat.link().record().has_left(self.stream) {
            self.seat.link().cut();
        }
    }
}
