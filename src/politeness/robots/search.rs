//! Finding pieces in one path, again and again.
//!
//! A usual file has a few wildcards, and the fastest search there is finds their pieces. A file can also be made of
//! nothing else, each piece nearly everywhere in a long path: 260 ms for 500 KiB against 8 KiB, measured. So after a
//! while an index of the path takes over, 32 ms at worst: for each octet the places where it stands, one bit each, so
//! that a block of 2048 places is compared in one go.

use memchr::{memchr, memmem};

/// Octets searched before the index is worth building; far more than any real file makes us search.
const PATIENCE: usize = 1 << 20;

pub(super) struct Search<'p> {
    path: &'p [u8],
    searched: usize,
    index: Option<Index>,
}

impl<'p> Search<'p> {
    pub(super) fn new(path: &'p [u8]) -> Self {
        Search { path, searched: 0, index: None }
    }

    pub(super) fn path(&self) -> &'p [u8] {
        self.path
    }

    /// Where the piece first stands between `start` and `end` of the path.
    pub(super) fn find(&mut self, piece: &[u8], start: usize, end: usize) -> Option<usize> {
        if self.searched >= PATIENCE {
            let index = self.index.get_or_insert_with(|| Index::new(self.path));
            return index.find(piece, start).filter(|at| at + piece.len() <= end);
        }
        let room = self.path.get(start..end)?;
        let found = if let [octet] = piece { memchr(*octet, room) } else { memmem::find(room, piece) };
        self.searched += found.unwrap_or(room.len());
        found.map(|at| start + at)
    }
}

/// One row of bits for each value an octet can have; bit n says that it stands at place n of the path. Behind the path
/// a row is zero for a block and a word, so that nothing is found there.
struct Index {
    rows: Vec<u64>,
    /// Words of a row that the path takes.
    words: usize,
    /// How often each octet stands in the path.
    counts: [usize; 256],
}

const BITS: usize = u64::BITS as usize;

/// Words compared at a time: few enough to stop early, enough for the compiler to use the processor's vectors, which it
/// does from 32 on: a quarter of the time.
const BLOCK: usize = 32;

impl Index {
    fn new(path: &[u8]) -> Self {
        let words = path.len().div_ceil(BITS);
        let mut index = Index { rows: vec![0; (words + BLOCK + 1) * 256], words, counts: [0; 256] };
        for (place, octet) in path.iter().enumerate() {
            let row = usize::from(*octet) * index.row_len();
            index.rows[row + place / BITS] |= 1 << (place % BITS);
            index.counts[usize::from(*octet)] += 1;
        }
        index
    }

    fn row_len(&self) -> usize {
        self.words + BLOCK + 1
    }

    fn find(&self, piece: &[u8], start: usize) -> Option<usize> {
        let first = start / BITS;
        // What is rare leaves the fewest places to look at.
        let (rarest, octet) = piece.iter().enumerate().min_by_key(|(_, octet)| self.counts[usize::from(**octet)])?;
        for word in (first..self.words).step_by(BLOCK) {
            let mut places = [u64::MAX; BLOCK];
            if word == first {
                places[0] <<= start % BITS;
            }
            for (offset, octet) in std::iter::once((rarest, octet)).chain(piece.iter().enumerate()) {
                if !self.keep(&mut places, *octet, word, offset) {
                    break;
                }
            }
            if let Some(hit) = places.iter().position(|bits| *bits != 0) {
                return Some((word + hit) * BITS + places[hit].trailing_zeros() as usize);
            }
        }
        None
    }

    /// Of the places from `word` on, keeps those that have the octet `offset` places further; says whether any is left.
    fn keep(&self, places: &mut [u64; BLOCK], octet: u8, word: usize, offset: usize) -> bool {
        let row = &self.rows[usize::from(octet) * self.row_len()..][..self.row_len()];
        let (from, shift) = (word + offset / BITS, offset % BITS);
        let Some(bits) = row.get(from..=from + BLOCK) else {
            *places = [0; BLOCK];
            return false;
        };
        let mut left = 0;
        for (place, (low, high)) in places.iter_mut().zip(bits.iter().zip(&bits[1..])) {
            // In two steps, because a shift by all 64 is none.
            *place &= low >> shift | high << 1 << (BITS - 1 - shift);
            left |= *place;
        }
        left != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_finds_what_the_search_finds() {
        let path = [&b"aaaaaaab".repeat(20)[..], b"abc", &[b'x'; 70]].concat();
        let pieces = [&b"a"[..], b"ab", b"ba", b"aaaaaaaa", b"bc", b"abcx", &[b'x'; 70], &[b'x'; 71], b"q", &path];
        for piece in pieces {
            for start in 0..=path.len() {
                let (mut usual, mut indexed) = (Search::new(&path), Search::new(&path));
                indexed.searched = PATIENCE;
                for end in [start, start + 1, 100, path.len()] {
                    let end = end.clamp(start, path.len());
                    let found = usual.find(piece, start, end);
                    assert_eq!(indexed.find(piece, start, end), found, "{piece:?} from {start} to {end}");
                }
            }
        }
    }

    #[test]
    fn the_index_takes_over_after_a_while() {
        let path = [b'a'; 1_000];
        let mut search = Search::new(&path);
        for _ in 0..PATIENCE / 1_000 + 1 {
            assert!(search.index.is_none());
            assert_eq!(search.find(b"ab", 0, path.len()), None);
        }
        assert_eq!(search.find(b"aa", 7, path.len()), Some(7));
        assert!(search.index.is_some());
    }
}
