//! `GET /api/v1/history` and `/api/v1/hosts/{host}/history`: the last quarter of an hour, for charts.
//!
//! Sampled every 5 s from existing counters, so requests pay nothing for it. Host series exist only for hosts with a
//! queue or a viewer, at most 64; other hosts cost nothing.

mod track;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::track::Track;
use super::hosts::{budget, fresh};
use super::problem::ApiProblem;
use super::time::{self, millis, moment};
use super::{Admin, hosts};
use crate::gate::Gate;
use crate::metrics::{Metrics, WAIT_BUCKETS};
use crate::politeness::HostKey;
use crate::politeness::time::Timestamp;

/// Time between two points.
pub(super) const STEP: Duration = Duration::from_secs(5);
/// A quarter of an hour of points.
const POINTS: usize = 180;
/// With all their points they take a third of a megabyte.
const MOST_TRACKS: usize = 64;
/// A host without a viewer and without a queue is dropped after this time.
const FORGOTTEN: Duration = Duration::from_secs(900);
/// Points over which waiting is summed up: five minutes.
const RECENT: usize = 60;

/// The history of all hosts together. Lists have one number for each step, the newest last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    pub step_s: u64,
    pub until: Option<String>,
    pub requests: Vec<u64>,
    pub waiting: Vec<u64>,
    pub abandoned: Vec<u64>,
    pub denied: Vec<u64>,
    pub wait_p90_ms: Vec<Option<u64>>,
}

/// The history of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostHistory {
    pub host: String,
    pub step_s: u64,
    pub until: Option<String>,
    pub delay_ms: Vec<u64>,
    /// Requests that left the queue, to be sent or because they gave up.
    pub requests: Vec<u64>,
    pub queued: Vec<u64>,
    /// How long the first request in the queue has waited.
    pub waited_ms: Vec<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Histories(Mutex<KeptSeries>);

#[derive(Debug, Default)]
struct KeptSeries {
    taken: Timestamp,
    last: Totals,
    points: VecDeque<Point>,
    tracks: HashMap<HostKey, Track>,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: u64,
    abandoned: u64,
    denied: u64,
    waits: [u64; WAIT_BUCKETS.len() + 1],
}

/// What was counted in one step.
#[derive(Clone, Copy, Debug)]
struct Point {
    counted: Totals,
    waiting: u64,
}

/// `GET /api/v1/history`
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Response {
    fresh(admin.own.histories.all())
}

/// `GET /api/v1/hosts/{host}/history`
pub(super) async fn of_host(State(admin): State<Arc<Admin>>, Path(host): Path<String>) -> Result<Response, ApiProblem> {
    let host = budget(&admin, &host).await?;
    admin.gate.view(&host).ok_or_else(|| hosts::unknown(&host))?;
    Ok(fresh(admin.own.histories.of(&host, &admin.gate)))
}

impl Histories {
    /// Samples the present state. Must be called every [`STEP`].
    pub(super) fn take(&self, gate: &Gate, metrics: &Metrics) {
        let totals = Totals::of(metrics);
        let (backlogs, now) = (gate.backlogs(), time::now());
        let mut kept = self.0.lock();
        let counted = totals.since(&kept.last);
        (kept.taken, kept.last) = (now, totals);
        push(&mut kept.points, Point { counted, waiting: gate.queued() as u64 });
        for backlog in &backlogs {
            kept.follow(&backlog.host, gate, now);
        }
        for (host, track) in &mut kept.tracks {
            let since = backlogs.iter().find(|backlog| backlog.host == *host).map(|backlog| backlog.since);
            track.take(gate.view(host).as_ref(), since, now);
        }
        kept.tracks.retain(|_, track| now.since(track.wanted()) < FORGOTTEN);
    }

    fn all(&self) -> History {
        let kept = self.0.lock();
        let each = |number: fn(&Point) -> u64| kept.points.iter().map(number).collect();
        History {
            step_s: STEP.as_secs(),
            until: moment(kept.taken),
            requests: each(|point| point.counted.requests),
            waiting: each(|point| point.waiting),
            abandoned: each(|point| point.counted.abandoned),
            denied: each(|point| point.counted.denied),
            wait_p90_ms: kept.points.iter().map(|point| quantile(&point.counted.waits, 0.9).map(millis)).collect(),
        }
    }

