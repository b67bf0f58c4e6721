//! Every order of events in small worlds: up to three requests of every kind that arrive, are called, are sent, fail,
//! are retried, lose patience and disconnect. Each state that can be reached is checked.
//!
//! # Can it fail?
//! [`DriverFlaw`] makes the driver of a flight do something wrong; each must be caught. And `flight.rs` was broken on
//! purpose, one line at a time; the search found each of these:
//!
//! | broken on purpose | what was seen |
//! |---|---|
//! | join: a request for the newest answer follows one that is sent | it shared an old answer |
//! | called: a second member leads too | two under way |
//! | called: a HEAD leads | a HEAD leads |
//! | sent: not noted | a request for the newest answer shared an old one |
//! | waits_again: the members that are aside are not released | aside without a leader |
//! | leave: the leader's place is not given up | aside without a leader |
//! | leave: the members that are aside are not released | aside without a leader |
//! | leave: the member stays | the flight is not empty |
//! | release: the flight counts as sent for ever | a member could not join an unsent flight |

use std::collections::HashSet;

use super::*;

/// So the search covers flights that begin with their first member under way.
#[test]
fn a_flight_under_way_is_one_whose_first_member_was_called_and_sent() {
    let mut flight = Flight::default();
    assert_eq!(flight.join(Following::Any), Some(Member::FIRST));
    assert_eq!(flight.called(Member::FIRST), CallReply::Lead);
    flight.sent(Member::FIRST);
    assert_eq!(Flight::under_way(), flight);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Out,
    InLine,
    Aside(Round),
    Leading,
    Sent,
    /// Sent, and its client has disconnected.
    Orphan,
    /// Under way without the flight.
    Alone,
    Shared,
    Answered,
    Left,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Sky {
    flight: Flight,
    stages: Vec<Stage>,
    members: Vec<Option<Member>>,
    /// Joined when the present request of the flight was already sent.
    came_late: Vec<bool>,
    /// Whether the answer may be shared, once its head is in.
    landed: Option<bool>,
    /// A leader was sent back into the line once.
    retried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    Arrive,
    Call,
    /// The turn has come, and the client has no time to step aside.
    CallImpatient,
    Wake,
    Tire,
    Send,
    TurnLost,
    Retry,
    HeadShared,
    HeadPrivate,
    Fail,
    Answer,
    Disconnect,
}

const HAPPENINGS: [Happening; 13] = [
    Happening::Arrive,
    Happening::Call,
    Happening::CallImpatient,
    Happening::Wake,
    Happening::Tire,
    Happening::Send,
    Happening::TurnLost,
    Happening::Retry,
    Happening::HeadShared,
    Happening::HeadPrivate,
    Happening::Fail,
    Happening::Answer,
    Happening::Disconnect,
];

/// What the driver of a flight can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverFlaw {
    SharesPrivate,
    /// Does not report a leader that fails.
    HidesFailure,
    /// Does not report that the request is sent.
    HidesSend,
    /// Drops the answer with its leader's client, although others wait for it, and reports nothing.
    DropsWithLeader,
    /// Forgets members that go on alone.
    KeepsTheTired,
    /// Steps aside without looking whether it leads.
    LeaderStepsAside,
}

struct Search {
    kinds: Vec<Following>,
    flaw: Option<DriverFlaw>,
    seen: HashSet<Sky>,
    shared: u64,
}

impl Search {
    fn run(kinds: &[Following], flaw: Option<DriverFlaw>) -> Result<Search, String> {
        let size = kinds.len();
        let mut search = Search { kinds: kinds.to_vec(), flaw, seen: HashSet::new(), shared: 0 };
        let first = Sky {
            flight: Flight::default(),
            stages: vec![Stage::Out; size],
            members: vec![None; size],
            came_late: vec![false; size],
            landed: None,
            retried: false,
        };
        let mut open = vec![first];
        while let Some(sky) = open.pop() {
            if search.seen.contains(&sky) {
                continue;
            }
            search.check(&sky)?;
            let next: Vec<Sky> = (0..size)
                .flat_map(|one| HAPPENINGS.map(|happening| (one, happening)))
                .filter_map(|(one, happening)| search.happen(sky.clone(), one, happening))
                .collect::<Result<_, _>>()?;
            if next.is_empty() {
                search.check_end(&sky)?;
            }
            open.extend(next);
            search.seen.insert(sky);
        }
        Ok(search)
    }

