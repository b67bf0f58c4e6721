//! Large responses: each is a file of its own, written while its body passes.
//!
//! The header is written first, with a digest and a length of zero, and completed after the last byte. Until then no
//! row points to the file, so a response that breaks off is never found.

use aws_lc_rs::digest::{Context, SHA256};

use super::catalogue::CatalogueRow;
use super::draft::LargeDraft;
use super::open;
use super::record;
use super::status::DiskTrouble;
use super::writer::{self, DiskWriter};
use crate::cache::{CacheKey, Entry};

impl DiskWriter {
    /// Writes a whole response that is too large for a segment.
    pub(super) fn put_large(&mut self, number: u64, key: &CacheKey, entry: &Entry) -> Result<(), DiskTrouble> {
        self.begin_large(WHOLE, number, key, entry)?;
        for piece in entry.body() {
            self.piece(WHOLE, piece)?;
        }
        self.finish_large(WHOLE, entry.length())
    }

    pub(super) fn begin_large(
        &mut self,
        draft: u64,
        number: u64,
        key: &CacheKey,
        entry: &Entry,
    ) -> Result<(), DiskTrouble> {
        let header = writer::header(key, entry, [0; 32], 0);
        let Some(text) = header.write() else { return Ok(()) };
        self.make_room((text.len() + entry.head().len()) as u64)?;
        let file = self.folder.segments.begin_large().map_err(|error| open::io_trouble(&error))?;
        let head_length = (text.len() + entry.head().len()) as u32;
        let row = CatalogueRow { segment: file.name, head_length, ..self.row(entry) };
        let mut digest = Context::new(&SHA256);
        digest.update(entry.head());
        self.drafts.insert(draft, LargeDraft { file, digest, header, row, number, body_length: 0 });
        self.append_to(draft, text.as_bytes())?;
        self.append_to(draft, entry.head())
    }

    /// Appends to a body. Gives up on one that is too large for this folder.
    pub(super) fn piece(&mut self, draft: u64, piece: &[u8]) -> Result<(), DiskTrouble> {
        let most = self.shared.limit / LARGEST_SHARE;
        let Some(large) = self.drafts.get_mut(&draft) else { return Ok(()) };
        large.body_length += piece.len() as u64;
        if large.body_length > most {
            if let Some(large) = self.drafts.remove(&draft) {
                self.abandon(&large);
            }
            return Ok(());
        }
        large.digest.update(piece);
        self.make_room(piece.len() as u64)?;
        self.append_to(draft, piece)
    }

    /// Completes a response, if it has all of its bytes.
    pub(super) fn finish_large(&mut self, draft: u64, body_length: u64) -> Result<(), DiskTrouble> {
        if self.drafts.get(&draft).is_some_and(|large| large.body_length == body_length) {
            self.append_to(draft, record::END)?;
        }
        let Some(large) = self.drafts.remove(&draft) else { return Ok(()) };
        if large.body_length != body_length {
            self.abandon(&large);
            return Ok(());
        }
        let LargeDraft { file, digest, mut header, row, number, .. } = large;
        let head = header.write().map_or(0, |text| text.len());
        header.digest = record::finished(digest);
        header.block_length = u64::from(row.head_length) - head as u64 + body_length;
        let written = match header.write() {
            Some(text) if text.len() == head => file.rewrite(text.as_bytes()),
            _ => Err(std::io::ErrorKind::InvalidInput.into()),
        };
        if let Err(error) = written {
            let _ = self.folder.segments.drop_segment(file.name);
            return Err(open::io_trouble(&error));
        }
        let length = u64::from(row.head_length) + body_length + record::END.len() as u64;
        self.add(number, header, CatalogueRow { length, ..row });
        self.succeeded();
        Ok(())
    }

    pub(super) fn abandon(&mut self, draft: &LargeDraft) {
        if let Err(error) = self.folder.segments.drop_segment(draft.file.name) {
            tracing::debug!(event = "cache.undeleted", %error, "an unfinished file stays until the next start");
        }
    }

    fn append_to(&mut self, draft: u64, bytes: &[u8]) -> Result<(), DiskTrouble> {
        let Some(large) = self.drafts.get(&draft) else { return Ok(()) };
        self.folder.segments.append_large(&large.file, bytes).map_err(|error| open::io_trouble(&error))
    }
}

/// Number of the draft of a response that is whole already. The request path counts from 1.
const WHOLE: u64 = 0;
/// A response takes at most this part of the disk's share.
const LARGEST_SHARE: u64 = 4;
