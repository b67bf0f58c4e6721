//! Shows lanes to the operator, and lets the operator change them.
//!
//! Looking locks one lane at a time and changes nothing. Only the hosts on the requested page are viewed in full, so a
//! list of a hundred thousand hosts costs their names and one number each. A change drives the lane on, as every change
//! does.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::shared_lane::{LaneState, SharedLane};
use super::{Gate, now};
use crate::politeness::HostKey;
use crate::politeness::lane::{BreakerView, Condition, Expectation, Forgotten, Timeline, View};
use crate::politeness::policy::{Delays, Mode, Overrides};
use crate::politeness::time::{Timestamp, millis};
use crate::politeness::visit::{ClientId, Visit};

/// Which hosts to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostsPage {
    pub sort: Sort,
    /// Reverses the order.
    pub reverse: bool,
    /// Only hosts whose name contains this.
    pub filter: String,
    /// Only hosts in this condition.
    pub condition: Option<Condition>,
    pub offset: usize,
    pub limit: usize,
}

/// The sort order, which the API names in `snake_case`. Ties are sorted by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    #[default]
    Host,
    /// The busiest first: the most queued visits, then the most in flight, then the most visits so far.
    Queued,
    InFlight,
    /// The longest delay first.
    Delay,
    /// The longest time until the next visit can start comes first.
    Wait,
    /// The latest send first.
    LastSent,
}

/// Counts over all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// In the order of [`Condition::ALL`].
    pub counts: [usize; Condition::ALL.len()],
    /// Paused hosts, at most `MOST_NAMED`.
    pub paused: Vec<HostKey>,
    /// Number of hosts with an open breaker, and with a half-open one.
    pub breakers: [usize; 2],
    /// The longest delay of the hosts without their own metric series.
    pub longest_delay: Duration,
}

/// Largest number of paused hosts that are named.
const MOST_NAMED: usize = 100;

#[derive(Clone, Debug)]
pub struct Listing {
    /// Number of hosts on all pages.
    pub total: usize,
    pub hosts: Vec<(HostKey, View)>,
}

/// Changes to a host. `None` leaves a value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedHost {
    /// `Some(None)` removes the override.
    pub delay: Option<Option<Duration>>,
    pub burst: Option<Option<u32>>,
    pub concurrency: Option<Option<u32>>,
    pub pause: Option<Pause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    UntilResumed,
    Until(Timestamp),
    Over,
}

