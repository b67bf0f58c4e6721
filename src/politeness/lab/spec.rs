//! Reads the description of a simulated host, such as `window 30/60s, retry-after`.

use std::time::Duration;

use super::Dice;
use super::penalty::PenaltyBox;
use super::servers::{
    Both, Crowded, FixedWindow, GcraServer, Moody, OneWorker, Server, ServerLimit, ServerPlan, ServerSays,
    SlidingCounter, SlidingLog, TokenBucket,
};

/// Every kind of host: how it is written, and what it does.
pub const SERVERS: &[(&str, &str)] = &[
    ("window 45/60s", "45 requests in each window of 60 s; windows begin by the host's own clock"),
    ("log 45/60s", "45 requests in any 60 s"),
    ("visit-window 35/5s", "35 in each window of 5 s; it begins with the first request after the last one (express)"),
    ("counter 40/5s", "40 requests in 5 s, estimated from two windows; refused requests count (HAProxy)"),
    ("bucket 5/s 50", "a token bucket: 5 requests a second, 50 saved up"),
    ("gcra 10/s 3", "requests at least 100 ms apart, 3 at once after a quiet time (nginx limit_req)"),
    ("concurrency 4", "4 requests at the same time"),
    ("two 5/1s 100/60s", "two limits at once, each for any stretch of time"),
    ("ban 0.75/s 10 60s", "a bucket; who exceeds it is refused for 60 s, and every request meanwhile renews that"),
    ("ban 10s over 12/s", "the same, with a ban of 10 s and as much saved up as the limit allows in its time"),
    ("random 1%", "no limit, but 1 % of the requests are refused at random"),
    ("worker 10/s", "no limit, but one worker: answers become slow before any is refused"),
    ("none", "no limit"),
];

/// What can follow a kind, each after a comma.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "then 240 at 2400s",
        "the quota of a window or the rate of a bucket changes; can be repeated (no comma before it)",
    ),
    ("retry-after", "refusals carry the right Retry-After"),
    ("retry-after=600", "refusals carry this Retry-After, right or not"),
    ("ratelimit", "answers carry a RateLimit field with the truth"),
    ("ratelimit+135", "the RateLimit field promises 135 more than there are"),
    ("refusals-count", "refused requests count for a log, too"),
    (
        "ban=10s",
        "who exceeds the limit is refused for 10 s, and every request meanwhile renews that (Apache mod_evasive)",
    ),
    ("block=10s", "the same, but nothing renews it (rate-limiter-flexible)"),
    ("others=0.75/s", "other clients take this much out of a bucket"),
    ("status=403", "the status of a refusal (429)"),
    ("forbidden=5%", "this share of the pages answers 403 at any pace"),
    ("latency=300ms", "the mean time of an answer (150ms)"),
    ("jitter=1ms", "how much longer a message may be under way than another (20ms)"),
];

/// Builds the host that `text` describes. `seed` decides what the description leaves open.
pub fn server(text: &str, seed: u64) -> Result<Server, String> {
    let mut parts = text.split(',').map(str::trim);
    let mut kind = parts.next().unwrap_or_default().split_whitespace();
    let mut draft = Draft::new(text, seed ^ 0x5eed);
    let name = kind.next().unwrap_or_default();
    let words: Vec<&str> = kind.collect();
    let mut server = Server::new(Moody(0.0));
    for option in parts {
        draft.set(option, &mut server)?;
    }
    let limit = draft.limit(name, &words, server.work)?;
    server.limit = match draft.ban {
        Some((ban, renewed)) => Box::new(PenaltyBox::new(limit, ban, renewed)),
        None => limit,
    };
    Ok(server)
}

/// Reads a time such as `50ms`, greater than zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let draft = Draft::new(text, 0);
    let error = |_| format!("{text:?} is not a time; write it with a unit: 50ms, 1s, 2min, 1h");
    draft.seconds(text).map_err(error).map(Duration::from_secs_f64)
}

struct Draft<'a> {
    text: &'a str,
    dice: Dice,
    others: Option<f64>,
    refusals_count: bool,
    /// The length of a ban, and whether requests renew it.
    ban: Option<(f64, bool)>,
}

impl<'a> Draft<'a> {
    fn new(text: &'a str, seed: u64) -> Self {
        Draft { text, dice: Dice(seed), others: None, refusals_count: false, ban: None }
    }

