//! The threads that read stored responses.
//!
//! A worker asks, and waits for an answer with a deadline; a late answer is a miss. A response is used only if its
//! record has the URL that was asked for, the right length and the right digest. Anything else is damage: it is counted
//! and forgotten. Large responses are read in pieces, one ahead of the client, so that they never are in memory as a
//! whole. Their digest is checked once, before the first use, unless this process wrote them or the last one ended
//! well.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::catalogue::Catalogue;
use super::files::{self, CATALOGUE};
use super::index::DiskPlace;
use super::purge::host_of;
use super::record::{self, BadRecord, END, WarcHeader};
use super::status::count;
use super::{DiskShared, note};
use crate::cache::Entry;

/// What a reader is asked for.
#[derive(Debug)]
pub(super) enum ReadJob {
    Copy { place: DiskPlace, url: String, partition: String, answer: oneshot::Sender<Option<Entry>> },
    Piece { file: Arc<File>, at: u64, length: usize, answer: oneshot::Sender<io::Result<Bytes>> },
}

/// The way to the reader threads, which end when the last one is dropped.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    jobs: SyncSender<ReadJob>,
}

impl Readers {
    /// Starts the threads. They do not keep the tier alive.
    pub(super) fn start() -> io::Result<(Readers, ReaderStart)> {
        let (jobs, asked) = sync_channel(MOST_JOBS);
        Ok((Readers { jobs }, ReaderStart { asked: Arc::new(Mutex::new(asked)) }))
    }

    /// Asks for something. False if too much is asked for already.
    pub(super) fn ask(&self, job: ReadJob) -> bool {
        self.jobs.try_send(job).is_ok()
    }
}

/// What the threads need to begin.
#[derive(Debug)]
pub(super) struct ReaderStart {
    asked: Arc<Mutex<Receiver<ReadJob>>>,
}

impl ReaderStart {
    pub(super) fn run(self, shared: &Arc<DiskShared>) -> io::Result<()> {
        for number in 0..THREADS {
            let (asked, shared) = (self.asked.clone(), Arc::downgrade(shared));
            let thread = std::thread::Builder::new().name(format!("cache-reader-{number}"));
            thread.spawn(move || serve(&asked, &shared))?;
        }
        Ok(())
    }
}

fn serve(asked: &Mutex<Receiver<ReadJob>>, shared: &Weak<DiskShared>) {
    let mut catalogue = None;
    loop {
        // The other threads wait for the lock while this one waits for a job.
        let Ok(job) = asked.lock().recv() else { return };
        match job {
            ReadJob::Copy { place, url, partition, answer } => {
                let Some(shared) = shared.upgrade() else { return };
                if !answer.is_closed() {
                    let _ = answer.send(copy(&shared, &mut catalogue, place, (&url, &partition)));
                }
            }
            ReadJob::Piece { file, at, length, answer } => {
                if !answer.is_closed() {
                    let _ = answer.send(piece(&file, at, length));
                }
            }
        }
    }
}

fn piece(file: &File, at: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes.into())
}

/// Reads a response. What is damaged is forgotten.
pub(super) fn copy(
    shared: &DiskShared,
    catalogue: &mut Option<Catalogue>,
    place: DiskPlace,
    (url, partition): (&str, &str),
) -> Option<Entry> {
    let hash = shared.index.hash(url, partition);
    match read(shared, catalogue, &place, (url, partition)) {
        Ok(copy) => {
            shared.index.change(hash, place.id, |place| {
                place.hits = place.hits.saturating_add(1);
                place.is_checked = true;
            });
            count(&shared.counters.read);
            Some(copy)
        }
        Err(fault) => {
            // The segment may have been evicted since the look-up.
            let is_current = shared.index.get(hash).iter().any(|now| now.id == place.id);
            if is_current {
                count(&shared.counters.damaged);
                shared.forget_place(hash, place);
                tracing::warn!(
                    event = "cache.damaged", segment = place.segment, offset = place.offset, %fault,
                    "a stored answer is not as it was written: it was deleted"
                );
                shared.tell("cache.damaged", Some(host_of(url)), Some(&fault.to_string()));
            }
            None
        }
    }
}

/// Reads a response, and neither counts it nor forgets it.
pub(super) fn read(
    shared: &DiskShared,
    catalogue: &mut Option<Catalogue>,
    place: &DiskPlace,
    asked: (&str, &str),
) -> Result<Entry, ReadFault> {
    let file = files::open_to_read(&place.segment().path(&shared.directory)).map_err(|_| ReadFault::Gone)?;
    let (header, block, body) =
        if place.is_large { read_large(shared, file, place)? } else { read_small(&file, place)? };
    if asked != (&header.url, &header.partition) {
        return Err(ReadFault::Other);
    }
    let entry = entry(shared, catalogue, place, &header, block).ok_or(ReadFault::Bad(BadRecord::Malformed))?;
    Ok(match body {
        Some(body) => entry.with_large_body(body),
        None => entry,
    })
}

/// Why a response cannot be read.
#[derive(Debug)]
pub(super) enum ReadFault {
    /// The file does not exist, or is too short.
    Gone,
    Bad(BadRecord),
    /// The record is for another URL.
    Other,
}

impl std::fmt::Display for ReadFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ReadFault::Gone => "the file is missing or too short",
            ReadFault::Other => "it is the answer for another URL",
            ReadFault::Bad(BadRecord::Cut | BadRecord::Malformed) => "the header is damaged",
            ReadFault::Bad(BadRecord::Length) => "the length is wrong",
            ReadFault::Bad(BadRecord::Digest) => "the digest is wrong",
        })
    }
}

