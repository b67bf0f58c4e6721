//! Predicts what would happen to a request that came now: its destination, robots.txt, the queue of its host.
//!
//! Makes the checks of a request, in the same order and with the same parts, but takes no place in any queue. It uses
//! the robots.txt that is known, or can be fetched within the given time; a fetch goes on after that, for the next
//! question.

use std::time::Duration;

use tokio::time::timeout;

use crate::gate::now;
use crate::politeness::HostKey;
use crate::politeness::lane::{Expectation, Objection};
use crate::politeness::policy;
use crate::politeness::visit::Purpose;
use crate::proxy::dry_run::DryRun;
use crate::robots::{Question, Report, ReportVerdict};
use crate::upstream::UpstreamError;

#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// The host whose budget the request is taken from; `None` if that is not known.
    pub host: Option<HostKey>,
    /// What robots.txt says; `None` if that is not known in time, or does not matter.
    pub report: Option<Report>,
    /// Whether robots.txt matters for this request.
    pub asks_robots: bool,
    pub expected: Option<Expectation>,
    /// Why the request would not be passed on, as a `Curtsy-Error` code.
    pub refusal: Option<&'static str>,
    /// Whether the request is allowed, whenever its turn comes; `None` if that is not known.
    pub allowed: Option<bool>,
}

impl DryRun {
    pub async fn foresee(&self, question: &Question, method: &str, patience: Duration) -> Prediction {
        let settings = self.worker.shared.settings.load_full();
        match timeout(patience, Box::pin(self.worker.upstream.vet(settings.terms(), &question.origin))).await {
            Ok(Ok(())) => {}
            Ok(Err(UpstreamError::Denied(_))) => {
                return Prediction {
                    refusal: Some("destination-denied"),
                    allowed: Some(false),
                    ..Prediction::default()
                };
            }
            Ok(Err(_)) => return Prediction { refusal: Some("origin-unreachable"), ..Prediction::default() },
            Err(_) => return Prediction::default(),
        }
        let mode = self.worker.shared.gate.policy(&question.origin.host).robots;
        let concerned = settings.applies_robots_to(method);
        let asks_robots = concerned && mode != policy::RobotsMode::Off;
        let report = if asks_robots { timeout(patience, self.ask(question)).await.ok() } else { None };
        let crawl_delay = report.as_ref().map_or(0, |report| report.delay.obeyed_ms);
        let host = timeout(patience, self.budget(&question.origin.host)).await.ok().flatten();
        let gate = &self.worker.shared.gate;
        let robots = &self.worker.shared.robots;
        let is_new = robots.record(&question.origin).is_some_and(|record| record.is_new(now()));
        let follows = is_new && asks_robots && !settings.config.robots.takes_turn;
        let purpose = if follows { Purpose::AfterRobotsFetch } else { Purpose::Page };
        let (origin, crawl_delay) = (&question.origin, Duration::from_millis(crawl_delay));
        let expected = host.as_ref().map(|host| gate.foresee(host, origin, crawl_delay, purpose));
        let by_robots = report.as_ref().and_then(refused_by_robots);
        let refusal = by_robots.or_else(|| expected.and_then(|expected| refused_by_lane(&expected)));
        let allowed = match (asks_robots, &report) {
            (true, None) => None,
            (true, Some(report)) if report.refused && report.verdict == ReportVerdict::Unknown => None,
            _ => Some(by_robots.is_none()),
        };
        Prediction { host, report, asks_robots, expected, refusal, allowed }
    }
}

fn refused_by_robots(report: &Report) -> Option<&'static str> {
    match (report.refused, report.verdict) {
        (false, _) => None,
        (true, ReportVerdict::Unknown) => Some("robots-unreachable"),
        (true, _) => Some("robots-denied"),
    }
}

fn refused_by_lane(expected: &Expectation) -> Option<&'static str> {
    Some(match expected.objection? {
        Objection::Paused | Objection::Held => "host-cooling",
        Objection::Broken => "breaker-open",
        Objection::Full => "queue-full",
        Objection::TooLong => "wait-too-long",
        Objection::Draining => "shutting-down",
    })
}
