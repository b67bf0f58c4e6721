//! HTTP dates: the three forms of RFC 9110, section 5.6.7.
//!
//! One parser with two contracts. Both read names of days and months and the zone in any case (RFC 9111, section 4.2,
//! requires that of caches).
//!
//! | | [`strict`] | [`robust`] |
//! |---|---|---|
//! | for | `Expires`: anything but an exact date means "expired" | `Retry-After`, `Date`: an unread wait is not kept |
//! | spaces | where the grammar has one | one or more |
//! | day | two digits; in asctime a space and a digit | one or two digits |
//! | zone | `GMT` | `GMT`, `UTC` |
//!
//! Promises: two-digit years are placed as the RFC says. The day of the week is not compared with the date, because a
//! wrong name changes no time. Dates before 1970 and dates that do not exist are rejected.

use super::Timestamp;

/// Parses what the grammar allows and nothing else. `now` places two-digit years.
pub fn strict(text: &str, now: Timestamp) -> Option<Timestamp> {
    usual(text).or_else(|| parse(text.split(' '), now, Contract::Strict).filter(|_| text.len() <= LONGEST))
}

/// Parses what a person would take for one of the three forms. `now` places two-digit years.
pub(super) fn robust(text: &str, now: Timestamp) -> Option<Timestamp> {
    parse(text.split_ascii_whitespace(), now, Contract::Robust).filter(|_| text.len() <= LONGEST)
}

