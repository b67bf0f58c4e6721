//! `/api/v1/cache`: what is stored, and the call that forgets it.
//!
//! Fields are a public interface: add, never rename.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use url::{Url, form_urlencoded};

use super::Admin;
use super::hosts::fresh;
use super::problem::ApiProblem;
use super::time::moment;
use crate::cache::disk::{DiskCounts, DiskStatus, Purge};
use crate::cache::{self, Cache, CacheKeyRef, StoredAnswer};
use crate::metrics::Metrics;
use crate::politeness::HostKey;
use crate::politeness::reuse::Field;
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::time::Timestamp;
use crate::robots::Question;

/// The cache as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheJson {
    pub memory: MemoryTierJson,
    /// None if nothing is kept on disk.
    pub disk: Option<DiskTierJson>,
    /// Requests since the start, by what the cache did for them.
    pub requests: BTreeMap<String, u64>,
    /// Requests that were answered without asking the origin.
    pub not_sent: u64,
    /// The same as a share of the requests that the cache could have answered; None before the first.
    pub share: Option<f64>,
    /// Bytes of bodies that came from the cache.
    pub served_bytes: u64,
    /// When the oldest and the newest answer were stored; None if nothing is stored.
    #[serde(default)]
    pub oldest_at: Option<String>,
    #[serde(default)]
    pub newest_at: Option<String>,
    /// How long ago that was.
    #[serde(default)]
    pub oldest_s: Option<u64>,
    #[serde(default)]
    pub newest_s: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryTierJson {
    pub bytes: u64,
    pub limit: u64,
    /// URLs with a stored answer.
    pub objects: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskTierJson {
    pub directory: String,
    pub bytes: u64,
    pub limit: u64,
    /// Stored answers.
    pub objects: u64,
    /// False while the catalogue is read after the start.
    pub loaded: bool,
    /// Why nothing is written now; None if all is well.
    pub trouble: Option<String>,
    #[serde(flatten)]
    pub counts: DiskCounts,
}

impl CacheJson {
    pub async fn of(cache: &Cache, metrics: Option<&Metrics>) -> Self {
        let (memory, received) = (&cache.memory, cache.received().await);
        let at = |micros: u64| moment(Timestamp::from_micros(micros));
        let now = cache::now().wall;
        let ago = |micros: u64| now.since(Timestamp::from_micros(micros)).as_secs();
        let results = metrics.map(|metrics| metrics.cache.results());
        let requests: BTreeMap<String, u64> =
            results.into_iter().flatten().map(|(result, count)| (result.to_owned(), count)).collect();
        let sum = |words: &[&str]| words.iter().filter_map(|word| requests.get(*word)).sum::<u64>();
        let (not_sent, all) = (sum(&["hit", "stale", "shared"]), sum(&ANSWERABLE));
        CacheJson {
            memory: MemoryTierJson { bytes: memory.bytes(), limit: memory.capacity(), objects: memory.urls() as u64 },
            disk: cache.disk.as_ref().map(|disk| DiskTierJson::from(disk.status())),
            not_sent,
            share: (all > 0).then(|| not_sent as f64 / all as f64),
            served_bytes: metrics.map_or(0, |metrics| metrics.cache.served_bytes.get()),
            requests,
            oldest_at: received.and_then(|(oldest, _)| at(oldest)),
            newest_at: received.and_then(|(_, newest)| at(newest)),
            oldest_s: received.map(|(oldest, _)| ago(oldest)),
            newest_s: received.map(|(_, newest)| ago(newest)),
        }
    }
}

/// Results of requests that the cache could have answered.
const ANSWERABLE: [&str; 6] = ["hit", "stale", "shared", "validated", "changed", "miss"];

impl From<DiskStatus> for DiskTierJson {
    fn from(status: DiskStatus) -> Self {
        DiskTierJson {
            directory: status.directory.display().to_string(),
            bytes: status.bytes,
            limit: status.limit,
            objects: status.objects,
            loaded: status.is_loaded,
            trouble: status.trouble.map(|trouble| trouble.to_string()),
            counts: status.counts,
        }
    }
}

/// One page of stored answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheEntriesJson {
    pub total: usize,
    pub offset: usize,
    pub limit: usize,
    pub entries: Vec<CacheEntryJson>,
}

/// The stored answers for one URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheUrlJson {
    pub url: String,
    pub variants: Vec<CacheEntryJson>,
    /// Stored answers that are not for a request with the given fields.
    #[serde(default)]
    pub others: usize,
    /// Why the last answer was not stored, if none is stored and it is known.
    #[serde(default)]
    pub not_stored: Option<String>,
}

/// The request that a stored answer is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedFields {
    /// Names in lower case, and values. None for any request.
    pub fields: Option<Vec<(String, String)>>,
    /// The operator's harmless fields.
    pub unkeyed: Vec<String>,
}

