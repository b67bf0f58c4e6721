//! Translates the configuration into the policies that lanes use.

use crate::config::{self, Config, HostPattern};
use crate::gate::Bounds;
use crate::politeness::breaker::Tolerance;
use crate::politeness::pace::{Learner, Learning};
use crate::politeness::policy::{Mode, Order, Pattern, Policy, PolicyBook, Robots, Rule, Schooling};
use crate::politeness::retries::Retrying;

pub(super) fn book(config: &Config) -> PolicyBook {
    let politeness = &config.politeness;
    let general = Policy {
        mode: mode(politeness.mode),
        order: match politeness.order {
            config::Order::Fair => Order::Fair,
            config::Order::Fifo => Order::Fifo,
        },
        delay: politeness.delay,
        burst: politeness.burst,
        concurrency: politeness.concurrency,
        jitter: politeness.jitter,
        delay_factor: politeness.delay_factor,
        max_wait: politeness.max_wait,
        max_queue: politeness.max_queue,
        robots: robots(config.robots.mode),
        max_crawl_delay: config.robots.max_crawl_delay,
    };
    PolicyBook::new(general, config.host.iter().map(rule).collect(), schooling(config))
}

fn schooling(config: &Config) -> Schooling {
    let (adaptive, breaker, retry) = (&config.adaptive, &config.breaker, &config.retry);
    Schooling {
        learning: Learning {
            learner: match adaptive.policy {
                config::PacePolicy::Steps => Learner::Steps,
                config::PacePolicy::Off => Learner::Off,
            },
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
        retrying: Retrying { max: retry.max, statuses: retry.statuses.clone(), budget: retry.budget },
    }
}

pub(super) fn bounds(config: &Config) -> Bounds {
    Bounds { most: config.hosts.max, idle: config.hosts.idle }
}

fn rule(rule: &config::HostRule) -> Rule {
    Rule {
        patterns: rule.patterns.iter().map(pattern).collect(),
        mode: rule.mode.map(mode),
        delay: rule.delay,
        burst: rule.burst,
        concurrency: rule.concurrency,
        jitter: rule.jitter,
        delay_factor: rule.delay_factor,
        max_wait: rule.max_wait,
        max_queue: rule.max_queue,
        robots: rule.robots.map(robots),
        max_crawl_delay: rule.max_crawl_delay,
    }
}

fn mode(mode: config::Mode) -> Mode {
    match mode {
        config::Mode::Enforce => Mode::Enforce,
        config::Mode::Report => Mode::Report,
        config::Mode::Off => Mode::Off,
    }
}

fn robots(mode: config::RobotsMode) -> Robots {
    match mode {
        config::RobotsMode::Enforce => Robots::Enforce,
        config::RobotsMode::Warn => Robots::Warn,
        config::RobotsMode::Off => Robots::Off,
    }
}

fn pattern(pattern: &HostPattern) -> Pattern {
    match pattern {
        HostPattern::Any => Pattern::Any,
        HostPattern::Name(name) => Pattern::Name(name.clone()),
        HostPattern::Below(name) => Pattern::Below(name.clone()),
        HostPattern::Net(net) => Pattern::Net(*net),
    }
}
