//! The CA of one run of `curtsy judge --https`: its key stays in memory, its certificate is in a private folder.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::cli::exec::folder;
use crate::cli::trust::TrustFiles;
use crate::judge::{SyntheticWeb, WebAccess};
use crate::politeness::HostKey;
use crate::tls::{self, Leaves};

pub(super) struct JudgeCa {
    leaves: Leaves,
    folder: TempDir,
}

impl JudgeCa {
    pub(super) fn make() -> io::Result<JudgeCa> {
        let ca = JudgeCa { leaves: Leaves::in_memory(false), folder: folder()? };
        std::fs::write(ca.file(), ca.pem())?;
        Ok(ca)
    }

    /// The certificate, for a curtsy between the command and the web.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("web.pem")
    }

    fn pem(&self) -> String {
        self.leaves.trusted().iter().map(tls::pem).collect()
    }

    /// Lets the web answer by TLS.
    pub(super) fn access(&self, web: &SyntheticWeb) -> WebAccess {
        let host = |name| HostKey::parse(name).expect("the names of the web are valid");
        WebAccess::Https(web.names().map(|name| self.leaves.of(&host(name))).collect())
    }

    /// Writes the files that make the command trust curtsy's CA, or else that of the web.
    pub(super) fn trust(&self, of_curtsy: Option<String>) -> io::Result<TrustFiles> {
        let pem = of_curtsy.unwrap_or_else(|| self.pem());
        TrustFiles::write(&self.folder.path().join("trust"), &pem, |name| std::env::var(name).ok())
    }
}
