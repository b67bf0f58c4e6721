//! robots.txt: what it says, and to which client.
//!
//! This is our own matcher, because no existing one reads real files correctly for every client. It follows RFC 9309,
//! and Google's parser where the RFC leaves things open. Pure: the fetcher passes in bytes and times.
//!
//! In reading order: `line` reads lines, `parse` puts them into groups, `stream` stores groups; `agent` finds a
//! client's names; `canonical`, `readings`, `pattern` and `effort` compare paths; `ask` reads delays; [`Rules`] gives
//! verdicts. [`reply`] decides what a fetch means, `freshness` for how long. [`survey`] lists everything a file says,
//! for the operator.

mod agent;
mod ask;
mod canonical;
mod effort;
mod freshness;
mod line;
mod parse;
mod pattern;
mod readings;
pub mod reply;
mod rules;
mod stream;
pub mod survey;

pub use self::agent::Agents;
pub use self::freshness::Freshness;
pub use self::line::MAX_BODY;
pub use self::rules::{Choice, Rule, Rules, Verdict};
