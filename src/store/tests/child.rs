//! Runs the current test again, in a process of its own that can be killed or given a bad disk.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const DIRECTORY: &str = "CURTSY_TEST_STORE_DIRECTORY";

/// Returns the directory to work in, if this is the other process.
pub(super) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Returns the command that starts the other process. `wrapper` is a command that runs its arguments; `module` is a
/// path as from `module_path!()`.
pub(super) fn command(wrapper: &[&str], module: &str, test: &str, directory: &Path) -> Command {
    let (_, module) = module.split_once("::").expect("a path in this crate");
    let program = std::env::current_exe().expect("a test has a program");
    let mut command = match wrapper {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command
        .args([&format!("{module}::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null());
    command
}

pub(super) fn assert_passed(output: &Output) {
    let text = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
