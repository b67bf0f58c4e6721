//! Tests of what `Queue` promises: examples, and every operation against a slow model without lines or rings.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const USUAL: u8 = 3;

fn join(queue: &mut Queue, visit: u32, client: u64) {
    queue.join(visit, Rank::Newcomer, ClientId(client), USUAL);
}

fn drain(queue: &mut Queue) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop()).collect()
}

#[test]
fn one_client_is_served_first_come_first_served() {
    let mut queue = Queue::default();
    for visit in 0..5 {
        join(&mut queue, visit, 1);
    }
    assert_eq!(drain(&mut queue), [0, 1, 2, 3, 4]);
    assert_eq!(queue.pop(), None);
}

#[test]
fn clients_take_turns() {
    let mut queue = Queue::default();
    for visit in 0..3 {
        join(&mut queue, visit, 1);
    }
    join(&mut queue, 3, 2);
    join(&mut queue, 4, 2);
    join(&mut queue, 5, 3);
    assert_eq!(drain(&mut queue), [0, 3, 5, 1, 4, 2]);
}

#[test]
fn a_client_that_comes_later_waits_one_round_and_no_more() {
    let mut queue = Queue::default();
    for visit in 0..1_000 {
        join(&mut queue, visit, 1);
    }
    assert_eq!(queue.ahead(Rank::Newcomer, ClientId(2), USUAL), 1);
    join(&mut queue, 1_000, 2);
    assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(1_000)));
    assert_eq!(queue.ahead(Rank::Newcomer, ClientId(1), USUAL), 999);
}

/// S62
#[test]
fn urgency_orders_only_a_clients_own_visits() {
    let mut queue = Queue::default();
    queue.join(0, Rank::Newcomer, ClientId(1), 3);
    queue.join(1, Rank::Newcomer, ClientId(1), 7);
    queue.join(2, Rank::Newcomer, ClientId(2), 5);
    assert_eq!(queue.ahead(Rank::Newcomer, ClientId(1), 0), 1, "the other client's visit");
    queue.join(3, Rank::Newcomer, ClientId(1), 0);
    queue.join(4, Rank::Newcomer, ClientId(1), 3);
    assert_eq!(drain(&mut queue), [3, 2, 0, 4, 1]);
}

#[test]
fn retries_then_the_returning_then_newcomers() {
    let mut queue = Queue::default();
    join(&mut queue, 0, 1);
    queue.join(1, Rank::Returning, ClientId(2), USUAL);
    queue.join(2, Rank::Retry, ClientId(3), USUAL);
    queue.join(3, Rank::Retry, ClientId(1), 0);
    queue.join(4, Rank::Returning, ClientId(2), 0);
    assert_eq!(drain(&mut queue), [2, 3, 1, 4, 0]);
}

#[test]
fn a_place_in_the_middle_is_given_up_without_a_trace() {
    let mut queue = Queue::default();
    for visit in 0..4 {
        join(&mut queue, visit, u64::from(visit) % 2);
    }
    queue.leave(0);
    queue.leave(3);
    assert_eq!(queue.len(), 2);
    assert_eq!(drain(&mut queue), [2, 1]);
}

#[test]
fn a_crowds_room_goes_back() {
    let mut queue = Queue::default();
    for visit in 0..10_000 {
        join(&mut queue, visit, u64::from(visit));
    }
    assert_eq!(drain(&mut queue).len(), 10_000);
    assert!(queue.crowd.is_none());
}

/// A client: a name at an address.
fn named(address: u64, name: u64) -> ClientId {
    ClientId(address << 32).named(ClientId(name))
}

#[test]
fn names_share_the_turns_of_their_address() {
    let mut queue = Queue::default();
    for visit in 0..150 {
        queue.join(visit, Rank::Newcomer, named(1, visit.into()), USUAL);
    }
    assert_eq!(queue.ahead(Rank::Newcomer, named(2, 7), USUAL), 1);
    assert_eq!(queue.ahead(Rank::Newcomer, named(1, 999), USUAL), 150);
    queue.join(200, Rank::Newcomer, named(2, 7), USUAL);
    queue.join(201, Rank::Newcomer, named(2, 7), USUAL);
    queue.join(202, Rank::Newcomer, named(2, 8), USUAL);
    let order = drain(&mut queue);
    assert_eq!(order[..8], [0, 200, 1, 202, 2, 201, 3, 4]);
}

/// The same rules as an order of times: of the owners, and then of the owner's clients, the one that was served or
/// passed over longest ago is next. One with nothing else waiting counts as served when it joins.
#[derive(Default)]
struct Model {
    now: u64,
    waiting: Vec<QueueEntry>,
    owners: HashMap<u32, u64>,
    clients: HashMap<ClientId, u64>,
}

impl Model {
    fn join(&mut self, place: QueueEntry) {
        if place.rank == Rank::Newcomer {
            self.now += 1;
            self.owners.entry(place.client.owner()).or_insert(self.now);
            self.clients.entry(place.client).or_insert(self.now);
        }
        self.waiting.push(place);
    }

    fn leave(&mut self, visit: u32) {
        self.waiting.retain(|place| place.visit != visit);
        let newcomers = || self.waiting.iter().filter(|place| place.rank == Rank::Newcomer);
        self.owners.retain(|&id, _| newcomers().any(|place| place.client.owner() == id));
        self.clients.retain(|&id, _| newcomers().any(|place| place.client == id));
    }

    /// A stable sort keeps visits that are equal in every other way in the order in which they joined.
    fn next(&self, wanted: impl Fn(&QueueEntry) -> bool) -> Option<QueueEntry> {
        let mut waiting: Vec<&QueueEntry> = self.waiting.iter().filter(|place| wanted(place)).collect();
        waiting.sort_by_key(|place| {
            let newcomer = (self.owners.get(&place.client.owner()), self.clients.get(&place.client), place.urgency);
            (place.rank, (place.rank == Rank::Newcomer).then_some(newcomer))
        });
        waiting.first().copied().copied()
    }

