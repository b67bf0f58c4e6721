//! Detects that the configuration file, or the certificate that it names, has changed.
//!
//! Compares the content, not times or inodes, so that atomic renames, symlinked ConfigMaps and network disks all work.
//! A change counts when two checks in a row see the same new content. Otherwise curtsy could read a file that an editor
//! has emptied and not yet written, and an empty file is valid and sets every default. Never sleeps: the caller checks
//! a few times a second.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::Config;
use super::file::FileChoice;
use super::load::{Loaded, Sources, load};
use super::problems::Problems;

#[derive(Debug)]
pub struct ConfigWatch {
    sources: Sources,
    path: Option<PathBuf>,
    /// Files that the configuration file names, and that change independently of it.
    named: Vec<PathBuf>,
    /// The content that was last loaded or reported.
    known: Option<u64>,
    /// The content at the last check, if it was new.
    seen: Option<Option<u64>>,
}

impl ConfigWatch {
    /// Starts with the content that `sources` gave.
    pub fn new(mut sources: Sources, loaded: &Loaded) -> Self {
        let path = loaded.path.clone();
        if let Some(path) = &path {
            // Always watches the same file: if it is removed, no other file may replace it silently.
            sources.file = FileChoice::Path(path.clone());
        }
        let mut watch = ConfigWatch { sources, path, named: named(&loaded.config), known: None, seen: None };
        watch.known = watch.look();
        watch
    }

    /// Returns the new configuration, or what is wrong with it, once for each change; `None` if nothing is new. A
    /// removed file is reported too.
    pub fn changed(&mut self) -> Option<Result<Loaded, Problems>> {
        let now = self.look();
        if now == self.known {
            self.seen = None;
            return None;
        }
        if self.seen != Some(now) {
            self.seen = Some(now);
            return None;
        }
        self.known = now;
        self.seen = None;
        let loaded = load(&self.sources);
        let names = loaded.as_ref().map_or_else(|_| self.named.clone(), |loaded| named(&loaded.config));
        if names != self.named {
            self.named = names;
            self.known = self.look();
        }
        Some(loaded)
    }

    /// Returns a hash of the content; `None` while a file cannot be read.
    fn look(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        for path in self.path.iter().chain(&self.named) {
            fs::read(path).ok()?.hash(&mut hasher);
        }
        Some(hasher.finish())
    }
}

/// Returns the certificate files to watch: automatic renewal replaces them without a reload.
fn named(config: &Config) -> Vec<PathBuf> {
    config.tls.listen_cert.iter().chain(&config.tls.listen_key).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn watch(path: &Path) -> ConfigWatch {
        let sources = Sources { file: FileChoice::Path(path.to_owned()), ..Sources::default() };
        let loaded = load(&sources).expect("a valid file");
        ConfigWatch::new(sources, &loaded)
    }

    fn workers(change: Option<Result<Loaded, Problems>>) -> usize {
        change.expect("a change").expect("a valid file").config.workers
    }

    #[test]
    fn a_saved_change_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("curtsy.toml");
        fs::write(&path, "workers = 1").unwrap();
        let mut watch = watch(&path);
        assert!(watch.changed().is_none());
        fs::write(&path, "workers = 2").unwrap();
        assert!(watch.changed().is_none(), "it may not be complete");
        assert_eq!(workers(watch.changed()), 2);
        assert!(watch.changed().is_none());
    }

    #[test]
    fn a_new_certificate_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let (path, cert) = (dir.path().join("curtsy.toml"), dir.path().join("cert.pem"));
        fs::write(&cert, "one").unwrap();
        let tls = format!("tls = {{ listen = '127.0.0.1:0', listen_cert = {cert:?}, listen_key = {cert:?} }}");
        fs::write(&path, "workers = 1").unwrap();
        let mut watch = watch(&path);
        fs::write(&path, format!("workers = 2\n{tls}")).unwrap();
        assert!(watch.changed().is_none());
        assert_eq!(workers(watch.changed()), 2);
        fs::write(&cert, "two").unwrap();
        assert!(watch.changed().is_none());
        assert_eq!(workers(watch.changed()), 2);
        assert!(watch.changed().is_none());
    }

    #[test]
    fn an_editor_caught_in_the_act_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("curtsy.toml");
        fs::write(&path, "workers = 1").unwrap();
        let mut watch = watch(&path);
        for half in ["", "work", "workers = "] {
            fs::write(&path, half).unwrap();
            assert!(watch.changed().is_none());
        }
        fs::write(&path, "workers = 3").unwrap();
        assert!(watch.changed().is_none());
        assert_eq!(workers(watch.changed()), 3);
    }

    #[test]
    fn a_mistake_that_stays_is_reported_once_and_its_repair_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("curtsy.toml");
        fs::write(&path, "workers = 1").unwrap();
        let mut watch = watch(&path);
        fs::write(&path, "workers = ").unwrap();
        assert!(watch.changed().is_none());
        assert!(watch.changed().expect("a report").is_err());
        assert!(watch.changed().is_none());
        fs::write(&path, "workers = 1").unwrap();
        assert!(watch.changed().is_none());
        assert_eq!(workers(watch.changed()), 1);
    }

    #[test]
    fn a_file_that_is_gone_is_an_error_and_not_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("curtsy.toml");
        fs::write(&path, "workers = 1").unwrap();
        let mut watch = watch(&path);
        fs::remove_file(&path).unwrap();
        assert!(watch.changed().is_none());
        assert!(watch.changed().expect("a report").is_err());
        assert!(watch.changed().is_none());
    }

    #[test]
    fn a_configmap_changes_by_symlink() {
        let dir = tempfile::tempdir().unwrap();
        for (version, text) in [("v1", "workers = 1"), ("v2", "workers = 2")] {
            fs::create_dir(dir.path().join(version)).unwrap();
            fs::write(dir.path().join(version).join("config.toml"), text).unwrap();
        }
        symlink("v1", dir.path().join("..data")).unwrap();
        let path = dir.path().join("config.toml");
        symlink("..data/config.toml", &path).unwrap();
        let mut watch = watch(&path);
        symlink("v2", dir.path().join("..new")).unwrap();
        fs::rename(dir.path().join("..new"), dir.path().join("..data")).unwrap();
        assert!(watch.changed().is_none());
        assert_eq!(workers(watch.changed()), 2);
    }
}
