//! robots.txt: what it says, and to whom.
//!
//! Our own matcher, because none that exists reads real files right for any client that may come: it follows RFC 9309,
//! and Google's parser in what the RFC leaves open. Pure: whoever fetches hands in bytes and times.
//!
//! In reading order: `line` finds what lines say, `parse` puts them into groups, `stream` is how groups are kept;
//! `agent` knows a client's names; `canonical`, `readings`, `pattern` and `effort` compare paths; `ask` reads delays;
//! [`Rules`] answers. [`reply`] says what a fetch means, `freshness` how long it is good for. [`survey`] tells people everything
//! a file says.

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
