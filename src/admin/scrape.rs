//! `GET /metrics`: counters and the present state, for Prometheus.
//!
//! The lanes are read one by one, each for a moment, and all of them at most as often as [`LastCensus`] allows, so that
//! no scrape holds up requests. If there are so many lanes that counting takes a while, a scrape uses the last count
//! and does not wait for the next.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Admin;
use super::status::LastCensus;
use crate::cache::disk::DiskStatus;
use crate::metrics::hosts::Present;
use crate::metrics::{DiskCensus, GaugeSources};

pub(super) async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    admin.gate.measure_store();
    let cache = &admin.desk.shared().cache;
    admin.metrics.cache.measure(cache.memory.bytes(), cache.memory.urls(), cache.memory.evictions());
    if let Some(disk) = &cache.disk {
        admin.metrics.cache.measure_disk(&census(&disk.status()));
    }
    admin.gate.measure_fleet();
    let ca_ends = admin.desk.ca_ends().and_then(|ends| ends.duration_since(UNIX_EPOCH).ok());
    admin.metrics.ca_expiry.set(ca_ends.map_or(0, |ends| i64::try_from(ends.as_secs()).unwrap_or(i64::MAX)));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], admin.metrics.render(&scene(&admin)))
}

fn census(status: &DiskStatus) -> DiskCensus {
    let counts = status.counts;
    DiskCensus {
        bytes: status.bytes,
        objects: status.objects,
        evictions: counts.evicted,
        write_failures: counts.write_failures,
        skipped: counts.skipped,
        reads: [counts.read, counts.late, counts.damaged],
    }
}

fn scene(admin: &Arc<Admin>) -> GaugeSources {
    let (census, busiest) = (LastCensus::at_once(admin), admin.gate.busiest());
    let queued = admin.gate.queued();
    let of_busiest: usize = busiest.values().map(|present| present.queued).sum();
    GaugeSources {
        queued,
        hosts: admin.gate.hosts(),
        hosts_by_state: census.counts,
        breakers: census.breakers,
        robots_bytes: admin.robots.bytes(),
        rest: Present { delay: census.longest_delay, queued: queued.saturating_sub(of_busiest) },
        busiest,
    }
}
