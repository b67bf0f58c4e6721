//! The resolver, with a function instead of the system's.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use parking_lot::Mutex;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);
const ALICE: ClientId = ClientId(1);
const MALLORY: ClientId = ClientId(2);

fn host(name: &str) -> HostKey {
    HostKey::parse(name).unwrap()
}

/// Returns a resolver that answers for `good` names, fails for `missing` ones and hangs for `dead` ones until `hold` is
/// dropped; and a counter of the names it was asked for.
fn stub() -> (Arc<Resolver>, Arc<AtomicUsize>, mpsc::Sender<()>) {
    let (hold, held) = mpsc::channel::<()>();
    let (held, asked) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
    let counted = asked.clone();
    let lookup = move |name: &str| {
        counted.fetch_add(1, SeqCst);
        if name.starts_with("dead") {
            let _ = held.lock().recv();
        }
        if name.starts_with("good") {
            return Ok(vec![IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 1])]);
        }
        Err(io::Error::other("failed to lookup address information: no such name"))
    };
    (Arc::new(Resolver::new(Arc::new(lookup), KEEP)), asked, hold)
}

/// Lets a client ask for this many dead names, and waits until as many threads as it may have are stuck.
async fn get_stuck(resolver: &Arc<Resolver>, asked: &AtomicUsize, names: usize, stuck: usize) {
    for number in 0..names {
        let resolver = resolver.clone();
        tokio::spawn(async move { resolver.lookup(&host(&format!("dead{number}.test")), MALLORY, LIMIT).await });
    }
    while asked.load(SeqCst) < stuck {
        tokio::task::yield_now().await;
    }
}

/// X14
#[tokio::test]
async fn localhost_has_an_address_and_is_remembered() {
    let resolver = Resolver::default();
    let found = resolver.lookup(&host("localhost"), ALICE, LIMIT).await.unwrap();
    assert!(found.iter().all(IpAddr::is_loopback));
    assert!(Arc::ptr_eq(&found, &resolver.lookup(&host("localhost"), ALICE, LIMIT).await.unwrap()));
}

/// X15
#[tokio::test]
async fn a_full_cache_forgets_instead_of_failing() {
    let (resolver, ..) = stub();
    for number in 0..2 * MOST {
        resolver.known.keep(&host(&format!("h{number}.test")), &Ok(Arc::new([])));
        resolver.known.fail(&host(&format!("f{number}.test")), None);
    }
    assert!(resolver.known.answers.len() <= MOST && resolver.known.failures.len() <= MOST);
    assert!(resolver.lookup(&host("good.test"), ALICE, LIMIT).await.is_ok());
}

#[tokio::test]
async fn a_name_is_looked_up_once_however_many_ask() {
    let (resolver, asked, hold) = stub();
    let all: Vec<_> = (0..50)
        .map(|number| {
            let resolver = resolver.clone();
            tokio::spawn(async move { resolver.lookup(&host("dead.test"), ClientId(number), LIMIT).await })
        })
        .collect();
    while asked.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(hold);
    for one in all {
        assert!(matches!(one.await.unwrap(), Err(UpstreamError::Dns(why)) if why == "no such name"));
    }
    assert!(matches!(resolver.lookup(&host("dead.test"), ALICE, LIMIT).await, Err(UpstreamError::Dns(_))));
    assert_eq!(asked.load(SeqCst), 1, "and a failure is remembered");
}

/// X14, X35, promise 5: dead names of one client take no more than its share, and names that resolve are served.
#[tokio::test]
async fn dead_names_leave_room_for_good_ones() {
    let (resolver, asked, hold) = stub();
    assert!(resolver.lookup(&host("good-before.test"), MALLORY, LIMIT).await.is_ok());
    get_stuck(&resolver, &asked, 1200, 1 + 28).await;
    assert_eq!(resolver.lookup(&host("good.test"), ALICE, LIMIT).await.unwrap().len(), 1);
    // Resolved within the last hour: its own client's dead names do not delay it either.
    let before = ResolvedName { addresses: Arc::new([]), at: clock::now() - KEEP };
    resolver.known.answers.insert(host("good-before.test"), before);
    assert_eq!(resolver.lookup(&host("good-before.test"), MALLORY, LIMIT).await.unwrap().len(), 1);
    assert_eq!(asked.load(SeqCst), 1 + 28 + 2, "no more than 28 threads are stuck");
    drop(hold);
}

#[tokio::test]
async fn a_name_that_takes_too_long_is_not_waited_for_again_at_once() {
    let (resolver, asked, hold) = stub();
    let short = Duration::from_millis(50);
    assert!(matches!(
        resolver.lookup(&host("dead.test"), ALICE, LIMIT.min(short)).await,
        Err(UpstreamError::DnsTimeout)
    ));
    // With a limit so long that waiting again would be noticed.
    assert!(matches!(resolver.lookup(&host("dead.test"), ALICE, LIMIT * 100).await, Err(UpstreamError::DnsTimeout)));
    assert_eq!(asked.load(SeqCst), 1);
    drop(hold);
}

#[tokio::test]
async fn addresses_are_tried_in_an_order_that_all_agree_on() {
    let (resolver, ..) = stub();
    let ips: Vec<IpAddr> = ["192.0.2.3", "2001:db8::1", "192.0.2.1"].map(|ip| ip.parse().unwrap()).to_vec();
    let order = |resolver: &Resolver| resolver.in_order(&host("good.test"), &ips);
    assert_eq!(order(&resolver), [ips[2], ips[0], ips[1]]);
    resolver.reached(&host("good.test"), ips[1]);
    assert_eq!(order(&resolver), [ips[1], ips[2], ips[0]], "the one that answered comes first");
    resolver.reached(&host("good.test"), "192.0.2.9".parse().unwrap());
    assert_eq!(order(&resolver), [ips[2], ips[0], ips[1]], "unless the name has left it");
}
