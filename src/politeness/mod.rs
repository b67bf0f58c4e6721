//! The core: decides which request may visit a host, and when.
//!
//! Pure: no I/O, no async, no clock, no dice, no log, no serde. Time is an argument, randomness comes from a seed, and
//! the result is a value that says what to do. So every decision can be tested without a socket and replayed from its
//! arguments.
//!
//! In reading order: `host` names what is paced; [`time`] and [`visit`] define the basic types; [`policy`] holds the
//! numbers; [`turns`] decides when (with [`bars`], which say until when not), [`queue`] which visit; [`signals`] reads
//! what an answer says about time, and [`pace`] learns from it; [`breaker`] (one for each failing origin, in
//! `breakers`), [`jobs`] and [`retries`] say when to stop trying; [`lane`] combines them and answers "what next?";
//! [`flight`] lets requests for the same URL share one answer;
//! [`audit`] checks the sends; [`fleet`] lets several curtsys share one budget.

pub mod audit;
pub mod bars;
pub mod breaker;
mod breakers;
pub mod fault;
#[allow(dead_code, reason = "tests compare the ledger's scripts with `shared`, and the simulation drives nodes")]
pub mod fleet;
pub mod flight;
mod host;
pub mod jobs;
pub mod lab;
pub mod lane;
pub mod pace;
mod places;
pub mod policy;
pub mod queue;
pub mod retries;
mod retry_promises;
pub mod reuse;
mod rides;
pub mod robots;
pub mod signals;
pub mod time;
pub mod turns;
pub mod visit;
mod visit_table;

#[cfg(test)]
mod sim;

pub use self::host::{BadHost, HostKey, Origin, Scheme};
