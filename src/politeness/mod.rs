//! The core: who may visit a host, and when.

pub mod policy;
pub mod time;
pub mod turns;
