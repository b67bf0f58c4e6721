//! Finds the proxy that clients should use, and the CA that they have to trust there.

use std::fs::DirBuilder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::admin::status::Status;
use crate::app;
use crate::cli::admin::{AdminTrouble, AskArgs, Call, NOBODY, RunningCurtsy};
use crate::cli::trust::TrustFiles;
use crate::cli::variables::Address;
use crate::config::{self, Config, Listen, Sources};
use crate::{store, tls};

#[derive(Debug)]
pub(in crate::cli) struct Found {
    pub(in crate::cli) address: Address,
    /// The CA that clients have to trust, if the proxy intercepts.
    pub(in crate::cli) pem: Option<String>,
    /// Notes for the user.
    pub(in crate::cli) notes: Vec<String>,
    /// Whether the proxy wants users and passwords.
    pub(super) has_users: bool,
}

/// Returns the proxy of this URL, else the running one, else the configured one.
pub(super) fn find(ask: &AskArgs, url: Option<&str>, sources: &Sources, no_ca: bool) -> Result<Found, AdminTrouble> {
    let named = url.map(address_in).transpose().map_err(AdminTrouble::failure)?;
    let found = match running(ask, sources, no_ca) {
        Err(trouble) if trouble.code == NOBODY && !ask.names_one() => configured(sources, &named, no_ca)?,
        found => found?,
    };
    Ok(Found { address: named.unwrap_or(found.address), ..found })
}

/// Returns what a running curtsy reports about itself.
pub(in crate::cli) fn running(ask: &AskArgs, sources: &Sources, no_ca: bool) -> Result<Found, AdminTrouble> {
    let status = status(ask, sources)?;
    let first = status.listen.iter().find_map(|listen| listen.parse::<SocketAddr>().ok());
    let first = first.ok_or_else(|| AdminTrouble::failure("that curtsy does not listen for clients in plain HTTP"))?;
    let at = RunningCurtsy::find(ask, sources)?;
    let address = reachable(first, at.address.ip());
    let pem = if no_ca { None } else { ca_of(&at)? };
    let config = RunningCurtsy::find(ask, sources)?.call(&Call::get("/api/v1/config".to_owned()))?;
    let has_users = config["access"]["users_file"].as_str().is_some_and(|file| !file.is_empty());
    let notes = if has_users { vec![USERS.to_owned()] } else { Vec::new() };
    Ok(Found { address, pem, notes, has_users })
}

const USERS: &str = "this curtsy wants users (access.users_file): write http://USER:PASSWORD@… into the variables";

pub(in crate::cli) fn status(ask: &AskArgs, sources: &Sources) -> Result<Status, AdminTrouble> {
    let answer = RunningCurtsy::find(ask, sources)?.call(&Call::get("/api/v1/status".to_owned()))?;
    serde_json::from_value(answer)
        .map_err(|error| AdminTrouble::failure(format!("that is not a known version of curtsy: {error}")))
}

/// Returns the CA that clients have to trust, if the running curtsy intercepts.
fn ca_of(running: &RunningCurtsy) -> Result<Option<String>, AdminTrouble> {
    let answer = running.ask(&Call::get("/ca.pem".to_owned()))?;
    Ok((answer.status == 200).then_some(answer.body))
}

fn configured(sources: &Sources, named: &Option<Address>, no_ca: bool) -> Result<Found, AdminTrouble> {
    let config = config::load(sources).map_err(|problems| AdminTrouble::failure(problems.to_string()))?.config;
    let Some(Listen::Tcp(listen)) = config.listen.first() else {
        return Err(AdminTrouble::failure("the configuration has no plain listener; name the proxy with --proxy"));
    };
    if listen.port() == 0 && named.is_none() {
        return Err(AdminTrouble::failure(
            "the configured port is chosen at start, and no curtsy runs that could report it",
        ));
    }
    let loopback: IpAddr = if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let files = app::ca_files(&config).filter(|files| config.tls.intercept && !no_ca && files.certificate().exists());
    let certificates = files.map(|files| files.certificates()).transpose();
    let certificates = certificates.map_err(|error| AdminTrouble::failure(error.to_string()))?;
    let pem = certificates.map(|certificates| certificates.iter().map(tls::pem).collect());
    let mut notes = vec!["no curtsy runs yet; start one with `curtsy`".to_owned()];
    let has_users = config.access.users_file.is_some();
    notes.extend(has_users.then(|| USERS.to_owned()));
    Ok(Found { address: reachable(*listen, loopback), pem, notes, has_users })
}

