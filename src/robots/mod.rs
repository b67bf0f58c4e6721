//! robots.txt of every origin: fetched once, remembered, and consulted for each request.
//!
//! The core decides what a fetch means and how long it is valid; this module fetches and stores. There is one fetch at
//! a time per origin, however many requests wait for it, and a client that disconnects does not cancel it. Memory is
//! bounded by bytes. If a record was evicted or was fetched by an earlier process, the store is asked before the
//! origin. Never says "allowed" because something failed.

pub mod fetch;
mod persistence;
mod question;
mod report;
mod shared_copies;

use std::future::Future;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::quality::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::clock;
use crate::gate::now;
use crate::ledger::Ledger;
use crate::politeness::fault::HostReply;
use crate::politeness::robots::Agents;
use crate::politeness::robots::reply::{RecordLook, RobotsRecordState, Says, Trouble, TroubleKind};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::LaneRefusal;
use crate::politeness::{HostKey, Origin};
use crate::store::{ImportFate, RobotsRecord, Skipped, Store};

pub use self::question::{BadQuestion, Question};
pub use self::report::{
    AgentsFrom, Delay, Facts, FileReport, Reason, Report, ReportMode, ReportNote, ReportVerdict, RuleLine,
    TroubleReport,
};

#[derive(Debug)]
pub struct Robots {
    store: Arc<Store>,
    records: Cache<Origin, Arc<RobotsRecordState>, Weight, RandomState>,
    /// Running fetches, and the channel that reports the end of each.
    fetches: DashMap<Origin, watch::Receiver<Option<FetchEnd>>>,
    /// Limits running fetches.
    fetchers: Arc<Semaphore>,
    /// Limits answers that are read along.
    readers: Arc<Semaphore>,
    ledger: Ledger,
}

/// Limit of simultaneous fetches. They go on after their clients have disconnected, so nothing else bounds them, and
/// each may take half a megabyte.
const MOST_FETCHES: usize = 1024;
/// Limit of answers to clients that are read along at the same time: each may take half a megabyte.
const MOST_READERS: usize = 32;

/// How a fetch ended: with a record, or with a refusal of the host's lane before anything was sent.
pub type FetchEnd = Result<Arc<RobotsRecordState>, LaneRefusal>;

/// A fetch that runs: the caller of the functions below says how to fetch, and is handed the record before, if any.
pub trait FetchFuture: Future<Output = Result<RobotsRecordState, LaneRefusal>> + Send + 'static {}

impl<F: Future<Output = Result<RobotsRecordState, LaneRefusal>> + Send + 'static> FetchFuture for F {}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVerdict {
    Unknown(Unknown),
    /// The lane of the host refused the fetch.
    Refused(LaneRefusal),
}

impl From<Unknown> for NoVerdict {
    fn from(unknown: Unknown) -> Self {
        NoVerdict::Unknown(unknown)
    }
}

/// It is unknown what the origin's robots.txt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub kind: TroubleKind,
    /// How the last fetch failed; `None` if that is not known.
    pub cause: Option<HostReply>,
    pub retry_after: Duration,
}

impl Unknown {
    pub fn new(trouble: &Trouble, now: Timestamp) -> Unknown {
        Unknown { kind: trouble.kind, cause: trouble.cause, retry_after: trouble.retry_at.since(now) }
    }
}

/// The result of a fetch that ended without a record: its worker was stopped in the middle of it.
pub const LOST: Unknown = Unknown { kind: TroubleKind::Unreachable, cause: None, retry_after: Duration::from_secs(5) };

/// The result if the fetch would be one too many.
const BUSY: Unknown = LOST;

impl Robots {
    /// Keeps at most this many bytes in memory.
    pub fn new(bytes: usize, store: Arc<Store>) -> Self {
        Robots {
            store,
            records: cache(bytes),
            fetches: DashMap::new(),
            fetchers: Arc::new(Semaphore::new(MOST_FETCHES)),
            readers: Arc::new(Semaphore::new(MOST_READERS)),
            ledger: Ledger::Local,
        }
    }

