//! Waits for answers to requests whose client has disconnected: an origin that says "too fast" is heard all the same.
//!
//! Without this, clients whose timeout is shorter than the time an overloaded origin takes to refuse would send the
//! request again and again, and the origin would never get relief. The request keeps its place until its answer comes,
//! because the origin is still working on it. Bounded in time and number; beyond that a request is dropped with its
//! client.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::Response;
use tokio::time::timeout;

use crate::gate::{Permit, now};
use crate::politeness::HostKey;
use crate::politeness::visit::VisitOutcome;
use crate::proxy::answer::body::Body;
use crate::proxy::request::{forward, headers};
use crate::proxy::sharing::answer::Share;
use crate::proxy::sharing::flights::Membership;
use crate::proxy::sharing::landing;
use crate::proxy::{Identity, Shared};
use crate::upstream::{Orphan, Reply};

/// How long curtsy waits for an answer that no client waits for. Overloaded servers, and gateways before them, refuse
/// within 30 s as a rule. The request occupies a place at the host for that long.
const LONGEST: Duration = Duration::from_secs(30);
/// Some 10 KiB each: as much memory as a few large heads.
const MOST: usize = 256;

/// Waits for the answer in a separate task, and lets the host's lane learn from it. `member` is the request's part in a
/// flight, if others wait for the answer.
pub(crate) fn listen(
    shared: &Arc<Shared>,
    budget: &HostKey,
    permit: Permit,
    orphan: Orphan,
    member: Option<Membership>,
) {
    // Nothing is learned for a host that is not paced.
    if permit.account().is_none() && member.is_none() {
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
    runtime.spawn(hear(counted, budget, permit, orphan, member));
}

async fn hear(counted: OrphanCount, budget: HostKey, mut permit: Permit, orphan: Orphan, member: Option<Membership>) {
    let (shared, sent) = (&counted.0, now());
    let Ok(answer) = timeout(LONGEST, orphan.answer()).await else { return };
    let heard = now();
    match answer {
        Ok(response) => {
            let settings = shared.settings.load_full();
            let signals = shared.read_signals(&settings, &budget, &response, heard);
            permit.report(VisitOutcome::Heard(signals), heard);
            if let Some(member) = member {
                let signature = forward::signature(&settings, shared);
                share(&member, response, signature, permit, heard.since(sent)).await;
            }
        }
        Err(error) if error.blames_the_origin() => permit.report(VisitOutcome::Failed, heard),
        Err(_) => {}
    }
}

/// Shares an answer with the clients that wait for it.
async fn share(
    member: &Membership,
    mut response: Response<Reply>,
    signature: Option<&Identity>,
    permit: Permit,
    took: Duration,
) {
    let version = response.version();
    headers::incoming(response.headers_mut(), signature, version);
    // The answer is not stored: what the cache needs for that has gone with the client.
    if let Some(Share::Coming(answer, reader)) = landing::land(member, &response, took) {
        drop(reader);
        landing::fill_here(&answer, Body::passing(response.into_body()), permit).await;
    }
}

/// Counts one waiting answer while it lives.
struct OrphanCount(Arc<Shared>);

impl Drop for OrphanCount {
    fn drop(&mut self) {
        self.0.orphans.fetch_sub(1, Relaxed);
    }
}
