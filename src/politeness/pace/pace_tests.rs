//! Transitions of the pace, with literal times.

use super::*;
use crate::politeness::signals::Quota;

const BASE: Duration = Duration::from_secs(1);

const fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1_000)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const fn plain(answer: PaceSignal) -> Signals {
    Signals { answer, ..Signals::FAILED }
}

/// No other request is in flight.
const ALONE: PaceLoad = PaceLoad { in_flight: 0, places: 8 };

const OK: Signals = plain(PaceSignal::Success);
const REFUSED: Signals = plain(PaceSignal::Throttled);

impl Pace {
    /// The delay that follows from the host's quota, and whether the quota is believed.
    fn told(&self, base: Duration, learning: &Learning, now: Timestamp) -> Option<(Duration, bool)> {
        let interval = self.allowance.interval(learning.max_delay.max(base), now)?;
        Some((interval, !self.allowance.doubted(now)))
    }

    fn last_success(&self) -> Option<Timestamp> {
        (self.last_success > Timestamp::START).then_some(self.last_success)
    }
}

/// A pace and the arguments it is called with.
struct PacedHost {
    pace: Pace,
    base: Duration,
    learning: Learning,
}

impl PacedHost {
    fn new() -> Self {
        PacedHost { pace: Pace::new(), base: BASE, learning: Learning::steps() }
    }

    /// A host with a learned delay.
    fn taught(seconds: u64) -> Self {
        let memory = PaceMemory { learned: secs(seconds), updated: at(0), ..PaceMemory::default() };
        let learning = Learning::steps();
        PacedHost { pace: Pace::remembering(&memory, &learning, at(0)), base: BASE, learning }
    }

    fn hear(&mut self, epoch: Epoch, signals: Signals, now: Timestamp) -> Option<Change> {
        let heard = PaceReport { epoch, signals, load: ALONE, took: Duration::ZERO };
        self.pace.heard(heard, self.base, &self.learning, now)
    }

    fn send(&mut self, now: Timestamp) -> Epoch {
        self.pace.sent(ALONE, self.base, &self.learning, now)
    }

    /// A request that is answered at once.
    fn visit(&mut self, signals: Signals, now: Timestamp) -> Option<Change> {
        let epoch = self.send(now);
        self.hear(epoch, signals, now)
    }

    fn visits(&mut self, times: usize, signals: Signals, now: Timestamp) {
        for _ in 0..times {
            self.visit(signals, now);
        }
    }

    fn delay(&self, now: Timestamp) -> Duration {
        self.pace.delay(self.base, &self.learning, now)
    }
}

#[test]
fn a_pace_is_small() {
    assert!(size_of::<Pace>() <= 96, "{}", size_of::<Pace>());
}

#[test]
fn success_teaches_a_host_nothing_that_is_visited_at_its_delay() {
    let mut host = PacedHost::new();
    host.visits(1_000, OK, at(5));
    assert_eq!((host.delay(at(5)), host.pace.success_streak()), (Duration::ZERO, 1_000));
    assert_eq!((host.pace.last_success(), host.pace.memory(at(5))), (Some(at(5)), None));
}

#[test]
fn a_refusal_adds_a_step_to_the_delay_in_force_and_holds_the_host_for_it() {
    let mut host = PacedHost::new();
    let change = host.visit(REFUSED, at(0)).unwrap();
    let hold = Some(Hold { until: at(2), cause: Cause::Backoff });
    let (before, learned) = (Duration::ZERO, secs(2));
    assert_eq!(change, Change { what: What::Slowed, before, learned, floor: None, hold, error_streak: 1 });
    assert_eq!((host.delay(at(0)), host.pace.held_until()), (secs(2), at(2)));
}

#[test]
fn a_robots_delay_is_stepped_over_at_once_and_never_cut() {
    let mut host = PacedHost { base: secs(10), ..PacedHost::new() };
    host.visit(REFUSED, at(0));
    assert_eq!(host.delay(at(0)), secs(11));
    let mut slow = PacedHost { base: secs(100), ..PacedHost::new() };
    slow.visit(REFUSED, at(0));
    assert_eq!(slow.delay(at(0)), secs(100), "learning ends at 60 s, robots.txt does not");
}

