//! The first page: the present state, the hosts, the events. If there is nothing to show yet, how to set up a client.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{HOST, HeaderMap};
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use super::html::{Html, fill, span, until};
use super::{field, framed};
use crate::admin::Admin;
use crate::admin::hosts::{self, HostRow};
use crate::admin::status::{Notice, Status, TrafficJson};
use crate::admin::{segment, time};
use crate::gate::{HostsPage, Listing};
use crate::politeness::lane::Condition;

const PAGE: &str = include_str!("web/overview.html");
const ROW: &str = include_str!("web/row.html");
const SETUP: &str = include_str!("web/setup.html");
/// Rows on a page that is shown without scripts.
const ROWS: usize = 100;

/// `GET /`
pub(in crate::admin) async fn overview(State(admin): State<Arc<Admin>>, uri: Uri, headers: HeaderMap) -> Response {
    let status = Status::of(&admin);
    let page = wanted(&uri);
    let listing = admin.gate.list(&page);
    let content = fill(
        PAGE,
        &[
            ("name", Html::text(&status.name)),
            ("state", Html::text(&status.state)),
            ("uptime", Html::text(&span((status.uptime_s * 1e3) as u64))),
            ("mode", Html::text(&status.mode)),
            ("requests", Html::number(status.requests.total)),
            ("waiting", Html::number(status.waiting as u64)),
            ("wait", status.wait_p90_ms.map_or(Html::raw("–"), |ms| Html::text(&span(ms)))),
            ("abandoned", Html::number(status.requests.abandoned)),
            ("denied", Html::number(status.requests.denied)),
            ("not_sent", Html::number(status.requests.cached)),
            ("traffic", traffic(&status.traffic)),
            ("notices", notices(&status)),
            ("filter", Html::text(&page.filter)),
            ("states", states(page.condition)),
            ("sort", Html::text(&field(&uri, "sort").unwrap_or_default())),
            ("rows", rows(&admin, &listing)),
            ("total", Html::number(listing.total as u64)),
            ("pages", pages(&uri, &page, listing.total)),
            ("setup", setup(&status, &headers)),
            ("fleet", fleet(&admin)),
            ("fresh", Html::raw(if status.hosts.known == 0 { "is-fresh" } else { "" })),
        ],
    );
    framed(&admin, StatusCode::OK, "overview", Html::raw("curtsy"), content)
}

/// Reads which hosts are wanted, from the fields of the form and the links in the head of the table. By default the
/// busiest come first.
fn wanted(uri: &Uri) -> HostsPage {
    let mut query = url::form_urlencoded::Serializer::new("sort=queued".to_owned());
    for name in ["sort", "order", "state", "filter", "offset"] {
        if let Some(value) = field(uri, name).filter(|value| !value.is_empty()) {
            query.append_pair(name, &value);
        }
    }
    HostsPage { limit: ROWS, ..hosts::page(&query.finish()).map(|asked| asked.page).unwrap_or_default() }
}

/// Says from where the turns come, in a fleet; the same as in `web/overview.js`.
fn fleet(admin: &Admin) -> Html {
    match hosts::source(admin).as_deref() {
        None => Html::default(),
        Some(from) => {
            let words =
                if from == "redis" { "turns from Redis, counts of this node" } else { "turns of this node alone" };
            let link = " <a class=\"count\" id=\"turns\" href=\"/fleet\">{{words}}</a>";
            fill(link, &[("words", Html::raw(words))])
        }
    }
}

/// Says how polite the traffic was; the same as in `web/overview.js`.
fn traffic(traffic: &TrafficJson) -> Html {
    let parts = [
        ("full", Html::number(traffic.full)),
        ("paced", Html::number(traffic.paced_only)),
        ("unpaced", Html::number(traffic.unpaced_tunnels)),
    ];
    fill("{{full}} requests fully polite, {{paced}} in tunnels only paced, {{unpaced}} tunnels not paced", &parts)
}

