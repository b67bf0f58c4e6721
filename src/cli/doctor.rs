//! `curtsy doctor`: finds out why a client does not get through. Checks the proxy, the proxy variables and the clients
//! on this machine, and makes each client request a page that only curtsy serves.
//!
//! Changes nothing, sends nothing beyond the proxy, and never runs the command that the user asks about.

mod clients;
mod command;
mod finding;
mod patience;
mod probe;
mod redis;
mod trials;
mod tunnels;
mod variables;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::command::{ProbeCommand, ProgramKind};
use self::finding::{Finding, Level};
use self::patience::ProgramWaits;
use self::probe::{Probe, ProbeAnswer, Proxy};
use self::trials::{RECIPES, Recipe, TrialVerdict};
use self::variables::{Env, NAMES, WantedVariable};
use super::admin::{AdminTrouble, AskArgs, Call, RunningCurtsy};
use super::config::Streams;
use super::status;
use super::terminal::TextStyle;
use crate::admin::queue::QueueJson;
use crate::admin::status::Status;
use crate::app;
use crate::config::{self, FileChoice, Listen, Sources};
use crate::programs::TrustFile;
use crate::tls;

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Checks the proxy and its variables, and makes curl, wget, git, Python and node request a page that
only curtsy serves. With a command, checks only what that command needs; the command itself is not run.

Exit codes: 0 it works, 1 something does not, 4 no curtsy runs.

Examples:
  curtsy doctor
  curtsy doctor -- python3 crawl.py
  curtsy doctor --proxy http://10.0.0.7:3128 -- curl -m 10 https://example.com/
  curtsy doctor --redis redis://127.0.0.1:6379
  curtsy doctor --json | jq '.findings[] | select(.level == \"fail\")'"
)]
pub(super) struct DoctorArgs {
    /// The proxy that clients should use; default: that of the running curtsy
    #[arg(long, value_name = "URL", env = "CURTSY_PROXY")]
    proxy: Option<String>,
    /// Check a Redis for a fleet instead: its version, rights, eviction and round trip; without URL the configured one
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with = "command")]
    redis: Option<Vec<String>>,
    #[command(flatten)]
    ask: AskArgs,
    /// A command that does not get through
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// The curtsy to examine.
struct DoctorScene {
    proxy: Proxy,
    probe: Probe,
    admin: Option<SocketAddr>,
    /// How to get its CA.
    ca: ProxySource,
}

/// Where to get the CA's certificate.
enum ProxySource {
    /// From `curtsy ca export`, with these arguments before it.
    Here(String),
    /// From the proxy.
    Proxy,
}

pub(super) fn run(args: &DoctorArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let found = match &args.redis {
        Some(urls) => redis::examine(urls, sources).map_err(AdminTrouble::failure),
        None => examine(args, sources),
    };
    let findings = match found {
        Ok(findings) => findings,
        Err(trouble) => return trouble.tell(streams),
    };
    if args.ask.json {
        writeln!(streams.out, "{:#}", finding::json(&findings))?;
    } else {
        write!(streams.out, "{}", finding::page(&findings, TextStyle(paint)))?;
    }
    Ok(u8::from(finding::count(&findings, Level::Fail) > 0))
}

fn examine(args: &DoctorArgs, sources: &Sources) -> Result<Vec<Finding>, AdminTrouble> {
    let admin = RunningCurtsy::find(&args.ask, sources);
    let address = admin.as_ref().ok().map(|running| running.address);
    let status = admin.and_then(|running| running.call(&Call::get(status::PATH.to_owned())));
    let status = status.and_then(|told| {
        serde_json::from_value::<Status>(told)
            .map_err(|error| AdminTrouble::failure(format!("that is not a known version of curtsy: {error}")))
    });
    let (proxy, heard) = find(args, sources, status.as_ref().ok())?;
    let probe = match heard {
        ProbeAnswer::Curtsy(probe) => *probe,
        other => return Ok(vec![unanswered(&proxy, &other)]),
    };
    let ca = source_of_ca(&proxy, sources);
    let scene = DoctorScene { proxy, probe, admin: address, ca };
    let mut findings = vec![scene.listening(status.as_ref())];
    findings.extend(scene.mode());
    findings.extend(tunnels::check(&metrics(args, sources).unwrap_or_default()));
    let command = match args.command.as_slice() {
        [] => None,
        words => {
            let Some(command) = ProbeCommand::look(words, &sources.env) else {
                let text = format!("there is no program {}", words[0]);
                findings.push(Finding::fail("command", text, "check its name and PATH"));
                return Ok(findings);
            };
            Some(command)
        }
    };
    let waits = ProgramWaits {
        most: Duration::try_from_secs_f64(scene.probe.max_wait_s).unwrap_or_default(),
        now: longest_wait(args, sources),
        intercepts: scene.probe.intercepts,
    };
    findings.extend(scene.look_around(command.as_ref(), &sources.env, &waits));
    Ok(findings)
}

