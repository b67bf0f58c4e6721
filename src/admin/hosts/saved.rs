//! What the cache saved at a host.

use serde::{Deserialize, Serialize};

use crate::metrics::savings::Saved;

/// What the cache saved at a host since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedJson {
    /// Requests that were answered without being sent.
    pub requests: u64,
    /// Bytes of bodies that came from the cache.
    pub bytes: u64,
}

impl SavedJson {
    /// None if nothing was saved.
    pub(super) fn new(saved: Saved) -> Option<SavedJson> {
        let Saved { requests, bytes } = saved;
        (saved != Saved::default()).then_some(SavedJson { requests, bytes })
    }

    /// `120 requests, 3.4 MB`; the same in `dashboard/web/host.js`.
    pub fn text(&self) -> String {
        format!("{} request{}, {}", self.requests, if self.requests == 1 { "" } else { "s" }, size(self.bytes))
    }
}

/// `3.4 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