impl AskedFields {
    /// Adds a field, written as `Name: value`.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let field = line.split_once(':').map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()));
        let field = field.filter(|(name, _)| !name.is_empty() && !name.contains(char::is_whitespace));
        let field = field.ok_or_else(|| format!("{line:?} is no header field such as \"Accept-Language: de\""))?;
        self.fields.get_or_insert_default().push(field);
        Ok(())
    }

    /// Whether a stored answer is for such a request.
    fn selects(&self, answer: &StoredAnswer) -> bool {
        let (Some(fields), Some(facts)) = (&self.fields, &answer.facts) else { return true };
        let fields: Vec<Field<'_>> = fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = CacheRequest::read(false, &fields, &self.unkeyed);
        facts.terms.selecting.matches(&request, facts.terms.policy.flags.ignores_cookie)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheEntryJson {
    pub url: String,
    /// Whose answer it is, if clients do not share answers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub partition: Option<String>,
    pub bytes: u64,
    pub stored_at: Option<String>,
    pub hits: u64,
    pub memory: bool,
    pub disk: bool,
    /// None, like all that follows, if it is on disk alone and was not read for a list.
    pub status: Option<u16>,
    pub age_s: Option<u32>,
    /// Negative if it is stale.
    pub ttl_s: Option<i64>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// The request fields that a request must have in common with it, one a line.
    pub selecting: Option<String>,
    pub head_only: Option<bool>,
    /// It is validated before every use, or before the next one.
    pub must_validate: Option<bool>,
}

impl From<StoredAnswer> for CacheEntryJson {
    fn from(answer: StoredAnswer) -> Self {
        let facts = answer.facts;
        let fact = facts.as_ref();
        CacheEntryJson {
            url: answer.url,
            partition: Some(answer.partition).filter(|partition| !partition.is_empty()),
            bytes: answer.bytes,
            stored_at: moment(Timestamp::from_micros(answer.received_us)),
            hits: answer.hits,
            memory: answer.in_memory,
            disk: answer.on_disk,
            status: fact.map(|fact| fact.status),
            age_s: fact.map(|fact| fact.age_s),
            ttl_s: fact.map(|fact| fact.ttl_s),
            head_only: fact.map(|fact| fact.is_head_only),
            must_validate: fact.map(|fact| fact.must_validate),
            selecting: fact.map(|fact| fact.selecting.clone()),
            etag: fact.and_then(|fact| fact.etag.clone()),
            last_modified: fact.and_then(|fact| fact.last_modified.clone()),
        }
    }
}

/// How a list is sorted: by URL, or with the largest, oldest or most used first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheSort {
    #[default]
    Url,
    Size,
    Age,
    Hits,
}

impl CacheSort {
    fn read(word: &str) -> Result<Self, ApiProblem> {
        match word {
            "url" => Ok(CacheSort::Url),
            "size" => Ok(CacheSort::Size),
            "age" => Ok(CacheSort::Age),
            "hits" => Ok(CacheSort::Hits),
            _ => Err(ApiProblem::bad_request("sort must be url, size, age or hits")),
        }
    }
}

/// Which stored answers to list.
#[derive(Clone, Debug)]
pub struct CachePage {
    pub which: Purge,
    pub sort: CacheSort,
    pub limit: usize,
    pub offset: usize,
}

/// Lists stored answers.
pub async fn entries(cache: &Cache, page: &CachePage) -> CacheEntriesJson {
    let mut answers = cache.list(&page.which, false).await;
    answers.sort_by(|a, b| a.url.cmp(&b.url));
    match page.sort {
        CacheSort::Url => {}
        CacheSort::Size => answers.sort_by_key(|answer| Reverse(answer.bytes)),
        CacheSort::Age => answers.sort_by_key(|answer| answer.received_us),
        CacheSort::Hits => answers.sort_by_key(|answer| Reverse(answer.hits)),
    }
    let total = answers.len();
    let shown = answers.into_iter().skip(page.offset).take(page.limit).map(CacheEntryJson::from).collect();
    CacheEntriesJson { total, offset: page.offset, limit: page.limit, entries: shown }
}

/// Returns what is stored for a URL, and for a request with these fields.
pub async fn entry(cache: &Cache, url: String, asked: &AskedFields) -> CacheUrlJson {
    let mut answers = cache.list(&Purge::Url(url.clone()), true).await;
    let all = answers.len();
    answers.retain(|answer| asked.selects(answer));
    answers.sort_by_key(|answer| Reverse(answer.received_us));
    let others = all - answers.len();
    let not_stored = Question::parse(&url, None, false).ok().filter(|_| all == 0).and_then(|question| {
        let key = CacheKeyRef::new(&question.origin, &question.path, "");
        cache.not_stored(&key).map(|reason| reason.word().to_owned())
    });
    CacheUrlJson { url, variants: answers.into_iter().map(CacheEntryJson::from).collect(), others, not_stored }
}

