//! Takes clients' connections and reads requests from them: plain HTTP, TLS to the proxy itself, HTTP/2.

pub(crate) mod client;
pub(crate) mod client_stream;
pub(crate) mod first_bytes;
mod flood_guard;
mod handshake;
mod request_line;
pub(crate) mod serve;
pub(crate) mod upgrade;
pub(crate) mod worker;
