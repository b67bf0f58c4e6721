//! Slow answers: a host that becomes slow is asked more slowly. Only lowers the pace.

/// Answers between two looks, and the weight of one in the mean (TCP weighs a round trip by an eighth: RFC 6298).
const EVERY: u8 = 16;
/// The mean of slow answers, as a multiple of the quickest mean: from the first on the pace grows no more, from the
/// second on it falls. Envoy and Netflix use similar gradients.
const SLOW: (f32, f32) = (2.0, 3.0);
/// Answers that take less than this are quick, however much quicker others were. A choice, not measured.
const QUICK: f32 = 0.05;
/// Slow answers alone lower the pace to no less than this share: if that does not help, it is not the pace.
const SLOWEST: f32 = 0.2;

#[derive(Clone, Debug, Default)]
pub(super) struct LatencyGuard {
    mean: f32,
    /// The quickest mean so far; zero if there is none yet.
    quickest: f32,
    /// The highest pace allowed; zero if there is none.
    rate: f32,
    heard: u8,
}

impl LatencyGuard {
    pub(super) fn heard(&mut self, took: f32, rate: f32) {
        self.mean += (took - self.mean) * if self.mean == 0.0 { 1.0 } else { 1.0 / f32::from(EVERY) };
        self.heard = (self.heard + 1) % EVERY;
        if self.heard > 0 {
            return;
        }
        self.quickest = if self.quickest == 0.0 { self.mean } else { self.quickest.min(self.mean) };
        let (slowed, bound) = (self.mean / self.quickest.max(QUICK), self.bound(rate));
        if slowed > SLOW.1 && bound <= SLOWEST * rate {
            self.quickest = self.mean;
        } else if slowed > SLOW.0 {
            self.rate = if slowed > SLOW.1 { 0.85 * bound } else { bound };
        } else {
            self.rate = if self.rate < 1.25 * rate { 1.05 * self.rate } else { 0.0 };
        }
    }

    pub(super) fn bound(&self, rate: f32) -> f32 {
        if self.rate > 0.0 { rate.min(self.rate) } else { rate }
    }

    /// Whether the next answer may change the pace.
    pub(super) fn is_due(&self) -> bool {
        self.heard + 1 == EVERY
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.rate == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(guard: &mut LatencyGuard, took: f32, times: usize) -> f32 {
        (0..times).for_each(|_| guard.heard(took, 10.0));
        guard.bound(10.0)
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
