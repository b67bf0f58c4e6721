//! A small world that tries to break the promises.

mod checks;
mod disturb;
mod oracle;
mod world;

use oracle::{Broken, Promise};
use world::{Tally, World};

/// What the driver of a lane can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    CountsTheGrant,
    ForgetsWithoutAsking,
    KeepsTheTurnOfALeaver,
    LosesTheAlarm,
    NeverConfirms,
    StartsAfreshOnChange,
    ForgetsHoldsOnRestart,
    OneClient,
    ForgetsWhoWasTold,
    SwallowsRefusals,
}

/// How many worlds to try; `CURTSY_SIM_SEEDS` asks for more.
fn seeds(usual: u64) -> u64 {
    std::env::var("CURTSY_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

#[test]
fn the_promises_hold() {
    let mut total = Tally::default();
    for seed in 0..seeds(400) {
        match World::new(seed, None).run() {
            Ok(tally) => total.add(&tally),
            Err(Broken { promise, story }) => {
                World::new(seed, None).aloud().run().unwrap_err();
                panic!("seed {seed}: {promise:?}: {story}");
            }
        }
    }
    println!("{total:?}");
}