#[test]
fn the_window_doubles_while_refusals_go_on() {
    let mut host = PacedHost::new();
    let mut now = at(0);
    let mut windows = Vec::new();
    for _ in 0..12 {
        host.visit(REFUSED, now);
        windows.push(host.pace.held_until().since(now).as_secs());
        now = host.pace.held_until();
    }
    assert_eq!(windows, [2, 6, 16, 40, 96, 224, 512, 900, 900, 900, 900, 900]);
    assert_eq!((host.delay(now), host.pace.error_streak()), (secs(13), 12));
    host.visit(OK, now);
    assert_eq!(host.pace.error_streak(), 0);
    host.visit(REFUSED, now);
    assert_eq!(host.pace.held_until().since(now), secs(14));
}

#[test]
fn learning_ends_at_the_largest_delay() {
    let mut host = PacedHost::taught(60);
    let change = host.visit(REFUSED, at(0)).unwrap();
    assert_eq!((change.before, change.learned, host.delay(at(0))), (secs(60), secs(60), secs(60)));
    assert_eq!(change.error_streak, 1);
}

#[test]
fn a_burst_of_refusals_counts_once() {
    let mut host = PacedHost::new();
    let burst: Vec<Epoch> = (0..20).map(|_| host.send(at(0))).collect();
    assert!(host.hear(burst[0], REFUSED, at(1)).is_some());
    for epoch in &burst[1..] {
        assert_eq!(host.hear(*epoch, REFUSED, at(2)), None);
    }
    assert_eq!((host.delay(at(2)), host.pace.error_streak(), host.pace.held_until()), (secs(2), 1, at(3)));
}

#[test]
fn a_late_refusal_still_holds_the_host_as_long_as_it_asks() {
    let mut host = PacedHost::new();
    let (first, second) = (host.send(at(0)), host.send(at(0)));
    host.hear(first, REFUSED, at(1));
    let change = host.hear(second, Signals { retry_after: Some(secs(30)), ..REFUSED }, at(2)).unwrap();
    assert_eq!((change.what, change.hold), (What::Held, Some(Hold { until: at(32), cause: Cause::RetryAfter })));
    assert_eq!(host.delay(at(2)), secs(2));
}

#[test]
fn the_longest_hold_counts() {
    let mut host = PacedHost::new();
    let long = Signals { retry_after: Some(secs(60)), ..REFUSED };
    assert_eq!(host.visit(long, at(0)).unwrap().hold, Some(Hold { until: at(60), cause: Cause::RetryAfter }));
    let short = Signals { retry_after: Some(secs(1)), ..REFUSED };
    assert_eq!(host.visit(short, at(0)).unwrap().hold, None, "the longer one goes on");
    assert_eq!(host.pace.held_until(), at(60));
}

#[test]
fn twenty_successes_start_a_trial_and_twenty_more_prove_it() {
    let mut host = PacedHost::taught(3);
    host.visits(19, OK, at(0));
    assert_eq!(host.delay(at(0)), secs(3));
    let change = host.visit(OK, at(0)).unwrap();
    assert_eq!((change.what, change.before, change.learned), (What::Probing, secs(3), secs(2)));
    assert!(host.pace.probing());
    host.visits(19, OK, at(0));
    assert_eq!(host.delay(at(0)), secs(2));
    host.visit(OK, at(0));
    assert_eq!(host.delay(at(0)), secs(1), "on trial at the configured delay");
    host.visits(19, OK, at(0));
    let change = host.visit(OK, at(0)).unwrap();
    assert_eq!((change.what, change.learned, host.pace.probing()), (What::Proven, Duration::ZERO, false));
}

