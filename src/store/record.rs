//! What is remembered, as plain records.
//!
//! They are twins of what the core keeps, on purpose: the core can change without touching the file, and the file's
//! format is told by this folder alone. Delays are whole milliseconds, times are microseconds since the Unix epoch; a
//! time of 0 is "never", which needs no special case: what ended in 1970 binds nobody.

use serde::{Deserialize, Serialize};

use super::lock::ClockStep;

/// What is known about a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostRecord {
    /// The learned delay; 0 if nothing was learned.
    pub learned_ms: u32,
    /// Below this the host is known to complain.
    pub floor_ms: u32,
    /// How long the floor is believed when it is found again.
    pub floor_ttl_ms: u32,
    /// Until when it is believed.
    pub floor_until_us: u64,
    /// When the host last taught us something.
    pub updated_us: u64,
    /// When the last request to it was really sent.
    pub last_sent_us: u64,
    /// Only what the host asked for (Retry-After): short backoff windows do not outlive the process.
    pub held_until_us: u64,
    /// Paused by people, until they say otherwise.
    pub paused: bool,
    /// Paused by people until then.
    pub paused_until_us: u64,
    pub overrides: Overrides,
}

/// Numbers people set for a host while curtsy ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overrides {
    pub delay_ms: Option<u32>,
    pub burst: Option<u32>,
    pub concurrency: Option<u32>,
}

/// An origin's robots.txt, as it was last understood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RobotsRecord {
    /// What the origin's answer meant, in a word of whoever reads robots.txt.
    pub state: String,
    /// The rules, in whatever form their reader keeps them.
    #[serde(with = "super::lines::base64_text")]
    pub body: Vec<u8>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub fetched_us: u64,
    pub fresh_until_us: u64,
    /// After this it is of no use even if the origin is away, and is forgotten.
    pub stale_until_us: u64,
}

/// A named client that was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobRecord {
    /// What its last failure was, in a word of whoever counts them; empty if people stopped it.
    pub reason: String,
    /// Failures in a row.
    pub failures: u32,
    pub since_us: u64,
    /// When it may go on by itself; 0 = not before somebody says so.
    pub until_us: u64,
}

impl HostRecord {
    /// The same by another clock.
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

    /// Whether it holds the host for longer than `before` did, or people set something else.
    pub(super) fn binds_anew(&self, before: &HostRecord, now_us: u64) -> bool {
        let set = |record: &HostRecord| (record.paused, record.paused_until_us, record.overrides);
        self.held_until_us > now_us.max(before.held_until_us) || set(self) != set(before)
    }

    /// Whether forgetting it would undo what people did.
    pub fn is_steered(&self, now_us: u64) -> bool {
        self.paused || self.paused_until_us > now_us || self.overrides != Overrides::default()
    }
}

impl JobRecord {
    /// To another clock.
    pub(super) fn move_times(&mut self, step: ClockStep) {
        (self.since_us, self.until_us) = (step.moved(self.since_us), step.moved(self.until_us));
    }
}

impl RobotsRecord {
    /// Bytes it is charged with: its texts, and about what the file needs around them.
    pub(super) fn size(&self) -> usize {
        let validators = self.etag.as_ref().map_or(0, String::len) + self.last_modified.as_ref().map_or(0, String::len);
        self.body.len() + validators + ROW
    }
}

/// Origin, state, numbers and index entry of a row, rounded up.
const ROW: usize = 160;
