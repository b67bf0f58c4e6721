//! What a record says about a stored answer besides its head and body, as bytes.
//!
//! Pure. Bytes that are not exactly as written here are rejected.

use std::hash::Hasher;
use std::net::IpAddr;

use fnv::FnvHasher;

use crate::cache::EntryTerms;
use crate::politeness::reuse::policy::{CacheTime, ReuseFlags, ReusePolicy};
use crate::politeness::reuse::selecting::Selecting;
use crate::politeness::time::Timestamp;

/// Writes everything but the address, which a record has in a field of its own.
pub fn write(terms: &EntryTerms) -> Vec<u8> {
    let policy = &terms.policy;
    let mut note = Vec::with_capacity(FIXED + terms.selecting.vary.len() + terms.selecting.values.len());
    note.push(FORMAT);
    note.push(policy.flags.bits());
    note.push(u8::from(terms.head_only));
    note.extend(policy.received.steady.as_micros().to_be_bytes());
    note.extend(policy.received.wall.as_micros().to_be_bytes());
    for seconds in [policy.initial_age, policy.lifetime, policy.while_revalidate, policy.if_error] {
        note.extend(seconds.to_be_bytes());
    }
    // The names in Vary are shorter than a request head, which has at most 64 KiB.
    let vary = terms.selecting.vary.len() as u32;
    note.extend(vary.to_be_bytes());
    note.extend(terms.selecting.vary.as_bytes());
    note.extend(&*terms.selecting.values);
    note
}

pub fn read(note: &[u8], address: Option<IpAddr>) -> Option<EntryTerms> {
    let mut bytes = NoteBytes(note);
    let [format, flags, head_only] = bytes.take()?;
    if format != FORMAT || head_only > 1 {
        return None;
    }
    let time = |bytes: &mut NoteBytes<'_>| bytes.take().map(|at| Timestamp::from_micros(u64::from_be_bytes(at)));
    let received = CacheTime { steady: time(&mut bytes)?, wall: time(&mut bytes)? };
    let mut number = || bytes.take().map(u32::from_be_bytes);
    let [initial_age, lifetime, while_revalidate, if_error] = [number()?, number()?, number()?, number()?];
    let (vary, values) = {
        let length = usize::try_from(number()?).ok()?;
        bytes.0.split_at_checked(length)?
    };
    let flags = ReuseFlags::from_bits(flags);
    let policy = ReusePolicy { received, initial_age, lifetime, while_revalidate, if_error, flags };
    let selecting = Selecting { vary: std::str::from_utf8(vary).ok()?.into(), values: values.into() };
    let terms = EntryTerms { policy, selecting, address, head_only: head_only == 1 };
    (write(&terms) == note).then_some(terms)
}

/// Returns a hash of what distinguishes the variants of a URL. The same in every process.
pub fn variant(terms: &EntryTerms) -> u32 {
    let mut hasher = FnvHasher::default();
    hasher.write(terms.selecting.vary.as_bytes());
    hasher.write(&[0xff, u8::from(terms.head_only)]);
    hasher.write(&terms.selecting.values);
    let hash = hasher.finish();
    (hash ^ (hash >> 32)) as u32
}

/// What is left to read.
struct NoteBytes<'a>(&'a [u8]);

impl NoteBytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

const FORMAT: u8 = 1;
/// Length of a note without selecting fields.
const FIXED: usize = 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_survive_a_file() {
        let at = |micros| Timestamp::from_micros(micros);
        let policy = ReusePolicy {
            received: CacheTime { steady: at(1), wall: at(u64::MAX) },
            initial_age: 2,
            lifetime: u32::MAX,
            while_revalidate: 3,
            if_error: 4,
            flags: ReuseFlags { no_stale: true, doubtful: true, ..ReuseFlags::default() },
        };
        let selecting = Selecting { vary: "accept,cookie".into(), values: b"accept: \xff\n"[..].into() };
        let address = Some("::1".parse().unwrap());
        for head_only in [false, true] {
            let terms = EntryTerms { policy, selecting: selecting.clone(), address, head_only };
            let note = write(&terms);
            assert_eq!(read(&note, address), Some(terms));
            for cut in 0..note.len() - selecting.values.len() {
                assert_eq!(read(&note[..cut], address), None, "cut at {cut}");
            }
        }
    }

    #[test]
    fn an_unknown_format_is_rejected() {
        let mut note = write(&EntryTerms::default());
        note[0] = FORMAT + 1;
        assert_eq!(read(&note, None), None);
    }

    #[test]
    fn variants_are_told_apart() {
        let terms = |vary: &str, values: &[u8], head_only| {
            let selecting = Selecting { vary: vary.into(), values: values.into() };
            variant(&EntryTerms { selecting, head_only, ..EntryTerms::default() })
        };
        let all = [
            terms("", b"", false),
            terms("", b"", true),
            terms("accept", b"", false),
            terms("accept", b"accept: a\n", false),
            terms("accept", b"accept: b\n", false),
        ];
        let unique: std::collections::HashSet<u32> = all.into_iter().collect();
        assert_eq!(unique.len(), all.len());
    }
}
