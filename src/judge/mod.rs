//! `curtsy judge`: how polite is a crawler?
//!
//! [`SyntheticWeb`] describes a small web: hosts that ask for something and pages that link to each other.
//! [`WebServer`] serves it on loopback and records every request as an [`Arrival`]. [`ScoreCard`] judges the arrivals.
//! Only the server does I/O; the web, its answers and the judging are pure, so every rule is tested with made-up
//! arrivals.

mod answers;
mod card;
mod rules;
mod server;
mod stamps;
mod web;

pub use self::card::{ScoreCard, ScoredRule};
pub use self::rules::{Arrival, AskedWait};
pub use self::server::{WebAccess, WebRecord, WebServer};
pub use self::stamps::StampedStream;
pub use self::web::SyntheticWeb;
