//! What the whole fleet knows about hosts.

use super::super::Admin;
use super::HostFleet;
use crate::ledger::Ledger;
use crate::politeness::HostKey;
use crate::politeness::fleet::standing::StandingState;

/// Returns where turns are kept now; none without a fleet.
pub(in crate::admin) fn source(admin: &Admin) -> Option<String> {
    let Ledger::Fleet(ledger) = admin.gate.ledger() else { return None };
    let is_alone = ledger.standing().0 != StandingState::Joined;
    Some(if is_alone { "this node alone" } else { "redis" }.to_owned())
}

/// Returns what the fleet knows about a host; none without a fleet.
pub(super) async fn of_host(admin: &Admin, host: &HostKey) -> Option<HostFleet> {
    let Ledger::Fleet(ledger) = admin.gate.ledger() else { return None };
    let from = source(admin)?;
    let unknown = HostFleet { from, last_start_s: None, nodes_waiting: None, held_s: None, paused: None };
    if unknown.from != "redis" {
        return Some(unknown);
    }
    Some(match ledger.look_at(host.as_str()).await {
        Ok(Some(line)) => HostFleet {
            last_start_s: Some(line.last_start.as_secs_f64()),
            nodes_waiting: Some(line.nodes_waiting),
            held_s: line.held.map(|held| held.as_secs_f64()),
            paused: Some(line.paused),
            ..unknown
        },
        Ok(None) => unknown,
        Err(_) => HostFleet { from: "this node alone".to_owned(), ..unknown },
    })
}
