//! Slow answers: a host that becomes slow is asked more slowly. Only lowers the pace.

/// Answers between two looks, and the weight of one in the mean (TCP weighs a round trip by an eighth: RFC 6298).
const EVERY: u8 = 16;
/// The mean of slow answers, as a multiple of the quickest mean: below the first the pace rises again, above the second
/// it falls. Envoy and Netflix use similar gradients.
const SLOW: (f32, f32) = (2.0, 3.0);
/// Answers that take less than this are quick, however much quicker others were. A choice, not measured.
const QUICK: f32 = 0.05;
/// What a look takes from the pace. After ten of them, at a fifth, slow answers are not about the pace.
const STEP: f32 = 0.85;
const MOST: u8 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct LatencyGuard {
    mean: f32,
    /// The quickest mean so far; zero if there is none yet.
    quickest: f32,
    heard: u8,
    steps: u8,
}

impl LatencyGuard {
    pub(super) fn heard(&mut self, took: f32) {
        self.mean += (took - self.mean) * if self.mean == 0.0 { 1.0 } else { 1.0 / f32::from(EVERY) };
        self.heard = (self.heard + 1) % EVERY;
        if self.heard > 0 {
            return;
        }
        self.quickest = if self.quickest == 0.0 { self.mean } else { self.quickest.min(self.mean) };
        let slowed = self.mean / self.quickest.max(QUICK);
        if slowed > SLOW.1 && self.steps == MOST {
            self.quickest = self.mean;
        } else if slowed > SLOW.1 {
            self.steps += 1;
        } else if slowed < SLOW.0 {
            self.steps = self.steps.saturating_sub(1);
        }
    }

    /// The share of the pace that remains.
    pub(super) fn share(&self) -> f32 {
        STEP.powi(self.steps.into())
    }

    /// Whether the next answer may change the pace.
    pub(super) fn is_due(&self) -> bool {
        self.heard + 1 == EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(guard: &mut LatencyGuard, took: f32, times: usize) -> f32 {
        (0..times).for_each(|_| guard.heard(took));
        10.0 * guard.share()
    }

    #[test]
    fn slow_answers_lower_the_pace_and_quick_ones_raise_it_again() {
        let mut guard = LatencyGuard::default();
        assert_eq!(hear(&mut guard, 0.1, 64), 10.0);
        assert!(hear(&mut guard, 0.6, 96) < 9.0);
        assert_eq!(hear(&mut guard, 0.1, 800), 10.0);
    }

    #[test]
    fn answers_within_milliseconds_are_never_slow() {
        let mut guard = LatencyGuard::default();
        hear(&mut guard, 0.001, 64);
        assert_eq!(hear(&mut guard, 0.04, 640), 10.0);
    }

    #[test]
    fn heavier_pages_do_not_slow_a_host_for_ever() {
        let mut guard = LatencyGuard::default();
        hear(&mut guard, 0.1, 64);
        let lowest = (0..200).map(|_| hear(&mut guard, 2.0, 16)).fold(10.0, f32::min);
        assert!((1.5..=2.5).contains(&lowest), "{lowest}");
        assert_eq!(hear(&mut guard, 2.0, 3200), 10.0);
    }
}
