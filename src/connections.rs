//! Open client connections by address, so that one address cannot shut out the others.
//!
//! While there is room, an address may have as many connections as it likes. When the limit is reached, an address with
//! fewer connections takes a place from the address that has the most. The connection that gives way is one without a
//! request, the one that would time out soonest. If there is none, the oldest connection ends after its present
//! response, and the new one is refused until then. No request is cut off for another. A single address may use the
//! whole limit.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::timeout_stream::Deadline;

/// How long the address with the most connections is limited to half of the places after another address was refused.
/// The refused client was told to retry after one second, and clients wait up to ten times that.
const CONTESTED: Duration = Duration::from_secs(10);

/// Open connections of one kind of listener.
#[derive(Debug, Default)]
pub struct Connections(Mutex<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    next: u64,
    total: usize,
    /// The limits of each address' connections, the oldest first.
    addresses: HashMap<IpAddr, BTreeMap<u64, Arc<Deadline>>>,
    /// Connections that were told to end for others and are not closed yet. They are not in `addresses` and `total`.
    leaving: usize,
    /// When an address was last refused although another had more connections.
    contested: Option<Instant>,
}

/// While this many are closing, no more are told to end; this bounds the connections beyond the limit. A worker notices
/// within milliseconds, and accepts 128 at most before it looks.
const MOST_LEAVING: usize = 256;

/// Which address gives way when all places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivesWay {
    /// An address that has more than the newcomer's.
    Others,
    /// The address that has the most, the newcomer's own included.
    Anyone,
}

/// A connection, counted while this lives.
#[derive(Debug)]
pub struct OpenConnection {
    connections: Arc<Connections>,
    address: IpAddr,
    number: u64,
}

impl Connections {
    /// Counts a connection from this address whose patience is `limit`; `None` if there is no place for it.
    pub fn enter(
        self: &Arc<Self>,
        peer: IpAddr,
        limit: &Arc<Deadline>,
        most: usize,
        gives_way: GivesWay,
    ) -> Option<OpenConnection> {
        let address = neighbourhood(peer);
        let mut ledger = self.0.lock();
        if ledger.total >= most {
            ledger.make_room(address, gives_way)?;
        } else if ledger.total >= most / 2 && ledger.is_contested() && ledger.has_the_most(address) {
            return None;
        }
        let number = ledger.next;
        ledger.next += 1;
        ledger.total += 1;
        ledger.addresses.entry(address).or_default().insert(number, limit.clone());
        Some(OpenConnection { connections: self.clone(), address, number })
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.0.lock().total
    }
}

impl Ledger {
    /// Ends a connection of the address that has the most, if it may give way to this one and one of its connections
    /// has no request.
    fn make_room(&mut self, newcomer: IpAddr, gives_way: GivesWay) -> Option<()> {
        if self.leaving >= MOST_LEAVING {
            return None;
        }
        let own = self.addresses.get(&newcomer).map_or(0, BTreeMap::len);
        let (&biggest, limits) = self.addresses.iter().max_by_key(|(_, limits)| limits.len())?;
        // Taking a place from an address with only one more would just swap the two.
        if gives_way == GivesWay::Others && own + 1 >= limits.len() {
            return None;
        }
        let resting = limits.iter().filter_map(|(number, limit)| Some((limit.rests_until()?, *number)));
        match resting.min() {
            Some((_, number)) => {
                limits[&number].dismiss();
                self.remove(biggest, number);
                self.leaving += 1;
                Some(())
            }
            None => {
                limits.values().find(|limit| !limit.is_dismissed())?.dismiss();
                self.contested = Some(clock::now());
                None
            }
        }
    }

    fn is_contested(&self) -> bool {
        self.contested.is_some_and(|at| clock::now().duration_since(at) < CONTESTED)
    }

    fn has_the_most(&self, address: IpAddr) -> bool {
        let own = self.addresses.get(&address).map_or(0, BTreeMap::len);
        own > 0 && self.addresses.values().all(|limits| limits.len() <= own)
    }

