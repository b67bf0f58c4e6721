//! Metric series for each of the busiest hosts, and one, [`OTHER`], for all the rest.
//!
//! There are never more than `metrics.hosts` of them, whatever clients request: a host has a *seat* or counts under the
//! rest. Counting is two atomic adds on the seat that the host's lane carries. A host keeps its seat until it has been
//! idle for an hour, or a host without a seat had more visits in a round of five minutes. Only a few seats change in
//! one round, so that a wide crawl does not fill Prometheus with short-lived series.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::register::{self, put};
use super::savings::Saved;
use crate::politeness::HostKey;

/// How often seats are reassigned.
pub const ROUND: Duration = Duration::from_secs(300);
/// Rounds without a visit after which a seat is free: an hour.
const IDLE_ROUNDS: u8 = 12;
/// In a round, one in this many seats may go to a busier host.
const CHANGES: usize = 10;
/// The label for all hosts without a seat. A host of this name never gets a seat.
const OTHER: &str = "_other";

#[derive(Debug)]
pub struct HostSeries {
    most: AtomicUsize,
    full: AtomicBool,
    seated: Mutex<HashMap<HostKey, Member>>,
    other: SeriesSlot,
    dropped: IntCounter,
}

/// The counters of a host.
#[derive(Debug, Default)]
pub struct SeriesSlot {
    requests: AtomicU64,
    waited_us: AtomicU64,
    saved_requests: AtomicU64,
    saved_bytes: AtomicU64,
}

/// The seat of a host, if it has one. Its lane carries this.
#[derive(Debug, Default)]
pub struct SeriesHandle(Option<Arc<SeriesSlot>>);

#[derive(Debug)]
struct Member {
    seat: Arc<SeriesSlot>,
    /// Visits in the last round.
    recent: u32,
    idle_rounds: u8,
}

/// Which hosts get a seat and which lose theirs.
#[derive(Debug, Default)]
pub struct SeriesChange {
    pub given: Vec<(HostKey, Arc<SeriesSlot>)>,
    pub taken: Vec<HostKey>,
}

/// The present state of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Present {
    pub delay: Duration,
    pub queued: usize,
}

impl SeriesHandle {
    pub fn is_worn(&self) -> bool {
        self.0.is_some()
    }

    pub fn carry(&mut self, seat: Option<Arc<SeriesSlot>>) {
        self.0 = seat;
    }
}

impl SeriesSlot {
    fn count(&self, waited: Duration) {
        self.requests.fetch_add(1, Relaxed);
        if !waited.is_zero() {
            self.waited_us.fetch_add(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX), Relaxed);
        }
    }
}

impl HostSeries {
    pub(super) fn new(registry: &Registry, most: usize) -> Self {
        HostSeries {
            most: AtomicUsize::new(most),
            full: AtomicBool::new(most == 0),
            seated: Mutex::default(),
            other: SeriesSlot::default(),
            dropped: register::counter(
                registry,
                "curtsy_host_series_dropped_total",
                "Hosts whose series ended, because they were idle or others are busier.",
            ),
        }
    }

    /// Changes how many seats there may be. Surplus seats are removed in the next round.
    pub fn limit(&self, most: usize) {
        let seated = self.seated.lock();
        self.most.store(most, Relaxed);
        self.full.store(seated.len() >= most, Relaxed);
    }

    /// Counts a request that had its turn.
    pub fn visit(&self, badge: &mut SeriesHandle, host: &HostKey, waited: Duration) {
        match &badge.0 {
            Some(seat) => seat.count(waited),
            None => self.visit_without_seat(badge, host, waited),
        }
    }

    fn visit_without_seat(&self, badge: &mut SeriesHandle, host: &HostKey, waited: Duration) {
        let host = (!self.full.load(Relaxed)).then_some(host);
        match host.and_then(|host| self.take_free_seat(host)) {
            Some(seat) => {
                seat.count(waited);
                badge.carry(Some(seat));
            }
            None => self.other.count(waited),
        }
    }

    /// Counts what the cache saved. It gives no host a seat: a host that is not visited needs no series.
    pub(super) fn saved(&self, host: &HostKey, saved: Saved) {
        let seat = self.seated.lock().get(host).map(|member| member.seat.clone());
        let seat = seat.as_deref().unwrap_or(&self.other);
        seat.saved_requests.fetch_add(saved.requests, Relaxed);
        seat.saved_bytes.fetch_add(saved.bytes, Relaxed);
    }

