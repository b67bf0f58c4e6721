//! The synthetic web: its hosts, their robots.txt, and which page links to which.
//!
//! Every page can be found from the first page of [`SEED_HOST`]. The number decides the names of pages and the order of
//! links, so the same number gives the same web. The hosts and what they ask for are always the same.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The host where a crawl begins.
pub(super) const SEED_HOST: &str = "news.test";
pub(super) const SITEMAP: &str = "/sitemap.txt";
/// Leads from another host to a page that robots.txt disallows.
pub(super) const MOVED: &str = "/moved";
/// Where [`MOVED`] leads.
pub(super) const MOVED_TO: &str = "/drafts/moved";

/// How a host treats its visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Answers at once and asks for nothing.
    Plain,
    /// Has a Crawl-delay in robots.txt.
    CrawlDelay,
    /// Takes [`SLOWNESS`](super::answers::SLOWNESS) for each page.
    Slow,
    /// Refuses the second page with 429 and Retry-After in seconds.
    Limit,
    /// Refuses the second page with 503 and Retry-After as a date.
    Busy,
    /// Refuses the second page with 429 and no Retry-After.
    Strict,
    /// Announces a quota in RateLimit fields and refuses what exceeds it.
    Quota,
    /// Has validators, and answers 304.
    Feed,
    /// Answers every page with a bot challenge.
    Challenge,
    /// Wants payment for every page.
    Paid,
}

/// The hosts with the number of their pages. A crawl that obeys all of them must end within a minute.
const HOSTS: [(&str, Manner, usize); 11] = [
    (SEED_HOST, Manner::Plain, 5),
    ("shop.test", Manner::Plain, 5),
    ("docs.test", Manner::CrawlDelay, 4),
    ("slow.test", Manner::Slow, 6),
    ("limits.test", Manner::Limit, 4),
    ("busy.test", Manner::Busy, 3),
    ("strict.test", Manner::Strict, 4),
    ("quota.test", Manner::Quota, 5),
    ("feed.test", Manner::Feed, 4),
    ("challenge.test", Manner::Challenge, 3),
    ("paid.test", Manner::Paid, 2),
];

/// Seconds between two requests that docs.test asks for.
pub(super) const CRAWL_DELAY: u64 = 2;

/// One rule of each kind: a path, a wildcard, and a wildcard with an end. The Allow rule is longer than the Disallow
/// rule and therefore wins.
const NEWS_RULES: &str = "User-agent: ImpoliteBot\nDisallow: /\n\nUser-agent: *\nDisallow: /drafts/\nAllow: /drafts/open\n\
     Disallow: /*?print=\nDisallow: /*.pdf$\n";
/// Pages of [`SEED_HOST`] that the rules disallow. They are linked, and in the sitemap, as on many real sites.
pub(super) const TRAPS: [&str; 3] = ["/drafts/1", "/story?print=1", "/report.pdf"];
/// How many rules the traps are for.
pub(super) const TRAP_RULES: usize = TRAPS.len();
/// Only disallowed pages link to these.
const DEEPER: [&str; 3] = ["/drafts/1", "/drafts/2", "/drafts/3"];

const WORDS: [&str; 16] = [
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jetty", "knoll", "ledge",
    "maple", "north", "orbit", "plume",
];

/// A place that a page links to: the number of a host, and a path.
pub(super) type PageLink = (usize, String);

#[derive(Clone, Debug, Default)]
pub(super) struct SyntheticPage {
    pub(super) title: String,
    pub(super) links: Vec<PageLink>,
    /// Where the page has moved to.
    pub(super) moved: Option<PageLink>,
}

#[derive(Clone, Debug)]
pub(super) struct SyntheticHost {
    pub(super) name: &'static str,
    pub(super) manner: Manner,
    pub(super) robots: Option<String>,
    pub(super) pages: BTreeMap<String, SyntheticPage>,
}

/// All hosts. Links between them use names, or the addresses at which the hosts listen.
#[derive(Clone, Debug)]
pub struct SyntheticWeb {
    pub(super) hosts: Vec<SyntheticHost>,
    addresses: Vec<SocketAddr>,
    /// Of the links by name.
    scheme: &'static str,
}

