//! Addresses without a server: one refuses connections, the other lets them hang.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use socket2::{Domain, Socket, Type};

use super::deadline::ms;
use super::origin::{Origin, Visitor};

/// Keeps its port until it is dropped, so that no other program answers there.
pub(crate) struct Hole {
    address: SocketAddr,
    socket: Socket,
    waiting: Vec<TcpStream>,
}

impl Hole {
    /// Bound but not listening: connections are refused at once.
    pub(crate) fn refusing() -> Self {
        let (socket, address) = bound();
        Hole { address, socket, waiting: Vec::new() }
    }

    /// Listening with a full backlog: connections hang.
    pub(crate) fn silent() -> Self {
        let (socket, address) = bound();
        socket.listen(0).expect("a bound socket can listen");
        let connect = || TcpStream::connect_timeout(&address, ms(100)).ok();
        let waiting: Vec<_> = std::iter::repeat_with(connect).take(64).map_while(|stream| stream).collect();
        assert!(waiting.len() < 64, "a backlog of nothing takes any number of connections here");
        Hole { address, socket, waiting }
    }

    /// Makes the address answer. Connections that hung succeed when the kernel tries again.
    pub(crate) fn open(self, script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Origin {
        drop(self.waiting);
        Origin::serve(self.socket.into(), Arc::new(script))
    }

    pub(crate) fn authority(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn bound() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("loopback has free ports");
    let address = socket.local_addr().expect("a bound socket").as_socket().expect("an internet socket");
    (socket, address)
}
