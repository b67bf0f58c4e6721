//! Serves the synthetic web on loopback and records what arrives.
//!
//! Clients that use a proxy get one that *is* the web: it answers for every host itself, also by TLS inside tunnels,
//! and leads nowhere else. For clients that use none, each host listens at its own loopback address.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use http::header::{FROM, HOST, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::answers::{HostMemory, WebAnswer, WebQuestion};
use super::rules::Arrival;
use super::stamps::{self, StampedStream};
use super::web::SyntheticWeb;
use crate::clock;

/// The most requests that are recorded: a crawl of the web takes about 60, and judging them takes time that grows with
/// the square of their number.
const MOST_ARRIVALS: usize = 5_000;
/// The most other hosts that are named in the report.
const MOST_ELSEWHERE: usize = 20;

/// How clients reach the web.
#[derive(Debug)]
pub enum WebAccess {
    /// By plain HTTP through a proxy.
    Proxy,
    /// By HTTPS through a proxy, with the settings of each host's TLS.
    Https(Vec<Arc<ServerConfig>>),
    /// By plain HTTP, each host at its own address.
    Direct,
}

/// A running web. Dropping it stops it.
#[derive(Debug)]
pub struct WebServer {
    state: Arc<WebState>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What has arrived so far.
#[derive(Clone, Debug, Default)]
pub struct WebRecord {
    pub arrivals: Vec<Arrival>,
    /// Requests for tunnels that were refused: to hosts outside the web, or for TLS that it does not speak.
    pub tunnels: usize,
    /// Hosts outside the web that were asked for.
    pub elsewhere: BTreeSet<String>,
}

#[derive(Debug)]
struct WebState {
    web: SyntheticWeb,
    /// Of each host; empty if the web speaks no TLS.
    tls: Vec<Arc<ServerConfig>>,
    began: Instant,
    memories: Mutex<Vec<HostMemory>>,
    record: Mutex<WebRecord>,
}

impl WebServer {
    pub fn start(web: SyntheticWeb, access: WebAccess) -> io::Result<WebServer> {
        let (web, tls, direct) = match access {
            WebAccess::Proxy => (web, Vec::new(), false),
            WebAccess::Https(tls) => (web.by_https(), tls, false),
            WebAccess::Direct => (web, Vec::new(), true),
        };
        let count = if direct { web.hosts.len() } else { 1 };
        let place = |number: usize| if direct { Ipv4Addr::from(FIRST + number as u32) } else { Ipv4Addr::LOCALHOST };
        let listeners =
            (0..count).map(|number| TcpListener::bind((place(number), 0))).collect::<io::Result<Vec<TcpListener>>>()?;
        listeners.iter().for_each(stamps::keep_time);
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<SocketAddr>>>()?;
        let address = addresses[0];
        let web = if direct { web.at(addresses) } else { web };
        let memories = Mutex::new(vec![HostMemory::default(); web.hosts.len()]);
        let state = Arc::new(WebState { web, tls, began: clock::now(), memories, record: Mutex::default() });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = state.clone();
        let thread = std::thread::Builder::new().name("web".to_owned()).spawn(move || {
            runtime.block_on(async {
                for (number, listener) in listeners.into_iter().enumerate() {
                    tokio::spawn(accept(serving.clone(), listener, direct.then_some(number)));
                }
                // An error means that the server was dropped, which is the same.
                let _ = stopped.await;
            });
        })?;
        Ok(WebServer { state, address, stop: Some(stop), thread: Some(thread) })
    }

    /// The proxy, or the first host of a direct web.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL where a crawl begins.
    pub fn seed(&self) -> String {
        self.state.web.url(&(0, "/".to_owned()))
    }

    pub fn web(&self) -> &SyntheticWeb {
        &self.state.web
    }

    pub fn record(&self) -> WebRecord {
        self.state.record.lock().clone()
    }

