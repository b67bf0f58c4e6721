//! A world that tries to break the rules: three clients with secrets of their own, an origin whose answers say for whom
//! they were made, and clocks that jump. The cache here is the rules and a list.
//!
//! The oracle judges every answer that came from the list. It is written a second time and differently: fields as maps
//! of text, time in seconds, one question after the other. Each [`Flaw`] is a mistake in the cache that it must catch.

use std::collections::BTreeMap;

use super::policy::{CacheTime, ReusePolicy};
use super::request::CacheRequest;
use super::response::CacheResponse;
use super::reusing::{Reuse, reuse};
use super::selecting::{Selecting, vary_names};
use super::storing::{CacheRules, may_store};
use super::updating::confirms;
use super::*;
use crate::politeness::time::Timestamp;

type Fields = Vec<(&'static str, String)>;

const RULES: CacheRules = CacheRules { heuristic: 0, stale: 0, min_refresh: 0 };
/// Wed, 18 Nov 2026 10:00:00 GMT
const START: u64 = 1_794_996_000;
const STEPS: usize = 3_000;

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    IgnoreVary,
    IgnoreCookie,
    IgnoreUnknownFields,
    IgnoreAuthorization,
    SharePrivate,
    StoreSetCookie,
    StoreBroken,
    ForgetSharedLifetime,
    AgeFromZero,
    SteadyClockOnly,
    KeepOldPolicyAfter304,
    ServeNoCache,
    IgnoreRequestDirectives,
    TrustForeign304,
}

const FLAWS: [Flaw; 14] = [
    Flaw::IgnoreVary,
    Flaw::IgnoreCookie,
    Flaw::IgnoreUnknownFields,
    Flaw::IgnoreAuthorization,
    Flaw::SharePrivate,
    Flaw::StoreSetCookie,
    Flaw::StoreBroken,
    Flaw::ForgetSharedLifetime,
    Flaw::AgeFromZero,
    Flaw::SteadyClockOnly,
    Flaw::KeepOldPolicyAfter304,
    Flaw::ServeNoCache,
    Flaw::IgnoreRequestDirectives,
    Flaw::TrustForeign304,
];

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.roll(items.len() as u64) as usize]
    }
}

/// A stored answer, and everything that the oracle wants to know about it.
struct Stored {
    url: u64,
    policy: ReusePolicy,
    selecting: Selecting,
    /// The fields as the origin sent them, updated by 304s.
    fields: Fields,
    /// The request that it was made for.
    made_for: Fields,
    version: u64,
    broken: bool,
    /// When it came, or was confirmed: on the steady clock and on the wall.
    at: (u64, u64),
}

struct World {
    dice: Dice,
    flaw: Flaw,
    steady: u64,
    wall: u64,
    stored: Vec<Stored>,
    versions: [u64; 3],
    asked: usize,
    visits: usize,
    hits: usize,
    confirmed: usize,
    complaint: Option<String>,
}

const CONTROLS: [&str; 16] = [
    "max-age=30",
    "max-age=30, public",
    "public, max-age=5, stale-while-revalidate=20",
    "s-maxage=20, max-age=90",
    "max-age=90, s-maxage=10",
    "private, max-age=60",
    "max-age=60, PRIVATE=\"x\"",
    "no-store, max-age=60",
    "no-cache, max-age=60",
    "max-age=20, must-revalidate",
    "max-age=20, proxy-revalidate",
    "max-age=0",
    "max-age=50, max-age=10",
    "max-age=5.5",
    "must-understand, no-store, max-age=40",
    "",
];

const WISHES: [&str; 8] = ["", "", "", "no-cache", "max-age=10", "min-fresh=15", "max-stale=10", "max-stale"];

