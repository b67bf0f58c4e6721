//! Lists remembered hosts (without a recent visit), and imports what another curtsy knew of hosts.
//!
//! Remembered hosts are in the store and have no lane; they get a temporary one to be viewed. Listing them reads the
//! whole state file and takes as long as that, but keeps only the requested page in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::persistence::{memory, overrides};
use super::view::{HostsPage, Listing, Sort};
use super::{Gate, now};
use crate::politeness::HostKey;
use crate::politeness::lane::View;
use crate::politeness::time::Timestamp;
use crate::store::{HostRecord, ImportFate, LinesError, Skipped};

impl Gate {
    /// Returns a page of the hosts in the state file, sorted as asked and in any condition. Not for the request path.
    pub fn list_remembered(&self, page: &HostsPage) -> Result<Listing, LinesError> {
        let now = now();
        let most = page.offset.saturating_add(page.limit);
        let mut total = 0;
        // The greatest entry is the last of the page. It is removed when there are too many.
        let mut first = BinaryHeap::new();
        self.registry.store().each_host(|key, record| {
            if self.registry.store().matters(record) && key.contains(&page.filter) {
                total += 1;
                first.push((Reverse(page.sort.rank_of(record, now)), key.to_owned()));
                if first.len() > most {
                    first.pop();
                }
            }
        })?;
        let page = first.into_sorted_vec().into_iter().skip(page.offset);
        let hosts = page.filter_map(|(_, key)| self.look_at(&HostKey::of_key(&key).ok()?));
        Ok(Listing { total, hosts: hosts.collect() })
    }

    fn look_at(&self, host: &HostKey) -> Option<(HostKey, View)> {
        Some((host.clone(), self.view(host)?))
    }

    /// Imports what another curtsy knew of a host, replacing what is known here. A running lane uses it at once. Never
    /// allows an earlier start.
    pub fn import(&self, host: &HostKey, record: &HostRecord) -> ImportFate {
        if !self.registry.store().matters(record) {
            return ImportFate::Skipped(Skipped::TooOld);
        }
        let (now, book) = (now(), self.book.load());
        let known = self.registry.remembers(host);
        match self.registry.known(host) {
            Some(lane) => lane.with(now, |state| {
                state.lane.adopt(&memory(record), overrides(record.overrides), &book.schooling, now);
                self.registry.keep_news(&lane, state, now);
            }),
            None => self.registry.import(host, record),
        }
        if known { ImportFate::Replaced } else { ImportFate::New }
    }
}

