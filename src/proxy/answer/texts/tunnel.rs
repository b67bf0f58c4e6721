//! The text about tunnels that curtsy refuses because it cannot look into them.

use http::StatusCode;

use super::{RefusalText, words};
use crate::metrics::RequestOutcome;

pub(super) fn http2_tunnel() -> RefusalText {
    RefusalText {
        toml: "[tls]\nintercept = true\n".to_owned(),
        ..words(
            StatusCode::FORBIDDEN,
            "HTTP/2 inside a tunnel",
            "http2-tunnel",
            "http_request_denied",
            "your last tunnel to this host had HTTP/2 inside, and curtsy closed it: it cannot pace requests that it \
             cannot see, and tls.tunnel.http2 is \"refuse\"",
            "use HTTP/1.1 (curl --http1.1), which is paced: the next tunnel is opened again; or let curtsy decrypt \
             HTTPS with the local CA: set in the configuration file",
        )
    }
}

pub(super) fn not_intercepted() -> RefusalText {
    RefusalText {
        outcome: RequestOutcome::Rejected,
        toml: "[tls]\nintercept = true\n".to_owned(),
        ..words(
            StatusCode::NOT_IMPLEMENTED,
            "Routing works, interception is off",
            "bad-request",
            "http_request_error",
            "the tunnel reached curtsy, but HTTPS interception is off, so curtsy cannot answer inside it",
            "nothing is wrong; to intercept HTTPS with the local CA, set in the configuration file",
        )
    }
}
