//! The users of the proxy: an htpasswd file with bcrypt or argon2 hashes.
//!
//! Checking a password is slow on purpose, so it runs on a thread of its own, a few at a time. Verdicts are remembered
//! by a keyed digest: never the password, and no comparison whose time could tell anything. An address has one password
//! checked at a time, and waits longer after each wrong one ([`super::guesses`]).

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordVerifier};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::guesses::Guesses;

/// Verdicts remembered. More than the users of any one proxy; an attacker's guesses only replace each other.
const REMEMBERED: usize = 1024;
/// Passwords being checked at the same time.
const AT_ONCE: usize = 2;
/// A wrong password is answered this much later, whatever the address did before.
const AFTER_WRONG: Duration = Duration::from_millis(500);
/// The least work that makes a stolen or guessed hash expensive: OWASP's Password Storage Cheat Sheet asks for a bcrypt
/// cost of at least 10, and for argon2 with 7 MiB and five passes.
const LEAST_BCRYPT_COST: u32 = 10;
const LEAST_ARGON2_WORK: u32 = 7 * 1024 * 5;

#[derive(Debug)]
pub struct Users {
    hashes: HashMap<String, Arc<str>>,
    key: RandomState,
    /// Digest of a Proxy-Authorization value to its verdict.
    verdicts: Mutex<HashMap<u64, bool>>,
    checking: Semaphore,
    guesses: Guesses,
}

#[derive(Debug, PartialEq, Eq)]
pub struct BadUsersFile {
    pub line: usize,
    pub problem: String,
}

impl Users {
    /// Reads lines of `name:hash`. Blank lines and `#` comments are skipped.
    pub fn parse(text: &str) -> Result<Self, BadUsersFile> {
        let mut hashes = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |problem: &str| BadUsersFile { line: number + 1, problem: problem.to_owned() };
            let (name, hash) = line.split_once(':').ok_or_else(|| bad("expected name:hash"))?;
            if !is_bcrypt(hash) && !is_argon2(hash) {
                return Err(bad("the hash is neither bcrypt nor argon2; make it with `htpasswd -nB name`"));
            }
            if hashes.insert(name.to_owned(), hash.into()).is_some() {
                return Err(bad("the name appears twice"));
            }
        }
        let (key, verdicts, checking) = (RandomState::new(), Mutex::default(), Semaphore::new(AT_ONCE));
        Ok(Users { hashes, key, verdicts, checking, guesses: Guesses::default() })
    }

    /// Returns how many users have a hash that is quick to try.
    pub fn weak(&self) -> usize {
        self.hashes.values().filter(|hash| is_weak(hash)).count()
    }

    /// Returns the user's name, if the Proxy-Authorization value proves it.
    pub(crate) async fn check(&self, value: Option<&HeaderValue>, from: IpAddr) -> Option<String> {
        let value = value?;
        let (name, password) = credentials(value)?;
        let digest = self.key.hash_one(value.as_bytes());
        if let Some(right) = self.known(digest) {
            return right.then_some(name);
        }
        let guess = self.guesses.begin(from).await;
        // Another connection of the same client may have sent it meanwhile.
        if let Some(right) = self.known(digest) {
            return right.then_some(name);
        }
        // An unknown name costs as much time as a known one.
        let known = self.hashes.get(&name);
        let right = match known.or_else(|| self.hashes.values().next()).cloned() {
            Some(hash) => self.verify(password, hash).await && known.is_some(),
            None => false,
        };
        self.remember(digest, right);
        if !right {
            guess.was_wrong();
            tokio::time::sleep(AFTER_WRONG).await;
        }
        right.then_some(name)
    }

    fn known(&self, digest: u64) -> Option<bool> {
        self.verdicts.lock().get(&digest).copied()
    }

    async fn verify(&self, password: String, hash: Arc<str>) -> bool {
        let Ok(_turn) = self.checking.acquire().await else { return false };
        tokio::task::spawn_blocking(move || is_right(&password, &hash)).await.unwrap_or(false)
    }

    fn remember(&self, digest: u64, right: bool) {
        let mut verdicts = self.verdicts.lock();
        if verdicts.len() >= REMEMBERED {
            verdicts.retain(|_, right| *right);
        }
        if verdicts.len() < REMEMBERED {
            verdicts.insert(digest, right);
        }
    }
}

/// Returns name and password of a Basic Proxy-Authorization, without checking them.
pub(crate) fn credentials(value: &HeaderValue) -> Option<(String, String)> {
    let text = value.to_str().ok()?;
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(name, password)| (name.to_owned(), password.to_owned()))
}

/// Returns the name alone, for a proxy without users: what a client calls itself, as in `Curtsy-Client`. The password
/// is not looked at.
pub(crate) fn label(value: &HeaderValue) -> Option<String> {
    let (name, _) = credentials(value)?;
    let fits =
        !name.is_empty() && name.len() <= LONGEST_LABEL && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    fits.then_some(name)
}

