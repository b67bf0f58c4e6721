//! curtsy: a forward proxy that makes any client polite to every host.

pub mod admin;
pub mod app;
pub mod clock;
pub mod config;
pub mod metrics;
pub mod patience;
pub mod politeness;
pub mod proxy;
pub mod shutdown;
pub mod store;
pub mod upstream;
