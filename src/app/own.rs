//! The proxy's own certificate of a configuration, for clients that speak TLS to it.

use std::time::Duration;

use crate::clock;
use crate::config::Tls;
use crate::tls::{BadCertificate, Own};

/// Whoever renews certificates by a machine has done so long before.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reads files, so not on the path of a request.
pub(super) fn certificate(config: &Tls) -> Result<Option<Own>, BadCertificate> {
    let (Some(certificate), Some(key)) = (&config.listen_cert, &config.listen_key) else { return Ok(None) };
    let own = Own::load(certificate, key, config.http2_clients, clock::wall())?;
    if own.ends_within(SOON, clock::wall()) {
        tracing::warn!(
            event = "tls.ending", path = %certificate.display(),
            "the certificate of tls.listen ends within a week"
        );
    }
    Ok(Some(own))
}
