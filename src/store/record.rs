//! The stored state, as plain records.
//!
//! They deliberately repeat types of the core: the core can change without touching the file, and this folder alone
//! defines the file's format. Delays are whole milliseconds, times are microseconds since the Unix epoch. A time of 0
//! is "never", which needs no special case: a hold that ended in 1970 has no effect.

use serde::{Deserialize, Serialize};

use super::lock::ClockStep;

/// What is known about a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostRecord {
    /// The learned delay; 0 if nothing was learned.
    pub learned_ms: u32,
    /// The host is known to complain about shorter delays than this.
    pub floor_ms: u32,
    /// How long the floor is used when it is found again.
    pub floor_ttl_ms: u32,
    /// Until when the floor is used.
    pub floor_until_us: u64,
    /// When curtsy last learned something from the host.
    pub updated_us: u64,
    /// When the last request to the host was really sent.
    pub last_sent_us: u64,
    /// Only what the host asked for (Retry-After): short backoff windows do not outlive the process.
    pub held_until_us: u64,
    /// Paused by an operator, until the operator resumes it.
    pub paused: bool,
    /// Paused by an operator until this time.
    pub paused_until_us: u64,
    pub overrides: StoredOverrides,
}

/// Values that an operator set for a host while curtsy ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoredOverrides {
    pub delay_ms: Option<u32>,
    pub burst: Option<u32>,
    pub concurrency: Option<u32>,
}

/// An origin's robots.txt, as it was last parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RobotsRecord {
    /// What the origin's response meant, as a word of the code that reads robots.txt.
    pub state: String,
    /// The rules, in the form that the robots.txt code uses.
    #[serde(with = "super::lines::base64_text")]
    pub body: Vec<u8>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub fetched_us: u64,
    pub fresh_until_us: u64,
    /// After this time the copy is of no use even if the origin is unreachable, and is deleted.
    pub stale_until_us: u64,
}

/// A named client that was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobRecord {
    /// What the last failure was, as a word of the code that counts failures; empty if an operator stopped the client.
    pub reason: String,
    /// Failures in a row.
    pub failures: u32,
    pub since_us: u64,
    /// When the client may continue by itself; 0 = only when an operator resumes it.
    pub until_us: u64,
}

impl HostRecord {
    /// Returns the record with its times moved to another clock.
    pub(super) fn moved(&self, step: ClockStep) -> HostRecord {
        HostRecord {
            floor_until_us: step.moved(self.floor_until_us),
            updated_us: step.moved(self.updated_us),
            last_sent_us: step.moved(self.last_sent_us),
            held_until_us: step.moved(self.held_until_us),
            paused_until_us: step.moved(self.paused_until_us),
            ..*self
        }
    }

    pub(super) fn has_learned(&self) -> bool {
        self.learned_ms > 0 || self.floor_ms > 0
    }

    /// Whether this record holds the host for longer than `before` did, or an operator set something else.
    pub(super) fn binds_anew(&self, before: &HostRecord, now_us: u64) -> bool {
        let set = |record: &HostRecord| (record.paused, record.paused_until_us, record.overrides);
        self.held_until_us > now_us.max(before.held_until_us) || set(self) != set(before)
    }

    /// Whether deleting this record would undo what an operator did.
    pub fn is_steered(&self, now_us: u64) -> bool {
        self.paused || self.paused_until_us > now_us || self.overrides != StoredOverrides::default()
    }
}

impl JobRecord {
    /// Moves the times to another clock.
    pub(super) fn move_times(&mut self, step: ClockStep) {
        (self.since_us, self.until_us) = (step.moved(self.since_us), step.moved(self.until_us));
    }
}

impl RobotsRecord {
    /// Returns the bytes that count for this record: its texts, and about what the file needs around them.
    pub(super) fn size(&self) -> usize {
        let validators = self.etag.as_ref().map_or(0, String::len) + self.last_modified.as_ref().map_or(0, String::len);
        self.body.len() + validators + ROW
    }
}

/// Origin, state, numbers and index entry of a row, rounded up.
const ROW: usize = 160;
