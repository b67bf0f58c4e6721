//! Tests of what `Jobs` promises, by example.

use proptest::prelude::*;

use super::*;

const ERROR: JobFailure = JobFailure::Status(500);
const PATIENCE: JobPatience = JobPatience { failures: 20, cooldown: Duration::from_secs(3_600) };

const fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1_000)
}

/// A user's request.
fn job(name: &str, host: &str) -> JobKey {
    JobKey::new(name, None, host)
}

fn a() -> JobKey {
    job("a", "h.test")
}

fn fail(jobs: &mut Jobs, key: &JobKey, times: u32, now: Timestamp) -> Option<JobStop> {
    (0..times).filter_map(|_| jobs.answered(key, 500, &PATIENCE, now)).last()
}

fn stopped(jobs: &Jobs, now: Timestamp) -> Vec<(&str, JobStop)> {
    jobs.accounts(now).filter_map(|account| Some((account.key, account.stop?))).collect()
}

#[test]
fn twenty_failures_in_a_row_at_a_host_stop_a_job_there_and_the_reason_is_kept() {
    let mut jobs = Jobs::new();
    assert_eq!(fail(&mut jobs, &a(), 19, at(0)), None);
    assert_eq!(jobs.may_visit(&a(), at(0)), Ok(()));
    let last = JobFailure::NoAnswer("connection refused");
    let stop = jobs.failed(&a(), last, &PATIENCE, at(9)).unwrap();
    assert_eq!(stop, JobStop { since: at(9), until: at(3_609), failures: 20, last: Some(last), at_host: true });
    assert_eq!(jobs.may_visit(&a(), at(10)), Err(stop));
    assert_eq!(stopped(&jobs, at(10)), [("a at h.test", stop)]);
    assert_eq!((last.to_string(), ERROR.to_string()), ("connection refused".into(), "status 500".into()));
    assert_eq!(jobs.may_visit(&job("b", "h.test"), at(10)), Ok(()), "another job");
    assert_eq!(jobs.may_visit(&job("a", "i.test"), at(10)), Ok(()), "another host");
}

#[test]
fn dead_hosts_say_nothing_about_the_client() {
    let mut jobs = Jobs::new();
    for number in 0..100 {
        let key = job("a", &format!("{number}.test"));
        assert_eq!(jobs.failed(&key, JobFailure::NoAnswer("no address"), &PATIENCE, at(0)), None);
        assert_eq!(fail(&mut jobs, &key, 18, at(0)), None);
    }
    assert_eq!(jobs.may_visit(&a(), at(0)), Ok(()));
}

#[test]
fn twenty_hosts_in_a_row_that_refuse_it_stop_a_job_everywhere() {
    let mut jobs = Jobs::new();
    let mut refuse = |from: u32, to: u32, status: u16| {
        let key = |number| job("a", &format!("{number}.test"));
        (from..to).filter_map(|number| jobs.answered(&key(number), status, &PATIENCE, at(0))).last()
    };
    assert_eq!((refuse(0, 10, 403), refuse(0, 10, 429), refuse(0, 10, 401)), (None, None, None), "ten hosts");
    assert_eq!(
        (refuse(30, 40, 500), refuse(10, 19, 429)),
        (None, None),
        "a broken host neither counts nor ends the row"
    );
    assert_eq!((refuse(50, 51, 404), refuse(0, 19, 403)), (None, None), "a row begins anew");
    let stop = refuse(19, 20, 403).unwrap();
    assert_eq!((stop.failures, stop.last, stop.at_host), (20, Some(JobFailure::Status(403)), false));
    assert_eq!(jobs.may_visit(&a(), at(1)), Err(stop));
    assert_eq!((a().of(&stop), jobs.may_visit(&job("b", "h.test"), at(1))), ("a", Ok(())));
}

