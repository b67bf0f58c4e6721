//! Converts a robots.txt record to the form in the store, and back.
//!
//! The state is a list of words: the answer (`rules`, `none`, or `unknown`), followed by the trouble since, if there
//! was any: its kind, three numbers, and its cause (a status, or the word of a fault). A state that cannot be read
//! counts as not stored: the origin is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::politeness::fault::{HostReply, OriginFault};
use crate::politeness::robots::Rules;
use crate::politeness::robots::reply::{RobotsAnswer, RobotsRecordState, Says, Trouble, TroubleKind};
use crate::politeness::time::Timestamp;
use crate::store::RobotsRecord;

const RULES: &str = "rules";
const NONE: &str = "none";
const UNKNOWN: &str = "unknown";
const THROTTLED: &str = "throttled";
const UNREACHABLE: &str = "unreachable";
/// How long the number of failures in a row is kept after the next try is due.
const TROUBLE_LASTS: Duration = Duration::from_secs(24 * 3600);

/// Converts a record for the store. Call it right after the fetch: a copy ages from then on.
pub(super) fn to_store(record: &RobotsRecordState, now: Timestamp) -> RobotsRecord {
    let trouble = record.trouble.map(|trouble| trouble_words(&trouble)).unwrap_or_default();
    let mut kept = RobotsRecord { fetched_us: now.as_micros(), ..RobotsRecord::default() };
    let Some(answer) = record.answer.as_ref().filter(|answer| answer.last_resort_until > now) else {
        kept.state = format!("{UNKNOWN}{trouble}");
        kept.stale_until_us = record.trouble.map_or(now, |trouble| trouble.retry_at + TROUBLE_LASTS).as_micros();
        return kept;
    };
    let (word, body) = match &answer.says {
        Says::Rules(rules) => (RULES, rules.as_bytes().to_vec()),
        Says::Nothing => (NONE, Vec::new()),
    };
    RobotsRecord {
        state: format!("{word}{trouble}"),
        body,
        etag: answer.etag.as_deref().map(str::to_owned),
        last_modified: answer.last_modified.as_deref().map(str::to_owned),
        fresh_until_us: answer.fresh_until.as_micros(),
        stale_until_us: answer.last_resort_until.as_micros(),
        ..kept
    }
}

pub(super) fn from_store(kept: RobotsRecord, now: Timestamp) -> Option<RobotsRecordState> {
    let mut words = kept.state.split(' ');
    let says = match words.next()? {
        RULES => Some(Says::Rules(Arc::new(Rules::from_stored(&kept.body)?))),
        NONE => Some(Says::Nothing),
        UNKNOWN => None,
        _ => return None,
    };
    let trouble = match words.next() {
        Some(word) => Some(trouble_of(word, words)?),
        None => None,
    };
    let time = Timestamp::from_micros;
    let answer = says.map(|says| RobotsAnswer {
        says,
        fresh_until: time(kept.fresh_until_us),
        stale_until: time(kept.stale_until_us),
        last_resort_until: time(kept.stale_until_us),
        etag: kept.etag.map(String::into_boxed_str),
        last_modified: kept.last_modified.map(String::into_boxed_str),
    });
    Some(RobotsRecordState { answer, trouble }.remembered(time(kept.fetched_us), now))
}

/// The words of the trouble, with a space in front.
fn trouble_words(trouble: &Trouble) -> String {
    let kind = match trouble.kind {
        TroubleKind::Throttled => THROTTLED,
        TroubleKind::Unreachable => UNREACHABLE,
    };
    let Trouble { since, times, retry_at, cause, .. } = trouble;
    let cause = match cause {
        Some(HostReply::Status(status)) => format!(" {status}"),
        Some(HostReply::Fault(fault)) => format!(" {}", fault.word()),
        None => String::new(),
    };
    format!(" {kind} {times} {} {}{cause}", since.as_micros(), retry_at.as_micros())
}

