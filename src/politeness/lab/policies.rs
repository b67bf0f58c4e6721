//! How a trial chooses its pace: by a policy of curtsy, or by a controller that other programs use, for comparison.
//!
//! Such a rival chooses the delay of a lane that learns nothing by itself, but obeys Retry-After and quotas.

use std::collections::VecDeque;
use std::time::Duration;

use crate::politeness::pace::Learner;
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;

/// How the pace is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialPolicy {
    Steps,
    Auto,
    /// The configured delay, and nothing learned.
    Fixed,
    /// These are for comparison only; see [`Rival`].
    Aimd,
    Cubic,
    AutoThrottle,
    Sre,
}

impl TrialPolicy {
    pub const ALL: [TrialPolicy; 7] = [
        TrialPolicy::Steps,
        TrialPolicy::Auto,
        TrialPolicy::Fixed,
        TrialPolicy::Aimd,
        TrialPolicy::Cubic,
        TrialPolicy::AutoThrottle,
        TrialPolicy::Sre,
    ];

    pub fn word(self) -> &'static str {
        match self {
            TrialPolicy::Steps => "steps",
            TrialPolicy::Auto => "auto",
            TrialPolicy::Fixed => "fixed",
            TrialPolicy::Aimd => "aimd",
            TrialPolicy::Cubic => "cubic",
            TrialPolicy::AutoThrottle => "autothrottle",
            TrialPolicy::Sre => "sre",
        }
    }

    pub(super) fn learner(self) -> Learner {
        match self {
            TrialPolicy::Steps => Learner::Steps,
            TrialPolicy::Auto => Learner::Auto,
            _ => Learner::Off,
        }
    }
}

/// The slowest pace of all of them: a request a minute, as `adaptive.max_delay`.
const SLOWEST: f64 = 1.0 / 60.0;

/// A rival, and what it keeps. Rates are requests per second.
#[derive(Clone, Debug)]
pub(super) enum Rival {
    /// A tenth of a request per second more for each second with a success, half after a refusal.
    Aimd { rate: f64, raised: Timestamp, halved: Timestamp },
    /// The adaptive mode of the AWS clients: a cubic curve around the pace of the last refusal.
    Cubic { rate: f64, refused_rate: f64, refused_at: Timestamp, answers: VecDeque<Timestamp> },
    /// Scrapy's AutoThrottle: the delay follows the time that answers take.
    AutoThrottle { delay: f64 },
    /// Throttling in the client as in Google's SRE book: drops requests by the share of those accepted in two minutes.
    Sre { answers: VecDeque<(Timestamp, bool)> },
}

impl Rival {
    pub(super) fn of(policy: TrialPolicy, base: Duration, now: Timestamp) -> Option<Rival> {
        let rate = fastest(base);
        Some(match policy {
            TrialPolicy::Aimd => Rival::Aimd { rate, raised: now, halved: now },
            TrialPolicy::Cubic => Rival::Cubic { rate, refused_rate: 0.0, refused_at: now, answers: VecDeque::new() },
            // Scrapy begins with 5 s.
            TrialPolicy::AutoThrottle => Rival::AutoThrottle { delay: 5.0 },
            TrialPolicy::Sre => Rival::Sre { answers: VecDeque::new() },
            TrialPolicy::Steps | TrialPolicy::Auto | TrialPolicy::Fixed => return None,
        })
    }

    /// Returns the delay after an answer that took this long, and a hold if the controller asks for one.
    pub(super) fn heard(
        &mut self,
        answer: PaceSignal,
        took: Duration,
        base: Duration,
        now: Timestamp,
    ) -> (Duration, Option<Duration>) {
        let refused = answer == PaceSignal::Throttled;
        let mut hold = None;
        let rate = match self {
            Rival::Aimd { rate, raised, halved } => {
                if refused && now.since(*halved) > delay(*rate) {
                    *rate = (*rate / 2.0).max(SLOWEST);
                    (*raised, *halved) = (now, now);
                    hold = Some(delay(*rate));
                } else if answer == PaceSignal::Success && now.since(*raised) >= Duration::from_secs(1) {
                    (*rate, *raised) = (*rate + 0.1, now);
                }
                *rate
            }
            Rival::Cubic { rate, refused_rate, refused_at, answers } => {
                answers.push_back(now);
                while answers.front().is_some_and(|at| now.since(*at) > Duration::from_secs(2)) {
                    answers.pop_front();
                }
                *rate = cubic(*rate, (refused, answers.len() as f64 / 2.0), refused_rate, refused_at, now);
                *rate
            }
            Rival::AutoThrottle { delay } => {
                let (target, old) = (took.as_secs_f64(), *delay);
                let new = target.max((old + target) / 2.0).clamp(base.as_secs_f64(), 60.0);
                *delay = if answer == PaceSignal::Success { new } else { new.max(old) };
                1.0 / *delay
            }
            Rival::Sre { answers } => {
                answers.push_back((now, refused));
                while answers.front().is_some_and(|(at, _)| now.since(*at) > Duration::from_secs(120)) {
                    answers.pop_front();
                }
                let sent = answers.len() as f64;
                let accepted = answers.iter().filter(|(_, refused)| !refused).count() as f64;
                fastest(base) * (1.0 - ((sent - 2.0 * accepted) / (sent + 1.0)).max(0.0))
            }
        };
        (delay(rate).max(base), hold)
    }
}

/// The curve of botocore's `retries/throttling.py`, with its constants, at most twice the pace of the last two seconds.
fn cubic(
    rate: f64,
    (refused, measured): (bool, f64),
    refused_rate: &mut f64,
    refused_at: &mut Timestamp,
    now: Timestamp,
) -> f64 {
    const SCALE: f64 = 0.4;
    const BETA: f64 = 0.7;
    if refused {
        (*refused_rate, *refused_at) = (rate.min(measured.max(0.5)), now);
        return (*refused_rate * BETA).max(0.5);
    }
    if *refused_rate == 0.0 {
        return rate;
    }
    let turn = (*refused_rate * (1.0 - BETA) / SCALE).cbrt();
    let curve = SCALE * (now.since(*refused_at).as_secs_f64() - turn).powi(3) + *refused_rate;
    curve.min(2.0 * measured).max(0.5)
}

fn fastest(base: Duration) -> f64 {
    1.0 / base.as_secs_f64().max(1e-3)
}

fn delay(rate: f64) -> Duration {
    Duration::from_secs_f64(1.0 / rate.max(SLOWEST))
}
