//! What the keeper does for requests that do not wait for it.

use crate::politeness::fleet::calls::Settlement;

/// Something to tell Redis.
#[derive(Debug)]
pub(super) enum Errand {
    Settle(String, Settlement),
    /// A request was sent: count it if it lasts.
    Watch {
        host: String,
        end: u64,
        due: u64,
        counted: bool,
    },
    /// A request has ended.
    Ended {
        host: String,
        end: u64,
    },
    /// Something that all nodes must hear: its kind, the host or client, and a text.
    Notice(&'static str, String, String),
    /// A call failed: look at the map.
    Hurry,
    Stop,
}
