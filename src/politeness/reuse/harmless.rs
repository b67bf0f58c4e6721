//! The request fields that do not choose an answer unless Vary says so, each with the reason. Any other field is part
//! of what a stored answer is found by.

/// Whether this field, by its lower-case name, chooses no answer by itself.
pub(super) fn is_harmless(name: &str) -> bool {
    FIELDS.binary_search(&name).is_ok() || STARTS.iter().any(|start| name.starts_with(start))
}

/// Sorted, so that a look is quick; a test checks that.
const FIELDS: &[&str] = &[
    // Content negotiation: a site that chooses by them says so in Vary, as every cache expects.
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    // Has a rule of its own.
    "authorization",
    // What the client wants of caches.
    "cache-control",
    // This connection only.
    "connection",
    "content-length",
    // Has a rule of its own.
    "cookie",
    // About the request, not the answer.
    "date",
    "dnt",
    "from",
    // Is the key already.
    "host",
    // Conditions and ranges are answered from the whole.
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    // npm sends these with every request, and the registry ignores them. Not npm-otp: that is a secret.
    "npm-auth-type",
    "npm-command",
    "npm-scope",
    "npm-session",
    "pragma",
    // RFC 9218: order, not content.
    "priority",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    // Fetch metadata by another name.
    "save-data",
    "te",
    // Trace ids.
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
];

/// Starts of names. `sec-` names are set by browsers alone; `curtsy-` fields never reach an origin; `pacote-` is npm's.
const STARTS: &[&str] = &["sec-", "curtsy-", "pacote-"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_lower_case() {
        assert!(FIELDS.is_sorted() && FIELDS.iter().all(|name| *name == name.to_ascii_lowercase()));
    }

    /// C5, X29
    #[test]
    fn what_could_choose_an_answer_is_not_harmless() {
        for name in
            ["x-forwarded-host", "x-original-url", "x-http-method-override", "x-api-key", "npm-otp", "forwarded"]
        {
            assert!(!is_harmless(name), "{name}");
        }
        for name in ["user-agent", "sec-fetch-mode", "pacote-version", "curtsy-client", "traceparent"] {
            assert!(is_harmless(name), "{name}");
        }
    }
}
