//! Reads and writes durations, sizes and rates.
//!
//! A number without a unit is refused, with the text to write instead: users of other tools confuse seconds and
//! milliseconds when they read 150. Everything written here can be read back without loss.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use super::values::{AddressSpan, BadValue, QuotaRate, Rate};

/// The largest unit first, as the writer needs. There is no month on purpose: `M` and `m` are too easy to confuse.
const TIME_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Reads "250ms", "1.5s", "2m", "1h 30m", "1d".
pub(super) fn read_duration(text: &str) -> Result<Duration, BadValue> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(BadValue::new("is empty", r#"write a duration such as "5s""#));
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (number, unit, after) = number_and_unit(rest);
        let count: f64 = number.parse().map_err(|_| no_duration(text))?;
        if unit.is_empty() {
            return Err(needs_time_unit(number));
        }
        let Some((_, nanos)) = TIME_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(BadValue::new(format!("has an unknown unit {unit:?}"), "units are ms, s, m, h and d"));
        };
        let part = Duration::try_from_secs_f64(count * *nanos as f64 / 1e9).ok();
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| no_duration(text))?;
        rest = after;
    }
    Ok(total)
}

/// Returns the complaint about a bare number instead of a duration.
pub(super) fn needs_time_unit(number: &str) -> BadValue {
    BadValue::new("needs a unit", format!("write \"{number}s\""))
}

/// Writes a duration in the largest unit that needs no fraction. Parts of a millisecond become a fraction of one.
pub(super) fn write_duration(duration: Duration) -> String {
    if duration.is_zero() {
        return "0s".to_owned();
    }
    let nanos = duration.as_nanos();
    match TIME_UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(u128::from(*unit))) {
        Some((name, unit)) => format!("{}{name}", nanos / u128::from(*unit)),
        None => format!("{}.{}ms", nanos / 1_000_000, format!("{:06}", nanos % 1_000_000).trim_end_matches('0')),
    }
}

/// Reads "64KiB", "1MB", "8192B".
pub(super) fn read_size(text: &str) -> Result<usize, BadValue> {
    let advice = r#"write a size such as "64KiB""#;
    let (number, unit, after) = number_and_unit(text.trim());
    let count: f64 = number.parse().map_err(|_| BadValue::new("is not a size", advice))?;
    if unit.is_empty() && after.is_empty() {
        return Err(needs_size_unit(number));
    }
    let factor = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor);
    match factor {
        Some(factor) if after.is_empty() => Ok((count * factor as f64) as usize),
        _ => Err(BadValue::new("is not a size", format!("{advice}; units are B, KiB, MiB, GiB, kB, MB and GB"))),
    }
}

pub(super) fn needs_size_unit(number: &str) -> BadValue {
    BadValue::new("needs a unit", format!("write \"{number}B\""))
}

pub(super) fn write_size(size: usize) -> String {
    let size = size as u64;
    let unit = SIZE_UNITS.iter().find(|(_, unit)| size > 0 && size.is_multiple_of(*unit));
    let (name, factor) = unit.copied().unwrap_or(("B", 1));
    format!("{}{name}", size / factor)
}

