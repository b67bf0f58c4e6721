//! A new connection to one Redis server: TCP, TLS, user and password.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::error::{LedgerError, Refused, refused};
use super::pipelined::{Pipelined, RedisStream};
use crate::clock;
use crate::config::RedisUrl;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisAddress {
    pub host: String,
    pub port: u16,
}

impl RedisAddress {
    /// Reads `host:port` as a Cluster writes it; IPv6 without brackets.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(RedisAddress { host: host.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedisAddress { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// What every connection of a link needs besides the address.
pub(super) struct Dialer {
    tls: Option<TlsConnector>,
    /// What a connection says first: user and password, and the database.
    login: Vec<Cmd>,
}

/// A connection whose task ends with it. Calls that still wait on it then fail.
pub(super) struct Live {
    connection: Pipelined,
    task: AbortHandle,
    server: SocketAddr,
    address: RedisAddress,
    /// The thread whose runtime drives the connection.
    thread: ThreadId,
    /// Connections to the same server by the threads that opened them for their own calls, so that a call wakes no
    /// other thread. `None` while one is being opened. They end with this connection.
    beside: Mutex<Vec<(ThreadId, Option<Arc<Live>>)>>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Dialer {
    /// `tls` is used if the URL asks for it.
    pub(super) fn new(url: &RedisUrl, tls: TlsConnector) -> Self {
        let mut login = Vec::new();
        if let Some(password) = &url.password {
            let mut command = redis::cmd("AUTH");
            command.arg(&url.user).arg(password);
            login.push(command);
        }
        if url.database != 0 {
            let mut command = redis::cmd("SELECT");
            command.arg(url.database);
            login.push(command);
        }
        Dialer { tls: url.tls.then_some(tls), login }
    }

    /// Opens a connection to a server.
    pub(super) async fn open(&self, address: &RedisAddress, deadline: Instant) -> Result<Live, LedgerError> {
        self.open_as((address, None), &self.login, deadline).await
    }

    /// Returns the connection of this thread to the server that `first` is connected to. Until it is open, that is
    /// `first` itself.
    pub(super) fn beside(self: &Arc<Self>, first: &Arc<Live>, timeout: Duration) -> Arc<Live> {
        let thread = thread::current().id();
        if first.thread == thread {
            return first.clone();
        }
        let mut beside = first.beside.lock();
        if let Some((_, own)) = beside.iter().find(|(owner, _)| *owner == thread) {
            return own.as_ref().unwrap_or(first).clone();
        }
        beside.push((thread, None));
        let (dialer, parent, deadline) = (self.clone(), Arc::downgrade(first), clock::now() + timeout);
        let (address, server) = (first.address.clone(), first.server);
        tokio::spawn(async move {
            // If it fails, for example because Redis takes no more clients, the thread goes on with the first one.
            let Ok(own) = dialer.open_as((&address, Some(server)), &dialer.login, deadline).await else { return };
            let Some(first) = parent.upgrade() else { return };
            let own = Arc::new(own);
            first.beside.lock().iter_mut().filter(|(owner, _)| *owner == own.thread).for_each(|(_, place)| {
                *place = Some(own.clone());
            });
        });
        first.clone()
    }

    /// Opens a connection to a Sentinel, without a password: most have none, and refuse one.
    pub(super) async fn open_without_login(
        &self,
        address: &RedisAddress,
        deadline: Instant,
    ) -> Result<Live, LedgerError> {
        self.open_as((address, None), &[], deadline).await
    }

    /// Connects to an address, or to the server that is known to have it.
    async fn open_as(
        &self,
        (address, server): (&RedisAddress, Option<SocketAddr>),
        login: &[Cmd],
        deadline: Instant,
    ) -> Result<Live, LedgerError> {
        let opening = async {
            let away = |error: std::io::Error| LedgerError::Away(format!("{address}: {error}").into());
            let stream = match server {
                Some(server) => TcpStream::connect(server).await,
                None => TcpStream::connect((address.host.as_str(), address.port)).await,
            };
            let stream = stream.map_err(away)?;
            stream.set_nodelay(true).map_err(away)?;
            let server = stream.peer_addr().map_err(away)?;
            let stream: Box<dyn RedisStream> = match &self.tls {
                None => Box::new(stream),
                Some(tls) => {
                    let name = ServerName::try_from(address.host.clone())
                        .map_err(|_| LedgerError::Away(format!("{address}: not a name that TLS can verify").into()))?;
                    Box::new(tls.connect(name, stream).await.map_err(away)?)
                }
            };
            let (connection, driver) = Pipelined::new(stream);
            let live = Live {
                connection,
                task: tokio::spawn(driver).abort_handle(),
                server,
                address: address.clone(),
                thread: thread::current().id(),
                beside: Mutex::default(),
            };
            for command in login {
                live.log_in(command, deadline).await?;
            }
            Ok(live)
        };
        timeout_at(deadline, opening)
            .await
            .unwrap_or_else(|_| Err(LedgerError::Away(format!("{address}: no connection within fleet.timeout").into())))
    }
}

impl Live {
    /// Sends what `write` writes, and returns the answer to it.
    pub(super) async fn send(&self, write: impl FnOnce(&mut Vec<u8>), deadline: Instant) -> Result<Value, Refused> {
        match timeout_at(deadline, self.connection.ask(0, write)).await {
            Err(_) => Err(LedgerError::Slow.into()),
            Ok(answer) => sorted(answer?),
        }
    }

    /// Sends a command and returns the answer to it.
    pub(super) async fn ask(&self, command: &Cmd, deadline: Instant) -> Result<Value, Refused> {
        self.send(|into| into.extend_from_slice(&command.get_packed_command()), deadline).await
    }

    /// Sends a command of the login. An older Redis has no word of its own for a wrong password.
    async fn log_in(&self, command: &Cmd, deadline: Instant) -> Result<(), LedgerError> {
        let is_password = command.args_iter().next() == Some(redis::Arg::Simple(b"AUTH"));
        match self.ask(command, deadline).await.map_err(LedgerError::from) {
            Err(LedgerError::Protocol(_)) if is_password => Err(LedgerError::WrongPassword),
            other => other.map(drop),
        }
    }

    /// Sends a command to the server that a slot is being moved to, which serves it only after ASKING.
    pub(super) async fn ask_importing(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
        deadline: Instant,
    ) -> Result<Value, Refused> {
        let both = |into: &mut Vec<u8>| {
            into.extend_from_slice(&redis::cmd("ASKING").get_packed_command());
            write(into);
        };
        match timeout_at(deadline, self.connection.ask(1, both)).await {
            Err(_) => Err(LedgerError::Slow.into()),
            Ok(answer) => sorted(answer?),
        }
    }
}

fn sorted(answer: Value) -> Result<Value, Refused> {
    match answer {
        Value::ServerError(error) => Err(refused(&error)),
        value => Ok(value),
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

/// A connection that may be missing, shared by all tasks.
#[derive(Debug, Default)]
pub(super) struct Slot(arc_swap::ArcSwapOption<Live>);

impl Slot {
    pub(super) fn get(&self) -> Option<Arc<Live>> {
        self.0.load_full()
    }

    pub(super) fn set(&self, live: Live) {
        self.0.store(Some(Arc::new(live)));
    }

    /// Drops this connection, unless another one has replaced it meanwhile.
    pub(super) fn drop_if(&self, live: &Arc<Live>) {
        self.0.compare_and_swap(live, None);
    }
}
