//! Why curtsy cannot start, in words for the operator.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::proxy::BadUsersFile;
use crate::store::StoreError;
use crate::tls::{BadCertificate, CaError};
use crate::upstream::BadRoots;

/// Why curtsy cannot start.
#[derive(Debug)]
pub enum StartError {
    Bind { address: SocketAddr, error: io::Error },
    UsersFile { path: PathBuf, error: io::Error },
    BadUsers { path: PathBuf, error: BadUsersFile },
    Roots(BadRoots),
    Ca(CaError),
    Certificate(BadCertificate),
    AccessLog(io::Error),
    State(StoreError),
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Bind { address, error } if error.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {address}: the address is already in use. Is another curtsy running? \
                 Choose another address with --listen or --admin"
            ),
            StartError::Bind { address, error } => write!(f, "cannot listen on {address}: {error}"),
            StartError::UsersFile { path, error } => write!(f, "cannot read users_file {}: {error}", path.display()),
            StartError::BadUsers { path, error } => write!(f, "users_file {}, {error}", path.display()),
            StartError::Roots(error) => error.fmt(f),
            StartError::Ca(error) => error.fmt(f),
            StartError::Certificate(error) => error.fmt(f),
            StartError::State(error) => error.fmt(f),
            StartError::AccessLog(error) => write!(f, "cannot write the access log: {error}"),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
