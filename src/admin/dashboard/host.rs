//! The page of one host: the parts of its delay, the waiting requests, and the controls.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::fleet::of_host;
use super::framed;
use super::html::{Html, fill, span, until};
use super::overview::why_in_words;
use crate::admin::Admin;
use crate::admin::hosts::{HostJson, budget, in_full};
use crate::admin::queue::WaitingJson;
use crate::admin::{segment, time};
use crate::cache::disk::Purge;
use crate::politeness::HostKey;

const PAGE: &str = include_str!("web/host.html");
const UNKNOWN: &str = include_str!("web/unknown.html");
/// Waiting requests shown. The API returns all of them.
const SHOWN: usize = 20;

/// `GET /hosts/{host}`
pub(in crate::admin) async fn host(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Response {
    let known = match budget(&admin, &name).await {
        Ok(host) => in_full(&admin, &host, &name).await.map(|known| (known, host)),
        Err(_) => None,
    };
    let Some((host, key)) = known else {
        let content = fill(UNKNOWN, &[("host", Html::text(&name))]);
        return framed(&admin, StatusCode::NOT_FOUND, "unknown", Html::text(&name), content);
    };
    let mut pieces = pieces(&admin, &host, &key);
    pieces.push(("stored", stored(&admin, &key).await));
    let content = fill(PAGE, &pieces);
    framed(&admin, StatusCode::OK, "host", Html::text(&host.host), content)
}

fn pieces(admin: &Admin, host: &HostJson, key: &HostKey) -> Vec<(&'static str, Html)> {
    let floor = host.floor_ms.map_or(Html::raw("–"), |ms| Html::text(&span(ms)));
    vec![
        ("host", Html::text(&host.host)),
        ("path", Html::text(&segment(&host.host))),
        ("state", Html::text(&host.state)),
        ("mode", Html::text(&host.mode)),
        ("alone", Html::raw(if host.fleet.is_some() { "" } else { " hidden" })),
        ("fleet", Html::text(&of_host(host.fleet.as_ref()))),
        ("delay", Html::text(&span(host.delay_ms))),
        ("parts", parts(host)),
        ("tunnels", tunnels(admin, key)),
        ("waits", Html::text(&waits(host))),
        ("last", last(host)),
        ("tunnelled", tunnelled(host)),
        ("next", until(host.next_available_s)),
        ("held", host.held_s.map_or(Html::raw("no"), |held| until(Some(held)))),
        ("cause", host.hold_cause.as_deref().map_or(Html::default(), |cause| Html::text(why_in_words(cause)))),
        ("queued", Html::number(host.queued as u64)),
        ("in_flight", Html::number(host.in_flight as u64)),
        ("concurrency", Html::number(host.concurrency.effective as u64)),
        ("burst", Html::number(host.burst)),
        ("burst_left", Html::number(host.burst_left)),
        ("floor", floor),
        ("limit", host.limit.as_ref().map_or(Html::raw("not measured"), |limit| Html::text(&limit.text()))),
        ("errors", Html::number(host.error_streak)),
        ("successes", Html::number(host.success_streak)),
        ("breaker", Html::text(&breaker(host))),
        ("visits", Html::number(host.visits)),
        ("waiting", waiting(admin, key)),
        ("saved", host.saved.map_or(Html::raw("nothing"), |saved| Html::text(&saved.text()))),
    ]
}

/// Says how many answers of the host are stored, and how often they were used.
async fn stored(admin: &Admin, host: &HostKey) -> Html {
    let answers = admin.desk.shared().cache.list(&Purge::Host(host.to_string()), false).await;
    let parts = [
        ("count", Html::number(answers.len() as u64)),
        ("hits", Html::number(answers.iter().map(|answer| answer.hits).sum::<u64>())),
    ];
    fill("{{count}}, used {{hits}} times", &parts)
}

/// Says what requests wait for; the same as in `web/host.js`.
fn waits(host: &HostJson) -> String {
    match (host.state.as_str(), &host.last.last_error, host.queued) {
        ("unreachable", Some(error), _) => {
            format!("The host cannot be reached: {error}. Requests are refused until it is tried again.")
        }
        ("broken", ..) => "The last requests all failed. Requests are refused until one is tried again.".to_owned(),
        ("paused", ..) => "The host is paused. It gets no requests until it is resumed.".to_owned(),
        (_, _, 0) => "No request waits.".to_owned(),
        (_, _, 1) => format!("1 request waits because of: {}.", why_in_words(&host.why)),
        (_, _, queued) => format!("{queued} requests wait because of: {}.", why_in_words(&host.why)),
    }
}

fn last(host: &HostJson) -> Html {
    match (&host.last.last_error, host.last.last_status) {
        (Some(error), _) => Html::text(error),
        (None, Some(status)) => Html::number(status),
        (None, None) => Html::raw("–"),
    }
}

fn tunnelled(host: &HostJson) -> Html {
    match host.last.tunnelled {
        0 => Html::default(),
        count => fill("{{count}} in tunnels: only paced", &[("count", Html::number(count))]),
    }
}

/// Returns "closed", or the origins whose breaker is not.
fn breaker(host: &HostJson) -> String {
    let open = host.breaker.origins.iter().filter(|origin| origin.state != "closed");
    let open: Vec<String> = open.map(|origin| format!("{}: {}", origin.origin, origin.state)).collect();
    if open.is_empty() { host.breaker.state.clone() } else { open.join(", ") }
}

/// Shows the tunnels whose requests could not be paced one by one, which the numbers do not show.
fn tunnels(admin: &Admin, host: &HostKey) -> Html {
    let Some((reason, count)) = admin.desk.unpaced_tunnels(host) else { return Html::default() };
    let words = [("count", Html::number(count)), ("reason", Html::text(reason_in_words(reason)))];
    fill(
        "<p class=\"notice\">Of the tunnels in the last hour, {{count}} took one turn, however many requests were inside: \
         {{reason}}. With interception every request waits its turn.</p>\n",
        &words,
    )
}

fn reason_in_words(reason: &str) -> &'static str {
    match reason {
        "http2" => "they speak HTTP/2",
        "websocket" => "they look like WebSocket",
        "off" => "tls.tunnel.pace_requests is off",
        _ => "they speak something that is not HTTP over TLS",
    }
}

