//! Knows programs that bypass the proxy or cannot trust its CA, by the name of their file.
//!
//! Only a hint: programs that a script starts are not seen here.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::cli::node;
use crate::cli::stores::nss::CHROMIUMS;

/// With [`CHROMIUMS`], the browsers. They have their own list of CAs and read none from the environment.
const FIREFOXES: [&str; 2] = ["firefox", "firefox-esr"];

/// Returns the warning to print before this command runs. An isolated command cannot bypass curtsy.
pub(super) fn warning(command: &[OsString], java: bool, isolated: bool) -> Option<String> {
    let program = command.first()?;
    let name = file_name(program)?;
    let told = match name {
        "httrack" if !isolated => {
            "ignores proxy variables, so it bypasses curtsy:\ngive it -P HOST:PORT of a running one, or use --isolate"
        }
        "java" if !java && !isolated => "ignores proxy variables, so it bypasses curtsy; add --java before the --",
        "node" | "nodejs" if !isolated => {
            return node::ignores_variables(program).map(|why| format!("{name} {why}:\nuse a newer one, or --isolate"));
        }
        "wget2" => "speaks TLS to a proxy in some versions; if HTTPS fails, use wget or curl",
        _ => return None,
    };
    Some(format!("{name} {told}"))
}

/// Returns why this command cannot trust a CA from its environment, and what would help; `None` if it probably can.
pub(super) fn distrust(command: &[OsString]) -> Option<String> {
    let name = file_name(command.first()?)?;
    let help = match name {
        "aria2c" => "sh -c 'aria2c --ca-certificate=\"$SSL_CERT_FILE\" …' helps",
        browser if CHROMIUMS.contains(&browser) || FIREFOXES.contains(&browser) => {
            "`curtsy setup` makes it trust the CA of `curtsy run`"
        }
        _ => return None,
    };
    Some(format!("{name} takes no CA from the environment;\n{help}"))
}

fn file_name(program: &OsStr) -> Option<&str> {
    Path::new(program).file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_the_name_of_their_file() {
        let warning = |program: &str, java, isolated| warning(&[program.into(), "x".into()], java, isolated);
        assert!(warning("/usr/bin/httrack", false, false).is_some_and(|text| text.starts_with("httrack ignores")));
        assert!(warning("java", false, false).is_some() && warning("java", true, false).is_none());
        assert_eq!(warning("curl", false, false), None);
        assert_eq!(warning("httrack", false, true), None, "it has no other way out");
    }

    #[test]
    fn programs_that_take_no_ca_from_the_environment_are_known() {
        let distrust = |words: &[&str]| distrust(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(distrust(&["/usr/bin/chromium"]).is_some_and(|text| text.starts_with("chromium takes no CA")));
        assert!(distrust(&["aria2c", "x"]).is_some_and(|text| text.contains("--ca-certificate")));
        assert_eq!((distrust(&["curl"]), distrust(&[])), (None, None));
    }
}
