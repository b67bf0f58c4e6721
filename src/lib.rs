//! curtsy: a forward proxy that makes any client polite to every host.
//!
//! The parts, in reading order:
//!
//! - [`cli`] holds the commands that users type; [`app`] builds everything from a [`config`] and runs it.
//! - [`politeness`] is the core: pure decisions about hosts, without I/O, clock or log.
//! - [`gate`] runs the core's lanes: visits wait there, and leave with a permit.
//! - [`proxy`] takes clients' requests, [`upstream`] carries them to origins, [`tls`] is the local CA.
//! - [`ledger`] shares every host's budget between several curtsys, through Redis.
//! - [`robots`] fetches robots.txt and remembers it.
//! - [`admin`] serves the operator's API and dashboard, [`store`] keeps what survives a restart.
//! - [`judge`] is a synthetic web on loopback that shows how polite a crawler is.
//! - [`clock`], [`connections`], [`timer`], [`events`], [`timeout_stream`], [`programs`], [`frames`], [`shutdown`],
//!   [`notify`], [`metrics`] and [`telemetry`] are leaves that every part outside the core may use.
//!
//! ARCHITECTURE.md lists which module may call which, and `tests/tidy.rs` checks it.

// Fuzz builds leave out the modules that no fuzz target reaches: building them would double the build time.
#[cfg(not(fuzzing))]
pub mod cli;

#[cfg(not(fuzzing))]
pub mod app;
pub mod cache;
pub mod config;
pub mod connections;

pub mod politeness;

#[cfg(not(fuzzing))]
pub mod admin;
pub mod gate;
#[cfg(not(fuzzing))]
pub mod judge;
pub mod ledger;
pub mod proxy;
pub mod robots;
pub mod store;
pub mod tls;
pub mod upstream;

pub mod clock;
pub mod events;
pub mod frames;
pub mod metrics;
pub mod notify;
pub mod programs;
pub mod shutdown;
pub mod telemetry;
pub mod timeout_stream;
pub mod timer;
