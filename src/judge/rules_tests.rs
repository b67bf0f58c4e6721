//! Each rule with a polite client and a rude one.

use super::*;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A request that is answered at once: `news.test/path` at this time.
fn at(time: u64, url: &str) -> Arrival {
    let (name, path) = url.split_once('/').expect("a host and a path");
    Arrival {
        host: SyntheticWeb::new(1).find(name).expect("a host of the web"),
        path: format!("/{path}"),
        at: ms(time),
        done: Some(ms(time)),
        status: 200,
        user_agent: "TestBot/1.0".to_owned(),
        ..Arrival::default()
    }
}

fn asking(arrival: Arrival, wait: AskedWait) -> Arrival {
    Arrival { wait: Some(wait), status: 429, ..arrival }
}

/// The share that the rule gives, and its evidence.
fn judge(rule: fn(Crawl<'_>) -> Kept, arrivals: &[Arrival]) -> Kept {
    rule(Crawl { web: &SyntheticWeb::new(1), arrivals })
}

fn expect(kept: &Kept, share: f64, evidence: &str) {
    let (found, text) = kept.as_ref().expect("the rule was met");
    assert!((found - share).abs() < 1e-6, "{found} instead of {share}: {text}");
    assert!(text.contains(evidence), "no {evidence:?} in {text:?}");
}

#[test]
fn robots_txt_comes_before_the_first_page_of_each_host() {
    let polite =
        [at(0, "news.test/robots.txt"), at(1, "news.test/"), at(2, "shop.test/robots.txt"), at(3, "shop.test/")];
    expect(&judge(robots_first, &polite), 1.0, "all 2 hosts");
    let rude = [at(0, "news.test/robots.txt"), at(1, "news.test/"), at(2, "shop.test/"), at(3, "shop.test/robots.txt")];
    expect(&judge(robots_first, &rude), 0.5, "1 of 2 hosts: shop.test/");
    assert_eq!(judge(robots_first, &[at(0, "news.test/robots.txt")]), None, "no page, nothing to ask about");
}

#[test]
fn each_kind_of_disallowed_page_counts_once() {
    let polite = [at(0, "news.test/"), at(1, "news.test/drafts/open"), at(2, "shop.test/moved")];
    expect(&judge(robots_rules, &polite), 1.0, "4 kinds of rules");
    let rude = [at(0, "news.test/"), at(1, "news.test/drafts/1"), at(2, "news.test/drafts/2")];
    expect(
        &judge(robots_rules, &rude),
        2.0 / 3.0,
        "2 requests to disallowed pages, such as news.test/drafts/1 (Disallow",
    );
    let all = ["news.test/drafts/1", "news.test/story?print=1", "news.test/report.pdf", "shop.test/moved"];
    let mut all: Vec<Arrival> = all.into_iter().map(|url| at(1, url)).collect();
    expect(&judge(robots_rules, &all), 0.25, "3 requests");
    all.push(at(2, "news.test/drafts/moved"));
    expect(&judge(robots_rules, &all), 0.0, "4 requests");
    assert_eq!(judge(robots_rules, &[at(0, "news.test/")]), None, "no link was followed");
}

/// robots.txt has a group for this client alone.
#[test]
fn the_group_of_the_client_decides() {
    let mut named = [at(0, "news.test/"), at(1, "news.test/amber")];
    named.iter_mut().for_each(|arrival| arrival.user_agent = "ImpoliteBot/2".to_owned());
    expect(&judge(robots_rules, &named), 2.0 / 3.0, "Disallow: /");
}

#[test]
fn a_crawl_delay_is_kept_between_pages() {
    let polite =
        [at(0, "docs.test/robots.txt"), at(1, "docs.test/"), at(2_000, "docs.test/a"), at(4_000, "docs.test/b")];
    expect(
        &judge(crawl_delay, &polite),
        1.0,
        "docs.test: 3 requests in 4.0 s, shortest gap 2.0 s, asked for 1 per 2 s",
    );
    expect(&judge(crawl_delay, &[at(0, "docs.test/"), at(1_900, "docs.test/a"), at(4_000, "docs.test/b")]), 0.5, "");
    assert_eq!(judge(crawl_delay, &polite[..2]), None);
}

#[test]
fn half_a_gap_is_worth_half() {
    expect(&judge(pace, &[at(0, "news.test/"), at(1_000, "news.test/a"), at(3_000, "news.test/b")]), 1.0, "");
    expect(
        &judge(pace, &[at(0, "news.test/"), at(500, "news.test/a")]),
        0.5,
        "news.test: 2 requests in 0.5 s, shortest gap 0.5 s, usual is",
    );
    expect(&judge(pace, &[at(0, "shop.test/"), at(0, "shop.test/a"), at(0, "news.test/")]), 0.0, "shop.test: 2");
    assert_eq!(judge(pace, &[at(0, "news.test/"), at(0, "shop.test/"), at(0, "docs.test/")]), None);
}

#[test]
fn requests_at_a_slow_host_are_counted_while_they_are_open() {
    let slow = |from, until| Arrival { done: Some(ms(until)), ..at(from, "slow.test/") };
    expect(&judge(concurrency, &[slow(0, 1_500), slow(1_500, 3_000)]), 1.0, "slow.test: 1 at the same time");
    expect(&judge(concurrency, &[slow(0, 1_500), slow(1_000, 2_500), slow(1_400, 2_900)]), 0.5, "3 at the same time");
    let open = Arrival { done: None, ..at(0, "slow.test/") };
    expect(&judge(concurrency, &[open.clone(), open.clone(), open.clone(), open.clone(), open.clone()]), 0.0, "5 at");
    assert_eq!(judge(concurrency, &[open]), None);
}

#[test]
fn no_request_comes_before_the_named_time() {
    let told = asking(at(1_000, "limits.test/a"), AskedWait::RetryAfter(ms(3_000)));
    assert_eq!(judge(retry_after, std::slice::from_ref(&told)), None, "it may have had nothing left to ask for");
    let open = Arrival { done: Some(ms(1_005)), ..at(999, "limits.test/c") };
    let next = at(1_010, "limits.test/b");
    expect(&judge(retry_after, &[open, told.clone(), next.clone(), at(4_000, "limits.test/a")]), 1.0, "");
    expect(&judge(retry_after, &[told.clone(), next]), 0.0, "came back after 0.0 s");
    let early = at(1_500, "limits.test/b");
    let last = asking(at(1_600, "limits.test/c"), AskedWait::RetryAfter(ms(3_000)));
    expect(&judge(retry_after, &[told.clone(), early.clone(), last]), 0.0, "0 of 1 waits");
    expect(&judge(retry_after, &[told.clone(), early]), 0.0, "limits.test: came back after 0.5 s, asked for 3.0 s");
    let later = [told, at(1_500, "busy.test/"), at(4_000, "limits.test/a")];
    expect(&judge(retry_after, &later), 1.0, "kept 1 of 1 waits");
    assert_eq!(judge(retry_after, &[at(0, "limits.test/")]), None);
}

#[test]
fn a_429_without_a_time_means_a_second_at_least() {
    let told = asking(at(0, "strict.test/a"), AskedWait::Unexplained);
    expect(&judge(backoff, &[told.clone(), at(1_000, "strict.test/a")]), 1.0, "");
    let again = asking(at(300, "strict.test/a"), AskedWait::Unexplained);
    expect(&judge(backoff, &[told.clone(), again, at(1_300, "strict.test/a")]), 0.5, "came back after 0.3 s");
    assert_eq!(judge(retry_after, &[told]), None, "each wait counts for its own rule");
}

#[test]
fn a_used_up_quota_is_a_wait() {
    let told = asking(at(0, "quota.test/a"), AskedWait::Quota(ms(3_000)));
    expect(&judge(quota, &[told.clone(), at(3_000, "quota.test/b")]), 1.0, "");
    expect(&judge(quota, &[told, at(2_000, "quota.test/b")]), 0.0, "quota.test: came back after 2.0 s");
}

#[test]
fn a_second_fetch_asks_conditionally() {
    let first = at(0, "feed.test/feed.xml");
    let second = Arrival { conditional: true, status: 304, ..at(9, "feed.test/feed.xml") };
    expect(&judge(revalidation, &[first.clone(), second.clone()]), 1.0, "1 of 1");
    expect(
        &judge(revalidation, &[first.clone(), second, first.clone()]),
        0.5,
        "1 of 2 repeated fetches were conditional: feed",
    );
    assert_eq!(judge(revalidation, &[first, at(0, "news.test/"), at(1, "news.test/")]), None);
}

#[test]
fn a_refused_page_is_not_asked_for_again() {
    let refused = |time, url| Arrival { status: 403, ..at(time, url) };
    expect(&judge(refusals, &[refused(0, "challenge.test/"), refused(1, "paid.test/")]), 1.0, "2 refused pages");
    let rude = [refused(0, "challenge.test/"), refused(1, "challenge.test/"), refused(2, "paid.test/")];
    expect(&judge(refusals, &rude), 0.5, "challenge.test/: asked 2 times");
    assert_eq!(judge(refusals, &[at(0, "news.test/")]), None);
}

#[test]
fn a_name_with_a_contact_is_best() {
    let named = |agent: &str| Arrival { user_agent: agent.to_owned(), ..at(0, "news.test/") };
    expect(&judge(identity, &[named("bot/1 (+https://bot.test/)")]), 1.0, "says how");
    expect(&judge(identity, &[named("bot/1 me@bot.test")]), 1.0, "");
    expect(&judge(identity, &[Arrival { has_from: true, ..named("bot/1") }]), 1.0, "");
    expect(&judge(identity, &[named("bot/1")]), 0.4, "\"bot/1\" does not say how");
    expect(&judge(identity, &[named("Scrapy/2.19.0 (+https://scrapy.org)")]), 0.4, "does not say how");
    expect(&judge(identity, &[named("")]), 0.0, "no User-Agent");
    let robots = Arrival { user_agent: "other (+http://x)".to_owned(), ..at(0, "news.test/robots.txt") };
    expect(&judge(identity, &[robots.clone(), robots, named("bot/1")]), 0.4, "\"bot/1\" does not say how");
}
