//! One fetch of robots.txt for a whole fleet: the first node that needs a file fetches it, the others take its copy.

use std::future::Future;

use super::{now, persistence};
use crate::ledger::{FleetLedger, Ledger};
use crate::politeness::Origin;
use crate::politeness::robots::reply::{RecordLook, RobotsRecordState};
use crate::politeness::visit::LaneRefusal;
use crate::store::RobotsRecord;

/// Returns the fleet's copy, or fetches the file and shares it. `anew` does not ask for a copy.
pub(super) async fn fetch(
    ledger: &Ledger,
    origin: &Origin,
    anew: bool,
    fetching: impl Future<Output = Result<RobotsRecordState, LaneRefusal>>,
) -> Result<RobotsRecordState, LaneRefusal> {
    let Ledger::Fleet(fleet) = ledger else { return fetching.await };
    let name = origin.to_string();
    if !anew
        && let Some(text) = fleet.robots_copy(&name).await
        && let Some(record) = read(fleet, &name, &text)
    {
        return Ok(record);
    }
    let ended = fetching.await;
    let answer =
        ended.as_ref().ok().filter(|record| record.trouble.is_none()).and_then(|record| record.answer.as_ref());
    let fresh = answer.map(|answer| answer.fresh_until.since(now())).unwrap_or_default();
    let text = ended.as_ref().ok().filter(|_| answer.is_some()).and_then(|record| write(fleet, &name, record));
    fleet.put_robots(&name, text.as_deref(), fresh).await;
    ended
}

fn write(fleet: &FleetLedger, name: &str, record: &RobotsRecordState) -> Option<String> {
    let kept = persistence::to_store(record, now());
    serde_json::to_string(&moved(kept, |local| fleet.shared_time(name, local))).ok()
}

fn read(fleet: &FleetLedger, name: &str, text: &str) -> Option<RobotsRecordState> {
    let kept: RobotsRecord = serde_json::from_str(text).ok()?;
    let record = persistence::from_store(moved(kept, |theirs| fleet.local_time(name, theirs)), now())?;
    matches!(record.look(now()), RecordLook::Use(_)).then_some(record)
}

/// Moves the times of a copy to another clock.
fn moved(kept: RobotsRecord, time: impl Fn(u64) -> u64) -> RobotsRecord {
    RobotsRecord {
        fetched_us: time(kept.fetched_us),
        fresh_until_us: time(kept.fresh_until_us),
        stale_until_us: time(kept.stale_until_us),
        ..kept
    }
}