/// The registry is full and every lane owes something, so this host has no lane to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl Gate {
    pub fn list(&self, page: &HostsPage) -> Listing {
        let (now, mut found) = (now(), Vec::new());
        self.registry.each(|host, lane| {
            let is_so = |wanted| lane.look(|state| state.lane.condition(now)).0 == wanted;
            if host.as_str().contains(&page.filter) && page.condition.is_none_or(is_so) {
                found.push((page.sort.rank(lane, now), lane.clone()));
            }
        });
        let total = found.len();
        let hosts = pick(found, page).iter().map(|(_, lane)| view(lane, now)).collect();
        Listing { total, hosts }
    }

    /// Counts hosts by condition. Looks at every lane, so call it rarely if there are many.
    pub fn census(&self) -> Census {
        let (now, mut census) = (now(), Census::default());
        self.registry.each(|host, lane| {
            let ((condition, breaker), delay, is_seated) =
                lane.look(|state| (state.lane.condition(now), state.lane.delays().effective(), state.badge.is_worn()));
            match breaker {
                BreakerView::Closed => {}
                BreakerView::Open(_) => census.breakers[0] += 1,
                BreakerView::Trial => census.breakers[1] += 1,
            }
            if !is_seated {
                census.longest_delay = census.longest_delay.max(delay);
            }
            census.counts[condition as usize] += 1;
            if condition == Condition::Paused && census.paused.len() < MOST_NAMED {
                census.paused.push(host.clone());
            }
        });
        census.paused.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        census
    }

    /// Returns what is known of a host, if anything.
    pub fn view(&self, host: &HostKey) -> Option<View> {
        let now = now();
        match self.registry.known(host) {
            Some(lane) => Some(lane.look(|state| state.lane.view(now))),
            None => self.registry.remembered(host, &self.book.load(), now).map(|lane| lane.view(now)),
        }
    }

    /// Returns the latest starts and holds of a host; none if it was not visited lately.
    pub fn timeline(&self, host: &HostKey) -> Timeline {
        let (now, lane) = (now(), self.registry.known(host));
        lane.map_or_else(Timeline::default, |lane| lane.look(|state| state.lane.timeline(now)))
    }

    /// Like [`view`](Gate::view), for a host that may not have been visited since curtsy started. `crawl_delay` is what
    /// its stored robots.txt asks for, which counts from the first visit on.
    pub fn view_expecting(&self, host: &HostKey, crawl_delay: Duration) -> Option<View> {
        let (now, book) = (now(), self.book.load());
        if self.has_lane(host) || crawl_delay.is_zero() {
            return self.view(host);
        }
        let mut lane = self.registry.remembered(host, &book, now)?;
        lane.set_robots_delay(crawl_delay, now);
        Some(lane.view(now))
    }

    /// Whether the host has a lane, which means that it was visited lately.
    pub fn has_lane(&self, host: &HostKey) -> bool {
        self.registry.known(host).is_some()
    }

    /// Predicts what this visit to the host would get now.
    pub fn foresee(&self, host: &HostKey, visit: &Visit) -> Expectation {
        let now = now();
        if let Some(lane) = self.registry.known(host) {
            return lane.look(|state| state.lane.foresee(visit, now));
        }
        let policy = self.policy(host);
        if policy.mode == Mode::Off {
            let delays = Delays { configured: policy.delay, ..Delays::default() };
            return Expectation { delays, why: delays.why(), start: now, objection: None };
        }
        self.registry.foreseen(host, &self.book.load(), now).foresee(visit, now)
    }

    /// Notes until when requests to this host are refused without trying it, to show it.
    pub fn note_refused(&self, host: &HostKey, until: Timestamp) {
        if let Some(lane) = self.registry.known(host) {
            lane.look(|state| state.lane.note_refused(until));
        }
    }

    /// Predicts how long this visit would wait if it came now; forever, if it would be refused.
    pub fn wait_of(&self, host: &HostKey, visit: &Visit) -> Duration {
        let now = now();
        let Some(lane) = self.registry.known(host) else { return Duration::ZERO };
        let Expectation { start, objection, .. } = lane.look(|state| state.lane.foresee(visit, now));
        if objection.is_some() { Duration::MAX } else { start.since(now) }
    }

    /// Returns how long the longest-waiting visit of this client waits for the host.
    pub fn longest_wait(&self, host: &HostKey, client: ClientId) -> Duration {
        let now = now();
        let lane = self.registry.known(host);
        lane.map_or(Duration::ZERO, |lane| lane.look(|state| state.lane.longest_wait(client, now)))
    }

    /// Changes how one host is treated, until the change is taken back.
    pub fn steer(self: &Arc<Self>, host: &HostKey, wanted: &WantedHost) -> Result<View, NoRoom> {
        let now = now();
        let lane = self.registry.lane(host, &self.book.load(), now).map_err(|_| NoRoom)?;
        let view = lane.with(now, |state| {
            wanted.apply(state, now);
            self.registry.keep_news(&lane, state, now);
            state.lane.view(now)
        });
        self.share_steering(&lane, false);
        tracing::info!(
            event = "host.steered",
            %host,
            delay_ms = millis(view.delays.effective()),
            concurrency = view.concurrency.0,
            paused = view.paused_until.is_some(),
            "the operator has changed how a host is treated"
        );
        self.tell_of_steering(host, wanted, &view);
        Ok(view)
    }

    /// Forgets what was learned about a host and what was set for it. Returns `None` if the host is not known.
    pub fn forget(self: &Arc<Self>, host: &HostKey) -> Option<(Forgotten, View)> {
        if !self.registry.remembers(host) {
            return None;
        }
        let (now, book) = (now(), self.book.load());
        let forgotten = if let Ok(lane) = self.registry.lane(host, &book, now) {
            let forgotten = lane.with(now, |state| {
                let forgotten = state.lane.forget(now);
                self.registry.keep_news(&lane, state, now);
                (forgotten, state.lane.view(now))
            });
            self.share_steering(&lane, true);
            forgotten
        } else {
            // There is no room for a lane.
            let mut lane = self.registry.remembered(host, &book, now)?;
            let forgotten = lane.forget(now);
            self.registry.keep(host, &mut lane, now);
            (forgotten, lane.view(now))
        };
        tracing::info!(event = "host.forgotten", %host, "the operator has reset what was learned about a host");
        self.events.tell("host.forgotten", Some(host.as_str()), || json!({}));
        Some(forgotten)
    }
}

