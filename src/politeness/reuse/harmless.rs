//! What the fields of a request mean for the cache, by name. Every field that is not listed here is part of what a
//! stored answer is found by.

/// What a field of a request means for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldRole {
    /// Chooses no answer unless Vary says so.
    Harmless,
    Authorization,
    Cookie,
    /// What the client wants of caches.
    Control,
    /// A condition or a range, which is answered from the whole.
    Condition,
    /// Only the origin can answer a request with it.
    ForOrigin,
    /// `Curtsy-Cache`
    Switch,
    Preference,
    /// May choose an answer: a key of an API, or a trick to poison the cache.
    Unknown,
}

/// Returns the role of a field by its lower-case name. It runs for every field of every request, so a name is compared
/// with those of its length alone.
///
/// Why the harmless ones are harmless: `accept…` negotiate content, and a site that chooses by them says so in Vary, as
/// every cache expects. `host` is the key already. `npm-…` come with every request of npm, and the registry ignores
/// them (not `npm-otp`, which is a secret). `priority` is about order (RFC 9218), `save-data` is fetch metadata by
/// another name, `trace…` are trace ids. The others are about the request or this connection.
pub(super) fn role(name: &str) -> FieldRole {
    use FieldRole::{Authorization, Condition, Control, Cookie, ForOrigin, Harmless, Preference, Switch};
    match name.len() {
        2 if name == "te" => Harmless,
        3 if matches!(name, "dnt" | "via") => Harmless,
        4 if matches!(name, "host" | "date" | "from") => Harmless,
        5 if name == "range" => Condition,
        6 => match name {
            "accept" => Harmless,
            "cookie" => Cookie,
            "pragma" => Control,
            "expect" => ForOrigin,
            "prefer" => Preference,
            _ => by_start(name),
        },
        7 if matches!(name, "referer" | "trailer") => Harmless,
        7 if name == "upgrade" => ForOrigin,
        8 => match name {
            "if-range" => Condition,
            "if-match" => ForOrigin,
            "priority" => Harmless,
            _ => by_start(name),
        },
        9 if matches!(name, "npm-scope" | "save-data") => Harmless,
        10 if matches!(name, "user-agent" | "connection" | "keep-alive" | "tracestate") => Harmless,
        11 if matches!(name, "npm-command" | "npm-session" | "traceparent") => Harmless,
        12 if name == "max-forwards" => Harmless,
        12 if name == "curtsy-cache" => Switch,
        13 => match name {
            "cache-control" => Control,
            "if-none-match" => Condition,
            "authorization" => Authorization,
            "npm-auth-type" => Harmless,
            _ => by_start(name),
        },
        14 if matches!(name, "accept-charset" | "content-length") => Harmless,
        15 if matches!(name, "accept-encoding" | "accept-language") => Harmless,
        16 if name == "proxy-connection" => Harmless,
        17 if name == "if-modified-since" => Condition,
        17 if name == "transfer-encoding" => Harmless,
        18 if name == "proxy-authenticate" => Harmless,
        19 if name == "proxy-authorization" => Harmless,
        19 if name == "if-unmodified-since" => ForOrigin,
        25 if name == "upgrade-insecure-requests" => Harmless,
        _ => by_start(name),
    }
}

/// Browsers alone set `sec-` names; `curtsy-` fields never reach an origin; `pacote-` is npm's.
fn by_start(name: &str) -> FieldRole {
    let is_known = ["sec-", "curtsy-", "pacote-"].iter().any(|start| name.starts_with(start));
    if is_known { FieldRole::Harmless } else { FieldRole::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C5, X29
    #[test]
    fn what_could_choose_an_answer_is_not_harmless() {
        for name in
            ["x-forwarded-host", "x-original-url", "x-http-method-override", "x-api-key", "npm-otp", "forwarded", ""]
        {
            assert_eq!(role(name), FieldRole::Unknown, "{name}");
        }
        for name in ["user-agent", "sec-fetch-mode", "pacote-version", "curtsy-client", "traceparent"] {
            assert_eq!(role(name), FieldRole::Harmless, "{name}");
        }
    }

    /// A name beside a wrong length would never be found.
    #[test]
    fn every_listed_name_stands_beside_its_length() {
        let text = include_str!("harmless.rs");
        let arms =
            text.split_once("match name.len() {").and_then(|(_, rest)| rest.split_once("_ => by_start(name),\n    }"));
        let names: Vec<&str> = arms.map(|(arms, _)| arms.split('"').skip(1).step_by(2).collect()).unwrap_or_default();
        assert_eq!(names.len(), 44);
        for name in names {
            assert!(role(name) != FieldRole::Unknown && role(&format!("x{name}")) == FieldRole::Unknown, "{name}");
        }
    }
}