    fn limit(&mut self, name: &str, words: &[&str], work: f64) -> Result<Box<dyn ServerLimit>, String> {
        let changes = words.iter().position(|word| *word == "then").unwrap_or(words.len());
        let (given, changes) = words.split_at(changes);
        let later = self.changes(changes)?;
        Ok(match (name, given) {
            ("window" | "visit-window", [quota]) => {
                let (first, seconds) = self.quota(quota)?;
                let phase = (name == "window").then(|| self.dice.unit() * seconds);
                Box::new(FixedWindow::new(ServerPlan { first, later }, seconds, phase))
            }
            ("log", [quota]) => Box::new(self.log(quota, self.refusals_count)?),
            ("counter", [quota]) => {
                let (quota, seconds) = self.quota(quota)?;
                Box::new(SlidingCounter::new(quota, seconds))
            }
            ("two", [first, second]) => Box::new(Both(self.log(first, false)?, self.log(second, false)?)),
            ("bucket", [rate, size]) => {
                let plan = ServerPlan { first: self.rate(rate)?, later };
                Box::new(TokenBucket::new(plan, self.number(size)?).shared(self.others))
            }
            ("gcra", [rate, burst]) => Box::new(GcraServer::new(self.rate(rate)?, self.number(burst)?)),
            ("concurrency", [places]) => Box::new(Crowded::new(self.number(places)? as usize, work)),
            ("ban", [ban, "over", quota]) => {
                let (number, seconds) = self.quota(quota)?;
                let bucket = TokenBucket::new(number / seconds, number);
                Box::new(PenaltyBox::new(Box::new(bucket), self.seconds(ban)?, true))
            }
            ("ban", [rate, size, ban]) => {
                let bucket = TokenBucket::new(self.rate(rate)?, self.number(size)?);
                Box::new(PenaltyBox::new(Box::new(bucket), self.seconds(ban)?, true))
            }
            ("random", [share]) => Box::new(Moody(self.share(share)?)),
            ("worker", [rate]) => Box::new(OneWorker::new(self.rate(rate)?)),
            ("none", []) => Box::new(Moody(0.0)),
            _ => return Err(self.error(name)),
        })
    }

    fn set(&mut self, option: &str, server: &mut Server) -> Result<(), String> {
        let (name, value) = option.split_once(['=', '+']).unwrap_or((option, ""));
        match (name, value.is_empty()) {
            ("retry-after", true) => server.says = ServerSays::Wait,
            ("retry-after", false) => server.says = ServerSays::Always(value.parse().map_err(|_| self.error(option))?),
            ("ratelimit", true) => server.says = ServerSays::Left,
            ("ratelimit", false) => server.says = ServerSays::LeftAnd(self.number(value)? as u32),
            ("refusals-count", true) => self.refusals_count = true,
            ("ban" | "block", false) => self.ban = Some((self.seconds(value)?, name == "ban")),
            ("others", false) => self.others = Some(self.rate(value)?),
            ("status", false) => server.refusal = value.parse().map_err(|_| self.error(option))?,
            ("forbidden", false) => server.forbidden = self.share(value)?,
            ("latency", false) => server.work = self.seconds(value)?,
            ("jitter", false) => server.jitter = self.seconds(value)?,
            _ => return Err(self.error(option)),
        }
        Ok(())
    }

    /// Reads `then 240 at 2400s then 60 at 6000s`.
    fn changes(&self, words: &[&str]) -> Result<Vec<(f64, f64)>, String> {
        let change = |words: &[&str]| match words {
            ["then", value, "at", time] => Ok((self.seconds(time)?, self.number(value)?)),
            _ => Err(self.error(&words.join(" "))),
        };
        words.chunks(4).map(change).collect()
    }

    fn log(&self, text: &str, refusals_count: bool) -> Result<SlidingLog, String> {
        let (quota, seconds) = self.quota(text)?;
        Ok(SlidingLog::new(quota as usize, seconds, refusals_count))
    }

    /// Reads `45/60s` as a number and a time.
    fn quota(&self, text: &str) -> Result<(f64, f64), String> {
        let (number, time) = text.split_once('/').ok_or_else(|| self.error(text))?;
        let time = if time.starts_with(|first: char| first.is_ascii_digit()) { time } else { &format!("1{time}") };
        Ok((self.number(number)?, self.seconds(time)?))
    }

    fn rate(&self, text: &str) -> Result<f64, String> {
        let (number, seconds) = self.quota(text)?;
        Ok(number / seconds)
    }

    fn seconds(&self, text: &str) -> Result<f64, String> {
        let units = [("ms", 0.001), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
        let (number, seconds) = unit.ok_or_else(|| self.error(text))?;
        Ok(self.number(number)? * seconds)
    }

    fn share(&self, text: &str) -> Result<f64, String> {
        let percent = text.strip_suffix('%').ok_or_else(|| self.error(text))?;
        Ok(self.number(percent)? / 100.0)
    }

    /// Reads a number that is greater than zero.
    fn number(&self, text: &str) -> Result<f64, String> {
        text.parse().ok().filter(|number| (1e-6..=1e9).contains(number)).ok_or_else(|| self.error(text))
    }

    fn error(&self, word: &str) -> String {
        let examples: Vec<&str> = SERVERS.iter().map(|(example, _)| *example).collect();
        format!("cannot read {word:?} in {:?}; hosts are written like: {}", self.text, examples.join(" | "))
    }
}
