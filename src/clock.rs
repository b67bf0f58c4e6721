//! The only reader of clocks (clippy bans the rest).
//!
//! Monotonic time comes from tokio, so that it stands still in a test that pauses it and never jumps with the wall
//! clock. Wall time is for people: log lines and dates in answers.

#![expect(clippy::disallowed_methods, reason = "this is the one place that may")]

use std::time::SystemTime;

use tokio::time::Instant;

/// Now, on a clock that only goes forward.
pub fn now() -> Instant {
    Instant::now()
}

/// What the clock on the wall shows.
pub fn wall() -> SystemTime {
    SystemTime::now()
}