#[test]
fn a_refused_trial_restores_exactly_the_delay_that_worked_and_makes_it_the_floor() {
    let mut host = PacedHost::taught(5);
    host.visits(20 + 7, OK, at(0));
    let change = host.visit(REFUSED, at(10)).unwrap();
    assert_eq!((change.what, change.before, change.learned), (What::Restored, secs(4), secs(5)));
    assert_eq!((change.floor, host.pace.held_until()), (Some(secs(5)), at(15)));
    host.visits(100, OK, at(609));
    assert_eq!(host.delay(at(609)), secs(5), "nothing is tried below the floor");
    let change = host.visit(OK, at(610)).unwrap();
    assert_eq!((change.what, change.learned), (What::Probing, secs(4)), "until it is ten minutes old");
}

#[test]
fn a_floor_that_is_confirmed_lives_twice_as_long_up_to_a_day() {
    let mut host = PacedHost::taught(5);
    let mut now = at(0);
    let mut lives = Vec::new();
    for _ in 0..10 {
        host.visits(20, OK, now);
        host.visit(REFUSED, now);
        let life = host.pace.memory(now).unwrap().floor_life;
        lives.push(life.as_secs());
        now = now + life;
    }
    assert_eq!(lives, [600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 76_800, 86_400, 86_400]);
}

#[test]
fn a_trial_that_passes_below_the_floor_ends_it() {
    let mut host = PacedHost::taught(5);
    host.visits(20, OK, at(0));
    host.visit(REFUSED, at(0));
    host.visits(20, OK, at(600));
    host.visits(20, OK, at(601));
    assert_eq!(host.delay(at(601)), secs(3));
    let memory = host.pace.memory(at(601)).unwrap();
    assert_eq!((memory.floor, memory.learned), (Duration::ZERO, secs(4)), "on trial at 3 s, proven at 4 s");
}

#[test]
fn a_trial_does_not_jump_over_a_floor() {
    let memory = PaceMemory { learned: secs(5), floor: Duration::from_millis(4_700), ..PaceMemory::default() };
    let memory = PaceMemory { floor_life: secs(600), floor_until: at(600), updated: at(0), ..memory };
    let mut host = PacedHost::new();
    host.pace = Pace::remembering(&memory, &host.learning, at(0));
    host.visits(20, OK, at(0));
    assert_eq!(host.delay(at(0)), Duration::from_millis(4_700));
}

#[test]
fn a_refusal_of_what_left_before_the_trial_makes_the_old_delay_longer() {
    let mut host = PacedHost::taught(5);
    let early = host.send(at(0));
    host.visits(20, OK, at(1));
    let change = host.hear(early, REFUSED, at(2)).unwrap();
    assert_eq!((change.what, change.learned, change.floor), (What::Slowed, secs(6), None));
}

#[test]
fn successes_of_what_left_before_prove_nothing() {
    let mut host = PacedHost::taught(5);
    let early: Vec<Epoch> = (0..40).map(|_| host.send(at(0))).collect();
    for epoch in &early {
        host.hear(*epoch, OK, at(1));
    }
    assert_eq!((host.delay(at(1)), host.pace.success_streak()), (secs(4), 0));
    host.visit(REFUSED, at(2));
    host.hear(early[0], OK, at(3));
    assert_eq!((host.pace.error_streak(), host.pace.last_success()), (1, Some(at(3))));
}

#[test]
fn errors_end_a_row_of_successes_and_a_403_does_not() {
    let mut host = PacedHost::taught(5);
    host.visits(19, OK, at(0));
    host.visit(plain(PaceSignal::Neutral), at(0));
    assert_eq!(host.pace.success_streak(), 19);
    assert_eq!(host.visit(Signals::FAILED, at(0)), None);
    assert_eq!((host.pace.success_streak(), host.pace.error_streak()), (0, 0));
    assert_eq!((host.delay(at(0)), host.pace.held_until()), (secs(5), Timestamp::START));
}

#[test]
fn a_trial_whose_old_delay_is_no_longer_in_force_counts_as_none() {
    let mut host = PacedHost::taught(5);
    host.visits(20, OK, at(0));
    host.base = secs(8);
    let change = host.visit(REFUSED, at(1)).unwrap();
    assert_eq!((change.what, change.learned, change.floor), (What::Slowed, secs(9), None));
}

