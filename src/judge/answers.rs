//! What a host of the synthetic web answers. Pure: the caller passes in the time.
//!
//! robots.txt is always answered. Hosts refuse their second page whatever the pace was, so that every client meets the
//! refusal, and go on refusing until the time that they named is over.

use std::time::{Duration, SystemTime};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION, RETRY_AFTER};
use http::{HeaderName, StatusCode};

use super::rules::AskedWait;
use super::web::{Manner, SITEMAP, SyntheticPage, SyntheticWeb};

/// How long slow.test takes for a page: longer than the pace of one request a second, so that a client which does not
/// wait for answers has two requests open.
pub(super) const SLOWNESS: Duration = Duration::from_millis(1200);
/// How long hosts with a limit take for a page. Requests that a client sends together arrive before the first of them
/// is refused, so they can be told from those that it sends afterwards.
const LATENCY: Duration = Duration::from_millis(100);
/// Retry-After of limits.test and busy.test.
const RETRY_IN: Duration = Duration::from_secs(3);
/// How long strict.test goes on refusing.
const STRICT_FOR: Duration = Duration::from_secs(1);
/// The quota of quota.test: requests, and the window in seconds.
const QUOTA: (u32, u64) = (3, 3);
/// Which page request is refused.
const REFUSED: u32 = 2;
const CHANGED: &str = "Sun, 01 Nov 2026 08:00:00 GMT";

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const PRICE: HeaderName = HeaderName::from_static("crawler-price");

/// The part of a request that decides the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct WebQuestion<'q> {
    pub(super) path: &'q str,
    pub(super) if_none_match: Option<&'q str>,
    pub(super) if_modified_since: Option<&'q str>,
    /// Since the web began.
    pub(super) now: Duration,
    pub(super) wall: SystemTime,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WebAnswer {
    pub(super) status: StatusCode,
    pub(super) fields: Vec<(HeaderName, String)>,
    pub(super) body: String,
    /// How long the host takes.
    pub(super) after: Duration,
    /// What the answer asks of the client.
    pub(super) wait: Option<AskedWait>,
}

/// What one host remembers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostMemory {
    pages: u32,
    refuses_until: Duration,
    window_ends: Duration,
    used: u32,
}

impl HostMemory {
    pub(super) fn answer(&mut self, web: &SyntheticWeb, host: usize, asked: &WebQuestion<'_>) -> WebAnswer {
        if asked.path == "/robots.txt" {
            return web.robots(host).map_or_else(|| refusal(StatusCode::NOT_FOUND), plain);
        }
        let site = &web.hosts[host];
        let Some(page) = site.pages.get(asked.path) else {
            let is_sitemap = host == 0 && asked.path == SITEMAP;
            return if is_sitemap { plain(web.sitemap()) } else { refusal(StatusCode::NOT_FOUND) };
        };
        self.pages += 1;
        let mut answer = match site.manner {
            Manner::Plain | Manner::CrawlDelay => show(web, page),
            Manner::Slow => WebAnswer { after: SLOWNESS, ..show(web, page) },
            Manner::Limit | Manner::Busy | Manner::Strict => self.limited(site.manner, web, page, asked).late(),
            Manner::Quota => self.metered(web, page, asked.now).late(),
            Manner::Feed => revalidated(web, page, asked),
            Manner::Challenge => challenge(),
            Manner::Paid => refusal(StatusCode::PAYMENT_REQUIRED).with(PRICE, "USD 0.01"),
        };
        if let Some(moved) = &page.moved {
            answer = refusal(StatusCode::MOVED_PERMANENTLY).with(LOCATION, web.url(moved));
        }
        answer
    }

    /// Refuses the second page, and all that come before the time that the refusal named.
    fn limited(
        &mut self,
        manner: Manner,
        web: &SyntheticWeb,
        page: &SyntheticPage,
        asked: &WebQuestion<'_>,
    ) -> WebAnswer {
        if self.pages == REFUSED {
            self.refuses_until = asked.now + if manner == Manner::Strict { STRICT_FOR } else { RETRY_IN };
        }
        let Some(left) = self.refuses_until.checked_sub(asked.now).filter(|left| !left.is_zero()) else {
            return show(web, page);
        };
        match manner {
            Manner::Busy => {
                let (date, wait) = http_date(asked.wall, left);
                // The date counts from now, but the client hears of it later.
                let waits = AskedWait::RetryAfter(wait.saturating_sub(LATENCY));
                refusal(StatusCode::SERVICE_UNAVAILABLE).with(RETRY_AFTER, date).asking(waits)
            }
            Manner::Strict => refusal(StatusCode::TOO_MANY_REQUESTS).asking(AskedWait::Unexplained),
            _ => {
                let seconds = whole_seconds(left);
                let waits = AskedWait::RetryAfter(Duration::from_secs(seconds));
                refusal(StatusCode::TOO_MANY_REQUESTS).with(RETRY_AFTER, seconds.to_string()).asking(waits)
            }
        }
    }