/// Reads the words of the trouble. A cause that this version does not know is left out.
fn trouble_of<'w>(kind: &str, mut words: impl Iterator<Item = &'w str>) -> Option<Trouble> {
    let kind = match kind {
        THROTTLED => TroubleKind::Throttled,
        UNREACHABLE => TroubleKind::Unreachable,
        _ => return None,
    };
    let times = words.next()?.parse().ok()?;
    let mut time = || words.next()?.parse().ok().map(Timestamp::from_micros);
    let (since, retry_at) = (time()?, time()?);
    let cause = words.next().and_then(|word| match word.parse() {
        Ok(status) => Some(HostReply::Status(status)),
        Err(_) => OriginFault::parse(word).map(HostReply::Fault),
    });
    Some(Trouble { kind, times, since, retry_at, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::robots::reply::{FetchReply, Fetched, RecordLook};

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn answered(previous: Option<&RobotsRecordState>, status: u16, now: Timestamp) -> RobotsRecordState {
        let reply = FetchReply {
            status,
            body: b"User-agent: *\nDisallow: /x",
            etag: Some("\"1\""),
            last_modified: Some("Sun, 06 Nov 1994 08:49:37 GMT"),
            ..FetchReply::default()
        };
        RobotsRecordState::after(previous, &Fetched::Answered(reply), now, 0.5)
    }

    fn there_and_back(record: &RobotsRecordState, fetched: Timestamp, now: Timestamp) -> RobotsRecordState {
        from_store(to_store(record, fetched), now).expect("what was kept can be read")
    }

    #[test]
    fn every_kind_of_record_is_kept_whole() {
        let rules = answered(None, 200, NOW);
        for status in [200, 404, 403, 503, 429] {
            let alone = answered(None, status, NOW);
            assert_eq!(there_and_back(&alone, NOW, NOW + HOUR / 2), alone, "{status}");
        }
        for fault in OriginFault::ALL.into_iter().map(Some).chain([None]) {
            let failed = RobotsRecordState::after(None, &Fetched::Failed(fault), NOW, 0.5);
            assert_eq!(there_and_back(&failed, NOW, NOW), failed, "{fault:?}");
        }
        for status in [503, 429] {
            let record = answered(Some(&rules), status, NOW + HOUR);
            let again = there_and_back(&record, NOW + HOUR, NOW + HOUR);
            assert_eq!(again.trouble, record.trouble);
            assert!(matches!(again.look(NOW + HOUR), RecordLook::Use(Says::Rules(_))), "the last good copy counts");
            assert!(matches!(again.look(NOW + 24 * 29 * HOUR), RecordLook::UseAndRefresh(Says::Rules(_))));
            assert_eq!(again.look(NOW + 24 * 31 * HOUR), RecordLook::MustFetch);
        }
    }

    #[test]
    fn what_cannot_be_read_was_not_kept() {
        let whole = to_store(&answered(None, 200, NOW), NOW);
        let with = |state: &str| from_store(RobotsRecord { state: state.to_owned(), ..whole.clone() }, NOW);
        assert!(with("rules").is_some());
        for state in ["unknown unreachable 1 2 3", "unknown unreachable 1 2 3 tired"] {
            let trouble = with(state).and_then(|record| record.trouble);
            assert_eq!(trouble.map(|trouble| trouble.cause), Some(None), "stored by another version: {state}");
        }
        for state in ["", "maybe", "rules late", "rules throttled", "rules throttled 1 2", "rules throttled a 2 3"] {
            assert_eq!(with(state), None, "{state:?}");
        }
        assert_eq!(from_store(RobotsRecord { body: vec![255; 9], ..whole }, NOW), None);
    }

    #[test]
    fn no_file_and_no_clock_keeps_a_copy_for_ever() {
        let kept = RobotsRecord {
            state: format!("rules unreachable 1 1 {}", u64::MAX),
            fetched_us: u64::MAX,
            fresh_until_us: u64::MAX,
            stale_until_us: u64::MAX,
            ..to_store(&answered(None, 200, NOW), NOW)
        };
        let troubled = from_store(kept.clone(), NOW).unwrap();
        assert!(matches!(troubled.look(NOW + 2 * HOUR), RecordLook::UseAndRefresh(_)));
        assert_eq!(troubled.look(NOW + 24 * 31 * HOUR), RecordLook::MustFetch);
        let sound = from_store(RobotsRecord { state: "rules".to_owned(), ..kept }, NOW).unwrap();
        assert_eq!(sound.look(NOW + 25 * HOUR), RecordLook::MustFetch);
    }
}
