//! Runs the current test again, in a process of its own that can be killed or given a bad disk.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const DIRECTORY: &str = "CURTSY_TEST_DIRECTORY";

/// Returns the directory to work in, if this is the other process.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Returns the command that starts the other process. `wrapper` is a command that runs its arguments; `module` is a
/// path as from `module_path!()`.
pub(crate) fn command(wrapper: &[&str], module: &str, test: &str, directory: &Path) -> Command {
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

pub(crate) fn assert_passed(output: &Output) {
    let text = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Runs the test in a process with a small disk of its own at `directory`, if the system allows one; the
/// disk disappears with the process.
pub(crate) fn on_own_disk(options: &str, module: &str, test: &str, directory: &Path) {
    let apart = ["unshare", "--mount", "--map-root-user"];
    let script = format!("mount -t tmpfs -o {options} none '{}' && exec \"$0\" \"$@\"", directory.display());
    let possible = Command::new(apart[0]).args(&apart[1..]).args(["sh", "-c", &script, "true"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("not run: this system gives a test no disk of its own");
        return;
    }
    let wrapper = [apart[0], apart[1], apart[2], "sh", "-c", &script];
    assert_passed(&command(&wrapper, module, test, directory).output().unwrap());
}
