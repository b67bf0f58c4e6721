//! A relay between curtsy and a server: a network that can be cut, slowed or silent.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::deadline::pause;

pub(crate) struct Relay {
    address: SocketAddr,
    network: Arc<Mutex<Network>>,
}

struct Network {
    state: WireState,
    /// Both ends of every connection.
    open: Vec<TcpStream>,
}

#[derive(Clone, Copy, PartialEq)]
enum WireState {
    /// Every piece arrives this much later.
    Open(Duration),
    /// Connections are reset, and new ones too.
    Cut,
    Ended,
}

impl Relay {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let address = listener.local_addr().expect("a bound socket");
        let network = Arc::new(Mutex::new(Network { state: WireState::Open(Duration::ZERO), open: Vec::new() }));
        let shared = network.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                match shared.lock().expect("no thread has panicked").state {
                    WireState::Ended => return,
                    WireState::Cut => continue,
                    WireState::Open(_) => {}
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                    join(&shared, &client, &server);
                }
            }
        });
        Relay { address, network }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Resets all connections and refuses new ones.
    pub(crate) fn cut(&self) {
        let mut network = self.network.lock().expect("no thread has panicked");
        network.state = WireState::Cut;
        for stream in network.open.drain(..) {
            // Fails only if the peer has closed it already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Delays everything by this much in each direction, from now on.
    pub(crate) fn slow(&self, delay: Duration) {
        self.network.lock().expect("no thread has panicked").state = WireState::Open(delay);
    }

    /// Lets everything through at once again.
    pub(crate) fn mend(&self) {
        self.slow(Duration::ZERO);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
        self.network.lock().expect("no thread has panicked").state = WireState::Ended;
        // Wakes the thread that accepts. Fails only if it has ended.
        let _ = TcpStream::connect(self.address);
    }
}

fn join(network: &Arc<Mutex<Network>>, client: &TcpStream, server: &TcpStream) {
    let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    let both = [copy(client), copy(server)];
    network.lock().expect("no thread has panicked").open.extend(both);
    for (from, to) in [(copy(client), copy(server)), (copy(server), copy(client))] {
        let network = network.clone();
        to.set_nodelay(true).expect("a TCP socket");
        thread::spawn(move || pass(&network, from, to));
    }
}

fn pass(network: &Mutex<Network>, mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let state = network.lock().expect("no thread has panicked").state;
        if let WireState::Open(delay) = state {
            pause(delay);
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // Fails only if it is closed already.
    let _ = to.shutdown(Shutdown::Both);
}
