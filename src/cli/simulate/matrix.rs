//! All policies against many kinds of hosts, as a table in Markdown.

use std::io;

use super::{Streams, clear, progress};
use crate::politeness::lab::policies::TrialPolicy;
use crate::politeness::lab::scenarios::{self, Scenario};
use crate::politeness::lab::trial::TrialResult;

const RANDOM_HOSTS: u64 = 60;

/// The means of one policy over some seeds.
struct Means {
    goodput: f64,
    refused: f64,
    failed: f64,
}

impl Means {
    fn of(results: &[TrialResult]) -> Self {
        let mean = |of: fn(&TrialResult) -> f64| results.iter().map(of).sum::<f64>() / results.len() as f64;
        Means {
            goodput: mean(TrialResult::goodput),
            refused: mean(TrialResult::refused_per_1000),
            failed: mean(TrialResult::failed_per_1000),
        }
    }
}

pub(super) fn run(seeds: u64, streams: &mut Streams<'_>) -> io::Result<u8> {
    writeln!(streams.out, "Goodput in percent of the limit / refusals per 1000, means of {seeds} seeds\n")?;
    writeln!(streams.out, "| host | delay | {} |", TrialPolicy::ALL.map(TrialPolicy::word).join(" | "))?;
    writeln!(streams.out, "|---|---|{}", "---|".repeat(TrialPolicy::ALL.len()))?;
    let scenarios = scenarios::limiters();
    let mut rows = Vec::new();
    for (number, scenario) in scenarios.iter().enumerate() {
        progress(streams, number, scenarios.len() + 1)?;
        let run = |policy| {
            let results = (1..=seeds).map(|seed| scenario.run(policy, seed)).collect::<Result<Vec<_>, _>>();
            results.map(|results| Means::of(&results)).map_err(io::Error::other)
        };
        let means = TrialPolicy::ALL.into_iter().map(run).collect::<io::Result<Vec<_>>>()?;
        let cells: Vec<String> =
            means.iter().map(|mean| format!("{:.1} / {:.1}", mean.goodput, mean.refused)).collect();
        clear(streams)?;
        writeln!(streams.out, "| {} | {:?} | {} |", scenario.server, scenario.base, cells.join(" | "))?;
        rows.push(means);
    }
    let columns: Vec<Vec<&Means>> =
        (0..TrialPolicy::ALL.len()).map(|n| rows.iter().map(|row| &row[n]).collect()).collect();
    writeln!(streams.out, "| **mean** | | {} |", cells(&columns, summary))?;
    writeln!(streams.out, "| **worst tenth** | | {} |", cells(&columns, tenth))?;
    writeln!(streams.out, "| **failures per 1000** | | {} |", cells(&columns, failures))?;
    progress(streams, scenarios.len(), scenarios.len() + 1)?;
    let random = |policy| random(policy, 1_000_000 * seeds);
    let random = TrialPolicy::ALL.into_iter().map(random).collect::<io::Result<Vec<_>>>()?;
    clear(streams)?;
    writeln!(streams.out, "| **{RANDOM_HOSTS} random hosts** | | {} |", random.join(" | "))?;
    Ok(0)
}

fn cells(columns: &[Vec<&Means>], cell: impl Fn(&[&Means]) -> String) -> String {
    columns.iter().map(|column| cell(column)).collect::<Vec<_>>().join(" | ")
}

fn mean(column: &[&Means], of: fn(&Means) -> f64) -> f64 {
    column.iter().map(|means| of(means)).sum::<f64>() / column.len() as f64
}

fn summary(column: &[&Means]) -> String {
    format!("{:.1} / {:.1}", mean(column, |means| means.goodput), mean(column, |means| means.refused))
}

fn failures(column: &[&Means]) -> String {
    format!("{:.2}", mean(column, |means| means.failed))
}

fn tenth(column: &[&Means]) -> String {
    let mut goodputs: Vec<f64> = column.iter().map(|means| means.goodput).collect();
    goodputs.sort_by(f64::total_cmp);
    format!("{:.1}", goodputs[goodputs.len() / 10])
}

fn random(policy: TrialPolicy, first: u64) -> io::Result<String> {
    let hosts = (0..RANDOM_HOSTS).map(|n| (scenarios::random(first + n), first + n));
    let run = |(host, seed): (Scenario, u64)| host.run(policy, seed).map_err(io::Error::other);
    let results = hosts.map(run).collect::<io::Result<Vec<_>>>()?;
    let means = Means::of(&results);
    Ok(format!("{:.1} / {:.1}", means.goodput, means.refused))
}