/// Writes the files that the variables name into the state directory, if there is a CA to trust and a directory.
pub(super) fn trusting(
    pem: Option<&str>,
    sources: &Sources,
    notes: &mut Vec<String>,
) -> Result<Option<TrustFiles>, AdminTrouble> {
    let Some(pem) = pem else { return Ok(None) };
    let config = config::load(sources).ok().map(|loaded| loaded.config);
    let own = config.as_ref().and_then(own_pem);
    let Some(state) = config.and_then(|config| store::directory(&config.state_dir)) else {
        let why = "nothing is kept here (`state_dir` is \"memory\"), so there is no place for the CA's files, and the \
                   variables that make clients trust it are left out";
        notes.push(why.to_owned());
        return Ok(None);
    };
    let folder = state.join(folder_name(pem, own.as_deref()));
    let written = make(&state).and_then(|()| TrustFiles::write(&folder, pem, |name| sources.env.get(name).cloned()));
    let unwritable =
        |error| AdminTrouble::failure(format!("cannot keep the CA's files in {}: {error}", folder.display()));
    written.map(Some).map_err(unwritable)
}

/// Returns the certificates of the CA in this state directory, if there is one.
fn own_pem(config: &Config) -> Option<String> {
    let certificates = app::ca_files(config)?.certificates().ok()?;
    Some(certificates.iter().map(tls::pem).collect())
}

/// Returns the folder for a CA's files. Another curtsy's CA gets its own folder: programs may be using the files of
/// ours.
fn folder_name(pem: &str, own: Option<&str>) -> String {
    if own == Some(pem) {
        return "trust".to_owned();
    }
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    let fingerprint = certificate.as_ref().and_then(tls::describe).map(|description| description.fingerprint);
    let name: String = fingerprint.unwrap_or_default().chars().filter(char::is_ascii_hexdigit).take(NAME).collect();
    format!("trust-{}", name.to_ascii_lowercase())
}

/// How many hex digits of the fingerprint to use: 32 bits are enough to distinguish the CAs of one user.
const NAME: usize = 8;

fn make(directory: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Returns the address for clients. A wildcard listener is reached at the address of its admin listener.
fn reachable(mut listen: SocketAddr, at: IpAddr) -> Address {
    if listen.ip().is_unspecified() {
        listen.set_ip(at);
    }
    let host = match listen.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    Address { host, port: listen.port(), name: None }
}

/// Returns the host and port of a proxy URL.
fn address_in(url: &str) -> Result<Address, String> {
    let wrong = || format!("{url:?} is no proxy URL; write it like http://127.0.0.1:3128");
    let authority = url.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    if host.is_empty() || host.contains(['/', '@', ' ']) {
        return Err(wrong());
    }
    Ok(Address { host: host.to_owned(), port, name: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_named_in_full_or_not_at_all() {
        let curtsy = Address { host: "curtsy".to_owned(), port: 3128, name: None };
        assert_eq!(address_in("http://curtsy:3128/"), Ok(curtsy));
        for wrong in ["127.0.0.1:3128", "https://a:1", "http://a", "http://a:x", "http://u:p@a:1", "http://a:1/x"] {
            assert!(address_in(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wildcard_listener_is_reached_at_the_address_that_was_asked() {
        let found = |listen: &str, at: &str| reachable(listen.parse().unwrap(), at.parse().unwrap()).url();
        assert_eq!(found("0.0.0.0:3128", "10.0.0.7"), "http://10.0.0.7:3128");
        assert_eq!(found("127.0.0.1:1", "10.0.0.7"), "http://127.0.0.1:1");
        assert_eq!(found("[::]:1", "::1"), "http://[::1]:1");
    }
}
