//! A new connection to one Redis server: TCP, TLS, user and password.

use std::fmt;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::error::{LedgerError, Refused, failed, refused};
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
    login: RedisConnectionInfo,
}

/// A connection whose task ends with it. Calls that still wait on it then fail.
pub(super) struct Live {
    connection: MultiplexedConnection,
    task: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Dialer {
    /// `tls` is used if the URL asks for it.
    pub(super) fn new(url: &RedisUrl, tls: TlsConnector) -> Self {
        let mut login = RedisConnectionInfo::default().set_db(url.database).set_skip_set_lib_name();
        if let Some(user) = &url.user {
            login = login.set_username(user);
        }
        if let Some(password) = &url.password {
            login = login.set_password(password);
        }
        Dialer { tls: url.tls.then_some(tls), login }
    }

    /// Opens a connection to a server.
    pub(super) async fn open(&self, address: &RedisAddress, deadline: Instant) -> Result<Live, LedgerError> {
        self.open_as(address, &self.login, deadline).await
    }

    /// Opens a connection to a Sentinel, without a password: most have none, and refuse one.
    pub(super) async fn open_without_login(
        &self,
        address: &RedisAddress,
        deadline: Instant,
    ) -> Result<Live, LedgerError> {
        self.open_as(address, &RedisConnectionInfo::default().set_skip_set_lib_name(), deadline).await
    }

    async fn open_as(
        &self,
        address: &RedisAddress,
        login: &RedisConnectionInfo,
        deadline: Instant,
    ) -> Result<Live, LedgerError> {
        let opening = async {
            let away = |error: std::io::Error| LedgerError::Away(format!("{address}: {error}").into());
            let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(away)?;
            stream.set_nodelay(true).map_err(away)?;
            let stream: Box<dyn Wire> = match &self.tls {
                None => Box::new(stream),
                Some(tls) => {
                    let name = ServerName::try_from(address.host.clone())
                        .map_err(|_| LedgerError::Away(format!("{address}: not a name that TLS can verify").into()))?;
                    Box::new(tls.connect(name, stream).await.map_err(away)?)
                }
            };
            // Every await has a deadline of its own, so the library needs none.
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let opened = MultiplexedConnection::new_with_config(login, stream, config).await;
            let (connection, driver) = opened.map_err(|error| match error.kind() {
                ErrorKind::Io => LedgerError::Away(format!("{address}: {error}").into()),
                _ => failed(&error),
            })?;
            Ok(Live { connection, task: tokio::spawn(driver).abort_handle() })
        };
        timeout_at(deadline, opening)
            .await
            .unwrap_or_else(|_| Err(LedgerError::Away(format!("{address}: no connection within fleet.timeout").into())))
    }
}

impl Live {
    /// Sends a command and returns the answer to it.
    pub(super) async fn ask(&self, command: &Cmd, deadline: Instant) -> Result<Value, Refused> {
        let mut connection = self.connection.clone();
        match timeout_at(deadline, connection.send_packed_command(command)).await {
            Err(_) => Err(LedgerError::Slow.into()),
            Ok(Err(error)) => Err(failed(&error).into()),
            Ok(Ok(Value::ServerError(error))) => Err(refused(&error)),
            Ok(Ok(value)) => Ok(value),
        }
    }

    /// Sends a command to the server that a slot is being moved to, which serves it only after ASKING.
    pub(super) async fn ask_importing(&self, command: &Cmd, deadline: Instant) -> Result<Value, Refused> {
        let mut both = Pipeline::new();
        both.cmd("ASKING").add_command(command.clone());
        let mut connection = self.connection.clone();
        match timeout_at(deadline, connection.send_packed_commands(&both, 1, 1)).await {
            Err(_) => Err(LedgerError::Slow.into()),
            Ok(Err(error)) => Err(failed(&error).into()),
            Ok(Ok(mut values)) => match values.pop() {
                Some(Value::ServerError(error)) => Err(refused(&error)),
                Some(value) => Ok(value),
                None => Err(LedgerError::Protocol("no answer to ASKING".to_owned()).into()),
            },
        }
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

/// A TCP or a TLS stream.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

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
