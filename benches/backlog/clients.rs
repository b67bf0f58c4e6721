//! The backlog: client connections that repeat their request as soon as it is answered.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::options::Case;
use crate::wire;

/// Connections opened in one go. Slow enough that no accept queue overflows, and that hosts start one after the other.
const OPENED_AT_ONCE: usize = 8;
const THEN_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Clients(JoinSet<io::Result<()>>);

impl Clients {
    /// Opens one client for every host, then the next, until all hosts have as many as the case wants.
    pub(crate) async fn open(proxy: SocketAddr, port: u16, case: &Case) -> io::Result<Self> {
        let mut asking = JoinSet::new();
        for n in 0..case.connections() {
            let host = wire::address(n % case.hosts);
            let head =
                format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: backlog/1\r\n\r\n");
            let stream = TcpStream::connect(proxy).await?;
            asking.spawn_local(ask(stream, head.into_bytes()));
            if n % OPENED_AT_ONCE == 0 {
                sleep(THEN_PAUSE).await;
            }
        }
        Ok(Clients(asking))
    }

    /// Waits until a client gets no proper answer, and returns why. This is not expected.
    pub(crate) async fn failed(&mut self) -> io::Error {
        match self.0.join_next().await {
            Some(Ok(Err(problem))) => problem,
            _ => unreachable!("there are clients, and they go on until they fail"),
        }
    }
}

async fn ask(mut stream: TcpStream, request: Vec<u8>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        stream.write_all(&request).await?;
        let mut begun = false;
        loop {
            let ended = wire::hear(&mut stream, |piece| {
                if !begun && !piece.starts_with(b"HTTP/1.1 200 ") {
                    return Err(io::Error::other(format!("curtsy answered {}", String::from_utf8_lossy(piece))));
                }
                begun = true;
                Ok(piece.last() == Some(&wire::END))
            });
            if ended.await?? {
                break;
            }
        }
    }
}