/// Answers that were forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachePurgedJson {
    pub forgotten: u64,
}

/// `GET /api/v1/cache`
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Response {
    fresh(CacheJson::of(&admin.desk.shared().cache, Some(&admin.metrics)).await)
}

/// `GET /api/v1/cache/entries?host=&sort=&limit=&offset=`
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiProblem> {
    let mut page = CachePage { which: Purge::All, sort: CacheSort::Url, limit: USUAL_PAGE, offset: 0 };
    let number = |name: &str, value: &str| {
        value.parse().map_err(|_| ApiProblem::bad_request(format!("{name} must be a whole number")))
    };
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "host" => page.which = Purge::Host(host(&value)?),
            "sort" => page.sort = CacheSort::read(&value)?,
            "limit" => page.limit = number("limit", &value)?,
            "offset" => page.offset = number("offset", &value)?,
            other => return Err(ApiProblem::bad_request(format!("there is no parameter {other:?}"))),
        }
    }
    if page.limit == 0 || page.limit > LONGEST_PAGE {
        return Err(ApiProblem::bad_request(format!("limit must be between 1 and {LONGEST_PAGE}")));
    }
    Ok(fresh(entries(&admin.desk.shared().cache, &page).await))
}

/// `GET /api/v1/cache/entry?url=&header=`
pub(super) async fn one(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiProblem> {
    let shared = admin.desk.shared();
    let unkeyed = shared.settings.load().config.cache.unkeyed.clone();
    let (mut url, mut asked) = (None, AskedFields { unkeyed, fields: None });
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "url" if url.is_none() => url = Some(stored_url(&value).map_err(ApiProblem::bad_request)?),
            "header" => asked.add(&value).map_err(ApiProblem::bad_request)?,
            _ => return Err(ApiProblem::bad_request(WHICH_ONE)),
        }
    }
    let url = url.ok_or_else(|| ApiProblem::bad_request(WHICH_ONE))?;
    Ok(fresh(entry(&shared.cache, url, &asked).await))
}

/// `DELETE /api/v1/cache?url=|host=|all=true`
pub(super) async fn purge(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiProblem> {
    let mut parameters = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let which = match (parameters.next(), parameters.next()) {
        (Some((name, value)), None) => match &*name {
            "url" => Purge::Url(stored_url(&value).map_err(ApiProblem::bad_request)?),
            "host" => Purge::Host(host(&value)?),
            "all" if value == "true" => Purge::All,
            _ => return Err(ApiProblem::bad_request(WHICH)),
        },
        _ => return Err(ApiProblem::bad_request(WHICH)),
    };
    match admin.desk.shared().cache.purge(&which).await {
        Some(forgotten) => Ok(fresh(CachePurgedJson { forgotten })),
        None => Err(ApiProblem {
            status: StatusCode::SERVICE_UNAVAILABLE,
            title: "Disk busy",
            detail: "memory forgot it, but the disk did not answer in time; try again".to_owned(),
        }),
    }
}

const WHICH_ONE: &str = "say which one with one ?url=, and for which request with &header=Name: value";
const WHICH: &str = "say what to forget: one of ?url=, ?host= and ?all=true";
/// Rows on a page by default, and at most.
const USUAL_PAGE: usize = 100;
pub const LONGEST_PAGE: usize = 1_000;

fn host(text: &str) -> Result<String, ApiProblem> {
    stored_host(text).map_err(ApiProblem::bad_request)
}

/// Returns a host as the cache writes it in URLs.
pub fn stored_host(text: &str) -> Result<String, String> {
    HostKey::parse(text).map(|host| host.to_string()).map_err(|bad| format!("{text:?}: {bad}"))
}

/// Returns a URL as the cache writes it: without a fragment and without a default port.
pub fn stored_url(text: &str) -> Result<String, String> {
    let mut url = Url::parse(text).map_err(|error| format!("{text:?} is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("{text:?} is no http:// or https:// URL"));
    }
    url.set_fragment(None);
    Ok(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_urls_are_written_as_they_are_stored() {
        for (text, stored) in [("Example.COM", "example.com"), ("[0:0::1]", "[::1]")] {
            assert_eq!(stored_host(text), Ok(stored.to_owned()));
            let url = stored_url(&format!("http://{text}:80/a#b")).unwrap();
            assert!(Purge::Host(stored.to_owned()).matches(&url), "{url}");
        }
        assert!(stored_host("a b").is_err() && stored_url("ftp://a.test/").is_err());
    }

    #[test]
    fn a_header_field_has_a_name() {
        let mut asked = AskedFields::default();
        for bad in ["", "Accept", ": x", "a b: c"] {
            assert!(asked.add(bad).is_err(), "{bad}");
        }
        assert_eq!(asked.fields, None);
        asked.add("Accept-Language:  de ").unwrap();
        assert_eq!(asked.fields, Some(vec![("accept-language".to_owned(), "de".to_owned())]));
    }
}
