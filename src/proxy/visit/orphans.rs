//! Waits for answers to requests whose client has disconnected: an origin that says "too fast" is heard all the same.
//!
//! Without this, clients whose timeout is shorter than the time an overloaded origin takes to refuse would send the
//! request again and again, and the origin would never get relief. The request keeps its place until its answer comes,
//! because the origin is still working on it. Bounded in time and number; beyond that a request is dropped with its
//! client.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::timeout;

use super::signals::signals;
use crate::gate::{Permit, now};
use crate::politeness::HostKey;
use crate::politeness::visit::VisitOutcome;
use crate::proxy::Shared;
use crate::upstream::Orphan;

/// How long curtsy waits for an answer that no client waits for. Overloaded servers, and gateways before them, refuse
/// within 30 s as a rule. The request occupies a place at the host for that long.
const LONGEST: Duration = Duration::from_secs(30);
/// Some 10 KiB each: as much memory as a few large heads.
const MOST: usize = 256;

/// Waits for the answer in a separate task, and lets the host's lane learn from it.
pub(crate) fn listen(shared: &Arc<Shared>, budget: &HostKey, permit: Permit, orphan: Orphan) {
    // Nothing is learned for a host that is not paced.
    if permit.account().is_none() {
        return;
    }
    // There is no runtime to spawn on while it shuts down.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    if shared.orphans.fetch_add(1, Relaxed) >= MOST {
        shared.orphans.fetch_sub(1, Relaxed);
        return;
    }
    let counted = OrphanCount(shared.clone());
    let budget = budget.clone();
    runtime.spawn(hear(counted, budget, permit, orphan));
}

async fn hear(counted: OrphanCount, budget: HostKey, mut permit: Permit, orphan: Orphan) {
    let shared = &counted.0;
    let Ok(answer) = timeout(LONGEST, orphan.answer()).await else { return };
    let heard = now();
    match answer {
        Ok(response) => {
            let settings = shared.settings.load();
            let signals = signals(shared, &settings, &budget, &response, heard);
            permit.report(VisitOutcome::Heard(signals), heard);
        }
        Err(error) if error.blames_the_origin() => permit.report(VisitOutcome::Failed, heard),
        Err(_) => {}
    }
}

/// Counts one waiting answer while it lives.
struct OrphanCount(Arc<Shared>);

impl Drop for OrphanCount {
    fn drop(&mut self) {
        self.0.orphans.fetch_sub(1, Relaxed);
    }
}
