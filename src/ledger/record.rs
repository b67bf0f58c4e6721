//! What a host taught and what an operator set, as the short texts that Redis stores.
//!
//! Times are seconds before now, because nodes' clocks differ. A text that cannot be read counts as none: keys may be
//! written by others.

use std::time::Duration;

use crate::politeness::pace::PaceMemory;
use crate::politeness::policy::Overrides;
use crate::politeness::time::Timestamp;

/// The record of a host that has taught nothing, or whose lesson is forgotten.
pub const NONE: &str = "0";

/// Writes the learned delay, the floor, the life of the floor and what is left of it.
pub fn write(pace: &PaceMemory) -> String {
    let PaceMemory { learned, floor, floor_life, floor_until, updated } = pace;
    let left = floor_until.since(*updated).as_secs();
    format!("{} {} {} {left}", learned.as_millis(), floor.as_millis(), floor_life.as_secs())
}

pub fn read(text: &str, now: Timestamp) -> Option<PaceMemory> {
    let mut numbers = text.split(' ').map(|number| number.parse::<u32>().ok());
    let learned = numbers.next()??;
    let (floor, life, left) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(PaceMemory {
        learned: Duration::from_millis(learned.into()),
        floor: Duration::from_millis(floor.into()),
        floor_life: Duration::from_secs(life.into()),
        floor_until: now + Duration::from_secs(left.into()),
        updated: now,
    })
}

/// Returns the learned delay of a record.
pub fn learned(text: Option<&str>) -> Duration {
    read(text.unwrap_or_default(), Timestamp::START).map_or(Duration::ZERO, |pace| pace.learned)
}

pub fn write_overrides(overrides: &Overrides) -> String {
    let Overrides { delay, burst, concurrency } = *overrides;
    let text = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let delay = text(delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)));
    format!("{delay} {} {}", text(burst.map(u64::from)), text(concurrency.map(u64::from)))
}

pub fn read_overrides(text: &str) -> Overrides {
    let mut numbers = text.split(' ').map(|number| number.parse::<u32>().ok());
    Overrides {
        delay: numbers.next().flatten().map(|millis| Duration::from_millis(millis.into())),
        burst: numbers.next().flatten(),
        concurrency: numbers.next().flatten(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_way() {
        let now = Timestamp::from_millis(1_000_000);
        let pace = PaceMemory {
            learned: Duration::from_millis(2_500),
            floor: Duration::from_secs(2),
            floor_life: Duration::from_secs(600),
            floor_until: now + Duration::from_secs(77),
            updated: now,
        };
        assert_eq!(read(&write(&pace), now), Some(pace));
        assert_eq!(learned(Some(&write(&pace))), pace.learned);
        for odd in ["", NONE, "1 2", "a b c d", "-1 0 0 0", "99999999999 0 0 0"] {
            assert_eq!(read(odd, now), None, "{odd:?}");
        }
    }

    #[test]
    fn overrides_survive_the_way() {
        for (delay, burst, concurrency) in [(None, None, None), (Some(0), None, Some(2)), (Some(5_000), Some(3), None)]
        {
            let overrides = Overrides { delay: delay.map(Duration::from_millis), burst, concurrency };
            assert_eq!(read_overrides(&write_overrides(&overrides)), overrides);
        }
        assert_eq!(read_overrides("nonsense"), Overrides::default());
    }
}