#[test]
fn a_smaller_limit_counts_at_once() {
    let mut host = PacedHost::taught(50);
    host.learning.max_delay = secs(10);
    assert_eq!(host.delay(at(0)), secs(10));
    host.visit(REFUSED, at(0));
    assert_eq!((host.delay(at(0)), host.pace.learned()), (secs(10), secs(10)));
}

#[test]
fn a_trial_is_remembered_as_the_delay_that_worked() {
    let mut host = PacedHost::taught(5);
    host.visits(20, OK, at(0));
    assert_eq!((host.delay(at(0)), host.pace.memory(at(0)).unwrap().learned), (secs(4), secs(5)));
}

#[test]
fn concurrency_falls_as_the_delay_grows_above_base() {
    let of = |learned: u64, configured: u32| {
        let host = PacedHost::taught(learned);
        host.pace.concurrency(configured, BASE, &host.learning, at(0))
    };
    assert_eq!([of(1, 4), of(5, 4), of(6, 4), of(11, 4), of(16, 4), of(60, 4)], [4, 4, 3, 2, 1, 1]);
    assert_eq!([of(60, 1), of(60, 0), of(11, 100)], [1, 1, 98]);
    let mut host = PacedHost::taught(60);
    host.learning.concurrency_step = Duration::ZERO;
    assert_eq!(host.pace.concurrency(4, BASE, &host.learning, at(0)), 4);
}

#[test]
fn without_learning_only_words_count() {
    let mut host = PacedHost::taught(5);
    host.learning.learner = Learner::Off;
    assert_eq!(host.delay(at(0)), Duration::ZERO);
    assert_eq!(host.visit(REFUSED, at(0)), None);
    let change = host.visit(Signals { retry_after: Some(secs(9)), ..REFUSED }, at(0)).unwrap();
    assert_eq!((change.what, change.hold.unwrap().until), (What::Held, at(9)));
}

fn left(remaining: u32, seconds: u64) -> Signals {
    Signals { quota: Some(Quota { remaining, reset: secs(seconds) }), ..OK }
}

#[test]
fn a_quota_is_spent_evenly() {
    let mut host = PacedHost::new();
    host.visit(left(10, 60), at(0));
    assert_eq!(host.delay(at(0)), Duration::from_millis(5_950));
    host.visit(left(100, 60), at(0));
    assert_eq!(host.delay(at(0)), Duration::ZERO, "the configured delay is slower");
    host.visit(left(1, 3_000), at(0));
    assert_eq!(host.delay(at(0)), secs(60), "as slow as learning may get");
}

/// A window of 5 s that ends at 5.0 s; every answer rounds the rest up to whole seconds.
#[test]
fn a_quota_ends_when_the_earliest_of_its_rounded_resets_says() {
    let mut host = PacedHost::new();
    let ms = |ms| at(0) + Duration::from_millis(ms);
    host.visit(left(2, 5), ms(10));
    host.visit(left(1, 3), ms(2_500));
    assert_eq!(host.delay(ms(2_500)), Duration::from_millis(2_010), "it ends after 5.01 s, not 5.5 s");
    let change = host.visit(Signals { used_up: Some(secs(1)), ..OK }, ms(4_600)).unwrap();
    assert_eq!(change.hold.unwrap().until, ms(5_110), "and a little slack");
    host.visit(left(4, 5), ms(5_200));
    assert_eq!(host.delay(ms(5_200)), Duration::from_millis(1_125), "a new window");
}

#[test]
fn a_quota_is_counted_down_until_the_host_tells_anew() {
    let mut host = PacedHost::new();
    host.visit(left(2, 30), at(0));
    let first = host.send(at(5));
    assert_eq!(host.delay(at(5)), Duration::from_millis(14_750));
    host.send(at(20));
    assert_eq!(host.delay(at(20)), Duration::from_millis(10_100), "nothing is left until 30.1 s");
    host.hear(first, left(5, 10), at(21));
    assert_eq!(host.delay(at(21)), Duration::from_millis(1_900));
}