fn view(fields: &Fields) -> Vec<Field<'_>> {
    fields.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
}

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        World {
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            flaw,
            steady: START,
            wall: START,
            stored: Vec::new(),
            versions: [1; 3],
            asked: 0,
            visits: 0,
            hits: 0,
            confirmed: 0,
            complaint: None,
        }
    }

    fn now(&self) -> CacheTime {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
        let wall = if self.flaw == Flaw::SteadyClockOnly { self.steady } else { self.wall };
        CacheTime { steady: at(self.steady), wall: at(wall) }
    }

    /// Time passes; sometimes the machine sleeps, or the wall clock is set.
    fn tick(&mut self) {
        let seconds = self.dice.roll(8);
        self.steady += seconds;
        self.wall += seconds;
        match self.dice.roll(60) {
            0 => self.wall += self.dice.roll(4_000),
            1 => self.wall -= self.dice.roll(4_000).min(self.wall - 1),
            _ => {}
        }
        let url = self.dice.roll(3) as usize;
        self.versions[url] += u64::from(self.dice.roll(12) == 0);
    }

    fn request(&mut self) -> Fields {
        let mut fields = vec![("host", "a.test".to_owned())];
        let who = self.dice.roll(3);
        if self.dice.roll(3) == 0 {
            fields.push(("cookie", format!("session={who}")));
        }
        if self.dice.roll(6) == 0 {
            fields.push(("authorization", format!("Basic {who}")));
        }
        if self.dice.roll(5) == 0 {
            fields.push(("x-api-key", format!("{who}")));
        }
        fields.push(("accept-language", self.dice.one_of(&["de", "en"]).to_owned()));
        fields.push(("user-agent", format!("client {who}")));
        let wish = self.dice.one_of(&WISHES);
        if !wish.is_empty() {
            fields.push(("cache-control", wish.to_owned()));
        }
        fields
    }

    fn answer(&mut self, url: u64) -> (u16, Fields, bool) {
        let mut fields = vec![("etag", format!("\"{}\"", self.versions[url as usize]))];
        let control = self.dice.one_of(&CONTROLS);
        if !control.is_empty() {
            fields.push(("cache-control", control.to_owned()));
        }
        if self.dice.roll(8) == 0 {
            fields.push(("set-cookie", "id=1".to_owned()));
        }
        match self.dice.roll(6) {
            0 => fields.push(("vary", "Accept-Language".to_owned())),
            1 => fields.push(("vary", "accept-encoding, *".to_owned())),
            _ => {}
        }
        if self.dice.roll(5) == 0 {
            fields.push(("age", self.dice.roll(40).to_string()));
        }
        let status = self.dice.one_of(&[200, 200, 200, 200, 404, 429, 599]);
        (status, fields, self.dice.roll(10) == 0)
    }

    fn step(&mut self) {
        self.tick();
        let (url, fields) = (self.dice.roll(3), self.request());
        self.asked += 1;
        let list = view(&fields);
        let asked = CacheRequest::read(false, &list, &[]);
        let asked = match self.flaw {
            Flaw::IgnoreRequestDirectives => CacheRequest { directives: Default::default(), ..asked },
            Flaw::IgnoreUnknownFields => CacheRequest { keyed: Default::default(), ..asked },
            Flaw::IgnoreAuthorization => CacheRequest { has_authorization: false, ..asked },
            _ => asked,
        };
        let ignores = |stored: &Stored| self.flaw == Flaw::IgnoreCookie || stored.policy.flags.ignores_cookie;
        let found = self
            .stored
            .iter()
            .rposition(|stored| stored.url == url && stored.selecting.matches(&asked, ignores(stored)));
        let decision = found.map(|at| reuse(&self.stored[at].policy, &asked, &RULES, self.now()));
        match (found, decision) {
            (Some(at), Some(Reuse::Fresh | Reuse::Stale(_))) => {
                self.hits += 1;
                self.judge(&fields, at);
            }
            (Some(at), Some(Reuse::Validate(_))) => self.validate(at, url, &fields, &asked),
            _ => self.fetch(url, &fields, &asked),
        }
    }

    fn validate(&mut self, at: usize, url: u64, fields: &Fields, asked: &CacheRequest<'_>) {
        let mine = format!("\"{}\"", self.stored[at].version);
        let current = format!("\"{}\"", self.versions[url as usize]);
        // Some origins answer 304 whatever changed.
        let foreign = self.dice.roll(20) == 0;
        if mine != current && !foreign {
            return self.fetch(url, fields, asked);
        }
        self.visits += 1;
        let trusts = self.flaw == Flaw::TrustForeign304;
        if !confirms(Some(mine.as_bytes()), Some(current.as_bytes())) && !trusts {
            return self.fetch(url, fields, asked);
        }
        self.confirmed += 1;
        let control = self.dice.one_of(&CONTROLS);
        let mut updated = self.stored[at].fields.clone();
        updated.retain(|(name, _)| *name != "age" && *name != "cache-control");
        if !control.is_empty() {
            updated.push(("cache-control", control.to_owned()));
        }
        match self.policy(200, &updated, asked) {
            Some(policy) => {
                let clocks = (self.steady, self.wall);
                let selecting = self.selecting(&updated, asked, &policy);
                let stored = &mut self.stored[at];
                if self.flaw == Flaw::KeepOldPolicyAfter304 {
                    stored.policy.received = policy.received;
                } else {
                    stored.policy = policy;
                }
                stored.selecting = selecting;
                (stored.fields, stored.made_for, stored.at) = (updated, fields.clone(), clocks);
                if trusts && mine != current {
                    self.complaint = Some(format!("version {mine} was confirmed as {current}"));
                }
            }
            None => {
                self.stored.remove(at);
            }
        }
    }

    fn fetch(&mut self, url: u64, fields: &Fields, asked: &CacheRequest<'_>) {
        self.visits += 1;
        let (status, answer, broken) = self.answer(url);
        let Some(policy) = self.policy(status, &answer, asked) else { return };
        if broken && self.flaw != Flaw::StoreBroken {
            return;
        }
        let selecting = self.selecting(&answer, asked, &policy);
        self.stored.retain(|stored| stored.url != url || stored.selecting != selecting);
        let (version, at) = (self.versions[url as usize], (self.steady, self.wall));
        let made_for = fields.clone();
        self.stored.push(Stored { url, policy, selecting, fields: answer, made_for, version, broken, at });
    }

    fn selecting(&self, answer: &Fields, asked: &CacheRequest<'_>, policy: &ReusePolicy) -> Selecting {
        let vary = answer.iter().filter(|(name, _)| *name == "vary").map(|(_, value)| value.as_bytes());
        let vary = if self.flaw == Flaw::IgnoreVary { String::new() } else { vary_names(vary).unwrap_or_default() };
        Selecting::of(asked, vary, self.flaw == Flaw::IgnoreCookie || policy.flags.ignores_cookie)
    }

    fn policy(&self, status: u16, answer: &Fields, asked: &CacheRequest<'_>) -> Option<ReusePolicy> {
        let fields = view(answer);
        let mut read = CacheResponse::read(status, &fields);
        match self.flaw {
            Flaw::SharePrivate => read.directives.private = false,
            Flaw::StoreSetCookie => read.has_set_cookie = false,
            Flaw::ForgetSharedLifetime => read.directives.s_maxage = None,
            Flaw::AgeFromZero => read.age = 0,
            Flaw::ServeNoCache => read.directives.no_cache = false,
            Flaw::IgnoreVary => read.vary = Some(String::new()),
            _ => {}
        }
        may_store(asked, &read, &RULES, 0, self.now()).ok()
    }

    /// Asks the oracle about an answer that came from the list.
    fn judge(&mut self, asked: &Fields, at: usize) {
        let stored = &self.stored[at];
        let passed = (self.steady - stored.at.0).max(self.wall.saturating_sub(stored.at.1));
        let objection = object(&map(asked), &map(&stored.made_for), &map(&stored.fields), passed);
        let objection = objection.or(stored.broken.then_some("it is broken off"));
        if let Some(objection) = objection {
            self.complaint = Some(format!("{objection}: {:?} for {asked:?}", stored.fields));
        }
    }
}

