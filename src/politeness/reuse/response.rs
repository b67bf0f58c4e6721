//! A response as the cache sees it, read in one pass over its fields.

use super::Field;
use super::directives::{ResponseDirectives, items, seconds};
use super::selecting::vary_names;
use crate::politeness::signals::strict_date;
use crate::politeness::time::Timestamp;

/// What matters about a response. Dates are read when they are asked for: most answers that are not stored need none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheResponse<'a> {
    pub status: u16,
    pub directives: ResponseDirectives,
    /// Age in seconds: digits only, of the first member of the first line.
    pub age: u32,
    pub has_expires: bool,
    pub has_validator: bool,
    pub has_set_cookie: bool,
    pub pragma_no_cache: bool,
    /// The names in Vary; `None` if one is `*`.
    pub vary: Option<String>,
    fields: &'a [Field<'a>],
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

impl<'a> CacheResponse<'a> {
    /// Reads the fields of a response.
    pub fn read(status: u16, fields: &'a [Field<'a>]) -> Self {
        let lines = fields.iter().filter(|(name, _)| *name == "cache-control");
        CacheResponse::controlled(status, ResponseDirectives::of(lines.map(|(_, value)| *value)), fields)
    }

    /// Reads the fields of a response whose Cache-Control is read already.
    pub fn controlled(status: u16, directives: ResponseDirectives, fields: &'a [Field<'a>]) -> Self {
        let vary = Some(String::new());
        let mut response = CacheResponse { status, directives, fields, vary, ..CacheResponse::default() };
        let (mut has_age, mut has_vary) = (false, false);
        for &(name, value) in fields {
            match name {
                "cdn-cache-control" => response.directives.restrict(value),
                "expires" => response.has_expires = true,
                "last-modified" | "etag" => response.has_validator = true,
                "vary" => has_vary = true,
                "age" if !has_age => {
                    has_age = true;
                    response.age = items(value).next().and_then(seconds).unwrap_or(0);
                }
                "set-cookie" => response.has_set_cookie = true,
                "pragma" => response.pragma_no_cache |= items(value).any(|item| item.eq_ignore_ascii_case(b"no-cache")),
                _ => {}
            }
        }
        if has_vary {
            response.vary = vary_names(response.lines("vary"));
        }
        response
    }

    fn lines(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// The first Date that can be read.
    pub fn date(&self, now: Timestamp) -> Option<Timestamp> {
        self.lines("date").find_map(|value| read_date(value, now))
    }

    pub fn last_modified(&self, now: Timestamp) -> Option<Timestamp> {
        self.lines("last-modified").next_back().and_then(|value| read_date(value, now))
    }

    pub fn expires(&self, now: Timestamp) -> Expires {
        let mut lines = self.lines("expires");
        match (lines.next(), lines.next()) {
            (None, _) => Expires::Absent,
            (Some(value), None) => read_date(value, now).map_or(Expires::Unreadable, Expires::At),
            (Some(_), Some(_)) => Expires::Unreadable,
        }
    }

    /// Whether the origin says for how long it may be used.
    pub fn has_lifetime(&self) -> bool {
        self.directives.max_age.is_some() || self.directives.s_maxage.is_some() || self.has_expires
    }

    /// Whether it says anything about caching.
    pub fn says_nothing(&self) -> bool {
        !self.directives.any && !self.has_expires && !self.pragma_no_cache
    }
}

fn read_date(value: &[u8], now: Timestamp) -> Option<Timestamp> {
    strict_date(str::from_utf8(value).ok()?, now)
}