/// Returns "configured 1 s · robots.txt 10 s ◀ · learned 0 s", with the largest part marked.
fn parts(host: &HostJson) -> Html {
    let delay = &host.delay;
    let all = [
        ("configured", delay.configured_ms),
        ("robots", delay.robots_ms),
        ("learned", delay.learned_ms),
        ("response-time", delay.response_ms),
    ];
    let part = |(why, ms): (&'static str, u64)| {
        let counts = Html::raw(if why == delay.why { "is-largest" } else { "" });
        let words = [
            ("counts", counts),
            ("why", Html::text(why_in_words(why))),
            ("time", if ms > 0 { Html::text(&span(ms)) } else { Html::raw("–") }),
        ];
        fill("<li class=\"{{counts}}\"><span>{{why}}</span> <b>{{time}}</b></li>", &words)
    };
    all.into_iter().filter(|(why, ms)| *ms > 0 || *why != "response-time").map(part).collect()
}

fn waiting(admin: &Admin, host: &HostKey) -> Html {
    let now = time::now();
    let (_, waiting) = admin.gate.queue(Some(host), 0, SHOWN);
    let row = |waiting: WaitingJson| {
        let expected = waiting.expected_ms.map_or(Html::raw("–"), |ms| Html::text(&span(ms)));
        let word = |word: &Option<String>| Html::text(word.as_deref().unwrap_or("curtsy"));
        let pieces = [
            ("client", word(&waiting.client)),
            ("method", Html::text(waiting.method.as_deref().unwrap_or_default())),
            ("url", Html::text(waiting.url.as_deref().unwrap_or("robots.txt"))),
            ("waited", Html::text(&span(waiting.waited_ms))),
            ("expected", expected),
        ];
        fill(
            "<tr><td>{{client}}</td><td class=\"url\">{{method}} {{url}}</td><td class=\"num\">{{waited}}</td>\
             <td class=\"num\">{{expected}}</td></tr>",
            &pieces,
        )
    };
    waiting.into_iter().map(|waiting| row(WaitingJson::new(waiting, now))).collect()
}
