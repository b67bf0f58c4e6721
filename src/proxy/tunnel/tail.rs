//! Holds back the last record of an answer, while it is not known whether the tunnel is closed behind it.
//!
//! A client that has all of an answer may send its next request within a millisecond. So if the tunnel has to be closed
//! before that request, the end must travel with the last bytes of the answer: the client then finds the connection
//! closed when it wants to use it again, and opens a new one. This file knows the times; `pacer.rs` decides.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::clock;

/// After this much silence behind a whole record the exchange no longer counts towards `concurrency`. Network
/// stalls of this length are common, but they end in the middle of a record.
const SETTLED: Duration = Duration::from_millis(100);
/// After this much silence the answer has ended. Longer than the pauses of programs that send an answer in pieces, and
/// shorter than the longest wait inside a tunnel, so that the host is never idle because a client got its answer late.
const ENDED: Duration = Duration::from_secs(2);

/// What the silence behind a record that is held back means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The exchange is probably over.
    Settled,
    /// The answer has ended.
    Ended,
}

#[derive(Default)]
pub(crate) struct Tail {
    /// How many of the origin's bytes that have not passed were shown to [`Bursts`](super::bursts::Bursts).
    pub(crate) heard: usize,
    /// Set while a record is held back.
    alarm: Option<(Pin<Box<Sleep>>, Silence)>,
}

impl Tail {
    /// Holds back, from now on, or stops doing so.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.alarm = is_held.then(|| (Box::pin(tokio::time::sleep(SETTLED)), Silence::Settled));
    }

    pub(crate) fn is_held(&self) -> bool {
        self.alarm.is_some()
    }

    /// Waits for silence. Returns each kind of it once.
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Silence> {
        let Some((alarm, next)) = &mut self.alarm else { return Poll::Ready(Silence::Ended) };
        ready!(alarm.as_mut().poll(cx));
        alarm.as_mut().reset(clock::now() + (ENDED - SETTLED));
        Poll::Ready(std::mem::replace(next, Silence::Ended))
    }
}
