//! Rate limit fields: how many requests are left, and for how long.
//!
//! Four dialects, the most exact first; the first that makes sense is used and the others are ignored: `RateLimit:
//! "default";r=50;t=30` with `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11, and the dictionary of draft
//! 07), `RateLimit-Remaining` and `RateLimit-Reset` (draft 03), `X-RateLimit-*`, `X-Rate-Limit-*`.
//!
//! Promises: of several quotas the tightest counts, and in addition any that is used up; a malformed, negative or
//! absurd value invalidates its whole dialect. A reset given as a point in time instead of a wait is recognised by its
//! size.

use std::time::Duration;

use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry};

use super::{SignalFields, Timestamp, span, structured};

/// This many requests may be sent until the reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub remaining: u32,
    pub reset: Duration,
}

/// The combined quotas of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SaidQuota {
    /// Some quota is used up, perhaps with an unknown reset.
    pub(super) spent: bool,
    /// The longest time until a used-up quota resets.
    pub(super) used_up: Option<Duration>,
    pub(super) quota: Option<Quota>,
}

/// A larger number is not a quota but a way to say "no limit" (the draft asks for thresholds).
const MOST: u64 = 1_000_000_000;

pub(super) fn read(fields: &SignalFields<'_>, sent: Timestamp) -> SaidQuota {
    let dialects = || fields.remaining.iter().zip(fields.reset).find_map(|(left, reset)| pairs((*left)?, reset, sent));
    structured(fields, sent).or_else(dialects).unwrap_or_default()
}

impl SaidQuota {
    fn add(&mut self, remaining: u64, reset: Option<Duration>) -> Option<()> {
        let remaining = u32::try_from(remaining).ok().filter(|_| remaining <= MOST)?;
        self.spent |= remaining == 0;
        let Some(reset) = reset else { return Some(()) };
        if remaining == 0 {
            self.used_up = self.used_up.max(Some(reset));
            return Some(());
        }
        let new = Quota { remaining, reset };
        self.quota = match self.quota {
            Some(known) if known.interval() >= new.interval() => Some(known),
            _ => Some(new),
        };
        Some(())
    }
}

impl Quota {
    fn interval(&self) -> Duration {
        self.reset / self.remaining.max(1)
    }
}

fn structured(fields: &SignalFields<'_>, sent: Timestamp) -> Option<SaidQuota> {
    let Some(limits) = field::<List>(&fields.ratelimit) else {
        return dictionary(&field(&fields.ratelimit)?, sent);
    };
    if limits.is_empty() {
        return None;
    }
    let policies: List = field(&fields.ratelimit_policy).unwrap_or_default();
    let mut said = SaidQuota::default();
    for limit in &limits {
        let limit = item(limit)?;
        let policy = policies.iter().filter_map(item).find(|policy| has_name_of(policy, limit));
        let of_policy = |key| policy.and_then(|policy| policy.params.get(key));
        if of_policy("qu").is_some_and(|unit| structured::text(unit) != Some("requests")) {
            continue;
        }
        let time = limit.params.get("t").or_else(|| of_policy("w"));
        said.add(whole(limit.params.get("r")?)?, wait(time, sent)?)?;
    }
    Some(said)
}

/// Parses a field that may have several lines. A field with a line that is too long is ignored.
fn field<T: FieldType>(lines: &[Option<&str>]) -> Option<T> {
    let short = lines.iter().flatten().all(|line| line.len() <= LONGEST_LINE);
    short.then(|| structured::parse(lines.iter().flatten().copied())).flatten()
}

/// Ten times the longest line seen. curtsy learns the pace of an origin that sends more from its refusals.
const LONGEST_LINE: usize = 2_048;

/// Returns the item. A list inside the list is not a quota.
fn item(member: &ListEntry) -> Option<&Item> {
    match member {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    }
}

