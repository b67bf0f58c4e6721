//! The answer at `http://probe.curtsy.invalid/` and `https://probe.curtsy.invalid/`: it says that a request reached
//! curtsy, by which way, and under which name. `curtsy doctor` makes clients request it.
//!
//! No request for it leaves this machine, takes a turn or consults robots.txt. The name can never be a real one, so a
//! client that gets the answer goes through curtsy, and over `https://` trusts its CA.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::json;

use super::help;
use crate::politeness::{HostKey, Origin, Scheme};
use crate::proxy::answer::body::Body;
use crate::proxy::request::client_request::ClientRequest;

const NAME: &str = "probe.curtsy.invalid";

pub(crate) fn is_meant(host: &HostKey) -> bool {
    host.as_str() == NAME
}

pub(crate) fn answer(request: &ClientRequest, origin: &Origin, parts: &Parts) -> Response<Body> {
    let (settings, inside, method) = (&request.settings, request.client.inside().is_some(), &parts.method);
    let politeness = &settings.config.politeness;
    let body = json!({
        "probe": "curtsy",
        "version": env!("CARGO_PKG_VERSION"),
        "name": request.shared().identity.name(),
        "client": request.who(&parts.headers).text(),
        "scheme": origin.scheme.as_str(),
        // Whether HTTPS is read here at all, and whether this request was.
        "intercepts": settings.leaves.is_some(),
        "intercepted": inside && origin.scheme == Scheme::Https,
        "mode": politeness.mode.word(),
        "max_wait_s": politeness.max_wait.as_secs_f64(),
    });
    let mut response = Response::new(Body::from(Bytes::from(format!("{body}\n"))));
    if *method != Method::GET && *method != Method::HEAD {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    }
    help::mark(response.headers_mut(), "application/json");
    response
}
