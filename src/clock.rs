//! The only reader of clocks (clippy bans the rest).
//!
//! Monotonic time comes from tokio, so that it stands still in a test that pauses it and never jumps with the wall
//! clock. Wall time is for people: log lines and dates in answers.

#![expect(clippy::disallowed_methods, reason = "this is the one place that may")]

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Now, on a clock that only goes forward.
pub fn now() -> Instant {
    Instant::now()
}

/// Microseconds since the Unix epoch, as far as pacing is concerned: the wall clock was read once, and the monotonic one
/// has carried it forward since. Setting the wall clock changes no decision.
pub fn micros() -> u64 {
    micros_at(now())
}

/// What [`micros`] showed at that moment.
pub fn micros_at(moment: Instant) -> u64 {
    let (instant, micros) = *anchor();
    let since = moment.saturating_duration_since(instant);
    // In 64 bits, which last for half a million years.
    micros + since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
}

/// When [`micros`] will show this.
pub fn instant(at: u64) -> Instant {
    let (instant, micros) = *anchor();
    instant + Duration::from_micros(at.saturating_sub(micros)).min(FAR)
}

/// Later than anybody waits; a timer for the end of time would overflow.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn anchor() -> &'static (Instant, u64) {
    static ANCHOR: OnceLock<(Instant, u64)> = OnceLock::new();
    ANCHOR.get_or_init(|| {
        let micros = wall().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
        (now(), u64::try_from(micros).unwrap_or(0))
    })
}

/// Which start of the machine this is, and when that was by [`micros`]. Two processes to which it was at different times
/// do not mean the same by a time: the clock on the wall was set, be it between them or while the first ran. None where
/// the system does not say.
pub fn boot() -> Option<(String, Duration)> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let up = Duration::try_from_secs_f64(uptime.split(' ').next()?.parse().ok()?).ok()?;
    Some((id.trim().to_owned(), Duration::from_micros(micros()).saturating_sub(up)))
}

/// What the clock on the wall shows.
pub fn wall() -> SystemTime {
    SystemTime::now()
}
