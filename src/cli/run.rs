//! `curtsy run`: starts the proxy, prints its addresses, reloads on request, and stops on a signal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc::Receiver;

use super::CliSettings;
use crate::app::{Apply, Listeners, Reload, Running};
use crate::clock;
use crate::config::{self, Config, ConfigWatch, Loaded, Mode, Problems, RobotsMode, Sources};
use crate::notify::Supervisor;
use crate::shutdown::{Signal, Wishes};
use crate::telemetry::{self, LevelHandle};

#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:
  curtsy run
  curtsy run --listen 127.0.0.1:8080 --access-log -
  curtsy --config /etc/curtsy/config.toml run")]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) settings: CliSettings,
    /// Print the effective configuration and exit
    #[arg(long)]
    dry_run: bool,
}

/// How often the file is checked; a change takes effect at the second check.
const LOOK: Duration = Duration::from_secs(2);

pub(super) fn run(args: &RunArgs, sources: &Sources, paint: bool) -> io::Result<u8> {
    let began = clock::now();
    let loaded = match config::load(sources) {
        Ok(loaded) => loaded,
        Err(problems) => {
            writeln!(io::stderr(), "{}", problems.paint(paint))?;
            return Ok(1);
        }
    };
    if args.dry_run {
        write!(io::stdout(), "{}", config::show(&loaded, true))?;
        return Ok(0);
    }
    let level = telemetry::start(&loaded.config.log, paint);
    for warning in &loaded.warnings {
        tracing::warn!(event = "config.warning", "{}", warning.message);
    }
    raise_file_limit(loaded.config.access.max_client_connections);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Signal handlers are installed before curtsy reports that it is ready: a signal after that must not kill it.
    let wishes = runtime.block_on(async { Wishes::listen() })?;
    let running =
        match Listeners::bind(&loaded.config).and_then(|listeners| Running::start(loaded.config.clone(), listeners)) {
            Ok(running) => running,
            Err(error) => {
                writeln!(io::stderr(), "error: {error}")?;
                return Ok(1);
            }
        };
    // For the same reason, reload requests must be received before curtsy reports that it is ready.
    let reloads = running.reloads();
    announce(&running, &loaded, clock::now().duration_since(began))?;
    runtime.block_on(operate(running, loaded, sources, level, wishes, reloads))
}

/// Tells the supervisor that curtsy is ready, and handles signals, reload requests and file changes until it stops.
async fn operate(
    running: Running,
    loaded: Loaded,
    sources: &Sources,
    level: LevelHandle,
    mut wishes: Wishes,
    mut reloads: Receiver<Reload>,
) -> io::Result<u8> {
    let supervisor = Supervisor::of_process();
    supervisor.ready();
    let mut watch = ConfigWatch::new(sources.clone(), &loaded);
    let mut config = loaded.config;
    loop {
        let (reloaded, asked) = tokio::select! {
            wish = wishes.next() => match wish {
                Signal::Stop => break,
                Signal::Reload => {
                    supervisor.reloading();
                    running.reopen_logs();
                    (Some(config::load(sources)), None)
                }
            },
            asked = reloads.recv() => (Some(config::load(sources)), asked),
            () = tokio::time::sleep(LOOK), if config.watch => (watch.changed(), None),
        };
        let Some(reloaded) = reloaded.map(|result| reload(&running, result)) else { continue };
        supervisor.ready();
        let answer = reloaded.map(|(new, changes)| {
            level.set(&new.log.level);
            config = new;
            changes
        });
        if let Some(asked) = asked {
            // The client that asked may have disconnected.
            let _ = asked.send(answer);
        }
    }
    supervisor.stopping();
    stop(running, &config, wishes).await
}

/// Applies a new configuration completely or not at all: a file with a mistake changes nothing. Returns the new
/// configuration and its changes, or why it was refused.
fn reload(running: &Running, result: Result<Loaded, Problems>) -> Result<(Config, Vec<String>), String> {
    let loaded = match result {
        Ok(loaded) => loaded,
        Err(problems) => {
            running.reload_failed();
            let problems = problems.ending("The running configuration was not changed.");
            tracing::warn!(event = "config.reload_failed", "{problems}");
            return Err(problems.to_string());
        }
    };
    // Compares with the running settings, so that changes made through the API meanwhile are listed too.
    let changes = config::differences(&running.config(), &loaded.config);
    if let Err(error) = running.apply(loaded.config.clone(), Apply::All) {
        tracing::warn!(event = "config.reload_failed", "the configuration was not changed: {error}");
        return Err(error.to_string());
    }
    let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let said = if words.is_empty() { "nothing changed".to_owned() } else { words.join(", ") };
    tracing::info!(event = "config.reloaded", "config reloaded: {said}");
    Ok((loaded.config, words))
}