    /// The number of requests so far.
    pub fn count(&self) -> usize {
        self.state.record.lock().arrivals.len()
    }
}

/// The address of the first host in a direct web; others follow. 127.0.0.1 is exempt from proxies in many clients.
const FIRST: u32 = u32::from_be_bytes([127, 77, 0, 1]);

impl Drop for WebServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections; `host` is the one that listens here, or `None` for the proxy.
async fn accept(state: Arc<WebState>, listener: TcpListener, host: Option<usize>) {
    let listener = listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
    let Ok(listener) = listener else { return };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(state.clone(), stream, host))),
            // Out of file descriptors: one may be free a moment later.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(state: Arc<WebState>, stream: TcpStream, host: Option<usize>) {
    let stream = StampedStream::new(stream);
    let arrived = stream.arrived();
    let service = service_fn(|mut request: Request<Incoming>| {
        let (state, arrived) = (state.clone(), arrived.clone());
        async move {
            let at = *arrived.lock();
            let Some(tunnel) = state.tunnel(&request) else { return Ok(state.answer(&request, host, at).await) };
            tokio::spawn(serve_tunnel(state, hyper::upgrade::on(&mut request), arrived, tunnel));
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    // A connection that breaks is the client's business.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

/// Serves HTTP inside a tunnel, by TLS if it leads to port 443. Some clients open a tunnel for plain HTTP, too.
async fn serve_tunnel(
    state: Arc<WebState>,
    tunnel: OnUpgrade,
    arrived: Arc<Mutex<Instant>>,
    (host, is_tls): WebTunnel,
) {
    let Ok(stream) = tunnel.await else { return };
    match state.tls.get(host).filter(|_| is_tls) {
        None => serve_host(state, stream, arrived, host).await,
        Some(tls) => {
            let acceptor = TlsAcceptor::from(tls.clone());
            // A client that does not trust the certificate goes away; the report says that nothing was asked.
            if let Ok(stream) = acceptor.accept(TokioIo::new(stream)).await {
                serve_host(state, TokioIo::new(stream), arrived, host).await;
            }
        }
    }
}

async fn serve_host(
    state: Arc<WebState>,
    stream: impl hyper::rt::Read + hyper::rt::Write + Unpin,
    arrived: Arc<Mutex<Instant>>,
    host: usize,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (state, at) = (state.clone(), *arrived.lock());
        async move { Ok::<_, Infallible>(state.answer(&request, Some(host), at).await) }
    });
    let _ = http1::Builder::new().serve_connection(stream, service).await;
}

/// The host that a tunnel leads to, and whether TLS is spoken inside.
type WebTunnel = (usize, bool);

impl WebState {
    /// Where in the web this request opens a tunnel to.
    fn tunnel(&self, request: &Request<Incoming>) -> Option<WebTunnel> {
        let is_tls = match request.uri().port_u16() {
            Some(80) => false,
            Some(443) if !self.tls.is_empty() => true,
            _ => return None,
        };
        let name = request.uri().host().filter(|_| request.method() == Method::CONNECT)?;
        Some((self.web.find(name)?, is_tls))
    }

    async fn answer(&self, request: &Request<Incoming>, host: Option<usize>, at: Instant) -> Response<Body> {
        if request.method() == Method::CONNECT {
            self.record.lock().tunnels += 1;
            return words(
                StatusCode::NOT_IMPLEMENTED,
                "curtsy judge speaks no TLS here; begin with an http:// URL, or use --https\n",
            );
        }
        let named = || request.uri().host().map(str::to_owned).or_else(|| field(request, HOST).map(str::to_owned));
        let Some(host) = host.or_else(|| self.web.find(&named().unwrap_or_default())) else {
            let mut record = self.record.lock();
            if record.elsewhere.len() < MOST_ELSEWHERE {
                record.elsewhere.extend(named());
            }
            return words(StatusCode::BAD_GATEWAY, "this host is not part of the synthetic web\n");
        };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let question = WebQuestion {
            path,
            if_none_match: field(request, IF_NONE_MATCH),
            if_modified_since: field(request, IF_MODIFIED_SINCE),
            now: clock::now() - self.began,
            wall: clock::wall(),
        };
        let answer = self.memories.lock()[host].answer(&self.web, host, &question);
        let visit = Arrival {
            host,
            path: path.to_owned(),
            at: at.saturating_duration_since(self.began),
            done: None,
            status: answer.status.as_u16(),
            user_agent: field(request, USER_AGENT).unwrap_or_default().to_owned(),
            has_from: request.headers().contains_key(FROM),
            conditional: question.if_none_match.or(question.if_modified_since).is_some(),
            wait: answer.wait,
        };
        let _open = OpenArrival::new(self, visit);
        if !answer.after.is_zero() {
            tokio::time::sleep(answer.after).await;
        }
        response(answer)
    }
}

/// An arrival in flight. Dropping it notes the time, also if the client disconnects.
struct OpenArrival<'s> {
    state: &'s WebState,
    /// `None` if it was one too many.
    number: Option<usize>,
}

impl<'s> OpenArrival<'s> {
    fn new(state: &'s WebState, arrival: Arrival) -> OpenArrival<'s> {
        let arrivals = &mut state.record.lock().arrivals;
        let number = (arrivals.len() < MOST_ARRIVALS).then_some(arrivals.len());
        if number.is_some() {
            arrivals.push(arrival);
        }
        OpenArrival { state, number }
    }
}

impl Drop for OpenArrival<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.state.record.lock().arrivals[number].done = Some(clock::now() - self.state.began);
        }
    }
}

fn field(request: &Request<Incoming>, name: HeaderName) -> Option<&str> {
    request.headers().get(name).and_then(|value| value.to_str().ok())
}

fn response(answer: WebAnswer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    for (name, value) in answer.fields {
        response.headers_mut().insert(name, value.parse().expect("our own fields are valid"));
    }
    response
}

fn words(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
