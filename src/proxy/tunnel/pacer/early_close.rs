//! Closes a tunnel behind an answer, if its next request would wait inside for longer than origins keep idle
//! connections.
//!
//! Whether an answer has ended is a guess (`answer_end.rs`) that silence confirms (`tail.rs`). After the end both sides
//! are watched for a moment, and `early_closes.rs` remembers what went wrong.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Pacer;
use crate::clock;
use crate::proxy::tunnel::bursts::BurstVerdict;
use crate::proxy::tunnel::early_closes::ClientKind;
use crate::proxy::tunnel::tail::{Silence, Tail};

/// How long after the origin's last bytes a request inside a tunnel should be sent at the latest. Node and Apache close
/// idle connections after 5 s; 2 s are left for the network and for waits that become longer than foreseen.
pub(super) const LONGEST_WAIT_INSIDE: Duration = Duration::from_secs(3);

impl Pacer {
    /// Returns how many of the origin's bytes may pass; pending while the last record of an answer is held back, and
    /// once when the tunnel [is closing](Pacer::is_closing).
    pub(crate) fn poll_answer(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<usize> {
        if bytes.len() > self.tail.heard && !self.closing {
            self.origin_sends(&bytes[self.tail.heard..]);
            self.tail.hold(self.should_close());
        }
        self.tail.heard = if self.tail.is_held() { self.bursts.last_record().min(bytes.len()) } else { 0 };
        let free = bytes.len() - self.tail.heard;
        if free > 0 {
            return Poll::Ready(free);
        }
        while ready!(self.tail.poll_silence(cx)) == Silence::Settled && self.should_close() {
            self.in_flight.release();
        }
        self.closing = self.should_close();
        self.tail = Tail::default();
        if self.closing { Poll::Pending } else { Poll::Ready(bytes.len()) }
    }

    /// Lets all bytes of the origin pass, because it has closed the tunnel.
    pub(crate) fn origin_ended(&mut self) {
        self.tail.hold(false);
    }

    /// Whether the tunnel ends as soon as the client has what the origin has sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether to close the tunnel behind the answer, if it has ended: the next request would wait for too long inside.
    /// A client that would send that request all the same keeps its tunnels, until its other requests have waited for
    /// half of what they may.
    fn should_close(&self) -> bool {
        let (gate, budget, closes) = (&self.shared.gate, &self.passage.budget, &self.shared.early_closes);
        self.claim.is_none()
            && self.bursts.may_be_answered()
            && self.would_wait_too_long()
            && !closes.cuts(&self.passage.host)
            && (!(self.reuses_closed || closes.is_reused(self.client_kind()))
                || gate.longest_wait(budget, self.passage.visit.client) > gate.policy(budget).max_wait / 2)
    }

    /// Whether to close a tunnel that has been idle for so long that its next request should not begin to wait in it.
    /// A client that has nothing to send sees the end in time, also if it does not look.
    pub(super) fn should_close_idle(&self) -> bool {
        let Pacer { shared, passage, .. } = self;
        self.claim.is_none()
            && self.bursts.may_be_answered()
            && clock::now() - self.heard_at >= LONGEST_WAIT_INSIDE
            && !shared.early_closes.cuts(&passage.host)
            && !shared.gate.wait_of(&passage.budget, &self.inner_visit()).is_zero()
    }

    /// Whether a request that came now would be sent too long after the origin's last bytes.
    pub(super) fn would_wait_too_long(&self) -> bool {
        let wait = self.shared.gate.wait_of(&self.passage.budget, &self.inner_visit());
        wait.saturating_add(clock::now() - self.heard_at) > LONGEST_WAIT_INSIDE
    }

    /// Notes that the client has been sent the end of the tunnel.
    pub(crate) fn has_closed(&mut self) {
        self.in_flight.release();
        tracing::debug!(
            event = "tunnel.closed_early", host = %self.passage.host,
            "a tunnel is closed behind an answer: its next request would wait longer than origins keep idle connections"
        );
    }

    /// Reads what the origin sends after the end. Returns whether it belongs to an answer, which is cut short.
    pub(crate) fn hears_after_end(&mut self, bytes: &[u8]) -> bool {
        let before = self.bursts.told();
        self.bursts.origin_sends(bytes);
        let is_cut = self.bursts.told() > before;
        if is_cut {
            self.shared.metrics.tunnels.closed_early("cut");
            self.shared.early_closes.cut(&self.passage.host);
        }
        is_cut
    }

    /// Reads what the client sends after the end, if anything. A request is lost; most clients repeat it.
    pub(crate) fn is_sent_after_end(&mut self, bytes: &[u8]) {
        let is_request = self.bursts.client_sends(bytes) == BurstVerdict::Turn;
        self.shared.metrics.tunnels.closed_early(if is_request { "reused" } else { "clean" });
        if is_request {
            self.shared.early_closes.reused(self.client_kind(), &self.passage.host);
        }
    }

    /// The client and the kind of its program.
    fn client_kind(&self) -> ClientKind {
        ClientKind { client: self.passage.visit.client, program: self.bursts.program() }
    }
}
