//! The one thread that reads robots.txt copies.
//!
//! A copy that is not in memory is read here instead of being fetched from its origin. Disks can hang, so no request
//! waits long. If there is no answer in time, the copy counts as "not known" and is fetched from the origin after all.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::oneshot;

use super::database::Database;
use super::record::RobotsRecord;

/// The reader of copies. None while the file cannot be read; set when the file is opened late.
pub(super) type Copies = Arc<ArcSwapOption<StoreReader>>;

/// The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct StoreReader {
    questions: SyncSender<ReadRequest>,
}

struct ReadRequest {
    origin: Box<str>,
    answer: oneshot::Sender<Option<RobotsRecord>>,
}

impl StoreReader {
    pub(super) fn start(database: Database) -> std::io::Result<StoreReader> {
        let (questions, asked) = sync_channel::<ReadRequest>(MOST_QUESTIONS);
        std::thread::Builder::new().name("store-reader".to_owned()).spawn(move || {
            while let Ok(ReadRequest { origin, answer }) = asked.recv() {
                if answer.is_closed() {
                    continue;
                }
                let found = database.robots(&origin).unwrap_or_else(|error| {
                    tracing::warn!(event = "state.unread", %error, "cannot read a robots.txt copy from the state file");
                    None
                });
                let _ = answer.send(found);
            }
        })?;
        Ok(StoreReader { questions })
    }

    pub(super) async fn robots(&self, origin: &str) -> Option<RobotsRecord> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(ReadRequest { origin: origin.into(), answer }).ok()?;
        tokio::time::timeout(PATIENCE, answered).await.ok()?.ok()?
    }
}

/// Questions that may wait at once. The number of waiting visits has the same bound.
const MOST_QUESTIONS: usize = 20_000;
/// A look-up takes some 20 µs, on a slow disk milliseconds. At worst, fetching from the origin takes longer than this.
const PATIENCE: Duration = Duration::from_millis(250);
