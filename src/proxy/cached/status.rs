//! Adds Cache-Status to a response (RFC 9211): what the cache did for the request.

use std::cell::RefCell;

use bytes::Bytes;
use http::HeaderMap;
use http::header::HeaderValue;

use super::plan::ForwardReason;
use crate::cache::CACHE_STATUS;
use crate::politeness::reuse::storing::NotStored;
use crate::proxy::answer::fields::write_number;

/// How a stored answer came to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Fresh,
    /// It is stale, for this reason.
    Stale(&'static str),
    /// The origin confirmed it.
    Validated(ForwardReason),
    /// The origin confirmed it when another client asked.
    Shared(ForwardReason),
}

impl How {
    /// The word of metrics and of the access log.
    pub(super) fn word(self) -> &'static str {
        match self {
            How::Fresh => "hit",
            How::Stale(_) => "stale",
            How::Validated(_) => "validated",
            How::Shared(_) => "shared",
        }
    }
}

/// What became of an answer that came from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The cache has nothing to do with it.
    Passed,
    Stored,
    NotStored(NotStored),
    /// The origin was asked by another client.
    Collapsed,
    /// The origin confirmed what is stored.
    Confirmed,
    /// The same, when another client asked.
    ConfirmedForAnother,
}

impl Fate {
    fn parameters(self) -> [&'static str; 2] {
        match self {
            Fate::Passed => ["", ""],
            Fate::Stored => ["; stored", ""],
            Fate::NotStored(reason) => ["; detail=", reason.word()],
            Fate::Collapsed => ["; collapsed", ""],
            Fate::Confirmed => ["; fwd-status=304; stored", ""],
            Fate::ConfirmedForAnother => ["; fwd-status=304; collapsed; stored", ""],
        }
    }
}

/// What a field says. `name` is curtsy's and comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// For how many seconds the stored answer is still fresh, and why it is given if it is stale.
    Hit(i64, Option<&'static str>),
    Forwarded(ForwardReason, Fate),
}

thread_local! {
    /// The last field: requests in a row often get the same.
    static LAST: RefCell<(Said, HeaderValue)> =
        const { RefCell::new((Said::Hit(0, None), HeaderValue::from_static(""))) };
}

/// Says how a stored answer came to be used. `ttl` is for how many seconds it is still fresh.
pub(super) fn tell_of_hit(headers: &mut HeaderMap, name: &str, how: How, ttl: i64) {
    let said = match how {
        How::Fresh => Said::Hit(ttl, None),
        How::Stale(detail) => Said::Hit(ttl, Some(detail)),
        How::Validated(why) => Said::Forwarded(why, Fate::Confirmed),
        How::Shared(why) => Said::Forwarded(why, Fate::ConfirmedForAnother),
    };
    let Some(value) = value(name, said) else { return };
    match headers.get_mut(CACHE_STATUS).filter(|value| value.is_empty()) {
        Some(place) => *place = value,
        None => {
            headers.append(CACHE_STATUS, value);
        }
    }
}

/// Says why a request was sent, and what became of its answer. `name` is curtsy's.
pub(super) fn tell(headers: &mut HeaderMap, name: &str, why: ForwardReason, fate: Fate) {
    if let Some(value) = value(name, Said::Forwarded(why, fate)) {
        headers.append(CACHE_STATUS, value);
    }
}

fn value(name: &str, said: Said) -> Option<HeaderValue> {
    LAST.with_borrow_mut(|(last_said, last)| {
        // Tests have several proxies in one thread, each with a name of its own.
        let is_named = |text: &[u8]| text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b';'));
        if *last_said != said || !is_named(last.as_bytes()) {
            (*last_said, *last) = (said, HeaderValue::from_maybe_shared(Bytes::from(said.text(name))).ok()?);
        }
        Some(last.clone())
    })
}

/// Removes the place for the field, which a head that was ready has.
pub(super) fn leave_out(headers: &mut HeaderMap) {
    if headers.get(CACHE_STATUS).is_some_and(HeaderValue::is_empty) {
        headers.remove(CACHE_STATUS);
    }
}

impl Said {
    /// Written piece by piece: this may run for every request, and formatting costs five times as much.
    fn text(self, name: &str) -> Vec<u8> {
        let mut text = Vec::with_capacity(96);
        text.extend_from_slice(name.as_bytes());
        let mut write = |parts: &[&str]| parts.iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
        match self {
            Said::Forwarded(why, fate) => {
                let [what, detail] = fate.parameters();
                write(&["; fwd=", why.word(), what, detail]);
            }
            Said::Hit(ttl, detail) => {
                write(&["; hit; ttl=", if ttl < 0 { "-" } else { "" }]);
                write_number(&mut text, ttl.unsigned_abs());
                if let Some(detail) = detail {
                    text.extend_from_slice(b"; detail=");
                    text.extend_from_slice(detail.as_bytes());
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C59
    #[test]
    fn the_field_says_what_happened() {
        let told = |how, ttl| {
            let mut headers = HeaderMap::new();
            tell_of_hit(&mut headers, "c", how, ttl);
            headers[CACHE_STATUS].to_str().unwrap().to_owned()
        };
        for (how, ttl, text) in [
            (How::Fresh, 2871, "c; hit; ttl=2871"),
            (How::Fresh, 2871, "c; hit; ttl=2871"),
            (How::Fresh, 2870, "c; hit; ttl=2870"),
            (How::Stale("host-cooling"), -372, "c; hit; ttl=-372; detail=host-cooling"),
            (How::Validated(ForwardReason::Stale), 0, "c; fwd=stale; fwd-status=304; stored"),
            (How::Shared(ForwardReason::UriMiss), 0, "c; fwd=uri-miss; fwd-status=304; collapsed; stored"),
        ] {
            assert_eq!(told(how, ttl), text);
        }
    }

    #[test]
    fn proxies_in_one_thread_keep_their_names() {
        for name in ["curtsy-12", "curtsy-1", "curtsy-12"] {
            let mut headers = HeaderMap::new();
            tell(&mut headers, name, ForwardReason::UriMiss, Fate::NotStored(NotStored::Private));
            assert_eq!(headers[CACHE_STATUS].to_str().unwrap(), format!("{name}; fwd=uri-miss; detail=private"));
        }
    }
}
