//! The core: who may visit a host, and when.

pub mod audit;
pub mod lane;
mod places;
pub mod policy;
pub mod queue;
mod returns;
mod roll;
pub mod time;
pub mod turns;
pub mod visit;

#[cfg(test)]
mod sim;