#[test]
fn without_passwords_a_name_counts_for_its_address_alone() {
    let mut jobs = Jobs::new();
    let [alice, mallory] = ["10.0.0.1", "10.0.0.9"].map(|ip| JobKey::new("alice", ip.parse().ok(), "h.test"));
    fail(&mut jobs, &mallory, 20, at(0)).unwrap();
    assert_eq!((jobs.may_visit(&mallory, at(1)).is_err(), jobs.may_visit(&alice, at(1))), (true, Ok(())));
    let forged = JobKey::new("alice@10.0.0.1", "10.0.0.9".parse().ok(), "h.test");
    fail(&mut jobs, &forged, 20, at(0)).unwrap();
    assert_eq!(jobs.may_visit(&alice, at(1)), Ok(()));
    let unlucky = JobKey::new("alice@10.0.0.9 at h.test", "10.0.0.1".parse().ok(), "i.test");
    assert_eq!(jobs.may_visit(&unlucky, at(1)), Ok(()), "a name that looks like a job that is stopped");

    jobs.stop("alice", Timestamp::NEVER, at(1)).unwrap();
    assert!(jobs.may_visit(&alice, at(2)).is_err(), "an operator stops a name wherever it comes from");
    let mut resumed = jobs.resume("alice", at(2));
    resumed.sort();
    assert_eq!(resumed, ["alice".into(), "alice@10.0.0.9 at h.test".into()] as [Box<str>; 2]);
    assert_eq!((jobs.may_visit(&alice, at(2)), jobs.may_visit(&mallory, at(2))), (Ok(()), Ok(())));
    assert_eq!(jobs.resume("alice@10.0.0.1@10.0.0.9", at(2)).len(), 1, "by name and address");
}

#[test]
fn a_key_is_taken_apart() {
    let ip: IpAddr = "::1".parse().unwrap();
    for (name, address, host) in
        [("a", None, "h.test"), ("a b", Some(ip), "h.test"), ("a@x.test", None, "::1"), ("a at h.test", Some(ip), "h")]
    {
        let key = JobKey::new(name, address, host);
        assert_eq!(parts(key.at_host()), (name, address, Some(host)));
        assert_eq!(parts(key.client()), (name, address, None));
        assert_eq!((key.name(), key.host()), (name, host));
    }
}

#[test]
fn a_success_begins_the_row_anew() {
    let mut jobs = Jobs::new();
    for _ in 0..10 {
        assert_eq!(fail(&mut jobs, &a(), 19, at(0)), None);
        jobs.answered(&a(), 404, &PATIENCE, at(0));
    }
    assert!(jobs.known.is_empty());
}

#[test]
fn it_stays_stopped_until_it_is_resumed_or_has_cooled_down() {
    let mut jobs = Jobs::new();
    fail(&mut jobs, &a(), 20, at(0));
    jobs.answered(&a(), 200, &PATIENCE, at(1));
    assert_eq!(fail(&mut jobs, &a(), 100, at(2)), None, "what was on its way neither prolongs it");
    assert!(jobs.may_visit(&a(), at(3)).is_err(), "nor ends it");
    assert_eq!((jobs.resume("a", at(3)).len(), jobs.resume("a", at(3)).len()), (1, 0));
    assert_eq!(jobs.may_visit(&a(), at(3)), Ok(()));

    fail(&mut jobs, &a(), 20, at(10));
    assert!(jobs.may_visit(&a(), at(3_609)).is_err());
    assert_eq!(jobs.may_visit(&a(), at(3_610)), Ok(()));
    assert_eq!(stopped(&jobs, at(3_610)).len(), 0);
    assert_eq!(fail(&mut jobs, &a(), 19, at(3_610)), None, "it has all its tries again");
    assert!(fail(&mut jobs, &a(), 1, at(3_610)).is_some());
}

#[test]
fn people_stop_a_job_and_let_it_go_on() {
    let mut jobs = Jobs::new();
    let stop = jobs.stop("a", Timestamp::NEVER, at(1)).unwrap();
    assert_eq!(stop, JobStop { since: at(1), until: Timestamp::NEVER, failures: 0, last: None, at_host: false });
    assert_eq!(jobs.may_visit(&a(), at(1_000_000)), Err(stop));
    let account = JobAccount { key: "a", failures: 0, failed: None, stop: Some(stop) };
    assert_eq!(jobs.accounts(at(2)).collect::<Vec<_>>(), [account]);
    assert!(jobs.resume("a", at(2)).len() == 1 && jobs.accounts(at(2)).next().is_none());

    jobs.stop("b", at(10), at(2)).unwrap();
    let b = job("b", "h.test");
    assert_eq!((jobs.may_visit(&b, at(9)).is_err(), jobs.may_visit(&b, at(10))), (true, Ok(())));
}

