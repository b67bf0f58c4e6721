//! Asks a running curtsy, once a second and after each action of the user, and receives requests as they end.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::admin::explain::Explanation;
use crate::admin::hosts::{HostJson, HostsJson};
use crate::admin::queue::{QueueJson, WaitingJson};
use crate::admin::status::Status;
use crate::cli::admin::{AdminTrouble, AskArgs, Call, RunningCurtsy, segment};
use crate::cli::hosts::SortArg;
use crate::cli::status;
use crate::cli::tail::Feed;
use crate::config::Sources;

const PERIOD: Duration = Duration::from_secs(1);
/// How many hosts are fetched: more than fit on a screen; a filter finds the others.
const MOST_HOSTS: usize = 200;
/// Waiting requests of the chosen host that are fetched.
const MOST_WAITING: usize = 8;
/// How many past requests are fetched at the start.
const RECENT: usize = 200;

/// What the screen should show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopLook {
    pub(super) sort: SortArg,
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// The host that is shown in full.
    pub(super) chosen: Option<String>,
}

/// The action of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopAction {
    Leave,
    Look(TopLook),
    Pause {
        host: String,
        paused: bool,
    },
    /// `None` resets the delay.
    Delay {
        host: String,
        delay: Option<String>,
    },
    Explain(String),
}

/// The answers of the running curtsy.
#[derive(Clone, Debug)]
pub(super) struct TopSeen {
    pub(super) status: Status,
    pub(super) hosts: HostsJson,
    pub(super) chosen: Option<HostJson>,
    /// Requests that wait for the chosen host.
    pub(super) queue: Vec<WaitingJson>,
}

/// A message to the thread that draws.
#[derive(Debug)]
pub(super) enum News {
    Seen(Result<Box<TopSeen>, String>),
    /// A request that has ended.
    Request(Value),
    Explained(Box<Explanation>),
    /// An action of the user failed.
    Refused(String),
}

/// Sends the state of the running curtsy until the sender of `wishes` is dropped.
pub(super) fn watch(ask: &AskArgs, sources: &Sources, wishes: &Receiver<TopAction>, news: &Sender<News>) {
    let mut look = None;
    loop {
        let told = match wishes.recv_timeout(PERIOD) {
            Ok(TopAction::Look(wanted)) => {
                look = Some(wanted);
                None
            }
            Ok(TopAction::Pause { host, paused }) => steer(ask, sources, &host, json!({ "paused": paused })),
            Ok(TopAction::Delay { host, delay }) => steer(ask, sources, &host, json!({ "delay": delay })),
            Ok(TopAction::Explain(url)) => Some(explain(ask, sources, &url)),
            Ok(TopAction::Leave) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => None,
        };
        let seen = look.as_ref().map(|look| see(ask, sources, look).map(Box::new).map_err(|trouble| trouble.text));
        // Sending fails only if the drawing thread is about to end.
        for told in told.into_iter().chain(seen.map(News::Seen)) {
            let _ = news.send(told);
        }
    }
}

/// Sends requests as they end, until the receiver of `news` is dropped. Reconnects if curtsy disconnects.
pub(super) fn listen(ask: &AskArgs, sources: &Sources, news: &Sender<News>) {
    let (mut last, query) = (None, format!("kind=request&recent={RECENT}"));
    loop {
        if let Ok(mut feed) = RunningCurtsy::find(ask, sources).and_then(|running| Feed::open(&running, &query, last)) {
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

/// Changes a setting of a host. Returns news only if the change fails.
fn steer(ask: &AskArgs, sources: &Sources, host: &str, body: Value) -> Option<News> {
    let call = Call { method: "PATCH", path: path(host), body: Some(body) };
    let called = RunningCurtsy::find(ask, sources).and_then(|running| running.call(&call));
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

pub(super) fn see(ask: &AskArgs, sources: &Sources, look: &TopLook) -> Result<TopSeen, AdminTrouble> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("sort", &look.sort.word()).append_pair("filter", &look.filter);
    query.append_pair("limit", &MOST_HOSTS.to_string());
    if look.reverse {
        query.append_pair("order", "reverse");
    }
    // It is no error if the host was forgotten meanwhile.
    let chosen: Option<HostJson> = look.chosen.as_ref().and_then(|host| get(ask, sources, path(host)).ok());
    let queued = chosen.as_ref().filter(|host| host.queued > 0);
    let queue = queued.and_then(|host| get(ask, sources, queue_of(&host.host)).ok());
    Ok(TopSeen {
        status: get(ask, sources, status::PATH.to_owned())?,
        hosts: get(ask, sources, format!("/api/v1/hosts?{}", query.finish()))?,
        chosen,
        queue: queue.map_or_else(Vec::new, |queue: QueueJson| queue.waiting),
    })
}

fn get<T: DeserializeOwned>(ask: &AskArgs, sources: &Sources, path: String) -> Result<T, AdminTrouble> {
    let told = RunningCurtsy::find(ask, sources)?.call(&Call::get(path))?;
    serde_json::from_value(told)
        .map_err(|error| AdminTrouble::failure(format!("that is not a known version of curtsy: {error}")))
}

fn queue_of(host: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("host", host).append_pair("limit", &MOST_WAITING.to_string());
    format!("/api/v1/queue?{}", query.finish())
}

fn path(host: &str) -> String {
    format!("/api/v1/hosts/{}", segment(host))
}
