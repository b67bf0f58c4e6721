//! The results of one case, as a row of a table or as JSON.

use std::io;
use std::time::Duration;

use curtsy::clock;
use serde::Serialize;
use tokio::time::Instant;

use crate::audit::Audit;
use crate::cost::{Machine, processor_time};
use crate::options::Case;

/// Processor times at one moment.
#[derive(Debug)]
pub(crate) struct Moment {
    at: Instant,
    curtsy: Duration,
    load: Duration,
    machine: Machine,
}

/// Seconds between two moments, and the processor seconds used in them.
#[derive(Debug)]
pub(crate) struct Work {
    passed: f64,
    curtsy: f64,
    load: f64,
    all: f64,
}

impl Moment {
    pub(crate) fn now(curtsy: u32) -> io::Result<Self> {
        let (curtsy, load) = (processor_time(&curtsy.to_string())?, processor_time("self")?);
        Ok(Moment { at: clock::now(), curtsy, load, machine: Machine::until_now()? })
    }

    pub(crate) fn since(&self, begun: &Moment) -> Work {
        let passed = (self.at - begun.at).as_secs_f64();
        Work {
            passed,
            curtsy: (self.curtsy - begun.curtsy).as_secs_f64(),
            load: (self.load - begun.load).as_secs_f64(),
            all: self.machine.cores_since(&begun.machine) * passed,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    hosts: usize,
    delay_ms: u128,
    used_percent: f64,
    rate: f64,
    curtsy_us: f64,
    curtsy_cores: f64,
    load_us: f64,
    load_cores: f64,
    other_cores: f64,
    spacing_violations: u64,
    late_p99_ms: f64,
    early_ms: f64,
    unvisited: usize,
}

impl Figures {
    pub(crate) const HEADING: &str = "\
|   hosts, delay | used, % | requests/s | curtsy µs | cores | load µs | cores | others' | late ms | early ms | violations | unvisited |
| -------------: | ------: | ---------: | --------: | ----: | ------: | ----: | ------: | ------: | -------: | ---------: | --------: |";

    /// `None` if there was no start.
    pub(crate) fn new(case: &Case, audit: &Audit, work: &Work, spacing_violations: u64) -> Option<Self> {
        let starts = Some(audit.starts()).filter(|&starts| starts > 0)? as f64;
        let each_us = |seconds: f64| seconds * 1e6 / starts;
        let cores = |seconds: f64| seconds / work.passed;
        Some(Figures {
            hosts: case.hosts,
            delay_ms: case.delay.as_millis(),
            used_percent: 100.0 * audit.used(),
            rate: starts / work.passed,
            curtsy_us: each_us(work.curtsy),
            curtsy_cores: cores(work.curtsy),
            load_us: each_us(work.load),
            load_cores: cores(work.load),
            // Never below zero: the kernel counts this in coarse ticks.
            other_cores: cores(work.all - work.curtsy - work.load).max(0.0),
            spacing_violations,
            late_p99_ms: millis(audit.late_p99()),
            early_ms: millis(audit.early()),
            unvisited: audit.unvisited(),
        })
    }

    pub(crate) fn row(&self) -> String {
        format!(
            "| {:>14} | {:7.1} | {:10.0} | {:9.1} | {:5.2} | {:7.1} | {:5.2} | {:7.2} | {:7.1} | {:8.1} | {:10} | {:9} |",
            format!("{}, {} ms", self.hosts, self.delay_ms),
            self.used_percent,
            self.rate,
            self.curtsy_us,
            self.curtsy_cores,
            self.load_us,
            self.load_cores,
            self.other_cores,
            self.late_p99_ms,
            self.early_ms,
            self.spacing_violations,
            self.unvisited,
        )
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names")
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
