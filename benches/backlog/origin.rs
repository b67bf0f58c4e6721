//! The origin of all hosts: records when a request arrives, and always answers with the same bytes.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use curtsy::clock;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::audit::Audit;
use crate::wire;

/// Linux' default limit of connections that wait for an accept.
const BACKLOG: u32 = 4096;

/// Listens on all addresses, because every host is one of them.
pub(crate) fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    socket.listen(BACKLOG)
}

pub(crate) async fn serve(listener: TcpListener, audit: Rc<RefCell<Audit>>) {
    loop {
        let (stream, _) = listener.accept().await.expect("files enough: the limit was raised");
        let audit = audit.clone();
        tokio::task::spawn_local(async move {
            // Ends when curtsy closes a connection that it no longer needs.
            let _ = answer(stream, &audit).await;
        });
    }
}

async fn answer(mut stream: TcpStream, audit: &RefCell<Audit>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let IpAddr::V4(address) = stream.local_addr()?.ip() else { unreachable!("it listens on IPv4 only") };
    let host = wire::host(address);
    loop {
        let mut about_robots = false;
        while !wire::hear(&mut stream, |piece| {
            about_robots |= piece.starts_with(b"GET /robots.txt ");
            piece.ends_with(b"\r\n\r\n")
        })
        .await?
        {}
        if about_robots {
            stream.write_all(wire::NO_ROBOTS).await?;
        } else {
            audit.borrow_mut().start(host, clock::now());
            stream.write_all(wire::ANSWER).await?;
        }
    }
}
