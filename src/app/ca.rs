//! The local CA of a configuration: where it is, and what clients are shown in its name.

use std::time::Duration;

use crate::clock;
use crate::config::{Config, HostPattern};
use crate::store;
use crate::tls::{Authority, CaError, Files, Leaves, Opened, describe};

/// Its files; `None` if it lives in memory only.
pub fn files(config: &Config) -> Option<Files> {
    Files::of(&config.tls, store::directory(&config.state_dir).as_deref())
}

/// Where the CA of a proxy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Where the configuration says.
    Files,
    /// In memory, and made anew, whatever the configuration says.
    ThisRun,
}

/// Whoever has to make clients trust a new one wants to know in time.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// What clients are shown where tunnels are intercepted. The CA is made here if this is its first use.
pub(super) fn leaves(config: &Config, keeping: Keeping) -> Result<Option<Leaves>, CaError> {
    if !config.tls.intercept {
        return Ok(None);
    }
    let http2 = config.tls.http2_clients;
    if keeping == Keeping::ThisRun {
        return Ok(Some(Leaves::in_memory(http2)));
    }
    let leaves = match files(config) {
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

fn tell(files: &Files, opened: Opened, ca: &Authority) {
    let path = files.certificate().display();
    if opened == Opened::Made {
        tracing::info!(
            event = "ca.made", %path,
            "a local CA was made; clients have to trust it before their HTTPS can be read: curtsy ca export"
        );
    }
    let ends = describe(ca.certificate()).map(|description| description.until);
    if ends.is_some_and(|ends| ends < clock::wall() + SOON) {
        tracing::warn!(event = "ca.ending", %path, "the local CA ends within 30 days; see: curtsy ca rotate");
    }
}