    fn take_free_seat(&self, host: &HostKey) -> Option<Arc<SeriesSlot>> {
        let (mut seated, most) = (self.seated.lock(), self.most.load(Relaxed));
        if !seated.contains_key(host) && (seated.len() >= most || host.as_str() == OTHER) {
            return None;
        }
        let member = seated.entry(host.clone()).or_insert_with(Member::new);
        let seat = member.seat.clone();
        self.full.store(seated.len() >= most, Relaxed);
        Some(seat)
    }

    /// Gives seats to the hosts with the most visits in the last [`ROUND`]. `visits` lists every host that had any.
    pub fn reseat(&self, visits: Vec<(HostKey, u32)>) -> SeriesChange {
        let (mut seated, most) = (self.seated.lock(), self.most.load(Relaxed));
        seated.values_mut().for_each(Member::begin_round);
        let (mut change, mut rivals) = (SeriesChange::default(), Vec::new());
        for (host, recent) in visits {
            match seated.get_mut(&host) {
                Some(member) => {
                    member.had(recent);
                    // The host's lane may be a new one.
                    change.given.push((host, member.seat.clone()));
                }
                None if host.as_str() != OTHER => rivals.push((host, recent)),
                None => {}
            }
        }
        change.taken.extend(seated.iter().filter(|(_, member)| member.is_gone()).map(|(host, _)| host.clone()));
        change.taken.extend(surplus(&seated, &change.taken, &rivals, most));
        change.taken.iter().for_each(|host| drop(seated.remove(host)));
        change.given.retain(|(host, _)| seated.contains_key(host));
        let free = most.saturating_sub(seated.len());
        for (host, recent) in busiest(rivals, free) {
            let member = Member { recent, ..Member::new() };
            change.given.push((host.clone(), member.seat.clone()));
            seated.insert(host, member);
        }
        self.dropped.inc_by(change.taken.len() as u64);
        self.full.store(seated.len() >= most, Relaxed);
        change
    }

    /// Returns the hosts that have a seat.
    pub fn seated(&self) -> Vec<HostKey> {
        self.seated.lock().keys().cloned().collect()
    }

    /// Returns all series, given the present state of each host and of the rest; none if `metrics.hosts` is 0.
    pub(super) fn gather(
        &self,
        present: &HashMap<HostKey, Present>,
        rest: Present,
    ) -> Vec<prometheus::proto::MetricFamily> {
        if self.most.load(Relaxed) == 0 {
            return Vec::new();
        }
        let (registry, seated) = (Registry::new(), self.seated.lock());
        let series = Series::new(&registry);
        for (host, member) in &*seated {
            series.show(host.as_str(), &member.seat, present.get(host).copied().unwrap_or_default());
        }
        series.show(OTHER, &self.other, rest);
        registry.gather()
    }
}

impl Member {
    fn new() -> Self {
        Member { seat: Arc::default(), recent: 0, idle_rounds: 0 }
    }

    fn begin_round(&mut self) {
        self.recent = 0;
        self.idle_rounds = self.idle_rounds.saturating_add(1);
    }

    fn had(&mut self, visits: u32) {
        self.recent = visits;
        self.idle_rounds = 0;
    }

    fn is_gone(&self) -> bool {
        self.idle_rounds >= IDLE_ROUNDS
    }
}

/// Returns the least busy hosts that must give up their seat: all above the limit, and a few for busier rivals.
fn surplus(
    seated: &HashMap<HostKey, Member>,
    gone: &[HostKey],
    rivals: &[(HostKey, u32)],
    most: usize,
) -> Vec<HostKey> {
    let stay = seated.iter().filter(|(_, member)| !member.is_gone());
    let mut stay: Vec<(u32, &HostKey)> = stay.map(|(host, member)| (member.recent, host)).collect();
    stay.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.as_str().cmp(b.1.as_str())));
    let too_many = stay.len().saturating_sub(most);
    let free = most.saturating_sub(seated.len() - gone.len());
    let may_change = (most / CHANGES).max(1).min(most);
    let rivals = busiest(rivals.to_vec(), free + may_change);
    // The busiest rivals take the free seats; each of the next must be busier than the host it replaces.
    let beaten = stay[too_many..].iter().zip(rivals.iter().skip(free)).take_while(|(member, rival)| rival.1 > member.0);
    let beaten = beaten.take(if too_many > 0 { 0 } else { may_change }).count();
    stay[..too_many + beaten].iter().map(|(_, host)| (*host).clone()).collect()
}