impl WantedHost {
    fn apply(&self, state: &mut LaneState, now: Timestamp) {
        let set = state.lane.overrides();
        let overrides = Overrides {
            delay: self.delay.unwrap_or(set.delay),
            burst: self.burst.unwrap_or(set.burst),
            concurrency: self.concurrency.unwrap_or(set.concurrency),
        };
        if overrides != set {
            state.lane.steer(overrides, now);
        }
        match self.pause {
            Some(Pause::UntilResumed) => state.lane.pause(),
            Some(Pause::Until(until)) => state.lane.pause_until(until),
            Some(Pause::Over) => state.lane.resume(),
            None => {}
        }
    }
}

impl Sort {
    /// The sort rank: larger comes first.
    fn rank(self, lane: &SharedLane, now: Timestamp) -> u64 {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if self == Sort::Host {
            return 0;
        }
        lane.look(|state| {
            let lane = &state.lane;
            match self {
                Sort::Host => 0,
                Sort::Queued => {
                    let (waiting, flying) = (number(lane.waiting()).min(MANY), number(lane.in_flight()).min(FEW));
                    (waiting << 44) + (flying << 32) + u64::from(lane.visits())
                }
                Sort::InFlight => number(lane.in_flight()),
                Sort::Delay => micros(lane.delays().effective()),
                Sort::Wait => micros(lane.next_start(now).since(now)),
                Sort::LastSent => lane.last_sent().map_or(0, Timestamp::as_micros),
            }
        })
    }
}

/// The largest numbers of visits that wait and are in flight that the order of the busiest tells apart.
const MANY: u64 = (1 << 20) - 1;
const FEW: u64 = (1 << 12) - 1;

/// Returns the page of hosts with their ranks, in order. Sorts only the hosts on it.
fn pick(mut found: Vec<(u64, Arc<SharedLane>)>, page: &HostsPage) -> Vec<(u64, Arc<SharedLane>)> {
    let order = |(a_rank, a): &(u64, Arc<SharedLane>), (b_rank, b): &(u64, Arc<SharedLane>)| {
        let order = b_rank.cmp(a_rank).then_with(|| name(a).cmp(name(b)));
        if page.reverse { order.reverse() } else { order }
    };
    let end = page.offset.saturating_add(page.limit);
    if end < found.len() {
        found.select_nth_unstable_by(end, order);
        found.truncate(end);
    }
    found.sort_unstable_by(order);
    found.drain(..page.offset.min(found.len()));
    found
}

fn name(lane: &SharedLane) -> &str {
    lane.host().as_str()
}

