//! The bell of a thread: a timerfd that all its alarms share.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::Alarm;
use crate::clock;

/// Alarms fire at whole multiples of this, many together: one expiry takes two system calls, and there may be thousands
/// of waiting hosts. They are late by half of it on average, which is 0.2 % of a delay of 50 ms.
const GRAIN: Duration = Duration::from_micros(200);

thread_local! {
    static BELL: RefCell<Option<TimerFd>> = const { RefCell::new(None) };
}

/// Gives this thread a bell. Must be called once, in a runtime that stays on the thread.
#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for the sake of descriptors that are not owned; this one is"
)]
pub fn install_bell() -> io::Result<()> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let fd = Arc::new(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?);
    let bell = TimerFd { fd: fd.clone(), base: clock::now(), alarms: BTreeMap::new(), set: None };
    tokio::spawn(keep_ringing(fd));
    let _before = BELL.replace(Some(bell));
    Ok(())
}

/// Removes the bell when the task that rings it ends, also by a panic, and wakes its waiters: they set tokio's timer
/// then.
struct Ringer;

impl Drop for Ringer {
    fn drop(&mut self) {
        let bell = BELL.try_with(RefCell::take).ok().flatten();
        bell.into_iter().flat_map(|bell| bell.alarms).for_each(|(_, waker)| waker.wake());
    }
}

async fn keep_ringing(fd: Arc<AsyncFd<OwnedFd>>) {
    let _ringer = Ringer;
    while let Ok(mut rung) = fd.readable().await {
        // The number of expirations is not read: setting the timer again clears it, too.
        rung.clear_ready();
        let now = clock::now();
        // Wakes one task at a time and does not borrow the bell meanwhile, since a woken task may use it.
        while let Some(waker) = with_bell(|bell| bell.take_due(now)).flatten() {
            waker.wake();
        }
    }
}

/// Returns None on a thread that has no bell, or is about to end.
fn with_bell<T>(work: impl FnOnce(&mut TimerFd) -> T) -> Option<T> {
    BELL.try_with(|bell| bell.borrow_mut().as_mut().map(work)).ok().flatten()
}

/// Sets or moves an alarm of this thread's bell. Returns None if the thread has no bell.
pub(super) fn set_alarm(before: Option<Alarm>, at: Instant, waker: &Waker) -> Option<Alarm> {
    let (alarm, _replaced) = with_bell(|bell| bell.set_alarm(before, at, waker))?;
    Some(alarm)
}

pub(super) fn drop_alarm(alarm: Alarm) {
    let _replaced = with_bell(|bell| bell.alarms.remove(&alarm));
}

#[derive(Debug)]
struct TimerFd {
    fd: Arc<AsyncFd<OwnedFd>>,
    /// Grains are counted from here.
    base: Instant,
    alarms: BTreeMap<Alarm, Waker>,
    /// When the timerfd expires; None if it is not armed.
    set: Option<Instant>,
}

