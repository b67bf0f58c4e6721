//! Quotas on tokio's paused time: which requests pass, what the others are told, and what stays when numbers change.

use std::num::NonZeroU32;

use tokio::time::sleep;

use super::*;
use crate::config::Config;

const ADA: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);
const SECOND: Duration = Duration::from_secs(1);

fn quota(requests: u32, per: Duration) -> QuotaRate {
    QuotaRate { requests: NonZeroU32::new(requests).unwrap(), per }
}

fn access(client: Option<QuotaRate>, total: Option<QuotaRate>) -> Access {
    Access { client_rate: client, total_rate: total, ..Config::default().access }
}

fn quotas(client: Option<QuotaRate>, total: Option<QuotaRate>) -> Quotas {
    Quotas::new(&access(client, total), None).expect("there is one")
}

/// How many requests pass at once.
fn burst(quotas: &Quotas, client: ClientId) -> usize {
    (0..10_000).take_while(|_| quotas.take(client).is_ok()).count()
}

fn over(quotas: &Quotas, client: ClientId) -> Exceeded {
    quotas.take(client).expect_err("it is over")
}

#[test]
fn no_quota_is_nothing_to_ask() {
    assert!(Quotas::new(&access(None, None), None).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_so_many_at_once_and_then_one_by_one() {
    let quotas = quotas(Some(quota(20, SECOND)), None);
    assert_eq!(burst(&quotas, ADA), 20);
    assert_eq!(over(&quotas, ADA), Exceeded { whose: Whose::Client, retry_after: SECOND / 20 });
    assert_eq!(burst(&quotas, BOB), 20, "another client's quota is its own");
    sleep(SECOND / 20).await;
    assert_eq!(burst(&quotas, ADA), 1);
    sleep(SECOND * 9).await;
    assert_eq!(burst(&quotas, ADA), 20);
}

/// A request passes at the time that the refusal named, and not a moment sooner.
#[tokio::test(start_paused = true)]
async fn the_time_told_is_true() {
    let quotas = quotas(Some(quota(3, SECOND * 60)), None);
    assert_eq!(burst(&quotas, ADA), 3);
    sleep(SECOND * 7).await;
    let wait = over(&quotas, ADA).retry_after;
    assert_eq!(wait, SECOND * 13);
    sleep(wait - Duration::from_millis(2)).await;
    assert!(over(&quotas, ADA).retry_after <= Duration::from_millis(3));
    sleep(Duration::from_millis(3)).await;
    assert_eq!(burst(&quotas, ADA), 1);
}

#[tokio::test(start_paused = true)]
async fn all_together_have_a_quota_too() {
    let quotas = quotas(Some(quota(4, SECOND)), Some(quota(6, SECOND)));
    assert_eq!((burst(&quotas, ADA), burst(&quotas, BOB)), (4, 2));
    assert_eq!((over(&quotas, ADA).whose, over(&quotas, BOB).whose), (Whose::Client, Whose::All));
}

/// A request that the quota of all refuses is not counted against its client, and the other way round.
#[tokio::test(start_paused = true)]
async fn refused_requests_are_not_counted() {
    let quotas = quotas(Some(quota(4, SECOND * 3600)), Some(quota(6, SECOND)));
    assert_eq!(burst(&quotas, ADA), 4);
    for _ in 0..100 {
        assert_eq!(over(&quotas, ADA).whose, Whose::Client);
    }
    assert_eq!(burst(&quotas, BOB), 2);
    for _ in 0..100 {
        assert_eq!(over(&quotas, BOB).whose, Whose::All);
    }
    sleep(SECOND).await;
    assert_eq!(burst(&quotas, BOB), 2, "two of its four are left");
}

#[tokio::test(start_paused = true)]
async fn a_reload_with_the_same_numbers_changes_nothing() {
    let same = access(Some(quota(5, SECOND * 60)), Some(quota(9, SECOND * 60)));
    let before = Quotas::new(&same, None).unwrap();
    assert_eq!((burst(&before, ADA), burst(&before, BOB)), (5, 4));
    let after = Quotas::new(&same, Some(&before)).unwrap();
    assert_eq!((burst(&after, ADA), burst(&after, BOB)), (0, 0));
}

/// Used requests stay used: neither a larger nor a smaller quota makes a used one full.
#[tokio::test(start_paused = true)]
async fn another_quota_grants_no_fresh_burst() {
    let before = quotas(Some(quota(20, SECOND)), None);
    assert_eq!(burst(&before, ADA), 20);
    assert_eq!((0..15).filter(|_| before.take(BOB).is_ok()).count(), 15);
    let larger = Quotas::new(&access(Some(quota(600, SECOND * 60)), None), Some(&before)).unwrap();
    assert_eq!((burst(&larger, ADA), burst(&larger, BOB)), (0, 5));
    assert_eq!(over(&larger, ADA).retry_after, SECOND / 10, "and the wait is that of the new rate");
    let smaller = Quotas::new(&access(Some(quota(3, SECOND)), None), Some(&larger)).unwrap();
    assert_eq!((burst(&smaller, ADA), burst(&smaller, BOB)), (0, 0));
    sleep(SECOND).await;
    assert_eq!(burst(&smaller, ADA), 3);
}

#[tokio::test(start_paused = true)]
async fn clients_that_ask_no_more_are_forgotten() {
    let quotas = quotas(Some(quota(2, SECOND)), Some(quota(1000, SECOND)));
    for name in 1..=100 {
        quotas.take(ClientId(name)).unwrap();
    }
    let cells = &quotas.client.as_ref().unwrap().cells;
    quotas.sweep();
    assert_eq!(cells.len(), 100, "their quotas are not whole yet");
    sleep(SECOND * 3).await;
    quotas.take(ADA).unwrap();
    quotas.sweep();
    assert_eq!((cells.len(), cells.0.whole_at.len()), (1, 1));
}

/// However many names a client invents: the clients that find no room share one quota, until room is made.
#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_the_crowd_shares_one_quota() {
    let limit = QuotaLimit::new(quota(3, SECOND * 10), 50);
    for name in 1..=50 {
        limit.take(ClientId(name)).unwrap();
    }
    let strangers = (1_000..2_000).filter(|&name| limit.take(ClientId(name)).is_ok()).count();
    assert_eq!(strangers, 3);
    assert!(limit.take(ADA).is_ok(), "a known client keeps its own");
    assert!(limit.cells.len() <= 51);
    limit.give_back(ClientId(5_000));
    assert!(limit.take(ClientId(5_001)).is_ok(), "what a stranger gives back is the next one's");
    sleep(SECOND * 40).await;
    assert_eq!((0..5).filter(|_| limit.take(ClientId(9_999)).is_ok()).count(), 3);
    assert!(limit.cells.len() <= 2, "no client was forgotten");
}