impl SyntheticWeb {
    pub fn new(number: u64) -> SyntheticWeb {
        let mut dice = fastrand::Rng::with_seed(number);
        let mut hosts: Vec<SyntheticHost> = HOSTS.iter().map(|host| SyntheticHost::new(host, &mut dice)).collect();
        let everywhere: Vec<PageLink> = (1..hosts.len()).flat_map(|host| entrances(host, &hosts[host])).collect();
        let mut late = Vec::new();
        for (host, synthetic) in hosts.iter_mut().enumerate() {
            late.extend(synthetic.link_pages(host, &mut dice));
        }
        for (_, page) in hosts[1].pages.iter_mut().filter(|(path, _)| *path != "/") {
            page.links.extend(late.iter().cloned());
        }
        let traps = TRAPS.iter().chain(&["/drafts/open", SITEMAP]).map(|path| (0, (*path).to_owned()));
        let more: Vec<PageLink> = everywhere.into_iter().chain(traps).collect();
        if let Some(first) = hosts[0].pages.get_mut("/") {
            first.links.extend(more);
            dice.shuffle(&mut first.links);
        }
        SyntheticWeb { hosts, addresses: Vec::new(), scheme: "http" }
    }

    /// The same web with links to these addresses, one for each host, for clients that use no proxy.
    #[must_use]
    pub(super) fn at(self, addresses: Vec<SocketAddr>) -> SyntheticWeb {
        SyntheticWeb { addresses, ..self }
    }

    /// The same web with `https://` links.
    #[must_use]
    pub(super) fn by_https(self) -> SyntheticWeb {
        SyntheticWeb { scheme: "https", ..self }
    }

    pub(super) fn url(&self, (host, path): &PageLink) -> String {
        match self.addresses.get(*host) {
            Some(address) => format!("http://{address}{path}"),
            None => format!("{}://{}{path}", self.scheme, self.hosts[*host].name),
        }
    }

    /// The number of the host with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name.eq_ignore_ascii_case(name))
    }

    /// The names of all hosts, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.hosts.iter().map(|host| host.name)
    }

    pub fn name(&self, host: usize) -> &'static str {
        self.hosts[host].name
    }

    /// The text of robots.txt; `None` if the host has none.
    pub(super) fn robots(&self, host: usize) -> Option<String> {
        let rules = self.hosts[host].robots.clone()?;
        let sitemap = self.url(&(host, SITEMAP.to_owned()));
        Some(if host == 0 { format!("{rules}\nSitemap: {sitemap}\n") } else { rules })
    }

    /// The URL of every page, one on each line.
    pub(super) fn sitemap(&self) -> String {
        let pages = self.hosts.iter().enumerate().flat_map(|(host, synthetic)| {
            let listed = |path: &&String| !DEEPER[1..].contains(&path.as_str()) && *path != MOVED_TO;
            synthetic.pages.keys().filter(listed).map(move |path| (host, path.clone()))
        });
        pages.map(|link| self.url(&link) + "\n").collect()
    }
}

/// The first page of a host. Hosts that refuse every page have no page with links, so all their pages are linked.
fn entrances(number: usize, host: &SyntheticHost) -> Vec<PageLink> {
    let all = matches!(host.manner, Manner::Challenge | Manner::Paid);
    host.pages.keys().filter(|path| all || *path == "/").map(|path| (number, path.clone())).collect()
}

