//! The files that pages load, from inside the program. Browsers ask whether a file has changed, and mostly it has not.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH};
use axum::response::{IntoResponse, Response};
use fnv::FnvHasher;
use std::hash::Hasher;

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
    /// A strong validator computed from the content, so that it changes with the content.
    tag: String,
}

macro_rules! assets {
    ($($name:literal $kind:expr),* $(,)?) => {
        vec![$(Asset::new($name, $kind, include_str!(concat!("web/", $name)))),*]
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    assets![
        "style.css" "text/css; charset=utf-8",
        "icon.svg" "image/svg+xml",
        "app.js" SCRIPT,
        "api.js" SCRIPT,
        "chart.js" SCRIPT,
        "clients.js" SCRIPT,
        "explain.js" SCRIPT,
        "fleet.js" SCRIPT,
        "format.js" SCRIPT,
        "host.js" SCRIPT,
        "keys.js" SCRIPT,
        "live.js" SCRIPT,
        "overview.js" SCRIPT,
        "renew.js" SCRIPT,
        "table.js" SCRIPT,
        "timeline.js" SCRIPT,
    ]
});

impl Asset {
    fn new(name: &'static str, kind: &'static str, text: &'static str) -> Asset {
        let mut hasher = FnvHasher::default();
        hasher.write(text.as_bytes());
        Asset { name, kind, text, tag: format!("\"{:016x}\"", hasher.finish()) }
    }
}

/// `GET /assets/{name}`
pub(in crate::admin) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "There is nothing of this name.\n").into_response();
    };
    let fields = [(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, "no-cache"), (ETAG, asset.tag.as_str())];
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == asset.tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, fields).into_response();
    }
    (fields, asset.text).into_response()
}