/// Names are strings (draft 11); before that they were tokens or numbers, and some origins mix both.
fn has_name_of(policy: &Item, limit: &Item) -> bool {
    match (structured::text(&policy.bare_item), structured::text(&limit.bare_item)) {
        (Some(one), Some(other)) => one == other,
        _ => policy.bare_item == limit.bare_item,
    }
}

/// `limit=100, remaining=50, reset=30`: one quota, with one member for each of its numbers.
fn dictionary(members: &Dictionary, sent: Timestamp) -> Option<SaidQuota> {
    let number = |key| members.get(key).and_then(item).map(|item| &item.bare_item);
    let mut said = SaidQuota::default();
    said.add(whole(number("remaining")?)?, wait(number("reset"), sent)?)?;
    Some(said)
}

/// A count; a fraction is cut off.
fn whole(item: &BareItem) -> Option<u64> {
    structured::thousandths(item).map(|thousandths| thousandths / 1_000)
}

/// Like [`reset`], for a typed number.
fn wait(item: Option<&BareItem>, sent: Timestamp) -> Option<Option<Duration>> {
    match item {
        Some(item) => structured::thousandths(item).map(|millis| Some(span::of_millis(millis, sent))),
        None => Some(None),
    }
}

/// Reads two fields of plain numbers, or two lists whose members belong together in order.
fn pairs(remaining: &str, resets: Option<&str>, sent: Timestamp) -> Option<SaidQuota> {
    let mut resets = resets.map(|text| text.split(',').map(str::trim_ascii));
    let mut said = SaidQuota::default();
    for remaining in remaining.split(',').take(LONGEST_LIST) {
        let text = match &mut resets {
            Some(resets) => Some(resets.next()?),
            None => None,
        };
        said.add(span::whole(remaining.trim_ascii())?, reset(text, sent)?)?;
    }
    Some(said)
}

/// The longest list seen has two members.
const LONGEST_LIST: usize = 8;

