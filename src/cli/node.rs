//! Whether the Node on this machine reads the proxy variables.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// The first Node version that reads a proxy from the environment, if told to.
const FIRST: (u32, u32) = (22, 21);

/// Returns what is wrong if this Node ignores the proxy variables. `None` also if there is no such program.
pub(super) fn ignores_variables(program: &OsStr) -> Option<&'static str> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let version = read_version(&String::from_utf8_lossy(&output.stdout))?;
    (version < FIRST).then_some("reads no proxy variables before version 22.21, so it bypasses curtsy")
}

/// Reads a version such as "v22.20.1".
fn read_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().strip_prefix('v')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(read_version("v22.9.0\n").unwrap() < FIRST && read_version("v22.21.0").unwrap() >= FIRST);
        assert!(read_version("v24.1.0").unwrap() > FIRST && read_version("Welcome").is_none());
        assert_eq!(ignores_variables(OsStr::new("no-such-node")), None);
    }
}
