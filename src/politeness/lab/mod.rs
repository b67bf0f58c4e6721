//! The laboratory: a whole lane against simulated hosts, in virtual time.
//!
//! `curtsy simulate` and the tests of learning use the same servers, the same trials and the same dice. The lane is the
//! one that runs in the proxy, so what is measured here is what happens there, except for the network and the disk.

mod dice;
mod penalty;
pub mod policies;
pub mod scenarios;
pub mod servers;
pub mod spec;
pub mod trial;

pub use self::dice::Dice;

#[cfg(test)]
mod tests;
