//! A timer that fires on time.
//!
//! tokio's timer fires in whole milliseconds and is late by one on average: it rounds up when it stores an alarm, and
//! again when it waits for the first of them. At a delay of 50 ms that is 2 % of what a host allows, and no gap may be
//! shorter to make up for it. So on Linux a thread can have a bell of its own, a timerfd that all its alarms share
//! (docs/decisions/0010). A thread without a bell, as in tests with paused time, uses tokio's timer, and so do all
//! threads on other systems.
//!
//! Never fires early. A dropped timer wakes no task; if it is dropped on another thread than the one that set it, it
//! may still wake its task once. Knows nothing about what it is used for.

#[cfg(target_os = "linux")]
mod bell;

/// Stands for the bell on systems without timerfd: no thread has one.
#[cfg(not(target_os = "linux"))]
mod bell {
    use super::*;

    pub fn install_bell() -> std::io::Result<()> {
        Ok(())
    }

    pub(super) fn set_alarm(_before: Option<Alarm>, _at: Instant, _waker: &std::task::Waker) -> Option<Alarm> {
        None
    }

    pub(super) fn drop_alarm(_alarm: Alarm) {}
}

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

pub use self::bell::install_bell;
use crate::clock;

/// Wakes a task at a given time. It can be set again and again.
#[derive(Debug, Default)]
pub struct Timer {
    /// Used on a thread with a bell.
    alarm: Option<Alarm>,
    /// Used on any other thread.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The time, and a number that is unique among all alarms of all threads.
type Alarm = (Instant, u64);

impl Timer {
    /// Ready if `at` has passed. Otherwise the task is woken at `at`, and no longer at the time that was set before.
    pub fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= at {
            return Poll::Ready(());
        }
        match bell::set_alarm(self.alarm, at, cx.waker()) {
            Some(alarm) => {
                self.alarm = Some(alarm);
                Poll::Pending
            }
            None => self.poll_sleep(at, cx),
        }
    }

    fn poll_sleep(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            bell::drop_alarm(alarm);
        }
    }
}
