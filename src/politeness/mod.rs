//! The core: who may visit a host, and when.
//!
//! Pure: no I/O, no async, no clock, no dice, no log, no serde. Time comes in as an argument, chance as a seed, and what
//! to do comes out as a value, so every decision can be tested without a socket and replayed from its arguments.
//!
//! In reading order: `host` names what is paced; [`time`] and [`visit`] are the words; [`policy`] the numbers; [`turns`]
//! says when, [`queue`] who; [`signals`] reads what an answer says about time and [`pace`] learns from it; [`breaker`]
//! (one for each failing origin, in `breakers`), [`jobs`] and [`retries`] say when to stop trying; [`lane`] brings them together and answers "what next?"; [`audit`]
//! watches the sends.

pub mod audit;
pub mod breaker;
mod breakers;
mod host;
pub mod jobs;
pub mod lane;
pub mod pace;
mod places;
pub mod policy;
pub mod queue;
pub mod retries;
mod returns;
pub mod robots;
mod roll;
pub mod signals;
pub mod time;
pub mod turns;
pub mod visit;

#[cfg(test)]
mod sim;

pub use self::host::{BadHost, HostKey, Origin, Scheme};
