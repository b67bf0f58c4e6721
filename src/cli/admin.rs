//! Calls the API of a running curtsy: finds its admin listener and sends one request.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::config::Streams;
use super::http::{self, HttpResponse};
use super::terminal::printable;
use crate::config::{self, Config, Sources};

pub(super) use crate::admin::segment;

/// How long to wait for a connection. A listener on this machine or in its network answers faster, or is not there.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait for a response, which may first have to fetch robots.txt.
const PATIENCE: Duration = Duration::from_secs(60);

/// The largest response in bytes; more than any response has.
const LONGEST_ANSWER: u64 = 64 << 20;

/// The arguments of every command that asks a running curtsy.
#[derive(Args, Clone, Debug)]
pub(super) struct AskArgs {
    /// Print the API's JSON response
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Admin listener of the curtsy to ask, as address or URL; default: the configured one. "off": ask none
    // It needs its own id: before the command, `--admin` is a setting.
    #[arg(id = "admin_url", long = "admin", global = true, value_name = "ADDR", env = "CURTSY_ADMIN_URL")]
    admin: Option<String>,
}

impl AskArgs {
    /// For a command that has its own argument for the URL.
    pub(super) fn of(admin: Option<String>) -> Self {
        AskArgs { json: false, admin }
    }

    /// Whether the user named one curtsy, so that nothing else may be asked.
    pub(super) fn names_one(&self) -> bool {
        self.admin.as_ref().is_some_and(|admin| admin != OFF)
    }
}

/// Why there is no response, and the exit code for that.
#[derive(Debug)]
pub(super) struct AdminTrouble {
    pub(super) code: u8,
    pub(super) text: String,
}

/// The same word as in the configuration: there is no admin listener.
const OFF: &str = "off";
const FAILURE: u8 = 1;
pub(super) const NOBODY: u8 = 4;

/// A running curtsy that accepted our connection.
#[derive(Debug)]
pub(super) struct RunningCurtsy {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    token: Option<String>,
}

pub(super) struct AdminAnswer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Returns the address in a URL such as `http://127.0.0.1:3129`. The scheme may be left out, as it is in `--admin`
/// before a command and in the configuration.
pub(super) fn of_url(url: &str) -> Result<SocketAddr, String> {
    let rest = without_scheme(url);
    if rest.contains("://") {
        return Err(format!(
            "{url}: the admin listener speaks plain HTTP; write http:// or nothing before the address"
        ));
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let found = authority.to_socket_addrs().map_err(|error| format!("{authority}: {error}"))?.next();
    found.ok_or_else(|| format!("{authority} has no address"))
}

/// Removes the scheme: `http://127.0.0.1:3129` and `127.0.0.1:3129` name the same listener.
pub(super) fn without_scheme(url: &str) -> &str {
    url.strip_prefix("http://").map_or(url, |rest| rest.strip_suffix('/').unwrap_or(rest))
}

/// Returns the admin address of a curtsy with this configuration; `None` if its admin listener is off.
pub(super) fn of_config(config: &Config) -> Option<SocketAddr> {
    let mut address = config.admin?;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Some(address)
}

/// Calls the API and prints the response, as JSON or as the text that `page` makes of it. Returns the exit code.
pub(super) fn tell<T: DeserializeOwned>(
    args: &AskArgs,
    sources: &Sources,
    streams: &mut Streams<'_>,
    call: &Call<'_>,
    page: impl FnOnce(&T) -> (String, u8),
) -> io::Result<u8> {
    let answer = RunningCurtsy::find(args, sources).and_then(|running| running.call(call));
    print(args, streams, answer, page)
}

/// Prints the response, as JSON or as the text that `page` makes of it. Returns the exit code.
pub(super) fn print<T: DeserializeOwned>(
    args: &AskArgs,
    streams: &mut Streams<'_>,
    answer: Result<Value, AdminTrouble>,
    page: impl FnOnce(&T) -> (String, u8),
) -> io::Result<u8> {
    let told = answer.and_then(|answer| {
        let told = serde_json::from_value(answer.clone());
        let told: T =
            told.map_err(|error| AdminTrouble::failure(format!("that is not a known version of curtsy: {error}")))?;
        Ok((answer, told))
    });
    match told {
        Ok((answer, told)) => {
            let (text, code) = page(&told);
            if args.json {
                writeln!(streams.out, "{answer:#}")?;
            } else {
                write!(streams.out, "{text}")?;
            }
            Ok(code)
        }
        Err(trouble) => trouble.tell(streams),
    }
}

/// One call of the API.
#[derive(Clone, Debug)]
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

impl Call<'_> {
    pub(super) fn get(path: String) -> Self {
        Call { method: "GET", path, body: None }
    }
}

impl AdminTrouble {
    pub(super) fn failure(text: impl Into<String>) -> Self {
        AdminTrouble { code: FAILURE, text: text.into() }
    }

    pub(super) fn nobody(text: impl Into<String>) -> Self {
        AdminTrouble { code: NOBODY, text: text.into() }
    }

    /// Prints the error and returns the exit code.
    pub(super) fn tell(&self, streams: &mut Streams<'_>) -> io::Result<u8> {
        let label = if self.text.starts_with("error") { "" } else { "error: " };
        writeln!(streams.err, "{label}{}", self.text)?;
        Ok(self.code)
    }
}