impl Sort {
    /// The sort rank that a record gives: larger comes first.
    fn rank_of(self, record: &HostRecord, now: Timestamp) -> u64 {
        match self {
            Sort::Host | Sort::Queued | Sort::InFlight => 0,
            Sort::Delay => u64::from(record.learned_ms.max(record.overrides.delay_ms.unwrap_or(0))),
            Sort::Wait if record.paused => u64::MAX,
            Sort::Wait => record.held_until_us.max(record.paused_until_us).saturating_sub(now.as_micros()),
            Sort::LastSent => record.last_sent_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock;
    use crate::gate::{Bounds, HostPersistence, WantedHost};
    use crate::politeness::policy::PolicyBook;
    use crate::politeness::visit::Visit;
    use crate::store::{Retention, Store, StoredOverrides};

    const DAY_US: u64 = 86_400_000_000;

    fn gate(store: Store) -> Arc<Gate> {
        let bounds = Bounds { most: 100, idle: Duration::from_secs(3600) };
        let memories = HostPersistence::new(Arc::new(store), None);
        Arc::new(Gate::new(PolicyBook::default(), bounds, 1000, memories, Arc::default()))
    }

    fn host(name: &str) -> HostKey {
        HostKey::parse(name).unwrap()
    }

    fn learned(ms: u32, days_ago: u64) -> HostRecord {
        HostRecord { learned_ms: ms, updated_us: clock::micros() - days_ago * DAY_US, ..HostRecord::default() }
    }

    fn learned_delay(gate: &Gate, name: &str) -> Option<Duration> {
        gate.view(&host(name)).map(|view| view.delays.learned)
    }

    /// `adaptive.remember` is 30 days by default. After a quarter of it, what was learned is halved.
    #[test]
    fn what_was_learned_fades_with_its_age() {
        let store = Store::memory(Retention::default());
        for (name, days) in [("new.test", 0), ("week.test", 7), ("month.test", 15), ("old.test", 30)] {
            store.put_host(name, learned(8_000, days));
        }
        let gate = gate(store);
        let millis = |name: &str| learned_delay(&gate, name).map(|delay| delay.as_millis());
        assert_eq!((millis("new.test"), millis("month.test"), millis("old.test")), (Some(8_000), Some(2_000), None));
        assert!(matches!(millis("week.test"), Some(4_001..=4_400)), "{:?}", millis("week.test"));
        assert_eq!(gate.hosts(), 0, "looking makes no lane");
    }

    #[test]
    fn a_remembered_host_can_be_seen_foreseen_and_forgotten() {
        let store = Store::memory(Retention::default());
        store.put_host("a.test", learned(8_000, 0));
        let gate = gate(store);
        let at = host("a.test");
        let eight = Duration::from_secs(8);
        let expected = gate.foresee(&at, &Visit::new(gate.client("a"), 1));
        assert_eq!(expected.delays.effective(), eight);
        let (forgotten, view) = gate.forget(&at).unwrap();
        assert!(forgotten.learned && view.delays.learned.is_zero());
        let kept = gate.registry.store().host("a.test").unwrap();
        assert!(!gate.registry.store().matters(&kept) && gate.forget(&host("b.test")).is_none());
    }

    #[test]
    fn an_import_counts_at_once_and_moves_no_start_forward() {
        let gate = gate(Store::memory(Retention::default()));
        let at = host("a.test");
        let set = WantedHost { delay: Some(Some(Duration::from_secs(3))), ..WantedHost::default() };
        gate.steer(&at, &set).unwrap();
        let far = clock::micros() + 1_000_000_000;
        let overrides = StoredOverrides { burst: Some(2), ..StoredOverrides::default() };
        let record = HostRecord { held_until_us: far, overrides, ..learned(8_000, 0) };
        assert_eq!(gate.import(&at, &record), ImportFate::Replaced);
        let view = gate.view(&at).unwrap();
        assert_eq!((view.delays.learned, view.delays.configured), (Duration::from_secs(8), Duration::from_secs(1)));
        assert_eq!((view.overrides.burst, view.held.map(|(until, _)| until.as_micros())), (Some(2), Some(far)));

        assert_eq!(gate.import(&host("b.test"), &record), ImportFate::New);
        let other = HostRecord { held_until_us: 0, last_sent_us: 5, ..record };
        assert_eq!(gate.import(&host("b.test"), &other), ImportFate::Replaced);
        assert_eq!(gate.view(&host("b.test")).unwrap().held.map(|(until, _)| until.as_micros()), Some(far));
        assert_eq!(gate.import(&host("c.test"), &learned(8_000, 30)), ImportFate::Skipped(Skipped::TooOld));
    }

    #[test]
    fn the_state_file_is_listed_page_by_page() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(directory.path(), Retention::default()).unwrap();
        for n in 0..2_500 {
            store.put_host(&format!("h{n:04}.test"), learned(1 + n % 1_000, 0));
        }
        store.put_host("::1", learned(1, 0));
        let gate = gate(store);
        let list = |sort, filter: &str, offset, limit| {
            let page = HostsPage { sort, reverse: false, condition: None, filter: filter.to_owned(), offset, limit };
            let listing = gate.list_remembered(&page).unwrap();
            let names: Vec<String> = listing.hosts.iter().map(|(host, _)| host.to_string()).collect();
            (listing.total, names.join(" "))
        };
        assert_eq!(list(Sort::Host, "", 0, 2), (2_501, "[::1] h0000.test".to_owned()));
        assert_eq!(list(Sort::Queued, "", 2_500, 5), (2_501, "h2499.test".to_owned()));
        assert_eq!(list(Sort::Delay, "h0", 0, 2), (1_000, "h0999.test h0998.test".to_owned()));
        assert_eq!(list(Sort::Delay, "", 1, 2), (2_501, "h1999.test h0998.test".to_owned()));
    }
}