type Map = BTreeMap<String, String>;

fn map(fields: &Fields) -> Map {
    let mut map = Map::new();
    for (name, value) in fields {
        let joined = map.entry((*name).to_owned()).or_default();
        *joined = if joined.is_empty() { value.clone() } else { format!("{joined}, {value}") };
    }
    map
}

/// The words of a Cache-Control, and the smallest number behind each; 0 if it cannot be read.
fn words(fields: &Map) -> BTreeMap<String, Option<u64>> {
    let mut words = BTreeMap::new();
    let line = fields.get("cache-control").cloned().unwrap_or_default().to_lowercase();
    for word in line.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, number) = match word.split_once('=') {
            Some((name, number)) => (name, Some(number.parse().unwrap_or(0))),
            None => (word, None),
        };
        let smallest: &mut Option<u64> = words.entry(name.to_owned()).or_insert(number);
        *smallest = (*smallest).min(number);
    }
    words
}

/// Why this stored answer must not be given for this request; `passed` seconds ago it came.
fn object(asked: &Map, made_for: &Map, answer: &Map, passed: u64) -> Option<&'static str> {
    let (says, wants) = (words(answer), words(asked));
    let says_so = |word: &str| says.contains_key(word);
    let differs = |name: &str| asked.get(name) != made_for.get(name);
    let shareable = says_so("public") || says_so("s-maxage");
    let with_password = asked.contains_key("authorization") || made_for.contains_key("authorization");
    let sharing = [
        (answer.contains_key("set-cookie"), "another client's cookie"),
        (says_so("private"), "it is private"),
        (says_so("no-store") && !says_so("must-understand"), "it must not be stored"),
        (with_password && !shareable && !says_so("must-revalidate"), "a password is involved"),
        (differs("cookie") && !shareable, "another cookie"),
        (differs("x-api-key"), "another key"),
    ];
    if let Some((_, objection)) = sharing.iter().find(|(applies, _)| *applies) {
        return Some(objection);
    }
    for name in answer.get("vary").map_or("", String::as_str).split(',').map(|name| name.trim().to_lowercase()) {
        if name == "*" || (!name.is_empty() && differs(&name)) {
            return Some("another variant");
        }
    }
    too_old(&says, &wants, answer.get("age").and_then(|age| age.parse().ok()).unwrap_or(0) + passed)
}

