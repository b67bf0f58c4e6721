//! The fleet's ledger: turns and lessons that several curtsys share through Redis.

pub mod link;
pub mod rights;
pub mod view;
