//! What the policies reach against simulated hosts, in a few seeds. `curtsy simulate --matrix` runs more.

use super::Dice;
use super::policies::TrialPolicy;
use super::scenarios::{self, Scenario};
use super::spec;
use super::trial::{Trial, TrialResult, TrialSettings};
use std::time::Duration;

const SEEDS: u64 = 2;

fn run(server: &str, policy: TrialPolicy, seconds: f64, seed: u64) -> TrialResult {
    let settings = TrialSettings { seconds, ..TrialSettings::new(policy, seed) };
    Trial::new(spec::server(server, seed).unwrap(), settings).run()
}

/// Mean goodput, its lower tenth, and the mean of refusals and failures per 1000.
fn matrix(scenarios: &[Scenario], policy: TrialPolicy) -> (f64, f64, f64, f64) {
    let (mut goodputs, mut refused, mut failed) = (Vec::new(), 0.0, 0.0);
    for scenario in scenarios {
        let results: Vec<_> = (1..=SEEDS).map(|seed| scenario.run(policy, seed).unwrap()).collect();
        let mean = |of: fn(&TrialResult) -> f64| results.iter().map(of).sum::<f64>() / SEEDS as f64;
        goodputs.push(mean(TrialResult::goodput));
        refused += mean(TrialResult::refused_per_1000) / scenarios.len() as f64;
        failed += mean(TrialResult::failed_per_1000) / scenarios.len() as f64;
    }
    goodputs.sort_by(f64::total_cmp);
    let mean = goodputs.iter().sum::<f64>() / goodputs.len() as f64;
    (mean, goodputs[goodputs.len() / 10], refused, failed)
}

#[test]
fn auto_uses_unknown_limits_and_rarely_hits_them() {
    let limiters = scenarios::limiters();
    assert_eq!(limiters.len(), 36);
    let (goodput, worst, refused, failed) = matrix(&limiters, TrialPolicy::Auto);
    assert!(goodput >= 95.0 && worst >= 86.0, "{goodput} {worst}");
    assert!(refused <= 6.5 && failed <= 0.1, "{refused} {failed}");
}

/// An origin that meters 7 requests a second by any of the usual means is used, and the client sees no refusal.
#[test]
fn seven_requests_a_second_are_found_within_five_minutes() {
    for server in
        ["gcra 7/s 1", "gcra 7/s 6", "bucket 7/s 7", "window 7/1s", "window 35/5s", "log 7/1s", "counter 35/5s"]
    {
        for seed in 1..=3 {
            let trial = run(&format!("{server}, latency=5ms, jitter=2ms"), TrialPolicy::Auto, 900.0, seed);
            let after = |times: &[f64]| times.iter().filter(|at| **at > 300.0).count() as f64;
            let (served, refused) = (after(&trial.served_at), after(&trial.refused_at));
            assert!(served >= 0.9 * 7.0 * 600.0, "{server}: {served}");
            assert!(trial.refused_per_1000() <= 12.0 && refused <= 0.01 * served, "{server}: {refused}");
            assert_eq!(trial.failed, 0, "{server}");
        }
    }
}

/// The limits that real limiters set, as the bench meets them: bans over windows and counters, 403, little jitter.
#[test]
fn real_limiters_are_used_within_five_minutes() {
    let servers = [
        "gcra 8/s 1",
        "gcra 7/s 6",
        "counter 40/5s",
        "counter 12/1s, block=10s",
        "window 9/1s, ban=10s",
        "window 9/1s, ban=10s, status=403",
        "window 7/1s",
        "window 40/5s, status=403",
        "visit-window 60/5s",
        "visit-window 60/5s, block=10s",
        "visit-window 35/5s, ratelimit",
    ];
    let mut goodput = 0.0;
    for server in servers {
        let results =
            (1..=3).map(|seed| run(&format!("{server}, latency=2ms, jitter=2ms"), TrialPolicy::Auto, 300.0, seed));
        let results: Vec<_> = results.collect();
        let mean = |of: fn(&TrialResult) -> f64| results.iter().map(of).sum::<f64>() / 3.0;
        assert!(mean(TrialResult::goodput) >= 72.0, "{server}: {}", mean(TrialResult::goodput));
        assert!(mean(TrialResult::refused_per_1000) <= 12.0, "{server}: {}", mean(TrialResult::refused_per_1000));
        assert!(mean(TrialResult::failed_per_1000) <= 4.0, "{server}: {}", mean(TrialResult::failed_per_1000));
        goodput += mean(TrialResult::goodput) / servers.len() as f64;
    }
    assert!(goodput >= 88.0, "{goodput}");
}