/// Returns the proxy that clients should use: the likely one that answers best.
fn find(args: &DoctorArgs, sources: &Sources, status: Option<&Status>) -> Result<(Proxy, ProbeAnswer), AdminTrouble> {
    let in_variables: Vec<Proxy> =
        NAMES.into_iter().filter_map(|name| Proxy::of_url(sources.env.get(name)?).ok()).collect();
    let mut likely = Vec::new();
    if let Some(url) = &args.proxy {
        likely.push(Proxy::of_url(url).map_err(|error| AdminTrouble::failure(format!("--proxy {url}: {error}")))?);
    } else if let Some(status) = status {
        likely.extend(status.listen.iter().filter_map(|address| address.parse().ok()).map(Proxy::at));
    } else {
        likely.extend(in_variables.iter().cloned());
        let configured = config::load(sources).map(|loaded| loaded.config.listen).unwrap_or_default();
        likely.extend(configured.into_iter().map(|Listen::Tcp(address)| Proxy::at(address)));
    }
    // The credentials for a proxy may be in the variables.
    for proxy in &mut likely {
        let same = in_variables.iter().find(|known| known.address == proxy.address);
        proxy.credentials = proxy.credentials.take().or_else(|| same.and_then(|known| known.credentials.clone()));
    }
    let heard: Vec<(Proxy, ProbeAnswer)> = likely.into_iter().map(|proxy| (proxy.clone(), proxy.probe())).collect();
    let places: Vec<String> = heard.iter().map(|(proxy, _)| proxy.address.to_string()).collect();
    let best = heard.into_iter().min_by_key(|(_, heard)| match heard {
        ProbeAnswer::Curtsy(_) => 0,
        ProbeAnswer::Stranger => 1,
        ProbeAnswer::Other(_) => 2,
        ProbeAnswer::Nobody(_) => 3,
    });
    best.filter(|(_, heard)| status.is_some() || matches!(heard, ProbeAnswer::Curtsy(_) | ProbeAnswer::Stranger))
        .ok_or_else(|| {
            AdminTrouble::nobody(format!(
                "no curtsy answers on {}; start one with `curtsy`, or name it with --proxy or --admin",
                places.join(" or ")
            ))
        })
}

/// The finding for a curtsy whose proxy does not answer as it should.
fn unanswered(proxy: &Proxy, heard: &ProbeAnswer) -> Finding {
    let address = proxy.address;
    match heard {
        ProbeAnswer::Stranger => Finding::fail(
            "proxy",
            format!("the proxy on {address} wants a user and a password"),
            format!("export http_proxy=http://USER:PASSWORD@{address} https_proxy=http://USER:PASSWORD@{address}"),
        ),
        ProbeAnswer::Other(status) => {
            let text = format!("the proxy on {address} answered {status}: may this machine use it?");
            Finding::fail("proxy", text, "add this machine's network to access.allow, or name the proxy with --proxy")
        }
        ProbeAnswer::Curtsy(_) | ProbeAnswer::Nobody(_) => {
            let text = format!("curtsy runs, but its proxy address {address} does not answer");
            Finding::fail("proxy", text, "curtsy status; name an address that can be reached with --proxy")
        }
    }
}

/// Whether the CA that the proxy uses is the one in this configuration's files.
fn source_of_ca(proxy: &Proxy, sources: &Sources) -> ProxySource {
    let here = config::load(sources).ok().and_then(|loaded| app::ca_files(&loaded.config));
    let own = here.and_then(|files| files.certificates().ok());
    let own: Option<String> = own.map(|certificates| certificates.iter().map(tls::pem).collect());
    match (own, proxy.ca(), &sources.file) {
        (Some(own), Some(theirs), FileChoice::Path(path)) if own == theirs => {
            ProxySource::Here(format!("--config {} ", path.display()))
        }
        (Some(own), Some(theirs), FileChoice::Search) if own == theirs => ProxySource::Here(String::new()),
        _ => ProxySource::Proxy,
    }
}

fn metrics(args: &DoctorArgs, sources: &Sources) -> Option<String> {
    let running = RunningCurtsy::find(&args.ask, sources).ok()?;
    running.ask(&Call::get("/metrics".to_owned())).ok().filter(|answer| answer.status == 200).map(|answer| answer.body)
}