/// Reads the form that nearly all servers send, in its usual spelling. `None` says nothing: the parser must read it.
/// It takes a tenth of the parser's time, and an answer that is stored has up to three dates.
fn usual(text: &str) -> Option<Timestamp> {
    // Sun, 06 Nov 1994 08:49:37 GMT
    let (weekday, rest) = text.as_bytes().split_first_chunk::<3>()?;
    let [b',', b' ', d, e, b' ', m, n, o, b' ', c, t, y, z, b' ', h, i, b':', j, k, b':', s, u, b' ', b'G', b'M', b'T'] =
        *rest
    else {
        return None;
    };
    let is_named = |name: &&str, given: &[u8; 3]| name.as_bytes() == given;
    let two = |a: u8, b: u8| {
        let are_digits = a.is_ascii_digit() && b.is_ascii_digit();
        are_digits.then(|| u64::from(a - b'0') * 10 + u64::from(b - b'0'))
    };
    DAYS.iter().find(|day| is_named(day, weekday))?;
    let month = MONTHS.iter().position(|month| is_named(month, &[m, n, o]))? as u64 + 1;
    let year = two(c, t)? * 100 + two(y, z)?;
    let day = two(d, e).filter(|day| (1..=length(month, year)).contains(day))?;
    let (hour, minute, second) = (two(h, i)?, two(j, k)?, two(s, u)?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_since_1970(year, month, day)? * DAY + hour * 3_600 + minute * 60 + second;
    Some(Timestamp::from_millis(seconds * 1_000))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contract {
    Strict,
    Robust,
}

fn parse<'a>(mut words: impl Iterator<Item = &'a str>, now: Timestamp, contract: Contract) -> Option<Timestamp> {
    let weekday = words.next()?;
    let Some(weekday) = weekday.strip_suffix(',') else {
        // Sun Nov  6 08:49:37 1994
        known(weekday, &DAYS)?;
        let (month, day) = (words.next()?, words.next()?);
        let day = match (day, contract) {
            // The empty word between two spaces. The grammar has a space and one digit here.
            ("", Contract::Strict) => words.next().filter(|day| day.len() == 1)?,
            _ => two_digits(day, contract)?,
        };
        let (time, year) = (words.next()?, long_year(words.next()?)?);
        return moment(day, month, year, time, words.next());
    };
    let date = words.next()?;
    let (day, month, year) = if let Some((day, rest)) = date.split_once('-') {
        // Sunday, 06-Nov-94 08:49:37 GMT
        known(weekday, &LONG_DAYS)?;
        let (month, year) = rest.split_once('-')?;
        (day, month, short_year(year, now)?)
    } else {
        // Sun, 06 Nov 1994 08:49:37 GMT
        known(weekday, &DAYS)?;
        (date, words.next()?, long_year(words.next()?)?)
    };
    let (time, zone) = (words.next()?, words.next()?);
    let in_utc = contract == Contract::Robust && zone.eq_ignore_ascii_case("UTC");
    if !in_utc && !zone.eq_ignore_ascii_case("GMT") {
        return None;
    }
    moment(two_digits(day, contract)?, month, year, time, words.next())
}

fn two_digits(day: &str, contract: Contract) -> Option<&str> {
    Some(day).filter(|day| contract == Contract::Robust || day.len() == 2)
}

/// The longest valid date, "Wednesday, 09-Nov-94 08:49:37 GMT", has 33 characters.
const LONGEST: usize = 40;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY: u64 = 86_400;

fn known(name: &str, names: &[&str]) -> Option<usize> {
    names.iter().position(|known| known.eq_ignore_ascii_case(name))
}

fn moment(day: &str, month: &str, year: u64, time: &str, rest: Option<&str>) -> Option<Timestamp> {
    let month = known(month, &MONTHS)? as u64 + 1;
    let day = number(day, 1..=2).filter(|day| (1..=length(month, year)).contains(day))?;
    let seconds = days_since_1970(year, month, day)? * DAY + second_of_day(time)?;
    rest.is_none().then(|| Timestamp::from_millis(seconds * 1_000))
}

fn second_of_day(time: &str) -> Option<u64> {
    let mut parts = time.split(':');
    let mut part = |last: u64| parts.next().and_then(|text| number(text, 2..=2)).filter(|n| *n <= last);
    // A leap second is the first second of the next minute, as Unix counts.
    let seconds = part(23)? * 3_600 + part(59)? * 60 + part(60)?;
    parts.next().is_none().then_some(seconds)
}

fn long_year(text: &str) -> Option<u64> {
    number(text, 4..=4)
}

/// More than fifty years ahead means the last century that had these digits.
fn short_year(text: &str, now: Timestamp) -> Option<u64> {
    let this_year = 1970 + now.as_micros() / (31_556_952 * 1_000_000);
    let year = this_year / 100 * 100 + number(text, 2..=2)?;
    Some(if year > this_year + 50 { year - 100 } else { year })
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u64> {
    let plain = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

fn length(month: u64, year: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The year begins in March here, so that the leap day is its last day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let month = (month + 9) % 12;
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (month * 306 + 5) / 10 + day - 1;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    /// Checks that both contracts agree, and returns the result.
    fn seconds(text: &str) -> Option<u64> {
        assert_eq!(strict(text, NOW), robust(text, NOW), "{text:?}");
        strict(text, NOW).map(|at| at.as_micros() / 1_000_000)
    }

    #[test]
    fn the_three_forms_are_the_same_moment() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Sun Nov  6 08:49:37 1994"), Some(784_111_777));
    }

    #[test]
    fn the_short_way_and_the_parser_agree() {
        let parsed = |text: &str| parse(text.split(' '), NOW, Contract::Strict);
        for (month, year, day) in (1..=12)
            .flat_map(|month| [1970, 1999, 2000, 2024, 2100].map(|year| (month, year)))
            .flat_map(|(month, year)| [0, 1, 28, 29, 30, 31, 32].map(|day| (month, year, day)))
        {
            let text = format!("Sun, {day:02} {} {year} 23:59:{:02} GMT", MONTHS[month - 1], day * 2);
            assert_eq!(usual(&text), parsed(&text), "{text}");
        }
        let text = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert!(usual(text).is_some());
        for (place, other) in (0..text.len()).flat_map(|place| "09:a, G".chars().map(move |other| (place, other))) {
            let mut changed = text.to_owned();
            changed.replace_range(place..=place, &other.to_string());
            assert!(usual(&changed).is_none() || usual(&changed) == parsed(&changed), "{changed}");
        }
    }

    #[test]
    fn case_does_not_matter() {
        for text in [
            "SUN, 06 nov 1994 08:49:37 gMT",
            "sun, 06 NOV 1994 08:49:37 gmt",
            "SUNDAY, 06-NOV-94 08:49:37 Gmt",
            "suN nOv  6 08:49:37 1994",
        ] {
            assert_eq!(seconds(text), Some(784_111_777), "{text}");
        }
    }

    /// Texts that are not dates by the grammar, but still say when to come back.
    #[test]
    fn only_the_robust_contract_forgives() {
        let sunday = Some(Timestamp::from_millis(784_111_777_000));
        for text in [
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37  GMT",
            "Sun, 06 Nov 1994\t08:49:37 GMT",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sunday, 6-Nov-94 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 utc",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  06 08:49:37 1994",
            "Sun Nov   6 08:49:37 1994",
            "Sun  Nov  6 08:49:37 1994",
        ] {
            assert_eq!((strict(text, NOW), robust(text, NOW)), (None, sunday), "{text:?}");
        }
        let later = Some(Timestamp::from_millis(784_975_777_000));
        assert_eq!(strict("Wed Nov 16 08:49:37 1994", NOW), later);
    }

    #[test]
    fn the_calendar_is_right() {
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
        assert_eq!(seconds("Wed, 01 Mar 2000 00:00:00 GMT"), Some(951_868_800));
        assert_eq!(seconds("Fri, 31 Dec 9999 23:59:59 GMT"), Some(253_402_300_799));
        assert_eq!(seconds("Thu, 31 Dec 2026 23:59:59 GMT"), Some(1_798_761_599));
        assert_eq!(seconds("Thu, 29 Feb 2100 00:00:00 GMT"), None, "2100 is no leap year");
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let mut yesterday = seconds("Thu, 01 Jan 1970 00:00:00 GMT").unwrap();
        for year in 1970..2110 {
            for (month, name) in (1..).zip(MONTHS) {
                for day in 1..=length(month, year) {
                    let today = seconds(&format!("Mon, {day:02} {name} {year} 00:00:00 GMT")).unwrap();
                    assert!(today == yesterday + DAY || today == 0, "{day} {name} {year}");
                    yesterday = today;
                }
            }
        }
    }

    #[test]
    fn a_leap_second_is_the_next_minute() {
        assert_eq!(seconds("Sat, 31 Dec 2016 23:59:60 GMT"), seconds("Sun, 01 Jan 2017 00:00:00 GMT"));
        assert_eq!(seconds("Sat, 31 Dec 2016 23:59:61 GMT"), None);
    }

    #[test]
    fn two_digits_mean_a_year_at_most_fifty_ahead() {
        // It is 2026.
        assert_eq!(seconds("Wednesday, 01-Jan-76 00:00:00 GMT"), seconds("Wed, 01 Jan 2076 00:00:00 GMT"));
        assert_eq!(seconds("Saturday, 01-Jan-77 00:00:00 GMT"), seconds("Sat, 01 Jan 1977 00:00:00 GMT"));
        assert_eq!(seconds("Friday, 01-Jan-27 00:00:00 GMT"), seconds("Fri, 01 Jan 2027 00:00:00 GMT"));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "0",
            "yesterday",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov +994 08:49:37 GMT",
            "Sun, 06 November 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Mon, 01 Jan 0000 00:00:00 GMT",
            "Sün, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
        assert_eq!(seconds(&"Sun, ".repeat(10_000)), None);
    }
}