    /// Shares copies with the nodes of a fleet, so that one of them fetches a file for all.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = ledger;
        self
    }

    /// Returns what memory knows of the origin's robots.txt, and whether that is new; `None` if it has to be [found
    /// out](Self::find_out). `fetch` is called only if the file should be refreshed meanwhile.
    pub fn at_hand<F: FetchFuture>(
        self: &Arc<Self>,
        origin: &Origin,
        fetch: impl FnOnce(Option<Arc<RobotsRecordState>>) -> F,
    ) -> Option<(Result<Says, NoVerdict>, bool)> {
        let (record, now) = (self.records.get(origin)?, now());
        let verdict = self.judge(&record, origin, now, fetch).ok()?;
        Some((verdict, record.is_new(now)))
    }

    /// Returns what the origin's robots.txt says. `fetch` is called if neither memory nor the store knows, or if the
    /// file should be refreshed meanwhile.
    pub async fn find_out<F: FetchFuture>(
        self: &Arc<Self>,
        origin: &Origin,
        fetch: impl FnOnce(Option<Arc<RobotsRecordState>>) -> F,
    ) -> Result<Says, NoVerdict> {
        let Some(record) = self.known(origin).await else { return self.fetched(origin, fetch).await };
        match self.judge(&record, origin, now(), fetch) {
            Ok(verdict) => verdict,
            Err(fetch) => self.fetched(origin, fetch).await,
        }
    }

    /// Returns what is known of the origin without asking it: from memory, else from the store.
    pub async fn known(&self, origin: &Origin) -> Option<Arc<RobotsRecordState>> {
        match self.records.get(origin) {
            Some(record) => Some(record),
            None => self.kept(origin).await,
        }
    }

    /// Returns the verdict that a record gives now, or gives `fetch` back if the record is of no use.
    fn judge<F: FetchFuture, M: FnOnce(Option<Arc<RobotsRecordState>>) -> F>(
        self: &Arc<Self>,
        record: &RobotsRecordState,
        origin: &Origin,
        now: Timestamp,
        fetch: M,
    ) -> Result<Result<Says, NoVerdict>, M> {
        match record.look(now) {
            RecordLook::Use(says) => Ok(Ok(says.clone())),
            RecordLook::UseAndRefresh(says) => {
                self.begin(origin, false, fetch);
                Ok(Ok(says.clone()))
            }
            RecordLook::Refuse { kind, cause, retry_after } => Ok(Err(Unknown { kind, cause, retry_after }.into())),
            RecordLook::MustFetch => Err(fetch),
        }
    }

    /// Returns what the store has of an origin that is not in memory.
    async fn kept(&self, origin: &Origin) -> Option<Arc<RobotsRecordState>> {
        if self.records.peek(origin).is_some() || self.fetches.contains_key(origin) {
            return None;
        }
        let record = Arc::new(persistence::from_store(self.store.robots(&origin.to_string()).await?, now())?);
        // Another task may have fetched the file meanwhile; its record is newer.
        if self.records.peek(origin).is_none() {
            self.records.insert(origin.clone(), record.clone());
        }
        Some(record)
    }

    async fn fetched<F: FetchFuture>(
        self: &Arc<Self>,
        origin: &Origin,
        fetch: impl FnOnce(Option<Arc<RobotsRecordState>>) -> F,
    ) -> Result<Says, NoVerdict> {
        let mut end = self.begin(origin, false, fetch).ok_or(BUSY)?;
        let ended = match end.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().ok_or(LOST)?,
            Err(_) => return Err(LOST.into()),
        };
        match ended.map_err(NoVerdict::Refused)?.look(now()) {
            RecordLook::Use(says) | RecordLook::UseAndRefresh(says) => Ok(says.clone()),
            RecordLook::Refuse { kind, cause, retry_after } => Err(Unknown { kind, cause, retry_after }.into()),
            RecordLook::MustFetch => Err(LOST.into()),
        }
    }

    /// Returns all that is known of the origin, for the operator. Fetches the file if nothing is known, or in any case
    /// if `anew`. `None` if the fetch was lost or refused, or would be one too many.
    pub async fn look_up<F: FetchFuture>(
        self: &Arc<Self>,
        origin: &Origin,
        anew: bool,
        fetch: impl FnOnce(Option<Arc<RobotsRecordState>>) -> F,
    ) -> Option<Arc<RobotsRecordState>> {
        let usable = |record: &Arc<RobotsRecordState>| !anew && record.look(now()) != RecordLook::MustFetch;
        if let Some(record) = self.records.get(origin).filter(usable) {
            return Some(record);
        }
        if let Some(record) = self.kept(origin).await.as_ref().filter(|record| usable(record)) {
            return Some(record.clone());
        }
        let mut end = self.begin(origin, anew, fetch)?;
        end.wait_for(Option::is_some).await.ok()?.clone()?.ok()
    }

    /// Starts a fetch, unless one is running or, without `anew`, has just ended. `None` if too many are running.
    fn begin<F: FetchFuture>(
        self: &Arc<Self>,
        origin: &Origin,
        anew: bool,
        fetch: impl FnOnce(Option<Arc<RobotsRecordState>>) -> F,
    ) -> Option<watch::Receiver<Option<FetchEnd>>> {
        let vacant = match self.fetches.entry(origin.clone()) {
            Entry::Occupied(under_way) => return Some(under_way.get().clone()),
            Entry::Vacant(vacant) => vacant,
        };
        let previous = self.records.get(origin);
        // A fetch inserts its record before it removes itself, so a fetch that has ended meanwhile is seen here.
        let usable = |record: &&Arc<RobotsRecordState>| {
            !anew && matches!(record.look(now()), RecordLook::Use(_) | RecordLook::Refuse { .. })
        };
        if let Some(record) = previous.as_ref().filter(usable) {
            return Some(watch::channel(Some(Ok(record.clone()))).1);
        }
        let place = self.fetchers.clone().try_acquire_owned().ok()?;
        let (end, heard) = watch::channel(None);
        vacant.insert(heard.clone());
        let under_way = UnderWay { robots: self.clone(), origin: origin.clone(), end, _place: place };
        let fetching = fetch(previous);
        let (ledger, origin) = (self.ledger.clone(), origin.clone());
        tokio::spawn(async move { under_way.end(shared_copies::fetch(&ledger, &origin, anew, fetching).await) });
        Some(heard)
    }

    /// Returns what memory knows of the origin.
    pub fn record(&self, origin: &Origin) -> Option<Arc<RobotsRecordState>> {
        self.records.get(origin)
    }

    /// The largest delay that stored copies of a host's origins ask of these agents. Reads the state file, so it is for
    /// the API and not for the request path.
    pub async fn kept_delay(self: &Arc<Self>, host: &HostKey, agents: &Agents) -> Duration {
        let (robots, name) = (self.clone(), host.to_string());
        let copies = tokio::task::spawn_blocking(move || robots.store.robots_of_host(&name)).await;
        let copies = copies.ok().and_then(Result::ok).unwrap_or_default();
        let asked = |copy| match persistence::from_store(copy, now())?.answer?.says {
            Says::Rules(rules) => rules.delay(agents),
            Says::Nothing => None,
        };
        copies.into_iter().filter_map(asked).max().unwrap_or_default()
    }

    /// Permission to read along an answer that is on its way to a client: only if the answer could teach anything, and
    /// if not too many are being read. Lasts until it is dropped.
    pub fn read_along(&self, origin: &Origin) -> Option<OwnedSemaphorePermit> {
        let fresh = |record: &Arc<RobotsRecordState>| {
            record.trouble.is_none() && matches!(record.look(now()), RecordLook::Use(_))
        };
        if self.records.get(origin).is_some_and(|record| fresh(&record) || record.forbids_something()) {
            return None;
        }
        self.readers.clone().try_acquire_owned().ok()
    }

    /// Stores a record that was learned outside a fetch.
    pub fn learn(&self, origin: &Origin, record: RobotsRecordState) {
        self.keep(origin, Arc::new(record));
    }

    /// Keeps a record. It outlives the process unless it says only that curtsy itself refused the fetch: the next
    /// process may allow the destination.
    fn keep(&self, origin: &Origin, record: Arc<RobotsRecordState>) {
        let is_own_refusal = record.answer.is_none() && record.trouble.is_some_and(|trouble| trouble.cause.is_none());
        if !is_own_refusal {
            self.store.put_robots(&origin.to_string(), persistence::to_store(&record, now()));
        }
        self.records.insert(origin.clone(), record);
    }

    /// Imports a copy that another curtsy stored. It replaces what memory has of the origin, unless that is newer.
    pub async fn import(&self, origin: &str, copy: RobotsRecord) -> ImportFate {
        let question = Question::parse(origin, None, false).ok().filter(|asked| asked.origin.to_string() == origin);
        let Some(Question { origin: key, .. }) = question else { return ImportFate::Skipped(Skipped::Unusable) };
        if copy.stale_until_us <= clock::micros() {
            return ImportFate::Skipped(Skipped::TooOld);
        }
        let here = self.store.robots(origin).await;
        if here.as_ref().is_some_and(|here| here.fetched_us > copy.fetched_us) {
            return ImportFate::Skipped(Skipped::NewerHere);
        }
        if persistence::from_store(copy.clone(), now()).is_none() {
            return ImportFate::Skipped(Skipped::Unusable);
        }
        self.store.put_robots(origin, copy);
        self.records.remove(&key);
        if here.is_some() { ImportFate::Replaced } else { ImportFate::New }
    }

    pub fn bytes(&self) -> u64 {
        self.records.weight()
    }
}

