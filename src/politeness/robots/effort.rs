//! Bounds the work of one verdict.
//!
//! An ordinary file has some wildcards, and finding their pieces in a path takes microseconds. A file can also consist
//! of wildcards only, with pieces that occur nearly everywhere in a long path: 500 KiB of them cost 60 ms of processor
//! time against a path of 60 KiB. So the compared octets are counted, and a file that takes more than [`MOST`] is too
//! complicated: the path is denied. Counted, not timed, so that the same file and path always get the same verdict.

use memchr::{memchr, memmem};

/// A thousand rules with wildcards against a path of 4 KiB. The test `no_usual_file_comes_near_the_bound` shows that a
/// thousand ordinary rules and a long URL take less than a twentieth of it.
pub(super) const MOST: usize = 4 << 20;

/// The cost of starting a search, in octets compared: about 20 ns.
const START: usize = 16;

/// The work that one verdict may still take.
#[derive(Debug)]
pub(super) struct Effort {
    left: usize,
}

/// More than [`MOST`] octets would have to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooComplicated;

impl Effort {
    pub(super) fn new() -> Self {
        Effort { left: MOST }
    }

    /// Octets compared so far.
    #[cfg(test)]
    pub(super) fn spent(&self) -> usize {
        MOST - self.left
    }

    pub(super) fn spend(&mut self, octets: usize) -> Result<(), TooComplicated> {
        self.left = self.left.checked_sub(octets).ok_or(TooComplicated)?;
        Ok(())
    }

    /// Finds the first occurrence of the piece between `start` and `end` of the path.
    pub(super) fn find(
        &mut self,
        piece: &[u8],
        path: &[u8],
        start: usize,
        end: usize,
    ) -> Result<Option<usize>, TooComplicated> {
        let Some(room) = path.get(start..end) else { return Ok(None) };
        let found = if let [octet] = piece { memchr(*octet, room) } else { memmem::find(room, piece) };
        self.spend(START + found.map_or(room.len(), |at| at + piece.len()))?;
        Ok(found.map(|at| start + at))
    }
}
