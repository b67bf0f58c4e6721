//! A body that is being stored while it passes to a client.
//!
//! The bytes are copied: a slice would keep the connection's whole buffer alive. A short body of known length is
//! written once, behind its head, into the allocation that it stays in; any other is collected in pieces.
//!
//! A body that is longer than a segment of the disk takes goes to disk while it passes, and not into memory.
//!
//! Promises: only [`Filling::end`] stores anything, and only if the body has its announced length. All fillings
//! together reserve no more than their share of `cache.memory`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::Cache;
use super::changes::ChangeCount;
use super::disk::{LARGEST_IN_SEGMENT, LargeWrite};
use super::entry::{Entry, EntryTerms, Pieces, head_length, write_head};
use super::key::CacheKey;
use crate::politeness::reuse::storing::NotStored;

/// The size of a piece, and the step in which memory is reserved for a body of unknown length.
const PIECE: usize = 64 << 10;
/// A longer body is collected in pieces, so that a length that lies costs no memory.
const ONE_BLOCK: u64 = 64 << 10;

/// A body that is being stored.
#[derive(Debug)]
pub struct Filling {
    key: CacheKey,
    /// The count of changes when the request was made.
    asked: ChangeCount,
    status: StatusCode,
    terms: EntryTerms,
    /// The announced length.
    length: Option<u64>,
    /// The largest body that is stored.
    most: u64,
    head_length: usize,
    /// The head; behind it the body, if it is short and its length is known.
    block: BytesMut,
    pieces: Pieces,
    last: BytesMut,
    came: u64,
    room: Room,
    /// Where a large body goes.
    large: Option<(Arc<Entry>, LargeWrite)>,
}

/// The memory that a filling has reserved. Dropping it gives the memory back.
#[derive(Debug)]
struct Room {
    cache: Arc<Cache>,
    reserved: u64,
}

impl Room {
    fn reserve(&mut self, bytes: u64) -> Result<(), NotStored> {
        let before = self.cache.filling.fetch_add(bytes, Relaxed);
        if before + bytes > self.cache.filling_most {
            self.cache.filling.fetch_sub(bytes, Relaxed);
            return Err(NotStored::Busy);
        }
        self.reserved += bytes;
        Ok(())
    }

