//! Builds the cache from a configuration, and closes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::cache::Cache;
use crate::cache::disk::{self, DiskListener, DiskNews, DiskTier};
use crate::config::CacheStorage;
use crate::gate::Gate;

/// Returns the folder of stored answers.
pub fn cache_directory(storage: &CacheStorage) -> PathBuf {
    let auto = || disk::auto_directory(|name| std::env::var_os(name).map(PathBuf::from));
    storage.dir.clone().unwrap_or_else(auto)
}

/// Starts the cache. A folder that cannot be used is no error: it is logged, and answers stay in memory alone.
pub(super) fn open(storage: &CacheStorage, gate: &Gate) -> std::io::Result<Arc<Cache>> {
    let events = gate.events().clone();
    let listener = DiskListener::new(move |news: &DiskNews<'_>| {
        events.tell(news.kind, news.host, || json!({ "directory": news.directory, "why": news.why }));
    });
    let start = || DiskTier::start_with(&cache_directory(storage), storage.disk as u64, listener);
    let disk = (storage.disk > 0).then(start).transpose()?;
    Ok(Arc::new(Cache::with_disk(storage.memory as u64, disk)))
}

/// Writes what is queued. Must be called after all workers have stopped.
pub(super) fn close(cache: &Cache) {
    if let Some(disk) = &cache.disk
        && !disk.close(PATIENCE)
    {
        tracing::warn!(event = "cache.unwritten", "the last stored answers did not reach the disk in time");
    }
}

/// A slow disk writes the queue of 32 MiB in this time.
const PATIENCE: Duration = Duration::from_secs(5);
