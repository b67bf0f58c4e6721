//! Turns: may the next request start now, and if not, when?
//!
//! A turn is claimed now or refused with a time, never reserved for later. Three methods handle it: [`Turns::claim`]
//! takes one, [`Turns::sent`] charges it at the moment the request head is written, [`Turns::give_back`] returns it
//! unspent.
//!
//! Promises:
//! - Spacing counts from the real send. A claimed turn costs nothing until it is sent; until then it blocks the others
//!   as if it were sent this very moment, so the time between claim and send cannot compress the next gap.
//! - With a burst of 1 two sends are never closer than the delay in force. A larger burst is a token bucket: one token
//!   comes back each delay, and a change of the numbers, a hold or a restart never adds one.
//! - Nothing starts before the end of a hold, and right after it exactly one request may.
//! - A time given with a refusal is exact: a claim at that time succeeds unless something is reported in between.
//!
//! governor's GCRA charges at the claim and cannot give a turn back, so it cannot keep the first promise:
//! docs/decisions/0003. This module must not know which visits wait, or why the delay is what it is.

use std::time::Duration;

use super::bars::{Bars, Held};
use super::time::{Timestamp, whole_micros};

/// How far apart starts must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spacing {
    /// Zero = no spacing.
    pub delay: Duration,
    /// 0 is read as 1.
    pub burst: u32,
    /// The largest part of the delay that jitter adds to a gap.
    pub jitter: f64,
}

/// Why a turn was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// A claim at this time will succeed.
    Until(Timestamp),
    /// The next time is known once an earlier turn has been sent or given back.
    UntilSent,
}

/// What the host was owed when the latest turn was claimed. The turn is judged by these values even if the numbers
/// change before the head is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    pub delay: Duration,
    pub burst: u32,
    pub held_until: Timestamp,
}

/// What must survive when a lane is forgotten or the process ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnsMemory {
    pub last_sent: Option<Timestamp>,
    /// Worth keeping even after the hold has ended: nothing was saved up during it.
    pub held_until: Option<Timestamp>,
}

/// The turns of one host. The fields are in the order in which a claim needs them.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Turns {
    spacing: Spacing,
    last_sent: Option<Timestamp>,
    bars: Bars,
    /// Turns claimed and neither sent nor given back.
    unsent: u32,
    /// Other nodes that take turns with this one.
    others: u32,
    /// The random share of the jitter in the gap after the last send, from 0 to 1.
    luck: f64,
    /// Millionths of a token that there were at `counted`. Kept whatever the burst is, so that a larger burst starts
    /// with what was saved and not with a full bucket.
    tokens: u64,
    counted: Timestamp,
    owed: Owed,
    dice: u64,
    /// Set if the last send was a robots.txt fetch that a page may follow at once.
    fetch: Option<Fetch>,
}

#[derive(Clone, Copy, Debug)]
struct Fetch {
    /// The send before the fetch. The page keeps its distance from that send.
    before: Option<Timestamp>,
}

const TOKEN: u64 = 1_000_000;

impl Turns {
    /// The turns of a host that was never visited.
    pub fn new(spacing: Spacing, seed: u64) -> Self {
        Turns {
            spacing,
            last_sent: None,
            tokens: full(&spacing),
            counted: Timestamp::START,
            bars: Bars::default(),
            luck: 0.0,
            unsent: 0,
            owed: Owed::default(),
            dice: seed,
            fetch: None,
            others: 0,
        }
    }

    /// The turns of a host that was visited before: as if the last send had taken the last token.
    pub fn remembering(spacing: Spacing, memory: TurnsMemory, seed: u64, now: Timestamp) -> Self {
        let mut turns = Turns::new(spacing, seed);
        if let Some(last) = memory.last_sent {
            // A wall clock that was set back must not close the host until it has caught up.
            turns.last_sent = Some(last.min(now));
            turns.counted = last.min(now);
            turns.tokens = 0;
        }
        if let Some(until) = memory.held_until {
            turns.tokens = turns.tokens.min(TOKEN);
            turns.bars = Bars::remembering(until);
        }
        turns
    }

    pub fn memory(&self) -> TurnsMemory {
        let held_until = Some(self.bars.held_until).filter(|until| *until > Timestamp::START);
        TurnsMemory { last_sent: self.last_sent, held_until }
    }

