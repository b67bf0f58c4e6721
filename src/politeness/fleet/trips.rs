//! How long the ledger takes to answer: the lead with which a claim goes out.

/// The round trips that are remembered.
const KEPT: usize = 64;
/// The percentiles are counted again after so many round trips.
const COUNTED_EVERY: u32 = 8;

#[derive(Clone, Debug)]
pub struct RoundTrips {
    micros: [u32; KEPT],
    len: u32,
    p90: u64,
    p97: u64,
}

impl Default for RoundTrips {
    fn default() -> Self {
        RoundTrips { micros: [0; KEPT], len: 0, p90: 0, p97: 0 }
    }
}

impl RoundTrips {
    pub fn took(&mut self, micros: u64) {
        self.micros[self.len as usize % KEPT] = u32::try_from(micros).unwrap_or(u32::MAX);
        self.len = if self.len == u32::MAX { KEPT as u32 } else { self.len + 1 };
        if self.len.is_multiple_of(COUNTED_EVERY) || self.len < COUNTED_EVERY {
            let mut sorted = self.micros;
            let known = &mut sorted[..(self.len as usize).min(KEPT)];
            known.sort_unstable();
            let part = |percent: usize| u64::from(known[(known.len() * percent / 100).min(known.len() - 1)]);
            (self.p90, self.p97) = (part(90), part(97));
        }
    }

    /// Returns how long nine of ten answers take at most.
    pub fn usual(&self) -> u64 {
        self.p90
    }

    /// Returns how long before its time a claim goes out, so that the answer is there in time.
    pub fn lead(&self) -> u64 {
        self.p97 * 12 / 10 + 700
    }

    /// Returns how far ahead of its time a claim may be granted. It hides the round trip and a late timer.
    pub fn early(&self) -> u64 {
        self.lead() + 10_000
    }

    /// Returns how far ahead a start must lie at least, so that the way back leaves half of its window.
    pub fn reach(&self, window: u64) -> u64 {
        self.p90.saturating_sub(window / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_follows_the_slowest_answers() {
        let mut trips = RoundTrips::default();
        assert_eq!((trips.lead(), trips.reach(5_000)), (700, 0));
        (0..64).for_each(|_| trips.took(200));
        assert_eq!((trips.lead(), trips.early(), trips.reach(5_000)), (940, 10_940, 0));
        (0..64).for_each(|_| trips.took(26_000));
        assert_eq!((trips.lead(), trips.reach(5_000)), (31_900, 23_500));
    }
}
