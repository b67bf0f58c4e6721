//! Stopping: a signal asks, everybody who does work hears it, and what is in flight may finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

/// Heard by everyone who holds a copy.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Says stop. Dropping it says it too.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

pub fn channel() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    pub async fn requested(&mut self) {
        // An error means that the stopper is gone, which says the same.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Counts work that must be over before the process may end.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    working: AtomicUsize,
    done: Notify,
}

/// Work in progress; dropping it ends it.
#[derive(Debug)]
pub struct Working(Arc<Count>);

impl Live {
    pub fn begin(&self) -> Working {
        self.0.working.fetch_add(1, Ordering::AcqRel);
        Working(self.0.clone())
    }

    /// How much is in progress.
    pub fn count(&self) -> usize {
        self.0.working.load(Ordering::Acquire)
    }

    pub async fn all_done(&self) {
        loop {
            let done = self.0.done.notified();
            if self.0.working.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.0.working.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_waiters();
        }
    }
}

/// What the operator asks for by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Stop,
    Reload,
}

/// SIGTERM and SIGINT stop, SIGHUP reloads.
#[derive(Debug)]
pub struct Wishes {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
}

impl Wishes {
    pub fn listen() -> std::io::Result<Self> {
        Ok(Wishes {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.term.recv() => Wish::Stop,
            _ = self.int.recv() => Wish::Stop,
            _ = self.hup.recv() => Wish::Reload,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_done_waits_for_the_last_one() {
        let live = Live::default();
        live.all_done().await;
        let (one, two) = (live.begin(), live.begin());
        let waiting = tokio::spawn({
            let live = live.clone();
            async move { live.all_done().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(two);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn everybody_hears_the_stop() {
        let (stopper, mut stop) = channel();
        assert!(!stop.is_requested());
        stopper.stop();
        stop.requested().await;
        stop.clone().requested().await;
    }
}
