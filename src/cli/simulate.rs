//! `curtsy simulate`: what each policy would do to a host, in virtual time.
//!
//! Runs the lane of the proxy against a simulated host and prints what came of it. Nothing is sent anywhere.

mod matrix;
mod plot;
mod png;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::config::Streams;
use super::terminal::about;
use crate::app;
use crate::config::{self, Sources};
use crate::politeness::lab::policies::TrialPolicy;
use crate::politeness::lab::spec::{self, OPTIONS, SERVERS};
use crate::politeness::lab::trial::{Trial, TrialResult, TrialSettings};
use crate::politeness::pace::Learning;

#[derive(Args, Clone, Debug)]
#[command(after_help = "HOST is a kind of limit, then options behind commas; --list-servers describes them:
  window 45/60s          log 45/60s             bucket 5/s 50          gcra 10/s 3
  concurrency 4          two 5/1s 100/60s       ban 0.75/s 10 60s      random 1%
  worker 10/s            none
  , retry-after  , ratelimit  , status=403  , forbidden=5%  , latency=300ms  , others=0.75/s

Examples:
  curtsy simulate --server 'window 30/60s' --base 1s
  curtsy simulate --server 'bucket 7/s 10, status=403' --policy steps,auto --plot pace.svg
  curtsy simulate --server 'ban 5/s 20 60s' --from-config example.com
  curtsy simulate --matrix --seeds 5")]
pub(super) struct SimulateArgs {
    /// The simulated host
    #[arg(long, value_name = "HOST", default_value = "window 45/60s")]
    server: String,
    /// List the hosts that can be simulated
    #[arg(long)]
    list_servers: bool,
    /// Policies to compare: steps, auto, fixed, and for comparison aimd, cubic, autothrottle, sre
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "steps,auto,fixed")]
    policy: Vec<String>,
    /// The configured delay
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    base: String,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    concurrency: u32,
    /// How long the simulated crawl lasts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    /// The same seed leads to the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take the delay, the concurrency and the settings of learning for this host from the configuration
    #[arg(long, value_name = "HOST")]
    from_config: Option<String>,
    /// Draw the paces into a file: a PNG if its name ends so, else an SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Run all policies against 36 kinds of limits and against random hosts instead
    #[arg(long)]
    matrix: bool,
    /// Seeds of the matrix
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
}

const USAGE: u8 = 2;

/// One policy and what it reached.
struct Simulated {
    policy: TrialPolicy,
    result: TrialResult,
}

pub(super) fn run(args: &SimulateArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    if args.list_servers {
        write!(streams.out, "{}", servers())?;
        return Ok(0);
    }
    let prepared = policies(&args.policy).and_then(|policies| Ok((policies, settings(args, sources)?)));
    let prepared = prepared.and_then(|ready| spec::server(&args.server, args.seed).map(|_| ready));
    let (policies, settings) = match prepared {
        Ok(ready) => ready,
        Err(message) => {
            writeln!(streams.err, "error: {message}")?;
            return Ok(USAGE);
        }
    };
    if args.matrix {
        return matrix::run(args.seeds, streams);
    }
    let trial = |policy: TrialPolicy| {
        let server = spec::server(&args.server, args.seed).map_err(io::Error::other)?;
        let result = Trial::new(server, TrialSettings { policy, ..settings }).run();
        io::Result::Ok(Simulated { policy, result })
    };
    let mut simulated = Vec::new();
    for (number, policy) in policies.iter().enumerate() {
        progress(streams, number, policies.len())?;
        simulated.push(trial(*policy)?);
    }
    clear(streams)?;
    write!(streams.out, "{}", page(&args.server, &settings, &simulated))?;
    if let Some(file) = &args.plot {
        let picture = plot::picture(&args.server, &settings, &simulated);
        let is_png = file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"));
        let drawn = if is_png { png::png(&picture) } else { plot::svg(&picture).into_bytes() };
        std::fs::write(file, drawn)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", file.display())))?;
    }
    Ok(0)
}

/// Shows how far a long run is, on a terminal. The line is rewritten until [`clear`].
fn progress(streams: &mut Streams<'_>, done: usize, all: usize) -> io::Result<()> {
    if !io::stderr().is_terminal() {
        return Ok(());
    }
    let bar: String = (0..all).map(|number| if number < done { '█' } else { '░' }).collect();
    write!(streams.err, "\r\x1b[K{bar} {done} of {all}")?;
    streams.err.flush()
}

