//! `/api/v1/hosts`: what is known about every host, and the calls that change one.
//!
//! Fields are a public interface: add, never rename. A call that is not understood changes nothing.

mod fleet;
mod saved;
mod shape;
mod steer;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use url::form_urlencoded;

use super::problem::ApiProblem;
use super::{Admin, time};
use crate::gate::{HostsPage, Listing, Sort};
use crate::politeness::HostKey;
use crate::politeness::lane::{Condition, View};
use crate::politeness::time::Timestamp;

pub(super) use self::fleet::source;
pub use self::saved::{SavedJson, size};
pub use self::shape::{
    BreakerJson, Concurrency, DelayJson, ForgottenJson, HoldJson, HostFleet, HostJson, HostRow, HostsJson, LastReply,
    LimitJson, OverridesJson, TimelineJson, UnpacedTunnels,
};
pub(super) use self::steer::{forget, steer};

/// Rows on a page by default, and at most.
const USUAL_PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;

/// `GET /api/v1/hosts?sort=&order=&state=&filter=&limit=&offset=`
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiProblem> {
    let RequestedHost { page, remembered } = page(uri.query().unwrap_or_default())?;
    let (listing, now) = match remembered {
        false => (admin.gate.list(&page), time::now()),
        true => (list_remembered(&admin, page.clone()).await?, time::now()),
    };
    let hosts = listing.hosts.iter().map(|(host, view)| row(&admin, host, view, now)).collect();
    Ok(fresh(HostsJson { total: listing.total, offset: page.offset, limit: page.limit, hosts, fleet: source(&admin) }))
}

/// Reads the state file, which takes a while if it is large.
async fn list_remembered(admin: &Admin, page: HostsPage) -> Result<Listing, ApiProblem> {
    let gate = admin.gate.clone();
    let listed = tokio::task::spawn_blocking(move || gate.list_remembered(&page)).await;
    let listed = listed.map_err(|error| error.to_string()).and_then(|listed| listed.map_err(|error| error.to_string()));
    listed.map_err(|detail| ApiProblem { status: StatusCode::CONFLICT, title: "Nothing kept", detail })
}

/// `GET /api/v1/hosts/{host}`
pub(super) async fn show(State(admin): State<Arc<Admin>>, Path(asked): Path<String>) -> Result<Response, ApiProblem> {
    let host = budget(&admin, &asked).await?;
    Ok(fresh(in_full(&admin, &host, &asked).await.ok_or_else(|| unknown(&host))?))
}

/// Returns a host in short, with what other parts than its lane know.
pub(super) fn row(admin: &Admin, host: &HostKey, view: &View, now: Timestamp) -> HostRow {
    let unpaced_tunnels = admin.desk.unpaced_tunnels(host).map(|(_, count)| count);
    HostRow { unpaced_tunnels, ..HostRow::new(host, view, now) }
}

/// Returns a host in full, with what other parts than its lane know; None if nothing is known. `asked` is the name by
/// which the host is meant.
pub(super) async fn in_full(admin: &Admin, host: &HostKey, asked: &str) -> Option<HostJson> {
    let asked = HostKey::parse(asked).unwrap_or_else(|_| host.clone());
    let view = admin.desk.view(host, &asked).await?;
    let unpaced_tunnels = admin.desk.unpaced_tunnels(host).map(UnpacedTunnels::new);
    let (fleet, saved) = (fleet::of_host(admin, host).await, SavedJson::new(admin.metrics.saved_at(host)));
    let now = time::now();
    let timeline = Some(TimelineJson::new(&admin.gate.timeline(host), now));
    Some(HostJson { unpaced_tunnels, timeline, fleet, saved, ..HostJson::new(host, &view, now) })
}

