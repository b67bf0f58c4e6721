//! Makes room: the oldest file goes first, and what was used since it was written gets a second chance.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use super::catalogue::{CatalogueRow, Revision};
use super::files::{self, SegmentName};
use super::index::DiskPlace;
use super::note;
use super::open;
use super::record;
use super::segments::SegmentState;
use super::status::DiskTrouble;
use super::writer::DiskWriter;
use crate::cache::{CacheKey, Entry};

/// A response of an evicted segment that is stored anew.
struct SecondChance {
    row: CatalogueRow,
    bytes: Vec<u8>,
    revision: Option<Revision>,
}

impl DiskWriter {
    /// Evicts until `bytes` more fit.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<(), DiskTrouble> {
        while self.folder.segments.bytes() + self.catalogue_bytes + bytes > self.shared.limit {
            if !self.evict_oldest()? {
                break;
            }
        }
        Ok(())
    }

    /// Evicts the oldest file. Returns false if there is none.
    pub(super) fn evict_oldest(&mut self) -> Result<bool, DiskTrouble> {
        let is_busy = |number| self.drafts.values().any(|draft| draft.name().number == number);
        let Some((name, state)) = self.folder.segments.oldest(is_busy) else { return Ok(false) };
        self.commit()?;
        let catalogue = &self.folder.catalogue;
        let rows = catalogue.rows_of(name, state.first_id, state.last_id).map_err(|error| open::trouble(&error))?;
        let mut used = Vec::new();
        for row in rows {
            let url = self.shared.index.hash(&row.url, &row.partition);
            let Some(place) = self.shared.index.remove(url, row.id) else { continue };
            if (place.hits > 0 || self.is_used_in_memory(&row)) && !place.is_suspect {
                used.push(row);
            } else {
                super::status::count(&self.shared.counters.evicted);
            }
        }
        let renewed = self.second_chances(name, state, used);
        let catalogue = &self.folder.catalogue;
        catalogue.delete_segment(name, state.first_id, state.last_id).map_err(|error| open::trouble(&error))?;
        match renewed {
            Renewed::Large(row, revision) => self.renew_large(name, row, revision)?,
            Renewed::Small(chances) => {
                self.folder.segments.drop_segment(name).map_err(|error| open::io_trouble(&error))?;
                for chance in chances {
                    self.append_anew(chance)?;
                }
            }
        }
        Ok(true)
    }

    /// Whether memory has the response and gave it to a client.
    fn is_used_in_memory(&self, row: &CatalogueRow) -> bool {
        let memory = self.shared.memory.get().and_then(Weak::upgrade);
        let Some((memory, key)) = memory.zip(CacheKey::read(&row.url, &row.partition)) else { return false };
        let is_it = |entry: &Arc<Entry>| entry.hits() > 0 && note::variant(&entry.terms) == row.variant;
        memory.peek(&key.borrowed()).is_some_and(|variants| variants.iter().any(is_it))
    }

    /// Reads what is stored anew, before its file is deleted.
    fn second_chances(&self, name: SegmentName, state: SegmentState, used: Vec<CatalogueRow>) -> Renewed {
        if name.is_large {
            return match used.into_iter().next() {
                Some(row) => {
                    let revision = self.folder.catalogue.revision(row.id).ok().flatten();
                    Renewed::Large(row, revision)
                }
                None => Renewed::Small(Vec::new()),
            };
        }
        let mut room = state.bytes / SECOND_CHANCES;
        let mut chances = Vec::new();
        let Ok(file) = files::open(&name.path(&self.shared.directory)) else { return Renewed::Small(chances) };
        for row in used {
            let Some(left) = room.checked_sub(row.length) else { continue };
            let mut bytes = vec![0; usize::try_from(row.length).unwrap_or(0)];
            let is_good =
                file.read_exact_at(&mut bytes, row.offset.into()).is_ok() && record::read_whole(&bytes).is_ok();
            if is_good {
                room = left;
                let revision = self.folder.catalogue.revision(row.id).ok().flatten();
                chances.push(SecondChance { row, bytes, revision });
            }
        }
        Renewed::Small(chances)
    }

    fn append_anew(&mut self, chance: SecondChance) -> Result<(), DiskTrouble> {
        let SecondChance { row, bytes, revision } = chance;
        let (segment, offset) = self.folder.segments.append(&[&bytes]).map_err(|error| open::io_trouble(&error))?;
        self.add_again(CatalogueRow { segment, offset, ..row }, revision);
        Ok(())
    }

    /// A large file is not copied: it gets a new number.
    fn renew_large(
        &mut self,
        name: SegmentName,
        row: CatalogueRow,
        revision: Option<Revision>,
    ) -> Result<(), DiskTrouble> {
        let segment = self.folder.segments.renew_large(name).map_err(|error| open::io_trouble(&error))?;
        self.add_again(CatalogueRow { segment, ..row }, revision);
        Ok(())
    }

    fn add_again(&mut self, row: CatalogueRow, revision: Option<Revision>) {
        let id = self.folder.next_id;
        self.folder.next_id += 1;
        let row = CatalogueRow { id, ..row };
        self.folder.segments.added(row.segment.number, id);
        let url = self.shared.index.hash(&row.url, &row.partition);
        let place = DiskPlace { is_revised: false, ..DiskPlace::from(&row) };
        self.batch.added.push(row);
        // As old as can be: if the URL was forgotten meanwhile, it stays forgotten.
        for replaced in self.shared.index.put(url, place, 0) {
            self.forget_row(&replaced);
        }
        if let Some(revision) = revision {
            self.revise(url, id, revision);
        }
        self.commit_soon();
    }
}

/// What is kept of an evicted file.
enum Renewed {
    Large(CatalogueRow, Option<Revision>),
    Small(Vec<SecondChance>),
}

/// At most this part of a segment gets a second chance, so that evicting always makes room.
const SECOND_CHANCES: u64 = 4;
