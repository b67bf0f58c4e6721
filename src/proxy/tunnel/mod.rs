//! CONNECT and WebSocket: tunnels that are opened, looked into, paced and joined.

mod answer_end;
mod bursts;
pub(crate) mod ca_rejections;
pub(crate) mod connect;
pub(crate) mod early_closes;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod hello;
pub(crate) mod intercept;
pub(crate) mod join;
pub(crate) mod notes;
mod pacer;
mod pipe;
mod records;
mod tail;
