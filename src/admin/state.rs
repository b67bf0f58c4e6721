//! `/api/v1/state`: export and import of everything that survives a restart, as JSON lines.
//!
//! Both directions are streamed: however much there is, neither side holds more than a few pieces of it. An import is
//! applied only once all of it is understood, and takes effect at once for active hosts and clients.

use std::future::poll_fn;
use std::io::{self, BufRead, BufWriter, Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Buf;
use http_body::{Body as _, Frame};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::hosts::fresh;
use super::problem::ApiProblem;
use super::{Admin, time};
use crate::store::{Imported, LinesError, StoredLine};

/// A piece of the stream, or why there is no more; an empty piece is the end.
type Piece = io::Result<Bytes>;

const PIECES: usize = 4;
const PIECE: usize = 64 << 10;

/// `GET /api/v1/state`
pub(super) async fn export(State(admin): State<Arc<Admin>>) -> Result<Response, ApiProblem> {
    let (outlet, mut pieces) = mpsc::channel(PIECES);
    let exported = tokio::task::spawn_blocking(move || {
        let mut outlet = BufWriter::with_capacity(PIECE, Outlet(outlet));
        let exported = admin.store.export(&mut outlet);
        if let (Err(error), Ok(outlet)) = (&exported, outlet.into_inner()) {
            // Aborts the response, if it has begun, so that no client takes it for complete.
            let _ = outlet.0.blocking_send(Err(io::Error::other(error.to_string())));
        }
        exported
    });
    match pieces.recv().await {
        Some(Ok(first)) => {
            let fields = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
            Ok((fields, Body::new(Pieces { first: Some(first), pieces })).into_response())
        }
        _ => match exported.await {
            Ok(Err(error)) => Err(problem(&error)),
            _ => Err(problem(&LinesError::NothingKept)),
        },
    }
}

/// `POST /api/v1/state`
pub(super) async fn import(State(admin): State<Arc<Admin>>, body: Body) -> Result<Response, ApiProblem> {
    let (sender, pieces) = mpsc::channel(PIECES);
    let (handle, inlet) = (Handle::current(), Inlet { pieces, piece: Bytes::new(), ended: false });
    let imported = tokio::task::spawn_blocking(move || take_in(&admin, inlet, &handle));
    pass_on(body, &sender).await;
    match imported.await {
        Ok(Ok(imported)) => Ok(fresh(imported)),
        Ok(Err(error)) => Err(problem(&error)),
        Err(error) => Err(problem(&LinesError::Stream(io::Error::other(error)))),
    }
}

/// Imports an export. Blocks on the disk: must not be called on a thread that serves requests.
pub fn take_in(admin: &Admin, from: impl BufRead, handle: &Handle) -> Result<Imported, LinesError> {
    let imported = admin.store.import(from, |entry| match entry {
        StoredLine::Host(host, record) => admin.gate.import(&host, &record),
        StoredLine::Robots(origin, copy) => handle.block_on(admin.robots.import(&origin, copy)),
        StoredLine::Job(client, record) => admin.desk.stops().import(&client, &record, time::now()),
    })?;
    let Imported { hosts, robots, jobs } = imported;
    tracing::info!(event = "state.imported", %hosts, %robots, %jobs, "the state of another curtsy was imported");
    Ok(imported)
}

/// Passes the body on piece by piece. After a refusal the rest is read and dropped: a client that is still sending
/// would not see the response.
async fn pass_on(body: Body, to: &Sender<Piece>) {
    let mut body = pin!(body);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let piece = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => {
                let _ = to.send(Err(io::Error::other(error))).await;
                return;
            }
        };
        if !piece.is_empty() {
            let _ = to.send(Ok(piece)).await;
        }
    }
    let _ = to.send(Ok(Bytes::new())).await;
}

fn problem(error: &LinesError) -> ApiProblem {
    let (status, title) = match error {
        LinesError::NothingKept => (StatusCode::CONFLICT, "Nothing kept"),
        LinesError::Line { .. } | LinesError::Stream(_) => (StatusCode::BAD_REQUEST, "Bad request"),
        LinesError::Unsaved { .. } | LinesError::Disk(_) => (StatusCode::SERVICE_UNAVAILABLE, "Disk trouble"),
    };
    ApiProblem { status, title, detail: error.to_string() }
}

/// The end of an export where the lines are written.
struct Outlet(Sender<Piece>);

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The end of an export where the lines are sent.
struct Pieces {
    first: Option<Bytes>,
    pieces: Receiver<Piece>,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => self.pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }
}

/// The end of an import where the lines are read.
struct Inlet {
    pieces: Receiver<Piece>,
    piece: Bytes,
    ended: bool,
}

impl BufRead for Inlet {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.piece.is_empty() && !self.ended {
            let cut_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "the sender disconnected in the middle");
            self.piece = self.pieces.blocking_recv().ok_or_else(cut_off)??;
            self.ended = self.piece.is_empty();
        }
        Ok(&self.piece)
    }

    fn consume(&mut self, count: usize) {
        self.piece.advance(count);
    }
}

impl Read for Inlet {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let count = piece.len().min(to.len());
        to[..count].copy_from_slice(&piece[..count]);
        self.consume(count);
        Ok(count)
    }
}
