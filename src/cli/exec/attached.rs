//! Runs a command behind a curtsy that is already running.
//!
//! That curtsy has other clients too, so its counts are reported as those of all clients.

use super::{ExecArgs, ExecFailed, Voice, folder, obey};
use crate::admin::status::RequestsJson;
use crate::cli::admin::AskArgs;
use crate::cli::env;
use crate::cli::summary;
use crate::cli::trust::TrustFiles;
use crate::cli::variables::{self, Address, WantedProxy};
use crate::clock;
use crate::config::Sources;

pub(super) fn run(args: &ExecArgs, sources: &Sources, voice: &mut Voice<'_, '_>) -> Result<u8, ExecFailed> {
    let ask = AskArgs::of(args.admin.clone());
    let found = env::running(&ask, sources, false)?;
    let before = env::status(&ask, sources)?;
    let proxy = Address { name: args.name.clone(), ..found.address };
    voice.say(&format!("this command goes through the curtsy that runs on {}:{}", proxy.host, proxy.port))?;
    let variable = |name: &str| sources.env.get(name).cloned();
    let folder = folder()?;
    let trust = found.pem.map(|pem| TrustFiles::write(folder.path(), &pem, variable)).transpose()?;
    let wanted = WantedProxy { proxy: &proxy, trust: trust.as_ref(), java: args.java };
    let all = variables::variables(&wanted, variable);
    let began = clock::now();
    let code = obey(args, &all, None, voice)?;
    let took = clock::now() - began;
    // That curtsy may have stopped by now, which is not the command's fault.
    if let Ok(after) = env::status(&ask, sources) {
        voice.say(&summary::meanwhile(&since(&before.requests, &after.requests), took))?;
    }
    Ok(code)
}

fn since(before: &RequestsJson, after: &RequestsJson) -> RequestsJson {
    let more = |count: fn(&RequestsJson) -> u64| count(after).saturating_sub(count(before));
    RequestsJson {
        total: more(|requests| requests.total),
        forwarded: more(|requests| requests.forwarded),
        denied: more(|requests| requests.denied),
        rejected: more(|requests| requests.rejected),
        abandoned: more(|requests| requests.abandoned),
        failed: more(|requests| requests.failed),
        waited: more(|requests| requests.waited),
    }
}
