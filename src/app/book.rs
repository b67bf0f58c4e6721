//! Builds the policies that lanes use from the configuration.

use crate::config::Config;
use crate::gate::Bounds;
use crate::politeness::breaker::Tolerance;
use crate::politeness::pace::Learning;
use crate::politeness::policy::{LearningPolicy, PolicyBook};

/// Returns which host is treated how.
pub fn book(config: &Config) -> PolicyBook {
    PolicyBook::new(config.politeness, config.host.clone(), schooling(config))
}

fn schooling(config: &Config) -> LearningPolicy {
    let (adaptive, breaker) = (&config.adaptive, &config.breaker);
    LearningPolicy {
        learning: Learning {
            step_up: adaptive.step_up,
            step_down: adaptive.step_down,
            successes: u16::try_from(adaptive.successes).unwrap_or(u16::MAX),
            max_delay: adaptive.max_delay,
            concurrency_step: adaptive.concurrency_step,
            remember: adaptive.remember,
            longest_hold: adaptive.retry_after_max,
            ..Learning::default()
        },
        tolerance: Tolerance {
            failures: u16::try_from(breaker.failures).unwrap_or(u16::MAX),
            cooldown: breaker.cooldown,
            throttled: u16::try_from(breaker.throttled).unwrap_or(u16::MAX),
            ..Tolerance::default()
        },
        retrying: config.retry.clone(),
    }
}

pub(super) fn bounds(config: &Config) -> Bounds {
    Bounds { most: config.hosts.max, idle: config.hosts.idle }
}