/// Returns the `count` busiest, the busiest first.
fn busiest(mut rivals: Vec<(HostKey, u32)>, count: usize) -> Vec<(HostKey, u32)> {
    let order = |a: &(HostKey, u32), b: &(HostKey, u32)| b.1.cmp(&a.1).then_with(|| a.0.as_str().cmp(b.0.as_str()));
    if count < rivals.len() {
        rivals.select_nth_unstable_by(count, order);
        rivals.truncate(count);
    }
    rivals.sort_unstable_by(order);
    rivals
}

/// The metrics that have a series for each host. Built for one scrape, because the seats change.
struct Series {
    requests: IntCounterVec,
    waited: prometheus::CounterVec,
    delay: GaugeVec,
    queued: IntGaugeVec,
    saved_requests: IntCounterVec,
    saved_bytes: IntCounterVec,
}

impl Series {
    fn new(registry: &Registry) -> Self {
        let requests = register::counters(
            registry,
            "curtsy_host_requests_total",
            "Requests that had their turn at one of the busiest hosts, or at any other.",
            &["host"],
        );
        let waited = Opts::new("curtsy_host_wait_seconds_total", "How long they were held before it, all together.");
        let waited = prometheus::CounterVec::new(waited, &["host"]).expect("a valid name");
        let delay = Opts::new(
            "curtsy_host_delay_seconds",
            "Time between two requests to the host; for all others the longest there is.",
        );
        let delay = GaugeVec::new(delay, &["host"]).expect("a valid name");
        let queued = Opts::new("curtsy_host_queued_requests", "Requests that wait for their turn at the host.");
        let queued = IntGaugeVec::new(queued, &["host"]).expect("a valid name");
        registry.register(Box::new(waited.clone())).expect("a new name");
        registry.register(Box::new(delay.clone())).expect("a new name");
        registry.register(Box::new(queued.clone())).expect("a new name");
        let saved_requests = register::counters(
            registry,
            "curtsy_host_saved_requests_total",
            "Requests that the cache answered without sending them.",
            &["host"],
        );
        let saved_bytes = register::counters(
            registry,
            "curtsy_host_saved_bytes_total",
            "Bytes of bodies that came from the cache and not from the host.",
            &["host"],
        );
        Series { requests, waited, delay, queued, saved_requests, saved_bytes }
    }

