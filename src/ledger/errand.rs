//! What the keeper does for requests that do not wait for it.

use crate::politeness::fleet::calls::Settlement;

/// Something to tell Redis.
#[derive(Debug)]
pub(super) enum Errand {
    Settle(String, Settlement),
    /// Something that all nodes must hear: its kind, the host or client, and a text.
    Notice(&'static str, String, String),
    /// A request must be counted sooner than the keeper would look.
    Look,
    /// A call failed: look at the map.
    Hurry,
    Stop,
}
