//! The connections of the admin listener: so many at a time, and none that is silent or takes nothing for long.
//!
//! A page that follows events says nothing itself, so it is cut off now and then too; browsers come back by themselves and
//! go on where they were.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::patience::{Limit, Patient};

/// A browser opens six, and a Prometheus one.
const MOST: usize = 256;
const SILENCE: Duration = Duration::from_secs(600);
const STALL: Duration = Duration::from_secs(30);
/// After an error of accept, so that a full file table does not become a busy loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

pub(super) struct Listener {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

pub(super) struct Connection {
    stream: Patient<TcpStream>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Listener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Listener { listener, places: Arc::new(Semaphore::new(MOST)) }
    }
}

impl serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let place = self.places.clone().acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Events are small and wanted at once.
                    let _ = stream.set_nodelay(true);
                    let limit = Arc::new(Limit::none());
                    limit.each_within(SILENCE);
                    return (Connection { stream: Patient::new(stream, limit, STALL, SILENCE), _place: place }, peer);
                }
                Err(_) => tokio::time::sleep(PAUSE_AFTER_ERROR).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