    /// Takes a turn. The caller settles it with [`Turns::sent`] or [`Turns::give_back`].
    pub fn claim(&mut self, now: Timestamp) -> Result<(), NotYet> {
        self.check(now)?;
        self.give();
        Ok(())
    }

    /// Same as [`Turns::claim`], for a page that waited for its robots.txt: if the fetch was the last send, the page
    /// need not keep its distance from the fetch.
    pub fn claim_after_fetch(&mut self, now: Timestamp) -> Result<(), NotYet> {
        self.check_after_fetch(now)?;
        self.give();
        Ok(())
    }

    /// Takes a turn that was checked just now.
    pub fn give(&mut self) {
        self.unsent += 1;
        let held_until = self.bars.held_or_closed_until();
        self.owed = Owed { delay: self.spacing.delay, burst: self.spacing.burst.max(1), held_until };
    }

    /// Takes a turn without a check, where pacing is not enforced. It is settled like any other turn, so that later
    /// claims are spaced from it.
    pub fn take(&mut self) {
        self.unsent += 1;
    }

    /// Charges a turn: the head of its request was written at `now`.
    pub fn sent(&mut self, now: Timestamp) {
        self.give_back();
        if self.spacing.delay.is_zero() {
            (self.tokens, self.counted) = (0, self.counted.max(now));
        } else {
            self.count(now);
            self.tokens = self.tokens.saturating_sub(TOKEN);
        }
        self.last_sent = self.last_sent.max(Some(now));
        self.fetch = None;
        if self.spacing.jitter > 0.0 {
            self.luck = roll(&mut self.dice);
        }
    }

    /// Same as [`Turns::sent`], for a robots.txt fetch that a page may follow at once.
    pub fn sent_fetch(&mut self, now: Timestamp) {
        let before = self.last_sent;
        self.sent(now);
        self.fetch = Some(Fetch { before });
    }

    pub fn give_back(&mut self) {
        debug_assert!(self.unsent > 0, "a turn is settled once");
        self.unsent = self.unsent.saturating_sub(1);
    }

    /// Allows no claim before `until`. Holds only ever grow. Returns whether the hold is news that must outlive
    /// the lane.
    pub fn hold(&mut self, until: Timestamp, cause: Held, now: Timestamp) -> bool {
        self.bars.hold(until, cause, now)
    }

    /// Allows no claim before `until`, because other instances that share this host's turns took them. Unlike a hold,
    /// this empties no bucket.
    pub fn taken_elsewhere(&mut self, until: Timestamp) {
        self.bars.taken_until = self.bars.taken_until.max(until);
    }

    /// Takes the word of the ledger that other nodes share: no claim before `until`, and `others` nodes take turns with
    /// this one. Replaces the word before.
    pub fn told_elsewhere(&mut self, until: Timestamp, others: u32) {
        (self.bars.told_until, self.others) = (until, others);
    }

    pub fn others(&self) -> u32 {
        self.others
    }

    /// Returns the gap before the next start, jitter included.
    pub fn gap(&self) -> Duration {
        self.spacing.delay.saturating_add(self.extra())
    }

    /// Charges a failed connection attempt that began at `began`. It costs the host's next turn, as a request would: a
    /// host that refuses connections must not be asked faster than one that answers.
    pub fn charge_attempt(&mut self, began: Timestamp) {
        self.bars.taken_until = self.earliest(began) + self.spacing.delay;
    }

    /// Allows no claim before `until`, because an operator closed the host. Unlike a hold, this can be shortened, and
    /// reopening ends no hold.
    pub fn close(&mut self, until: Timestamp) {
        self.bars.closed_until = until;
    }

    /// Changes the spacing. The new numbers count from the last send on. What was saved up stays, within the smaller of
    /// the two bursts.
    pub fn change(&mut self, spacing: Spacing, now: Timestamp) {
        if spacing == self.spacing {
            return;
        }
        let unpaced = self.spacing.delay.is_zero();
        self.count(if unpaced { self.last_sent.unwrap_or(now) } else { now });
        self.tokens = self.tokens.min(full(&spacing));
        self.spacing = spacing;
    }

