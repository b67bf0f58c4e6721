//! What a host taught and what an operator set, as the short texts that Redis stores.
//!
//! Times are what is left of them, because nodes' clocks differ. A text that cannot be read counts as none: keys may be
//! written by others. Redis stores a host in half the memory while no text is longer than 64 bytes, so a quota and what
//! `auto` measured are written only if there are any.

use std::str::Split;
use std::time::Duration;

use crate::politeness::pace::{LimitRecord, PaceRecord, QuotaRecord};
use crate::politeness::policy::Overrides;

/// The record of a host that has taught nothing, or whose lesson is forgotten.
pub const NONE: &str = "0";
/// Begins the numbers of a quota, and those of `auto`.
const QUOTA: &str = "q";
const LIMIT: &str = "a";

pub fn write(record: &PaceRecord) -> String {
    let PaceRecord { learned, floor, floor_life_s, floor_left_s, probed_from, epoch, raised, errors, .. } = record;
    let mut text = format!("{learned} {floor} {floor_life_s} {floor_left_s} {probed_from} {epoch} {raised} {errors}");
    if let Some(QuotaRecord { left, every, reset_left_ms, doubt_left_s }) = record.quota {
        text += &format!(" {QUOTA} {left} {every} {reset_left_ms} {doubt_left_s}");
    }
    if let Some(LimitRecord { phase, rate, limit, refused_rate, refused_left_s, bans, confirmed, .. }) = record.limit {
        text += &format!(" {LIMIT} {phase} {rate} {limit} {refused_rate} {refused_left_s} {bans} {confirmed}");
    }
    if let Some(LimitRecord { next_left_s, canaries, refused_ago_ms, .. }) = record.limit {
        text += &format!(" {next_left_s} {canaries} {refused_ago_ms}");
    }
    text
}

pub fn read(text: &str) -> Option<PaceRecord> {
    let mut words = text.split(' ');
    let mut record = PaceRecord {
        learned: number(&mut words)?,
        floor: number(&mut words)?,
        floor_life_s: number(&mut words)?,
        floor_left_s: number(&mut words)?,
        probed_from: number(&mut words)?,
        epoch: number(&mut words)?,
        raised: number(&mut words)?,
        errors: u16::try_from(number(&mut words)?).ok()?,
        quota: None,
        limit: None,
    };
    while let Some(part) = words.next() {
        match part {
            QUOTA => record.quota = Some(read_quota(&mut words)?),
            LIMIT => record.limit = Some(read_limit(&mut words)?),
            _ => return None,
        }
    }
    Some(record)
}

fn read_quota(words: &mut Split<'_, char>) -> Option<QuotaRecord> {
    Some(QuotaRecord {
        left: number(words)?,
        every: number(words)?,
        reset_left_ms: number(words)?,
        doubt_left_s: number(words)?,
    })
}

fn read_limit(words: &mut Split<'_, char>) -> Option<LimitRecord> {
    Some(LimitRecord {
        phase: u8::try_from(number(words)?).ok()?,
        rate: number(words)?,
        limit: number(words)?,
        refused_rate: number(words)?,
        refused_left_s: number(words)?,
        bans: u8::try_from(number(words)?).ok()?,
        confirmed: u16::try_from(number(words)?).ok()?,
        next_left_s: number(words)?,
        canaries: u8::try_from(number(words)?).ok()?,
        refused_ago_ms: number(words)?,
    })
}

fn number(words: &mut Split<'_, char>) -> Option<u32> {
    words.next()?.parse().ok()
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
        let plain = PaceRecord {
            learned: 2_500,
            floor: 2_000,
            floor_life_s: 600,
            floor_left_s: 77,
            probed_from: 3_500,
            epoch: 9,
            raised: 7,
            errors: 1,
            ..PaceRecord::default()
        };
        let quota = QuotaRecord { left: 3, every: 1_500, reset_left_ms: 6_000, doubt_left_s: 600 };
        let limit =
            LimitRecord { phase: 3, rate: 1_234, bans: 2, canaries: 1, refused_ago_ms: 77, ..Default::default() };
        let told = PaceRecord { quota: Some(quota), ..plain };
        let measured = PaceRecord { limit: Some(limit), ..plain };
        for record in [plain, told, measured, PaceRecord { quota: Some(quota), ..measured }] {
            assert_eq!(read(&write(&record)), Some(record));
        }
        assert!(write(&plain).len() <= 64, "Redis needs twice the memory for a longer text");
        let odd = ["", NONE, "1 2", "a b c d e f g h", "-1 0 0 0 0 0 0 0", "99999999999 0 0 0 0 0 0 0"];
        for odd in odd.into_iter().chain(["0 0 0 0 0 0 0 0 q 1", "0 0 0 0 0 0 0 0 a 999 0 0 0 0 0 0 0 0 0"]) {
            assert_eq!(read(odd), None, "{odd:?}");
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
