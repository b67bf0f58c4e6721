//! What becomes of the answer to a request that leads a flight.

use std::sync::Arc;
use std::time::Duration;

use http::Response;

use super::answer::{Share, ShareVerdict, SharedAnswer, judge};
use super::flights::Membership;
use crate::gate::{Follower, Permit, now};
use crate::politeness::visit::VisitOutcome;
use crate::proxy::answer::body::Body;
use crate::upstream::Reply;

/// Decides who gets the answer, whose head is as it goes to clients. Returns the leader's share if others get it too;
/// then the caller must [`fill`] the body.
pub(crate) fn land(member: &Membership, response: &Response<Reply>, took: Duration) -> Option<Share> {
    if member.lands_alone() {
        // The usual case, for which nothing needs to be judged.
        return None;
    }
    match judge(member.request(), response, took) {
        ShareVerdict::Share(terms) => {
            let kept = member.flights().kept.clone();
            return Some(member.share(SharedAnswer::new(response, terms, kept, took)));
        }
        ShareVerdict::Private => member.keep_private(),
        ShareVerdict::Failure => member.leave(),
    }
    None
}

/// Reads the body for all who share it, in a task of its own. The request keeps its place at the host until the end.
pub(crate) fn fill(answer: &Arc<SharedAnswer>, body: Body, permit: Permit) {
    let answer = answer.clone();
    // There is no runtime to spawn on while it shuts down.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { fill_here(&answer, body, permit).await });
    }
}

/// The same, in the task that calls it.
pub(crate) async fn fill_here(answer: &SharedAnswer, body: Body, mut permit: Permit) {
    if answer.body().fill(body).await.is_some() {
        permit.report(VisitOutcome::Truncated, now());
    }
}