/// Lets requests in flight finish; a second signal stops at once.
async fn stop(running: Running, config: &Config, mut wishes: Wishes) -> io::Result<u8> {
    let grace = humantime::format_duration(config.shutdown_grace);
    tracing::info!(event = "stopping", "stopping: requests in flight have {grace}; a second signal stops at once");
    let stopped = tokio::task::spawn_blocking(move || running.stop());
    let second = async { while wishes.next().await != Signal::Stop {} };
    tokio::select! {
        _ = stopped => tracing::info!(event = "stopped", "stopped"),
        () = second => {
            tracing::warn!(event = "stopped", "stopped at once; requests in flight were cut off");
            // The runtimes' threads cannot be joined in time, and there is nothing left to clean up.
            std::process::exit(1);
        }
    }
    Ok(0)
}

/// Raises the limit of open files to two for each client connection and some spare ones, if the system permits it.
fn raise_file_limit(connections: usize) {
    let wanted = connections as u64 * 2 + 256;
    if let Ok(got) = rlimit::increase_nofile_limit(wanted.max(4096))
        && got < wanted
    {
        tracing::warn!(
            event = "limits.files",
            "only {got} files may be open, {wanted} are needed for {connections} connections; raise the limit \
             (ulimit -n, LimitNOFILE) or lower access.max_client_connections"
        );
    }
}

/// Prints that curtsy is ready: a few lines on a terminal, else one log line.
fn announce(running: &Running, loaded: &Loaded, took: Duration) -> io::Result<()> {
    let addresses: Vec<String> = running.proxy_addresses().iter().map(ToString::to_string).collect();
    let secure: Vec<String> = running.tls_addresses().iter().map(|address| format!("https://{address}")).collect();
    let admin = running.admin_address().map_or_else(|| "off".to_owned(), |address| address.to_string());
    if telemetry::is_json(loaded.config.log.format) || !io::stderr().is_terminal() {
        tracing::info!(
            event = "ready",
            proxy = addresses.join(","),
            tls = (!secure.is_empty()).then(|| secure.join(",")),
            admin,
            name = running.name(),
            version = env!("CARGO_PKG_VERSION"),
            "ready"
        );
        return Ok(());
    }
    let proxy: Vec<String> = addresses.iter().map(|address| format!("http://{address}")).collect();
    let admin = running.admin_address().map_or(admin, |address| format!("http://{address}"));
    let file = loaded.path.as_ref().map_or_else(|| "none; the defaults".to_owned(), |path| path.display().to_string());
    let proxies: Vec<String> = proxy.into_iter().chain(secure).collect();
    let first = proxies.first().map_or("", String::as_str);
    writeln!(
        io::stderr(),
        "curtsy {version}\n\n\
         \x20 proxy      {proxies}\n\
         \x20 dashboard  {admin}\n\n\
         \x20 politeness {politeness}\n\
         \x20 robots     {robots}\n\
         \x20 https      {https}\n\
         \x20 config     {file}\n\n\
         \x20 try it     curl -x {first} http://example.com/\n\
         \x20 or         export http_proxy={first} https_proxy={first}\n\n\
         ready in {took} ms. Ctrl-C stops after requests in flight are done.",
        version = env!("CARGO_PKG_VERSION"),
        proxies = proxies.join(", "),
        politeness = politeness(&loaded.config),
        robots = robots(&loaded.config),
        https = https(&loaded.config),
        took = took.as_millis(),
    )
}

fn politeness(config: &Config) -> String {
    let politeness = &config.politeness;
    let time = humantime::format_duration;
    let pace = format!(
        "{} between requests to a host, {} at a time; held up to {}",
        time(politeness.delay),
        politeness.concurrency,
        time(politeness.max_wait),
    );
    match politeness.mode {
        Mode::Enforce if politeness.delay.is_zero() => {
            format!("no delay, {} requests at a time", politeness.concurrency)
        }
        Mode::Enforce => pace,
        Mode::Report => format!("only reported, not enforced: {pace}"),
        Mode::Off => "off".to_owned(),
    }
}

fn robots(config: &Config) -> &'static str {
    match config.politeness.robots {
        RobotsMode::Enforce => "enforced: robots.txt and Crawl-delay",
        RobotsMode::Warn => "only reported, not enforced",
        RobotsMode::Off => "off: robots.txt is not read",
    }
}

fn https(config: &Config) -> &'static str {
    match (config.tls.intercept, config.tls.only.is_empty(), config.tls.tunnel.pace_requests) {
        (true, true, _) => "read with the local CA, which clients have to trust: curtsy ca",
        (true, false, _) => "hosts in tls.only are read with the local CA (curtsy ca), others tunnelled",
        (false, _, true) => "tunnelled, and HTTP/1.1 requests inside paced; --intercept reads them",
        (false, _, false) => "tunnelled, and not paced inside",
    }
}
