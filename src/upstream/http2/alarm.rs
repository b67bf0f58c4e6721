//! The time limit of one stream. The connection is shared, so its own limit says nothing about a single stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

#[derive(Debug, Default)]
pub(super) struct StreamTimeout(Option<Pin<Box<Sleep>>>);

impl StreamTimeout {
    /// Ready once `at` has passed; wakes this task then.
    pub(super) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}
