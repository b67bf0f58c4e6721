//! `curtsy run`: starts the proxy, prints its addresses, reloads on request, and stops on a signal.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
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

/// How often the file is checked. A change takes effect at the second check, so within a second. One check reads a few
/// kilobytes that are in memory and takes some 20 µs.
const LOOK: Duration = Duration::from_millis(400);

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
    runtime.block_on(operate(running, loaded, sources, level, Orders { wishes, reloads }))
}

/// What a running curtsy may be told.
struct Orders {
    wishes: Wishes,
    reloads: Receiver<Reload>,
}

/// Tells the supervisor that curtsy is ready, and handles signals, reload requests and file changes until it stops.
async fn operate(
    running: Running,
    loaded: Loaded,
    sources: &Sources,
    level: LevelHandle,
    mut orders: Orders,
) -> io::Result<u8> {
    let supervisor = Supervisor::of_process();
    supervisor.ready();
    let mut watch = ConfigWatch::new(sources.clone(), &loaded);
    let mut config = loaded.config;
    loop {
        let (reloaded, asked) = tokio::select! {
            wish = orders.wishes.next() => match wish {
                Signal::Stop => break,
                Signal::Reload => {
                    supervisor.reloading();
                    running.reopen_logs();
                    (Some(config::load(sources)), None)
                }
            },
            asked = orders.reloads.recv() => (Some(config::load(sources)), asked),
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
    stop(running, &config, orders.wishes).await
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
    let proxies = addresses.iter().map(|address| format!("http://{address}")).chain(secure).collect::<Vec<_>>();
    let text = banner(&loaded.config, loaded.path.as_deref(), &proxies, running.admin_address());
    write!(io::stderr(), "{text}\nready in {} ms. Ctrl-C stops after requests in flight are done.\n", took.as_millis())
}

/// What a terminal shows at the start, in lines of at most 80 characters with the usual addresses.
fn banner(config: &Config, path: Option<&Path>, proxies: &[String], admin: Option<SocketAddr>) -> String {
    let first = proxies.first().map_or("", String::as_str);
    let file = path.map_or_else(|| "none; the defaults".to_owned(), |path| path.display().to_string());
    let dashboard = admin.map_or_else(|| "off".to_owned(), |address| format!("http://{address}"));
    // `curtsy env` asks the running curtsy, and finds it by its usual address.
    let variables = match admin {
        Some(address) if address.port() == USUAL_ADMIN_PORT => "eval \"$(curtsy env)\"".to_owned(),
        Some(address) => format!("eval \"$(curtsy env --admin http://{address})\""),
        None => format!("export http_proxy={first} https_proxy={first}"),
    };
    let rows = [
        ("proxy", proxies.join(", ")),
        ("dashboard", dashboard + "\n"),
        ("politeness", politeness(config)),
        ("robots", robots(config).to_owned()),
        ("https", https(config).to_owned()),
        ("config", file + "\n"),
        ("try it", format!("curl -x {first} http://example.com/")),
        ("this shell", variables),
    ];
    let rows: String = rows.iter().map(|(label, text)| format!("  {label:<11}{text}\n")).collect();
    format!("curtsy {}\n\n{rows}", env!("CARGO_PKG_VERSION"))
}

/// The port in the default of `admin`.
const USUAL_ADMIN_PORT: u16 = 3129;

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

/// Says what happens to HTTPS, and how to make it fully polite.
fn https(config: &Config) -> &'static str {
    match (config.tls.intercept, config.tls.only.is_empty(), config.tls.tunnel.pace_requests) {
        (true, true, _) => "fully polite for clients that trust the local CA: curtsy ca",
        (true, false, _) => "hosts in tls.only fully polite (local CA: curtsy ca), others tunnelled",
        (false, _, true) => "tunnelled: only paced, HTTP/2 not even that. Full: curtsy setup",
        (false, _, false) => "tunnelled, and not paced inside. Fully polite: curtsy setup",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banner_fits_a_terminal_and_says_how_polite_https_is() {
        let proxies = ["http://127.0.0.1:3128".to_owned()];
        let mut config = Config::default();
        for (intercept, says) in [(false, "curtsy setup"), (true, "curtsy ca")] {
            config.tls.intercept = intercept;
            for (admin, command) in
                [("127.0.0.1:3129", "(curtsy env)"), ("127.0.0.1:4000", "--admin http://127.0.0.1:4000)")]
            {
                let text = banner(&config, None, &proxies, Some(admin.parse().unwrap()));
                assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
                assert!(text.contains(says) && text.contains(command), "{text}");
            }
        }
        assert!(banner(&config, None, &proxies, None).contains("export http_proxy=http://127.0.0.1:3128"));
    }
}
