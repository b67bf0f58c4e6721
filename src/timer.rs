//! A timer that goes off on time.
//!
//! tokio's goes off in whole milliseconds and is late by one on average: it rounds up to keep its alarms, and once more
//! to wait for the first of them. At a delay of 50 ms that is 2 % of what a host allows, and no gap may be shorter to
//! make up for it. So a thread can have a bell of its own, a timer of the system's that all its alarms share
//! (docs/decisions/0010). On a thread without one, as in tests whose time stands still, tokio's timer does the work.
//!
//! Promises never to be early, and that an alarm which is dropped wakes nobody. Must not know what it is for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep};

use crate::clock;

/// Alarms that are closer than this ring together: a ring takes two system calls, and thousands of hosts may be waited
/// for. Half of it is 0.2 % of a delay of 50 ms.
const GRAIN: Duration = Duration::from_micros(200);

thread_local! {
    static BELL: RefCell<Option<Bell>> = const { RefCell::new(None) };
}

/// Gives this thread a bell. To be called once, in a runtime that stays on the thread.
#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for the sake of descriptors that are not owned; this one is"
)]
pub fn install_bell() -> io::Result<()> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let fd = Arc::new(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?);
    BELL.set(Some(Bell { fd: fd.clone(), base: clock::now(), alarms: BTreeMap::new(), set: None }));
    tokio::spawn(keep_ringing(fd));
    Ok(())
}

async fn keep_ringing(fd: Arc<AsyncFd<OwnedFd>>) {
    while let Ok(mut rung) = fd.readable().await {
        // How often it rang is not read: setting it anew silences it, too.
        rung.clear_ready();
        let now = clock::now();
        // Woken one by one and without the bell, since whoever is woken may use it.
        while let Some(waker) = with_bell(|bell| bell.take_due(now)).flatten() {
            waker.wake();
        }
    }
}

/// None on a thread that has no bell, or is about to end.
fn with_bell<T>(work: impl FnOnce(&mut Bell) -> T) -> Option<T> {
    BELL.try_with(|bell| bell.borrow_mut().as_mut().map(work)).ok().flatten()
}

/// Wakes a task at a time. It can be set again and again.
#[derive(Debug, Default)]
pub struct Timer {
    /// On a thread with a bell.
    alarm: Option<Alarm>,
    /// On any other.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// When, and a number that no other alarm has, on whatever thread.
type Alarm = (Instant, u64);

impl Timer {
    /// Has the task woken at `at` and not at the time before. Ready only if it is that late, and perhaps not even then:
    /// the task is woken at once instead.
    pub fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        match with_bell(|bell| bell.set_alarm(self.alarm, at, cx.waker())) {
            Some((alarm, _replaced)) => {
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
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            let _replaced = with_bell(|bell| bell.alarms.remove(&alarm));
        }
    }
}

#[derive(Debug)]
struct Bell {
    fd: Arc<AsyncFd<OwnedFd>>,
    /// Grains are counted from here.
    base: Instant,
    alarms: BTreeMap<Alarm, Waker>,
    /// When it will ring; none if it will not.
    set: Option<Instant>,
}

impl Bell {
    /// Also gives the waker that is no longer needed. Dropping it may drop a task, and that a timer, so it is not done here.
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

    /// Rounded up.
    fn whole_grains(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.base);
        let beyond = since.as_nanos() % GRAIN.as_nanos();
        if beyond == 0 { at } else { at + (GRAIN - Duration::from_nanos(beyond as u64)) }
    }

    /// Somebody whose time has come. If there is nobody, it is set for the next.
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
        // Zero would switch it off.
        let wait = at.saturating_duration_since(clock::now()).max(Duration::from_nanos(1));
        let value = Timespec::try_from(wait).expect("nobody waits for centuries");
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: once, it_value: value };
        timerfd_settime(&*self.fd, TimerfdTimerFlags::empty(), &spec).expect("a timer can be set to any time");
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Waits with a timer, as its users do: whoever is woken looks at the clock.
    async fn wait_until(at: Instant) {
        let mut timer = Timer::default();
        poll_fn(|cx| if clock::now() >= at { Poll::Ready(()) } else { timer.poll_at(at, cx) }).await;
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A waker, and how often it was woken.
    fn counted() -> (Waker, Arc<Woken>) {
        let woken = Arc::new(Woken::default());
        (Waker::from(woken.clone()), woken)
    }

    fn times(woken: &Woken) -> usize {
        woken.0.load(Relaxed)
    }

    #[tokio::test]
    async fn a_bell_is_never_early_and_forgets_nobody() {
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
        assert_eq!(with_bell(|bell| bell.alarms.len()), Some(0), "something is left behind");
    }

    #[tokio::test]
    async fn a_timer_rings_at_the_last_time_that_was_set() {
        install_bell().unwrap();
        let ((waker, woken), begun) = (counted(), clock::now());
        let mut cx = Context::from_waker(&waker);
        let mut timer = Timer::default();
        for after in [20, 5, 60_000] {
            assert!(timer.poll_at(begun + MILLI * after, &mut cx).is_pending());
        }
        wait_until(begun + MILLI * 25).await;
        assert_eq!(times(&woken), 0, "it rang at a time before");
        assert!(timer.poll_at(begun + MILLI * 26, &mut cx).is_pending());
        wait_until(begun + MILLI * 27).await;
        assert_eq!(times(&woken), 1);
        assert!(timer.poll_at(begun, &mut cx).is_pending(), "it wakes instead");
        wait_until(clock::now() + MILLI).await;
        assert_eq!(times(&woken), 2);
    }

    #[tokio::test]
    async fn only_the_last_waker_is_woken_and_none_of_a_dropped_timer() {
        install_bell().unwrap();
        let at = clock::now() + MILLI * 5;
        let ((first, by_first), (second, by_second)) = (counted(), counted());
        let (mut timer, mut dropped) = (Timer::default(), Timer::default());
        assert!(timer.poll_at(at, &mut Context::from_waker(&first)).is_pending());
        assert!(timer.poll_at(at, &mut Context::from_waker(&second)).is_pending());
        assert!(dropped.poll_at(at, &mut Context::from_waker(&first)).is_pending());
        drop(dropped);
        wait_until(at + MILLI).await;
        assert_eq!((times(&by_first), times(&by_second)), (0, 1));
    }

    /// Whoever is woken may drop timers and set others: the bell is not in use then.
    #[tokio::test]
    async fn who_is_woken_may_use_the_bell() {
        struct Drops(parking_lot::Mutex<Option<Timer>>);
        impl Wake for Drops {
            fn wake(self: Arc<Self>) {
                drop(self.0.lock().take());
            }
        }
        install_bell().unwrap();
        let at = clock::now() + MILLI;
        let mut kept = Timer::default();
        assert!(kept.poll_at(at + MILLI * 1_000, &mut Context::from_waker(Waker::noop())).is_pending());
        let waker = Waker::from(Arc::new(Drops(parking_lot::Mutex::new(Some(kept)))));
        let mut timer = Timer::default();
        assert!(timer.poll_at(at, &mut Context::from_waker(&waker)).is_pending());
        wait_until(at + MILLI * 2).await;
        assert_eq!(with_bell(|bell| bell.alarms.len()), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_bell_time_may_stand_still() {
        let begun = clock::now();
        wait_until(begun + Duration::from_secs(3_600)).await;
        assert!(clock::now() - begun >= Duration::from_secs(3_600));
    }
}
