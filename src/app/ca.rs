//! The local CA of a configuration: where it is stored, and the certificates that it signs for clients.

use std::time::Duration;

use crate::clock;
use crate::config::{Config, HostPattern};
use crate::store;
use crate::tls::{Authority, CaError, Files, Leaves, OpenedCa, describe};

/// Returns the files of the CA; `None` if the CA exists only in memory.
pub fn files(config: &Config) -> Option<Files> {
    Files::of(&config.tls, store::directory(&config.state_dir).as_deref())
}

/// Where the CA of a proxy is stored.
#[derive(Debug)]
pub(super) enum CaLocation {
    /// Where the configuration says.
    Configured,
    /// In these files, which exist.
    These(Files),
    /// In memory: a new CA for this run, whatever the configuration says.
    ThisRun,
}

/// How long before the CA expires curtsy starts to warn. The operator needs time to make clients trust a new CA.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// Returns the certificates that clients see if tunnels are intercepted, or `None` without interception. Creates the CA
/// on its first use.
pub(super) fn leaves(config: &Config, keeping: CaLocation) -> Result<Option<Leaves>, CaError> {
    if !config.tls.intercept {
        return Ok(None);
    }
    let http2 = config.tls.http2_clients;
    let files = match keeping {
        CaLocation::ThisRun => return Ok(Some(Leaves::in_memory(http2))),
        CaLocation::These(files) => return Ok(Some(Leaves::new(files.authority()?.0, files.certificates()?, http2))),
        CaLocation::Configured => files(config),
    };
    let leaves = match files {
        None => Leaves::in_memory(http2),
        Some(files) => {
            let (authority, opened) = files.authority()?;
            tell(&files, opened, &authority);
            Leaves::new(authority, files.certificates()?, http2)
        }
    };
    if config.tls.only.is_empty() || config.tls.only.contains(&HostPattern::Any) {
        tracing::warn!(
            event = "tls.intercept",
            "all HTTPS that goes through this proxy is decrypted here; name hosts in tls.only to decrypt less"
        );
    }
    Ok(Some(leaves))
}

fn tell(files: &Files, opened: OpenedCa, ca: &Authority) {
    let path = files.certificate().display();
    if opened == OpenedCa::Made {
        tracing::info!(
            event = "ca.made", %path,
            "a local CA was created; clients have to trust it before their HTTPS can be read: curtsy ca export"
        );
    }
    let ends = describe(ca.certificate()).map(|description| description.until);
    if ends.is_some_and(|ends| ends < clock::wall() + SOON) {
        tracing::warn!(event = "ca.ending", %path, "the local CA expires within 30 days; see: curtsy ca rotate");
    }
}