    fn metered(&mut self, web: &SyntheticWeb, page: &SyntheticPage, now: Duration) -> WebAnswer {
        let (quota, window) = QUOTA;
        if now >= self.window_ends {
            (self.window_ends, self.used) = (now + Duration::from_secs(window), 0);
        }
        self.used += 1;
        let (left, reset) = (quota.saturating_sub(self.used), whole_seconds(self.window_ends - now));
        let answer = if self.used > quota { refusal(StatusCode::TOO_MANY_REQUESTS) } else { show(web, page) };
        let answer = answer
            .with(RATE_LIMIT_POLICY, format!("\"default\";q={quota};w={window}"))
            .with(RATE_LIMIT, format!("\"default\";r={left};t={reset}"));
        if left == 0 { answer.asking(AskedWait::Quota(Duration::from_secs(reset))) } else { answer }
    }
}

impl WebAnswer {
    fn with(mut self, name: HeaderName, value: impl Into<String>) -> WebAnswer {
        self.fields.push((name, value.into()));
        self
    }

    fn late(self) -> WebAnswer {
        WebAnswer { after: LATENCY, ..self }
    }

    fn asking(self, wait: AskedWait) -> WebAnswer {
        WebAnswer { wait: Some(wait), ..self }
    }
}

fn plain(body: String) -> WebAnswer {
    WebAnswer { body, ..WebAnswer::default() }.with(CONTENT_TYPE, "text/plain; charset=utf-8")
}

fn refusal(status: StatusCode) -> WebAnswer {
    WebAnswer { status, ..plain(format!("{status}\n")) }
}

fn html(body: String) -> WebAnswer {
    WebAnswer { body, ..WebAnswer::default() }.with(CONTENT_TYPE, "text/html; charset=utf-8")
}

fn challenge() -> WebAnswer {
    let body = "<!doctype html><title>Just a moment</title><p>Prove that you are not a bot.</p>\n";
    WebAnswer { status: StatusCode::FORBIDDEN, ..html(body.to_owned()) }.with(CACHE_CONTROL, "no-store")
}

/// A page with its links. All text comes from this module, so nothing needs to be escaped.
fn show(web: &SyntheticWeb, page: &SyntheticPage) -> WebAnswer {
    let title = &page.title;
    let links = page.links.iter().map(|link| {
        let url = web.url(link);
        format!("<li><a href=\"{url}\">{url}</a></li>\n")
    });
    let links: String = links.collect();
    html(format!("<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n<ul>\n{links}</ul>\n"))
}

/// A page with validators. The feed must be revalidated each time; other pages are fresh for ten minutes.
fn revalidated(web: &SyntheticWeb, page: &SyntheticPage, asked: &WebQuestion<'_>) -> WebAnswer {
    let tag = format!("\"{}-1\"", asked.path.trim_matches('/'));
    let is_feed = asked.path.ends_with(".xml");
    let unchanged = match asked.if_none_match {
        Some(known) => known.contains(&tag),
        None => asked.if_modified_since == Some(CHANGED),
    };
    let answer = if unchanged {
        WebAnswer { status: StatusCode::NOT_MODIFIED, ..WebAnswer::default() }
    } else if is_feed {
        feed(web, page)
    } else {
        show(web, page)
    };
    let cached = if is_feed { "no-cache" } else { "max-age=600" };
    answer.with(ETAG, tag).with(LAST_MODIFIED, CHANGED).with(CACHE_CONTROL, cached)
}

fn feed(web: &SyntheticWeb, page: &SyntheticPage) -> WebAnswer {
    let items = page.links.iter().map(|link| {
        let url = web.url(link);
        format!("<item><title>{url}</title><link>{url}</link><guid>{url}</guid></item>\n")
    });
    let (title, items): (_, String) = (&page.title, items.collect());
    let body = format!(
        "<?xml version=\"1.0\"?>\n<rss version=\"2.0\"><channel><title>{title}</title>\
         <link>http://feed.test/</link><description>news</description>\n{items}</channel></rss>\n"
    );
    WebAnswer { body, ..WebAnswer::default() }.with(CONTENT_TYPE, "application/rss+xml; charset=utf-8")
}

