//! `GET /api/v1/events`: events as they happen, as server-sent events.
//!
//! Each event is one JSON object with `event`, `at` and `host`. A client that reconnects with `Last-Event-ID` continues
//! where it was, as far as the events are still in memory. `lost` says how many were missed; `status` carries the
//! present state, once a second while it changes. The number of listeners is bounded, and so is what each is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::MissedTickBehavior;
use url::form_urlencoded;

use super::Admin;
use super::problem::ApiProblem;
use super::status::Pulse;
use crate::events::{Event, Listener};

/// More than there are operators and dashboards.
pub(super) const MOST_LISTENERS: usize = 32;
/// As many as are kept of each kind (requests, everything else).
const MOST_RECENT: u64 = 512;
/// Events that come close together are sent together.
const TOGETHER: Duration = Duration::from_millis(100);
const PULSE: Duration = Duration::from_secs(1);
/// Pulses without a change until a comment is sent that keeps the connection alive.
const QUIET: u32 = 15;

/// What a listener wants to receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EventsWish {
    /// Kinds, or the part of a kind before the dot; all if empty.
    kinds: Vec<String>,
    host: Option<String>,
    /// How many of the newest events it wants to receive again.
    recent: u64,
    /// The last event it received, for clients that cannot send `Last-Event-ID`.
    after: Option<u64>,
}

/// `GET /api/v1/events?kind=&host=&recent=&after=`
pub(super) async fn follow(
    State(admin): State<Arc<Admin>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let wish = wish(uri.query().unwrap_or_default())?;
    let place = admin.own.listeners.clone().try_acquire_owned().map_err(|_| ApiProblem {
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "Too many listeners",
        detail: format!("there are {MOST_LISTENERS} listeners already; try again when one has disconnected"),
    })?;
    let events = &admin.desk.shared().events;
    let heard = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok()).or(wish.after);
    let listener = events.listen(heard.or_else(|| (wish.recent > 0).then(|| events.before_last(wish.recent))));
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(feed(admin.clone(), wish, listener, sender, place));
    let fields = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((fields, Body::new(EventFeed(receiver))).into_response())
}

/// Sends until the listener disconnects or curtsy stops.
async fn feed(
    admin: Arc<Admin>,
    wish: EventsWish,
    mut listener: Listener,
    sender: mpsc::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
) {
    let mut closing = admin.own.closing.clone();
    let mut beat = tokio::time::interval(PULSE);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut quiet) = (None, 0);
    // Sent first, so that the browser knows at once that the connection works.
    let mut text = "retry: 2000\n\n".to_owned();
    loop {
        if !text.is_empty() && sender.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            () = closing.requested() => return,
            () = listener.rung() => {
                tokio::time::sleep(TOGETHER).await;
                let (events, lost) = listener.hear();
                write_events(&mut text, &events, lost, &wish);
            }
            _ = beat.tick() => {
                admin.gate.tell_of_waits();
                let pulse = Pulse::of(&admin);
                if wish.wants("status") && last.as_ref() != Some(&pulse) {
                    text.push_str(&format!("data: {}\n\n", pulse.told()));
                    last = Some(pulse);
                }
                quiet = if text.is_empty() { quiet + 1 } else { 0 };
                if quiet >= QUIET {
                    text.push_str(":\n\n");
                    quiet = 0;
                }
            }
        }
    }
}

fn write_events(text: &mut String, events: &[Arc<Event>], lost: u64, wish: &EventsWish) {
    if lost > 0 {
        text.push_str(&format!("data: {}\n\n", json!({ "event": "lost", "host": null, "count": lost })));
    }
    for event in events.iter().filter(|event| wish.covers(event)) {
        // JSON on one line: nothing in it ends the field.
        text.push_str(&format!("id: {}\ndata: {}\n\n", event.id, event.json));
    }
}

impl EventsWish {
    fn wants(&self, kind: &str) -> bool {
        let family = kind.split('.').next().unwrap_or_default();
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind || wanted == family)
    }

    fn covers(&self, event: &Event) -> bool {
        self.wants(event.kind) && (self.host.is_none() || event.host.as_deref() == self.host.as_deref())
    }
}

fn wish(query: &str) -> Result<EventsWish, ApiProblem> {
    let mut wish = EventsWish::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "kind" => wish.kinds = value.split(',').map(str::to_owned).collect(),
            "host" => wish.host = Some(value.to_ascii_lowercase()),
            "recent" => {
                let recent = value.parse().ok().filter(|recent| *recent <= MOST_RECENT);
                wish.recent = recent
                    .ok_or_else(|| ApiProblem::bad_request(format!("recent is a number, at most {MOST_RECENT}")))?;
            }
            "after" => {
                let after = value.parse().map_err(|_| ApiProblem::bad_request("after is the number of an event"))?;
                wish.after = Some(after);
            }
            _ => return Err(ApiProblem::bad_request("the known parameters are kind, host, recent and after")),
        }
    }
    Ok(wish)
}

/// A body that is written while it is sent.
#[derive(Debug)]
struct EventFeed(mpsc::Receiver<Bytes>);

impl http_body::Body for EventFeed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_read_and_kept_to() {
        let asked = wish("kind=request,host&host=A.test&recent=9").unwrap();
        assert!(asked.wants("host.held") && asked.wants("request") && !asked.wants("robots.fetched"));
        assert!(wish("").unwrap().wants("status"));
        let event = |host: Option<&str>| Event { id: 1, kind: "request", host: host.map(Box::from), json: "{}".into() };
        assert!(asked.covers(&event(Some("a.test"))) && !asked.covers(&event(None)));
        for query in ["recent=x", "recent=513", "after=x", "kinds=a"] {
            assert!(wish(query).is_err(), "{query}");
        }
        let mut text = String::new();
        write_events(&mut text, &[Arc::new(event(Some("a.test"))), Arc::new(event(None))], 3, &asked);
        assert_eq!(text, "data: {\"count\":3,\"event\":\"lost\",\"host\":null}\n\nid: 1\ndata: {}\n\n");
    }
}
