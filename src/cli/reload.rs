//! `curtsy reload`: makes a running curtsy read its configuration again, and prints what changed.

use std::io;

use clap::Args;
use serde::Deserialize;

use super::admin::{self, AskArgs, Call};
use super::config::Streams;
use super::terminal::printable;
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(after_help = "A reload is all or nothing: if the file has a mistake, nothing changes.

Exit codes: 0 reloaded, 1 not reloaded, 4 no curtsy runs.

Examples:
  curtsy reload
  curtsy reload --json | jq -r '.changed[]'")]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    ask: AskArgs,
}

/// The response of `POST /api/v1/reload`.
#[derive(Debug, Deserialize)]
struct ReloadJson {
    changed: Vec<String>,
}

pub(super) fn run(args: &ReloadArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let call = Call { method: "POST", path: "/api/v1/reload".to_owned(), body: None };
    admin::tell(&args.ask, sources, streams, &call, |told: &ReloadJson| (page(&told.changed), 0))
}

fn page(changed: &[String]) -> String {
    if changed.is_empty() {
        return "reloaded; nothing changed\n".to_owned();
    }
    let lines: String = changed.iter().map(|change| format!("  {}\n", printable(change))).collect();
    format!("reloaded:\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_has_its_line() {
        assert_eq!(page(&[]), "reloaded; nothing changed\n");
        let changed = ["politeness.delay 1s -> 2s".to_owned(), "workers 0 -> 2 (needs a restart)".to_owned()];
        assert_eq!(page(&changed), "reloaded:\n  politeness.delay 1s -> 2s\n  workers 0 -> 2 (needs a restart)\n");
    }
}
