//! What one case came to, as a row of a table or as JSON.

use std::io;
use std::time::Duration;

use curtsy::clock;
use serde::Serialize;
use tokio::time::Instant;

use crate::audit::Audit;
use crate::cost::processor_time;
use crate::options::Case;

/// Processor time of both sides and the time that went by.
#[derive(Debug)]
pub(crate) struct Work {
    at: Instant,
    passed: Duration,
    curtsy: Duration,
    load: Duration,
}

impl Work {
    pub(crate) fn until_now(curtsy: u32) -> io::Result<Self> {
        let (curtsy, load) = (processor_time(&curtsy.to_string())?, processor_time("self")?);
        Ok(Work { at: clock::now(), passed: Duration::ZERO, curtsy, load })
    }

    pub(crate) fn since(&self, begun: &Work) -> Work {
        let passed = self.at - begun.at;
        Work { passed, curtsy: self.curtsy - begun.curtsy, load: self.load - begun.load, ..*self }
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
    spacing_violations: u64,
    late_p99_ms: usize,
    early_ms: f64,
    unvisited: usize,
}

impl Figures {
    pub(crate) const HEADING: &str = "\
| hosts, delay     | used, % | requests/s | curtsy µs | cores | load µs | cores | p99 late ms | early ms | violations | unvisited |
| ---------------- | ------: | ---------: | --------: | ----: | ------: | ----: | ----------: | -------: | ---------: | --------: |";

    pub(crate) fn new(case: &Case, audit: &Audit, work: &Work, spacing_violations: u64) -> Self {
        let starts = audit.starts() as f64;
        let each_us = |time: Duration| time.as_secs_f64() * 1e6 / starts;
        let cores = |time: Duration| time.as_secs_f64() / work.passed.as_secs_f64();
        Figures {
            hosts: case.hosts,
            delay_ms: case.delay.as_millis(),
            used_percent: 100.0 * audit.used(),
            rate: starts / work.passed.as_secs_f64(),
            curtsy_us: each_us(work.curtsy),
            curtsy_cores: cores(work.curtsy),
            load_us: each_us(work.load),
            load_cores: cores(work.load),
            spacing_violations,
            late_p99_ms: audit.late_p99_ms(),
            early_ms: audit.early().as_secs_f64() * 1e3,
            unvisited: audit.unvisited(),
        }
    }

    pub(crate) fn row(&self) -> String {
        format!(
            "| {:16} | {:7.1} | {:10.0} | {:9.1} | {:5.2} | {:7.1} | {:5.2} | {:11} | {:8.1} | {:10} | {:9} |",
            format!("{}, {} ms", self.hosts, self.delay_ms),
            self.used_percent,
            self.rate,
            self.curtsy_us,
            self.curtsy_cores,
            self.load_us,
            self.load_cores,
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