    fn give_back(&mut self) {
        self.cache.filling.fetch_sub(std::mem::take(&mut self.reserved), Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Filling {
    /// Begins to store an answer whose head is here. `asked` is the count of changes when it was asked for, `length`
    /// what the head announces, `most` the largest body to store.
    pub fn begin(
        cache: &Arc<Cache>,
        (key, asked): (CacheKey, ChangeCount),
        (status, headers): (StatusCode, &HeaderMap),
        length: Option<u64>,
        most: u64,
        terms: EntryTerms,
    ) -> Result<Box<Self>, NotStored> {
        let most = if cache.disk.is_some() { most } else { most.min(cache.memory.largest()) };
        let head = head_length(headers);
        if length.unwrap_or(0) + head as u64 > most {
            return Err(NotStored::TooLarge);
        }
        let body = length.filter(|length| *length <= ONE_BLOCK).unwrap_or(0);
        let mut filling = Box::new(Filling {
            key,
            asked,
            status,
            terms,
            length,
            most,
            head_length: 0,
            block: BytesMut::new(),
            pieces: Pieces::new(),
            last: BytesMut::new(),
            came: 0,
            room: Room { cache: cache.clone(), reserved: 0 },
            large: None,
        });
        let is_large = cache.disk.is_some() && length.is_some_and(|length| length > LARGEST_IN_SEGMENT);
        filling.room.reserve(head as u64 + if is_large { 0 } else { length.unwrap_or(PIECE as u64) })?;
        filling.block.reserve(head + body as usize);
        write_head(&mut filling.block, status, headers);
        filling.head_length = filling.block.len();
        if is_large {
            filling.spill()?;
        }
        Ok(filling)
    }

    /// Sends a body to disk from now on, with what has come so far, and gives its memory back.
    fn spill(&mut self) -> Result<(), NotStored> {
        let head = Entry::in_pieces(self.status, self.block.clone().freeze(), Pieces::new(), self.terms.clone());
        let disk = self.room.cache.disk.as_ref().ok_or(NotStored::TooLarge)?;
        let head = Arc::new(head);
        let mut large = disk.begin(self.key.clone(), head.clone()).ok_or(NotStored::Busy)?;
        self.finish_piece();
        if !std::mem::take(&mut self.pieces).into_iter().all(|piece| large.push(piece)) {
            return Err(NotStored::Busy);
        }
        self.large = Some((head, large));
        self.room.give_back();
        Ok(())
    }

    fn is_one_block(&self) -> bool {
        self.length.is_some_and(|length| length <= ONE_BLOCK)
    }

    /// Copies a piece of the body. After an error nothing is stored.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), NotStored> {
        self.came += bytes.len() as u64;
        if self.length.is_some_and(|length| self.came > length) {
            return Err(NotStored::Incomplete);
        }
        if self.is_one_block() {
            self.block.extend_from_slice(bytes);
            return Ok(());
        }
        if self.came > self.most {
            return Err(NotStored::TooLarge);
        }
        if self.large.is_none() && self.room.cache.disk.is_some() && self.came > LARGEST_IN_SEGMENT {
            self.spill()?;
        }
        if let Some((_, large)) = &mut self.large {
            return if large.push(Bytes::copy_from_slice(bytes)) { Ok(()) } else { Err(NotStored::Busy) };
        }
        while self.came + self.head_length as u64 > self.room.reserved {
            self.room.reserve(PIECE as u64)?;
        }
        while !bytes.is_empty() {
            if self.last.capacity() == self.last.len() {
                self.finish_piece();
                self.last = BytesMut::with_capacity(PIECE);
            }
            let (now, rest) = bytes.split_at(bytes.len().min(PIECE - self.last.len()));
            self.last.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    fn finish_piece(&mut self) {
        let piece = std::mem::take(&mut self.last).freeze();
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    /// Notes why it is not stored.
    pub fn note(&self, reason: NotStored) {
        self.room.cache.note_unstored(&self.key.borrowed(), reason);
    }

    /// Stores the answer: all of its body has passed.
    pub fn end(mut self: Box<Self>) -> Result<(), NotStored> {
        self.finish().inspect_err(|reason| self.note(*reason))
    }

    fn finish(&mut self) -> Result<(), NotStored> {
        if self.length.is_some_and(|length| self.came != length) {
            return Err(NotStored::Incomplete);
        }
        if let Some((head, large)) = self.large.take() {
            let hash = self.key.hash_code();
            self.room.cache.check_unchanged(hash, self.asked)?;
            self.room.cache.unstored.clear(hash);
            large.finish();
            self.room.cache.memory.remove_like(&self.key.borrowed(), &head);
            return Ok(());
        }
        let is_one_block = self.is_one_block();
        if !is_one_block && !self.pieces.is_empty() {
            self.last = BytesMut::from(&self.last[..]);
            self.finish_piece();
        }
        let (terms, block) = (std::mem::take(&mut self.terms), std::mem::take(&mut self.block));
        let entry = if is_one_block {
            Entry::packed(self.status, block.freeze(), self.head_length, terms)
        } else if self.pieces.is_empty() {
            // Short after all: packed into one allocation of the right size.
            Entry::packed(self.status, Bytes::from([&block[..], &self.last[..]].concat()), self.head_length, terms)
        } else {
            Entry::in_pieces(self.status, block.freeze(), std::mem::take(&mut self.pieces), terms)
        };
        self.room.cache.store(&self.key, Arc::new(entry), self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheKeyRef;
    use crate::cache::disk::{DiskTier, Purge};
    use crate::politeness::{HostKey, Origin, Scheme};

    const MEBI: u64 = 1 << 20;

    fn key() -> CacheKey {
        let origin = Origin { scheme: Scheme::Http, host: HostKey::parse("a.test").unwrap(), port: 80 };
        CacheKeyRef::new(&origin, "/", "").to_key()
    }

    fn begin(cache: &Arc<Cache>, length: Option<u64>) -> Result<Box<Filling>, NotStored> {
        let head = (StatusCode::OK, &HeaderMap::new());
        let under = (key(), cache.change_count(&key().borrowed()));
        Filling::begin(cache, under, head, length, 256 * MEBI, EntryTerms::default())
    }

    fn stored(cache: &Cache) -> Option<Vec<u8>> {
        let variants = cache.at_hand(&key().borrowed())?;
        Some(variants[0].body().concat())
    }

    #[test]
    fn a_body_is_stored_as_it_came() {
        for size in [0_usize, 1, 1_000, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7] {
            for known in [true, false] {
                let cache = Arc::new(Cache::new(64 * MEBI));
                let body: Vec<u8> = (0..size).map(|n| n as u8).collect();
                let mut filling = begin(&cache, known.then_some(size as u64)).unwrap();
                for piece in body.chunks(999) {
                    filling.push(piece).unwrap();
                }
                filling.end().unwrap();
                assert_eq!(stored(&cache), Some(body), "{size} {known}");
                assert_eq!(cache.filling.load(Relaxed), 0);
            }
        }
    }

    /// C12
    #[test]
    fn a_body_that_breaks_off_is_never_stored() {
        let cache = Arc::new(Cache::new(64 * MEBI));
        for end in 0..10 {
            let mut filling = begin(&cache, Some(10)).unwrap();
            filling.push(&[0; 10][..end]).unwrap();
            assert_eq!(filling.end(), Err(NotStored::Incomplete), "{end}");
        }
        let mut filling = begin(&cache, Some(10)).unwrap();
        assert_eq!(filling.push(&[0; 11]), Err(NotStored::Incomplete), "more than was announced");
        drop(filling);
        drop(begin(&cache, None).unwrap());
        assert_eq!((stored(&cache), cache.filling.load(Relaxed)), (None, 0));
    }

    /// C27: the body of a large answer is on its way to disk when its URL changes.
    #[test]
    fn a_body_is_not_stored_if_its_url_changes_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskTier::start(folder.path(), 64 * MEBI).unwrap();
        let cache = Arc::new(Cache::with_disk(64 * MEBI, Some(disk)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let purge = || assert!(runtime.block_on(cache.purge(&Purge::All)).is_some());
        let remove = || cache.remove(&key().borrowed());
        for change in [&purge as &dyn Fn(), &remove] {
            for size in [10, 3 * MEBI as usize] {
                let mut filling = begin(&cache, None).unwrap();
                filling.push(&vec![0; size]).unwrap();
                change();
                assert_eq!(filling.end(), Err(NotStored::Invalidated), "{size}");
            }
        }
        assert!(runtime.block_on(cache.list(&Purge::All, false)).is_empty());
        let mut filling = begin(&cache, None).unwrap();
        filling.push(&[0; 10]).unwrap();
        assert_eq!((filling.end(), stored(&cache)), (Ok(()), Some(vec![0; 10])), "asked for after the change");
    }

    /// C50
    #[test]
    fn memory_stays_bounded_whatever_is_announced_and_sent() {
        let cache = Arc::new(Cache::new(16 * MEBI));
        assert!(matches!(begin(&cache, Some(10 << 30)), Err(NotStored::TooLarge)));
        let mut fillings = Vec::new();
        for _ in 0..10_000 {
            fillings.extend(begin(&cache, Some(MEBI)).ok());
            fillings.extend(begin(&cache, None).ok());
        }
        assert!(cache.filling.load(Relaxed) <= cache.filling_most);
        assert!(fillings.len() < 40, "{}", fillings.len());
        drop(fillings);
        let mut endless = begin(&cache, None).unwrap();
        let sent = (0..).take_while(|_| endless.push(&[0; 9_999]).is_ok()).count();
        assert!((sent as u64) * 9_999 <= 16 * MEBI / 8);
        drop(endless);
        for number in 0..100_000 {
            let size = [10, 1_000, 100_000][number % 3];
            let entry = Entry::new(StatusCode::OK, &HeaderMap::new(), &vec![0; size], EntryTerms::default());
            let key = CacheKeyRef::new(&key().origin, &format!("/{number}"), "").to_key();
            let _ = cache.store(&key, Arc::new(entry), ChangeCount::default());
        }
        assert!(cache.memory.bytes() + cache.filling_most <= 16 * MEBI, "{}", cache.memory.bytes());
    }
}