/// A running fetch. No request waits for it forever, however it ends: dropping the sender is an answer too.
struct UnderWay {
    robots: Arc<Robots>,
    origin: Origin,
    end: watch::Sender<Option<FetchEnd>>,
    _place: OwnedSemaphorePermit,
}

impl UnderWay {
    /// Ends the fetch. A refusal says nothing about the origin, so it is not stored.
    fn end(self, ended: Result<RobotsRecordState, LaneRefusal>) {
        let ended = ended.map(Arc::new);
        if let Ok(record) = &ended {
            self.robots.keep(&self.origin, record.clone());
        }
        self.end.send_replace(Some(ended));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.robots.fetches.remove(&self.origin);
    }
}

/// Builds the cache so that the largest file fits: a file that is not stored would be fetched again for every page. A
/// shard holds no more than its share of the bytes, and the library's default is one shard per core.
fn cache(bytes: usize) -> Cache<Origin, Arc<RobotsRecordState>, Weight, RandomState> {
    let shards = 1 << (bytes / LEAST_SHARD).clamp(1, MOST_SHARDS).ilog2();
    let options = OptionsBuilder::new()
        .estimated_items_capacity(bytes / USUAL_RECORD)
        .weight_capacity(bytes as u64)
        .shards(shards)
        .build()
        .expect("both capacities are given");
    Cache::with_options(options, Weight, RandomState::default(), DefaultLifecycle::default())
}

