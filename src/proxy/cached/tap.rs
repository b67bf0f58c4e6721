//! Reads along while a body passes to its client, and stores it when it has ended.

use std::sync::Arc;

use crate::cache::Filling;
use crate::politeness::reuse::storing::NotStored;
use crate::proxy::Shared;

/// A body that is being stored. Dropping it before the end stores nothing.
#[derive(Debug)]
pub(crate) struct StoreTap {
    shared: Arc<Shared>,
    /// `None` once it is known that nothing will be stored.
    filling: Option<Box<Filling>>,
}

impl StoreTap {
    pub(super) fn new(shared: Arc<Shared>, filling: Box<Filling>) -> Self {
        StoreTap { shared, filling: Some(filling) }
    }

    /// Copies a piece of the body.
    pub(crate) fn read(&mut self, piece: &[u8]) {
        if let Some(filling) = &mut self.filling
            && let Err(reason) = filling.push(piece)
        {
            self.give_up(reason);
        }
    }

    /// Stores nothing, for this reason.
    pub(crate) fn give_up(&mut self, reason: NotStored) {
        if let Some(filling) = self.filling.take() {
            filling.note(reason);
            self.shared.metrics.cache.not_stored(reason.word());
        }
    }

    /// Stores the answer: all of it has passed.
    pub(crate) fn end(&mut self) {
        if let Some(filling) = self.filling.take()
            && let Err(reason) = filling.end()
        {
            self.shared.metrics.cache.not_stored(reason.word());
        }
    }
}

impl Drop for StoreTap {
    fn drop(&mut self) {
        self.give_up(NotStored::Incomplete);
    }
}
