//! `GET /api/v1/queue?host=&limit=&offset=`: the waiting requests, longest wait first.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::Admin;
use super::hosts::fresh;
use super::problem::ApiProblem;
use super::time::{self, millis, moment};
use crate::gate;
use crate::politeness::HostKey;
use crate::politeness::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueJson {
    /// Number of requests on all pages.
    pub total: usize,
    pub offset: usize,
    pub limit: usize,
    pub waiting: Vec<WaitingJson>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingJson {
    pub host: Option<String>,
    /// The client's name, or its address.
    pub client: Option<String>,
    /// None for curtsy's own requests.
    pub method: Option<String>,
    /// The URL without its query.
    pub url: Option<String>,
    pub since: Option<String>,
    pub waited_ms: u64,
    /// Time until the request can start, as far as can be predicted; none if that depends on an operator.
    pub expected_ms: Option<u64>,
}

const USUAL_PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;

struct QueuePage {
    host: Option<HostKey>,
    offset: usize,
    limit: usize,
}

/// `GET /api/v1/queue`
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiProblem> {
    let QueuePage { host, offset, limit } = page(uri.query().unwrap_or_default())?;
    let (total, waiting) = admin.gate.queue(host.as_ref(), offset, limit);
    let now = time::now();
    let waiting = waiting.into_iter().map(|waiting| WaitingJson::new(waiting, now)).collect();
    Ok(fresh(QueueJson { total, offset, limit, waiting }))
}

impl WaitingJson {
    pub(super) fn new(waiting: gate::Waiting, now: Timestamp) -> WaitingJson {
        let gate::Waiting { host, label, since, expected } = waiting;
        let label = label.filter(|label| !label.method.is_empty());
        let (client, method, url) = match label {
            Some(label) => (Some(label.client), Some(label.method), Some(label.url)),
            None => (None, None, None),
        };
        WaitingJson {
            host: Some(host.to_string()),
            client,
            method,
            url,
            since: moment(since),
            waited_ms: millis(now.since(since)),
            expected_ms: (expected < Timestamp::NEVER).then(|| millis(expected.since(now))),
        }
    }
}

fn page(query: &str) -> Result<QueuePage, ApiProblem> {
    let mut page = QueuePage { host: None, offset: 0, limit: USUAL_PAGE };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let number = || value.parse().map_err(|_| ApiProblem::bad_request(format!("{name} must be a number")));
        match name.as_ref() {
            "host" => page.host = Some(HostKey::parse(&value).map_err(|bad| ApiProblem::bad_request(bad.to_string()))?),
            "offset" => page.offset = number()?,
            "limit" => page.limit = number()?,
            _ => return Err(ApiProblem::bad_request("the known parameters are host, limit and offset")),
        }
    }
    if !(1..=LONGEST_PAGE).contains(&page.limit) {
        return Err(ApiProblem::bad_request(format!("limit is from 1 to {LONGEST_PAGE}")));
    }
    Ok(page)
}
