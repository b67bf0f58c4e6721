//! Sets the revision that the program is built from, for `curtsy_build_info`.
//!
//! `CURTSY_REVISION` sets it where there is no git, as in an image build. Otherwise a release build asks git, if this
//! folder is the top of a checkout. Other builds do not ask git: every commit would then trigger a full rebuild.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CURTSY_REVISION");
    let given = std::env::var("CURTSY_REVISION").ok().filter(|revision| !revision.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if let Some(revision) = given.or_else(|| if is_release { revision() } else { None }) {
        println!("cargo:rustc-env=CURTSY_REVISION={revision}");
    }
}

fn revision() -> Option<String> {
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    if Path::new(&top).canonicalize().ok()? != Path::new(&here).canonicalize().ok()? {
        return None;
    }
    let branch = git(&["symbolic-ref", "-q", "HEAD"]).unwrap_or_else(|| "HEAD".to_owned());
    for name in ["HEAD", &branch] {
        // A branch may have no file of its own (packed refs). Naming a missing file here would rebuild every time.
        let path = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists());
        path.iter().for_each(|path| println!("cargo:rerun-if-changed={path}"));
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
