//! Warns about programs that are known to bypass the proxy, by the name of their file.
//!
//! Only a hint: programs that a script starts are not seen here.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

/// The first Node version that reads a proxy from the environment, if told to.
const NODE: (u32, u32) = (22, 21);

/// Returns the warning to print before this command runs. An isolated command cannot bypass curtsy.
pub(super) fn warning(command: &[OsString], java: bool, intercept: bool, isolated: bool) -> Option<String> {
    let program = command.first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let told = match name {
        "httrack" if !isolated => {
            "ignores proxy variables, so it bypasses curtsy; give it -P HOST:PORT of a running one, or use --isolate"
        }
        "java" if !java && !isolated => "ignores proxy variables, so it bypasses curtsy; add --java before the --",
        "node" | "nodejs" if !isolated && version(program).is_some_and(|version| version < NODE) => {
            "reads no proxy variables before version 22.21, so it bypasses curtsy; use a newer one, or --isolate"
        }
        "wget2" => "speaks TLS to a proxy in some versions; if HTTPS fails, use wget or curl",
        "aria2c" if intercept => "reads no CA from the environment; give it --ca-certificate=\"$SSL_CERT_FILE\"",
        "chromium" | "google-chrome" | "chrome" if intercept => {
            "reads no CA from the environment; see `curtsy ca trust`, or leave --intercept out"
        }
        _ => return None,
    };
    Some(format!("{name} {told}"))
}

/// Asks the program for its version.
fn version(program: &OsStr) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    read_version(&String::from_utf8_lossy(&output.stdout))
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
    fn programs_are_known_by_the_name_of_their_file() {
        let warning = |program: &str, java, intercept| warning(&[program.into(), "x".into()], java, intercept, false);
        assert!(warning("/usr/bin/httrack", false, false).is_some_and(|text| text.starts_with("httrack ignores")));
        assert!(warning("java", false, false).is_some() && warning("java", true, false).is_none());
        assert!(warning("aria2c", false, true).is_some() && warning("aria2c", false, false).is_none());
        assert_eq!(warning("curl", false, true), None);
        assert_eq!(super::warning(&["httrack".into()], false, false, true), None, "it has no other way out");
    }

    #[test]
    fn versions_of_node_are_compared_as_numbers() {
        assert!(read_version("v22.9.0\n").unwrap() < NODE && read_version("v22.21.0").unwrap() >= NODE);
        assert!(read_version("v24.1.0").unwrap() > NODE && read_version("Welcome").is_none());
    }
}
