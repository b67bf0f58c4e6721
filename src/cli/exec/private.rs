//! Runs a proxy for one command, in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::isolate::Cage;
use super::roots::ExtraRoots;
use super::{ExecArgs, ExecFailed, Voice, bypass, folder, name, obey, parent};
use crate::app::{Listeners, Running, StartError};
use crate::cli::admin::AdminTrouble;
use crate::cli::setup;
use crate::cli::summary::{self, Ended};
use crate::cli::terminal::TextStyle;
use crate::cli::trust::TrustFiles;
use crate::cli::variables::{self, Address, WantedProxy};
use crate::clock;
use crate::config::{
    self, Config, Counts, HostRule, Listen, Loaded, LogFormat, Mode, OnUntrusted, Problems, RobotsMode, Sources,
    StateDir, ValueSource,
};
use crate::store::StoreError;
use crate::telemetry;
use crate::tls::Files;

/// How long requests that the command left behind may take to finish. No client waits for their answers any more.
const GRACE: Duration = Duration::from_secs(1);

/// Bytes of stored answers on disk. Package managers keep as much without asking.
const DISK: usize = 512 * 1024 * 1024;

pub(super) fn run(args: &ExecArgs, sources: &Sources, voice: &mut Voice<'_, '_>) -> Result<u8, ExecFailed> {
    let (loaded, about_parent) = load(args, sources)
        .map_err(|problems| AdminTrouble::failure(problems.paint(voice.streams.paint).to_string()))?;
    // A CA that the programs of this machine trust serves browsers, too.
    let ca = setup::trusted_ca(&loaded.config);
    let https = Interception::of(args, &loaded, ca.is_some());
    let is_set_up = ca.is_some();
    let mut config = adapted(loaded, args, https == Interception::On);
    let (folder, variable) = (folder()?, |name: &str| sources.env.get(name).cloned());
    let roots = ExtraRoots::of(variable, &config.tls.extra_roots);
    config.tls.extra_roots.extend(roots.write(folder.path())?);
    telemetry::start(&config.log, voice.streams.paint);
    let cage = args.isolate.then(|| Cage::open(&args.command)).transpose()?;
    let running = start(config.clone(), ca.as_ref(), cage.as_ref(), voice)?;
    voice.say(&summary::greeting(&config, running.proxy_address(), is_set_up, https.why()))?;
    if let Some(told) = about_parent {
        voice.say(&told)?;
    }
    let began = clock::now();
    let ca = running.ca_pem().map(|ca| ca + &roots.pem());
    let trust = ca.map(|pem| TrustFiles::write(folder.path(), &pem, variable)).transpose()?;
    let address = running.proxy_address();
    let proxy = Address { host: address.ip().to_string(), port: address.port(), name: args.client() };
    let wanted = WantedProxy { proxy: &proxy, trust: trust.as_ref(), java: args.java };
    let (variables, tally) = (variables::variables(&wanted, variable), running.tally());
    let code = obey(args, &variables, cage, move || tally.longest_wait(), voice);
    let took = clock::now() - began;
    let tally = running.tally();
    running.stop();
    let code = code?;
    let ended = Ended {
        program: name::program(&args.command),
        hosts: tally.hosts(),
        tunnels: tally.tunnels(),
        began,
        took,
        intercepts: config.tls.intercept,
        isolated: args.isolate,
    };
    let page =
        if args.report { summary::report(&ended, TextStyle(voice.streams.paint)) } else { summary::closing(&ended) };
    voice.say(&page)?;
    Ok(code)
}

/// Loads the configuration, and adds the hosts of `--bypass` to those that it names.
fn load(args: &ExecArgs, sources: &Sources) -> Result<(Loaded, Option<String>), Problems> {
    let mut sources = sources.clone();
    if !args.bypass.is_empty() {
        let listed = config::load(&sources)?.config.tls.bypass;
        for pattern in listed.iter().map(ToString::to_string).chain(args.bypass.iter().cloned()) {
            sources.overrides.add("--bypass", "tls.bypass", &pattern);
        }
    }
    parent::load(&sources)
}

/// Whether HTTPS is decrypted.
#[derive(Debug, PartialEq, Eq)]
enum Interception {
    On,
    /// With the reason, unless a flag says so.
    Off(Option<String>),
}

impl Interception {
    /// Decides what to do with HTTPS. What the user has set counts. Otherwise it is decrypted, unless the command
    /// cannot trust the CA.
    fn of(args: &ExecArgs, loaded: &Loaded, is_set_up: bool) -> Self {
        match loaded.origins.of("tls.intercept") {
            Some(_) if loaded.config.tls.intercept => Interception::On,
            Some(ValueSource::Flag(_)) => Interception::Off(None),
            Some(place) => {
                Interception::Off(Some(format!("tls.intercept is false in\n{place}; --intercept decrypts it")))
            }
            None if is_set_up => Interception::On,
            None => bypass::distrust(&args.command).map_or(Interception::On, |why| Interception::Off(Some(why))),
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Interception::On => None,
            Interception::Off(why) => why.as_deref(),
        }
    }
}

fn adapted(loaded: Loaded, args: &ExecArgs, intercept: bool) -> Config {
    let Loaded { config, origins, .. } = loaded;
    let mut config = for_one_command(config);
    config.tls.intercept = intercept;
    // A client that does not trust the CA goes on without it, unless the user wants it to fail.
    if origins.of("tls.on_untrusted").is_none() {
        config.tls.on_untrusted = OnUntrusted::Tunnel;
    }
    // A browser loads a page with its parts; other commands label nothing.
    if origins.of("politeness.count").is_none() {
        config.politeness.count = Counts::Pages;
    }
    // Without it, a second run of the command would fetch everything again. A dry run leaves nothing behind.
    if origins.of("cache.disk").is_none() && (!args.report || args.cache.is_some()) {
        config.cache.disk = DISK;
    }
    if args.no_cache {
        config.cache.disk = 0;
        config.host.iter_mut().for_each(|rule| rule.cache = None);
    }
    // A name that the user did not choose stops no command: other commands have the same.
    if args.name.is_none() {
        config.breaker.job_failures = 0;
    }
    config.log.level = if args.quiet { "error" } else { "warn" }.to_owned();
    if args.report {
        report_only(&mut config);
    }
    config
}

/// Adapts the configuration to a proxy for one command.
pub(in crate::cli) fn for_one_command(mut config: Config) -> Config {
    config.listen = vec![Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))];
    config.tls.listen.clear();
    config.admin = None;
    // Only the command knows the port, and it has no password to send.
    config.access.users_file = None;
    config.shutdown_grace = GRACE;
    // Log lines appear among the output of the command, so they are text for the user.
    config.log.format = LogFormat::Text;
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
fn start(
    config: Config,
    ca: Option<&Files>,
    cage: Option<&Cage>,
    voice: &mut Voice<'_, '_>,
) -> Result<Running, ExecFailed> {
    let begin = |config: Config| Running::start_private(config.clone(), listeners(&config, cage)?, ca.cloned());
    match begin(config.clone()) {
        Err(StartError::State(StoreError::Held { directory, .. })) => {
            voice.say(&format!(
                "another curtsy uses {}:\nthis one starts without what is stored there, and stores nothing;\n\
                 if you start `curtsy` first, all commands share one budget",
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
