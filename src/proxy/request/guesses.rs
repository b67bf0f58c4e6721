//! Slows down password guessing: each address has one check at a time, and a pause that grows with every wrong
//! password.
//!
//! So an attacker with many connections guesses no faster than with one, and a flood of guesses from one address does
//! not keep other addresses from logging in. Credentials whose verdict is remembered are not checked here. What is
//! remembered is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::clock;
use crate::connections::neighbourhood;

/// The pause after the first wrong password; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A pause of eight seconds allows 10 800 guesses a day, while a person who mistypes often still gets in.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// An address that sent no wrong password for this long starts over.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Addresses remembered. Beyond that, the address whose last guess is oldest is forgotten.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<HashMap<IpAddr, Guesser>>);

#[derive(Debug, Default)]
struct Guesser {
    /// Held by the check that is under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    wrong: u32,
    /// When the next password may be checked.
    next: Option<Instant>,
}

/// A check that is under way.
#[derive(Debug)]
pub(crate) struct Guess<'a> {
    guesses: &'a Guesses,
    address: IpAddr,
    _turn: OwnedMutexGuard<()>,
}

impl Guesses {
    /// Waits until this address may have a password checked.
    pub(crate) async fn begin(&self, peer: IpAddr) -> Guess<'_> {
        let address = neighbourhood(peer);
        let turn = self.turn_of(address).lock_owned().await;
        let next = self.0.lock().get(&address).and_then(|guesser| guesser.next);
        if let Some(next) = next {
            tokio::time::sleep_until(next).await;
        }
        Guess { guesses: self, address, _turn: turn }
    }

    fn turn_of(&self, address: IpAddr) -> Arc<tokio::sync::Mutex<()>> {
        let mut guessers = self.0.lock();
        if guessers.len() >= MOST && !guessers.contains_key(&address) {
            let now = clock::now();
            guessers.retain(|_, guesser| guesser.is_worth_remembering(now));
            let oldest = guessers.iter().min_by_key(|(_, guesser)| guesser.next).map(|(address, _)| *address);
            if let Some(oldest) = oldest.filter(|_| guessers.len() >= MOST) {
                guessers.remove(&oldest);
            }
        }
        guessers.entry(address).or_default().turn.clone()
    }
}

impl Guesser {
    fn is_worth_remembering(&self, now: Instant) -> bool {
        Arc::strong_count(&self.turn) > 1 || self.next.is_some_and(|next| now < next + FORGOTTEN)
    }
}

impl Guess<'_> {
    /// Makes the next check of this address wait longer, because the password was wrong. Counts even if the client
    /// disconnects now.
    pub(crate) fn was_wrong(self) {
        let (mut guessers, now) = (self.guesses.0.lock(), clock::now());
        let guesser = guessers.entry(self.address).or_default();
        if guesser.next.is_some_and(|next| now >= next + FORGOTTEN) {
            guesser.wrong = 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << guesser.wrong.min(16)).min(LONGEST_PAUSE);
        guesser.wrong += 1;
        guesser.next = Some(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wrong_guess_makes_the_next_wait_longer() {
        let (guesses, peer, begun) = (Guesses::default(), IpAddr::from([10, 0, 0, 1]), clock::now());
        let mut times = Vec::new();
        for _ in 0..8 {
            let guess = guesses.begin(peer).await;
            times.push((clock::now() - begun).as_millis());
            guess.was_wrong();
        }
        assert_eq!(times, [0, 500, 1_500, 3_500, 7_500, 15_500, 23_500, 31_500]);
        guesses.begin(IpAddr::from([10, 0, 0, 2])).await;
        assert_eq!((clock::now() - begun).as_millis(), 31_500, "another address waits for nothing");
        tokio::time::advance(FORGOTTEN + LONGEST_PAUSE).await;
        guesses.begin(peer).await.was_wrong();
        let before = clock::now();
        guesses.begin(peer).await;
        assert_eq!(clock::now() - before, FIRST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_do_not_fill_memory() {
        let guesses = Guesses::default();
        for number in 0..10_000_u32 {
            guesses.begin(IpAddr::from(number.to_be_bytes())).await.was_wrong();
        }
        assert!(guesses.0.lock().len() <= MOST);
    }
}
