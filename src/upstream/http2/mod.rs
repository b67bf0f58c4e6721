//! HTTP/2 towards origins that choose it in the TLS handshake (docs/decisions/0007-http2-by-the-h2-crate.md).
//!
//! One connection carries several requests at once, so it is a [`Link`] that requests share, each on a [`StreamSlot`]
//! of its own. The `h2` crate handles frames. This module decides when a request starts, what may be sent again, how
//! long a request waits and how much is held in memory. The result is the same as for HTTP/1.1: a response head and a
//! body, or an error by its stage.

mod alarm;
mod exchange;
mod fault;
mod link;
mod links;
mod passage;
mod read_back;
mod reply;
mod short_queue;
mod upload;
mod witness;

pub(super) use self::exchange::{Limits, send};
pub(super) use self::fault::StreamOutcome;
pub(super) use self::link::{Link, StreamSlot};
pub(super) use self::links::{Links, OpenedLink, OpeningLink, Route};
pub(super) use self::reply::StreamReply;
