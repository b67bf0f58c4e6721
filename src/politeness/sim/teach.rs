//! Hosts that teach: answers that say "too fast", and how a lane may react to them.
//!
//! The pace decides how much is learned and is tested by itself. Here the lane is checked against the promises: a
//! refusal slows down, a burst of refusals once, a success never; what the host asked for is kept. From then on the
//! lane is checked by the delay, the hold and the limit that it reports.

use std::time::Duration;

use super::Flaw;
use super::oracle::{BrokenPromise, Oracle, Promise, broken};
use super::world::World;
use crate::politeness::breaker::{BreakerChange, Tolerance};
use crate::politeness::lane::{Lane, LaneLesson};
use crate::politeness::pace::Learning;
use crate::politeness::policy::LearningPolicy;
use crate::politeness::signals::{PaceSignal, Signals};
use crate::politeness::visit::VisitOutcome;

/// Learns faster than the defaults, with which a world of a minute and a half would see little of it.
pub(super) fn schooling() -> LearningPolicy {
    let learning = Learning {
        step_up: Duration::from_millis(700),
        step_down: Duration::from_millis(500),
        successes: 4,
        concurrency_step: Duration::from_secs(1),
        // More than a world can teach: what happens at the limit is tested with the pace.
        max_delay: Duration::from_secs(30),
        longest_window: Duration::from_secs(30),
        floor_life: Duration::from_secs(10),
        ..Learning::default()
    };
    let (cooldown, longest_cooldown) = (Duration::from_secs(2), Duration::from_secs(8));
    let tolerance = Tolerance { failures: 3, cooldown, longest_cooldown, throttled: 0 };
    LearningPolicy { learning, tolerance, ..LearningPolicy::default() }
}

impl Oracle {
    /// Returns how many visits may be in flight: one less for each whole step of the learned delay above the delay that
    /// the host would get anyway.
    pub(super) fn concurrency(&self) -> usize {
        let above = self.learned.saturating_sub(self.policy.delay.max(self.robots));
        let steps =
            if self.teaches { above.as_micros() / schooling().learning.concurrency_step.as_micros() } else { 0 };
        (self.policy.concurrency as usize).saturating_sub(steps as usize).max(1)
    }

    /// Returns the longest delay that may be learned.
    fn longest(&self) -> Duration {
        schooling().learning.max_delay.max(self.policy.delay).max(self.robots)
    }
}

impl World {
    /// The host answers a guest, and the answer is reported to the lane.
    pub(super) fn report(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let guest = &self.guests[&id];
        let (host, ticket, sent, now) = (guest.host, guest.ticket, guest.sent, self.now);
        if !self.hosts[host].oracle.teaches {
            self.hosts[host].lane.report(ticket, VisitOutcome::Opened, &LearningPolicy::default(), now);
            return Ok(());
        }
        let signals = self.answer(host);
        let before = self.hosts[host].oracle.learned;
        // As the gate does, and as it would without the short path.
        let outcome = VisitOutcome::Heard(signals);
        let granted = self.dice.chance(50) && self.hosts[host].lane.takes_for_granted(ticket, outcome, now);
        let lesson = if granted { None } else { self.hosts[host].lane.report(ticket, outcome, &schooling(), now) };
        let closed = self.origin_answered(id, signals.answer);
        let has_closed = |lesson: &LaneLesson| matches!(lesson.breaker, Some(BreakerChange::Closed { .. }));
        if !self.enforced(host) && closed != lesson.as_ref().is_some_and(has_closed) {
            // Without pacing, visits of a failing origin are called beside the one that tries it.
            self.foresee_nothing(host);
            return self.forget_learned(host);
        }
        let learned = self.hosts[host].lane.delays().learned;
        self.say(|| format!("    host {host}: {signals:?} to what was sent at {sent:?}: {lesson:?}"));
        if lesson.is_some() {
            self.foresee_nothing(host);
        }
        let throttled = signals.answer == PaceSignal::Throttled;
        let (slowed, longest) = (self.hosts[host].slowed, self.hosts[host].oracle.longest());
        let is_news = sent > slowed && sent > self.hosts[host].forgot;
        let story = match () {
            () if learned > longest => "more than may be learned",
            () if !throttled && learned > before => "slower without a refusal",
            () if throttled && learned < before => "faster by a refusal",
            () if throttled && sent < slowed && learned != before => "a burst of refusals counts twice",
            () if throttled && is_news && learned == before && learned < longest => "a refusal is not heard",
            () => return self.obey(host, signals, learned),
        };
        broken(Promise::Learning, format!("{story}: {before:?}, then {learned:?}, last slowed at {slowed:?}"))
    }

    fn answer(&mut self, host: usize) -> Signals {
        let strict = self.hosts[host].oracle.delay() < Duration::from_millis(900);
        if !self.dice.chance(if strict { 25 } else { 8 }) {
            return Signals::SERVED;
        }
        let asks = self.dice.chance(40);
        let asked = self.dice.up_to(Duration::from_secs(8));
        Signals { answer: PaceSignal::Throttled, retry_after: asks.then_some(asked), ..Signals::SERVED }
    }

    /// From here on the lane is judged by what it has learned.
    fn obey(&mut self, host: usize, signals: Signals, learned: Duration) -> Result<(), BrokenPromise> {
        let now = self.now;
        let at = &mut self.hosts[host];
        if let Some(asked) = signals.retry_after {
            at.oracle.hold(now + asked, now);
        }
        let held = at.lane.held_until();
        if at.oracle.held_until > now && held < at.oracle.held_until {
            return broken(Promise::Hold, format!("held until {held:?}, asked for {:?}", at.oracle.held_until));
        }
        let longest = schooling().learning.longest_window.max(at.oracle.longest());
        if held > at.oracle.held_until.max(now + longest) {
            return broken(Promise::Learning, format!("held until {held:?} at {now:?} and not asked to"));
        }
        if learned > at.oracle.learned && held < now + learned {
            return broken(Promise::Learning, format!("refused at {now:?}, and held until {held:?} only"));
        }
        at.oracle.stand_back(held, now);
        self.tally.eased += u64::from(learned < at.oracle.learned);
        if learned > at.oracle.learned {
            self.tally.slowed += 1;
            at.slowed = now;
        }
        at.oracle.change(now, |oracle| oracle.learned = learned);
        Ok(())
    }

    /// A lane that was created again knows what the one before it had learned.
    pub(super) fn check_learned(&mut self, host: usize) -> Result<(), BrokenPromise> {
        let (now, at) = (self.now, &mut self.hosts[host]);
        let (before, learned) = (at.oracle.learned, at.lane.delays().learned);
        if !at.oracle.teaches {
            return Ok(());
        }
        // One step more is right if a trial was under way: the delay that worked is kept.
        let most = before + schooling().learning.step_down;
        if learned < before || learned > most {
            return broken(Promise::Learning, format!("{before:?} was learned, {learned:?} is remembered"));
        }
        self.tally.reminded += u64::from(!learned.is_zero());
        at.oracle.change(now, |oracle| oracle.learned = learned);
        Ok(())
    }

    /// Returns a new lane made from what survives of the old one.
    pub(super) fn remembered(&mut self, host: usize) -> Lane {
        let mut memory = self.hosts[host].lane.memory(self.now);
        if self.flawed(Flaw::ForgetsHoldsOnRestart) {
            memory.held_until = None;
        }
        if self.flawed(Flaw::ForgetsLessonsOnRestart) {
            memory.pace = None;
        }
        let seed = self.dice.next();
        Lane::remembering(self.hosts[host].oracle.policy, &memory, &schooling(), seed, self.now)
    }
}