    /// Returns whether the connection was still counted.
    fn remove(&mut self, address: IpAddr, number: u64) -> bool {
        let Some(limits) = self.addresses.get_mut(&address) else { return false };
        let was_there = limits.remove(&number).is_some();
        if was_there {
            self.total -= 1;
        }
        if limits.is_empty() {
            self.addresses.remove(&address);
        }
        was_there
    }
}

impl OpenConnection {
    /// Follows another limit from now on: the connection has become a tunnel with requests inside.
    pub fn follow(&self, limit: &Arc<Deadline>) {
        let mut ledger = self.connections.0.lock();
        if let Some(known) = ledger.addresses.get_mut(&self.address).and_then(|limits| limits.get_mut(&self.number)) {
            *known = limit.clone();
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut ledger = self.connections.0.lock();
        if !ledger.remove(self.address, self.number) {
            ledger.leaving -= 1;
        }
    }
}

/// What counts as one address: for IPv6 the first 64 bits, which identify a network. Every host in that network can
/// choose the other 64.
pub fn neighbourhood(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn resting(seconds: u64) -> Arc<Deadline> {
        let limit = Arc::new(Deadline::watched());
        limit.begin_within(Duration::from_secs(seconds), Duration::from_secs(1), clock::now());
        limit
    }

    fn busy() -> Arc<Deadline> {
        Arc::new(Deadline::watched())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_alone_may_have_all() {
        let connections = Arc::new(Connections::default());
        let open: Vec<_> = (0..8).filter_map(|_| connections.enter(address(1), &busy(), 8, GivesWay::Others)).collect();
        assert_eq!((open.len(), connections.count()), (8, 8));
        assert!(connections.enter(address(1), &busy(), 8, GivesWay::Others).is_none());
        drop(open);
        assert_eq!(connections.count(), 0);
        assert!(connections.0.lock().addresses.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_would_end_soonest_gives_way() {
        let connections = Arc::new(Connections::default());
        let limits = [resting(50), busy(), resting(20), resting(70)];
        let open = limits.each_ref().map(|limit| connections.enter(address(1), limit, 4, GivesWay::Others).unwrap());
        let _other = connections.enter(address(2), &resting(9), 4, GivesWay::Others).expect("a place is made");
        assert_eq!(limits.each_ref().map(|limit| limit.is_dismissed()), [false, false, true, false]);
        assert_eq!((connections.count(), connections.0.lock().leaving), (4, 1));
        drop(open);
        assert_eq!((connections.count(), connections.0.lock().leaving), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_one_gives_way_when_it_is_done() {
        let connections = Arc::new(Connections::default());
        let limits = [busy(), busy(), busy(), busy()];
        let mut open: Vec<_> =
            limits.iter().map(|limit| connections.enter(address(1), limit, 4, GivesWay::Others)).collect();
        assert!(connections.enter(address(2), &busy(), 4, GivesWay::Others).is_none());
        assert!(limits[0].is_dismissed() && !limits[1].is_dismissed());
        open.pop();
        assert!(connections.enter(address(1), &busy(), 4, GivesWay::Others).is_none(), "another was turned away");
        assert!(connections.enter(address(2), &busy(), 4, GivesWay::Others).is_some());
        tokio::time::advance(CONTESTED).await;
        assert!(connections.enter(address(1), &busy(), 4, GivesWay::Others).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn equals_take_nothing_from_each_other() {
        let connections = Arc::new(Connections::default());
        let _open: Vec<_> =
            (0..4).map(|n| connections.enter(address(n % 2), &resting(9), 4, GivesWay::Others).unwrap()).collect();
        assert!(connections.enter(address(0), &resting(9), 4, GivesWay::Others).is_none());
        assert!(connections.enter(address(0), &resting(9), 4, GivesWay::Anyone).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let same = |a: &str, b: &str| neighbourhood(a.parse().unwrap()) == neighbourhood(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
