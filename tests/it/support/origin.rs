//! An origin on loopback that plays a script, misbehaves if the script says so, and records every byte that it
//! receives.
//!
//! One thread per connection runs the script with a [`Visitor`]; when the script returns, the connection is closed.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::deadline::soon;
use super::message::Message;
use super::socket::keep_time;
use super::wire::{End, Unframed, Wire};

pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

pub(crate) struct Origin {
    address: SocketAddr,
    record: Arc<Record>,
}

/// What arrived on all connections.
#[derive(Default)]
struct Record {
    requests: Mutex<Vec<Message>>,
    connections: Mutex<Vec<Arc<Mutex<Vec<u8>>>>>,
    closed: AtomicBool,
}

/// One connection to the origin, as the script sees it.
pub(crate) struct Visitor {
    wire: Wire,
    /// From 0, in the order of arrival.
    pub(crate) number: usize,
    record: Arc<Record>,
}

impl Origin {
    /// Answers every request with a small page, on connections that stay open.
    pub(crate) fn hello() -> Self {
        Self::answering(HELLO)
    }

    /// Answers every request with these bytes, on connections that stay open.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::scripted(move |visitor| {
            while visitor.request().is_some() {
                visitor.send(&bytes);
            }
        })
    }

    /// Answers /robots.txt with `answer` and everything else with a small page.
    pub(crate) fn with_robots(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::scripted(move |visitor| {
            while let Some(request) = visitor.request() {
                let is_robots = request.line().starts_with("GET /robots.txt ");
                visitor.send(if is_robots { &answer[..] } else { HELLO.as_bytes() });
            }
        })
    }

    /// How often /robots.txt was requested.
    pub(crate) fn robots_requests(&self) -> usize {
        self.requests(0).iter().filter(|request| request.line().starts_with("GET /robots.txt ")).count()
    }

    /// Answers one request with these bytes and closes.
    pub(crate) fn closing(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::scripted(move |visitor| {
            if visitor.request().is_some() {
                visitor.send(&bytes);
            }
        })
    }

    pub(crate) fn scripted(script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1", script)
    }

    /// Plays the script at a chosen loopback address: 127.0.0.2 is another host than 127.0.0.1.
    pub(crate) fn on(ip: &str, script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Self {
        let ip: IpAddr = ip.parse().expect("an address literal");
        let listener = TcpListener::bind((ip, 0)).expect("loopback has free ports");
        Self::serve(listener, Arc::new(script))
    }

    pub(super) fn serve(listener: TcpListener, script: Arc<dyn Fn(&mut Visitor) + Send + Sync>) -> Self {
        keep_time(&listener);
        let origin =
            Origin { address: listener.local_addr().expect("a bound listener"), record: Arc::new(Record::default()) };
        let record = origin.record.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if record.closed.load(Ordering::Acquire) {
                    return;
                }
                let mut visitor = Visitor::new(stream.expect("a connection"), record.clone());
                let script = script.clone();
                thread::spawn(move || script(&mut visitor));
            }
        });
        origin
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Host and port as a client writes them.
    pub(crate) fn authority(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The request line of a GET through a proxy.
    pub(crate) fn get(&self, path: &str) -> String {
        format!("GET {} HTTP/1.1", self.url(path))
    }

    /// Waits for the first request and returns it.
    pub(crate) fn request(&self) -> Message {
        self.requests(1).remove(0)
    }

    /// Waits for this many requests and returns all that have arrived.
    pub(crate) fn requests(&self, count: usize) -> Vec<Message> {
        assert!(soon(|| self.count() >= count), "the origin got {} of {count} requests", self.count());
        self.record.requests.lock().expect("no script panics while recording").clone()
    }

    /// How many requests have arrived so far.
    pub(crate) fn count(&self) -> usize {
        self.record.requests.lock().expect("no script panics while recording").len()
    }

    /// How many connections have been accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.record.connections.lock().expect("no script panics while recording").len()
    }

    /// Every byte so far, connection after connection.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let connections = self.record.connections.lock().expect("no script panics while recording");
        connections.iter().flat_map(|seen| seen.lock().expect("no reader panics while noting").clone()).collect()
    }

    /// Asserts that no request arrived. Call it after the client has its answer: curtsy forwards a request before that.
    pub(crate) fn expect_untouched(&self) {
        let bytes = self.bytes();
        assert!(bytes.is_empty(), "the origin got {:?}", String::from_utf8_lossy(&bytes));
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.record.closed.store(true, Ordering::Release);
        // Wakes the accepting thread; if this fails, the thread has ended already.
        let _ = TcpStream::connect(self.address);
    }
}

impl Visitor {
    fn new(stream: TcpStream, record: Arc<Record>) -> Self {
        let wire = Wire::new(stream);
        let mut connections = record.connections.lock().expect("no script panics while recording");
        let number = connections.len();
        connections.push(wire.seen());
        drop(connections);
        Visitor { wire, number, record }
    }

    /// Reads the next request with its body; `None` when the client sends no more.
    pub(crate) fn request(&mut self) -> Option<Message> {
        let mut request = self.wire.read_head().ok()?;
        self.wire.read_body(&mut request, Unframed::NoBody);
        self.note(request.clone());
        Some(request)
    }

    /// Reads the next request head and leaves its body unread.
    pub(crate) fn request_head(&mut self) -> Option<Message> {
        let request = self.wire.read_head().ok()?;
        self.note(request.clone());
        Some(request)
    }

    /// How many requests have arrived on all connections.
    pub(crate) fn request_count(&self) -> usize {
        self.record.requests.lock().expect("no script panics while recording").len()
    }

    /// Stays silent until the other side ends the connection, and returns how it ended.
    pub(crate) fn linger(&mut self) -> End {
        self.wire.read_to_end().1
    }

    fn note(&self, mut request: Message) {
        request.connection = self.number;
        // Threads may note requests in another order than that of arrival.
        let mut requests = self.record.requests.lock().expect("no script panics while recording");
        let place = requests.partition_point(|other| other.at <= request.at);
        requests.insert(place, request);
    }
}

impl Deref for Visitor {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Visitor {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}
