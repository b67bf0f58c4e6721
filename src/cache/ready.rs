//! Heads of answers that are asked for often, ready to be served: a header map takes more memory than a head as text,
//! but to build one anew for each hit takes an eighth of its instructions.
//!
//! Bounded by bytes. An entry that has its place keeps it until it is evicted or replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::HeaderMap;
use http::header::{AGE, HeaderName, HeaderValue};

pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What a field takes in a header map: name, value and links (104 bytes), and its place in the index.
const FIELD: usize = 112;
/// What the map takes besides, with its count of references.
const MAP: usize = 160;

/// The bytes that ready heads may take.
#[derive(Clone, Debug)]
pub struct ReadyHeads(Arc<AtomicU64>);

/// A head that is ready.
#[derive(Debug)]
pub(super) struct ReadyHead {
    headers: HeaderMap,
    bytes: u64,
    left: Arc<AtomicU64>,
}

impl ReadyHeads {
    pub(super) fn new(bytes: u64) -> Self {
        ReadyHeads(Arc::new(AtomicU64::new(bytes)))
    }

    /// Makes a head ready, if there are bytes left for it. It has places for Age and Cache-Status, because a copy of a
    /// map has no room to grow. The place for Cache-Status is an empty value; a head that has the field already is left
    /// as it is.
    pub(super) fn keep(&self, headers: &HeaderMap) -> Option<ReadyHead> {
        if headers.contains_key(CACHE_STATUS) {
            return None;
        }
        let bytes = (MAP + (headers.len() + 2) * FIELD) as u64;
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).ok()?;
        let mut headers = headers.clone();
        headers.insert(AGE, HeaderValue::from_static("0"));
        headers.append(CACHE_STATUS, HeaderValue::from_static(""));
        // A copy of a map is only as large as its fields; the map itself has doubled.
        Some(ReadyHead { headers: headers.clone(), bytes, left: self.0.clone() })
    }
}

impl ReadyHead {
    pub(super) fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }
}

impl Drop for ReadyHead {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_are_ready_stay_within_their_bytes() {
        let headers: HeaderMap = [(AGE, HeaderValue::from_static("7"))].into_iter().collect();
        let ready = ReadyHeads::new(2 * (MAP + 3 * FIELD) as u64);
        let kept: Vec<_> = (0..3).filter_map(|_| ready.keep(&headers)).collect();
        assert_eq!(kept.len(), 2);
        assert!(ready.keep(&headers).is_none());
        drop(kept);
        assert!(ready.keep(&headers).is_some(), "their bytes are free again");
    }
}
