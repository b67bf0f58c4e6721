//! What people see of the catalogue, and a check of every record.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::catalogue::{Catalogue, CatalogueRow};
use super::files::{self, CATALOGUE, SegmentName};
use super::index::DiskPlace;
use super::purge::Purge;
use super::reader;
use super::record::{self, WarcHeader};
use super::{DiskShared, DiskTier};
use crate::cache::{CacheKeyRef, Entry};

/// A stored response, as the catalogue has it.
#[derive(Clone, Debug)]
pub struct DiskRow {
    pub url: String,
    pub partition: String,
    pub received_us: u64,
    place: DiskPlace,
}

impl DiskRow {
    pub fn variant(&self) -> u32 {
        self.place.variant
    }

    /// How often it was read since it was written, or since the start.
    pub fn hits(&self) -> u64 {
        self.place.hits.into()
    }

    pub fn body_length(&self) -> u64 {
        self.place.length.saturating_sub(u64::from(self.place.head_length) + record::END.len() as u64)
    }
}

impl DiskTier {
    /// Lists what is stored. Reads the whole catalogue, in a thread of its own.
    pub async fn rows(&self, which: Purge) -> Vec<DiskRow> {
        self.flush().await;
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || rows(&shared, &which).unwrap_or_default()).await.unwrap_or_default()
    }

    /// Reads a variant for people: without the deadline of requests, and without counting it as used. None if it is
    /// gone or damaged.
    pub async fn peek(&self, key: &CacheKeyRef<'_>, place: DiskPlace) -> Option<Entry> {
        let (shared, url, partition) = (self.shared.clone(), super::url(key), key.partition.to_owned());
        let read = move || reader::read(&shared, &mut None, &place, (&url, &partition)).ok();
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// Returns when the oldest and the newest response were stored, in microseconds since the Unix epoch.
    pub async fn received(&self) -> Option<(u64, u64)> {
        self.flush().await;
        let path = self.shared.directory.join(CATALOGUE);
        let read = move || Catalogue::reader(&path).and_then(|catalogue| catalogue.received());
        tokio::task::spawn_blocking(read).await.ok()?.ok().flatten()
    }

    /// Reads a listed response, without the deadline of requests.
    pub async fn read_row(&self, row: &DiskRow) -> Option<Entry> {
        let (shared, row) = (self.shared.clone(), row.clone());
        let read = move || reader::copy(&shared, &mut None, row.place, (&row.url, &row.partition));
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }
}

fn rows(shared: &Arc<DiskShared>, which: &Purge) -> rusqlite::Result<Vec<DiskRow>> {
    let mut found = Vec::new();
    Catalogue::reader(&shared.directory.join(CATALOGUE))?.each(|row| {
        if !which.matches(&row.url) {
            return;
        }
        let url = shared.index.hash(&row.url, &row.partition);
        // What is not in the index was forgotten, and will be deleted soon.
        if let Some(place) = shared.index.get(url).into_iter().find(|place| place.id == row.id) {
            found.push(DiskRow { url: row.url, partition: row.partition, received_us: row.received_us, place });
        }
    })?;
    Ok(found)
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Responses that are as they were written.
    pub good: u64,
    pub bytes: u64,
    /// Responses that are not, with the reason.
    pub bad: Vec<(String, String)>,
}

/// Reads every record in a folder and checks its length and digest. Changes nothing, and works while a curtsy uses the
/// folder.
pub fn verify(directory: &Path) -> Result<VerifyReport, String> {
    let path = directory.join(CATALOGUE);
    if !path.exists() {
        return Err(format!("nothing is stored in {}", directory.display()));
    }
    let catalogue = Catalogue::reader(&path).map_err(|error| error.to_string())?;
    if let Some(complaint) = catalogue.check().map_err(|error| error.to_string())? {
        return Err(format!("{} is damaged: {complaint}", path.display()));
    }
    let (mut report, mut open) = (VerifyReport::default(), None);
    let check = |row: CatalogueRow| match check(directory, &mut open, &row) {
        Ok(()) => {
            report.good += 1;
            report.bytes += row.length;
        }
        Err(why) => report.bad.push((row.url, why)),
    };
    catalogue.each(check).map_err(|error| error.to_string())?;
    // A running curtsy may have evicted files since their rows were read.
    let mut rows = std::collections::HashSet::new();
    let insert = |row: CatalogueRow| {
        rows.insert(row.url);
    };
    catalogue.each(insert).map_err(|error| error.to_string())?;
    report.bad.retain(|(url, _)| rows.contains(url));
    Ok(report)
}

fn check(directory: &Path, open: &mut Option<(SegmentName, File)>, row: &CatalogueRow) -> Result<(), String> {
    if open.as_ref().is_none_or(|(name, _)| *name != row.segment) {
        let file = files::open_to_read(&row.segment.path(directory)).map_err(|error| error.to_string())?;
        *open = Some((row.segment, file));
    }
    let Some((_, file)) = open else { return Ok(()) };
    let read = |buffer: &mut [u8], at| file.read_exact_at(buffer, at).map_err(|_| "the file is too short".to_owned());
    let mut head = vec![0; row.head_length as usize];
    read(&mut head, row.offset.into())?;
    let (header, length) = WarcHeader::read(&head).map_err(|_| "the header is damaged".to_owned())?;
    let start = u64::from(row.offset) + length as u64;
    let end = start + header.block_length;
    if header.url != row.url || end + record::END.len() as u64 != u64::from(row.offset) + row.length {
        return Err("the catalogue and the file disagree".to_owned());
    }
    reader::check(file, start, end, &header).map_err(|fault| fault.to_string())
}
