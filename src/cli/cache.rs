//! `curtsy cache`: shows stored answers, forgets and verifies them.
//!
//! Asks a running curtsy. If none runs, reads the folder of stored answers itself, and says so.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded;

use super::admin::{self, AdminTrouble, AskArgs, Call, NOBODY, RunningCurtsy};
use super::config::Streams;
use super::terminal::{self, TextStyle, printable, table};
use crate::admin::cache::{
    self, AskedFields, CacheEntriesJson, CacheEntryJson, CacheJson, CachePage, CachePurgedJson, CacheSort, CacheUrlJson,
};
use crate::app;
use crate::cache::Cache;
use crate::cache::disk::{self, DiskTier, Purge};
use crate::clock;
use crate::config::{self, Sources};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  curtsy cache                               how much is stored, and what it saves
  curtsy cache list example.com --sort size
  curtsy cache show http://example.com/feed
  curtsy cache show http://example.com/ --header 'Accept-Language: de'
  curtsy cache purge example.com
  curtsy cache verify --cache .cache         is every stored answer as it was written?")]
pub(super) struct CacheArgs {
    #[command(subcommand)]
    command: Option<CacheCommand>,
    #[command(flatten)]
    ask: AskArgs,
    /// Folder of stored answers, if no curtsy uses it; default: the configured one
    #[arg(long = "cache", global = true, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum CacheCommand {
    /// List stored answers
    List {
        /// Only those of this host
        host: Option<String>,
        #[arg(long, value_enum, default_value = "url")]
        sort: SortWord,
        /// Most lines
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: usize,
    },
    /// Show what is stored for a URL
    Show {
        url: String,
        /// Only what is stored for a request with this header field; may be given more than once
        #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
        headers: Vec<String>,
    },
    /// Forget the answers for a URL, those of a host, or all
    Purge {
        #[arg(value_name = "URL|HOST", required_unless_present = "all", conflicts_with = "all")]
        what: Option<String>,
        #[arg(long)]
        all: bool,
    },
    /// Read every stored answer on disk and check it; exit 1 if one is damaged
    Verify,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SortWord {
    Url,
    Size,
    Age,
    Hits,
}

pub(super) fn run(args: &CacheArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    match args.command.clone() {
        None => {
            let path = "/api/v1/cache".to_owned();
            answer(args, sources, streams, &Call::get(path), async |cache| CacheJson::of(cache, None).await, status)
        }
        Some(CacheCommand::List { host, sort, limit }) => list(args, sources, streams, (host, sort, limit)),
        Some(CacheCommand::Show { url, headers }) => show(args, sources, streams, &url, &headers),
        Some(CacheCommand::Purge { what, .. }) => purge(args, sources, streams, what),
        Some(CacheCommand::Verify) => verify(args, sources, streams),
    }
}

fn show(
    args: &CacheArgs,
    sources: &Sources,
    streams: &mut Streams<'_>,
    url: &str,
    headers: &[String],
) -> io::Result<u8> {
    let mut asked = AskedFields::default();
    let read = headers.iter().try_for_each(|line| asked.add(line)).and_then(|()| cache::stored_url(url));
    let url = match read {
        Ok(url) => url,
        Err(error) => return AdminTrouble::failure(error).tell(streams),
    };
    let fields = headers.iter().map(|line| format!("&{}", query("header", line)));
    let call = Call::get(format!("/api/v1/cache/entry?{}{}", query("url", &url), fields.collect::<String>()));
    let offline = async |stored: &Cache| {
        let unkeyed = config::load(sources).map(|loaded| loaded.config.cache.unkeyed).unwrap_or_default();
        cache::entry(stored, url, &AskedFields { unkeyed, ..asked }).await
    };
    answer(args, sources, streams, &call, offline, shown)
}

fn query(name: &str, value: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish()
}

fn list(
    args: &CacheArgs,
    sources: &Sources,
    streams: &mut Streams<'_>,
    (host, sort, limit): (Option<String>, SortWord, usize),
) -> io::Result<u8> {
    let host = match host.as_deref().map(cache::stored_host).transpose() {
        Ok(host) => host,
        Err(error) => return AdminTrouble::failure(error).tell(streams),
    };
    let limit = limit.clamp(1, cache::LONGEST_PAGE);
    let (word, sort) = match sort {
        SortWord::Url => ("url", CacheSort::Url),
        SortWord::Size => ("size", CacheSort::Size),
        SortWord::Age => ("age", CacheSort::Age),
        SortWord::Hits => ("hits", CacheSort::Hits),
    };
    let which = host.as_ref().map_or(String::new(), |host| format!("&{}", query("host", host)));
    let call = Call::get(format!("/api/v1/cache/entries?sort={word}&limit={limit}{which}"));
    let page = CachePage { which: host.map_or(Purge::All, Purge::Host), sort, limit, offset: 0 };
    let brush = TextStyle(streams.paint);
    answer(args, sources, streams, &call, async |stored| cache::entries(stored, &page).await, |page| rows(page, brush))
}

fn purge(args: &CacheArgs, sources: &Sources, streams: &mut Streams<'_>, what: Option<String>) -> io::Result<u8> {
    let which = match what {
        None => Ok(Purge::All),
        Some(url) if url.contains("://") => cache::stored_url(&url).map(Purge::Url),
        Some(host) => cache::stored_host(&host).map(Purge::Host),
    };
    let which = match which {
        Ok(which) => which,
        Err(error) => return AdminTrouble::failure(error).tell(streams),
    };
    let asked = match &which {
        Purge::All => "all=true".to_owned(),
        Purge::Host(host) => query("host", host),
        Purge::Url(url) => query("url", url),
    };
    let call = Call { method: "DELETE", path: format!("/api/v1/cache?{asked}"), body: None };
    let offline = async |stored: &Cache| CachePurgedJson { forgotten: stored.purge(&which).await.unwrap_or_default() };
    answer(args, sources, streams, &call, offline, |purged: &CachePurgedJson| {
        let what = if purged.forgotten == 1 { "stored answer" } else { "stored answers" };
        (format!("forgot {} {what}\n", purged.forgotten), 0)
    })
}

/// Asks the running curtsy. If none runs, does the same on the folder.
fn answer<T: Serialize + DeserializeOwned>(
    args: &CacheArgs,
    sources: &Sources,
    streams: &mut Streams<'_>,
    call: &Call<'_>,
    offline: impl AsyncFnOnce(&Cache) -> T,
    page: impl FnOnce(&T) -> (String, u8),
) -> io::Result<u8> {
    let answer = match (&args.folder, RunningCurtsy::find(&args.ask, sources)) {
        (None, Ok(running)) => running.call(call),
        (None, Err(trouble)) if trouble.code != NOBODY || args.ask.names_one() => Err(trouble),
        _ => on_folder(args, sources, streams, offline),
    };
    admin::print(&args.ask, streams, answer, page)
}

fn on_folder<T: Serialize>(
    args: &CacheArgs,
    sources: &Sources,
    streams: &mut Streams<'_>,
    work: impl AsyncFnOnce(&Cache) -> T,
) -> Result<Value, AdminTrouble> {
    let failure = |error: &dyn std::fmt::Display| AdminTrouble::failure(error.to_string());
    let folder = folder(args, sources)?;
    if !disk::is_folder(&folder) {
        return Err(AdminTrouble::nobody(format!("no curtsy runs, and nothing is stored in {}", folder.display())));
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failure(&error))?;
    // Without a limit: a look must not evict anything.
    let tier = DiskTier::start(&folder, u64::MAX).map_err(|error| failure(&error))?;
    let deadline = clock::now() + PATIENCE;
    while !tier.status().is_loaded && tier.status().trouble.is_none() && clock::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Some(trouble) = tier.status().trouble {
        let folder = folder.display();
        return Err(AdminTrouble::failure(format!("{folder}: {trouble}. Ask that curtsy with --admin, or stop it")));
    }
    let cache = Cache::with_disk(LITTLE_MEMORY, Some(tier));
    let done = runtime.block_on(work(&cache));
    if let Some(disk) = &cache.disk {
        disk.close(PATIENCE);
    }
    writeln!(streams.err, "offline: this uses the folder {}", folder.display()).map_err(|error| failure(&error))?;
    serde_json::to_value(done).map_err(|error| failure(&error))
}

fn folder(args: &CacheArgs, sources: &Sources) -> Result<PathBuf, AdminTrouble> {
    if let Some(folder) = &args.folder {
        return Ok(folder.clone());
    }
    let loaded = config::load(sources).map_err(|problems| AdminTrouble::failure(problems.to_string()))?;
    Ok(app::cache_directory(&loaded.config.cache))
}

fn verify(args: &CacheArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let report = folder(args, sources).and_then(|folder| disk::verify(&folder).map_err(AdminTrouble::failure));
    let report = match report {
        Ok(report) => report,
        Err(trouble) => return trouble.tell(streams),
    };
    if args.ask.json {
        let bad: Vec<Value> =
            report.bad.iter().map(|(url, why)| serde_json::json!({ "url": url, "why": why })).collect();
        let json = serde_json::json!({ "good": report.good, "bytes": report.bytes, "bad": bad });
        writeln!(streams.out, "{json:#}")?;
    } else {
        let good = format!("{} stored answers ({}) are as they were written", report.good, size(report.bytes));
        writeln!(streams.out, "{good}")?;
        for (url, why) in &report.bad {
            writeln!(streams.out, "damaged: {} ({why})", printable(url))?;
        }
        if !report.bad.is_empty() {
            writeln!(streams.out, "curtsy will not use damaged answers: it asks the site again")?;
        }
    }
    Ok(u8::from(!report.bad.is_empty()))
}

fn status(told: &CacheJson) -> (String, u8) {
    let mut page = String::new();
    let memory = &told.memory;
    // Writing to a string cannot fail.
    let _ = writeln!(page, "memory   {} of {}, {} URLs", size(memory.bytes), size(memory.limit), memory.objects);
    match &told.disk {
        None => page.push_str("disk     off (cache.disk)\n"),
        Some(disk) => {
            let limit = if disk.limit == u64::MAX { String::new() } else { format!(" of {}", size(disk.limit)) };
            let loading = if disk.loaded { "" } else { "; the catalogue is being read" };
            let _ = writeln!(page, "disk     {}{limit}, {} answers{loading}", size(disk.bytes), disk.objects);
            let _ = writeln!(page, "folder   {}", printable(&disk.directory));
            if let Some(trouble) = &disk.trouble {
                let _ = writeln!(page, "trouble  {}; new answers stay in memory alone", printable(trouble));
            }
            let counts = disk.counts;
            let notable =
                [(counts.skipped, "not written"), (counts.late, "read too late"), (counts.damaged, "damaged")];
            for (count, what) in notable.iter().filter(|(count, _)| *count > 0) {
                let _ = writeln!(page, "         {count} {what}");
            }
        }
    }
    if let (Some(oldest), Some(newest)) = (told.oldest_s, told.newest_s) {
        let ago = |seconds: u64| terminal::span(seconds);
        let _ = writeln!(page, "age      oldest {}, newest {}", ago(oldest), ago(newest));
    }
    if let Some(share) = told.share {
        let percent = (100.0 * share).round();
        let _ = writeln!(page, "not sent {} requests ({percent} %), {}", told.not_sent, size(told.served_bytes));
    }
    (page, 0)
}

fn rows(page: &CacheEntriesJson, brush: TextStyle) -> (String, u8) {
    if page.entries.is_empty() {
        return ("nothing is stored\n".to_owned(), 0);
    }
    let row = |entry: &CacheEntryJson| {
        let fresh =
            entry.ttl_s.map_or_else(|| "-".to_owned(), |ttl| if ttl > 0 { span(ttl) } else { "stale".to_owned() });
        let tier = match (entry.memory, entry.disk) {
            (true, true) => "both",
            (true, false) => "memory",
            (false, _) => "disk",
        };
        let hits = entry.hits.to_string();
        vec![size(entry.bytes), hits, fresh, tier.to_owned(), printable(&entry.url).to_string()]
    };
    let rows: Vec<Vec<String>> = page.entries.iter().map(row).collect();
    let mut text = table(&["SIZE", "HITS", "FRESH FOR", "TIER", "URL"], &rows, &[0, 1], brush);
    if page.total > page.entries.len() {
        let _ = writeln!(text, "and {} more", page.total - page.entries.len());
    }
    (text, 0)
}

fn shown(told: &CacheUrlJson) -> (String, u8) {
    if told.variants.is_empty() {
        let why = match (&told.not_stored, told.others) {
            (Some(why), _) => format!("the last answer was not stored: {}\n", reason(why)),
            (None, 0) => String::new(),
            (None, others) => format!("and such a request; {others} for others: leave --header out to see them\n"),
        };
        return (format!("nothing is stored for {}\n{why}", printable(&told.url)), 3);
    }
    let mut page = String::new();
    for entry in &told.variants {
        let status = entry.status.map_or_else(|| "unread".to_owned(), |status| status.to_string());
        let _ = writeln!(page, "{status}  {}, {}", size(entry.bytes), printable(&entry.url));
        if let Some(ttl) = entry.ttl_s {
            let fresh =
                if ttl > 0 { format!("fresh for {}", span(ttl)) } else { format!("stale since {}", span(-ttl)) };
            let validated = if entry.must_validate == Some(true) { "; validated before it is used" } else { "" };
            let _ = writeln!(page, "  {fresh}, {} old{validated}", span(entry.age_s.unwrap_or(0).into()));
        }
        let validators = [("ETag", &entry.etag), ("Last-Modified", &entry.last_modified)];
        for (name, value) in validators.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            let _ = writeln!(page, "  {name}: {}", printable(value));
        }
        for line in entry.selecting.iter().flat_map(|lines| lines.lines()) {
            let _ = writeln!(page, "  only for requests with {}", printable(line));
        }
        if let Some(partition) = &entry.partition {
            let _ = writeln!(page, "  only for {}", printable(partition));
        }
        let _ = writeln!(page, "  {} hits", entry.hits);
    }
    if told.others > 0 {
        let _ = writeln!(page, "{} more for other requests", told.others);
    }
    (page, 0)
}

/// Says why an answer was not stored.
pub(super) fn reason(word: &str) -> String {
    let known = match word {
        "private" => "it says private",
        "no-store" => "it says no-store",
        "request-no-store" => "the request says no-store",
        "set-cookie" => "it sets a cookie",
        "authorization" => "the request had a password, and the answer does not say public",
        "vary" => "Vary: *",
        "no-lifetime" => "it has neither a lifetime nor a validator",
        "undelimited" => "the end of its body is not certain",
        "incomplete" => "its body broke off",
        "too-large" => "it is too large",
        "busy" => "too many answers were being stored",
        "invalidated" => "another request changed the page meanwhile",
        "status" => "answers with this status are not stored",
        _ => return printable(word),
    };
    known.to_owned()
}

fn span(seconds: i64) -> String {
    humantime::format_duration(Duration::from_secs(seconds.unsigned_abs())).to_string()
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1_024.0, 0);
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// For a slow disk.
const PATIENCE: Duration = Duration::from_secs(30);
/// Memory that a look at the folder needs.
const LITTLE_MEMORY: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 1_023, 1_024, 1_536, 5 << 20, 3 << 40].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 TiB"]);
    }
}
