//! How long the tests wait. The only file of the tests that reads a clock.
#![expect(clippy::disallowed_methods, reason = "tests measure what curtsy does by a clock of their own")]

use std::time::{Duration, Instant, SystemTime};

/// The longest a test waits for something that must happen: long enough for two cores with twenty programs on them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The time between two checks of a condition.
const STEP: Duration = Duration::from_millis(2);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits until `condition` holds, for at most [`PATIENCE`], and returns whether it did.
pub(crate) fn soon(condition: impl FnMut() -> bool) -> bool {
    within(2 * PATIENCE, condition)
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

/// Sleeps where time itself is tested: a slow origin, a silence, the time until a client comes back.
///
/// Do not use it to wait until something has happened; use [`soon`]. Any pause may take longer on a busy machine, so a
/// test must pass however long a pause is.
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

    /// The elapsed time at that moment.
    pub(crate) fn at(self, moment: Instant) -> Duration {
        moment - self.0
    }
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The same moment on the monotonic clock.
pub(crate) fn moment(wall: SystemTime) -> Instant {
    loop {
        let (before, wall_now, after) = (Instant::now(), SystemTime::now(), Instant::now());
        // Both clocks are read at about the same time, unless the thread had to wait in between.
        if after - before < Duration::from_micros(500) {
            return before - wall_now.duration_since(wall).unwrap_or_default();
        }
    }
}
