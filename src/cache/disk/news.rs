//! What the disk tier reports as events: the folder cannot be written, works again, or has damaged answers.

use std::fmt;

use super::DiskShared;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskNews<'a> {
    /// `cache.unwritten`, `cache.recovered` or `cache.damaged`.
    pub kind: &'static str,
    /// The host of a damaged answer.
    pub host: Option<&'a str>,
    pub directory: &'a str,
    pub why: Option<&'a str>,
}

/// A callback for news. The threads of the disk tier call it.
pub struct DiskListener(Box<dyn Fn(&DiskNews<'_>) + Send + Sync>);

impl DiskListener {
    pub fn new(listener: impl Fn(&DiskNews<'_>) + Send + Sync + 'static) -> Self {
        DiskListener(Box::new(listener))
    }
}

impl fmt::Debug for DiskListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskListener")
    }
}

impl DiskShared {
    pub(super) fn tell(&self, kind: &'static str, host: Option<&str>, why: Option<&str>) {
        let directory = &self.directory.display().to_string();
        (self.listener.0)(&DiskNews { kind, host, directory, why });
    }
}
