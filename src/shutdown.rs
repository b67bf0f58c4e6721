//! Stopping: a signal requests it, every task that holds a [`Stop`] sees it, and requests in flight may finish.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

/// Receives the stop. Every clone receives it.
#[derive(Clone, Debug)]
pub struct Stop {
    is_said: Arc<AtomicBool>,
    wake: watch::Receiver<()>,
}

/// Sends the stop. Dropping it does the same.
#[derive(Debug)]
pub struct Stopper {
    is_said: Arc<AtomicBool>,
    wake: watch::Sender<()>,
}

pub fn channel() -> (Stopper, Stop) {
    let (is_said, (sender, receiver)) = (Arc::<AtomicBool>::default(), watch::channel(()));
    (Stopper { is_said: is_said.clone(), wake: sender }, Stop { is_said, wake: receiver })
}

impl Stopper {
    pub fn stop(&self) {
        self.is_said.store(true, Ordering::Release);
        self.wake.send_replace(());
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Stop {
    pub fn is_requested(&self) -> bool {
        self.is_said.load(Ordering::Acquire)
    }

    /// Resolves on the next poll after `stop()`, even if that poll comes before the wake-up.
    pub async fn requested(&mut self) {
        let is_said = self.is_said.clone();
        let mut woken = pin!(self.wake.changed());
        // The flag is set before the wake-up is sent, so that no task misses it.
        poll_fn(|cx| match is_said.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => woken.as_mut().poll(cx).map(drop),
        })
        .await;
    }
}

/// Counts work that must be over before the process may end.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<LiveCount>);

#[derive(Debug, Default)]
struct LiveCount {
    working: AtomicUsize,
    done: Notify,
}

/// Work in progress; dropping this ends it.
#[derive(Debug)]
pub struct Working(Arc<LiveCount>);

impl Live {
    pub fn begin(&self) -> Working {
        self.0.working.fetch_add(1, Ordering::AcqRel);
        Working(self.0.clone())
    }

    /// Returns how much work is in progress.
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

/// What the operator requests by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
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

    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.term.recv() => Signal::Stop,
            _ = self.int.recv() => Signal::Stop,
            _ = self.hup.recv() => Signal::Reload,
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
    async fn every_clone_sees_the_stop() {
        let (stopper, mut stop) = channel();
        assert!(!stop.is_requested());
        stopper.stop();
        stop.requested().await;
        stop.clone().requested().await;
        stop.requested().await;
    }

    #[tokio::test]
    async fn a_waiting_task_is_woken() {
        for drops in [false, true] {
            let (stopper, mut stop) = channel();
            let waiting = tokio::spawn(async move { stop.requested().await });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            if drops {
                drop(stopper);
            } else {
                stopper.stop();
            }
            waiting.await.unwrap();
        }
    }

    /// Between the flag and the wake-up: a response sent in that moment must say that its connection closes.
    #[tokio::test]
    async fn a_poll_sees_the_stop_before_the_wake_up() {
        let (stopper, mut stop) = channel();
        let mut waiting = pin!(stop.requested());
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await.is_pending());
        stopper.is_said.store(true, Ordering::Release);
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await.is_ready());
    }
}
