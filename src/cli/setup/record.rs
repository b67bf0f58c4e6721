//! The names of the CAs that `curtsy setup` has put into stores, in a file of the state directory.
//!
//! So an old CA is found in the stores after a rotation, and the present one after its file was deleted.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(super) struct TrustRecord {
    /// `None` if nothing is kept here.
    path: Option<PathBuf>,
}

impl TrustRecord {
    pub(super) fn in_folder(state: Option<&Path>) -> Self {
        TrustRecord { path: state.map(|state| state.join("trusted-cas")) }
    }

    /// Returns the names. A file that cannot be read counts as empty: the present CA is known without it.
    pub(super) fn read(&self) -> BTreeSet<String> {
        let text = self.path.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Replaces the names, if they changed. The file does not exist while there are none.
    pub(super) fn write(&self, names: &BTreeSet<String>) -> io::Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| *names != self.read()) else { return Ok(()) };
        if names.is_empty() {
            return fs::remove_file(path);
        }
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        let folder = path.parent().unwrap_or(path);
        let written =
            DirBuilder::new().recursive(true).mode(0o700).create(folder).and_then(|()| fs::write(path, lines));
        written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_until_there_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let record = TrustRecord::in_folder(Some(folder.path()));
        let names = BTreeSet::from(["curtsy-ca-1".to_owned(), "curtsy-ca-2".to_owned()]);
        record.write(&BTreeSet::new()).unwrap();
        assert_eq!(record.read(), BTreeSet::new());
        record.write(&names).unwrap();
        assert_eq!(record.read(), names);
        record.write(&BTreeSet::new()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let nowhere = TrustRecord::in_folder(Some(Path::new("/dev/null/none")));
        assert!(nowhere.write(&names).unwrap_err().to_string().contains("none/trusted-cas"));
    }
}