fn longest_wait(args: &DoctorArgs, sources: &Sources) -> Option<Duration> {
    let running = RunningCurtsy::find(&args.ask, sources).ok()?;
    let told = running.call(&Call::get("/api/v1/queue?limit=1000".to_owned())).ok()?;
    let queue: QueueJson = serde_json::from_value(told).ok()?;
    let waits = queue.waiting.iter().map(|waiting| waiting.waited_ms + waiting.expected_ms.unwrap_or(0));
    Some(Duration::from_millis(waits.max().unwrap_or(0)))
}

impl DoctorScene {
    fn listening(&self, status: Result<&Status, &AdminTrouble>) -> Finding {
        let (address, version) = (self.proxy.address, &self.probe.version);
        let admin = self.admin.map_or_else(|| "off".to_owned(), |admin| admin.to_string());
        match status {
            Err(trouble) => {
                let text = format!(
                    "proxy answers on {address} ({version}), but its admin listener does not: {}",
                    trouble.text
                );
                Finding::warn("proxy", text, "name it with --admin to see how long requests wait")
            }
            Ok(status) if status.name != self.probe.name => {
                let text =
                    format!("proxy {address} is {}, admin {admin} is another curtsy: {}", self.probe.name, status.name);
                Finding::warn("proxy", text, "name both with --proxy and --admin")
            }
            Ok(_) if version != env!("CARGO_PKG_VERSION") => {
                let text = format!("curtsy {version} runs on {address}; this is {}", env!("CARGO_PKG_VERSION"));
                Finding::warn("proxy", text, "restart it with this version")
            }
            Ok(_) => {
                let known = format!("you are known as {}", self.probe.client);
                Finding::ok("proxy", format!("proxy listens on {address}, admin on {admin}, same version; {known}"))
            }
        }
    }

    /// Returns a warning if the proxy only reports, or does nothing.
    fn mode(&self) -> Option<Finding> {
        let fix = "curtsy config show --origin    (politeness.mode)";
        match self.probe.mode.as_str() {
            "enforce" => None,
            mode => Some(Finding::warn("mode", format!("politeness.mode is \"{mode}\": requests do not wait"), fix)),
        }
    }

    fn look_around(&self, command: Option<&ProbeCommand>, env: &Env, waits: &ProgramWaits) -> Vec<Finding> {
        let wanted = WantedVariable { proxy: &self.proxy, admin: self.admin };
        let mut findings = wanted.check(env);
        // One mistake is reported once: the clients are tried as if the variables were right.
        let mut env = env.clone();
        if !variables::are_usable(&findings) {
            env.extend(NAMES.map(|name| (name.to_owned(), self.proxy.secret_url())));
        }
        let exceptions = variables::exceptions(&env, &command.map(ProbeCommand::targets).unwrap_or_default());
        if !variables::are_usable(&exceptions) {
            env.retain(|name, _| !name.eq_ignore_ascii_case("no_proxy"));
        }
        findings.extend(exceptions);
        match command {
            None => findings.extend(self.look_at_all(&env, waits)),
            Some(command) => findings.extend(self.look_at_one(command, &env, waits)),
        }
        findings
    }

    /// Tries every known client that is installed.
    fn look_at_all(&self, env: &Env, waits: &ProgramWaits) -> Vec<Finding> {
        let there = |recipe: &Recipe| Some((*recipe, command::find(recipe.program, env)?));
        let mut tried = trials::run(&RECIPES.iter().filter_map(there).collect::<Vec<_>>(), env);
        tried.retain(|tried| tried.http != TrialVerdict::Absent);
        let mut findings: Vec<Finding> = tried.iter().map(|tried| clients::finding(tried, self, env, false)).collect();
        if command::find("java", env).is_some() {
            findings.push(clients::java(self, env, false));
        }
        let names: Vec<&str> = tried.iter().map(|tried| tried.recipe.name).collect();
        if names.contains(&"aiohttp") {
            findings.push(needs_trust_env("aiohttp is installed"));
        }
        findings.extend(waits.check(&names));
        findings
    }

