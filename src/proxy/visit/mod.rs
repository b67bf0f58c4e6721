//! A request's visit to its origin: its turn, sending, sending again, and clients that only fail or do not wait.

pub(crate) mod hints;
pub(crate) mod job;
mod orphans;
pub(crate) mod send;
pub(crate) mod stopped_clients;
