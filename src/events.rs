//! Recent events for listeners: a ring of the last events, and a bell that rings for each.
//!
//! Memory and rate are bounded. Above [`MOST_A_SECOND`] per kind (requests, everything else), events are dropped; the
//! next one carries the number dropped. A listener that is too slow loses the oldest events and learns how many it
//! lost. While there is no listener, events about requests are not recorded at all, which costs a request one look at a
//! flag. Events about hosts are rare enough to be recorded always.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock;

/// Size of each of the two rings, requests and everything else: some minutes of events, and under a megabyte with the
/// longest URLs.
const KEPT: usize = 512;
/// More than a person can read.
const MOST_A_SECOND: u32 = 100;
/// A listener that lost its connection may reconnect within this time.
const LINGER: Duration = Duration::from_secs(60);

/// The kind of events about single requests.
pub const REQUEST: &str = "request";
/// The kind of events about requests that have begun to wait. It belongs to the requests, by the word before the dot.
pub const WAITING: &str = "request.waiting";

#[derive(Debug)]
pub struct Events {
    /// Whether events about requests are recorded.
    watched: AtomicBool,
    listeners: AtomicUsize,
    rings: Mutex<Rings>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
pub struct Event {
    /// One more than the id of the event before it; larger than all ids of an earlier process.
    pub id: u64,
    /// Part of the public interface: add kinds, never rename one.
    pub kind: &'static str,
    pub host: Option<Box<str>>,
    /// The whole event, as a JSON object on one line.
    pub json: String,
}

#[derive(Debug)]
struct Rings {
    /// The id before the first event.
    begin: u64,
    last: u64,
    requests: Ring,
    news: Ring,
    /// When the last listener disconnected.
    left: Option<Instant>,
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Arc<Event>>,
    /// The second that is counted, how many events were recorded in it, and how many were dropped since the last
    /// recorded one.
    second: Option<Instant>,
    told: u32,
    skipped: u64,
}

impl Default for Events {
    fn default() -> Self {
        let begin = clock::micros();
        let rings = Rings { begin, last: begin, requests: Ring::default(), news: Ring::default(), left: None };
        Events {
            watched: AtomicBool::new(false),
            listeners: AtomicUsize::new(0),
            rings: Mutex::new(rings),
            newest: watch::Sender::new(begin),
        }
    }
}

impl Events {
    /// Whether events about requests are wanted.
    pub fn is_watched(&self) -> bool {
        self.watched.load(Relaxed)
    }

    pub fn listeners(&self) -> usize {
        self.listeners.load(Relaxed)
    }

    /// Records an event. Calls `fields`, which returns a JSON object, only if the event is within the rate limit.
    pub fn tell(&self, kind: &'static str, host: Option<&str>, fields: impl FnOnce() -> Value) {
        let is_request = kind == REQUEST || kind == WAITING;
        let Some(skipped) = self.rings.lock().of(is_request).admit(clock::now()) else { return };
        let json = written(kind, host, fields(), skipped);
        let host = host.map(Box::from);
        let mut rings = self.rings.lock();
        rings.last += 1;
        let id = rings.last;
        rings.of(is_request).push(Event { id, kind, host, json });
        // Under the lock, so that the bell never rings backwards.
        self.newest.send_replace(id);
    }

    /// Starts to listen: after the event with this id, or from the next event on.
    pub fn listen(self: &Arc<Self>, after: Option<u64>) -> Listener {
        self.listeners.fetch_add(1, Relaxed);
        self.watched.store(true, Relaxed);
        let bell = self.newest.subscribe();
        let rings = self.rings.lock();
        let heard = after.map_or(rings.last, |after| after.clamp(rings.begin, rings.last));
        drop(rings);
        Listener { events: self.clone(), bell, heard }
    }

    /// Returns the id to listen after in order to receive this many of the newest events again.
    pub fn before_last(&self, count: u64) -> u64 {
        self.rings.lock().last.saturating_sub(count)
    }

