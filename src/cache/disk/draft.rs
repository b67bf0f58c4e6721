//! A large response while it is written.

use aws_lc_rs::digest::Context;

use super::catalogue::CatalogueRow;
use super::files::SegmentName;
use super::record::WarcHeader;
use super::segments::LargeFile;

/// A large response that is being written.
pub(super) struct LargeDraft {
    pub(super) file: LargeFile,
    pub(super) digest: Context,
    pub(super) header: WarcHeader,
    pub(super) row: CatalogueRow,
    /// Number of the job that began it.
    pub(super) number: u64,
    /// Bytes of the body so far.
    pub(super) body_length: u64,
}

impl std::fmt::Debug for LargeDraft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LargeDraft").field("file", &self.file).field("body_length", &self.body_length).finish()
    }
}

impl LargeDraft {
    pub(super) fn name(&self) -> SegmentName {
        self.file.name
    }
}