/// Shows what an operator should know before anything else.
fn notices(status: &Status) -> Html {
    let notice = |notice: &Notice| {
        let parts = [("level", Html::text(&notice.level)), ("text", Html::text(&notice.text))];
        fill("<p class=\"notice is-{{level}}\">{{text}}</p>\n", &parts)
    };
    status.notices.iter().map(notice).collect()
}

fn states(chosen: Option<Condition>) -> Html {
    let option = |condition: Condition| {
        let word = Html::raw(condition.word());
        let mark = Html::raw(if chosen == Some(condition) { " selected" } else { "" });
        fill("<option{{mark}}>{{word}}</option>", &[("mark", mark), ("word", word)])
    };
    Condition::ALL.into_iter().map(option).collect()
}

fn rows(admin: &Admin, listing: &Listing) -> Html {
    let now = time::now();
    listing.hosts.iter().map(|(host, view)| row(&hosts::row(admin, host, view, now))).collect()
}

fn row(row: &HostRow) -> Html {
    let (why, mark) = notable(row);
    fill(
        ROW,
        &[
            ("quiet", Html::raw(if row.state == Condition::Idle.word() { "is-quiet" } else { "" })),
            ("path", Html::text(&segment(&row.host))),
            ("host", Html::text(&row.host)),
            ("state", Html::text(&row.state)),
            ("delay", Html::text(&span(row.delay_ms))),
            ("why", Html::text(why)),
            ("mark", Html::raw(mark)),
            ("last", row.last.last_status.map_or(Html::raw("–"), Html::number)),
            ("queued", Html::number(row.queued as u64)),
            ("in_flight", Html::number(row.in_flight as u64)),
            ("next", until(row.next_available_s)),
            ("visits", Html::number(row.visits)),
        ],
    )
}

/// Returns what a reader should know first about a host, and the class that marks it; the same as in `web/format.js`.
fn notable(row: &HostRow) -> (&str, &'static str) {
    match (&row.last.last_error, &row.hold_cause, row.unpaced_tunnels) {
        (Some(error), ..) => (error, "is-bad"),
        (None, ..) if row.state == Condition::Broken.word() => ("breaker open", "is-bad"),
        (None, Some(cause), _) => (why_in_words(cause), ""),
        (None, None, Some(_)) => ("tunnels not paced", "is-warning"),
        (None, None, None) => (why_in_words(&row.why), ""),
    }
}

/// The same as in `web/format.js`.
pub(super) fn why_in_words(why: &str) -> &str {
    match why {
        "robots" => "robots.txt",
        "response-time" => "response time",
        "retry-after" => "Retry-After",
        other => other,
    }
}

/// Returns the links to the other pages, without scripts.
fn pages(uri: &Uri, page: &HostsPage, total: usize) -> Html {
    let link = |offset: usize, text: &'static str| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for name in ["sort", "order", "state", "filter"] {
            if let Some(value) = field(uri, name).filter(|value| !value.is_empty()) {
                query.append_pair(name, &value);
            }
        }
        query.append_pair("offset", &offset.to_string());
        let parts = [("query", Html::text(&query.finish())), ("text", Html::raw(text))];
        fill("<a href=\"/?{{query}}\">{{text}}</a> ", &parts)
    };
    let before = (page.offset > 0).then(|| link(page.offset.saturating_sub(ROWS), "earlier rows"));
    let after = (page.offset + ROWS < total).then(|| link(page.offset + ROWS, "more rows"));
    before.into_iter().chain(after).collect()
}

/// Shows how to configure clients.
fn setup(status: &Status, headers: &HeaderMap) -> Html {
    fill(SETUP, &[("proxy", Html::text(&proxy_address(status, headers)))])
}

/// Returns where clients connect, as seen from the browser.
fn proxy_address(status: &Status, headers: &HeaderMap) -> String {
    let listen = status.listen.first().map_or("127.0.0.1:3128", String::as_str);
    let port = listen.rsplit(':').next().unwrap_or("3128");
    let is_everywhere = listen.starts_with("0.0.0.0:") || listen.starts_with("[::]:");
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(|host| host.rsplit_once(':'));
    match host {
        Some((name, _)) if is_everywhere => format!("{name}:{port}"),
        _ => listen.to_owned(),
    }
}