impl SyntheticHost {
    fn new((name, manner, count): &(&'static str, Manner, usize), dice: &mut fastrand::Rng) -> SyntheticHost {
        let mut words = WORDS;
        dice.shuffle(&mut words);
        let paths = words.iter().take(count - 1).map(|word| format!("/{word}"));
        let pages = paths.chain(["/".to_owned()]).map(|path| {
            let page = SyntheticPage { title: format!("{name}{path}"), ..SyntheticPage::default() };
            (path, page)
        });
        let robots = match manner {
            Manner::CrawlDelay => Some(format!("User-agent: *\nCrawl-delay: {CRAWL_DELAY}\n")),
            Manner::Plain if *name == SEED_HOST => Some(NEWS_RULES.to_owned()),
            _ => None,
        };
        SyntheticHost { name, manner: *manner, robots, pages: pages.collect() }
    }

    /// Links the first page to all others, and each of them to the next and to the first. A host with a limit keeps its
    /// last page back and returns it: pages of another host link to it. So a client that fetches all links of a level
    /// at once comes to this host again after it was refused.
    fn link_pages(&mut self, number: usize, dice: &mut fastrand::Rng) -> Option<PageLink> {
        let mut others: Vec<String> = self.pages.keys().filter(|path| *path != "/").cloned().collect();
        dice.shuffle(&mut others);
        let has_limit = matches!(self.manner, Manner::Limit | Manner::Busy | Manner::Strict | Manner::Quota);
        let last = if has_limit { others.pop() } else { None };
        for (path, page) in &mut self.pages {
            let at = others.iter().position(|other| other == path);
            let next = at.and_then(|at| others.get(at + 1)).cloned();
            let targets = if path == "/" { others.clone() } else { next.into_iter().chain(["/".to_owned()]).collect() };
            page.links = targets.into_iter().map(|path| (number, path)).collect();
        }
        match (self.name, self.manner) {
            (SEED_HOST, _) => self.add_traps(),
            (_, Manner::Plain) => self.add(MOVED, Some((0, MOVED_TO.to_owned())), number),
            (_, Manner::Feed) => self.add("/feed.xml", None, number),
            _ => {}
        }
        last.map(|path| (number, path))
    }

    /// Adds a page, linked from the first page, that links there.
    fn add(&mut self, path: &str, moved: Option<PageLink>, number: usize) {
        let title = format!("{}{path}", self.name);
        let links = vec![(number, "/".to_owned())];
        self.pages.insert(path.to_owned(), SyntheticPage { title, links, moved });
        if let Some(first) = self.pages.get_mut("/") {
            first.links.push((number, path.to_owned()));
        }
    }

    fn add_traps(&mut self) {
        for path in TRAPS.iter().chain(&DEEPER).chain(&["/drafts/open", MOVED_TO]) {
            let next = DEEPER.iter().skip_while(|deep| *deep != path).nth(1);
            let links = next.map(|next| (0, (*next).to_owned())).into_iter().collect();
            let page = SyntheticPage { title: format!("{}{path}", self.name), links, moved: None };
            self.pages.insert((*path).to_owned(), page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Follows links as a crawler does, from the seed.
    fn reachable(web: &SyntheticWeb) -> BTreeSet<PageLink> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![(0, "/".to_owned())]);
        while let Some(link) = next.pop() {
            if let Some(page) = web.hosts[link.0].pages.get(&link.1)
                && seen.insert(link)
            {
                next.extend(page.links.iter().chain(&page.moved).cloned());
            }
        }
        seen
    }

    #[test]
    fn every_page_is_found_from_the_seed() {
        let web = SyntheticWeb::new(7);
        let all: BTreeSet<PageLink> = (0..web.hosts.len())
            .flat_map(|host| web.hosts[host].pages.keys().map(move |p| (host, p.clone())))
            .collect();
        assert_eq!(reachable(&web), all);
    }

    #[test]
    fn the_number_decides_the_web() {
        let shape = |number| format!("{:?}", SyntheticWeb::new(number));
        assert_eq!(shape(1), shape(1));
        assert_ne!(shape(1), shape(2));
    }

    #[test]
    fn links_are_names_or_addresses() {
        let web = SyntheticWeb::new(1);
        assert_eq!(web.url(&(1, "/x".to_owned())), "http://shop.test/x");
        assert!(web.robots(0).unwrap().ends_with("\nSitemap: http://news.test/sitemap.txt\n"));
        let direct = web.at(vec!["127.77.0.1:80".parse().unwrap(), "127.77.0.2:8080".parse().unwrap()]);
        assert_eq!(direct.url(&(1, "/x".to_owned())), "http://127.77.0.2:8080/x");
        assert!(direct.sitemap().contains("http://127.77.0.1:80/drafts/1\n"));
    }
}
