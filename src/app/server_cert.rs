//! Loads the proxy's own certificate, for clients that speak TLS to the proxy.

use std::time::Duration;

use crate::clock;
use crate::config::Tls;
use crate::tls::{BadCertificate, ServerCert};

/// How long before the certificate expires curtsy starts to warn. Automatic renewal happens long before that.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// Loads the certificate of `tls.listen`, and warns if it expires soon. Reads files, so it must not run in the path of
/// a request.
pub(super) fn certificate(config: &Tls) -> Result<Option<ServerCert>, BadCertificate> {
    let (Some(certificate), Some(key)) = (&config.listen_cert, &config.listen_key) else { return Ok(None) };
    let own = ServerCert::load(certificate, key, config.http2_clients, clock::wall())?;
    if own.ends_within(SOON, clock::wall()) {
        tracing::warn!(
            event = "tls.ending", path = %certificate.display(),
            "the certificate of tls.listen expires within a week"
        );
    }
    Ok(Some(own))
}