/// For each window in which the host refused: the refusals after the first second of them, and how long after the
/// reset it served again.
fn reopenings(server: &str, seconds: f64, seed: u64) -> Vec<(usize, f64)> {
    let trial = run(server, TrialPolicy::Auto, 3600.0, seed);
    let phase = Dice(seed ^ 0x5eed).unit() * seconds;
    let window = |at: f64| ((at + phase) / seconds).floor();
    let mut refused = trial.refused_at.clone();
    let mut found = Vec::new();
    while let Some(first) = refused.first().copied() {
        let (same, later): (Vec<f64>, _) = refused.iter().partition(|at| window(**at) == window(first));
        let reset = (window(first) + 1.0) * seconds - phase;
        let canaries = same.iter().filter(|at| **at > first + 1.0).count();
        found.extend(trial.served_at.iter().find(|at| **at >= reset).map(|at| (canaries, at - reset)));
        refused = later;
    }
    found
}

/// With Retry-After, the next request comes when the window resets, and none before. A second of rounding and two
/// delays are granted.
#[test]
fn a_window_with_retry_after_is_asked_again_at_its_reset() {
    for seed in 1..=5 {
        let found = reopenings("window 45/60s, retry-after", 60.0, seed);
        assert!(!found.is_empty() && found.iter().all(|(canaries, late)| *canaries == 0 && *late < 4.0), "{found:?}");
    }
}

/// Without it a few canaries find the reset.
#[test]
fn a_window_without_retry_after_is_found_open_by_few_canaries() {
    let found: Vec<_> = (1..=5).flat_map(|seed| reopenings("window 45/60s", 60.0, seed)).collect();
    let mean = |of: fn(&(usize, f64)) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
    let (canaries, late) = (mean(|found| found.0 as f64), mean(|found| found.1));
    assert!(canaries <= 2.0 && late <= 20.0, "{canaries} {late} {found:?}");
}

/// After the first ban, the pace that led there is not tried again.
#[test]
fn a_ban_is_kept_out_of() {
    let of = |policy| run("ban 10s over 12/s", policy, 1800.0, 1);
    let (auto, steps) = (of(TrialPolicy::Auto), of(TrialPolicy::Steps));
    assert!(auto.goodput() >= 85.0, "{}", auto.goodput());
    assert!(auto.refused_per_1000() <= 2.0, "{}", auto.refused_per_1000());
    assert!(auto.goodput() >= 2.0 * steps.goodput(), "{} {}", auto.goodput(), steps.goodput());
}

#[test]
fn steps_does_what_it_did() {
    let (goodput, _, refused, _) = matrix(&scenarios::limiters(), TrialPolicy::Steps);
    assert!(goodput >= 60.0 && refused <= 25.0, "{goodput} {refused}");
}

#[test]
fn random_hosts_are_no_worse() {
    let results: Vec<_> = (1..=60).map(|seed| scenarios::random(seed).run(TrialPolicy::Auto, seed).unwrap()).collect();
    let goodput = results.iter().map(TrialResult::goodput).sum::<f64>() / results.len() as f64;
    assert!(goodput >= 92.0, "{goodput}");
}

#[test]
fn a_fourfold_rise_is_found_within_ten_minutes() {
    let server = "bucket 1/s 10 then 4 at 2400s";
    let mean: f64 =
        (1..=4).map(|seed| run(server, TrialPolicy::Auto, 4800.0, seed).time_to_90(2400.0, 4800.0).unwrap()).sum();
    assert!(mean / 4.0 < 600.0, "{}", mean / 4.0);
}

#[test]
fn a_host_that_tells_the_truth_hardly_ever_refuses() {
    let told = ["window 45/60s, ratelimit", "window 10/1s, ratelimit", "bucket 5/s 20, ratelimit"];
    for server in told {
        for policy in [TrialPolicy::Steps, TrialPolicy::Auto] {
            let trial = run(server, policy, 1800.0, 1);
            assert!(trial.refused_per_1000() < 0.1, "{server}: {}", trial.refused_per_1000());
            assert!(trial.goodput() >= 60.0, "{server}: {}", trial.goodput());
        }
    }
}

#[test]
fn a_ban_that_every_request_renews_is_left() {
    for (ban, base, most) in [(60, 1_000, 240.0), (90, 1_000, 240.0), (60, 50, 240.0), (90, 50, 360.0)] {
        let scenario = Scenario {
            server: format!("ban 1/s 1 {ban}s"),
            base: Duration::from_millis(base),
            concurrency: 8,
            seconds: 3600.0,
            bursts: None,
        };
        for policy in [TrialPolicy::Steps, TrialPolicy::Auto] {
            let trial = scenario.run(policy, 1).unwrap();
            let banned = *trial.refused_at.first().expect("it is banned once");
            let left = trial.served_at.iter().find(|at| **at > banned).expect("it is left") - banned;
            assert!(left <= most, "{ban} s ban at {base} ms: {left}");
        }
    }
}

