//! The moments at which a node may start while it cannot ask the ledger.
//!
//! Time is divided into rounds of as many steps as there are nodes. A step is the delay and the length of a slot. In
//! each round a node has one slot, at the step of its rank. So nodes that cannot hear each other do not meet, and nodes
//! that can hear the ledger keep away from the slots of a node that is missing.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    pub rank: u32,
    pub nodes: u32,
}

/// Returns the length of a slot. It is longer than the window of a claim, because a node that is alone has only its own
/// timer.
pub fn length(delay: u64) -> u64 {
    (delay / 50).clamp(5_000, 20_000)
}

/// Returns the distance between the slots of two nodes.
pub fn step(delay: u64) -> u64 {
    delay + length(delay)
}

impl Slots {
    /// Returns the first slot of this node at or after a time.
    pub fn next(self, at: u64, step: u64) -> u64 {
        let (phase, round) = (self.phase(step), self.round(step));
        let past = (at + round - phase % round) % round;
        if past == 0 { at } else { at + round - past }
    }

    pub fn phase(self, step: u64) -> u64 {
        u64::from(self.rank) * step
    }

    pub fn round(self, step: u64) -> u64 {
        u64::from(self.nodes.max(1)) * step
    }
}

/// Returns the first time at or after `at` that is a step after every slot with one of these phases and `before` ahead
/// of the next. A start that has no such time between two slots gets one that is too near; the caller tries again.
pub fn clear_of(mut at: u64, missing: &[u64], round: u64, (step, before): (u64, u64)) -> u64 {
    for _ in 0..=missing.len() {
        for phase in missing {
            let past = (at + round - phase % round) % round;
            if past < step {
                at += step - past;
            } else if round - past < before {
                at += round - past + step;
            }
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 1_020;

    #[test]
    fn nodes_that_are_alone_never_meet() {
        for nodes in 1..=8 {
            let starts: Vec<u64> =
                (0..nodes).flat_map(|rank| [0, 5_000].map(|at| Slots { rank, nodes }.next(at, STEP))).collect();
            for (index, start) in starts.iter().enumerate() {
                let others = starts.iter().skip(index + 1).filter(|other| *other != start);
                assert!(others.into_iter().all(|other| other.abs_diff(*start) >= STEP), "{nodes} nodes: {starts:?}");
            }
        }
    }

    #[test]
    fn a_claim_keeps_away_from_the_slots_of_missing_nodes() {
        for nodes in 2..=8_u32 {
            let round = u64::from(nodes) * STEP;
            let missing: Vec<u64> =
                (1..nodes).filter(|rank| rank % 2 == 1).map(|rank| u64::from(rank) * STEP).collect();
            for at in (0..3 * round).step_by(37) {
                let clear = clear_of(at, &missing, round, (STEP, STEP));
                assert!(clear >= at && clear <= at + round + STEP, "{at} {clear}");
                for phase in &missing {
                    let past = (clear + round - phase) % round;
                    assert!(past >= STEP && round - past >= STEP, "{nodes} nodes, {at}: {clear} meets {phase}");
                }
            }
        }
    }
}