    fn flawed(&self, flaw: DriverFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns the world after this happens to one request; `None` if it cannot happen.
    fn happen(&mut self, mut sky: Sky, one: usize, happening: Happening) -> Option<Result<Sky, String>> {
        let stage = sky.stages[one];
        let next = match (stage, happening) {
            (Stage::Out, Happening::Arrive) => self.arrive(&mut sky, one),
            (Stage::InLine, Happening::Call | Happening::CallImpatient) if sky.landed.is_none() => {
                match self.call(&mut sky, one, happening) {
                    Ok(stage) => stage,
                    Err(story) => return Some(Err(story)),
                }
            }
            (Stage::InLine, Happening::Wake) if sky.landed.is_some() => self.head_is_in(&mut sky, one),
            (Stage::Aside(round), Happening::Wake) if sky.flight.is_released(round) => match sky.landed {
                Some(_) => self.head_is_in(&mut sky, one),
                None => Stage::InLine,
            },
            (Stage::Aside(_), Happening::Tire) => {
                if !self.flawed(DriverFlaw::KeepsTheTired) {
                    leave(&mut sky, one);
                }
                Stage::Alone
            }
            (Stage::Leading, Happening::Send) => self.send(&mut sky, one),
            (Stage::Leading, Happening::TurnLost) | (Stage::Sent, Happening::Retry) if !sky.retried => {
                sky.retried = true;
                sky.flight.waits_again(sky.members[one]?, stage == Stage::Sent);
                Stage::InLine
            }
            (Stage::Sent | Stage::Orphan, Happening::HeadShared | Happening::HeadPrivate) => {
                sky.landed = Some(happening == Happening::HeadShared);
                sky.flight.landed(sky.members[one]?);
                if stage == Stage::Sent { Stage::Answered } else { Stage::Left }
            }
            (Stage::Leading | Stage::Sent | Stage::Orphan, Happening::Fail) => {
                if !self.flawed(DriverFlaw::HidesFailure) {
                    leave(&mut sky, one);
                }
                if stage == Stage::Orphan { Stage::Left } else { Stage::Answered }
            }
            (Stage::Alone, Happening::Answer) => Stage::Answered,
            (Stage::Sent, Happening::Disconnect) if sky.flight.has_others(sky.members[one]?) => {
                if self.flawed(DriverFlaw::DropsWithLeader) { Stage::Left } else { Stage::Orphan }
            }
            (Stage::InLine | Stage::Aside(_) | Stage::Leading | Stage::Sent, Happening::Disconnect) => {
                leave(&mut sky, one);
                Stage::Left
            }
            _ => return None,
        };
        sky.stages[one] = next;
        Some(Ok(sky))
    }

    fn arrive(&mut self, sky: &mut Sky, one: usize) -> Stage {
        if sky.landed.is_some() {
            // It finds no flight, and begins another one.
            return Stage::Answered;
        }
        let is_sent = sky.stages.iter().any(|stage| matches!(stage, Stage::Sent | Stage::Orphan));
        sky.came_late[one] = is_sent;
        sky.members[one] = sky.flight.join(self.kinds[one]);
        if sky.members[one].is_some() { Stage::InLine } else { Stage::Alone }
    }

    fn call(&self, sky: &mut Sky, one: usize, happening: Happening) -> Result<Stage, String> {
        let Some(member) = sky.members[one] else { return Err("called without a flight".to_owned()) };
        let leads = sky.flight.is_led_by(member);
        Ok(match sky.flight.called(member) {
            CallReply::Lead if self.flawed(DriverFlaw::LeaderStepsAside) && leads => Stage::Aside(sky.flight.round),
            CallReply::Lead => Stage::Leading,
            CallReply::Alone => Stage::Alone,
            CallReply::StepAside(_) if happening == Happening::CallImpatient => {
                leave(sky, one);
                Stage::Alone
            }
            CallReply::StepAside(round) => Stage::Aside(round),
        })
    }

    fn send(&self, sky: &mut Sky, one: usize) -> Stage {
        let members = sky.came_late.iter_mut().zip(&sky.members).filter(|(_, member)| member.is_some());
        members.for_each(|(late, _)| *late = false);
        if let Some(member) = sky.members[one].filter(|_| !self.flawed(DriverFlaw::HidesSend)) {
            sky.flight.sent(member);
        }
        Stage::Sent
    }

    /// A member hears that the answer is in.
    fn head_is_in(&mut self, sky: &mut Sky, one: usize) -> Stage {
        leave(sky, one);
        let shares = sky.landed == Some(true) || self.flawed(DriverFlaw::SharesPrivate);
        self.shared += u64::from(shares);
        if shares { Stage::Shared } else { Stage::Alone }
    }

    fn check(&self, sky: &Sky) -> Result<(), String> {
        let under_way = |stage: &&Stage| matches!(stage, Stage::Leading | Stage::Sent | Stage::Orphan);
        if sky.stages.iter().filter(under_way).count() > 1 {
            return Err(format!("two under way: {:?}", sky.stages));
        }
        for (one, &stage) in sky.stages.iter().enumerate() {
            match stage {
                Stage::Leading if self.kinds[one] == Following::HeadOnly => return Err("a HEAD leads".to_owned()),
                Stage::Shared if self.kinds[one] == Following::Newest && sky.came_late[one] => {
                    return Err("a request for the newest answer shared an old one".to_owned());
                }
                Stage::Shared if sky.landed != Some(true) => return Err("a private answer was shared".to_owned()),
                Stage::Alone if sky.members[one].is_none() && !sky.came_late[one] => {
                    return Err("a request could not join a flight that is not sent".to_owned());
                }
                Stage::Aside(round) if !sky.flight.is_released(round) => {
                    let leads = |other: usize| sky.members[other].is_some_and(|member| sky.flight.is_led_by(member));
                    let is_here = |stage: Stage| under_way(&&stage) || stage == Stage::InLine;
                    if !(0..sky.stages.len()).any(|other| leads(other) && is_here(sky.stages[other])) {
                        return Err(format!("aside without a leader: {:?}", sky.stages));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Nothing can happen any more.
    fn check_end(&self, sky: &Sky) -> Result<(), String> {
        let is_answered = |stage: &Stage| matches!(stage, Stage::Shared | Stage::Answered | Stage::Left);
        if !sky.stages.iter().all(is_answered) {
            return Err(format!("never answered: {:?}", sky.stages));
        }
        if !sky.flight.is_empty() || sky.flight.is_led() {
            return Err(format!("left over: {:?}", sky.flight));
        }
        Ok(())
    }
}

fn leave(sky: &mut Sky, one: usize) {
    if let Some(member) = sky.members[one] {
        sky.flight.leave(member);
    }
}

const KINDS: [Following; 3] = [Following::Any, Following::Newest, Following::HeadOnly];

/// Every choice of kinds for so many requests. The order does not matter, because any of them may come first.
fn crews(size: usize) -> Vec<Vec<Following>> {
    let mut crews = vec![vec![]];
    for _ in 0..size {
        let longer = |crew: &Vec<Following>| {
            let least = crew.last().map_or(0, |last| KINDS.iter().position(|kind| kind == last).expect("a kind"));
            KINDS[least..].iter().map(|&kind| [crew.clone(), vec![kind]].concat()).collect::<Vec<_>>()
        };
        crews = crews.iter().flat_map(longer).collect();
    }
    crews
}

#[test]
fn every_order_of_events_answers_every_request_and_shares_nothing_private() {
    let (mut states, mut shared) = (0, 0);
    for crew in (1..=3).flat_map(crews) {
        let search = Search::run(&crew, None).unwrap_or_else(|story| panic!("{crew:?}: {story}"));
        states += search.seen.len();
        shared += search.shared;
    }
    assert!(states > 20_000 && shared > 1_000, "too small to prove anything: {states} states, {shared} shared");
}

#[test]
fn every_flaw_of_a_driver_is_caught() {
    let flaws = [
        DriverFlaw::SharesPrivate,
        DriverFlaw::HidesFailure,
        DriverFlaw::HidesSend,
        DriverFlaw::DropsWithLeader,
        DriverFlaw::KeepsTheTired,
        DriverFlaw::LeaderStepsAside,
    ];
    for flaw in flaws {
        let caught = crews(3).iter().any(|crew| Search::run(crew, Some(flaw)).is_err());
        assert!(caught, "{flaw:?} was not caught");
    }
}