#[test]
fn requests_in_flight_are_subtracted() {
    let mut host = PacedHost::new();
    let epoch = host.send(at(0));
    let heard =
        PaceReport { epoch, signals: left(10, 60), load: PaceLoad { in_flight: 5, places: 8 }, took: Duration::ZERO };
    host.pace.heard(heard, BASE, &host.learning, at(0));
    assert_eq!(host.delay(at(0)), Duration::from_millis(11_900));
}

#[test]
fn a_used_up_quota_holds_the_host() {
    let mut host = PacedHost::new();
    let change = host.visit(Signals { used_up: Some(secs(30)), ..OK }, at(0)).unwrap();
    let until = at(30) + Duration::from_millis(100);
    assert_eq!((change.what, change.hold), (What::Held, Some(Hold { until, cause: Cause::Quota })));
    host.send(until);
    assert_eq!(host.delay(until), secs(10), "until an answer says how much is left");
    host.visit(OK, until);
    assert_eq!(host.delay(until), Duration::ZERO, "there is no quota any more");
}

#[test]
fn a_quota_counts_for_an_hour_at_most() {
    let mut host = PacedHost::new();
    host.visit(left(10_000, 86_400), at(0));
    assert_eq!(host.delay(at(3_600)), Duration::from_millis(8_640));
    host.visit(OK, at(3_601));
    assert_eq!(host.delay(at(3_601)), Duration::ZERO);
}

#[test]
fn a_quota_stands_in_for_what_was_guessed_until_it_is_contradicted() {
    let mut host = PacedHost::taught(20);
    host.visit(left(10, 60), at(0));
    assert_eq!(host.delay(at(0)), Duration::from_millis(5_950));
    assert_eq!(host.pace.told(BASE, &host.learning, at(0)), Some((Duration::from_millis(5_950), true)));
    host.visit(Signals { answer: PaceSignal::Throttled, ..left(9, 60) }, at(1));
    assert_eq!(host.delay(at(1)), secs(21));
    host.visit(left(1, 60), at(2));
    assert_eq!(host.delay(at(2)), Duration::from_millis(59_500), "it may still slow down");
    host.visit(left(10, 60), at(601));
    assert_eq!(host.delay(at(601)), Duration::from_millis(5_950), "after ten minutes it is believed again");
}

#[test]
fn a_refusal_with_a_used_up_quota_contradicts_nothing() {
    let mut host = PacedHost::new();
    host.visit(Signals { used_up: Some(secs(5)), ..REFUSED }, at(0));
    assert_eq!(host.pace.told(BASE, &host.learning, at(0)).map(|(_, believed)| believed), Some(true));
    host.visit(left(10, 60), at(9));
    host.visit(REFUSED, at(10));
    assert_eq!(host.pace.told(BASE, &host.learning, at(10)).map(|(_, believed)| believed), Some(false));
}

/// `politeness.delay = "0s"` asks for no pacing: nothing is slower than that before the host refuses.
#[test]
fn without_a_configured_delay_auto_begins_without_one() {
    let learning = Learning { learner: Learner::Auto, ..Learning::default() };
    let mut pace = Pace::new();
    let (base, mut now) = (Duration::ZERO, Timestamp::from_millis(1_000_000));
    let load = PaceLoad { in_flight: 0, places: 4 };
    pace.follow(&learning, now);
    let mut ask = |answer| {
        now = now + Duration::from_millis(100);
        let epoch = pace.sent(load, base, &learning, now);
        let signals = Signals { answer, ..Signals::SERVED };
        let heard = PaceReport { epoch, signals, load, took: Duration::ZERO };
        let only_counts = answer == PaceSignal::Success && pace.only_counts(&heard, base, &learning, now);
        if !only_counts {
            pace.heard(heard, base, &learning, now);
        }
        (only_counts, pace.delay(base, &learning, now))
    };
    assert_eq!(ask(PaceSignal::Success), (true, Duration::ZERO));
    ask(PaceSignal::Throttled);
    assert!(ask(PaceSignal::Success).1 > Duration::ZERO);
}
