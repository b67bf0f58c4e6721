//! The path of a request: who sends it, what it is for, and the steps until it is answered. Start at [`handle`].

pub(crate) mod access_log;
mod check;
pub(crate) mod client_request;
pub(crate) mod forward;
mod guesses;
pub(crate) mod handle;
pub(crate) mod headers;
pub(crate) mod label;
pub(crate) mod options;
pub(crate) mod page_parts;
pub(crate) mod quotas;
pub(crate) mod target;
pub(crate) mod users;