    /// Returns when the visit behind `ahead` others can start at the latest, if each of them starts as soon as it may
    /// and jitter adds the most it can.
    pub fn predict(&self, ahead: usize, now: Timestamp) -> Timestamp {
        let free = now.max(self.bars.until());
        if self.spacing.delay.is_zero() {
            return free;
        }
        let ahead = (ahead as u64).saturating_add(u64::from(self.unsent)).saturating_mul(u64::from(self.others) + 1);
        if self.spacing.burst <= 1 {
            return self.spaced(0).max(free) + self.longest_gaps(ahead.saturating_mul(TOKEN));
        }
        let needed = ahead.saturating_add(1).saturating_mul(TOKEN);
        // Jitter may delay the first visit although there is a token.
        let first = self.spaced(0).max(free);
        first + self.longest_gaps(needed.saturating_sub(self.tokens_at(first)))
    }

    /// Returns how many visits could start now, one right after the other, by the spacing alone.
    pub fn left(&self, now: Timestamp) -> u32 {
        let saved = match self.spacing.burst {
            _ if self.spacing.delay.is_zero() => self.spacing.burst.max(1),
            0 | 1 => u32::from(self.spaced(0) <= now),
            burst => u32::try_from(self.tokens_at(now) / TOKEN).unwrap_or(burst),
        };
        saved.saturating_sub(self.unsent)
    }

    pub fn owed(&self) -> Owed {
        self.owed
    }

    pub fn spacing(&self) -> Spacing {
        self.spacing
    }

    pub fn bars(&self) -> &Bars {
        &self.bars
    }

    /// Returns the time before which no visit that asks now can start.
    pub fn earliest(&self, now: Timestamp) -> Timestamp {
        now.max(self.bars.until()).max(self.spaced(0))
    }

    /// Returns when a claim will succeed; never, while that depends on a turn that is not sent yet.
    pub fn next_claim(&self, now: Timestamp) -> Timestamp {
        match self.check(now) {
            Ok(()) => now,
            Err(NotYet::Until(until)) => until,
            Err(NotYet::UntilSent) => Timestamp::NEVER,
        }
    }

    /// Returns the same turns with nothing claimed, to try out what would happen.
    pub fn shadow(&self) -> Turns {
        Turns { unsent: 0, ..*self }
    }

    /// Returns whether forgetting these turns would grant a visit an earlier start. `burst` is what the host starts
    /// with when it is known again, whatever keeps it smaller now: the host must have been quiet long enough to have
    /// saved all of it up.
    #[cfg(test)]
    pub fn owes(&self, burst: u32, now: Timestamp) -> bool {
        self.owes_until(burst) > now
    }

    /// Returns until when forgetting these turns would grant an earlier start; never, while a turn is neither sent nor
    /// given back.
    pub fn owes_until(&self, burst: u32) -> Timestamp {
        if self.unsent > 0 {
            return Timestamp::NEVER;
        }
        let quiet_since = self.last_sent.max(self.memory().held_until);
        let saving_up = self.spacing.delay.saturating_mul(burst.max(1));
        let saved_up = quiet_since.map_or(Timestamp::START, |since| since + saving_up);
        saved_up.max(self.bars.until()).max(self.spaced(0))
    }

    fn check(&self, now: Timestamp) -> Result<(), NotYet> {
        let unpaced = self.spacing.delay.is_zero();
        // A turn that was claimed without a burst keeps its distance from the one before: no other turn may come
        // between.
        let alone = self.unsent > 0 && self.owed.burst == 1 && !self.owed.delay.is_zero();
        if alone || (!unpaced && self.unsent >= self.spacing.burst.max(1)) {
            return Err(NotYet::UntilSent);
        }
        let earliest = self.spaced(self.unsent).max(self.bars.until());
        if now < earliest { Err(NotYet::Until(earliest)) } else { Ok(()) }
    }

    /// Checks whether a page that waited for its robots.txt can start now.
    pub fn check_after_fetch(&self, now: Timestamp) -> Result<(), NotYet> {
        let Some(Fetch { before }) = self.fetch.filter(|_| self.unsent == 0) else { return self.check(now) };
        // With a larger burst, the fetch took a turn that was saved up, and the page shares it.
        let before = before.filter(|_| self.spacing.burst <= 1);
        let spaced = before.map_or(Timestamp::START, |before| before + self.spacing.delay + self.extra());
        let earliest = spaced.max(self.bars.until());
        if now < earliest { Err(NotYet::Until(earliest)) } else { Ok(()) }
    }

