//! Origins that speak HTTP/2: an honest one, on the `h2` crate, and the frames to write a dishonest one by hand.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use curtsy::judge::StampedStream;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::request::Parts;
use http::{Response, StatusCode};
use rustls::ServerConfig;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::deadline::{Stopwatch, now, soon};
use super::head_times::{FrameStream, HeadTime, RecordStream};
use super::origin::{Origin, Visitor};
use super::socket::keep_time;
use super::tls_origin::{Authority, origin};

/// One request, as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The time since the origin was started.
    pub(crate) at: Duration,
    /// It came after this time, if `at` is not exact; otherwise the same.
    pub(crate) from: Duration,
    pub(crate) head: Arc<Parts>,
}

impl Arrival {
    pub(crate) fn value(&self, name: &str) -> String {
        let values = self.head.headers.get_all(name).iter().map(|value| value.to_str().expect("visible characters"));
        values.collect::<Vec<_>>().join(", ")
    }
}

/// A request that waits for its answer.
pub(crate) struct Call {
    pub(crate) head: Arc<Parts>,
    pub(crate) body: RecvStream,
    pub(crate) respond: SendResponse<Bytes>,
}

impl Call {
    /// Sends a response in one piece.
    pub(crate) fn answer(mut self, status: u16, content: impl Into<Bytes>) {
        let content = content.into();
        let is_empty = content.is_empty();
        let mut stream = self.begin(status, &[], is_empty);
        if !is_empty {
            let _ = stream.send_data(content, true);
        }
    }

    pub(crate) fn begin(&mut self, status: u16, fields: &[(&str, &str)], is_whole: bool) -> SendStream<Bytes> {
        let mut response = Response::builder().status(StatusCode::from_u16(status).expect("a status"));
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        self.respond.send_response(response.body(()).expect("sound fields"), is_whole).expect("an open stream")
    }

    /// Reads the whole body and the trailers after it.
    pub(crate) async fn read(&mut self) -> (Vec<u8>, http::HeaderMap) {
        let mut all = Vec::new();
        while let Some(Ok(piece)) = self.body.data().await {
            let _ = self.body.flow_control().release_capacity(piece.len());
            all.extend_from_slice(&piece);
        }
        (all, self.body.trailers().await.ok().flatten().unwrap_or_default())
    }
}

/// Sends all bytes, as fast as the other side reads them.
pub(crate) async fn pour(stream: &mut SendStream<Bytes>, mut content: Bytes, is_last: bool) -> bool {
    while !content.is_empty() {
        stream.reserve_capacity(content.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(Ok(room)) = room else { return false };
        let piece = content.split_to(room.min(content.len()));
        if stream.send_data(piece, is_last && content.is_empty()).is_err() {
            return false;
        }
    }
    true
}

type Handler = dyn Fn(Call) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

#[derive(Default)]
struct Record {
    arrivals: Mutex<Vec<Arrival>>,
    connections: Mutex<usize>,
    ended: Mutex<usize>,
}

pub(crate) struct Http2Origin {
    address: SocketAddr,
    record: Arc<Record>,
    /// Ends the origin when dropped.
    _end: oneshot::Sender<()>,
}

impl Http2Origin {
    /// Answers every request with a small page.
    pub(crate) fn hello(authority: &Authority) -> Self {
        Self::new(authority, |call| async { call.answer(200, "hello") })
    }

    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        authority: &Authority,
        handler: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::with(authority, |_| (), handler)
    }

    pub(crate) fn with<F: Future<Output = ()> + Send + 'static>(
        authority: &Authority,
        change: impl FnOnce(&mut Builder),
        handler: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self {
        let mut builder = Builder::new();
        change(&mut builder);
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let (address, record) = (listener.local_addr().expect("a bound listener"), Arc::<Record>::default());
        let (end, ended) = oneshot::channel();
        let handler: Arc<Handler> = Arc::new(move |call| Box::pin(handler(call)));
        let serving = serve(listener, speaking(&authority.server(), &["h2"]), builder, handler, record.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! { () = serving => {}, _ = ended => {} }
            });
        });
        Http2Origin { address, record, _end: end }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn authority(&self) -> String {
        self.address.to_string()
    }

    /// The request line of a GET through a proxy.
    pub(crate) fn get(&self, path: &str) -> String {
        format!("GET {} HTTP/1.1", self.url(path))
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.record.arrivals.lock().expect("no thread has panicked").clone()
    }

    /// Waits for the first request and returns it.
    pub(crate) fn request(&self) -> Arrival {
        assert!(soon(|| !self.arrivals().is_empty()), "no request came");
        self.arrivals().remove(0)
    }

    pub(crate) fn connections(&self) -> usize {
        *self.record.connections.lock().expect("no thread has panicked")
    }

    pub(crate) fn open_connections(&self) -> usize {
        let ended = *self.record.ended.lock().expect("no thread has panicked");
        self.connections() - ended
    }
}

