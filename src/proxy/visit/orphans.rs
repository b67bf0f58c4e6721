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
use crate::politeness::signals::PaceSignal;
use crate::politeness::visit::VisitOutcome;
use crate::proxy::answer::body::Body;
use crate::proxy::request::{forward, headers};
use crate::proxy::sharing::answer::Share;
use crate::proxy::sharing::flights::Membership;
use crate::proxy::sharing::landing;
use crate::proxy::{Settings, Shared};
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
            let signals = settings.signals(&response, heard);
            if signals.answer == PaceSignal::Throttled {
                shared.count_throttled(&budget, response.status().as_u16());
            }
            permit.report(VisitOutcome::Heard(signals), heard);
            if let Some(member) = member {
                share(shared, &settings, &member, response, permit, heard.since(sent)).await;
            }
        }
        Err(error) if error.blames_the_origin() => permit.report(VisitOutcome::Failed, heard),
        Err(_) => {}
    }
}

/// Shares an answer with the clients that wait for it, and stores it if that is allowed.
async fn share(
    shared: &Arc<Shared>,
    settings: &Settings,
    member: &Membership,
    mut response: Response<Reply>,
    permit: Permit,
    took: Duration,
) {
    let (version, plan) = (response.version(), member.request());
    headers::incoming(response.headers_mut(), forward::signature(settings, shared), version);
    if plan.is_confirmed(shared, &response, took) {
        member.share_stored();
    } else if let Some(Share::Coming(answer, reader)) = landing::land(member, &response, took) {
        drop(reader);
        let tap = plan.try_begin(shared, settings, &mut response, took).ok().flatten();
        landing::fill_here(&answer, Body::passing(response.into_body()).storing(tap), permit).await;
    }
}

/// Counts one waiting answer while it lives.
struct OrphanCount(Arc<Shared>);

impl Drop for OrphanCount {
    fn drop(&mut self) {
        self.0.orphans.fetch_sub(1, Relaxed);
    }
}