fn read_small(file: &File, place: &DiskPlace) -> Result<(WarcHeader, Bytes, Option<LargeBody>), ReadFault> {
    let mut bytes = vec![0; usize::try_from(place.length).map_err(|_| ReadFault::Gone)?];
    file.read_exact_at(&mut bytes, place.offset.into()).map_err(|_| ReadFault::Gone)?;
    let (header, at) = record::read_whole(&bytes).map_err(ReadFault::Bad)?;
    let end = bytes.len() - END.len();
    // A copy: the entry may stay in memory, and the header of the record should not.
    Ok((header, Bytes::copy_from_slice(&bytes[at..end]), None))
}

fn read_large(
    shared: &DiskShared,
    file: File,
    place: &DiskPlace,
) -> Result<(WarcHeader, Bytes, Option<LargeBody>), ReadFault> {
    let mut bytes = vec![0; place.head_length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|_| ReadFault::Gone)?;
    let (header, at) = WarcHeader::read(&bytes).map_err(ReadFault::Bad)?;
    let end = at as u64 + header.block_length;
    if end + END.len() as u64 != place.length || file.metadata().map_or(0, |file| file.len()) != place.length {
        return Err(ReadFault::Bad(BadRecord::Length));
    }
    if !place.is_checked {
        check(&file, at as u64, end, &header)?;
    }
    let body = LargeBody::new(shared.readers.clone(), Arc::new(file), place.head_length.into(), end);
    Ok((header, Bytes::copy_from_slice(&bytes[at..]), Some(body)))
}

/// Reads a block in pieces and compares its digest.
pub(super) fn check(file: &File, mut at: u64, end: u64, header: &WarcHeader) -> Result<(), ReadFault> {
    let mut digest = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let mut buffer = vec![0; PIECE];
    while at < end {
        let length = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
        file.read_exact_at(&mut buffer[..length], at).map_err(|_| ReadFault::Gone)?;
        digest.update(&buffer[..length]);
        at += length as u64;
    }
    if record::finished(digest) == header.digest { Ok(()) } else { Err(ReadFault::Bad(BadRecord::Digest)) }
}

/// Makes an entry of a block, with the head that a validation brought, if one did.
fn entry(
    shared: &DiskShared,
    catalogue: &mut Option<Catalogue>,
    place: &DiskPlace,
    header: &WarcHeader,
    block: Bytes,
) -> Option<Entry> {
    let mut terms = note::read(&header.note, header.address)?;
    let mut block = block;
    if place.is_revised {
        let revision = revision(&shared.directory, catalogue, place.id)?;
        terms = note::read(&revision.note, header.address)?;
        let head_length = memchr::memmem::find(&block, b"\r\n\r\n")? + 4;
        block = [&revision.head[..], &block[head_length..]].concat().into();
    }
    terms.policy.flags.doubtful |= place.is_suspect;
    Entry::read(block, terms)
}

fn revision(directory: &Path, catalogue: &mut Option<Catalogue>, id: u64) -> Option<super::catalogue::Revision> {
    if catalogue.is_none() {
        *catalogue = Catalogue::reader(&directory.join(CATALOGUE)).ok();
    }
    catalogue.as_ref()?.revision(id).ok().flatten()
}

/// The body of a large response, in pieces.
#[derive(Debug)]
pub struct LargeBody {
    readers: Readers,
    file: Arc<File>,
    /// Where the body begins in the file.
    start: u64,
    /// Where it ends.
    whole_end: u64,
    at: u64,
    /// Where reading ends.
    end: u64,
    /// The piece that is being read, with its length.
    ahead: Option<(oneshot::Receiver<io::Result<Bytes>>, u64)>,
}

impl LargeBody {
    fn new(readers: Readers, file: Arc<File>, start: u64, end: u64) -> LargeBody {
        LargeBody { readers, file, start, whole_end: end, at: start, end, ahead: None }
    }

    /// The whole body once more, for another reader.
    pub fn again(&self) -> LargeBody {
        LargeBody::new(self.readers.clone(), self.file.clone(), self.start, self.whole_end)
    }

    /// Bytes that are left to read.
    pub fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Restricts the body to `length` bytes from `first` on.
    pub fn select(&mut self, first: u64, length: u64) {
        self.at = self.start.saturating_add(first).min(self.end);
        self.end = self.at.saturating_add(length).min(self.end);
        self.ahead = None;
    }

    /// Returns the next piece, and asks for the one after it.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.at == self.end {
            return Poll::Ready(None);
        }
        if self.ahead.is_none() && !self.ask() {
            return Poll::Ready(Some(Err(io::ErrorKind::ResourceBusy.into())));
        }
        let Some((answer, length)) = &mut self.ahead else { return Poll::Ready(None) };
        let read =
            ready!(std::pin::Pin::new(answer).poll(cx)).unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        self.at += *length;
        self.ahead = None;
        if read.is_ok() && self.at < self.end {
            // If the readers are busy now, it is asked for again when it is needed.
            self.ask();
        }
        Poll::Ready(Some(read))
    }

    fn ask(&mut self) -> bool {
        let length = self.left().min(PIECE as u64);
        let (answer, answered) = oneshot::channel();
        let job = ReadJob::Piece { file: self.file.clone(), at: self.at, length: length as usize, answer };
        let is_asked = self.readers.ask(job);
        if is_asked {
            self.ahead = Some((answered, length));
        }
        is_asked
    }
}

/// A hung disk must not stop reads of what is in the page cache at once.
const THREADS: usize = 2;
/// Reads that may wait. More than that, and the disk is too slow to be of use.
const MOST_JOBS: usize = 1_024;
/// How much of a large response is read at once.
const PIECE: usize = 256 * 1024;
