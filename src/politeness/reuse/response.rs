//! A response as the cache sees it, read in one pass over its fields.

use super::Field;
use super::directives::{ResponseDirectives, items, seconds};
use super::policy::CacheTime;
use super::selecting::vary_names;
use crate::politeness::signals::strict_date;
use crate::politeness::time::Timestamp;

/// What matters about a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheResponse {
    pub status: u16,
    pub directives: ResponseDirectives,
    pub date: Option<Timestamp>,
    pub expires: Expires,
    pub last_modified: Option<Timestamp>,
    /// Age in seconds: digits only, of the first member of the first line.
    pub age: u32,
    pub has_validator: bool,
    pub has_set_cookie: bool,
    pub pragma_no_cache: bool,
    /// The names in Vary; `None` if one is `*`.
    pub vary: Option<String>,
}

/// The Expires field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expires {
    #[default]
    Absent,
    At(Timestamp),
    /// Not a date, or several: expired (RFC 9111, section 5.3).
    Unreadable,
}

impl CacheResponse {
    /// Reads the fields of a response that arrived now.
    pub fn read(status: u16, fields: &[Field<'_>], now: CacheTime) -> Self {
        let mut response = CacheResponse { status, ..CacheResponse::default() };
        let mut has_age = false;
        let date = |value: &[u8]| str::from_utf8(value).ok().and_then(|text| strict_date(text, now.wall));
        for &(name, value) in fields {
            match name {
                "cache-control" => response.directives.read(value),
                "date" => response.date = response.date.or_else(|| date(value)),
                "expires" => {
                    response.expires = match (response.expires, date(value)) {
                        (Expires::Absent, Some(at)) => Expires::At(at),
                        _ => Expires::Unreadable,
                    }
                }
                "last-modified" => {
                    response.last_modified = date(value);
                    response.has_validator = true;
                }
                "etag" => response.has_validator = true,
                "age" if !has_age => {
                    has_age = true;
                    response.age = items(value).next().and_then(seconds).unwrap_or(0);
                }
                "set-cookie" => response.has_set_cookie = true,
                "pragma" => response.pragma_no_cache |= items(value).any(|item| item.eq_ignore_ascii_case(b"no-cache")),
                _ => {}
            }
        }
        let vary = fields.iter().filter(|(name, _)| *name == "vary");
        response.vary = vary_names(vary.map(|(_, value)| *value));
        response
    }

    /// Whether the origin says for how long it may be used.
    pub fn has_lifetime(&self) -> bool {
        self.directives.max_age.is_some() || self.directives.s_maxage.is_some() || self.expires != Expires::Absent
    }

    /// Whether it says anything about caching.
    pub fn says_nothing(&self) -> bool {
        !self.directives.any && self.expires == Expires::Absent && !self.pragma_no_cache
    }
}
