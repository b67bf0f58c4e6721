//! Asking a running curtsy, once a second and whenever there is a wish, and hearing of requests as they end.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::board::Deed;
use crate::admin::explain::Explanation;
use crate::admin::hosts::{Host, Hosts};
use crate::admin::status::Status;
use crate::cli::admin::{AskArgs, Call, Running, Trouble, segment};
use crate::cli::hosts::Sort;
use crate::cli::status;
use crate::cli::tail::Feed;
use crate::config::Sources;

const PERIOD: Duration = Duration::from_secs(1);
/// More than fit on a screen; a filter finds the others.
const MOST_HOSTS: usize = 200;
/// Requests to begin with.
const RECENT: usize = 200;

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// The host that is shown in full.
    pub(super) chosen: Option<String>,
}

/// What there was to see.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) status: Status,
    pub(super) hosts: Hosts,
    pub(super) chosen: Option<Host>,
}

/// What there is to know.
#[derive(Debug)]
pub(super) enum News {
    Seen(Result<Box<Seen>, String>),
    /// One that is over.
    Request(Value),
    Explained(Box<Explanation>),
    /// What was wished for could not be done.
    Refused(String),
}

/// Tells what there is to see until nobody has wishes any more.
pub(super) fn watch(ask: &AskArgs, sources: &Sources, wishes: &Receiver<Deed>, news: &Sender<News>) {
    let mut look = None;
    loop {
        let told = match wishes.recv_timeout(PERIOD) {
            Ok(Deed::Look(wanted)) => {
                look = Some(wanted);
                None
            }
            Ok(Deed::Pause { host, paused }) => steer(ask, sources, &host, json!({ "paused": paused })),
            Ok(Deed::Delay { host, delay }) => steer(ask, sources, &host, json!({ "delay": delay })),
            Ok(Deed::Explain(url)) => Some(explain(ask, sources, &url)),
            Ok(Deed::Leave) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => None,
        };
        let seen = look.as_ref().map(|look| see(ask, sources, look).map(Box::new).map_err(|trouble| trouble.text));
        // Whoever does not listen any more is about to leave.
        for told in told.into_iter().chain(seen.map(News::Seen)) {
            let _ = news.send(told);
        }
    }
}

/// Tells of requests until nobody listens. A curtsy that went away is tried again.
pub(super) fn listen(ask: &AskArgs, sources: &Sources, news: &Sender<News>) {
    let (mut last, query) = (None, format!("kind=request&recent={RECENT}"));
    loop {
        if let Ok(mut feed) = Running::find(ask, sources).and_then(|running| Feed::open(&running, &query, last)) {
            while let Some(event) = feed.next() {
                if event["event"] == "request" && news.send(News::Request(event)).is_err() {
                    return;
                }
            }
            last = feed.last();
        }
        thread::sleep(PERIOD);
    }
}

/// Changes something about a host; told only if it cannot be.
fn steer(ask: &AskArgs, sources: &Sources, host: &str, body: Value) -> Option<News> {
    let call = Call { method: "PATCH", path: path(host), body: Some(body) };
    let called = Running::find(ask, sources).and_then(|running| running.call(&call));
    called.err().map(|trouble| News::Refused(trouble.text))
}

fn explain(ask: &AskArgs, sources: &Sources, url: &str) -> News {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("url", url);
    match get(ask, sources, format!("/api/v1/explain?{}", query.finish())) {
        Ok(explained) => News::Explained(Box::new(explained)),
        Err(trouble) => News::Refused(trouble.text),
    }
}

pub(super) fn see(ask: &AskArgs, sources: &Sources, look: &Look) -> Result<Seen, Trouble> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("sort", look.sort.word()).append_pair("filter", &look.filter);
    query.append_pair("limit", &MOST_HOSTS.to_string());
    if look.reverse {
        query.append_pair("order", "reverse");
    }
    // A host that is forgotten meanwhile is no trouble.
    let chosen = look.chosen.as_ref().and_then(|host| get(ask, sources, path(host)).ok());
    Ok(Seen {
        status: get(ask, sources, status::PATH.to_owned())?,
        hosts: get(ask, sources, format!("/api/v1/hosts?{}", query.finish()))?,
        chosen,
    })
}

fn get<T: DeserializeOwned>(ask: &AskArgs, sources: &Sources, path: String) -> Result<T, Trouble> {
    let told = Running::find(ask, sources)?.call(&Call::get(path))?;
    serde_json::from_value(told).map_err(|error| Trouble::failure(format!("that is no curtsy we know: {error}")))
}

fn path(host: &str) -> String {
    format!("/api/v1/hosts/{}", segment(host))
}