    /// Stops recording requests [`LINGER`] after the last listener disconnected. Must be called from time to time.
    pub fn rest(&self) {
        let left = self.rings.lock().left;
        let over = left.is_some_and(|left| clock::now().saturating_duration_since(left) >= LINGER);
        if self.listeners() == 0 && over {
            self.watched.store(false, Relaxed);
        }
    }
}

fn written(kind: &'static str, host: Option<&str>, fields: Value, skipped: u64) -> String {
    let mut object = Map::new();
    object.insert("event".to_owned(), kind.into());
    object.insert("at".to_owned(), humantime::format_rfc3339_millis(clock::wall()).to_string().into());
    object.insert("host".to_owned(), host.into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    if skipped > 0 {
        object.insert("skipped".to_owned(), skipped.into());
    }
    Value::Object(object).to_string()
}

/// A listener. Events about requests are recorded while there is one.
#[derive(Debug)]
pub struct Listener {
    events: Arc<Events>,
    bell: watch::Receiver<u64>,
    heard: u64,
}

impl Listener {
    /// Waits until there is an event to read.
    pub async fn rung(&mut self) {
        // Cannot fail: this listener keeps the sender alive.
        let heard = self.heard;
        let _ = self.bell.wait_for(|newest| *newest > heard).await;
    }

    /// Returns the events since the last call, and how many were lost.
    pub fn hear(&mut self) -> (Vec<Arc<Event>>, u64) {
        let rings = self.events.rings.lock();
        let newer = |ring: &Ring| ring.kept.iter().filter(|event| event.id > self.heard).cloned().collect::<Vec<_>>();
        let mut events = newer(&rings.requests);
        events.extend(newer(&rings.news));
        let told = rings.last - self.heard;
        self.heard = rings.last;
        drop(rings);
        events.sort_unstable_by_key(|event| event.id);
        let lost = told.saturating_sub(events.len() as u64);
        (events, lost)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.events.listeners.fetch_sub(1, Relaxed);
        self.events.rings.lock().left = Some(clock::now());
    }
}

impl Rings {
    fn of(&mut self, requests: bool) -> &mut Ring {
        if requests { &mut self.requests } else { &mut self.news }
    }
}

impl Ring {
    /// Admits an event if the rate allows it, and returns how many were dropped since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.second.is_none_or(|second| now.saturating_duration_since(second) >= Duration::from_secs(1)) {
            (self.second, self.told) = (Some(now), 0);
        }
        if self.told >= MOST_A_SECOND {
            self.skipped += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.skipped))
    }

    fn push(&mut self, event: Event) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Arc::new(event));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    fn tell(events: &Events, number: u64) {
        events.tell("host.held", Some("a.test"), || json!({ "number": number }));
    }

    fn numbers(heard: &[Arc<Event>]) -> Vec<u64> {
        let number = |event: &Arc<Event>| serde_json::from_str::<Value>(&event.json).unwrap()["number"].as_u64();
        heard.iter().filter_map(number).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_hears_in_order_and_goes_on_where_it_was() {
        let events = Arc::new(Events::default());
        tell(&events, 0);
        let mut listener = events.listen(None);
        tell(&events, 1);
        events.tell(REQUEST, None, || json!({ "number": 2 }));
        tell(&events, 3);
        listener.rung().await;
        let (heard, lost) = listener.hear();
        assert_eq!((numbers(&heard), lost), (vec![1, 2, 3], 0));
        assert!(heard[0].json.starts_with(r#"{"#) && heard[0].json.contains(r#""host":"a.test""#), "{}", heard[0].json);
        assert_eq!(listener.hear().0.len(), 0);
        let mut back = events.listen(Some(heard[0].id));
        assert_eq!(numbers(&back.hear().0), [2, 3]);
        let mut stranger = events.listen(Some(7));
        assert_eq!(numbers(&stranger.hear().0), [0, 1, 2, 3], "numbers of an earlier process are older than all");
        assert_eq!(events.listen(Some(u64::MAX)).hear().0.len(), 0);
        assert_eq!(numbers(&events.listen(Some(events.before_last(2))).hear().0), [2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_is_counted() {
        let events = Arc::new(Events::default());
        let mut listener = events.listen(None);
        (0..150).for_each(|number| tell(&events, number));
        assert_eq!(listener.hear().0.len(), MOST_A_SECOND as usize);
        advance(Duration::from_secs(1)).await;
        tell(&events, 7);
        assert!(listener.hear().0[0].json.contains(r#""skipped":50"#));
        for number in 0..KEPT as u64 + 60 {
            tell(&events, number);
            advance(Duration::from_millis(20)).await;
        }
        let (heard, lost) = listener.hear();
        assert_eq!((heard.len(), lost), (KEPT, 60), "a slow listener is told what it lost");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_recorded_only_while_there_is_a_listener() {
        let events = Arc::new(Events::default());
        events.rest();
        assert!(!events.is_watched());
        let listener = events.listen(None);
        assert!(events.is_watched());
        advance(LINGER * 2).await;
        events.rest();
        assert!(events.is_watched(), "there is a listener");
        drop(listener);
        events.rest();
        assert!(events.is_watched(), "it may be back");
        advance(LINGER).await;
        events.rest();
        assert!(!events.is_watched());
    }
}
