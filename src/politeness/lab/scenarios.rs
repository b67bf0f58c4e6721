//! The matrix: limits as origins have them, each with the numbers under which it is tried; and random hosts.

use std::time::Duration;

use super::Dice;
use super::policies::TrialPolicy;
use super::spec;
use super::trial::{Trial, TrialResult, TrialSettings};

/// One row of the matrix.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub server: String,
    pub base: Duration,
    pub concurrency: u32,
    pub seconds: f64,
    /// See [`TrialSettings::bursts`].
    pub bursts: Option<(f64, f64)>,
}

/// Hosts with a limit. Goodput and refusals are averaged over these.
const LIMITERS: &[(&str, f64)] = &[
    ("window 45/60s", 3600.0),
    ("window 45/60s, retry-after", 3600.0),
    ("window 450/60s", 1800.0),
    ("window 3/60s", 14_400.0),
    ("log 45/60s", 3600.0),
    ("log 45/60s, refusals-count", 3600.0),
    ("bucket 0.75/s 10", 3600.0),
    ("bucket 0.75/s 100", 3600.0),
    ("bucket 5/s 50", 1800.0),
    ("bucket 0.2/s 5", 7200.0),
    ("bucket 0.05/s 1", 14_400.0),
    ("bucket 0.75/s 10, retry-after", 3600.0),
    ("gcra 2/s 1", 3600.0),
    ("gcra 10/s 3", 1800.0),
    ("concurrency 4, latency=300ms", 1200.0),
    ("two 5/1s 100/60s", 3600.0),
    ("ban 0.75/s 10 60s", 3600.0),
    ("ban 0.75/s 10 60s, retry-after", 3600.0),
    ("window 1000/1h", 28_800.0),
    ("window 1000/1h, retry-after", 28_800.0),
    ("window 45/60s, retry-after=1", 3600.0),
    ("window 45/60s, retry-after=600", 7200.0),
    ("window 45/60s, retry-after=0", 3600.0),
    ("window 45/60s, ratelimit", 3600.0),
    ("bucket 5/s 20, ratelimit", 1800.0),
    ("window 45/60s, ratelimit+135", 3600.0),
    ("bucket 1.5/s 10, others=0.75/s", 3600.0),
    ("bucket 4/s 10 then 1 at 2400s then 4 at 4800s", 9600.0),
    ("window 60/60s then 240 at 2400s then 60 at 6000s", 8400.0),
];

const LIMITERS_AT_1_S: &[(&str, f64)] = &[
    ("window 30/60s", 3600.0),
    ("window 3/60s", 14_400.0),
    ("bucket 0.25/s 5", 7200.0),
    ("ban 0.5/s 5 60s", 7200.0),
    ("bucket 0.8/s 5 then 0.2 at 3600s then 0.8 at 9600s", 14_400.0),
];

const LIMITERS_AT_5_MS: &[(&str, f64)] = &[("bucket 100/s 100", 600.0), ("window 3000/60s", 900.0)];

fn scenario(&(server, seconds): &(&str, f64), base: u64, concurrency: u32) -> Scenario {
    let base = Duration::from_millis(base);
    Scenario { server: server.to_owned(), base, concurrency, seconds, bursts: None }
}

/// The 36 hosts with a limit.
pub fn limiters() -> Vec<Scenario> {
    let usual = LIMITERS.iter().map(|row| scenario(row, 50, 8));
    let slow = LIMITERS_AT_1_S.iter().map(|row| scenario(row, 1_000, 8));
    let fast = LIMITERS_AT_5_MS.iter().map(|row| scenario(row, 5, 64));
    usual.chain(slow).chain(fast).collect()
}

/// A host that was not chosen by hand: any kind of limit, 0.05 to 15 requests a second, any Retry-After.
pub fn random(seed: u64) -> Scenario {
    let mut dice = Dice(seed);
    let rate = 0.05 * 300_f64.powf(dice.unit());
    let window = [1.0, 5.0, 10.0, 60.0, 300.0][dice.below(5) as usize];
    let quota = (rate * window).round().max(1.0);
    let size = 1 + dice.below(30);
    let server = match dice.below(9) {
        0 => format!("window {quota}/{window}s"),
        1 => format!("log {quota}/{window}s"),
        2 => format!("bucket {rate:.3}/s {size}"),
        3 => format!("gcra {rate:.3}/s {}", 1 + size % 5),
        4 => format!("concurrency {}, latency=300ms", 1 + size % 6),
        5 => format!("two {}/1s {}/60s", rate.ceil() * 2.0, (rate * 60.0).ceil()),
        6 => format!("ban {rate:.3}/s {} {}s", 3 + size, [30, 60, 120][dice.below(3) as usize]),
        7 => format!(
            "bucket {rate:.3}/s {size} then {:.3} at 2400s",
            rate * [0.25, 0.5, 2.0, 4.0][dice.below(4) as usize]
        ),
        _ => format!("bucket {:.3}/s {size}, others={:.3}/s", rate * 1.5, rate * 0.5),
    };
    let says = ["", "", ", retry-after", ", retry-after=1"][dice.below(4) as usize];
    let base = Duration::from_millis([50, 200, 1_000][dice.below(3) as usize]);
    let seconds = (1200.0 / rate).clamp(3600.0, 14_400.0);
    Scenario { server: server + says, base, concurrency: 8, seconds, bursts: None }
}

impl Scenario {
    pub fn run(&self, policy: TrialPolicy, seed: u64) -> Result<TrialResult, String> {
        let &Scenario { base, concurrency, seconds, bursts, .. } = self;
        let settings = TrialSettings { base, concurrency, seconds, bursts, ..TrialSettings::new(policy, seed) };
        Ok(Trial::new(spec::server(&self.server, seed)?, settings).run())
    }
}