    fn show(&self, host: &str, seat: &SeriesSlot, present: Present) {
        let label = &[host];
        self.requests.with_label_values(label).inc_by(seat.requests.load(Relaxed));
        let waited = Duration::from_micros(seat.waited_us.load(Relaxed));
        self.waited.with_label_values(label).inc_by(waited.as_secs_f64());
        let delay: Gauge = self.delay.with_label_values(label);
        delay.set(present.delay.as_secs_f64());
        put(&self.queued.with_label_values(label), present.queued);
        self.saved_requests.with_label_values(label).inc_by(seat.saved_requests.load(Relaxed));
        self.saved_bytes.with_label_values(label).inc_by(seat.saved_bytes.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(most: usize) -> HostSeries {
        HostSeries::new(&Registry::new(), most)
    }

    fn host(name: &str) -> HostKey {
        HostKey::parse(name).unwrap()
    }

    fn visits(list: &[(&str, u32)]) -> Vec<(HostKey, u32)> {
        list.iter().map(|(name, visits)| (host(name), *visits)).collect()
    }

    fn names(hosts: &HostSeries) -> Vec<String> {
        let mut names: Vec<String> = hosts.seated().iter().map(ToString::to_string).collect();
        names.sort();
        names
    }

    fn visit(hosts: &HostSeries, name: &str) -> SeriesHandle {
        let mut badge = SeriesHandle::default();
        let host = host(name);
        hosts.visit(&mut badge, &host, Duration::from_millis(1500));
        badge
    }

    fn text(hosts: &HostSeries) -> String {
        prometheus::TextEncoder::new().encode_to_string(&hosts.gather(&HashMap::new(), Present::default())).unwrap()
    }

    #[test]
    fn the_first_hosts_have_seats_and_the_rest_share_one() {
        let hosts = hosts(2);
        let mut first = visit(&hosts, "a.test");
        for name in ["b.test", "c.test", "d.test"] {
            visit(&hosts, name);
        }
        let named = host("a.test");
        hosts.visit(&mut first, &named, Duration::ZERO);
        hosts.visit(&mut SeriesHandle::default(), &host("e.test"), Duration::ZERO);
        let text = text(&hosts);
        for line in [
            "curtsy_host_requests_total{host=\"a.test\"} 2",
            "curtsy_host_requests_total{host=\"b.test\"} 1",
            "curtsy_host_requests_total{host=\"_other\"} 3",
            "curtsy_host_wait_seconds_total{host=\"_other\"} 3",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
        assert!(!text.contains("c.test"), "{text}");
    }

    #[test]
    fn a_busier_host_takes_the_seat_of_the_least_busy() {
        let hosts = hosts(2);
        visit(&hosts, "a.test");
        visit(&hosts, "b.test");
        let change = hosts.reseat(visits(&[("a.test", 5), ("b.test", 3), ("c.test", 3), ("d.test", 3)]));
        assert_eq!(
            (change.taken, names(&hosts)),
            (vec![], vec!["a.test".into(), "b.test".into()]),
            "as busy is not busier"
        );
        let change = hosts.reseat(visits(&[("a.test", 5), ("b.test", 3), ("c.test", 4), ("d.test", 9)]));
        assert_eq!(change.taken, [host("b.test")], "one at a time, and the least busy");
        assert_eq!((names(&hosts), hosts.dropped.get()), (vec!["a.test".to_owned(), "d.test".into()], 1));
        assert_eq!(change.given.len(), 2);
    }

    #[test]
    fn a_seat_is_kept_for_an_hour_without_a_visit() {
        let hosts = hosts(9);
        visit(&hosts, "a.test");
        for _ in 1..IDLE_ROUNDS {
            assert!(hosts.reseat(Vec::new()).taken.is_empty());
        }
        assert_eq!(hosts.reseat(visits(&[("b.test", 1)])).taken, [host("a.test")]);
        assert_eq!(names(&hosts), ["b.test"]);
    }

    #[test]
    fn there_are_never_more_than_allowed() {
        let hosts = hosts(10);
        for number in 0..1_000 {
            visit(&hosts, &format!("h{number}.test"));
        }
        let crowd = |from: u32| (from..from + 500).map(|n| (host(&format!("h{n}.test")), n)).collect::<Vec<_>>();
        hosts.reseat(crowd(0));
        hosts.reseat(crowd(400));
        assert_eq!(
            (hosts.seated().len(), text(&hosts).lines().filter(|line| !line.starts_with('#')).count()),
            (10, 66)
        );
        hosts.limit(3);
        hosts.reseat(crowd(400));
        assert_eq!(hosts.seated().len(), 3);
        hosts.limit(0);
        hosts.reseat(crowd(400));
        assert_eq!((hosts.seated().len(), text(&hosts)), (0, String::new()));
    }

    #[test]
    fn what_the_cache_saved_counts_where_visits_do() {
        let hosts = hosts(1);
        visit(&hosts, "a.test");
        for (name, requests) in [("a.test", 2), ("b.test", 3), ("c.test", 0)] {
            hosts.saved(&host(name), Saved { requests, bytes: 10 });
        }
        let text = text(&hosts);
        for line in [
            "curtsy_host_saved_requests_total{host=\"a.test\"} 2",
            "curtsy_host_saved_requests_total{host=\"_other\"} 3",
            "curtsy_host_saved_bytes_total{host=\"_other\"} 20",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
        assert_eq!(names(&hosts), ["a.test"]);
    }

    /// No host can take the label of the rest.
    #[test]
    fn a_host_called_other_counts_among_the_rest() {
        let hosts = hosts(2);
        let named = HostKey::parse(OTHER).expect("a name that could be asked for");
        hosts.visit(&mut SeriesHandle::default(), &named, Duration::ZERO);
        hosts.reseat(vec![(named, 100)]);
        assert!(hosts.seated().is_empty());
        assert!(text(&hosts).contains("curtsy_host_requests_total{host=\"_other\"} 1"));
    }
}