/// Returns the host whose budget visits to this one use: depending on `politeness.key` it has another name.
pub(super) async fn budget(admin: &Admin, host: &str) -> Result<HostKey, ApiProblem> {
    let host = HostKey::parse(host).map_err(|bad| ApiProblem::bad_request(bad.to_string()))?;
    admin.desk.budget(&host).await.ok_or_else(|| {
        ApiProblem::bad_request(format!("hosts are paced by address (politeness.key), and there is none for {host}"))
    })
}

pub(super) fn unknown(host: &HostKey) -> ApiProblem {
    let detail = format!("{host} has not been visited lately, and nothing is remembered of it");
    ApiProblem { status: StatusCode::NOT_FOUND, title: "Unknown host", detail }
}

pub(super) fn fresh(answer: impl serde::Serialize) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

/// What a list must show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestedHost {
    pub(super) page: HostsPage,
    /// The hosts in the state file instead of those visited lately.
    remembered: bool,
}

pub(super) fn page(query: &str) -> Result<RequestedHost, ApiProblem> {
    let mut remembered = false;
    let mut page = HostsPage { limit: USUAL_PAGE, ..HostsPage::default() };
    let number = |name: &str, text: &str| {
        text.parse::<usize>().map_err(|_| ApiProblem::bad_request(format!("{name} must be a number")))
    };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "sort" => page.sort = sort(&value)?,
            "order" => page.reverse = reverse(&value)?,
            "state" => page.condition = Some(condition(&value)?),
            "filter" => page.filter = value.to_ascii_lowercase(),
            "offset" => page.offset = number("offset", &value)?,
            "limit" => page.limit = number("limit", &value)?,
            "remembered" => remembered = flag(&value)?,
            _ => {
                return Err(ApiProblem::bad_request(
                    "the known parameters are sort, order, state, filter, limit, offset and remembered",
                ));
            }
        }
    }
    if !(1..=LONGEST_PAGE).contains(&page.limit) {
        return Err(ApiProblem::bad_request(format!("limit is from 1 to {LONGEST_PAGE}")));
    }
    if remembered && (page.reverse || page.condition.is_some()) {
        return Err(ApiProblem::bad_request("order and state go with hosts in memory, not with remembered=true"));
    }
    Ok(RequestedHost { page, remembered })
}

fn flag(text: &str) -> Result<bool, ApiProblem> {
    text.parse().map_err(|_| ApiProblem::bad_request("remembered is true or false"))
}

fn reverse(order: &str) -> Result<bool, ApiProblem> {
    match order {
        "usual" => Ok(false),
        "reverse" => Ok(true),
        _ => Err(ApiProblem::bad_request("order is usual or reverse")),
    }
}

fn condition(word: &str) -> Result<Condition, ApiProblem> {
    let known = Condition::ALL.into_iter().find(|condition| condition.word() == word);
    known.ok_or_else(|| ApiProblem::bad_request("state is paused, broken, held, unreachable, waiting, active or idle"))
}

fn sort(name: &str) -> Result<Sort, ApiProblem> {
    let known = Sort::deserialize(name.into_deserializer());
    known.map_err(|_: ValueError| ApiProblem::bad_request("sort is host, queued, in_flight, delay, wait or last_sent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_from_the_query() {
        let asked = page("sort=delay&order=reverse&state=held&filter=Example.&limit=7&offset=14").unwrap();
        let expected = HostsPage {
            sort: Sort::Delay,
            reverse: true,
            condition: Some(Condition::Held),
            filter: "example.".into(),
            offset: 14,
            limit: 7,
        };
        assert_eq!(asked, RequestedHost { page: expected, remembered: false });
        assert!(page("remembered=true&sort=delay").unwrap().remembered);
        assert_eq!(page("").unwrap().page.limit, USUAL_PAGE);
        for query in [
            "sort=size",
            "limit=0",
            "limit=1001",
            "limit=-1",
            "offset=x",
            "page=2",
            "order=up",
            "state=well",
            "remembered=1",
            "remembered=true&state=held",
        ] {
            assert!(page(query).is_err(), "{query}");
        }
    }
}
