//! Rides: how many parts of pages may start without a turn of their own.
//!
//! Where pages are counted, a page takes a turn, and the parts that its client loads afterwards ride on that turn. A
//! part that finds no ride takes a turn itself, and the parts behind it ride on that one; so it is with the hosts that
//! only serve parts of pages elsewhere.
//!
//! Promises: between two turns of a host no more than `most` parts are sent, whichever clients they belong to; a
//! client's parts ride only on a turn of that client, within [`PAGE_LOAD`], and no more than `most` on each. This
//! module only counts. It must not know holds, places or which parts wait.

use std::time::Duration;

use smallvec::SmallVec;

use super::time::Timestamp;
use super::visit::ClientId;

/// For how long parts ride on a turn: Puppeteer and Playwright give a page 30 s to load.
pub(super) const PAGE_LOAD: Duration = Duration::from_secs(30);

/// The most clients whose rides are remembered. With the usual delay of 1 s there are 30 turns in [`PAGE_LOAD`].
const MOST_CLIENTS: usize = 32;

/// The rides of one host.
#[derive(Debug, Default)]
pub(super) struct RideBook {
    /// The latest turn of each client that took one lately, oldest first.
    open: SmallVec<[OpenRide; 2]>,
    /// Parts on the latest turn of any client, as the host sees it: sent after it, or about to be.
    parts: u32,
    /// Parts that may start and are not sent yet.
    unsent: u32,
}

#[derive(Clone, Copy, Debug)]
struct OpenRide {
    client: ClientId,
    since: Timestamp,
    /// The client's own parts since then.
    parts: u32,
}

impl RideBook {
    /// Notes that a turn was sent. Parts of its client may ride on it if the turn `carries` parts.
    pub(super) fn turn(&mut self, client: ClientId, carries: bool, sent: Timestamp) {
        // A part that is still on its way reaches the host after this turn.
        self.parts = self.unsent;
        if carries {
            self.open.retain(|ride| ride.client != client && ride.since + PAGE_LOAD > sent);
            if self.open.len() >= MOST_CLIENTS {
                self.open.remove(0);
            }
            self.open.push(OpenRide { client, since: sent, parts: 0 });
        }
    }

    /// Returns since when the client has a ride that carries one more part; `None` if it has none. A host with `most`
    /// parts on its latest turn carries no more.
    pub(super) fn since(&self, client: ClientId, most: u32, now: Timestamp) -> Option<Timestamp> {
        let has_room = |ride: &&OpenRide| ride.parts < most && self.parts < most && ride.since + PAGE_LOAD > now;
        self.open.iter().find(|ride| ride.client == client).filter(has_room).map(|ride| ride.since)
    }

    /// Counts a part that may start. It is settled when it is sent or leaves.
    pub(super) fn ride(&mut self, client: ClientId) {
        self.parts += 1;
        self.unsent += 1;
        if let Some(ride) = self.open.iter_mut().find(|ride| ride.client == client) {
            ride.parts += 1;
        }
    }

    pub(super) fn settle(&mut self) {
        debug_assert!(self.unsent > 0, "a ride is settled once");
        self.unsent = self.unsent.saturating_sub(1);
    }

    /// Ends all rides. Parts that may start are still settled.
    pub(super) fn end(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Lets parts of a client ride and be sent until no more may. Returns how many did.
    fn fill(book: &mut RideBook, client: ClientId, most: u32, now: Timestamp) -> u32 {
        let mut rode = 0;
        while book.since(client, most, now).is_some() {
            book.ride(client);
            book.settle();
            rode += 1;
        }
        rode
    }

    #[test]
    fn a_turn_carries_so_many_parts_of_its_client_for_a_while() {
        let mut book = RideBook::default();
        assert_eq!(book.since(A, 3, at(0)), None, "no turn");
        book.turn(A, true, at(0));
        assert_eq!(book.since(B, 3, at(0)), None, "another client");
        assert_eq!(fill(&mut book, A, 3, at(29_999)), 3);
        book.turn(A, true, at(30_000));
        assert_eq!(book.since(A, 3, at(30_000)), Some(at(30_000)));
        assert_eq!(book.since(A, 3, at(60_000)), None, "the page has had its time");
        book.turn(A, false, at(60_000));
        assert_eq!(book.since(A, 3, at(60_000)), None, "a turn that carries nothing");
    }

    #[test]
    fn clients_share_what_the_host_takes_between_two_turns() {
        let mut book = RideBook::default();
        book.turn(A, true, at(0));
        assert_eq!(fill(&mut book, A, 5, at(0)), 5);
        book.turn(B, true, at(1_000));
        assert_eq!(fill(&mut book, A, 5, at(1_000)), 0, "its own turn is full");
        assert_eq!(fill(&mut book, B, 3, at(1_000)), 3);
        book.turn(A, true, at(2_000));
        assert_eq!((fill(&mut book, A, 2, at(2_000)), fill(&mut book, B, 5, at(2_000))), (2, 2), "B has rode 3 of 5");
        assert_eq!(fill(&mut book, A, 5, at(2_000)), 1, "five in all since the latest turn");
    }

    #[test]
    fn a_part_on_its_way_counts_on_the_turn_that_is_sent_before_it() {
        let mut book = RideBook::default();
        book.turn(A, true, at(0));
        book.ride(A);
        book.ride(A);
        book.settle();
        book.turn(A, true, at(1_000));
        assert_eq!(fill(&mut book, A, 3, at(1_000)), 2);
        book.settle();
    }

    #[test]
    fn no_more_clients_are_remembered_than_ride_at_the_usual_pace() {
        let mut book = RideBook::default();
        for client in 0..100 {
            book.turn(ClientId(client), true, at(client));
        }
        assert_eq!(book.open.len(), MOST_CLIENTS);
        assert!(book.since(ClientId(99), 1, at(100)).is_some() && book.since(ClientId(0), 1, at(100)).is_none());
        book.end();
        assert_eq!(book.since(ClientId(99), 1, at(100)), None);
    }
}
