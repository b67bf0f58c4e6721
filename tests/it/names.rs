//! Names and addresses: DNS look-ups that never end, and lanes that are keyed by address.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use curtsy::config::{Config, Key, Mode};

use crate::support::client::head;
use crate::support::{Client, Curtsy, HELLO, Origin, Stopwatch, Visitor, expect_gaps, ms, soon};

const DELAY: Duration = ms(200);

/// X14, X35, promise 5: one client's names that never resolve do not block the look-ups of other clients.
#[test]
fn dead_names_do_not_keep_good_ones_from_resolving() {
    let (hold, held) = mpsc::channel::<()>();
    let (held, stuck) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
    let counted = stuck.clone();
    let lookup = move |name: &str| {
        if name.ends_with(".good.test") {
            return Ok(vec![IpAddr::from([127, 0, 0, 1])]);
        }
        counted.fetch_add(1, Ordering::Relaxed);
        let _ = held.lock().unwrap().recv();
        Err(io::Error::other("no answer"))
    };
    let origin = Origin::hello();
    let curtsy = Curtsy::resolving(lookup, |config| config.upstream.dns_timeout = Duration::from_secs(60));
    let dead: Vec<Client> = (0..300)
        .map(|number| {
            let mut client = curtsy.client();
            let (line, host) =
                (format!("GET http://{number}.dead.test/ HTTP/1.1"), format!("Host: {number}.dead.test"));
            client.send(head(&[&line, &host, "Curtsy-Client: mallory"]));
            client
        })
        .collect();
    assert!(soon(|| stuck.load(Ordering::Relaxed) >= 28), "{stuck:?} look-ups began");
    for number in 0..5 {
        let line = format!("GET http://{number}.good.test:{}/ HTTP/1.1", origin.port());
        assert_eq!(curtsy.ask(&[&line, "Curtsy-Client: alice"]).text(), "hello");
    }
    assert_eq!(stuck.load(Ordering::Relaxed), 28, "one client has no more threads than its share");
    drop((hold, dead));
}

/// An origin on several loopback addresses that notes which address was visited when.
struct Street {
    origin: Origin,
    visits: Arc<Mutex<Vec<(IpAddr, Duration)>>>,
}

impl Street {
    fn on(ip: &str) -> Self {
        let (visits, watch) = (Arc::<Mutex<Vec<_>>>::default(), Stopwatch::start());
        let noted = visits.clone();
        let origin = Origin::on(ip, move |visitor: &mut Visitor| {
            while let Some(request) = visitor.request() {
                noted.lock().expect("no test thread has panicked").push((visitor.local().ip(), watch.at(request.at)));
                visitor.send(HELLO);
            }
        });
        Street { origin, visits }
    }

    /// The times at which this address was visited, in order.
    fn at(&self, ip: [u8; 4]) -> Vec<Duration> {
        let visits = self.visits.lock().expect("no test thread has panicked");
        let mut times: Vec<_> =
            visits.iter().filter(|(at, _)| *at == IpAddr::from(ip)).map(|(_, time)| *time).collect();
        times.sort();
        times
    }
}

fn by_address(config: &mut Config) {
    config.politeness.mode = Mode::Enforce;
    config.politeness.delay = DELAY;
    config.pacing.key = Key::Ip;
}

/// Promise 1, X3, X67: when a name resolves to another address, its requests are paced in the lane of the new address,
/// on kept connections, too.
#[test]
fn a_name_that_moves_is_paced_where_it_is() {
    let (street, moved) = (Street::on("0.0.0.0"), Arc::new(AtomicUsize::new(2)));
    let place = moved.clone();
    let lookup = move |name: &str| {
        let last = if name == "moving.test" { place.load(Ordering::Relaxed) as u8 } else { 3 };
        Ok(vec![IpAddr::from([127, 0, 0, last])])
    };
    let curtsy = Curtsy::resolving(lookup, by_address);
    let ask = |name: &str| {
        assert_eq!(curtsy.get(&format!("http://{name}:{}/", street.origin.port())).text(), "hello", "{name}");
    };
    ask("moving.test");
    ask("settled.test");
    assert_eq!((street.at([127, 0, 0, 2]).len(), street.at([127, 0, 0, 3]).len()), (1, 1));
    moved.store(3, Ordering::Relaxed);
    for _ in 0..4 {
        ask("moving.test");
        ask("settled.test");
    }
    assert_eq!(street.at([127, 0, 0, 2]).len(), 1, "it has left that address");
    curtsy.expect_gaps(&street.at([127, 0, 0, 3]), DELAY);
}

/// Promise 1: if the first address refuses the connection, the next address is paced in its own lane.
#[test]
fn the_second_address_of_a_name_has_its_own_lane() {
    let street = Street::on("127.0.0.5");
    let lookup = |name: &str| {
        let addresses: &[u8] = if name == "two.test" { &[4, 5] } else { &[5] };
        Ok(addresses.iter().map(|last| IpAddr::from([127, 0, 0, *last])).collect())
    };
    let curtsy = Curtsy::resolving(lookup, by_address);
    let port = street.origin.port();
    for _ in 0..3 {
        for name in ["two.test", "one.test"] {
            assert_eq!(curtsy.get(&format!("http://{name}:{port}/")).text(), "hello", "{name}");
        }
    }
    // The same in a tunnel.
    for name in ["two.test", "one.test"] {
        let mut client = curtsy.client();
        let opened = client.ask(&[&format!("CONNECT {name}:{port} HTTP/1.1"), "Host: x"]);
        assert_eq!(opened.status(), 200, "{name}");
        client.send_head(&["GET / HTTP/1.1", &format!("Host: {name}:{port}")]);
        assert_eq!(client.response().text(), "hello");
    }
    let visits = street.at([127, 0, 0, 5]);
    assert_eq!(visits.len(), 8);
    expect_gaps(&visits[..6], DELAY);
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}
