//! What is kept about a stored answer to decide when it may be used again, and how old it is (RFC 9111, section 4.2).

use crate::politeness::time::Timestamp;

/// A moment on two clocks. The steady clock stands still while the machine sleeps, and the wall clock can be set, so
/// the longer of the two times counts: being wrong means one validation too many, never a stale answer taken for fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTime {
    pub steady: Timestamp,
    pub wall: Timestamp,
}

impl CacheTime {
    /// The same time on both clocks.
    #[allow(dead_code, reason = "tests and a fuzz target use it")]
    pub const fn both(at: Timestamp) -> Self {
        CacheTime { steady: at, wall: at }
    }

    /// Whole seconds since an earlier moment; zero if both clocks say that it is later.
    pub fn seconds_since(self, earlier: CacheTime) -> u32 {
        let longest = self.steady.since(earlier.steady).max(self.wall.since(earlier.wall));
        u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)
    }
}

/// What decides about the reuse of one stored answer. Read once, when the answer is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReusePolicy {
    /// When the head arrived, or was last confirmed by a 304.
    pub received: CacheTime,
    /// Its age at that moment, in seconds.
    pub initial_age: u32,
    /// For how many seconds it is fresh.
    pub lifetime: u32,
    /// `stale-while-revalidate`, in seconds (RFC 5861).
    pub while_revalidate: u32,
    /// `stale-if-error`, in seconds (RFC 5861).
    pub if_error: u32,
    pub flags: ReuseFlags,
}

/// The yes-or-no part of a [`ReusePolicy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseFlags {
    /// `no-cache`: validate before every use.
    pub no_cache: bool,
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage`: never use it stale.
    pub no_stale: bool,
    /// `public`, `s-maxage` or `must-revalidate`: may answer requests with Authorization.
    pub answers_authorized: bool,
    /// `public` or `s-maxage`: answers requests whatever their Cookie.
    pub ignores_cookie: bool,
    /// The lifetime is a guess of ours, not the origin's word.
    pub heuristic: bool,
    /// Its age is not known for certain: validate before the next use.
    pub doubtful: bool,
}

impl ReuseFlags {
    /// The flags as a number, for a file.
    pub fn bits(self) -> u8 {
        let all =
            [self.no_cache, self.no_stale, self.answers_authorized, self.ignores_cookie, self.heuristic, self.doubtful];
        all.into_iter().enumerate().fold(0, |bits, (place, is_set)| bits | u8::from(is_set) << place)
    }

    /// Reads what [`ReuseFlags::bits`] returned.
    pub fn from_bits(bits: u8) -> Self {
        let is_set = |place: u8| bits >> place & 1 == 1;
        ReuseFlags {
            no_cache: is_set(0),
            no_stale: is_set(1),
            answers_authorized: is_set(2),
            ignores_cookie: is_set(3),
            heuristic: is_set(4),
            doubtful: is_set(5),
        }
    }
}

impl ReusePolicy {
    /// Its age in seconds (RFC 9111, section 4.2.3).
    pub fn age(&self, now: CacheTime) -> u32 {
        self.initial_age.saturating_add(now.seconds_since(self.received))
    }

    /// For how many seconds it is still fresh; negative if it is stale.
    pub fn ttl(&self, now: CacheTime) -> i64 {
        i64::from(self.lifetime) - i64::from(self.age(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn flags_survive_a_file() {
        for bits in 0..64 {
            assert_eq!(ReuseFlags::from_bits(bits).bits(), bits);
        }
    }

    /// C18
    #[test]
    fn the_clock_that_says_more_time_passed_counts() {
        let policy = ReusePolicy { received: CacheTime::both(at(1_000)), lifetime: 60, ..ReusePolicy::default() };
        let age = |steady, wall| policy.age(CacheTime { steady: at(steady), wall: at(wall) });
        assert_eq!(age(1_010, 1_010), 10);
        assert_eq!(age(1_010, 4_600), 3_600, "the machine slept, or the wall clock was set forward");
        assert_eq!(age(1_010, 10), 10, "the wall clock was set back");
        assert_eq!(age(10, 10), 0, "both clocks went back");
    }

    #[test]
    fn an_age_never_overflows() {
        let policy = ReusePolicy { initial_age: u32::MAX, ..ReusePolicy::default() };
        assert_eq!(policy.age(CacheTime::both(Timestamp::NEVER)), u32::MAX);
        assert!(policy.ttl(CacheTime::both(Timestamp::NEVER)) < 0);
    }
}