impl TimerFd {
    /// Also returns the waker that is no longer needed. Dropping it may drop a task and with it a timer, so the caller
    /// must do that, when the bell is not borrowed.
    fn set_alarm(&mut self, before: Option<Alarm>, at: Instant, waker: &Waker) -> (Alarm, Option<Waker>) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let at = self.whole_grains(at);
        if let Some(alarm) = before.filter(|(before, _)| *before == at)
            && let Some(known) = self.alarms.get_mut(&alarm)
        {
            let stale = !known.will_wake(waker);
            return (alarm, stale.then(|| std::mem::replace(known, waker.clone())));
        }
        let replaced = before.and_then(|alarm| self.alarms.remove(&alarm));
        let alarm = (at, NEXT.fetch_add(1, Relaxed));
        self.alarms.insert(alarm, waker.clone());
        if self.set.is_none_or(|set| at < set) {
            self.set(at);
        }
        (alarm, replaced)
    }

    /// Rounds up to whole grains.
    fn whole_grains(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.base);
        let beyond = since.as_nanos() % GRAIN.as_nanos();
        if beyond == 0 { at } else { at + (GRAIN - Duration::from_nanos(beyond as u64)) }
    }

    /// Removes and returns the waker of an alarm that is due. If none is due, sets the timerfd for the next.
    fn take_due(&mut self, now: Instant) -> Option<Waker> {
        match self.alarms.first_entry() {
            Some(first) if first.key().0 <= now => Some(first.remove()),
            Some(next) => {
                let at = next.key().0;
                self.set(at);
                None
            }
            None => {
                self.set = None;
                None
            }
        }
    }

    fn set(&mut self, at: Instant) {
        self.set = Some(at);
        // Zero would disarm the timerfd.
        let wait = at.saturating_duration_since(clock::now()).max(Duration::from_nanos(1));
        let value = Timespec::try_from(wait).expect("no alarm is centuries away");
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: once, it_value: value };
        timerfd_settime(&*self.fd, TimerfdTimerFlags::empty(), &spec).expect("a timer can be set to any time");
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use super::super::Timer;
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);
    /// Longer than any test takes.
    const HOUR: Duration = Duration::from_secs(3_600);

    async fn wait_until(at: Instant) {
        let mut timer = Timer::default();
        poll_fn(|cx| timer.poll_at(at, cx)).await;
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    impl Woken {
        fn times(&self) -> usize {
            self.0.load(Relaxed)
        }

        /// Waits for it however long the machine takes.
        async fn is_woken(&self, times: usize) {
            while self.times() < times {
                wait_until(clock::now() + MILLI).await;
            }
        }
    }

    /// Returns a waker, and a counter of how often it was woken.
    fn counted() -> (Waker, Arc<Woken>) {
        let woken = Arc::new(Woken::default());
        (Waker::from(woken.clone()), woken)
    }

    fn set(timer: &mut Timer, at: Instant, waker: &Waker) {
        assert!(timer.poll_at(at, &mut Context::from_waker(waker)).is_pending(), "it was late already");
    }

    fn alarms() -> usize {
        with_bell(|bell| bell.alarms.len()).unwrap()
    }

    #[tokio::test]
    async fn a_bell_is_never_early_and_loses_no_alarm() {
        install_bell().unwrap();
        let begun = clock::now();
        // In no order, some at the same time, some of them in the past.
        let waits: Vec<_> = (0..500_u32)
            .map(|n| begun + Duration::from_micros(u64::from(n * 7_919 % 500) * 100))
            .map(|at| tokio::spawn(async move { (at, wait_until(at).await, clock::now()) }))
            .collect();
        for wait in waits {
            let (at, (), woken) = wait.await.unwrap();
            assert!(woken >= at, "{:?} early", at - woken);
        }
        assert_eq!(alarms(), 0, "something is left behind");
    }

    #[tokio::test]
    async fn a_timer_rings_at_the_last_time_that_was_set() {
        install_bell().unwrap();
        let ((waker, woken), begun) = (counted(), clock::now());
        let mut timer = Timer::default();
        set(&mut timer, begun + HOUR, &waker);
        set(&mut timer, clock::now() + MILLI * 200, &waker);
        set(&mut timer, begun + HOUR, &waker);
        wait_until(clock::now() + MILLI * 210).await;
        assert_eq!((woken.times(), alarms()), (0, 1), "it rang at a time before");
        set(&mut timer, clock::now() + MILLI * 200, &waker);
        woken.is_woken(1).await;
        assert_eq!((woken.times(), alarms()), (1, 0));
        assert!(timer.poll_at(begun, &mut Context::from_waker(&waker)).is_ready());
    }

    #[tokio::test]
    async fn only_the_last_waker_is_woken_and_none_of_a_dropped_timer() {
        install_bell().unwrap();
        let at = clock::now() + MILLI * 200;
        let ((first, by_first), (second, by_second)) = (counted(), counted());
        let (mut timer, mut dropped) = (Timer::default(), Timer::default());
        set(&mut timer, at, &first);
        set(&mut timer, at, &second);
        set(&mut dropped, at, &first);
        drop(dropped);
        by_second.is_woken(1).await;
        wait_until(at + MILLI).await;
        assert_eq!((by_first.times(), by_second.times(), alarms()), (0, 1, 0));
    }

    /// A woken task may drop timers and set others: the bell is not borrowed then.
    #[tokio::test]
    async fn a_woken_task_may_use_the_bell() {
        struct Drops(parking_lot::Mutex<Option<Timer>>);
        impl Wake for Drops {
            fn wake(self: Arc<Self>) {
                drop(self.0.lock().take());
            }
        }
        install_bell().unwrap();
        let (mut kept, mut timer) = (Timer::default(), Timer::default());
        set(&mut kept, clock::now() + HOUR, Waker::noop());
        let waker = Waker::from(Arc::new(Drops(parking_lot::Mutex::new(Some(kept)))));
        set(&mut timer, clock::now() + MILLI * 200, &waker);
        while alarms() > 0 {
            wait_until(clock::now() + MILLI).await;
        }
    }

    #[tokio::test]
    async fn an_alarm_of_a_removed_bell_is_woken_and_uses_another_timer() {
        install_bell().unwrap();
        let waiting = tokio::spawn(wait_until(clock::now() + MILLI * 200));
        tokio::task::yield_now().await;
        assert_eq!(alarms(), 1);
        drop(Ringer);
        assert!(with_bell(|_| ()).is_none());
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_bell_time_may_stand_still() {
        let begun = clock::now();
        wait_until(begun + HOUR).await;
        assert!(clock::now() - begun >= HOUR);
    }
}
