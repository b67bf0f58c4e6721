//! robots.txt on the path of a request: asked before the request waits, and learned from answers that pass.

pub(crate) mod ask;
pub(crate) mod capture;
