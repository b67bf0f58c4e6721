//! What goes wrong in a fleet.

use super::{FleetEvent, FleetFlaw, FleetWorld, LedgerHealth};

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Snapshot,
    /// The ledger hangs; then it goes on, or another server takes its place with the snapshot.
    Stop {
        time: u64,
        replaced: bool,
    },
    /// The ledger goes away; then it is back, empty or with the snapshot.
    Kill {
        time: u64,
        empty: bool,
    },
    Back {
        replaced: bool,
        empty: bool,
    },
    Flush,
    SetClock(i64),
    Cut {
        node: usize,
        time: u64,
    },
    StopNode {
        node: usize,
        time: u64,
    },
    KillNode(usize),
    Hold {
        node: usize,
        time: u64,
    },
}

impl FleetWorld {
    pub(super) fn plan_faults(&mut self) {
        self.at(4_000_000 + self.numbers, FleetEvent::Fault(Fault::Snapshot));
        let node = self.dice.below(self.nodes.len() as u64) as usize;
        let ms = |from: u64, random: u64| (from + random) * 1_000;
        let (short, long) = (self.dice.below(450), self.dice.below(6_000));
        let (first, second) = match self.dice.below(12) {
            0 => (Fault::Stop { time: ms(120, short), replaced: true }, None),
            1 => (Fault::Stop { time: ms(600, long), replaced: false }, None),
            2 => (Fault::Stop { time: ms(600, long), replaced: true }, None),
            3 | 4 => (Fault::Kill { time: ms(150, long), empty: true }, None),
            5 => (Fault::Kill { time: ms(150, long), empty: false }, None),
            6 => (Fault::Flush, Some(Fault::Flush)),
            7 => {
                let ahead = self.dice.below(30_000_000) as i64;
                (Fault::SetClock(if self.dice.chance(50) { ahead } else { -ahead }), None)
            }
            8 => (Fault::Cut { node, time: ms(1_000, 2 * long) }, None),
            9 => {
                (Fault::StopNode { node, time: ms(1, 10 * short) }, Some(Fault::StopNode { node, time: ms(5, short) }))
            }
            10 => (Fault::KillNode(node), None),
            _ => (Fault::Hold { node, time: ms(500, long) }, None),
        };
        let at = 6_000_000 + self.dice.below(4_000_000);
        self.at(at, FleetEvent::Fault(first));
        if let Some(second) = second {
            let later = self.dice.below(5_000_000);
            self.at(at + later, FleetEvent::Fault(second));
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        self.say(|| format!("FAULT {fault:?}"));
        match fault {
            Fault::Snapshot => self.snapshot = Some(self.shared.clone()),
            Fault::Stop { time, replaced } => {
                self.health = LedgerHealth::Stopped;
                self.after(time, FleetEvent::Fault(Fault::Back { replaced, empty: false }));
            }
            Fault::Kill { time, empty } => {
                self.health = LedgerHealth::Away;
                self.after(time, FleetEvent::Fault(Fault::Back { replaced: true, empty }));
            }
            Fault::Back { replaced, empty } => self.back(replaced, empty),
            Fault::Flush => self.flush(),
            Fault::SetClock(by) => self.skew += by,
            Fault::Cut { node, time } => self.nodes[node].cut_until = self.now + time,
            Fault::StopNode { node, time } => self.nodes[node].stopped_until = self.now + time,
            Fault::KillNode(node) => self.nodes[node].is_dead = true,
            Fault::Hold { node, time } => self.hold(node, time),
        }
    }

    fn flush(&mut self) {
        self.judge.held = None;
        self.shared.empty();
        if self.flawed(FleetFlaw::NoEra) {
            self.shared.era = Some(0);
        }
    }

    /// Some nodes reach the new server later than others, though within the time that those keep to their slots.
    fn reach_again(&mut self) {
        for node in 0..self.nodes.len() {
            if self.dice.chance(50) {
                let later = self.dice.below(1_200_000);
                self.nodes[node].cut_until = self.nodes[node].cut_until.max(self.now + later);
            }
        }
    }

    fn back(&mut self, replaced: bool, empty: bool) {
        self.health = LedgerHealth::Up;
        if replaced {
            self.shared = self.snapshot.clone().unwrap_or_default();
            self.shared.name = 2;
            self.reach_again();
        }
        if empty {
            self.flush();
        }
        for (node, id, call) in std::mem::take(&mut self.backlog) {
            self.arrive(node, id, call);
        }
    }
}