/// Notes on drop that a connection has ended.
struct Ending(Arc<Record>);

impl Drop for Ending {
    fn drop(&mut self) {
        *self.0.ended.lock().expect("no thread has panicked") += 1;
    }
}

async fn serve(
    listener: TcpListener,
    server: Arc<ServerConfig>,
    builder: Builder,
    handler: Arc<Handler>,
    record: Arc<Record>,
) {
    listener.set_nonblocking(true).expect("a bound listener");
    keep_time(&listener);
    let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime runs");
    let (acceptor, watch, opened) = (TlsAcceptor::from(server), Stopwatch::start(), now());
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, builder) = (acceptor.clone(), builder.clone());
        let (handler, record) = (handler.clone(), record.clone());
        *record.connections.lock().expect("no thread has panicked") += 1;
        tokio::spawn(async move {
            stream.set_nodelay(true).expect("a fresh socket takes options");
            let _end = Ending(record.clone());
            let stream = RecordStream::new(StampedStream::new(stream), opened);
            let Ok(tls) = acceptor.accept(stream).await else { return };
            let (stream, heads) = FrameStream::new(tls);
            let Ok(mut link) = builder.handshake::<_, Bytes>(stream).await else { return };
            while let Some(Ok((request, respond))) = link.accept().await {
                let HeadTime { from, at } = heads.lock().of(respond.stream_id().as_u32());
                let (head, body) = request.into_parts();
                let head = Arc::new(head);
                let arrival = Arrival { at: watch.at(at), from: watch.at(from), head: head.clone() };
                record.arrivals.lock().expect("no thread has panicked").push(arrival);
                tokio::spawn(handler(Call { head, body, respond }));
            }
        });
    }
}

/// The same server with these ALPN protocols.
pub(crate) fn speaking(server: &ServerConfig, protocols: &[&str]) -> Arc<ServerConfig> {
    let mut server = server.clone();
    server.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(server)
}

/// An origin that agrees to HTTP/2 and plays the script, frame by frame, after both sides have sent their settings.
pub(crate) fn frames(authority: &Authority, script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Origin {
    mute(authority, move |visitor| {
        if visitor.read_exactly(PREFACE).is_ok() {
            visitor.send(frame(SETTINGS, 0, 0, b""));
            script(visitor);
        }
    })
}

/// The same, but the origin sends nothing by itself.
pub(crate) fn mute(authority: &Authority, script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Origin {
    origin(speaking(&authority.server(), &["h2"]), script)
}

const PREFACE: usize = 24;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// `:status: 200`, compressed.
pub(crate) const OK: &[u8] = &[0x88];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// The frames of a small page on this stream.
pub(crate) fn page(stream: u32) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, OK), frame(DATA, END_STREAM, stream, b"hello")].concat()
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(crate) fn goaway(last_stream: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last_stream.to_be_bytes(), [0; 4]].concat())
}

/// Reads the next frame: type, flags, stream and payload.
pub(crate) fn read_frame(visitor: &mut Visitor) -> Option<(u8, u8, u32, Vec<u8>)> {
    let head = visitor.read_exactly(9).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], head[4], stream, visitor.read_exactly(length).ok()?))
}

/// Returns the stream of the next request; skips all other frames.
pub(crate) fn next_request(visitor: &mut Visitor) -> Option<u32> {
    loop {
        if let (HEADERS, _, stream, _) = read_frame(visitor)? {
            return Some(stream);
        }
    }
}

/// Waits for a frame of this type and returns its payload.
pub(crate) fn next_of(visitor: &mut Visitor, kind: u8) -> Option<Vec<u8>> {
    loop {
        let (each, _, _, content) = read_frame(visitor)?;
        if each == kind {
            return Some(content);
        }
    }
}
