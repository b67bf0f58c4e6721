//! Reads Cache-Control, of requests and of responses (RFC 9111, section 5.2).
//!
//! Promises: a directive is found in any case, place and repetition, and never inside a quoted string. Of repeated
//! numbers the smallest counts. A number that cannot be read counts as zero if it would make an answer last longer, and
//! as absent if it would make a client accept less. Reading allocates nothing and ends.

use super::Field;

/// No lifetime is longer (RFC 9111, section 1.2.2).
pub const LONGEST: u32 = 1 << 31;

/// What the Cache-Control of a response says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    pub no_store: bool,
    pub no_cache: bool,
    pub private: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub max_age: Option<u32>,
    pub s_maxage: Option<u32>,
    pub stale_while_revalidate: Option<u32>,
    pub stale_if_error: Option<u32>,
    /// There is a directive, whatever it says.
    pub any: bool,
}

impl ResponseDirectives {
    /// Reads all lines of the field.
    pub fn of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut directives = ResponseDirectives::default();
        lines.for_each(|line| directives.read(line));
        directives
    }

    /// Adds what a line of CDN-Cache-Control forbids. It is addressed to CDNs (RFC 9213), so it makes nothing last
    /// longer; but a site that tells its CDN not to share an answer means every cache that several clients use.
    pub fn restrict(&mut self, line: &[u8]) {
        each(line, |name, _| match name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            _ => {}
        });
    }

    fn read(&mut self, line: &[u8]) {
        each(line, |name, value| {
            self.any = true;
            match name {
                b"no-store" => self.no_store = true,
                // `no-cache="field"` and `private="field"` are about fields; a whole answer is the safe reading.
                b"no-cache" => self.no_cache = true,
                b"private" => self.private = true,
                b"public" => self.public = true,
                b"must-revalidate" => self.must_revalidate = true,
                b"proxy-revalidate" => self.proxy_revalidate = true,
                b"must-understand" => self.must_understand = true,
                b"max-age" => shortest(&mut self.max_age, value),
                b"s-maxage" => shortest(&mut self.s_maxage, value),
                b"stale-while-revalidate" => shortest(&mut self.stale_while_revalidate, value),
                b"stale-if-error" => shortest(&mut self.stale_if_error, value),
                _ => {}
            }
        });
    }
}

/// What the Cache-Control and Pragma of a request say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    pub no_cache: bool,
    pub no_store: bool,
    pub only_if_cached: bool,
    pub max_age: Option<u32>,
    pub min_fresh: Option<u32>,
    /// `max-stale` without a number is the longest time.
    pub max_stale: Option<u32>,
}

impl RequestDirectives {
    /// Reads all lines. `Pragma: no-cache` counts only without Cache-Control (RFC 9111, section 5.4).
    pub fn of(fields: &[Field<'_>]) -> Self {
        let (mut directives, mut pragma, mut controlled) = (RequestDirectives::default(), false, false);
        for (name, value) in fields {
            match *name {
                "cache-control" => {
                    controlled = true;
                    directives.read(value);
                }
                "pragma" => each(value, |name, _| pragma |= name == b"no-cache"),
                _ => {}
            }
        }
        directives.no_cache |= pragma && !controlled;
        directives
    }

    fn read(&mut self, line: &[u8]) {
        each(line, |name, value| match name {
            b"no-cache" => self.no_cache = true,
            b"no-store" => self.no_store = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => shortest(&mut self.max_age, value),
            b"min-fresh" => {
                let longest = self.min_fresh.unwrap_or(0).max(number(value).unwrap_or(0));
                self.min_fresh = Some(longest);
            }
            b"max-stale" => {
                let most = if value.is_none() { Some(LONGEST) } else { number(value) };
                self.max_stale = match (self.max_stale, most) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
            _ => {}
        });
    }
}

/// Sets the number to the smaller one; an unreadable number is zero.
fn shortest(number_so_far: &mut Option<u32>, value: Option<&[u8]>) {
    let read = number(value).unwrap_or(0);
    *number_so_far = Some(number_so_far.map_or(read, |before| before.min(read)));
}

/// Digits, perhaps in double quotes.
fn number(value: Option<&[u8]>) -> Option<u32> {
    let value = value?;
    let digits = match value {
        [b'"', inner @ .., b'"'] => inner,
        bare => bare,
    };
    seconds(digits)
}

/// Digits only; at most [`LONGEST`].
pub fn seconds(digits: &[u8]) -> Option<u32> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: u32, digit: &u8| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    plain.then(|| digits.iter().fold(0, add).min(LONGEST))
}

/// The longest name of a directive: "stale-while-revalidate".
const LONGEST_NAME: usize = 22;

/// Calls `found` with each directive: its name in lower case, and what is behind the equals sign. If there are blanks
/// around the sign, the value cannot be read and is empty.
fn each(line: &[u8], mut found: impl FnMut(&[u8], Option<&[u8]>)) {
    for item in items(line) {
        let (name, value) = match item.iter().position(|byte| *byte == b'=') {
            Some(at) => (&item[..at], Some(&item[at + 1..])),
            None => (item, None),
        };
        let trimmed = name.trim_ascii();
        let value = value.map(|value| if trimmed.len() < name.len() { &[] } else { value });
        let mut lower = [0; LONGEST_NAME];
        let Some(lower) = lower.get_mut(..trimmed.len()) else { continue };
        lower.copy_from_slice(trimmed);
        lower.make_ascii_lowercase();
        if !lower.is_empty() {
            found(lower, value);
        }
    }
}

/// The members of a comma-separated list, without the blanks around them. A comma in a quoted string separates nothing.
/// A string that never ends, ends with the line.
pub fn items(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let comma = match line.iter().position(|byte| matches!(byte, b',' | b'"')) {
            Some(at) if line[at] == b'"' => end_of_item(line),
            at => at,
        };
        let item = comma.map_or(line, |at| &line[..at]);
        rest = comma.map(|at| &line[at + 1..]);
        Some(item.trim_ascii())
    })
    .filter(|item| !item.is_empty())
}

