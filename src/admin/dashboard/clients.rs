//! The page of clients: what each asked for, and which of them fail or are stopped.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::framed;
use super::html::{Html, fill, span};
use crate::admin::clients::{BusyHost, ClientJson, ClientUsage, Clients};
use crate::admin::{Admin, segment};

const PAGE: &str = include_str!("web/clients.html");
const ROW: &str = include_str!("web/client.html");
/// Rows of each table. The API returns all of them.
const ROWS: usize = 100;
/// Seconds after which a client without waiting requests is shown as quiet.
const QUIET: f64 = 60.0;

/// `GET /clients`
pub(in crate::admin) async fn clients(State(admin): State<Arc<Admin>>) -> Response {
    let told = Clients::of(&admin);
    let users = told.users();
    let total = users.len();
    let nothing = Html::raw(if total == 0 { "" } else { " hidden" });
    let content = fill(
        PAGE,
        &[
            ("total", Html::number(total as u64)),
            ("rows", users.iter().take(ROWS).map(|(client, usage)| row(client, usage)).collect()),
            (
                "nothing",
                fill(
                    "<p class=\"nothing\" id=\"nothing\"{{hidden}}>No client has sent a request yet.</p>\n",
                    &[("hidden", nothing)],
                ),
            ),
            ("more", more(total)),
            ("failing", failing(&told)),
        ],
    );
    framed(&admin, StatusCode::OK, "clients", Html::raw("Clients of curtsy"), content)
}

fn row(client: &ClientJson, usage: &ClientUsage) -> Html {
    let is_quiet = usage.waiting == 0 && usage.idle_s >= QUIET;
    let or_dash = |ms: u64| if ms == 0 { Html::raw("–") } else { Html::text(&span(ms)) };
    let refusals: Vec<String> = usage.refusals.iter().map(|(code, count)| format!("{count} {code}")).collect();
    let stopped = if client.stopped.is_some() { " <span class=\"state is-paused\">stopped</span>" } else { "" };
    fill(
        ROW,
        &[
            ("quiet", Html::raw(if is_quiet { "is-quiet" } else { "" })),
            ("client", Html::text(&title(client))),
            ("stopped", Html::raw(stopped)),
            ("programs", Html::text(&usage.programs.join(", "))),
            ("requests", Html::number(usage.requests)),
            ("waiting", Html::number(usage.waiting as u64)),
            ("waited", or_dash(usage.wait_ms)),
            ("longest", or_dash(usage.longest_wait_ms)),
            ("failed", Html::number(usage.failed)),
            ("gave_up", Html::number(usage.gave_up)),
            ("refusals", if refusals.is_empty() { Html::raw("0") } else { Html::text(&refusals.join(", ")) }),
            ("hosts", hosts(usage)),
            ("seen", Html::text(&span((usage.idle_s * 1e3) as u64))),
        ],
    )
}

/// Returns the number of hosts, and links to the busiest.
fn hosts(usage: &ClientUsage) -> Html {
    let link = |busy: &BusyHost| {
        let parts = [
            ("path", Html::text(&segment(&busy.host))),
            ("host", Html::text(&busy.host)),
            ("requests", Html::number(busy.requests)),
        ];
        fill(" <a href=\"/hosts/{{path}}\">{{host}}</a> {{requests}}", &parts)
    };
    [Html::number(usage.hosts), Html::raw(":")].into_iter().chain(usage.busiest.iter().map(link)).collect()
}

fn more(total: usize) -> Html {
    let hidden = Html::raw(if total > ROWS { "" } else { " hidden" });
    let parts = [("hidden", hidden), ("rows", Html::number(ROWS as u64))];
    fill(
        "<p class=\"pages\" id=\"more\"{{hidden}}>The {{rows}} busiest are shown; \
         <a href=\"/api/v1/clients\">the API</a> lists all of them.</p>\n",
        &parts,
    )
}

/// Shows the named clients that fail or are stopped.
fn failing(told: &Clients) -> Html {
    let failing: Vec<&ClientJson> = told.failing().take(ROWS).collect();
    let parts = [
        ("hidden", Html::raw(if failing.is_empty() { " hidden" } else { "" })),
        ("rows", failing.into_iter().map(failing_row).collect()),
    ];
    fill(
        "<section class=\"hosts failing\" id=\"failing\" aria-labelledby=\"failing-title\"{{hidden}}>\
         <div class=\"bar\"><h2 id=\"failing-title\">Failing or stopped</h2></div>\
         <table class=\"list\"><thead><tr><th scope=\"col\" class=\"c-client\">Client</th>\
         <th scope=\"col\" class=\"c-visits num\">Failures</th><th scope=\"col\" class=\"c-left num\">Stopped for</th>\
         <th scope=\"col\" class=\"c-reason\">Why</th><th scope=\"col\" class=\"c-action\"></th></tr></thead>\
         <tbody>{{rows}}</tbody></table></section>\n",
        &parts,
    )
}

fn failing_row(client: &ClientJson) -> Html {
    let left = match &client.stopped {
        None => Html::raw("–"),
        Some(stopped) => stopped.left_s.map_or(Html::raw("ever"), |left| Html::text(&span((left * 1e3) as u64))),
    };
    let button = match &client.stopped {
        None => Html::default(),
        Some(_) => fill(
            "<button type=\"button\" class=\"needs-script\" data-resume=\"{{name}}\">Resume</button>",
            &[("name", Html::text(&client.name))],
        ),
    };
    let parts = [
        ("client", Html::text(&title(client))),
        ("failures", Html::number(client.failures)),
        ("left", left),
        ("why", Html::text(client.stopped.as_ref().map_or("", |stopped| &stopped.reason))),
        ("button", button),
    ];
    fill(
        "<tr><th scope=\"row\" class=\"c-client\">{{client}}</th><td class=\"c-visits num\">{{failures}}</td>\
         <td class=\"c-left num\">{{left}}</td><td class=\"c-reason\" title=\"{{why}}\">{{why}}</td><td class=\"c-action\">{{button}}</td></tr>",
        &parts,
    )
}

/// Returns `spider`, `spider@10.0.0.1` or `spider@10.0.0.1 at example.org`; an address for a client without a name.
fn title(client: &ClientJson) -> String {
    let address = client.address.as_ref().filter(|_| client.named).map(|address| format!("@{address}"));
    let host = client.host.as_ref().map(|host| format!(" at {host}"));
    format!("{}{}{}", client.name, address.unwrap_or_default(), host.unwrap_or_default())
}
