//! The only reader of clocks (clippy bans the rest).
//!
//! Monotonic time comes from tokio, so that it stands still in a test that pauses it and never jumps with the wall
//! clock. Wall time is only for people: log lines and dates in responses.

#![expect(clippy::disallowed_methods, reason = "this is the one place that may")]

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Now, on a clock that only goes forward.
pub fn now() -> Instant {
    Instant::now()
}

/// Microseconds since the Unix epoch, for pacing. The wall clock is read once; after that the monotonic clock advances
/// the value. So setting the wall clock changes no decision.
pub fn micros() -> u64 {
    micros_at(now())
}

/// Returns the value that [`micros`] had at this moment.
pub fn micros_at(moment: Instant) -> u64 {
    let (instant, micros) = *anchor();
    let since = moment.saturating_duration_since(instant);
    // 64 bits last for half a million years.
    micros + since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
}

/// Returns the moment at which [`micros`] reaches this value.
pub fn instant(at: u64) -> Instant {
    let (instant, micros) = *anchor();
    instant + Duration::from_micros(at.saturating_sub(micros)).min(FAR)
}

/// Longer than any request waits. A timer for the end of time would overflow.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn anchor() -> &'static (Instant, u64) {
    static ANCHOR: OnceLock<(Instant, u64)> = OnceLock::new();
    ANCHOR.get_or_init(|| {
        let micros = wall().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
        (now(), u64::try_from(micros).unwrap_or(0))
    })
}

/// Returns the boot id of the machine and its boot time on the clock of [`micros`]. If two processes disagree about the
/// boot time, the wall clock was set, either between them or while the first ran, and their timestamps cannot be
/// compared. None if the system does not report them.
pub fn boot() -> Option<(String, Duration)> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let up = Duration::try_from_secs_f64(uptime.split(' ').next()?.parse().ok()?).ok()?;
    Some((id.trim().to_owned(), Duration::from_micros(micros()).saturating_sub(up)))
}

/// Returns the moment at which the wall clock showed this time, which must not be long ago: a wall clock that was set
/// since then makes it wrong. Times in the future are read as now.
pub fn moment_of(past: SystemTime) -> Instant {
    loop {
        let (before, wall, after) = (now(), wall(), now());
        // If the thread had to wait between the readings, they do not belong together.
        if after.duration_since(before) < Duration::from_micros(500) {
            let age = wall.duration_since(past).unwrap_or_default();
            return before.checked_sub(age).unwrap_or(before);
        }
    }
}

/// Returns the wall clock time.
pub fn wall() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_wall_clock_is_found_on_the_other_clock() {
        let (before, shown, after) = (now(), wall(), now());
        std::thread::sleep(Duration::from_millis(5));
        let (moment, room) = (moment_of(shown), Duration::from_millis(1));
        assert!(moment + room >= before && moment <= after + room, "{:?}", moment.duration_since(before));
        assert!(moment_of(wall() + FAR) <= now());
    }
}