/// Rounds up, so that the time is over when the client comes back.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The first whole second after this time (RFC 9110 §5.6.7), and how long it is until then.
fn http_date(now: SystemTime, left: Duration) -> (String, Duration) {
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = whole_seconds(since_epoch + left);
    let date = time::UtcDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap_or_default())
        .unwrap_or(time::UtcDateTime::UNIX_EPOCH);
    let (weekday, month) = (date.weekday().to_string(), date.month().to_string());
    let (hour, minute, second) = date.as_hms();
    let text = format!(
        "{}, {:02} {} {} {hour:02}:{minute:02}:{second:02} GMT",
        &weekday[..3],
        date.day(),
        &month[..3],
        date.year()
    );
    (text, Duration::from_secs(seconds) - since_epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Asks the host for its first page at each of these times.
    fn ask(name: &str, times: &[u64]) -> Vec<WebAnswer> {
        let web = SyntheticWeb::new(1);
        let (host, mut memory) = (web.find(name).unwrap(), HostMemory::default());
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let question =
            |now| WebQuestion { path: "/", if_none_match: None, if_modified_since: None, now: ms(now), wall };
        times.iter().map(|now| memory.answer(&web, host, &question(*now))).collect()
    }

    fn field<'a>(answer: &'a WebAnswer, name: &str) -> Option<&'a str> {
        answer.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn statuses(answers: &[WebAnswer]) -> Vec<u16> {
        answers.iter().map(|answer| answer.status.as_u16()).collect()
    }

    #[test]
    fn the_second_page_is_refused_however_late_it_comes() {
        let answers = ask("limits.test", &[0, 60_000, 61_500, 63_000]);
        assert_eq!(statuses(&answers), [200, 429, 429, 200]);
        assert_eq!((field(&answers[1], "retry-after"), field(&answers[2], "retry-after")), (Some("3"), Some("2")));
        assert_eq!(answers[1].wait, Some(AskedWait::RetryAfter(ms(3000))));
    }

    #[test]
    fn a_busy_host_names_a_date() {
        let answers = ask("busy.test", &[0, 10]);
        assert_eq!(statuses(&answers), [200, 503]);
        assert_eq!(field(&answers[1], "retry-after"), Some("Sun, 06 Nov 1994 08:49:40 GMT"));
        assert_eq!(http_date(SystemTime::UNIX_EPOCH + ms(1_500), ms(3_000)).1, ms(3_500), "dates are rounded up");
    }

    #[test]
    fn a_strict_host_names_no_time() {
        let answers = ask("strict.test", &[0, 10, 500, 1_010]);
        assert_eq!(statuses(&answers), [200, 429, 429, 200]);
        assert_eq!((field(&answers[1], "retry-after"), answers[1].wait), (None, Some(AskedWait::Unexplained)));
    }

    #[test]
    fn a_quota_is_announced_and_enforced() {
        let answers = ask("quota.test", &[0, 10, 20, 30, 3_000]);
        assert_eq!(statuses(&answers), [200, 200, 200, 429, 200]);
        assert_eq!(field(&answers[0], "ratelimit"), Some("\"default\";r=2;t=3"));
        assert_eq!(answers[2].wait, Some(AskedWait::Quota(ms(3_000))), "the last one that is allowed says so");
    }

    #[test]
    fn a_known_validator_is_answered_with_304() {
        let web = SyntheticWeb::new(1);
        let host = web.find("feed.test").unwrap();
        let question = |path, if_none_match, if_modified_since| {
            let asked =
                WebQuestion { path, if_none_match, if_modified_since, now: ms(0), wall: SystemTime::UNIX_EPOCH };
            HostMemory::default().answer(&web, host, &asked)
        };
        let first = question("/feed.xml", None, None);
        assert!(first.body.contains("<rss") && field(&first, "cache-control") == Some("no-cache"));
        let tag = field(&first, "etag");
        assert_eq!(question("/feed.xml", tag, None).status, 304);
        assert_eq!(question("/feed.xml", None, field(&first, "last-modified")).status, 304);
        assert_eq!(
            question("/feed.xml", Some("\"old\""), field(&first, "last-modified")).status,
            200,
            "the tag decides"
        );
    }

    #[test]
    fn refusals_robots_and_redirects_are_answered() {
        assert_eq!(statuses(&ask("challenge.test", &[0])), [403]);
        assert_eq!(statuses(&ask("paid.test", &[0])), [402]);
        assert_eq!(ask("slow.test", &[0])[0].after, SLOWNESS);
        let web = SyntheticWeb::new(1);
        let question = |host: &str, path| {
            let asked = WebQuestion {
                path,
                if_none_match: None,
                if_modified_since: None,
                now: ms(0),
                wall: SystemTime::UNIX_EPOCH,
            };
            HostMemory::default().answer(&web, web.find(host).unwrap(), &asked)
        };
        assert!(question("docs.test", "/robots.txt").body.contains("Crawl-delay: 2"));
        assert_eq!(question("shop.test", "/robots.txt").status, 404);
        assert_eq!(field(&question("shop.test", "/moved"), "location"), Some("http://news.test/drafts/moved"));
        assert_eq!(question("news.test", "/none").status, 404);
    }
}
