//! `curtsy docs`: says where the documentation is.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::config::Streams;

#[derive(Args, Clone, Copy, Debug)]
#[command(after_help = "Every command also has --help, with examples, and a page of the manual: `curtsy man`.")]
pub(super) struct DocsArgs {}

/// Where packages install the documentation, below their prefix.
const INSTALLED: &str = "share/doc/curtsy/docs";
/// The first page.
const FIRST: &str = "README.md";

pub(super) fn run(streams: &mut Streams<'_>) -> io::Result<u8> {
    writeln!(streams.out, "online   {}", env!("CARGO_PKG_HOMEPAGE"))?;
    let found = env::current_exe().and_then(|program| program.canonicalize()).ok();
    if let Some(folder) = found.as_deref().and_then(local) {
        writeln!(streams.out, "here     {}", folder.join(FIRST).display())?;
    }
    writeln!(streams.out, "manual   curtsy man\ncommand  curtsy COMMAND --help")?;
    Ok(0)
}

/// Returns the folder with the documentation of this program: that of its package, or of the checkout it was built in.
fn local(program: &Path) -> Option<PathBuf> {
    let of_package = |prefix: &Path| Some(prefix.join(INSTALLED)).filter(|folder| folder.join(FIRST).is_file());
    let of_checkout = |root: &Path| {
        let folder = root.join("docs");
        (root.join("Cargo.toml").is_file() && folder.join("judge.md").is_file()).then_some(folder)
    };
    // The first is the program itself.
    program.ancestors().skip(1).find_map(|above| of_package(above).or_else(|| of_checkout(above)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_folder_of_a_package_and_of_a_checkout_are_found() {
        let root = tempfile::tempdir().expect("a writable temporary folder");
        let write = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a new folder");
            fs::write(path, "").expect("a new file");
        };
        let found = |program: &str| local(&root.path().join(program));
        write("usr/share/doc/curtsy/docs/README.md");
        assert_eq!(found("usr/bin/curtsy"), Some(root.path().join("usr/share/doc/curtsy/docs")));
        write("src/docs/judge.md");
        assert_eq!(found("src/target/debug/curtsy"), None, "another project has docs, too");
        write("src/Cargo.toml");
        assert_eq!(found("src/target/debug/curtsy"), Some(root.path().join("src/docs")));
        assert_eq!(found("opt/curtsy"), None);
    }
}
