//! The table of flights, under random orders of what its members do.
//!
//! # Can it fail?
//! `flights.rs` was broken on purpose, one line at a time; the test found each of these:
//!
//! | broken on purpose | what was seen |
//! |---|---|
//! | forget: a request that is alone stays | it stays under way after all have left |
//! | leave: a request that is alone is not forgotten | the same |
//! | leave: the last member of a flight does not forget it | the same |
//! | land: the flight is not forgotten | it is under way without a member |
//! | hand_over: the request that hands over leaves as well | a member leads what is not under way |

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const PATHS: [&str; 3] = ["/a", "/b", "/c"];

/// What happens to one of the requests under way.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Its turn is near.
    Called,
    /// Its answer is in, if it leads: for others too, or for it alone.
    Answered(bool),
    /// It leads, and is sent again.
    Retried,
    /// It leads, and its turn was not near after all.
    BackInLine,
    /// It leads, its client has disconnected, and the answer is still awaited.
    Orphaned,
    /// Its client has disconnected, or it has failed.
    Gone,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize),
    Happens(usize, Event),
}

fn step() -> impl Strategy<Value = Step> {
    let event = prop_oneof![
        4 => Just(Event::Called),
        2 => Just(Event::Answered(true)),
        // Rare, because later requests for its URL go alone.
        1 => (0..8_u8).prop_map(|dice| Event::Answered(dice > 0)),
        1 => Just(Event::Retried),
        1 => Just(Event::BackInLine),
        1 => Just(Event::Orphaned),
        3 => Just(Event::Gone),
    ];
    prop_oneof![
        (0..PATHS.len()).prop_map(Step::Ask),
        (any::<usize>(), event).prop_map(|(which, event)| Step::Happens(which, event)),
    ]
}

/// Lets it happen to a request. Returns the request if it goes on.
fn happens(member: Membership, event: Event) -> Option<Membership> {
    match event {
        Event::Called if member.called() == CallReply::Lead => member.sent(),
        Event::Answered(for_all) if member.leads() => {
            // As in `landing`.
            if member.lands_alone() {
            } else if for_all {
                member.share_stored();
            } else {
                member.keep_private();
            }
            return None;
        }
        Event::Retried if member.leads() => member.retries(),
        Event::BackInLine if member.leads() => member.waits_again(),
        Event::Orphaned if member.leads() => return Some(member.hand_over()),
        Event::Gone => return None,
        _ => {}
    }
    Some(member)
}

/// What is under way, by its hash.
fn under_way(flights: &Flights) -> Vec<u64> {
    flights.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
}

proptest! {
    /// What is under way has a member at any moment, so nothing is under way when all have left.
    #[test]
    fn nothing_is_under_way_without_a_member(steps in vec(step(), 1..60)) {
        let flights = Flights::new(Arc::new(Cache::new(1 << 20)), Arc::default());
        let mut members: Vec<Membership> = Vec::new();
        for step in steps {
            match step {
                Step::Ask(path) => members.extend(flights.join(&CachePlan::of_get(PATHS[path]))),
                Step::Happens(..) if members.is_empty() => {}
                Step::Happens(which, event) => {
                    let which = which % members.len();
                    let member = members.swap_remove(which);
                    members.extend(happens(member, event));
                }
            }
            let under_way = under_way(&flights);
            let leads_nothing = |member: &&Membership| member.leads() && !under_way.contains(&member.hash);
            prop_assert!(members.iter().find(leads_nothing).is_none(), "leads what is not under way");
            for hash in under_way {
                let has_member = members.iter().any(|member| member.hash == hash && !member.is_void.load(Relaxed));
                prop_assert!(has_member, "under way without a member");
            }
        }
        drop(members);
        prop_assert!(under_way(&flights).is_empty(), "under way after all have left");
    }
}