/// Twice the largest record.
const LEAST_SHARD: usize = 1 << 20;
/// More than the number of cores that access the cache at the same moment.
const MOST_SHARDS: usize = 16;

#[derive(Clone, Debug)]
struct Weight;

/// Size of the mean record of 4 000 well-known hosts, with its entry in the cache.
const USUAL_RECORD: usize = 1_200;

impl Weighter<Origin, Arc<RobotsRecordState>> for Weight {
    fn weight(&self, origin: &Origin, record: &Arc<RobotsRecordState>) -> u64 {
        let answer = record.answer.as_ref().map_or(0, |answer| {
            let validator = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
            let rules = match &answer.says {
                Says::Rules(rules) => rules.as_bytes().len(),
                Says::Nothing => 0,
            };
            rules + validator(&answer.etag) + validator(&answer.last_modified)
        });
        (size_of::<(Origin, RobotsRecordState)>() + OVERHEAD + origin.host.as_str().len() + answer) as u64
    }
}

/// Reference counts and the cache's own entry, roughly.
const OVERHEAD: usize = 96;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::politeness::Scheme;
    use crate::politeness::robots::reply::{FetchReply, Fetched};
    use crate::store::Retention;

    fn origin(name: &str) -> Origin {
        Origin { scheme: Scheme::Http, host: HostKey::parse(name).unwrap(), port: 80 }
    }

    fn memory() -> Store {
        Store::memory(Retention::default())
    }

    fn robots(store: Store) -> Arc<Robots> {
        Arc::new(Robots::new(1 << 20, Arc::new(store)))
    }

    fn fetched(previous: Option<&RobotsRecordState>, status: u16, body: &[u8]) -> RobotsRecordState {
        let reply = FetchReply { status, body, ..FetchReply::default() };
        RobotsRecordState::after(previous, &Fetched::Answered(reply), now(), 0.5)
    }

    fn unknown(verdict: Result<Says, NoVerdict>) -> Unknown {
        match verdict {
            Err(NoVerdict::Unknown(unknown)) => unknown,
            other => panic!("{other:?}"),
        }
    }

    /// A full lane says nothing about the origin: the next request asks again.
    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_its_lane_refuses_is_not_kept_against_the_origin() {
        let robots = robots(memory());
        let full = LaneRefusal::QueueFull { retry_after: Duration::from_secs(7) };
        let refused = |_: Option<Arc<RobotsRecordState>>| async move { Err(full) };
        assert_eq!(robots.find_out(&origin("a.test"), refused).await, Err(NoVerdict::Refused(full)));
        assert!(robots.record(&origin("a.test")).is_none());
        let well = |previous: Option<Arc<RobotsRecordState>>| async move { Ok(fetched(previous.as_deref(), 404, b"")) };
        assert_eq!(robots.find_out(&origin("a.test"), well).await, Ok(Says::Nothing));
    }

    async fn never(_: Option<Arc<RobotsRecordState>>) -> Result<RobotsRecordState, LaneRefusal> {
        panic!("fetched without need")
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_at_once_make_one_fetch_that_no_disconnect_cancels() {
        let robots = robots(memory());
        let fetches = Arc::new(AtomicUsize::new(0));
        let ask = || {
            let (robots, fetches) = (robots.clone(), fetches.clone());
            tokio::spawn(async move {
                let fetch = |previous: Option<Arc<RobotsRecordState>>| async move {
                    fetches.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Ok(fetched(previous.as_deref(), 200, b"User-agent: *\nDisallow: /x"))
                };
                robots.find_out(&origin("a.test"), fetch).await
            })
        };
        let first = ask();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let others: Vec<_> = (0..50).map(|_| ask()).collect();
        tokio::task::yield_now().await;
        first.abort();
        for other in others {
            assert!(matches!(other.await.unwrap(), Ok(Says::Rules(_))));
        }
        assert_eq!(fetches.load(Ordering::Relaxed), 1);
        assert!(robots.find_out(&origin("a.test"), never).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_origin_in_trouble_is_asked_seldom_and_nothing_is_allowed_meanwhile() {
        let robots = robots(memory());
        let failing =
            |previous: Option<Arc<RobotsRecordState>>| async move { Ok(fetched(previous.as_deref(), 503, b"")) };
        let unknown = unknown(robots.find_out(&origin("a.test"), failing).await);
        assert!(unknown.retry_after > Duration::from_secs(20), "{unknown:?}");
        assert!(robots.find_out(&origin("a.test"), never).await.is_err());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let well = |previous: Option<Arc<RobotsRecordState>>| async move { Ok(fetched(previous.as_deref(), 404, b"")) };
        assert_eq!(robots.find_out(&origin("a.test"), well).await, Ok(Says::Nothing));
    }

    /// A task looked for the record just before a fetch ended, and begins one just after.
    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_has_just_failed_is_not_repeated_by_a_late_request() {
        let robots = robots(memory());
        robots.learn(&origin("a.test"), fetched(None, 503, b""));
        assert!(robots.fetched(&origin("a.test"), never).await.is_err_and(|unknown| unknown != LOST.into()));
    }

    /// A client that disconnects does not cancel its fetch, so clients that come and go could start any number.
    #[tokio::test(start_paused = true)]
    async fn fetches_under_way_are_bounded() {
        let robots = robots(memory());
        for n in 0..MOST_FETCHES + 100 {
            let (at, robots) = (origin(&format!("h{n}.test")), robots.clone());
            let client = tokio::spawn(async move { robots.find_out(&at, |_| std::future::pending()).await });
            tokio::task::yield_now().await;
            client.abort();
        }
        assert_eq!(robots.fetches.len(), MOST_FETCHES);
        assert_eq!(robots.find_out(&origin("z.test"), never).await, Err(BUSY.into()));
    }

    #[test]
    fn the_largest_file_fits_into_the_smallest_cache() {
        let robots = robots(memory());
        let body: Vec<u8> = (0..40_000).flat_map(|n| format!("Disallow: /{n}\n").into_bytes()).collect();
        let body = [b"User-agent: *\n", &body[..500 * 1024]].concat();
        for name in ["a.test", "b.test", "c.test"] {
            robots.learn(&origin(name), fetched(None, 200, &body));
            assert!(robots.record(&origin(name)).is_some(), "{name} would be fetched again for every page");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_is_lost_leaves_no_request_waiting() {
        let robots = robots(memory());
        let broken = |_: Option<Arc<RobotsRecordState>>| async { panic!("as a bug would") };
        assert_eq!(robots.find_out(&origin("a.test"), broken).await, Err(LOST.into()));
        assert!(robots.fetches.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn people_see_what_is_known_unless_they_want_it_anew() {
        let robots = robots(memory());
        let at = origin("a.test");
        let ill = |previous: Option<Arc<RobotsRecordState>>| async move { Ok(fetched(previous.as_deref(), 503, b"")) };
        let well = |previous: Option<Arc<RobotsRecordState>>| async move { Ok(fetched(previous.as_deref(), 200, b"")) };
        let trouble = robots.look_up(&at, false, ill).await.unwrap();
        assert_eq!(robots.look_up(&at, false, never).await, Some(trouble), "it is too early to ask again");
        let known = robots.look_up(&at, true, well).await.unwrap();
        assert!(known.answer.is_some() && known.trouble.is_none());
        assert_eq!(robots.look_up(&at, false, never).await, Some(known));
        let again = robots.look_up(&at, true, ill).await.unwrap();
        assert!(again.answer.is_some() && again.trouble.is_some(), "the last good copy stays");
        let broken = |_: Option<Arc<RobotsRecordState>>| async { panic!("as a bug would") };
        assert_eq!(robots.look_up(&origin("b.test"), false, broken).await, None);
    }

    #[test]
    fn answers_are_read_along_only_if_they_can_teach_and_not_too_many() {
        let robots = robots(memory());
        let (known, ill, new) = (origin("known.test"), origin("ill.test"), origin("new.test"));
        robots.learn(&known, fetched(None, 200, b""));
        robots.learn(&ill, fetched(Some(&fetched(None, 200, b"")), 503, b""));
        assert!(robots.read_along(&known).is_none());
        assert!(robots.read_along(&ill).is_some(), "an old copy is used, but any answer is better");
        let strict = fetched(None, 200, b"User-agent: *\nDisallow: /x");
        robots.learn(&origin("strict.test"), fetched(Some(&strict), 503, b""));
        assert!(robots.read_along(&origin("strict.test")).is_none(), "only the origin itself can replace its rules");
        let mut readers: Vec<_> = (0..MOST_READERS).map(|_| robots.read_along(&new)).collect();
        assert!(readers.iter().all(Option::is_some) && robots.read_along(&new).is_none());
        readers.pop();
        assert!(robots.read_along(&new).is_some());
    }

    #[test]
    fn what_is_kept_is_bounded_by_bytes() {
        let robots = robots(memory());
        let body = b"User-agent: *\nDisallow: /".repeat(40);
        for n in 0..10_000 {
            robots.learn(&origin(&format!("h{n}.test")), fetched(None, 200, &body));
        }
        assert!(robots.bytes() <= 1 << 20, "{}", robots.bytes());
        assert!(robots.records.len() > 500, "{}", robots.records.len());
    }

    /// Promise 4 across a restart: the verdict comes from the stored copy, not from a new fetch.
    #[tokio::test]
    async fn a_copy_outlives_the_process_and_its_trouble_too() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Store::open(directory.path(), Retention::default()).unwrap().0;
        let first = robots(open());
        let rules = |previous: Option<Arc<RobotsRecordState>>| async move {
            Ok(fetched(previous.as_deref(), 200, b"User-agent: *\nDisallow: /x"))
        };
        let failing =
            |previous: Option<Arc<RobotsRecordState>>| async move { Ok(fetched(previous.as_deref(), 503, b"")) };
        let said = first.find_out(&origin("a.test"), rules).await;
        assert!(matches!(said, Ok(Says::Rules(_))));
        let refused = unknown(first.find_out(&origin("b.test"), failing).await);
        assert_eq!(first.find_out(&origin("a.test"), never).await, said, "before it is written");
        first.store.close(Duration::from_secs(10)).unwrap();
        let second = robots(open());
        assert_eq!(second.find_out(&origin("a.test"), never).await, said);
        let still = unknown(second.find_out(&origin("b.test"), never).await);
        assert!(still.kind == refused.kind && still.retry_after <= refused.retry_after, "{still:?}");
        assert!(second.find_out(&origin("c.test"), rules).await.is_ok());
    }
}