    fn of(&self, host: &HostKey, gate: &Gate) -> HostHistory {
        let (mut kept, now) = (self.0.lock(), time::now());
        kept.follow(host, gate, now);
        let until = moment(kept.taken);
        let track = kept.tracks.get(host);
        let each = |number: fn(&track::TrackPoint) -> u32| {
            track.map_or_else(Vec::new, |track| track.points().map(|point| number(point).into()).collect())
        };
        HostHistory {
            host: host.to_string(),
            step_s: STEP.as_secs(),
            until,
            delay_ms: each(|point| point.delay_ms),
            requests: each(|point| point.requests),
            queued: each(|point| point.queued),
            waited_ms: each(|point| point.waited_ms),
        }
    }

    /// Returns the median and the 90th percentile of the waits in the last five minutes.
    pub(super) fn waits(&self) -> [Option<Duration>; 2] {
        let kept = self.0.lock();
        let mut sum = [0; WAIT_BUCKETS.len() + 1];
        for point in kept.points.iter().rev().take(RECENT) {
            sum.iter_mut().zip(point.counted.waits).for_each(|(sum, count)| *sum += count);
        }
        [0.5, 0.9].map(|share| quantile(&sum, share))
    }
}

impl KeptSeries {
    /// Follows a host that has a queue or a viewer.
    fn follow(&mut self, host: &HostKey, gate: &Gate, now: Timestamp) {
        if let Some(track) = self.tracks.get_mut(host) {
            track.want(now);
            return;
        }
        if self.tracks.len() >= MOST_TRACKS {
            let oldest = self.tracks.iter().min_by_key(|(_, track)| track.wanted());
            let Some((oldest, since)) = oldest.map(|(host, track)| (host.clone(), track.wanted())) else { return };
            // If more hosts are busy than can be followed, those that are followed stay.
            if now.since(since) < STEP * 2 {
                return;
            }
            self.tracks.remove(&oldest);
        }
        self.tracks.insert(host.clone(), Track::new(gate.view(host).as_ref(), now));
    }
}

impl Totals {
    fn of(metrics: &Metrics) -> Totals {
        let outcomes @ [_, denied, _, abandoned, ..] = metrics.outcomes();
        let requests = outcomes.iter().sum();
        Totals { requests, abandoned, denied, waits: metrics.wait_counts() }
    }

    fn since(&self, before: &Totals) -> Totals {
        Totals {
            requests: self.requests - before.requests,
            abandoned: self.abandoned - before.abandoned,
            denied: self.denied - before.denied,
            waits: std::array::from_fn(|bucket| self.waits[bucket] - before.waits[bucket]),
        }
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() == POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

/// Computes a quantile from counts by bucket, where the last bucket has no end. Assumes an even spread within a bucket,
/// as Prometheus does.
fn quantile(counts: &[u64; WAIT_BUCKETS.len() + 1], share: f64) -> Option<Duration> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let (mut rank, mut lower) = (total as f64 * share, 0.0);
    for (count, upper) in counts.iter().zip(WAIT_BUCKETS) {
        if rank <= *count as f64 && *count > 0 {
            return Some(Duration::from_secs_f64(lower + (upper - lower) * rank / *count as f64));
        }
        (rank, lower) = (rank - *count as f64, upper);
    }
    Some(Duration::from_secs_f64(lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut counts = [0; WAIT_BUCKETS.len() + 1];
        assert_eq!(quantile(&counts, 0.9), None);
        counts[3] = 10;
        let wait = quantile(&counts, 0.9).unwrap();
        assert!(wait > Duration::from_millis(500) && wait <= Duration::from_secs(1), "{wait:?}");
        counts[WAIT_BUCKETS.len()] = 100;
        assert_eq!(quantile(&counts, 0.9), Some(Duration::from_secs(150)));
    }
}
