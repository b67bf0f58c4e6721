//! The core: who may visit a host, and when.

pub mod policy;
pub mod queue;
pub mod time;
pub mod turns;
pub mod visit;