/// `Some(None)` if there is no reset; `None` if the reset makes no sense.
fn reset(text: Option<&str>, sent: Timestamp) -> Option<Option<Duration>> {
    match text {
        Some(text) => span::read(text, sent).map(Some),
        None => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn said(fields: &[(&'static str, &'static str)]) -> SaidQuota {
        read(&SignalFields::of(fields.iter().map(|(name, value)| (*name, value.as_bytes()))), SENT)
    }

    fn left(remaining: u32, seconds: u64) -> SaidQuota {
        let quota = Quota { remaining, reset: Duration::from_secs(seconds) };
        SaidQuota { quota: Some(quota), ..SaidQuota::default() }
    }

    fn used_up(seconds: u64) -> SaidQuota {
        SaidQuota { spent: true, used_up: Some(Duration::from_secs(seconds)), quota: None }
    }

    /// S66, S71
    #[test]
    fn each_dialect_is_understood() {
        assert_eq!(said(&[("ratelimit", r#""default";r=50;t=30"#)]), left(50, 30));
        assert_eq!(said(&[("ratelimit", "limit=100, remaining=50, reset=30")]), left(50, 30));
        assert_eq!(said(&[("ratelimit-remaining", "50"), ("ratelimit-reset", "30")]), left(50, 30));
        assert_eq!(said(&[("x-ratelimit-remaining", "50"), ("x-ratelimit-reset", "30")]), left(50, 30));
        assert_eq!(said(&[("x-rate-limit-remaining", "50"), ("x-rate-limit-reset", "30")]), left(50, 30));
        assert_eq!(said(&[("x-ratelimit-remaining", "5"), ("x-ratelimit-reset-after", "1.0")]), left(5, 1));
    }

    /// S71
    #[test]
    fn a_reset_may_be_a_wait_or_a_moment() {
        for reset in ["60", "1790000060", "1790000060000"] {
            assert_eq!(said(&[("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", reset)]), left(5, 60), "{reset}");
        }
        assert_eq!(said(&[("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "1789990000")]), left(5, 0));
    }

    /// S66
    #[test]
    fn the_tightest_quota_counts_and_a_used_up_one_besides() {
        assert_eq!(said(&[("ratelimit", r#""burst";r=9;t=1, "day";r=1000;t=86400"#)]), left(1000, 86_400));
        let both = said(&[("x-ratelimit-remaining", "0, 100"), ("x-ratelimit-reset", "1, 5000")]);
        assert_eq!(both, SaidQuota { quota: left(100, 5_000).quota, ..used_up(1) });
        assert_eq!(said(&[("ratelimit", "a;r=0;t=5, b;r=0;t=90, c;r=0;t=7")]), used_up(90));
        let lines = [("ratelimit", r#""a";r=9;t=1"#), ("ratelimit", r#""b";r=1;t=60"#)];
        assert_eq!(said(&lines), left(1, 60), "a list over two lines");
    }

    /// S67
    #[test]
    fn a_policy_gives_the_unit_and_the_window() {
        let policy = ("ratelimit-policy", r#""a";q=100;w=60, "b";q=65535;w=10;qu="content-bytes""#);
        assert_eq!(said(&[policy, ("ratelimit", r#""a";r=50"#)]), left(50, 60));
        assert_eq!(said(&[policy, ("ratelimit", r#""a";r=50;t=30, "b";r=0;t=9"#)]), left(50, 30));
        assert_eq!(said(&[("ratelimit", r#""a";r=50"#)]), SaidQuota::default(), "no window, no pace");
    }

    /// Twenty quotas, an inner list beside a parameter, and what RFC 9651 added to RFC 8941.
    #[test]
    fn all_of_the_grammar_may_stand_beside_a_quota() {
        let odd = r#""a";r=50;t=30;since=@1790000000;note=%"f%c3%bc%c3%bc";key=:aGk=:;ok;p=?0"#;
        assert_eq!(said(&[("ratelimit", odd)]), left(50, 30));
        let policy = ("ratelimit-policy", r#"("a" "b");q=9, "a";q=100;w=60"#);
        assert_eq!(said(&[policy, ("ratelimit", r#""a";r=50"#)]), left(50, 60));
        let many: &'static str = vec!["a;r=50;t=30"; 20].join(", ").leak();
        assert_eq!(said(&[("ratelimit", many)]), left(50, 30));
        let too_long: &'static str = format!("{many}, {}", "b".repeat(LONGEST_LINE)).leak();
        assert_eq!(said(&[("ratelimit", too_long)]), SaidQuota::default());
    }

    #[test]
    fn without_a_reset_only_the_end_is_news() {
        assert_eq!(said(&[("x-ratelimit-remaining", "7")]), SaidQuota::default());
        assert_eq!(said(&[("x-ratelimit-remaining", "0")]), SaidQuota { spent: true, ..SaidQuota::default() });
    }

    /// S66
    #[test]
    fn the_more_exact_dialect_wins_and_a_spoilt_one_is_passed_over() {
        let old = [("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "9")];
        assert_eq!(said(&[old[0], old[1], ("ratelimit", "a;r=1;t=2")]), left(1, 2));
        for spoilt in [
            "a;r=-1;t=2",
            "a;t=2",
            "a;r=x;t=2",
            "a;r=1;t=-2",
            "a;r=9999999999;t=2",
            "a;r=1;t=2,",
            "b;r=1;t",
            "a;r=\"1\";t=2",
            "(a);r=1;t=2",
            "a;r=1;1=2",
            "a;r=1..4;t=2",
        ] {
            assert_eq!(said(&[old[0], old[1], ("ratelimit", spoilt)]), left(7, 9), "{spoilt}");
        }
        for (remaining, reset) in [("-1", "9"), ("many", "9"), ("7", "soon"), ("7, 8", "9"), ("9999999999", "9")] {
            assert_eq!(said(&[("ratelimit-remaining", remaining), ("ratelimit-reset", reset)]), SaidQuota::default());
        }
    }
}