impl RunningCurtsy {
    pub(super) fn find(args: &AskArgs, sources: &Sources) -> Result<Self, AdminTrouble> {
        Self::find_within(args, sources, CONNECT_PATIENCE)
    }

    pub(super) fn find_within(args: &AskArgs, sources: &Sources, patience: Duration) -> Result<Self, AdminTrouble> {
        let loaded = config::load(sources).map_err(|problems| AdminTrouble::failure(problems.to_string()));
        let (address, token) = match &args.admin {
            Some(off) if off == OFF => {
                return Err(AdminTrouble::nobody("--admin off: no running curtsy is asked"));
            }
            // Only the token is needed from the configuration, which may belong to another curtsy, so its errors do
            // not matter.
            Some(url) => (
                of_url(url).map_err(AdminTrouble::failure)?,
                loaded.ok().and_then(|loaded| loaded.config.metrics.token),
            ),
            None => {
                let config = loaded?.config;
                let address = of_config(&config).ok_or_else(|| {
                    AdminTrouble::nobody("the admin listener is off in this configuration, so no curtsy can be asked")
                })?;
                (address, config.metrics.token)
            }
        };
        let stream = TcpStream::connect_timeout(&address, patience).map_err(|error| {
            AdminTrouble::nobody(format!(
                "no curtsy runs on {address} ({error}); start one with `curtsy`, or name it with --admin"
            ))
        })?;
        Ok(RunningCurtsy { stream, address, token })
    }

    pub(super) fn call(&self, call: &Call<'_>) -> Result<Value, AdminTrouble> {
        value(&self.ask(call)?, self.address)
    }

    /// Returns the response unparsed, if it comes soon enough.
    pub(super) fn get(&self, path: &str, patience: Duration) -> io::Result<AdminAnswer> {
        get(&self.stream, path, self.token.as_deref(), patience)
    }

    /// Returns the response unparsed.
    pub(super) fn ask(&self, call: &Call<'_>) -> Result<AdminAnswer, AdminTrouble> {
        send(&self.stream, call, self.token.as_deref(), PATIENCE)
            .map_err(|error| AdminTrouble::failure(format!("{}: {error}", self.address)))
    }

    pub(super) fn authorization(&self) -> String {
        authorization(self.token.as_deref())
    }
}

fn authorization(token: Option<&str>) -> String {
    token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"))
}

/// Returns the body of a successful response, or the error that the response reports.
pub(super) fn value(answer: &AdminAnswer, who: impl fmt::Display) -> Result<Value, AdminTrouble> {
    let body = serde_json::from_str::<Value>(&answer.body);
    match (answer.status, body) {
        (200, Ok(body)) => Ok(body),
        (200, Err(error)) => Err(AdminTrouble::failure(format!("{who} is not a known version of curtsy: {error}"))),
        (401, _) => {
            Err(AdminTrouble::failure(format!("{who} wants a token; set metrics.token or CURTSY_METRICS__TOKEN")))
        }
        (status, body) => {
            // A report about a configuration file has several lines.
            let lines = |detail: &str| detail.lines().map(printable).collect::<Vec<_>>().join("\n");
            let detail = body.ok().and_then(|body| body["detail"].as_str().map(lines));
            Err(AdminTrouble::failure(detail.unwrap_or_else(|| format!("{who} answered {status}"))))
        }
    }
}

pub(super) fn get(stream: &TcpStream, path: &str, token: Option<&str>, patience: Duration) -> io::Result<AdminAnswer> {
    send(stream, &Call::get(path.to_owned()), token, patience)
}

/// Sends one request. Fails with [`io::ErrorKind::InvalidData`] if the response is not HTTP.
fn send(stream: &TcpStream, call: &Call<'_>, token: Option<&str>, patience: Duration) -> io::Result<AdminAnswer> {
    let Call { method, path, body } = call;
    let (address, token) = (stream.peer_addr()?, authorization(token));
    let body = body.as_ref().map_or_else(String::new, Value::to_string);
    let kind = match *method {
        "GET" => String::new(),
        _ => format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
    };
    let request = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{token}{kind}\r\n{body}");
    http::begin(stream, patience, &request)?;
    let response = HttpResponse::read(stream).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => io::Error::new(io::ErrorKind::InvalidData, "that is not curtsy"),
        _ => error,
    })?;
    AdminAnswer::read(response, LONGEST_ANSWER)
}

impl AdminAnswer {
    pub(super) fn read(response: HttpResponse<impl io::Read>, longest: u64) -> io::Result<Self> {
        let status = response.status;
        let (body, read) = response.text(longest);
        read.map(|_| AdminAnswer { status, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_named_with_or_without_a_scheme() {
        let address = Ok(SocketAddr::from(([127, 0, 0, 1], 45201)));
        for url in ["127.0.0.1:45201", "http://127.0.0.1:45201", "http://127.0.0.1:45201/", "http://127.0.0.1:45201/x"]
        {
            assert_eq!(of_url(url), address, "{url}");
        }
        for url in ["https://127.0.0.1:45201", "ftp://127.0.0.1:1", "127.0.0.1", ""] {
            assert!(of_url(url).is_err(), "{url}");
        }
    }
}
