//! `curtsy explain` and `curtsy check`: may this URL be fetched, and when? Answers as a running curtsy would decide.

use std::io::{self, BufRead};

use clap::Args;
use serde_json::json;
use url::form_urlencoded;

use super::admin::{self, AskArgs, Call};
use super::config::Streams;
use super::terminal::{BOLD, GREEN, RED, TextStyle, YELLOW, columns, harmless, labelled, printable, time};
use super::{cache, host};
use crate::admin::explain::{Checked, Explanation};
use crate::config::Sources;
use crate::robots::{Question, Reason};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 allowed, 2 not a URL, 3 denied, 4 unknown, or no curtsy runs.

Examples:
  curtsy explain http://example.com/page
  curtsy explain example.com --user-agent 'FooBot/1.0'
  curtsy explain https://example.com/private/ --via intercepted
  curtsy explain http://example.com/ --as my-crawler
  curtsy explain http://example.com/ --json | jq .wait_ms")]
pub(super) struct ExplainArgs {
    /// A URL; a host alone stands for https://HOST/
    #[arg(value_name = "URL|HOST")]
    url: String,
    #[command(flatten)]
    who: ExplainedClient,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: 0 all are allowed, 2 one is not a URL, 3 one is denied, 4 one is unknown, or no curtsy runs.

Examples:
  curtsy check http://example.com/a http://example.com/b
  curtsy check - < urls.txt
  curtsy check -q http://example.com/a && curl -x http://127.0.0.1:3128 http://example.com/a"
)]
pub(super) struct ExplainCheckArgs {
    /// Up to 1000 URLs; "-" reads them from standard input, one per line
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Print nothing; only set the exit code
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    who: ExplainedClient,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
struct ExplainedClient {
    /// User-Agent of the client, whose rules apply
    #[arg(short = 'A', long, value_name = "UA")]
    user_agent: Option<String>,
    /// Method of the request
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// The client whose request it is: NAME, ADDRESS or NAME@ADDRESS (default: this machine)
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// How an https:// URL is requested (default: as a usual client would)
    #[arg(long, value_name = "WAY", value_parser = ["plain", "tunnel", "intercepted"])]
    via: Option<String>,
}

impl ExplainedClient {
    /// The fields of the API's question, apart from the URL.
    fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let optional = [("user_agent", &self.user_agent), ("client", &self.client), ("via", &self.via)];
        let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        [("method", self.method.as_str())].into_iter().chain(optional)
    }
}

const USAGE: u8 = 2;
const DENIED: u8 = 3;
const UNKNOWN: u8 = 4;

