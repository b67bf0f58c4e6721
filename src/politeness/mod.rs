//! The core: every decision about politeness, and nothing else.
//!
//! Pure: no I/O, no async, no clock, no dice, no log. Whoever calls it brings the time and obeys the answer.

mod host;

pub use self::host::{BadHost, HostKey, Origin, Scheme};