/// The first comma that is not in a quoted string.
fn end_of_item(line: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    line.iter().position(|byte| {
        let ends = *byte == b',' && !quoted;
        if escaped {
            escaped = false;
        } else if *byte == b'\\' && quoted {
            escaped = true;
        } else if *byte == b'"' {
            quoted = !quoted;
        }
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(line: &str) -> ResponseDirectives {
        ResponseDirectives::of([line.as_bytes()].into_iter())
    }

    fn request(line: &str) -> RequestDirectives {
        RequestDirectives::of(&[("cache-control", line.as_bytes())])
    }

    /// C3
    #[test]
    fn a_directive_is_found_in_any_spelling_place_and_repetition() {
        for line in ["private", "PRIVATE", "a=b, private", "private, max-age=5", " , private=\"set-cookie, x\" ,"] {
            assert!(response(line).private, "{line}");
        }
        for line in ["x=\"private\"", "x=\"a, private, b\"", "x=\"\\\", private\"", "privat", "private-x", "x-private"]
        {
            assert!(!response(line).private, "{line}");
        }
        assert!(response("x=\"never ends, private").any);
        assert!(!response("x=\"never ends, private").private);
    }

    /// C19
    #[test]
    fn the_smallest_of_repeated_numbers_counts_and_an_unreadable_one_is_zero() {
        assert_eq!(response("max-age=100, max-age=5").max_age, Some(5));
        assert_eq!(response("max-age=\"3600\", s-maxage=7").max_age, Some(3_600));
        assert_eq!(response("max-age=0003600").max_age, Some(3_600));
        assert_eq!(response("MAX-age=99999999999999999999").max_age, Some(LONGEST));
        for line in ["max-age=3600.0", "max-age =5", "max-age= 5", "max-age=", "max-age", "max-age=-1", "max-age='5'"] {
            assert_eq!(response(line).max_age, Some(0), "{line}");
        }
        assert_eq!(response("public").max_age, None);
    }

    #[test]
    fn a_client_says_what_it_accepts() {
        assert_eq!(request("max-stale").max_stale, Some(LONGEST));
        assert_eq!(request("max-stale=10, max-stale=5").max_stale, Some(5));
        assert_eq!(request("max-stale=x").max_stale, None, "unreadable: nothing stale is accepted");
        assert_eq!(request("min-fresh=5, min-fresh=7").min_fresh, Some(7));
        assert!(RequestDirectives::of(&[("pragma", b"x, no-cache")]).no_cache);
        assert!(!RequestDirectives::of(&[("pragma", b"no-cache"), ("cache-control", b"max-age=9")]).no_cache);
    }
}
