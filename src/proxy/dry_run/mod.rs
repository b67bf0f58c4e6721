//! Answers people's questions: what robots.txt means for a URL, and what else would happen to a request.
//!
//! The answers match what a request would get: the same settings, the same record and the same fetch. A dry run has its
//! own connections, keeps none of them, and belongs to one runtime, as a worker does. It sends nothing but fetches of
//! robots.txt.

mod prediction;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use parking_lot::Mutex;

use crate::clock;
use crate::config::OnUnreachable;
use crate::politeness::HostKey;
use crate::politeness::lane::View;
use crate::politeness::policy;
use crate::politeness::robots::reply::RobotsRecordState;
use crate::politeness::time::Timestamp;
use crate::proxy::pages::help;
use crate::proxy::robots::ask::{self, RobotsFetch};
use crate::proxy::{Settings, Shared, StoppedClients, Worker};
use crate::robots::fetch::FetchResult;
use crate::robots::{AgentsFrom, Facts, Question, Report};
use crate::tls;
use crate::upstream::Resolver;

pub use self::prediction::{Asker, Inquiry, Prediction, Unenforced, Via};

#[derive(Debug)]
pub struct DryRun {
    worker: Arc<Worker>,
}

impl DryRun {
    pub fn new(shared: Arc<Shared>, resolver: Arc<Resolver>) -> Self {
        DryRun { worker: Arc::new(Worker::new(shared, resolver)) }
    }

    /// Returns what is known. Asks the origin if nothing is known, or if the question says so.
    pub async fn ask(&self, question: &Question) -> Report {
        let settings = self.worker.shared.settings.load_full();
        let (record, seen) = self.look_up(&settings, question).await;
        self.worker.upstream.sweep(Duration::ZERO);
        let (config, user_agent) = (&settings.config.robots, question.user_agent.as_ref());
        Report::new(&Facts {
            question,
            agents: &settings.agents(user_agent),
            agents_from: if settings.agents.is_some() { AgentsFrom::Configuration } else { AgentsFrom::UserAgent },
            exempt: settings.is_exempt(user_agent),
            policy: &self.worker.shared.gate.policy(&question.origin.host),
            obeys_delay: config.crawl_delay,
            denies_unknown: config.on_unreachable == OnUnreachable::Deny,
            applies_to_get: settings.applies_robots_to("GET"),
            record: record.as_deref(),
            seen: seen.as_ref(),
            now: Timestamp::from_micros(clock::micros()),
        })
    }

    /// Returns the host whose budget a visit to this host is taken from; `None` if that takes an address and there is
    /// none.
    pub async fn budget(&self, host: &HostKey) -> Option<HostKey> {
        let settings = self.worker.shared.settings.load_full();
        self.worker.upstream.budget(settings.terms(), settings.config.pacing.key, host).await.ok()
    }

    /// Returns what people see of a host; `None` if nothing is known about it. For a host that was not visited since
    /// curtsy started, the stored robots.txt is read for the delay that it asks of clients without a name. `asked` is
    /// the name by which the host is meant, which has a robots.txt of its own if `politeness.key` is not `"host"`.
    pub async fn view(&self, host: &HostKey, asked: &HostKey) -> Option<View> {
        let (shared, settings) = (&self.worker.shared, self.worker.shared.settings.load_full());
        let policy = shared.gate.policy(host);
        let is_obeyed = settings.config.robots.crawl_delay && policy.robots != policy::RobotsMode::Off;
        if !is_obeyed || shared.gate.has_lane(host) {
            return shared.gate.view(host);
        }
        let mut delay = shared.robots.kept_delay(host, &settings.agents(None)).await;
        if asked != host {
            delay = delay.max(shared.robots.kept_delay(asked, &settings.agents(None)).await);
        }
        shared.gate.view_expecting(host, delay.min(policy.max_crawl_delay))
    }

    /// What all workers share.
    pub fn shared(&self) -> &Shared {
        &self.worker.shared
    }

    /// When the CA that signs for intercepted tunnels expires.
    pub fn ca_ends(&self) -> Option<SystemTime> {
        let settings = self.worker.shared.settings.load();
        let signing = settings.leaves.as_ref()?.trusted().first()?;
        tls::describe(signing).map(|description| description.until)
    }

    /// The certificates that clients have to trust where tunnels are intercepted, in PEM.
    pub fn ca_pem(&self) -> Option<String> {
        help::ca_pem(&self.worker.shared.settings.load())
    }

    /// The clients that fail or were stopped.
    pub fn stops(&self) -> &Arc<StoppedClients> {
        &self.worker.shared.stops
    }

    /// Returns the reason of the last unpaced tunnel to this host, and how many were unpaced within the hour.
    pub fn unpaced_tunnels(&self, host: &HostKey) -> Option<(&'static str, u64)> {
        self.worker.shared.unpaced.of(host)
    }

    /// Returns the record, and what was seen if it had to be fetched first.
    async fn look_up(
        &self,
        settings: &Arc<Settings>,
        question: &Question,
    ) -> (Option<Arc<RobotsRecordState>>, Option<FetchResult>) {
        let seen = Arc::new(Mutex::new(None));
        let fetch = |previous: Option<Arc<RobotsRecordState>>| {
            let (worker, settings, seen) = (self.worker.clone(), settings.clone(), seen.clone());
            let origin = question.origin.clone();
            let user_agent = question.user_agent.clone();
            let user_agent = user_agent.unwrap_or(HeaderValue::from_static(ask::OWN_USER_AGENT));
            async move {
                // The question is about the file itself, so "unchanged" would be no answer.
                let previous = previous.map(|record| record.without_validators());
                let (terms, previous) = (settings.terms(), previous.as_ref());
                let fetch =
                    RobotsFetch { worker: &worker, settings: &settings, origin: &origin, user_agent: &user_agent };
                let fetched = fetch.run(terms, previous).await?;
                let record = fetched.record.clone();
                *seen.lock() = Some(fetched);
                Ok(record)
            }
        };
        let record = self.worker.shared.robots.look_up(&question.origin, question.anew, fetch).await;
        let seen = seen.lock().take();
        (record, seen)
    }
}