/// Reads "2/s", "30/m", "100/h", "1000/d", or a plain number of requests per second.
pub(super) fn read_rate(text: &str) -> Result<Rate, BadValue> {
    let wrong = || BadValue::new("is not a rate", r#"write a rate such as "2/s" or "30/m""#);
    let (count, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit.trim() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => {
            return Err(BadValue::new(format!("has an unknown unit {:?}", unit.trim()), "units are /s, /m, /h and /d"));
        }
    };
    let count: f64 = count.trim().parse().map_err(|_| wrong())?;
    if !count.is_finite() || count < 0.0 {
        return Err(wrong());
    }
    if count == 0.0 {
        return Err(BadValue::new("would never let a request through", r#"to turn pacing off, write delay = "0s""#));
    }
    Ok(Rate(count / seconds))
}

/// Reads "20/s" or "600/m". The count is a whole number of requests, because it also says how many may come at once:
/// "20/s" and "1200/m" differ in that.
pub(super) fn read_quota(text: &str) -> Result<QuotaRate, BadValue> {
    let advice = r#"write a whole number of requests and a time, such as "20/s" or "600/m", or "" for no limit"#;
    let wrong = || BadValue::new(format!("is not a number of requests in a time: {text:?}"), advice);
    let (requests, unit) = text.split_once('/').ok_or_else(wrong)?;
    let requests: NonZeroU32 = requests.trim().parse().map_err(|_| wrong())?;
    let (_, nanos) = quota_units().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
    if requests > MOST_IN_A_QUOTA {
        return Err(BadValue::new(format!("cannot be {text:?}"), format!("the largest allowed is {MOST_IN_A_QUOTA}")));
    }
    Ok(QuotaRate { requests, per: Duration::from_nanos(nanos) })
}

pub(super) fn write_quota(quota: &QuotaRate) -> String {
    let unit = quota_units().find(|(_, nanos)| Duration::from_nanos(*nanos) == quota.per);
    format!("{}/{}", quota.requests, unit.map_or("s", |(name, _)| name))
}

/// A larger quota, such as more than a million per second, would limit nothing: curtsy cannot serve that many.
const MOST_IN_A_QUOTA: NonZeroU32 = NonZeroU32::new(1_000_000).expect("not zero");

/// The units of a quota. A time shorter than a second would be a pace, not a quota.
fn quota_units() -> impl Iterator<Item = (&'static str, u64)> {
    TIME_UNITS.into_iter().filter(|(name, _)| *name != "ms")
}

impl FromStr for Rate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Rate, BadValue> {
        read_rate(text)
    }
}

impl FromStr for AddressSpan {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<AddressSpan, BadValue> {
        read_duration(text).map(AddressSpan)
    }
}

/// Splits "1.5s rest" into "1.5", "s" and "rest".
fn number_and_unit(text: &str) -> (&str, &str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    (number, unit, rest.trim_start())
}

fn no_duration(text: &str) -> BadValue {
    BadValue::new(format!("is not a duration: {text:?}"), r#"write a duration such as "250ms", "5s" or "1h 30m""#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_people_write() {
        for (text, millis) in [
            ("250ms", 250),
            ("1.5s", 1500),
            ("0s", 0),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            (" 5 s ", 5000),
        ] {
            assert_eq!(read_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_number_alone_is_told_what_to_write() {
        assert_eq!(read_duration("150").unwrap_err().advice, "write \"150s\"");
        assert_eq!(read_size("65536").unwrap_err().advice, "write \"65536B\"");
    }

    #[test]
    fn what_is_no_duration() {
        for text in ["", "s", "2x", "5M", "-1s", "1..5s", "1s,2s", "1e3s", "99999999999999999999d", "٣s", "1s 2"] {
            assert!(read_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for (nanos, text) in [
            (0, "0s"),
            (1_000_000, "1ms"),
            (150_000_000_000, "150s"),
            (90_000_000_000, "90s"),
            (7_200_000_000_000, "2h"),
            (333_333_333, "333.333333ms"),
            (2_592_000_000_000_000, "30d"),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(write_duration(duration), text);
            assert_eq!(read_duration(text), Ok(duration));
        }
        for size in [0, 1, 8191, 65_536, 1_000_000, 3 << 30] {
            assert_eq!(read_size(&write_size(size)), Ok(size));
        }
        assert_eq!(write_size(65_536), "64KiB");
    }

    #[test]
    fn a_quota_is_so_many_in_a_time() {
        for (text, requests, seconds) in [("20/s", 20, 1), ("600/m", 600, 60), (" 5 / h ", 5, 3600), ("1/d", 1, 86_400)]
        {
            let quota = read_quota(text).unwrap();
            assert_eq!((quota.requests.get(), quota.per), (requests, Duration::from_secs(seconds)), "{text}");
            assert_eq!(write_quota(&quota), text.replace(' ', ""));
        }
        for text in ["20", "0/s", "-1/s", "0.5/s", "20/ms", "20/x", "20/", "/s", "1000001/s", "99999999999/s"] {
            assert!(read_quota(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_become_delays() {
        for (text, millis) in [("2/s", 500), ("30/m", 2000), ("0.1", 10_000), ("3600/h", 1000), ("24/d", 3_600_000)] {
            assert_eq!(read_rate(text).unwrap().delay(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "0", "-1", "x/s", "2/x", "inf", "NaN", "1/s/s"] {
            assert!(read_rate(text).is_err(), "{text}");
        }
    }
}
