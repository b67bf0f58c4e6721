//! How long an answer stays fresh: reads its Cache-Control, Expires, Date and Age fields, within bounds (RFC 9111,
//! section 4.2).
//!
//! Promises: never less than ten minutes and never more than a day, whatever an origin says; six hours if it says
//! nothing.

use std::time::Duration;

use crate::politeness::time::Timestamp;

const LEAST: Duration = Duration::from_secs(10 * 60);
const MOST: Duration = Duration::from_secs(24 * 60 * 60);
const USUAL: Duration = Duration::from_secs(6 * 60 * 60);

/// The fields that determine the freshness.
#[derive(Clone, Copy, Debug, Default)]
pub struct Freshness<'f> {
    /// Several fields joined by commas.
    pub cache_control: Option<&'f str>,
    /// [`Timestamp::START`] if the field cannot be read: that means "expired" (RFC 9111, section 5.3).
    pub expires: Option<Timestamp>,
    pub date: Option<Timestamp>,
    pub age: Option<Duration>,
    /// The operator's upper bound.
    pub at_most: Option<Duration>,
}

impl Freshness<'_> {
    /// `dice`, from 0 to 1, makes the lifetime up to a tenth shorter or longer.
    pub(super) fn lifetime(&self, now: Timestamp, dice: f64) -> Duration {
        let said = self.said(now).map(|lifetime| lifetime.saturating_sub(self.age.unwrap_or_default()));
        let most = self.at_most.map_or(MOST, |most| most.clamp(LEAST, MOST));
        let lifetime = said.unwrap_or(USUAL).clamp(LEAST, most);
        spread(lifetime, dice).clamp(LEAST, most)
    }

    fn said(&self, now: Timestamp) -> Option<Duration> {
        let directives = || self.cache_control.unwrap_or_default().split(',').map(str::trim);
        let seconds = |name: &str| directives().find_map(|directive| seconds_of(directive, name));
        let forbids = |name: &str| directives().any(|directive| names(directive, name));
        if forbids("no-store") || forbids("no-cache") {
            return Some(Duration::ZERO);
        }
        // A proxy is a shared cache, so directives for shared caches come first (RFC 9111, section 5.2.2.10).
        let expires = || self.expires.map(|expires| expires.since(self.date.unwrap_or(now)));
        seconds("s-maxage").or_else(|| seconds("max-age")).or_else(expires)
    }
}

/// Makes a duration up to a tenth shorter or longer.
pub(super) fn spread(duration: Duration, dice: f64) -> Duration {
    let thousandths = 900 + (dice.clamp(0.0, 1.0) * 200.0) as u32;
    duration.saturating_mul(thousandths) / 1_000
}

/// Whether the directive has this name: `no-cache` and `no-cache="field"`.
fn names(directive: &str, name: &str) -> bool {
    directive.split('=').next().is_some_and(|word| word.trim().eq_ignore_ascii_case(name))
}

/// A value that is not a number counts as zero: the origin asks for something, and the shortest time is the safe
/// answer.
fn seconds_of(directive: &str, name: &str) -> Option<Duration> {
    let value = directive.split_once('=').map_or("", |(_, value)| value).trim().trim_matches('"');
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if digits { value.parse().unwrap_or(u64::MAX) } else { 0 };
    names(directive, name).then_some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
    const MIDDLE: f64 = 0.5;

    fn seconds(freshness: Freshness<'_>) -> u64 {
        freshness.lifetime(NOW, MIDDLE).as_secs()
    }

    fn of(cache_control: &str) -> u64 {
        seconds(Freshness { cache_control: Some(cache_control), ..Freshness::default() })
    }

    #[test]
    fn without_a_word_it_is_six_hours() {
        assert_eq!(seconds(Freshness::default()), 21_600);
        assert_eq!(of("public, must-revalidate"), 21_600);
    }

    #[test]
    fn cache_control_is_heard_within_bounds() {
        assert_eq!(of("max-age=3600"), 3_600);
        assert_eq!(of("public, Max-Age = \"7200\""), 7_200);
        assert_eq!(of("max-age=60, s-maxage=1800"), 1_800);
        assert_eq!(of("max-age=0"), 600);
        assert_eq!(of("max-age=31536000"), 86_400);
        assert_eq!(of("max-age=99999999999999999999999"), 86_400);
        for nonsense in ["max-age", "max-age=", "max-age=-1", "max-age=1e9", "no-store", "no-cache, max-age=9000"] {
            assert_eq!(of(nonsense), 600, "{nonsense}");
        }
    }

    #[test]
    fn expires_counts_from_date_if_cache_control_is_silent() {
        let expires = Some(NOW + Duration::from_secs(5_000));
        let freshness = Freshness { expires, ..Freshness::default() };
        assert_eq!(seconds(freshness), 5_000);
        assert_eq!(seconds(Freshness { date: Some(NOW - Duration::from_secs(1_000)), ..freshness }), 6_000);
        assert_eq!(seconds(Freshness { cache_control: Some("max-age=700"), ..freshness }), 700);
        assert_eq!(seconds(Freshness { expires: Some(Timestamp::START), ..freshness }), 600);
    }

    #[test]
    fn age_is_taken_off() {
        let age = Some(Duration::from_secs(1_000));
        assert_eq!(seconds(Freshness { cache_control: Some("max-age=3000"), age, ..Freshness::default() }), 2_000);
        assert_eq!(seconds(Freshness { cache_control: Some("max-age=900"), age, ..Freshness::default() }), 600);
        assert_eq!(seconds(Freshness { age, ..Freshness::default() }), 21_600, "nothing was said that could be old");
    }

    #[test]
    fn chance_moves_it_by_a_tenth_but_not_over_the_bounds() {
        let lifetime = |max_age: &str, dice: f64| {
            Freshness { cache_control: Some(max_age), ..Freshness::default() }.lifetime(NOW, dice).as_secs()
        };
        assert_eq!((lifetime("max-age=10000", 0.0), lifetime("max-age=10000", 1.0)), (9_000, 11_000));
        assert_eq!((lifetime("max-age=0", 0.0), lifetime("max-age=0", 1.0)), (600, 660));
        assert_eq!((lifetime("max-age=86400", 0.0), lifetime("max-age=86400", 1.0)), (77_760, 86_400));
        assert_eq!(lifetime("max-age=10000", f64::NAN), 9_000);
    }
}
