//! The dashboard at `/`: what the API knows, for people.
//!
//! Every page is complete as it is served, a table that a browser without scripts can show; the scripts in `web/` keep
//! it up to date. Nothing is loaded from other sites, everything that is put into a page is escaped ([`html`]), and
//! there is nothing here that the API does not provide too.

mod assets;
mod clients;
mod fleet;
mod host;
mod html;
mod overview;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use self::html::{Html, fill};
use super::Admin;
use crate::ledger::Ledger;

pub(super) use self::assets::asset;
pub(super) use self::clients::clients;
pub(super) use self::fleet::fleet;
pub(super) use self::host::host;
pub(super) use self::overview::overview;

const FRAME: &str = include_str!("dashboard/web/frame.html");

/// `page` is the name by which the scripts know the page.
fn framed(admin: &Admin, status: StatusCode, page: &'static str, title: Html, content: Html) -> Response {
    let version = Html::text(env!("CARGO_PKG_VERSION"));
    let current = |name: &str| Html::raw(if name == page { " aria-current=\"page\"" } else { "" });
    let fleet = match admin.gate.ledger() {
        Ledger::Local => Html::default(),
        Ledger::Fleet(_) => fill(" <a href=\"/fleet\"{{at_fleet}}>Fleet</a>", &[("at_fleet", current("fleet"))]),
    };
    let parts = [
        ("page", Html::text(page)),
        ("title", title),
        ("version", version),
        ("content", content),
        ("at_hosts", current("overview")),
        ("at_clients", current("clients")),
        ("fleet", fleet),
    ];
    let fields = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    (status, fields, fill(FRAME, &parts).into_string()).into_response()
}

/// Returns the value of one field of a query.
fn field(uri: &Uri, wanted: &str) -> Option<String> {
    let query = uri.query().unwrap_or_default().as_bytes();
    url::form_urlencoded::parse(query).find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}
