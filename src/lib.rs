//! curtsy: a forward proxy that makes any client polite to every host.

pub mod config;
pub mod politeness;