    /// Returns when a visit can start at the latest if gaps of this total have to pass before it. `least` is the
    /// smallest of these gaps. Each visit before it starts as soon as it may, and the last gap is its own. For visits
    /// with different spacing.
    pub fn predict_gaps(&self, gaps: Duration, least: Duration, now: Timestamp) -> Timestamp {
        let gaps = gaps.saturating_mul(self.others.saturating_add(1));
        let free = now.max(self.bars.until()) + gaps.saturating_sub(least);
        let last = if self.unsent > 0 { Some(now) } else { self.last_sent };
        last.map_or(free, |last| free.max(last + gaps))
    }

    /// Returns when there is room for one more start besides `others` that may come at any moment.
    fn spaced(&self, others: u32) -> Timestamp {
        if self.spacing.delay.is_zero() {
            return Timestamp::START;
        }
        if self.spacing.burst <= 1 {
            return self.last_sent.map_or(Timestamp::START, |last| last + self.spacing.delay + self.extra());
        }
        let from = self.counted.max(self.bars.held_until);
        let missing = (u64::from(others) + 1).saturating_mul(TOKEN).saturating_sub(self.tokens_at(from));
        if missing == 0 { Timestamp::START } else { from + self.refill_time(missing) + self.extra() }
    }

    fn count(&mut self, now: Timestamp) {
        self.tokens = self.tokens_at(now);
        self.counted = self.counted.max(now);
    }

    /// Returns the tokens there are at a time. No more than one token is saved up during a hold.
    fn tokens_at(&self, at: Timestamp) -> u64 {
        let (full, held_until) = (full(&self.spacing), self.bars.held_until);
        if self.counted >= held_until {
            return self.tokens.saturating_add(self.refill(self.counted, at)).min(full);
        }
        let held = self.tokens.saturating_add(self.refill(self.counted, at.min(held_until))).min(TOKEN);
        held.saturating_add(self.refill(held_until, at)).min(full)
    }

    /// Returns what comes back between two times, rounded down. While nothing is spaced, nothing is saved up.
    fn refill(&self, from: Timestamp, to: Timestamp) -> u64 {
        let delay = whole_micros(self.spacing.delay);
        let passed = to.as_micros().saturating_sub(from.as_micros());
        if delay == 0 { 0 } else { clamp(u128::from(passed) * u128::from(TOKEN) / u128::from(delay)) }
    }

    /// Returns how long this many millionths of a token take, rounded up, so that the tokens are there at the end of
    /// it.
    fn refill_time(&self, millionths: u64) -> Duration {
        let delay = whole_micros(self.spacing.delay);
        Duration::from_micros(match millionths.checked_mul(delay) {
            Some(product) => product.div_ceil(TOKEN),
            None => clamp((u128::from(millionths) * u128::from(delay)).div_ceil(u128::from(TOKEN))),
        })
    }

    /// Returns the longest time that these gaps can take. Jitter is added to every gap as a whole, even if the gap is
    /// nearly over.
    fn longest_gaps(&self, millionths: u64) -> Duration {
        let whole = self.refill_time(millionths.div_ceil(TOKEN).saturating_mul(TOKEN));
        self.refill_time(millionths).saturating_add(share(whole, self.spacing.jitter))
    }

    fn extra(&self) -> Duration {
        share(self.spacing.delay, self.spacing.jitter * self.luck)
    }
}

fn full(spacing: &Spacing) -> u64 {
    u64::from(spacing.burst.max(1)) * TOKEN
}

fn clamp(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

fn share(duration: Duration, part: f64) -> Duration {
    if part > 0.0 {
        Duration::try_from_secs_f64(duration.as_secs_f64() * part).unwrap_or(Duration::MAX)
    } else {
        Duration::ZERO
    }
}

/// One step of splitmix64 (Steele, Lea, Flood 2014), as a number from 0 up to but not including 1.
fn roll(dice: &mut u64) -> f64 {
    *dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *dice;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