#[test]
fn it_can_be_off() {
    let mut jobs = Jobs::new();
    let off = JobPatience { failures: 0, ..PATIENCE };
    assert!((0..100).all(|_| jobs.answered(&a(), 429, &off, at(0)).is_none()));
    assert!(jobs.known.is_empty());
}

#[test]
fn no_number_of_names_takes_more_memory_or_frees_a_stopped_job() {
    let mut jobs = Jobs::new();
    fail(&mut jobs, &a(), 20, at(0));
    for number in 0..2 * MOST {
        let name = format!("{number}{}", "é".repeat(10_000));
        fail(&mut jobs, &job(&name, "h.test"), 1, at(1 + number as u64));
    }
    assert_eq!(jobs.known.len(), MOST);
    assert!(jobs.known.keys().all(|key| key.len() <= LONGEST_KEY));
    assert!(jobs.may_visit(&a(), at(5)).is_err());
}

#[test]
fn no_number_of_hosts_takes_more_memory() {
    let mut jobs = Jobs::new();
    let endless = JobPatience { failures: u32::MAX, ..PATIENCE };
    let refused = |number: &u32| jobs.answered(&job("a", &number.to_string()), 403, &endless, at(0)).is_some();
    assert_eq!((0..2 * MOST_HOSTS).find(refused), Some(MOST_HOSTS - 1));
    assert!(jobs.known["a"].refused_by.is_empty());
}

#[test]
fn if_all_are_stopped_no_other_job_is_tracked() {
    let mut jobs = Jobs::new();
    for number in 0..=MOST {
        fail(&mut jobs, &job(&number.to_string(), "h.test"), 20, at(0));
    }
    assert_eq!(stopped(&jobs, at(0)).len(), MOST);
    assert_eq!(jobs.may_visit(&job(&MOST.to_string(), "h.test"), at(0)), Ok(()));
}

/// What a link checker or a broken crawler meets: answers, and hosts that do not answer (0).
fn outcomes() -> impl Strategy<Value = Vec<(usize, u16)>> {
    prop::collection::vec((0usize..6, prop::sample::select(vec![0u16, 200, 404, 403, 429, 500])), 0..400)
}

proptest! {
    /// Compares the stops with a model that remembers only the rows of failures and refusals.
    #[test]
    fn a_job_is_stopped_exactly_where_its_row_says_so(outcomes in outcomes()) {
        let patience = JobPatience { failures: 4, ..PATIENCE };
        let mut jobs = Jobs::new();
        let (mut failed, mut refused_by) = ([0u32; 6], Vec::new());
        for (host, status) in outcomes {
            let key = job("a", &format!("h{host}.test"));
            let (stopped_here, stopped_everywhere) = (failed[host] >= 4, refused_by.len() >= 4);
            let may = jobs.may_visit(&key, at(1));
            prop_assert_eq!(may.is_err(), stopped_here || stopped_everywhere);
            prop_assert_eq!(may.err().is_some_and(|stop| !stop.at_host), stopped_everywhere);
            if stopped_here || stopped_everywhere {
                continue;
            }
            match status {
                0 => jobs.failed(&key, JobFailure::NoAnswer("a timeout"), &patience, at(1)),
                status => jobs.answered(&key, status, &patience, at(1)),
            };
            let (fails, refuses) = (matches!(status, 0 | 429 | 500), matches!(status, 403 | 429));
            if refuses && !refused_by.contains(&host) {
                refused_by.push(host);
            }
            if !fails && !refuses {
                refused_by.clear();
            }
            // A stop everywhere comes first: the failure is not counted at the host as well.
            failed[host] = if fails && refused_by.len() < 4 { failed[host] + 1 } else if fails { failed[host] } else { 0 };
        }
    }
}
