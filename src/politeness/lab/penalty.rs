//! A ban on top of any limit, for simulated hosts.

use super::dice::Dice;
use super::servers::{ServerLimit, ServerTaken};

/// A client that exceeds a limit is banned.
#[derive(Debug)]
pub(super) struct PenaltyBox {
    limit: Box<dyn ServerLimit>,
    ban: f64,
    /// Whether every request during the ban renews it.
    renewed: bool,
    until: f64,
}

impl PenaltyBox {
    pub(super) fn new(limit: Box<dyn ServerLimit>, ban: f64, renewed: bool) -> Self {
        PenaltyBox { limit, ban, renewed, until: -1.0 }
    }
}

impl ServerLimit for PenaltyBox {
    fn take(&mut self, at: f64, work: f64, dice: &mut Dice) -> ServerTaken {
        let banned = at < self.until;
        if !banned && self.limit.take(at, work, dice).served {
            return ServerTaken::served(None);
        }
        if !banned || self.renewed {
            self.until = at + self.ban;
        }
        ServerTaken::refused(self.until - at)
    }

    fn rate(&self, at: f64) -> f64 {
        self.limit.rate(at)
    }

    fn burst(&self) -> f64 {
        self.limit.burst()
    }
}