fn too_old(
    says: &BTreeMap<String, Option<u64>>,
    wants: &BTreeMap<String, Option<u64>>,
    age: u64,
) -> Option<&'static str> {
    let number = |words: &BTreeMap<String, Option<u64>>, word: &str| words.get(word).copied().flatten();
    let lifetime = number(says, "s-maxage").or(number(says, "max-age")).unwrap_or(0);
    let strict = ["must-revalidate", "proxy-revalidate", "s-maxage"].iter().any(|word| says.contains_key(*word));
    if says.contains_key("no-cache") || wants.contains_key("no-cache") {
        return Some("it must be validated");
    }
    if number(wants, "max-age").is_some_and(|most| age > most) {
        return Some("older than the client accepts");
    }
    if number(wants, "min-fresh").is_some_and(|least| age + least > lifetime) {
        return Some("not fresh for long enough");
    }
    if age < lifetime {
        return None;
    }
    let accepted = wants.get("max-stale").map_or(0, |most| most.unwrap_or(u64::MAX));
    let allowed = accepted.max(number(says, "stale-while-revalidate").unwrap_or(0));
    (strict || age - lifetime > allowed).then_some("too old")
}

fn run(seed: u64, flaw: Flaw) -> World {
    let mut world = World::new(seed, flaw);
    for _ in 0..STEPS {
        world.step();
        if world.complaint.is_some() {
            break;
        }
    }
    world
}

#[test]
fn no_answer_reaches_the_wrong_client_or_comes_too_late() {
    for seed in 1..=60 {
        let world = run(seed, Flaw::None);
        assert_eq!(world.complaint, None, "seed {seed}");
        assert!(world.visits <= world.asked + world.confirmed + STEPS / 10, "seed {seed}: {} visits", world.visits);
        assert!(world.hits > STEPS / 50 && world.confirmed > STEPS / 50, "seed {seed}: the world is too dull");
    }
}

#[test]
fn every_deliberate_mistake_is_caught() {
    for flaw in FLAWS {
        assert!((1..=60).any(|seed| run(seed, flaw).complaint.is_some()), "{flaw:?} was not caught");
    }
}
