//! What is stored, for people: lists, and forgets on request. Not for the request path.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::smallvec;

use super::disk::{DiskRow, Purge, note};
use super::entry::Entry;
use super::key::{CacheKey, CacheKeyRef};
use super::memory::Variants;
use super::{Cache, EntryTerms, now};
use crate::politeness::reuse::policy::CacheTime;
use crate::politeness::reuse::storing::NotStored;

/// A stored answer, as people see it.
#[derive(Clone, Debug)]
pub struct StoredAnswer {
    pub url: String,
    /// Whose answer it is; empty if clients share it.
    pub partition: String,
    /// Length of the body.
    pub bytes: u64,
    /// When it was stored or confirmed, in microseconds since the Unix epoch.
    pub received_us: u64,
    pub hits: u64,
    pub in_memory: bool,
    pub on_disk: bool,
    /// None if it was not read from disk for this.
    pub facts: Option<AnswerFacts>,
}

/// What the head of a stored answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerFacts {
    pub status: u16,
    pub age_s: u32,
    /// Negative if it is stale.
    pub ttl_s: i64,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// The request fields that a request must have in common with it, as lines.
    pub selecting: String,
    /// It answers HEAD alone.
    pub is_head_only: bool,
    /// It is validated before its next use.
    pub must_validate: bool,
    /// Which requests it is for, and for how long.
    pub terms: EntryTerms,
}

impl AnswerFacts {
    fn of(entry: &Entry, now: CacheTime) -> Self {
        let text = |name| entry.field(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let (policy, flags) = (&entry.terms.policy, entry.terms.policy.flags);
        AnswerFacts {
            status: entry.status().as_u16(),
            age_s: policy.age(now),
            ttl_s: policy.ttl(now),
            etag: text("etag"),
            last_modified: text("last-modified"),
            selecting: String::from_utf8_lossy(&entry.terms.selecting.values).into_owned(),
            is_head_only: entry.terms.head_only,
            must_validate: flags.no_cache || flags.doubtful,
            terms: entry.terms.clone(),
        }
    }
}

impl Cache {
    /// Lists what is stored, in no order. `in_full` reads what is on disk alone, too.
    pub async fn list(&self, which: &Purge, in_full: bool) -> Vec<StoredAnswer> {
        let now = now();
        let mut answers = HashMap::new();
        for (key, variants) in self.memory.all() {
            let url = key.url();
            if which.matches(&url) {
                for entry in variants.iter() {
                    let place = (url.clone(), key.partition.to_string(), note::variant(&entry.terms));
                    answers.insert(place, StoredAnswer::in_memory(&key, entry, now));
                }
            }
        }
        let Some(disk) = &self.disk else { return answers.into_values().collect() };
        for row in disk.rows(which.clone()).await {
            let place = (row.url.clone(), row.partition.clone(), row.variant());
            let answer = answers.entry(place).or_insert_with(|| StoredAnswer::on_disk(&row));
            answer.on_disk = true;
            answer.hits = answer.hits.max(row.hits());
            if in_full && answer.facts.is_none() {
                let copy = disk.read_row(&row).await;
                answer.facts = copy.map(|entry| AnswerFacts::of(&entry, now));
            }
        }
        answers.into_values().collect()
    }

    /// Returns the newest answer for a URL that `suits`, in memory or on disk. It does not count as used, and stays
    /// where it is.
    pub async fn peek(&self, key: &CacheKeyRef<'_>, suits: impl Fn(&Entry) -> bool) -> Option<Variants> {
        let at_hand = self.memory.peek(key);
        if at_hand.as_ref().is_some_and(|variants| variants.iter().any(|entry| suits(entry))) {
            return at_hand;
        }
        let Some(disk) = &self.disk else { return at_hand };
        for place in disk.find(key) {
            if let Some(entry) = disk.peek(key, place).await.filter(|entry| suits(entry)) {
                return Some(smallvec![Arc::new(entry)]);
            }
        }
        at_hand
    }

    /// Returns why the last answer for a URL was not stored, if that is known.
    pub fn not_stored(&self, key: &CacheKeyRef<'_>) -> Option<NotStored> {
        self.unstored.of(key.hash_code())
    }

    /// Returns when the oldest and the newest answer were stored or confirmed, in microseconds since the Unix epoch.
    pub async fn received(&self) -> Option<(u64, u64)> {
        let all = self.memory.all();
        let times = all.iter().flat_map(|(_, variants)| variants.iter());
        let times = times.map(|entry| entry.terms.policy.received.wall.as_micros());
        let in_memory = times.map(|at| (at, at)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let on_disk = match &self.disk {
            Some(disk) => disk.received().await,
            None => None,
        };
        [in_memory, on_disk].into_iter().flatten().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Forgets what people choose, and returns how many answers that were. None if the disk does not answer in time.
    pub async fn purge(&self, which: &Purge) -> Option<u64> {
        self.changes.count_all();
        let stored = self.list(which, false).await.len() as u64;
        // The disk comes first: otherwise a request could bring an answer back into memory.
        let on_disk = match &self.disk {
            Some(disk) if disk.status().trouble.is_none() => disk.purge(which.clone()).await,
            _ => Some(0),
        };
        self.memory.remove_where(|key| which.matches(&key.url()));
        on_disk.map(|on_disk| stored.max(on_disk))
    }
}

impl StoredAnswer {
    fn in_memory(key: &CacheKey, entry: &Arc<Entry>, now: CacheTime) -> Self {
        StoredAnswer {
            url: key.url(),
            partition: key.partition.to_string(),
            bytes: entry.length(),
            received_us: entry.terms.policy.received.wall.as_micros(),
            hits: entry.hits().into(),
            in_memory: true,
            on_disk: false,
            facts: Some(AnswerFacts::of(entry, now)),
        }
    }

    fn on_disk(row: &DiskRow) -> Self {
        StoredAnswer {
            url: row.url.clone(),
            partition: row.partition.clone(),
            bytes: row.body_length(),
            received_us: row.received_us,
            hits: row.hits(),
            in_memory: false,
            on_disk: true,
            facts: None,
        }
    }
}
