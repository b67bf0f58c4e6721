//! Runs a command behind a curtsy that is already running.
//!
//! That curtsy has other clients too, so its counts are reported as those of all clients.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::roots::ExtraRoots;
use super::{ExecArgs, ExecFailed, Voice, bypass, folder, obey};
use crate::admin::hosts::HostJson;
use crate::admin::queue::{QueueJson, WaitingJson};
use crate::admin::status::RequestsJson;
use crate::app::WaitingHost;
use crate::cli::admin::{AskArgs, RunningCurtsy, segment};
use crate::cli::env;
use crate::cli::summary;
use crate::cli::trust::TrustFiles;
use crate::cli::variables::{self, Address, WantedProxy};
use crate::clock;
use crate::config::Sources;

/// How long the status line waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn run(
    args: &ExecArgs,
    sources: &Sources,
    found: env::Found,
    voice: &mut Voice<'_, '_>,
) -> Result<u8, ExecFailed> {
    let ask = AskArgs::of(args.admin.clone());
    let before = env::status(&ask, sources)?;
    let proxy = Address { name: args.client(), ..found.address };
    voice.say(&format!("this command goes through the curtsy that runs on {}:{}", proxy.host, proxy.port))?;
    match found.pem {
        None => voice.say("HTTPS is only paced there, unread; --own decrypts it, or `curtsy --intercept`")?,
        Some(_) if bypass::distrust(&args.command).is_some() => {
            voice
                .say("it decrypts HTTPS, and this program takes no CA from the environment:\nsee `curtsy ca trust`")?;
        }
        Some(_) => {}
    }
    let variable = |name: &str| sources.env.get(name).cloned();
    let folder = folder()?;
    let ca = found.pem.map(|ca| ca + &ExtraRoots::of(variable, &[]).pem());
    let trust = ca.map(|pem| TrustFiles::write(folder.path(), &pem, variable)).transpose()?;
    let wanted = WantedProxy { proxy: &proxy, trust: trust.as_ref(), java: args.java };
    let all = variables::variables(&wanted, variable);
    let began = clock::now();
    let (name, from) = (proxy.name.clone(), (ask.clone(), sources.clone()));
    let code = obey(args, &all, None, move || longest_wait(&from.0, &from.1, name.as_deref()?), voice)?;
    let took = clock::now() - began;
    // That curtsy may have stopped by now, which is not the command's fault.
    if let Ok(after) = env::status(&ask, sources) {
        voice.say(&summary::meanwhile(&since(&before.requests, &after.requests), took))?;
    }
    Ok(code)
}

/// Returns the host whose requests of this client have waited longest. A client that sends no name is not found.
fn longest_wait(ask: &AskArgs, sources: &Sources, client: &str) -> Option<WaitingHost> {
    let queue: QueueJson = get(ask, sources, "/api/v1/queue?limit=1000")?;
    let ours = |waiting: &&WaitingJson| waiting.client.as_deref() == Some(client);
    let first = queue.waiting.iter().find(ours)?;
    let name = first.host.clone()?;
    let there: Vec<&WaitingJson> =
        queue.waiting.iter().filter(ours).filter(|waiting| waiting.host == first.host).collect();
    let host: HostJson = get(ask, sources, &format!("/api/v1/hosts/{}", segment(&name)))?;
    Some(WaitingHost {
        host: name,
        waiting: there.len(),
        waited: Duration::from_millis(first.waited_ms),
        next: there.iter().filter_map(|waiting| waiting.expected_ms).min().map(Duration::from_millis),
        delay: Duration::from_millis(host.delay_ms),
        why: host.why,
    })
}

fn get<T: DeserializeOwned>(ask: &AskArgs, sources: &Sources, path: &str) -> Option<T> {
    let answer = RunningCurtsy::find(ask, sources).ok()?.get(path, PATIENCE).ok()?;
    serde_json::from_str(&answer.body).ok()
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
        cached: more(|requests| requests.cached),
        waited: more(|requests| requests.waited),
    }
}
