//! Tests of what `Queue` promises: examples, and every operation against a slow and obvious model.

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

/// The same rules, spelled out over plain lists.
#[derive(Default)]
struct Model {
    fixed: [Vec<u32>; 2],
    ring: Vec<(u32, ModelOwner)>,
}

/// The clients of one owner, each with its visits.
type ModelOwner = Vec<(u64, Vec<(u8, u32)>)>;

impl Model {
    fn join(&mut self, visit: u32, rank: Rank, client: u64, urgency: u8) {
        match rank {
            Rank::Retry => self.fixed[0].push(visit),
            Rank::Returning => self.fixed[1].push(visit),
            Rank::Newcomer => {
                let owner = entry(&mut self.ring, ClientId(client).owner());
                let line = entry(owner, client);
                let place = line.iter().take_while(|(other, _)| *other <= urgency).count();
                line.insert(place, (urgency, visit));
            }
        }
    }

    fn leave(&mut self, visit: u32) {
        self.fixed.iter_mut().for_each(|line| line.retain(|&other| other != visit));
        for (_, owner) in &mut self.ring {
            owner.iter_mut().for_each(|(_, line)| line.retain(|&(_, other)| other != visit));
            owner.retain(|(_, line)| !line.is_empty());
        }
        self.ring.retain(|(_, owner)| !owner.is_empty());
    }

    fn pop(&mut self) -> Option<u32> {
        if let Some(line) = self.fixed.iter_mut().find(|line| !line.is_empty()) {
            return Some(line.remove(0));
        }
        if self.ring.is_empty() {
            return None;
        }
        let (id, mut owner) = self.ring.remove(0);
        let (client, mut line) = owner.remove(0);
        let (_, visit) = line.remove(0);
        if !line.is_empty() {
            owner.push((client, line));
        }
        if !owner.is_empty() {
            self.ring.push((id, owner));
        }
        Some(visit)
    }
}

/// Returns the list of a key, which is at the end of the ring if it is new.
fn entry<K: PartialEq, T>(ring: &mut Vec<(K, Vec<T>)>, key: K) -> &mut Vec<T> {
    let index = ring.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
        ring.push((key, Vec::new()));
        ring.len() - 1
    });
    &mut ring[index].1
}

#[derive(Clone, Debug)]
enum Act {
    Join(Rank, u64, u8),
    Leave(usize),
    Pop,
}

/// Three names at each of three addresses.
fn client() -> impl Strategy<Value = u64> {
    (0_u64..3, 0_u64..3).prop_map(|(address, name)| named(address, name).0)
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let rank = prop_oneof![1 => Just(Rank::Retry), 1 => Just(Rank::Returning), 6 => Just(Rank::Newcomer)];
    let act = prop_oneof![
        5 => (rank, client(), 0_u8..8).prop_map(|(rank, client, urgency)| Act::Join(rank, client, urgency)),
        2 => (0_usize..1_000).prop_map(Act::Leave),
        3 => Just(Act::Pop),
    ];
    proptest::collection::vec(act, 1..300)
}

proptest! {
    #[test]
    fn it_does_what_the_model_does(acts in acts()) {
        let (mut queue, mut model) = (Queue::default(), Model::default());
        let mut waiting: Vec<u32> = Vec::new();
        for act in acts {
            match act {
                Act::Join(rank, client, urgency) => {
                    let visit = (0..).find(|number| !waiting.contains(number)).unwrap();
                    queue.join(visit, rank, ClientId(client), urgency);
                    model.join(visit, rank, client, urgency);
                    waiting.push(visit);
                }
                Act::Leave(chosen) if !waiting.is_empty() => {
                    let visit = waiting.swap_remove(chosen % waiting.len());
                    queue.leave(visit);
                    model.leave(visit);
                }
                Act::Leave(_) => {}
                Act::Pop => {
                    prop_assert_eq!(queue.next(), queue.next());
                    let visit = queue.pop();
                    prop_assert_eq!(visit, model.pop());
                    waiting.retain(|&other| Some(other) != visit);
                }
            }
            prop_assert_eq!(queue.len(), waiting.len());
            prop_assert_eq!(queue.in_order().first().copied(), queue.next());
        }
        let order = queue.in_order();
        prop_assert_eq!(&order, &std::iter::from_fn(|| model.pop()).collect::<Vec<_>>());
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
                Act::Join(rank, client, urgency) => {
                    queue.join(number, rank, ClientId(client), urgency);
                    waiting.push((number, client));
                    number += 1;
                }
                Act::Pop | Act::Leave(_) => {
                    let visit = queue.pop();
                    waiting.retain(|&(other, _)| Some(other) != visit);
                }
            }
        }
        let newly_come = !waiting.iter().any(|&(_, other)| ClientId(other).owner() == ClientId(client).owner());
        let told = queue.ahead(Rank::Newcomer, ClientId(client), urgency);
        queue.join(number, Rank::Newcomer, ClientId(client), urgency);
        let real = drain(&mut queue).iter().position(|&visit| visit == number).unwrap();
        prop_assert!(told >= real, "told {told}, was {real}");
        prop_assert!(!newly_come || told == real, "told {told}, was {real}");
    }
}
