//! Asking a running curtsy, once a second and whenever there is a wish.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::json;
use url::form_urlencoded;

use super::board::Deed;
use crate::admin::hosts::{Host, Hosts};
use crate::admin::status::Status;
use crate::cli::admin::{AskArgs, Call, Running, Trouble, segment};
use crate::cli::hosts::Sort;
use crate::cli::status;
use crate::config::Sources;

const PERIOD: Duration = Duration::from_secs(1);
/// More than fit on a screen; a filter finds the others.
const MOST_HOSTS: usize = 200;

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

/// Tells what there is to see until nobody has wishes any more.
pub(super) fn watch(ask: &AskArgs, sources: &Sources, wishes: &Receiver<Deed>, news: &Sender<Result<Seen, String>>) {
    let mut look = None;
    loop {
        match wishes.recv_timeout(PERIOD) {
            Ok(Deed::Look(wanted)) => look = Some(wanted),
            Ok(Deed::Pause { host, paused }) => {
                let body = Some(json!({ "paused": paused }));
                let call = Call { method: "PATCH", path: path(&host), body };
                if let Err(trouble) = Running::find(ask, sources).and_then(|running| running.call(&call)) {
                    let _ = news.send(Err(trouble.text));
                    continue;
                }
            }
            Ok(Deed::Leave) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(look) = &look {
            // Whoever does not listen any more is about to leave.
            let _ = news.send(see(ask, sources, look).map_err(|trouble| trouble.text));
        }
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
