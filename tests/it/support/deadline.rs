//! How long the tests wait. The one file of the tests that reads a clock.
#![expect(clippy::disallowed_methods, reason = "tests measure what curtsy does by a clock of their own")]

use std::time::{Duration, Instant, SystemTime};

/// The longest a test waits for something that must happen: long enough for two cores with twenty programs on them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How often a condition is looked at again.
const STEP: Duration = Duration::from_millis(2);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits until `condition` holds, and says whether it ever did.
pub(crate) fn soon(condition: impl FnMut() -> bool) -> bool {
    within(PATIENCE, condition)
}

/// Waits until `condition` holds, for at most `limit`.
pub(crate) fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Stopwatch::start();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(STEP);
    }
}

/// Lets time pass that is itself what is tested: a slow origin, a silence, the time until a client comes back.
///
/// Not for waiting until something has happened; that is [`soon`]. A machine may make any pause longer, so a test that
/// pauses must pass however long the pause is.
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Time since a moment of the test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// What it showed at that moment.
    pub(crate) fn at(self, moment: Instant) -> Duration {
        moment - self.0
    }
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The same moment on the clock that is never set.
pub(crate) fn moment(wall: SystemTime) -> Instant {
    loop {
        let (before, wall_now, after) = (Instant::now(), SystemTime::now(), Instant::now());
        // Read at about the same time, unless the thread had to wait in between.
        if after - before < Duration::from_micros(500) {
            return before - wall_now.duration_since(wall).unwrap_or_default();
        }
    }
}