/// A host that only becomes slow is asked about as fast as it answers, although it never refuses.
#[test]
fn a_host_that_becomes_slow_is_asked_more_slowly() {
    let mean_pace = |policy| {
        let trial = run("worker 10/s", policy, 1200.0, 1);
        assert!(trial.refused_at.is_empty() && trial.goodput() >= 70.0, "{}", trial.goodput());
        let ends = trial.paces.iter().skip(1).map(|(at, _)| *at).chain([1200.0]);
        let weighted =
            trial.paces.iter().zip(ends).map(|((from, pace), until)| pace * (until - from.max(600.0)).max(0.0));
        weighted.sum::<f64>() / 600.0
    };
    let (auto, steps) = (mean_pace(TrialPolicy::Auto), mean_pace(TrialPolicy::Steps));
    assert!(auto <= 13.0 && steps >= 19.9, "{auto} {steps}");
}

/// Refusals at random have nothing to do with the pace.
#[test]
fn noise_is_told_from_a_limit() {
    let goodput = (1..=3).map(|seed| run("random 1%", TrialPolicy::Auto, 3600.0, seed).goodput()).sum::<f64>() / 3.0;
    let steps = run("random 1%", TrialPolicy::Steps, 3600.0, 1).goodput();
    assert!(goodput >= 60.0 && goodput >= 4.0 * steps, "{goodput} {steps}");
}

#[test]
fn where_there_is_no_limit_nothing_is_lost() {
    for policy in [TrialPolicy::Steps, TrialPolicy::Auto] {
        let trial = run("none", policy, 900.0, 1);
        assert_eq!(trial.refused_at.len(), 0);
        assert!(trial.goodput() > 99.0, "{}", trial.goodput());
    }
}

#[test]
fn a_trial_is_the_same_every_time() {
    for server in ["window 45/60s", "bucket 1.5/s 10, others=0.75/s", "random 1%"] {
        let sends = |seed| run(server, TrialPolicy::Auto, 600.0, seed).served_at;
        assert!(sends(7) == sends(7) && sends(7) != sends(8), "{server}");
    }
}

#[test]
fn every_example_can_be_read_and_nonsense_is_explained() {
    for (example, _) in spec::SERVERS {
        assert!(spec::server(example, 1).is_ok(), "{example}");
    }
    for (option, _) in spec::OPTIONS {
        let separator = if option.starts_with("then") { " " } else { ", " };
        let server = format!("bucket 5/s 50{separator}{option}");
        assert!(spec::server(&server, 1).is_ok(), "{server}");
    }
    for nonsense in [
        "",
        "windows 3/60s",
        "window",
        "window 3",
        "window x/60s",
        "window 3/60",
        "window 0/60s",
        "none 3",
        "bucket 5/s",
        "bucket 5/s 3, retry",
        "bucket 5/s 3 then 4",
        "random 1",
        "ban 1/s 3 -5s",
        "log 1e99/1s",
    ] {
        let error = spec::server(nonsense, 1).unwrap_err();
        assert!(error.contains("window 45/60s | log 45/60s"), "{nonsense}: {error}");
    }
}

/// Refusals with 403 that come only above a pace are learned.
#[test]
fn a_limiter_that_answers_403_is_obeyed() {
    // The last one refuses every other request, and never a row.
    for server in ["window 40/5s, status=403", "ban 8/s 30 10s, status=403", "gcra 8/s 1, status=403"] {
        let trial = run(server, TrialPolicy::Auto, 3600.0, 1);
        let late = trial.refused_at.iter().filter(|at| **at > 1800.0).count();
        assert!(trial.goodput() > 70.0, "{server}: {}", trial.goodput());
        assert!(late < 400, "{server}: {late} refused in the second half hour");
    }
}

/// Pages that are forbidden at any pace change nothing: the host is asked as often as if they were not.
#[test]
fn forbidden_pages_never_slow_a_host() {
    for forbidden in ["1%", "5%", "20%", "50%"] {
        for seed in 1..=3 {
            let trial = run(&format!("none, forbidden={forbidden}"), TrialPolicy::Auto, 600.0, seed);
            assert!(trial.goodput() > 98.0, "{forbidden}: {}", trial.goodput());
            assert!(trial.paces.iter().all(|(at, rate)| *at < 60.0 || *rate > 19.9), "{forbidden}");
        }
    }
}
