//! The front door: clients' connections in, requests passed on, answers back.
//!
//! Reading order: [`worker`] accepts, [`handle`] is the path of a request, and the rest are its steps. Every request
//! ends in the origin's answer or in one made by [`answer`]; nothing else writes to a client.

mod access_log;
mod account;
mod answer;
mod body;
mod connect;
mod failure;
mod forward;
mod handle;
mod headers;
mod identity;
mod in_flight;
mod landing;
mod max_forwards;
mod target;
mod tunnel;
mod users;
mod wish;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;

use crate::config::Config;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::shutdown::Stop;
use crate::upstream::{Guard, Terms, Trust};

pub use self::access_log::AccessLog;
pub use self::failure::BadRequest;
pub use self::identity::Identity;
pub use self::target::Target;
pub use self::users::{BadUsersFile, Users};
pub use self::worker::Worker;

/// What all workers share.
#[derive(Debug)]
pub struct Shared {
    pub settings: ArcSwap<Settings>,
    pub metrics: Arc<Metrics>,
    pub identity: Identity,
    pub access_log: AccessLog,
    pub gate: Arc<Gate>,
    pub stop: Stop,
    /// Open client connections, of all workers.
    connections: AtomicUsize,
    /// Numbers the answers curtsy makes itself, so that a client's report can be found in the log.
    answers: AtomicU64,
}

/// What may change while running: replaced as a whole on reload.
#[derive(Debug)]
pub struct Settings {
    pub config: Config,
    pub guard: Guard,
    pub trust: Trust,
    pub users: Option<Users>,
    /// Different for each.
    generation: u64,
}

impl Settings {
    pub fn new(config: Config, guard: Guard, trust: Trust, users: Option<Users>) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        Settings { config, guard, trust, users, generation: GENERATIONS.fetch_add(1, Relaxed) }
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

impl Shared {
    pub fn new(
        settings: Settings,
        metrics: Arc<Metrics>,
        identity: Identity,
        access_log: AccessLog,
        gate: Arc<Gate>,
        stop: Stop,
    ) -> Self {
        Shared {
            settings: ArcSwap::from_pointee(settings),
            metrics,
            identity,
            access_log,
            gate,
            stop,
            connections: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
        }
    }
}
