//! A request that is being sent, and what becomes of it if its sender is dropped.

/// A request that is being sent, over HTTP/1.1 or HTTP/2.
pub(super) trait InTransit {
    /// Whether the origin has all of the request.
    fn has_sent_all(&self) -> bool;
}

/// Follows a request that is being sent.
pub(super) trait TransitWatch<S> {
    /// Called when the head of the request has been written.
    fn started(&mut self);

    /// Called when the sender was dropped after all of the request had been written, and before the response arrived.
    fn abandoned(&mut self, sending: S);
}

/// Passes the request to the watch if it is dropped while the response is awaited.
pub(super) struct Awaiting<'a, S: InTransit, W: TransitWatch<S>> {
    sending: Option<S>,
    watch: &'a mut W,
}

impl<'a, S: InTransit, W: TransitWatch<S>> Awaiting<'a, S, W> {
    pub(super) fn new(sending: S, watch: &'a mut W) -> Self {
        Awaiting { sending: Some(sending), watch }
    }

    pub(super) fn parts(&mut self) -> (&mut S, &mut W) {
        (self.sending.as_mut().expect("it is taken at the end"), self.watch)
    }

    pub(super) fn take(mut self) -> S {
        self.sending.take().expect("it is taken once")
    }
}

impl<S: InTransit, W: TransitWatch<S>> Drop for Awaiting<'_, S, W> {
    fn drop(&mut self) {
        if let Some(sending) = self.sending.take().filter(InTransit::has_sent_all) {
            self.watch.abandoned(sending);
        }
    }
}
