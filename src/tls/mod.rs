//! TLS towards clients: the local CA, the certificates it issues for intercepted hosts, and the proxy's own
//! certificate.
//!
//! The CA's key only signs; it never leaves this folder except for its file. The caller that requests a host's
//! certificate has checked that the host may be visited: nothing here knows what is allowed.

mod authority;
mod files;
mod leaves;
mod server_cert;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use self::authority::{Authority, Ca, NotACa};
pub use self::files::{CaError, Description, Files, OpenedCa, describe, pem};
pub use self::leaves::Leaves;
pub use self::server_cert::{BadCertificate, ServerCert};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