fn view(lane: &SharedLane, now: Timestamp) -> (HostKey, View) {
    (lane.host().clone(), lane.look(|state| state.lane.view(now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Bounds;
    use crate::gate::{Apply, HostPersistence};
    use crate::politeness::policy::{Policy, PolicyBook};
    use crate::politeness::visit::ClientId;
    use crate::store::{Retention, Store};

    fn host(name: &str) -> HostKey {
        HostKey::parse(name).unwrap()
    }

    fn gate(most: usize) -> Arc<Gate> {
        let bounds = Bounds { most, idle: Duration::from_secs(3600) };
        let memories = HostPersistence::new(Arc::new(Store::memory(Retention::default())), None);
        Arc::new(Gate::new(PolicyBook::default(), bounds, 1000, memories, Arc::default()))
    }

    fn delay(seconds: u64) -> WantedHost {
        WantedHost { delay: Some(Some(Duration::from_secs(seconds))), ..WantedHost::default() }
    }

    fn names(listing: &Listing) -> Vec<String> {
        listing.hosts.iter().map(|(host, _)| host.to_string()).collect()
    }

    #[test]
    fn hosts_are_listed_page_by_page_in_order() {
        let gate = gate(1000);
        for number in 0..100 {
            gate.steer(&host(&format!("h{number:02}.test")), &delay(number % 10)).unwrap();
        }
        let page = |sort, filter: &str, offset, limit| {
            gate.list(&HostsPage { sort, filter: filter.to_owned(), offset, limit, ..HostsPage::default() })
        };
        let first = page(Sort::Host, "", 0, 3);
        assert_eq!((first.total, names(&first)), (100, vec!["h00.test".into(), "h01.test".into(), "h02.test".into()]));
        assert_eq!(names(&page(Sort::Host, "", 98, 50)), ["h98.test", "h99.test"]);
        assert_eq!(names(&page(Sort::Delay, "", 0, 2)), ["h09.test", "h19.test"]);
        assert_eq!(names(&page(Sort::Delay, "", 9, 2)), ["h99.test", "h08.test"]);
        let some = page(Sort::Host, "h7", 0, 2);
        assert_eq!((some.total, some.hosts.len()), (10, 2));
        assert!(page(Sort::Wait, "", 1_000, 5).hosts.is_empty());
        let reverse = gate.list(&HostsPage { sort: Sort::Delay, reverse: true, limit: 2, ..HostsPage::default() });
        assert_eq!(names(&reverse), ["h90.test", "h80.test"]);
        let none = gate.list(&HostsPage { condition: Some(Condition::Held), limit: 2, ..HostsPage::default() });
        assert_eq!((none.total, gate.census().counts), (0, [0, 0, 0, 0, 0, 0, 100]));
    }

    #[test]
    fn many_hosts_are_listed_as_if_all_were_sorted() {
        let gate = gate(5_000);
        for number in 0..3_000u64 {
            gate.steer(&host(&format!("www.site{}.test", number * 7_919 % 3_000)), &delay(number % 50)).unwrap();
        }
        for (sort, reverse) in [(Sort::Host, false), (Sort::Host, true), (Sort::Delay, false), (Sort::Delay, true)] {
            let page = |offset, limit| {
                let listing = gate.list(&HostsPage { sort, reverse, offset, limit, ..HostsPage::default() });
                assert_eq!(listing.total, 3_000);
                names(&listing)
            };
            let all = page(0, 3_000);
            for offset in [0, 1, 500, 1_024, 2_990] {
                assert_eq!(page(offset, 20), all[offset..(offset + 20).min(3_000)], "{sort:?} {reverse} {offset}");
            }
        }
    }

    /// The census reads less of a lane than the list does, and must come to the same result.
    #[test]
    fn a_census_counts_what_the_list_shows() {
        let gate = gate(100);
        for number in 0..20 {
            let at = host(&format!("h{number:02}.test"));
            gate.steer(&at, &delay(number)).unwrap();
            if number % 3 == 0 {
                gate.hold(&at, now() + Duration::from_secs(60));
            }
            if number % 4 == 0 {
                gate.steer(&at, &WantedHost { pause: Some(Pause::UntilResumed), ..WantedHost::default() }).unwrap();
            }
        }
        let mut counts = [0; Condition::ALL.len()];
        for (_, view) in gate.list(&HostsPage { limit: 100, ..HostsPage::default() }).hosts {
            counts[view.condition() as usize] += 1;
        }
        let census = gate.census();
        assert_eq!((census.counts, counts), (counts, [5, 0, 5, 0, 0, 0, 10]));
        assert_eq!((census.breakers, census.longest_delay), ([0, 0], Duration::from_secs(19)));
    }

    #[test]
    fn what_is_set_stays_through_a_reload_until_it_is_taken_back() {
        let (gate, at) = (gate(10), host("a.test"));
        let view = gate.steer(&at, &delay(7)).unwrap();
        assert_eq!(view.delays.effective(), Duration::from_secs(7));
        let paused = WantedHost { pause: Some(Pause::UntilResumed), ..WantedHost::default() };
        assert!(gate.steer(&at, &paused).unwrap().paused_until.is_some());
        let general = Policy { delay: Duration::ZERO, ..Policy::default() };
        let book = PolicyBook::from(general);
        gate.change(book, Bounds { most: 10, idle: Duration::ZERO }, 10, Apply::All);
        gate.sweep();
        let view = gate.view(&at).unwrap();
        assert_eq!((view.delays.effective(), view.paused_until.is_some()), (Duration::from_secs(7), true));
        let back = WantedHost { delay: Some(None), pause: Some(Pause::Over), ..WantedHost::default() };
        let view = gate.steer(&at, &back).unwrap();
        assert_eq!((view.delays.effective(), view.paused_until), (Duration::ZERO, None));
        gate.sweep();
        assert!(gate.view(&at).is_none() && gate.forget(&at).is_none());
    }

    #[test]
    fn a_host_that_finds_no_room_cannot_be_steered() {
        let gate = gate(1);
        gate.steer(&host("a.test"), &delay(1)).unwrap();
        assert_eq!(gate.steer(&host("b.test"), &delay(9)), Err(NoRoom));
        assert_eq!(
            gate.foresee(&host("c.test"), &Visit::new(ClientId(1), 1)).delays.effective(),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn only_the_policy_can_be_foreseen_for_an_unknown_host() {
        let gate = gate(10);
        let visit = Visit { crawl_delay: Duration::from_secs(4), ..Visit::new(ClientId(1), 1) };
        let expected = gate.foresee(&host("a.test"), &visit);
        assert_eq!((expected.delays.effective(), expected.objection), (Duration::from_secs(4), None));
        assert_eq!(gate.hosts(), 0, "asking makes no lane");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_wait_of_a_client_and_its_longest_are_known() {
        let (gate, at) = (Arc::new(gate(10)), host("a.test"));
        let visits = ["a", "b"].map(|name| Visit::new(gate.client(name), 1));
        assert_eq!(gate.wait_of(&at, &visits[0]), Duration::ZERO, "the host is not known");
        let mut sent = gate.join(&at, visits[0]).unwrap().permit().await.unwrap();
        sent.sent();
        let _waiting = [(); 3].map(|()| gate.join(&at, visits[0]).unwrap());
        tokio::time::advance(Duration::from_millis(400)).await;
        let wait = |visit| gate.wait_of(&at, visit).as_millis();
        assert_eq!((wait(&visits[0]), wait(&visits[1])), (3_600, 2_600), "clients take turns");
        let longest = |visit: &Visit| gate.longest_wait(&at, visit.client).as_millis();
        assert_eq!((longest(&visits[0]), longest(&visits[1])), (400, 0));
        gate.steer(&at, &WantedHost { pause: Some(Pause::UntilResumed), ..WantedHost::default() }).unwrap();
        assert_eq!(gate.wait_of(&at, &visits[1]), Duration::MAX, "it would be refused");
    }
}