/// The longest name that is shown to people.
const LONGEST_LABEL: usize = 100;

fn is_right(password: &str, hash: &str) -> bool {
    if is_bcrypt(hash) {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

fn is_bcrypt(hash: &str) -> bool {
    ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| hash.starts_with(prefix)) && hash.len() == 60
}

fn is_argon2(hash: &str) -> bool {
    hash.starts_with("$argon2") && PasswordHash::new(hash).is_ok()
}

/// Whether trying a password against this hash is cheap.
fn is_weak(hash: &str) -> bool {
    if is_bcrypt(hash) {
        return hash.get(4..6).and_then(|cost| cost.parse().ok()).is_none_or(|cost: u32| cost < LEAST_BCRYPT_COST);
    }
    let Ok(hash) = PasswordHash::new(hash) else { return true };
    let work = |name| hash.params.get_decimal(name).unwrap_or(0);
    work("m").saturating_mul(work("t")) < LEAST_ARGON2_WORK
}

impl fmt::Display for BadUsersFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for BadUsersFile {}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(text: &str) -> HeaderValue {
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(text))).unwrap()
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

    fn users() -> Users {
        let hash = bcrypt::hash("secret", 4).unwrap();
        Users::parse(&format!("# crawlers\nnews:{hash}\n")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_password_opens_and_a_wrong_one_does_not() {
        let users = users();
        for _ in 0..2 {
            assert_eq!(users.check(Some(&basic("news:secret")), HERE).await.as_deref(), Some("news"));
            assert_eq!(users.check(Some(&basic("news:wrong")), HERE).await, None);
            assert_eq!(users.check(Some(&basic("other:secret")), HERE).await, None);
        }
        assert_eq!(users.check(None, HERE).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn garbage_is_no_password() {
        for value in ["Basic", "Basic ", "Basic \"", "Basic !!!", "Bearer x", "Basic bm9jb2xvbg=="] {
            assert_eq!(users().check(Some(&HeaderValue::from_static(value)), HERE).await, None, "{value}");
        }
    }

    /// X20: however many connections an attacker has, its guesses are few, and others do not wait for them.
    #[tokio::test(start_paused = true)]
    async fn a_flood_of_guesses_is_slow_and_delays_no_other_address() {
        let users = Arc::new(users());
        let tried = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for number in 0..60 {
            let (users, tried) = (users.clone(), tried.clone());
            tokio::spawn(async move {
                assert_eq!(users.check(Some(&basic(&format!("news:guess-{number}"))), THERE).await, None);
                tried.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        let begun = crate::clock::now();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = crate::clock::now();
        assert_eq!(users.check(Some(&basic("news:secret")), HERE).await.as_deref(), Some("news"));
        let waited = crate::clock::now() - before;
        assert!(waited < AFTER_WRONG, "{waited:?}");
        assert_eq!(users.check(Some(&basic("news:secret")), THERE).await.as_deref(), Some("news"), "known already");
        tokio::time::sleep_until(begun + Duration::from_secs(60)).await;
        let tried = tried.load(std::sync::atomic::Ordering::Relaxed);
        assert!((3..=12).contains(&tried), "{tried} guesses in a minute");
    }

    #[test]
    fn quick_hashes_are_weak() {
        let argon2 =
            |m, t| format!("$argon2id$v=19$m={m},t={t},p=1$c29tZXNhbHQ$iWh06vD8Fy27wf9npn6FXWiCX4K6pW6Ue1Bnzz07Z8A");
        let weak = |hash: &str| is_weak(hash);
        assert!(weak(&bcrypt::hash("x", 5).unwrap()) && weak(&argon2(4096, 3)));
        assert!(!weak(&bcrypt::hash("x", 10).unwrap()) && !weak(&argon2(19_456, 2)));
    }

    #[test]
    fn without_users_a_name_is_a_label() {
        assert_eq!(label(&basic("news:x")).as_deref(), Some("news"));
        for text in [":x", "a\nb:x", "\u{e9}:x", &format!("{}:x", "a".repeat(101)), "no-colon"] {
            assert_eq!(label(&basic(text)), None, "{text:?}");
        }
        assert_eq!(label(&HeaderValue::from_static("Bearer news:x")), None);
    }

    #[test]
    fn a_bad_file_names_its_line() {
        assert_eq!(Users::parse("a").unwrap_err().line, 1);
        assert_eq!(Users::parse("\n\na:$apr1$x$y").unwrap_err().line, 3);
        assert_eq!(Users::parse("a:plain").unwrap_err().line, 1);
    }

    #[test]
    fn guesses_do_not_fill_memory() {
        let users = users();
        for n in 0..10_000 {
            users.remember(n, n % 7 == 0 && n < 700);
        }
        assert!(users.verdicts.lock().len() <= REMEMBERED);
    }
}
