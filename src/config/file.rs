//! Finds and reads the configuration file.
//!
//! Having no file is fine. A missing file is an error if it was named explicitly. A file that exists but cannot be read
//! is always an error: falling back to the next place would run with settings that the operator did not choose.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::problems::{ConfigProblem, FilePosition, Problems};

/// Which file to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileChoice {
    /// `$CURTSY_CONFIG`, else the first file found in the usual places, else none.
    #[default]
    Search,
    /// This file, which must exist.
    Path(PathBuf),
    /// No file, even if one exists.
    #[cfg(test)]
    Nothing,
}

/// A file that was read.
pub(super) struct ConfigSource {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Whether other users of this machine may read the file.
    pub(super) exposed: bool,
}

pub(super) fn find(choice: &FileChoice, env: &BTreeMap<String, String>) -> Result<Option<ConfigSource>, Problems> {
    match choice {
        #[cfg(test)]
        FileChoice::Nothing => Ok(None),
        FileChoice::Path(path) => named(path, None).map(Some),
        FileChoice::Search => match env.get("CURTSY_CONFIG").filter(|path| !path.is_empty()) {
            Some(path) => {
                let place = FilePosition::in_variable("CURTSY_CONFIG", path, &(0..path.len()));
                named(Path::new(path), Some(place)).map(Some)
            }
            None => first_of(usual_places(env)),
        },
    }
}

/// Returns where the file of this user is, or would be.
pub fn user_file(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    // The XDG specification says that a relative path must be ignored.
    let absolute = |name: &str| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    home.map(|home| home.join("curtsy/config.toml"))
}

fn usual_places(env: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("curtsy.toml")];
    places.extend(user_file(env));
    places.push(PathBuf::from("/etc/curtsy/config.toml"));
    places
}

fn first_of(places: Vec<PathBuf>) -> Result<Option<ConfigSource>, Problems> {
    for path in places {
        match read(&path) {
            Ok(source) => return Ok(Some(source)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(_) if is_out_of_sight(&path) => return Err(out_of_sight(&path)),
            Err(error) => return Err(unreadable(&path, &error, None)),
        }
    }
    Ok(None)
}

/// Whether it cannot be known if the file exists, because its folder cannot be entered.
fn is_out_of_sight(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Says why the search ends here: the file that cannot be seen may be the one that the operator means.
fn out_of_sight(path: &Path) -> Problems {
    let folder = path.parent().unwrap_or(path).display();
    let message = format!("curtsy may not look into {folder}, so it cannot know whether its configuration is there");
    let advice = "start curtsy with its own HOME or XDG_CONFIG_HOME, or name the file with --config";
    Problems::new(vec![ConfigProblem::error(message, advice, None)])
}

fn named(path: &Path, place: Option<FilePosition>) -> Result<ConfigSource, Problems> {
    read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let message = format!("there is no file {}", path.display());
            Problems::new(vec![ConfigProblem::error(message, "`curtsy config init` writes one", place)])
        }
        _ => unreadable(path, &error, place),
    })
}

fn unreadable(path: &Path, error: &io::Error, place: Option<FilePosition>) -> Problems {
    Problems::new(vec![ConfigProblem::error(format!("{} cannot be read: {error}", path.display()), "", place)])
}

fn read(path: &Path) -> io::Result<ConfigSource> {
    let mut file = File::open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    // Readable by the group (040) or by all users (004).
    let exposed = file.metadata()?.permissions().mode() & 0o044 != 0;
    Ok(ConfigSource { path: path.to_owned(), text, exposed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_usual_places_come_in_order() {
        let places = usual_places(&env(&[("HOME", "/home/me")]));
        let expected = ["curtsy.toml", "/home/me/.config/curtsy/config.toml", "/etc/curtsy/config.toml"];
        assert_eq!(places, expected.map(PathBuf::from));
        let places = usual_places(&env(&[("HOME", "/home/me"), ("XDG_CONFIG_HOME", "/x")]));
        assert_eq!(places[1], PathBuf::from("/x/curtsy/config.toml"));
        assert_eq!(usual_places(&env(&[("XDG_CONFIG_HOME", "relative")])).len(), 2);
    }

    #[test]
    fn the_first_file_that_exists_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let [missing, first, second] = ["missing", "first", "second"].map(|name| dir.path().join(name));
        std::fs::write(&first, "workers = 1").unwrap();
        std::fs::write(&second, "workers = 2").unwrap();
        let found = first_of(vec![missing.clone(), first.clone(), second]).unwrap().expect("a file");
        assert_eq!((found.path, found.text.as_str()), (first, "workers = 1"));
        assert!(first_of(vec![missing]).unwrap().is_none());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        assert!(first_of(vec![dir.path().to_owned()]).is_err());
    }

    #[test]
    fn a_folder_that_may_not_be_entered_is_not_called_an_unreadable_file() {
        let told = out_of_sight(Path::new("/home/me/.config/curtsy/config.toml")).to_string();
        assert!(told.contains("may not look into /home/me/.config/curtsy,") && told.contains("--config"), "{told}");
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).unwrap();
        let path = closed.join("config.toml");
        // The superuser may enter every folder.
        let may_enter = path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        assert_eq!(first_of(vec![path]).is_err(), !may_enter);
        assert!(!is_out_of_sight(&dir.path().join("missing")));
    }

    #[test]
    fn a_file_asked_for_by_name_must_exist() {
        for (choice, env, named) in [
            (FileChoice::Path("/nowhere/x.toml".into()), env(&[]), "there is no file /nowhere/x.toml"),
            (FileChoice::Search, env(&[("CURTSY_CONFIG", "/nowhere/x.toml")]), "env CURTSY_CONFIG"),
        ] {
            let report = find(&choice, &env).err().expect("an error").to_string();
            assert!(report.contains(named), "{report}");
        }
    }
}
