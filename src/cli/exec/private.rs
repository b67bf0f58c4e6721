//! Runs a proxy for one command, in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::isolate::Cage;
use super::{ExecArgs, ExecFailed, Voice, folder, obey, parent};
use crate::app::{Listeners, Running, StartError};
use crate::cli::admin::AdminTrouble;
use crate::cli::summary::{self, Ended};
use crate::cli::terminal::TextStyle;
use crate::cli::trust::TrustFiles;
use crate::cli::variables::{self, Address, WantedProxy};
use crate::clock;
use crate::config::{Config, HostRule, Listen, LogFormat, Mode, RobotsMode, Sources, StateDir};
use crate::store::StoreError;
use crate::telemetry;

/// How long requests that the command left behind may take to finish. No client waits for their answers any more.
const GRACE: Duration = Duration::from_secs(1);

pub(super) fn run(args: &ExecArgs, sources: &Sources, voice: &mut Voice<'_, '_>) -> Result<u8, ExecFailed> {
    let (loaded, about_parent) = parent::load(sources)
        .map_err(|problems| AdminTrouble::failure(problems.paint(voice.streams.paint).to_string()))?;
    let config = adapted(loaded.config, args);
    telemetry::start(&config.log, voice.streams.paint);
    let cage = args.isolate.then(|| Cage::open(&args.command)).transpose()?;
    let running = start(config.clone(), cage.as_ref(), voice)?;
    voice.say(&summary::greeting(&config, running.proxy_address()))?;
    if let Some(told) = about_parent {
        voice.say(&told)?;
    }
    let began = clock::now();
    let code = accompanied(args, sources, &running, cage, voice);
    let took = clock::now() - began;
    let tally = running.tally();
    running.stop();
    let code = code?;
    let ended = Ended { hosts: tally.hosts(), tunnels: tally.tunnels(), began, took, intercepts: config.tls.intercept };
    let page =
        if args.report { summary::report(&ended, TextStyle(voice.streams.paint)) } else { summary::closing(&ended) };
    voice.say(&page)?;
    Ok(code)
}

/// Runs the command with the variables and files that it needs to find the proxy and to trust it.
fn accompanied(
    args: &ExecArgs,
    sources: &Sources,
    running: &Running,
    cage: Option<Cage>,
    voice: &mut Voice<'_, '_>,
) -> Result<u8, ExecFailed> {
    let variable = |name: &str| sources.env.get(name).cloned();
    let folder = folder()?;
    let trust = running.ca_pem().map(|pem| TrustFiles::write(folder.path(), &pem, variable)).transpose()?;
    let address = running.proxy_address();
    let proxy = Address { host: address.ip().to_string(), port: address.port(), name: args.name.clone() };
    let wanted = WantedProxy { proxy: &proxy, trust: trust.as_ref(), java: args.java };
    obey(args, &variables::variables(&wanted, variable), cage, voice)
}

/// Adapts the configuration to a proxy for one command.
fn adapted(mut config: Config, args: &ExecArgs) -> Config {
    config.listen = vec![Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))];
    config.tls.listen.clear();
    config.admin = None;
    // Only the command knows the port, and it has no password to send.
    config.access.users_file = None;
    config.shutdown_grace = GRACE;
    // Log lines appear among the output of the command, so they are text for the user.
    config.log.format = LogFormat::Text;
    config.log.level = if args.quiet { "error" } else { "warn" }.to_owned();
    if args.report {
        report_only(&mut config);
    }
    config
}

/// Changes the configuration so that nothing is delayed or denied, whatever a rule says. Parts that are off stay off.
fn report_only(config: &mut Config) {
    let told = |robots: &mut RobotsMode| {
        if *robots == RobotsMode::Enforce {
            *robots = RobotsMode::Warn;
        }
    };
    config.politeness.mode = Mode::Report;
    told(&mut config.politeness.robots);
    for HostRule { mode, robots, .. } in &mut config.host {
        if *mode == Some(Mode::Enforce) {
            *mode = Some(Mode::Report);
        }
        robots.as_mut().map(told);
    }
}

/// Starts the proxy. What it learns is shared with all processes that use the same state directory, one after the
/// other. While another process uses the directory, this proxy keeps its state in memory only.
fn start(config: Config, cage: Option<&Cage>, voice: &mut Voice<'_, '_>) -> Result<Running, ExecFailed> {
    let begin = |config: Config| Running::start_private(config.clone(), listeners(&config, cage)?);
    match begin(config.clone()) {
        Err(StartError::State(StoreError::Held { directory, .. })) => {
            voice.say(&format!(
                "another curtsy uses {}, so this one cannot read it and keeps nothing; --attach goes through that one",
                directory.display()
            ))?;
            begin(Config { state_dir: StateDir::Memory, ..config })
        }
        started => started,
    }
    .map_err(|error| AdminTrouble::failure(error.to_string()).into())
}

/// Listens on a free port, or takes the listener in the command's namespace.
fn listeners(config: &Config, cage: Option<&Cage>) -> Result<Listeners, StartError> {
    match cage {
        None => Listeners::bind(config),
        Some(cage) => {
            let listener = cage.listener.try_clone().map_err(StartError::Thread)?;
            Ok(Listeners { proxy: vec![listener], tls: Vec::new(), admin: None })
        }
    }
}