pub(super) fn explain(args: &ExplainArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    if let Some(code) = refuse_bad(&args.url, streams)? {
        return Ok(code);
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("url", &args.url).extend_pairs(args.who.fields());
    let call = Call::get(format!("/api/v1/explain?{}", query.finish()));
    admin::tell(&args.ask, sources, streams, &call, |told: &Explanation| {
        (page(told, TextStyle(paint), columns()), code(told))
    })
}

pub(super) fn check(
    args: &ExplainCheckArgs,
    sources: &Sources,
    paint: bool,
    streams: &mut Streams<'_>,
) -> io::Result<u8> {
    let urls = match args.urls.as_slice() {
        [dash] if dash == "-" => lines_of(io::stdin().lock())?,
        urls => urls.to_vec(),
    };
    for url in &urls {
        if let Some(code) = refuse_bad(url, streams)? {
            return Ok(code);
        }
    }
    let mut body = json!({ "urls": urls });
    for (name, value) in args.who.fields() {
        body[name] = json!(value);
    }
    let call = Call { method: "POST", path: "/api/v1/check".to_owned(), body: Some(body) };
    admin::tell(&args.ask, sources, streams, &call, |told: &Checked| {
        let codes: Vec<u8> = told.urls.iter().map(code).collect();
        let worst = [DENIED, UNKNOWN].into_iter().find(|code| codes.contains(code)).unwrap_or(0);
        let lines = told.urls.iter().map(|told| line(told, TextStyle(paint)));
        (if args.quiet { String::new() } else { lines.collect() }, worst)
    })
}

/// Reads one URL per line and skips blank lines.
fn lines_of(input: impl BufRead) -> io::Result<Vec<String>> {
    let lines = input.lines().collect::<io::Result<Vec<String>>>()?;
    Ok(lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Returns the exit code for a text that is neither a URL nor a host. No curtsy is asked about it.
fn refuse_bad(url: &str, streams: &mut Streams<'_>) -> io::Result<Option<u8>> {
    let Err(bad) = Question::parse(url, None, false) else { return Ok(None) };
    writeln!(streams.err, "error: {}: {bad}", printable(url))?;
    Ok(Some(USAGE))
}

fn code(told: &Explanation) -> u8 {
    match told.allowed {
        Some(true) => 0,
        Some(false) => DENIED,
        None => UNKNOWN,
    }
}

fn headline(told: &Explanation, brush: TextStyle) -> String {
    match told.allowed {
        Some(true) => brush.stroke(GREEN, "allowed"),
        Some(false) => brush.stroke(RED, "DENIED "),
        None if matches!(told.refusal.as_deref(), Some("origin-unreachable" | "origin-timeout")) => {
            brush.stroke(RED, "UNREACHABLE")
        }
        None => brush.stroke(YELLOW, "UNKNOWN"),
    }
}

fn line(told: &Explanation, brush: TextStyle) -> String {
    let detail = if told.allowed == Some(true) { wait(told) } else { why(told) };
    let warning = told.warning.as_deref().map(|text| format!("; {}", harmless(text))).unwrap_or_default();
    format!("{}  {}  {detail}{warning}\n", headline(told, brush), printable(&told.url))
}

pub(super) fn page(told: &Explanation, brush: TextStyle, columns: Option<usize>) -> String {
    let mut page = format!("{}  {}\n\n", headline(told, brush), brush.stroke(BOLD, &printable(&told.url)));
    let rows = [
        ("why", Some(why(told))),
        ("but", told.warning.as_deref().map(harmless)),
        ("via", via(told)),
        ("cache", (told.allowed == Some(true)).then(|| cached(told)).flatten()),
        ("wait", (told.allowed == Some(true)).then(|| wait(told))),
        ("delay", delay(told)),
        ("limit", told.known.as_ref().and_then(|host| host.limit.as_ref()).map(host::limit)),
        ("client", (!told.client.is_empty()).then(|| printable(&told.client))),
        (
            "host",
            told.known
                .as_ref()
                .map(|host| format!("{} waiting, {} in flight, {}", host.queued, host.in_flight, host.state)),
        ),
        ("fleet", told.known.as_ref().and_then(|host| host.fleet.as_ref()).map(host::fleet)),
        ("tunnels", told.known.as_ref().and_then(|host| host.unpaced_tunnels.as_ref()).map(host::unpaced)),
    ];
    page.push_str(&labelled(rows, 8, brush, columns));
    page
}

fn why(told: &Explanation) -> String {
    if let Some(trouble) = &told.trouble {
        return harmless(trouble);
    }
    match (told.refusal.as_deref(), told.reason, &told.rule) {
        (Some("destination-denied"), ..) => {
            "this destination may not be visited (access.allow_destinations)".to_owned()
        }
        (_, Some(Reason::Rule), Some(rule)) => {
            let group = printable(told.group.as_deref().unwrap_or("*"));
            format!("robots.txt line {}, group {group}: {}", rule.line, printable(&rule.rule))
        }
        (_, Some(Reason::Rule | Reason::NoRule), _) => "no rule of robots.txt matches this path".to_owned(),
        (_, Some(Reason::NoGroup), _) => "robots.txt has no group for this client".to_owned(),
        (_, Some(Reason::NoFile), _) => "there is no robots.txt".to_owned(),
        (_, Some(Reason::TooComplicated), _) => "robots.txt is too complicated to judge this path by".to_owned(),
        (_, Some(Reason::RobotsTxt), _) => "robots.txt itself may always be fetched".to_owned(),
        (_, Some(Reason::Unreachable | Reason::Throttled), _) => "robots.txt cannot be fetched".to_owned(),
        (_, None, _) if told.allowed.is_none() => "robots.txt is not known yet; ask again".to_owned(),
        (_, None, _) => "robots.txt does not apply to this".to_owned(),
    }
}

fn via(told: &Explanation) -> Option<String> {
    Some(match told.via.as_str() {
        "tunnel" => "tunnel: of robots.txt only Crawl-delay and \"everything is disallowed\" count".to_owned(),
        "intercepted" => "tunnel that curtsy decrypts: robots.txt counts in full".to_owned(),
        _ => return None,
    })
}

fn wait(told: &Explanation) -> String {
    let starts = match told.wait_ms {
        None => "until the pause is ended".to_owned(),
        Some(0) if told.cache.as_ref().is_some_and(|cache| matches!(cache.state.as_str(), "fresh" | "stale")) => {
            "none: it would be answered from the cache".to_owned()
        }
        Some(0) => "none: it would start now".to_owned(),
        Some(millis) => match told.why.as_deref() {
            Some(why) => format!("{} ({why})", time(millis)),
            None => time(millis),
        },
    };
    match told.refusal.as_deref() {
        Some("host-cooling") => format!("{starts}; refused until then (the host is held or paused)"),
        Some("breaker-open") => format!("{starts}; refused until then (the origin has only failed lately)"),
        Some(_) => format!("{starts}; refused for now, because the wait is too long"),
        None => starts,
    }
}

/// Says what the cache would do, if there is something to say.
fn cached(told: &Explanation) -> Option<String> {
    let cache = told.cache.as_ref()?;
    if let Some(reason) = &cache.not_stored {
        return Some(format!("would be asked: the last answer was not stored ({})", cache::reason(reason)));
    }
    let ttl = cache.ttl_s?;
    let span = time(ttl.unsigned_abs().saturating_mul(1_000));
    Some(match (cache.state.as_str(), ttl > 0) {
        ("fresh", _) => format!("would be answered from the cache, fresh for {span}"),
        ("stale", _) => format!("would be answered from the cache, although it expired {span} ago"),
        ("validate", true) => "would be asked: the copy must be validated".to_owned(),
        ("validate", false) => format!("would be asked: the copy expired {span} ago"),
        _ => return None,
    })
}

fn delay(told: &Explanation) -> Option<String> {
    Some(host::delay(told.delay.as_ref()?, told.delay_ms?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_has_a_url_a_line() {
        let urls = lines_of("http://a.test/\n\n  http://b.test/ \r\n".as_bytes()).unwrap();
        assert_eq!(urls, ["http://a.test/", "http://b.test/"]);
    }
}
