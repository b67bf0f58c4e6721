//! The page of the fleet: the nodes that share every host's budget, and where this is known from.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::framed;
use super::html::{Html, fill, span};
use crate::admin::Admin;
use crate::admin::fleet::{FleetJson, FleetNode};
use crate::admin::hosts::HostFleet;

const PAGE: &str = include_str!("web/fleet.html");
const ROW: &str = include_str!("web/node.html");
const NO_FLEET: &str = "<p class=\"nothing\" id=\"fleet\">This curtsy belongs to no fleet: <code>fleet.redis</code> is not \
                        set.</p>\n";

/// `GET /fleet`
pub(in crate::admin) async fn fleet(State(admin): State<Arc<Admin>>) -> Response {
    let told = FleetJson::of(&admin).await;
    let content = match &told.name {
        None => Html::raw(NO_FLEET),
        Some(name) => fill(
            PAGE,
            &[
                ("name", Html::text(name)),
                ("count", Html::number(told.nodes.len() as u64)),
                ("source", source(&told)),
                ("rows", told.nodes.iter().map(row).collect()),
                ("differ", differ(&told.nodes)),
            ],
        ),
    };
    framed(&admin, StatusCode::OK, "fleet", Html::raw("Fleet of curtsys"), content)
}

/// Says where the list comes from, and why it is short.
fn source(told: &FleetJson) -> Html {
    let since = told.since_s.map_or_else(String::new, |seconds| span((seconds * 1e3) as u64));
    let state = told.state.as_deref().unwrap_or("starting");
    let trouble = told.trouble.as_deref().unwrap_or("Redis does not answer");
    match (told.from.as_str(), state) {
        ("redis", "joined") => fill(
            "<p class=\"muted\" id=\"source\">From Redis. This node is joined, for {{since}}.</p>\n",
            &[("since", Html::text(&since))],
        ),
        ("redis", _) => fill(
            "<p class=\"notice\" id=\"source\">From Redis. This node is {{state}}, for {{since}}.</p>\n",
            &[("state", Html::text(state)), ("since", Html::text(&since))],
        ),
        _ => fill(
            "<p class=\"notice is-bad\" id=\"source\">This node is alone, for {{since}}: {{trouble}}. It starts requests only \
             at moments that the other nodes leave to it.</p>\n",
            &[("since", Html::text(&since)), ("trouble", Html::text(trouble))],
        ),
    }
}

fn row(node: &FleetNode) -> Html {
    let dash = || Html::raw("–");
    let text = |text: Option<String>| text.map_or_else(dash, |text| Html::text(&text));
    let can_forget = node.state == "missing" && !node.this;
    let button = if can_forget {
        let name = [("id", Html::text(&node.id))];
        fill("<button type=\"button\" class=\"needs-script\" data-forget=\"{{id}}\">Forget</button>", &name)
    } else {
        Html::default()
    };
    fill(
        ROW,
        &[
            ("name", Html::text(node.name.as_deref().unwrap_or(&node.id))),
            ("this", Html::raw(if node.this { " <span class=\"muted\">this one</span>" } else { "" })),
            ("id", Html::text(&node.id)),
            ("state", Html::text(&node.state)),
            ("lag", text(node.lag_ms.map(|lag| format!("{lag:.1} ms")))),
            ("share", text(node.share.map(|share| format!("{:.0} %", share * 100.0)))),
            ("starts", text(node.starts_per_s.map(|starts| format!("{starts:.1}/s")))),
            ("waiting", node.waiting.map_or_else(dash, Html::number)),
            ("joined", text(node.joined_s.map(|seconds| span((seconds * 1e3) as u64)))),
            ("button", button),
        ],
    )
}

/// Warns if nodes do not keep to the same delays.
fn differ(nodes: &[FleetNode]) -> Html {
    let settings: Vec<&String> = nodes.iter().filter_map(|node| node.settings.as_ref()).collect();
    let is_so = settings.windows(2).any(|pair| pair[0] != pair[1]);
    let hidden = Html::raw(if is_so { "" } else { " hidden" });
    fill(
        "<p class=\"notice\" id=\"differ\"{{hidden}}>The nodes have different politeness settings; each keeps to its own \
         delays.</p>\n",
        &[("hidden", hidden)],
    )
}

/// Says what all nodes together know about a host; the same as in `web/format.js`.
pub(super) fn of_host(fleet: Option<&HostFleet>) -> String {
    let Some(fleet) = fleet else { return "no: this curtsy belongs to no fleet".to_owned() };
    if fleet.from != "redis" {
        return "this node alone: other nodes are not counted here".to_owned();
    }
    let last = fleet.last_start_s.map(|seconds| format!("last start {} ago", span((seconds * 1e3) as u64)));
    let waiting = fleet.nodes_waiting.map(|nodes| format!("{nodes} nodes wait"));
    let known: Vec<String> = last.into_iter().chain(waiting).collect();
    if known.is_empty() {
        "from Redis: not visited lately".to_owned()
    } else {
        format!("from Redis: {}", known.join(", "))
    }
}
