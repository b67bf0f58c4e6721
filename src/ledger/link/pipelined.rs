//! A connection on which commands follow each other without waiting for answers.
//!
//! Callers append to one buffer, and a task on the thread that opened the connection writes what has gathered and reads
//! the answers, which come in the order of the commands. So the commands of one turn of the event loop are one write.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use parking_lot::Mutex;
use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::error::LedgerError;
use super::resp;

/// How much is read at once. Answers to claims have some hundred bytes.
const READ: usize = 4 * 1024;
/// A longer answer is none of curtsy's.
const LONGEST_ANSWER: usize = 64 * 1024 * 1024;

/// A TCP or a TLS stream.
pub(super) trait RedisStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> RedisStream for T {}

/// Appends commands.
#[derive(Clone)]
pub(super) struct Pipelined(Arc<Mutex<Outbox>>);

#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// The callers, in the order of the commands. `None` if the answer is ignored.
    waiting: VecDeque<Option<oneshot::Sender<Value>>>,
    driver: Option<Waker>,
    /// Why the connection has ended.
    ended: Option<LedgerError>,
}

impl Pipelined {
    /// Returns the connection and the task that drives it, which ends when the stream does.
    pub(super) fn new(stream: Box<dyn RedisStream>) -> (Self, impl Future<Output = ()> + Send) {
        let outbox = Arc::new(Mutex::new(Outbox::default()));
        let mut driver = Driver {
            stream,
            outbox: outbox.clone(),
            writing: Vec::new(),
            written: 0,
            room: Box::new([0; READ]),
            inbox: Vec::new(),
        };
        let drive = async move {
            let error = poll_fn(|cx| driver.poll(cx)).await;
            driver.outbox.lock().ended = Some(error);
        };
        (Pipelined(outbox), drive)
    }

    /// Appends what `write` writes: one command, after so many others whose answers are ignored. Returns the answer to
    /// it; an error if the connection has ended.
    pub(super) async fn ask(&self, ignored: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<Value, LedgerError> {
        let (tell, told) = oneshot::channel();
        {
            let mut outbox = self.0.lock();
            if let Some(error) = &outbox.ended {
                return Err(error.clone());
            }
            write(&mut outbox.bytes);
            outbox.waiting.extend((0..ignored).map(|_| None));
            outbox.waiting.push_back(Some(tell));
            outbox.driver.take()
        }
        .into_iter()
        .for_each(Waker::wake);
        told.await.map_err(|_| self.0.lock().ended.clone().unwrap_or_else(closed))
    }
}

fn closed() -> LedgerError {
    LedgerError::Away("the connection was closed".into())
}

fn broken(error: &io::Error) -> LedgerError {
    LedgerError::Away(error.to_string().into())
}

struct Driver {
    stream: Box<dyn RedisStream>,
    outbox: Arc<Mutex<Outbox>>,
    writing: Vec<u8>,
    written: usize,
    room: Box<[u8; READ]>,
    inbox: Vec<u8>,
}

impl Driver {
    /// Writes and reads until the stream ends, and returns why.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<LedgerError> {
        match self.poll_write(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(broken(&error)),
            _ => self.poll_read(cx),
        }
    }

    /// Writes all that has gathered.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                let mut outbox = self.outbox.lock();
                std::mem::swap(&mut self.writing, &mut outbox.bytes);
                if self.writing.is_empty() {
                    outbox.driver.get_or_insert_with(|| cx.waker().clone());
                    drop(outbox);
                    return Pin::new(&mut self.stream).poll_flush(cx);
                }
            }
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.writing[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
    }

    /// Reads all that is there. Ready if the stream has ended or cannot be understood.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<LedgerError> {
        loop {
            let mut piece = ReadBuf::new(&mut self.room[..]);
            if let Err(error) = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece)) {
                return Poll::Ready(broken(&error));
            }
            if piece.filled().is_empty() || self.inbox.len() > LONGEST_ANSWER {
                return Poll::Ready(closed());
            }
            self.inbox.extend_from_slice(piece.filled());
            if let Err(error) = self.pass_on() {
                return Poll::Ready(error);
            }
        }
    }

    /// Passes the answers that are complete on to their callers.
    fn pass_on(&mut self) -> Result<(), LedgerError> {
        let mut used = 0;
        while let Some((answer, length)) = resp::read(&self.inbox[used..])? {
            used += length;
            if let Some(Some(tell)) = self.outbox.lock().waiting.pop_front() {
                // It fails if the caller has given up.
                let _ = tell.send(answer);
            }
        }
        self.inbox.drain(..used);
        Ok(())
    }
}

/// Callers that still wait are told that the connection has ended.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut outbox = self.outbox.lock();
        outbox.ended.get_or_insert_with(closed);
        outbox.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn ping(into: &mut Vec<u8>) {
        into.extend_from_slice(b"PING\r\n");
    }

    #[tokio::test]
    async fn commands_of_one_turn_are_one_write_and_answers_keep_their_order() {
        let (near, mut far) = duplex(1_000);
        let (connection, driver) = Pipelined::new(Box::new(near));
        tokio::spawn(driver);
        let other = async {
            let mut both = [0; 24];
            let length = far.read(&mut both).await.unwrap();
            assert_eq!(&both[..length], b"PING\r\nPING\r\nPING\r\n");
            far.write_all(b"+ignored\r\n:1\r\n:").await.unwrap();
            far.write_all(b"2\r\n").await.unwrap();
        };
        let (first, second, ()) = tokio::join!(
            connection.ask(1, |into| [(); 2].into_iter().for_each(|()| ping(into))),
            connection.ask(0, ping),
            other
        );
        assert_eq!((first, second), (Ok(Value::Int(1)), Ok(Value::Int(2))));
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_does_not_shift_the_answers() {
        let (near, mut far) = duplex(1_000);
        let (connection, driver) = Pipelined::new(Box::new(near));
        tokio::spawn(driver);
        {
            let mut given_up = Box::pin(connection.ask(0, ping));
            assert!(poll_fn(|cx| Poll::Ready(given_up.as_mut().poll(cx))).await.is_pending());
        }
        let answers = async { far.write_all(b":1\r\n:2\r\n").await.unwrap() };
        assert_eq!(tokio::join!(connection.ask(0, ping), answers).0, Ok(Value::Int(2)));
    }

    #[tokio::test]
    async fn the_end_of_the_stream_is_an_error_for_this_and_later_callers() {
        for (last, word) in [(b"".as_slice(), "away"), (b"HTTP/1.1 400\r\n", "protocol")] {
            let (near, mut far) = duplex(1_000);
            let (connection, driver) = Pipelined::new(Box::new(near));
            tokio::spawn(driver);
            // Garbage ends the connection, though the other side keeps it open.
            let ends = async {
                far.write_all(last).await.unwrap();
                (!last.is_empty()).then_some(far)
            };
            let (first, _open) = tokio::join!(connection.ask(0, ping), ends);
            for answer in [first, connection.ask(0, ping).await] {
                assert_eq!(answer.map_err(|error| error.word()), Err(word));
            }
        }
    }
}