    /// Tries the client that the command uses.
    fn look_at_one(&self, command: &ProbeCommand, env: &Env, waits: &ProgramWaits) -> Vec<Finding> {
        let names: Vec<&str> = match &command.kind {
            ProgramKind::Curl => vec!["curl"],
            ProgramKind::Wget => vec!["wget"],
            ProgramKind::Git => vec!["git"],
            ProgramKind::Node => vec!["node"],
            ProgramKind::Java => vec!["Java"],
            ProgramKind::Python(libraries) if libraries.is_empty() => vec!["urllib", "requests", "httpx", "aiohttp"],
            ProgramKind::Python(libraries) => libraries.clone(),
            ProgramKind::Other(name) => vec![program_of(name)],
        };
        let recipes = RECIPES.iter().filter(|recipe| names.contains(&recipe.name));
        let clients: Vec<(Recipe, PathBuf)> = recipes.map(|recipe| (*recipe, command.program.clone())).collect();
        let mut tried = trials::run(&clients, env);
        // If the script names no library, only installed libraries are reported.
        let named = !matches!(&command.kind, ProgramKind::Python(libraries) if libraries.is_empty());
        tried.retain(|tried| named || tried.http != TrialVerdict::Absent);
        let mut findings: Vec<Finding> = tried.iter().map(|tried| clients::finding(tried, self, env, true)).collect();
        match &command.kind {
            ProgramKind::Java => findings.push(clients::java(self, env, true)),
            ProgramKind::Other(name) => findings.push(clients::untried(name, self, env)),
            ProgramKind::Python(libraries) => {
                findings.extend(traps(libraries, command.script.as_deref().unwrap_or_default()));
            }
            _ => {}
        }
        let tried: Vec<&str> = tried.iter().map(|tried| tried.recipe.name).collect();
        findings.extend(waits.check_command(command, if named { &names } else { &tried }));
        findings
    }

    /// Returns a shell line that writes the CA, or a bundle with it, to a file.
    fn get_file(&self, file: TrustFile) -> String {
        let proxy = self.proxy.url();
        match (&self.ca, file) {
            (ProxySource::Here(arguments), TrustFile::Ca) => format!("curtsy {arguments}ca export --out ca.pem"),
            (ProxySource::Here(arguments), TrustFile::Bundle) => {
                format!("curtsy {arguments}ca export --format bundle --out bundle.pem")
            }
            (ProxySource::Proxy, TrustFile::Ca) => format!("curl -sSx {proxy} http://curtsy.invalid/ca.pem -o ca.pem"),
            (ProxySource::Proxy, TrustFile::Bundle) => format!(
                "curl -sSx {proxy} http://curtsy.invalid/ca.pem -o ca.pem && \
                 cat /etc/ssl/certs/ca-certificates.crt ca.pem > bundle.pem"
            ),
        }
    }
}

/// Returns the usual mistakes of scripts that use these libraries.
fn traps(libraries: &[&str], script: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if libraries.contains(&"aiohttp") && !script.contains("trust_env=True") {
        findings.push(needs_trust_env("the script uses aiohttp"));
    }
    if libraries.contains(&"urllib3") && !script.contains("ProxyManager") {
        let text = "the script uses urllib3: its PoolManager reads no proxy variables";
        findings.push(Finding::warn("client", text, "urllib3.ProxyManager(os.environ[\"http_proxy\"])"));
    }
    if libraries.contains(&"Scrapy") {
        let text =
            "Scrapy reads the proxy variables, and does not verify certificates unless told to (known, not tried)";
        findings.push(Finding::ok("client", text));
    }
    if libraries.contains(&"Chromium") && !script.contains("proxy") {
        let text = "the script uses Playwright and names no proxy: its browsers may ignore the variables";
        findings.push(Finding::warn("client", text, "browser.launch(proxy={\"server\": os.environ[\"http_proxy\"]})"));
    }
    findings
}

fn needs_trust_env(what: &str) -> Finding {
    let text = format!("{what}: it reads no proxy variables unless it is told to");
    Finding::warn("client", text, "aiohttp.ClientSession(trust_env=True)")
}

/// Returns the program's name in the table of programs.
fn program_of(name: &str) -> &str {
    match name {
        "aria2c" => "aria2",
        "ruby" => "Ruby",
        "perl" => "LWP",
        "go" => "Go",
        "pip3" => "pip",
        "chromium" | "chromium-browser" | "google-chrome" => "Chromium",
        "firefox" => "Firefox",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_of_libraries_are_told_unless_the_script_minds_them() {
        assert_eq!(traps(&["aiohttp"], "import aiohttp").len(), 1);
        assert_eq!(traps(&["aiohttp"], "ClientSession(trust_env=True)"), []);
        assert_eq!(traps(&["urllib3", "Chromium"], "").len(), 2);
        assert_eq!(traps(&["Scrapy"], "")[0].level, Level::Ok);
    }
}
