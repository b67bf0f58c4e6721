//! The front door: clients' connections in, requests passed on, answers back.
//!
//! Reading order: [`worker`] accepts, [`handle`] is the path of a request, and the rest are its steps. Every request
//! ends in the origin's answer or in one made by [`answer`]; nothing else writes to a client.

mod access_log;
mod account;
mod answer;
mod body;
mod connect;
mod desk;
mod failure;
mod forward;
mod handle;
mod headers;
mod identity;
mod in_flight;
mod job;
mod landing;
mod lesson;
mod max_forwards;
mod quotas;
mod robots;
mod send;
mod target;
mod tunnel;
mod users;
mod wish;
mod words;
mod worker;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;

use crate::config::Config;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::politeness::jobs::Jobs;
use crate::politeness::retries::Retrying;
use crate::politeness::robots::Agents;
use crate::politeness::signals::Listening;
use crate::robots::Robots;
use crate::shutdown::Stop;
use crate::upstream::{Guard, Terms, Trust};

use self::quotas::Quotas;
use self::tunnel::Notes;

pub use self::access_log::AccessLog;
pub use self::desk::{Desk, Foresight};
pub use self::failure::BadRequest;
pub use self::identity::Identity;
pub use self::target::Target;
pub use self::users::{BadUsersFile, Users};
pub use self::worker::Worker;

#[cfg(fuzzing)]
pub use self::tunnel::fuzzing;

/// What all workers share.
#[derive(Debug)]
pub struct Shared {
    pub settings: ArcSwap<Settings>,
    pub metrics: Arc<Metrics>,
    pub identity: Identity,
    pub access_log: AccessLog,
    pub gate: Arc<Gate>,
    pub robots: Arc<Robots>,
    pub jobs: Mutex<Jobs>,
    /// Hosts with tunnels whose requests are not told apart.
    unpaced: Notes,
    pub stop: Stop,
    /// Open client connections, of all workers.
    connections: AtomicUsize,
    /// Numbers the answers curtsy makes itself, so that a client's report can be found in the log.
    answers: AtomicU64,
}

/// What may change while running: replaced as a whole on reload. A copy counts on where the first does.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: Config,
    pub guard: Guard,
    pub trust: Trust,
    pub users: Option<Arc<Users>>,
    /// By which names clients look for their group in robots.txt, if not by their own.
    agents: Option<Agents>,
    /// How answers are read, and when a request is sent again.
    listening: Listening,
    retrying: Retrying,
    /// How fast clients may ask; most may as they like.
    quotas: Option<Quotas>,
    /// Different for each that was read from a file.
    generation: u64,
}

impl Settings {
    pub fn new(config: Config, guard: Guard, trust: Trust, users: Option<Users>) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let tokens = &config.robots.user_agent;
        let agents = (!tokens.is_empty()).then(|| Agents::from_tokens(tokens.iter().map(String::as_str)));
        let (adaptive, retry) = (&config.adaptive, &config.retry);
        let listening = Listening {
            statuses: adaptive.statuses.clone(),
            retry_after_max: adaptive.retry_after_max,
            ratelimit_fields: adaptive.ratelimit_fields,
        };
        let retrying = Retrying { max: retry.max, statuses: retry.statuses.clone(), budget: retry.budget };
        let quotas = Quotas::new(&config.access, None);
        let generation = GENERATIONS.fetch_add(1, Relaxed);
        let users = users.map(Arc::new);
        Settings { config, guard, trust, users, agents, listening, retrying, quotas, generation }
    }

    /// Takes the place of other settings: counting goes on, so that a reload grants nobody a fresh burst.
    pub fn succeed(&mut self, before: &Settings) {
        self.quotas = Quotas::new(&self.config.access, before.quotas.as_ref());
    }

    /// Forgets clients that ask no more.
    pub fn sweep(&self) {
        if let Some(quotas) = &self.quotas {
            quotas.sweep();
        }
    }

    /// Whom robots.txt knows a client as.
    fn agents(&self, user_agent: Option<&HeaderValue>) -> Cow<'_, Agents> {
        match &self.agents {
            Some(agents) => Cow::Borrowed(agents),
            None => Cow::Owned(agents_of(user_agent)),
        }
    }

    /// Whether robots.txt does not apply to this client.
    fn is_exempt(&self, user_agent: Option<&HeaderValue>) -> bool {
        let exempt = &self.config.robots.exempt_user_agents;
        !exempt.is_empty()
            && agents_of(user_agent).tokens().any(|token| exempt.iter().any(|name| name.eq_ignore_ascii_case(token)))
    }

    fn terms(&self) -> Terms<'_> {
        Terms {
            config: &self.config.upstream,
            guard: &self.guard,
            trust: &self.trust,
            head_size: self.config.limits.head_size,
            generation: self.generation,
        }
    }
}

fn agents_of(user_agent: Option<&HeaderValue>) -> Agents {
    user_agent.and_then(|value| value.to_str().ok()).map_or_else(Agents::default, Agents::from_user_agent)
}

impl Shared {
    pub fn new(
        settings: Settings,
        metrics: Arc<Metrics>,
        identity: Identity,
        access_log: AccessLog,
        gate: Arc<Gate>,
        robots: Arc<Robots>,
        stop: Stop,
    ) -> Self {
        Shared {
            settings: ArcSwap::from_pointee(settings),
            metrics,
            identity,
            access_log,
            gate,
            robots,
            jobs: Mutex::new(Jobs::new()),
            unpaced: Notes::default(),
            stop,
            connections: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
        }
    }
}