fn clear(streams: &mut Streams<'_>) -> io::Result<()> {
    if io::stderr().is_terminal() { write!(streams.err, "\r\x1b[K") } else { Ok(()) }
}

fn policies(names: &[String]) -> Result<Vec<TrialPolicy>, String> {
    let known = |name: &String| TrialPolicy::ALL.into_iter().find(|policy| policy.word() == name.trim());
    let words = TrialPolicy::ALL.map(TrialPolicy::word).join(", ");
    let named = |name| known(name).ok_or_else(|| format!("no policy is called {name:?}; there are {words}"));
    names.iter().map(named).collect()
}

fn settings(args: &SimulateArgs, sources: &Sources) -> Result<TrialSettings, String> {
    let seconds = f64::from(args.minutes) * 60.0;
    let mut settings = TrialSettings {
        base: spec::duration(&args.base)?,
        concurrency: args.concurrency,
        seconds,
        ..TrialSettings::new(TrialPolicy::Fixed, args.seed)
    };
    if let Some(host) = &args.from_config {
        let config = config::load(sources).map_err(|problems| problems.to_string())?.config;
        let book = app::policy_book(&config);
        let policy = book.policy(&host.to_ascii_lowercase());
        settings.base = policy.delay.max(Duration::from_millis(1));
        settings.concurrency = policy.concurrency.max(1);
        settings.learning = Learning { ..book.schooling.learning };
    }
    Ok(settings)
}

fn servers() -> String {
    let line = |(text, what): &(&str, &str)| format!("  {text:20}  {what}\n");
    let (kinds, options): (String, String) = (SERVERS.iter().map(line).collect(), OPTIONS.iter().map(line).collect());
    format!("Hosts:\n{kinds}\nOptions, each behind a comma:\n{options}")
}

fn page(server: &str, settings: &TrialSettings, simulated: &[Simulated]) -> String {
    let (minutes, base) = (settings.seconds / 60.0, settings.base.as_secs_f64());
    let mut page = format!("{server}: {minutes} min, a delay of {base} s, {} in flight\n\n", settings.concurrency);
    page += "policy        goodput  refused/1000  failed/1000  to 90 %\n";
    for Simulated { policy, result } in simulated {
        let reached = result.time_to_90(0.0, settings.seconds).map_or("never".to_owned(), about);
        page += &format!(
            "{:12}  {:5.1} %  {:12.1}  {:11.1}  {reached}\n",
            policy.word(),
            result.goodput(),
            result.refused_per_1000(),
            result.failed_per_1000(),
        );
    }
    simulated.iter().fold(page, |page, one| page + "\n" + &plot::text(one, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(server: &str, policy: TrialPolicy) -> (TrialSettings, Simulated) {
        let settings = TrialSettings { seconds: 600.0, ..TrialSettings::new(policy, 1) };
        let result = Trial::new(spec::server(server, 1).unwrap(), settings).run();
        (settings, Simulated { policy, result })
    }

    #[test]
    fn the_page_has_a_row_and_a_picture_for_each_policy() {
        let (settings, one) = simulated("bucket 5/s 10", TrialPolicy::Auto);
        let page = page("bucket 5/s 10", &settings, &[one]);
        assert!(page.contains("\nauto          ") && page.contains("to 90 %"), "{page}");
        assert!(page.contains("limit 5"), "{page}");
    }

    #[test]
    fn the_picture_is_an_svg_with_a_line_for_each_policy() {
        let (settings, auto) = simulated("window 45/60s", TrialPolicy::Auto);
        let (_, steps) = simulated("window 45/60s", TrialPolicy::Steps);
        let picture = plot::picture("window <45>/60s", &settings, &[steps, auto]);
        let svg = plot::svg(&picture);
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<polyline").count(), 4, "axes, limit, two policies");
        assert!(png::png(&picture).starts_with(b"\x89PNG\r\n\x1a\n"));
        assert!(svg.contains("window &lt;45&gt;/60s"), "text is escaped");
    }

    #[test]
    fn an_unknown_policy_is_answered_with_those_that_exist() {
        let error = policies(&["steps".to_owned(), "cubist".to_owned()]).unwrap_err();
        assert!(error.contains("\"cubist\"") && error.contains("steps, auto, fixed, aimd, cubic"), "{error}");
    }
}
