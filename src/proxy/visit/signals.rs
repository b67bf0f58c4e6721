//! Reads what an answer says about pacing, and counts the answers that ask for less.

use http::Response;

use crate::politeness::HostKey;
use crate::politeness::signals::{self, SignalFields, Signals};
use crate::politeness::time::Timestamp;
use crate::proxy::{Settings, Shared};

/// Returns what the answer says about pacing, and counts it if it says "too fast".
pub(super) fn signals<T>(
    shared: &Shared,
    settings: &Settings,
    budget: &HostKey,
    response: &Response<T>,
    heard: Timestamp,
) -> Signals {
    let status = response.status().as_u16();
    let fields = SignalFields::of(response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let signals = signals::read(status, &fields, &settings.listening, heard);
    if signals.answer == signals::PaceSignal::Throttled {
        shared.metrics.lessons.throttle(status);
        shared.metrics.tally.count(budget.as_str(), |row| row.throttled += 1);
    }
    signals
}
