//! `curtsy env`: prints the variables that send clients to the proxy, in the syntax of a shell or a file.
//!
//! The printed shell code saves the old values in `CURTSY_OLD_…` variables, so that `--unset` can restore them. curtsy
//! never prints old values, because they may contain passwords.

mod format;
mod proxy;

use std::ffi::OsStr;
use std::io;

use clap::Args;

use self::format::EnvFormat;
use super::admin::{AdminTrouble, AskArgs};
use super::config::Streams;
use super::node;
use super::variables::{self, Variable, WantedProxy};
use crate::config::Sources;

pub(super) use self::proxy::{Found, running, status};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  eval \"$(curtsy env)\"                       this shell and what it starts
  eval \"$(curtsy env --unset)\"               and back to what was set before
  curtsy env --format fish | source
  curtsy env --format direnv >> .envrc
  curtsy env --format docker --proxy http://host.docker.internal:3128 > proxy.env
  docker run --env-file proxy.env …")]
pub(super) struct EnvArgs {
    /// Shell or file format to print
    #[arg(long, value_enum, default_value_t = EnvFormat::Sh, value_name = "FORMAT")]
    format: EnvFormat,
    /// Unset the variables, and restore what was set before
    #[arg(long)]
    unset: bool,
    /// Leave out the variables that make clients trust the CA
    #[arg(long)]
    no_ca: bool,
    /// Name of the client, for fair queues and logs; default: that of the current folder, '' for none
    #[arg(long = "as", value_name = "NAME", value_parser = name_or_none)]
    name: Option<String>,
    /// Set JAVA_TOOL_OPTIONS too; every JVM prints a line about it
    #[arg(long)]
    java: bool,
    /// Proxy to use; default: that of the running curtsy, else the configured one
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// Admin listener of the curtsy to ask; default: the configured one
    #[arg(id = "admin_url", long = "admin", value_name = "URL", env = "CURTSY_ADMIN_URL")]
    admin: Option<String>,
}

/// Accepts a name that every client can put into a proxy URL.
pub(super) fn client_name(name: &str) -> Result<String, String> {
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err("use letters, digits, - _ and .".to_owned());
    }
    Ok(name.to_owned())
}

fn name_or_none(name: &str) -> Result<String, String> {
    if name.is_empty() { Ok(String::new()) } else { client_name(name) }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Longer names are cut: they are shown in tables.
const LONGEST_NAME: usize = 40;

/// Makes a client name of a file name; `None` if none of its characters can be in one.
fn name_from(file: &str) -> Option<String> {
    let plain: String = file.chars().take(LONGEST_NAME).map(|c| if is_plain(c) { c } else { '-' }).collect();
    Some(plain.trim_matches(['-', '.']).to_owned()).filter(|name| !name.is_empty())
}

pub(super) fn run(args: &EnvArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let lines = if args.unset { take_back(args) } else { set(args, sources, streams)? };
    match lines {
        Ok(lines) => {
            streams.out.write_all(lines.as_bytes())?;
            Ok(0)
        }
        Err(trouble) => trouble.tell(streams),
    }
}

fn take_back(args: &EnvArgs) -> Result<String, AdminTrouble> {
    let names: Vec<&str> = variables::names().collect();
    args.format.take_back(&names).map_err(|text| AdminTrouble { code: 2, text })
}

fn set(args: &EnvArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<Result<String, AdminTrouble>> {
    let ask = AskArgs::of(args.admin.clone());
    let found = proxy::find(&ask, args.proxy.as_deref(), sources, args.no_ca).and_then(|mut found| {
        let trust = proxy::trusting(found.pem.as_deref(), sources, &mut found.notes)?;
        Ok((found, trust))
    });
    let (found, trust) = match found {
        Ok(found) => found,
        Err(trouble) => return Ok(Err(trouble)),
    };
    for note in found.notes.iter().map(String::as_str).chain(args.format.note(&found.address)) {
        writeln!(streams.err, "note: {note}")?;
    }
    if let Some(why) = node::ignores_variables(OsStr::new("node")) {
        writeln!(streams.err, "note: node {why}; use a newer one, or undici's EnvHttpProxyAgent")?;
    }
    let name = args.name.clone().or_else(|| default_name(&found)).filter(|name| !name.is_empty());
    let address = variables::Address { name, ..found.address };
    let wanted = WantedProxy { proxy: &address, trust: trust.as_ref(), java: args.java };
    let all: Vec<Variable> = variables::variables(&wanted, |name| sources.env.get(name).cloned());
    let names: Vec<&str> = variables::names().collect();
    Ok(args.format.set(&all, &names).map_err(AdminTrouble::failure))
}

/// Returns the name for clients that were given none: that of the current folder, so that programs of one project share
/// it and other projects differ. It is not sent to other machines, and not to a curtsy that takes it for a user.
fn default_name(found: &Found) -> Option<String> {
    let folder = std::env::current_dir().ok()?;
    let name = name_from(&folder.file_name()?.to_string_lossy())?;
    (!found.has_users && found.address.is_here()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_a_name_that_every_client_can_write() {
        assert_eq!(name_from("crawl-news").as_deref(), Some("crawl-news"));
        assert_eq!(name_from(".Bücher & mehr:x@y").as_deref(), Some("B-cher---mehr-x-y"));
        assert_eq!(name_from(&"a".repeat(99)).map(|name| name.len()), Some(LONGEST_NAME));
        assert_eq!((name_from(""), name_from("日本")), (None, None));
        assert!(client_name(&name_from("c d").unwrap()).is_ok());
    }

    #[test]
    fn a_name_is_one_that_every_client_can_write() {
        assert_eq!(client_name("news-2.x_y"), Ok("news-2.x_y".to_owned()));
        for wrong in ["", "a b", "a:b", "a@b", "ä"] {
            assert!(client_name(wrong).is_err(), "{wrong}");
        }
    }
}