    fn take(&mut self, QueueEntry { visit, rank, client, .. }: QueueEntry) {
        if rank == Rank::Newcomer {
            let (owner, line) = (self.owners[&client.owner()], self.clients[&client]);
            self.now = pass(self.owners.values_mut().collect(), owner, self.now);
            let same = self.clients.iter_mut().filter(|(id, _)| id.owner() == client.owner());
            self.now = pass(same.map(|(_, time)| time).collect(), line, self.now);
        }
        self.leave(visit);
    }
}

/// Moves every time up to `last` behind all others, in the same order. Returns the latest.
fn pass(mut times: Vec<&mut u64>, last: u64, mut now: u64) -> u64 {
    times.sort();
    for time in times.into_iter().take_while(|time| **time <= last) {
        now += 1;
        *time = now;
    }
    now
}

#[derive(Clone, Debug)]
enum QueueAct {
    Join(Rank, u64, u8),
    Leave(usize),
    Pop,
    /// Takes the first newcomer of this client, past everything before it.
    Pass(u64),
}

/// Three names at each of three addresses.
fn client() -> impl Strategy<Value = u64> {
    (0_u64..3, 0_u64..3).prop_map(|(address, name)| named(address, name).0)
}

fn acts() -> impl Strategy<Value = Vec<QueueAct>> {
    let rank = prop_oneof![1 => Just(Rank::Retry), 1 => Just(Rank::Returning), 6 => Just(Rank::Newcomer)];
    let act = prop_oneof![
        5 => (rank, client(), 0_u8..8).prop_map(|(rank, client, urgency)| QueueAct::Join(rank, client, urgency)),
        2 => (0_usize..1_000).prop_map(QueueAct::Leave),
        3 => Just(QueueAct::Pop),
        1 => client().prop_map(QueueAct::Pass),
    ];
    proptest::collection::vec(act, 1..300)
}

proptest! {
    #[test]
    fn it_does_what_the_model_does(acts in acts()) {
        let (mut queue, mut model) = (Queue::default(), Model::default());
        for (visit, act) in (0..).zip(acts) {
            match act {
                QueueAct::Join(rank, client, urgency) => {
                    let client = ClientId(client);
                    queue.join(visit, rank, client, urgency);
                    model.join(QueueEntry { visit, rank, client, urgency });
                }
                QueueAct::Leave(chosen) if !model.waiting.is_empty() => {
                    let visit = model.waiting[chosen % model.waiting.len()].visit;
                    queue.leave(visit);
                    model.leave(visit);
                }
                QueueAct::Leave(_) => {}
                QueueAct::Pop => {
                    prop_assert_eq!(queue.next(), queue.next());
                    let next = model.next(|_| true);
                    prop_assert_eq!(queue.pop(), next.map(|place| place.visit));
                    next.into_iter().for_each(|place| model.take(place));
                }
                QueueAct::Pass(client) => {
                    let its = |place: &QueueEntry| place.rank == Rank::Newcomer && place.client == ClientId(client);
                    let next = model.next(its);
                    let of_client = |visit| model.waiting.iter().any(|place| place.visit == visit && its(place));
                    prop_assert_eq!(queue.first(|visit, _| of_client(visit)), next.map(|place| place.visit));
                    if let Some(place) = next {
                        queue.take(place.visit);
                        model.take(place);
                    }
                }
            }
            prop_assert_eq!(queue.len(), model.waiting.len());
            prop_assert_eq!(queue.clients(), model.clients.len().max(1));
            prop_assert_eq!(queue.in_order().first().copied(), queue.next());
        }
        let order = queue.in_order();
        let in_model = std::iter::from_fn(|| model.next(|_| true).inspect(|&place| model.take(place)));
        prop_assert_eq!(&order, &in_model.map(|place| place.visit).collect::<Vec<_>>());
        prop_assert_eq!(order, drain(&mut queue));
        prop_assert_eq!(queue.pop(), None);
    }

    /// `ahead` counts the visits that really go first: exactly for an owner with nothing waiting, never too few for any
    /// other.
    #[test]
    fn ahead_is_what_goes_first(acts in acts(), client in client(), urgency in 0_u8..8) {
        let mut queue = Queue::default();
        let mut number = 0;
        let mut waiting: Vec<(u32, u64)> = Vec::new();
        for act in acts {
            match act {
                QueueAct::Join(rank, client, urgency) => {
                    queue.join(number, rank, ClientId(client), urgency);
                    waiting.push((number, client));
                    number += 1;
                }
                QueueAct::Pop | QueueAct::Leave(_) | QueueAct::Pass(_) => {
                    let visit = queue.pop();
                    waiting.retain(|&(other, _)| Some(other) != visit);
                }
            }
        }
        let newly_come = !waiting.iter().any(|&(_, other)| ClientId(other).owner() == ClientId(client).owner());
        let told = queue.ahead(Rank::Newcomer, ClientId(client), urgency);
        let mut seen = Vec::new();
        queue.each_ahead(Rank::Newcomer, ClientId(client), urgency, |visit| seen.push(visit));
        queue.join(number, Rank::Newcomer, ClientId(client), urgency);
        let order = drain(&mut queue);
        let real = order.iter().position(|&visit| visit == number).unwrap();
        prop_assert_eq!(seen.len(), told);
        prop_assert!(order[..real].iter().all(|visit| seen.contains(visit)));
        prop_assert!(told >= real, "told {told}, was {real}");
        prop_assert!(!newly_come || told == real, "told {told}, was {real}");
    }
}
