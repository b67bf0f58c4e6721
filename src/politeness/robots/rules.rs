//! What a robots.txt says: whether a client may fetch a path, how often, and which line decides.
//!
//! Promises: a verdict allocates nothing, except for the canonical spelling of a path with escapes and for the other
//! readings of a path that has some. It takes a microsecond or two for real files, and its work is bounded for all
//! others. Only the groups are stored, about a quarter of the file.

use std::fmt;
use std::time::Duration;

use super::agent::Agents;
use super::effort::{Effort, TooComplicated};
use super::pattern::Pattern;
use super::readings;
use super::stream::{self, Group, StoredRule};
use super::{canonical, parse};

/// The groups of one robots.txt, in the form described in `stream`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    stream: Box<[u8]>,
    /// Whether the file says nothing to any client.
    is_empty: bool,
    /// Whether the file asks any client for a delay. Most files do not.
    asks_delay: bool,
}

/// Which group applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'r> {
    /// The file names the client; this is the first name that matches.
    Named(&'r str),
    /// The file does not name the client, but has a group for all others (`*`).
    Everybody,
    /// No group is for this client, so everything is allowed.
    Nobody,
}

/// Whether a path may be fetched, and the rule that decided; `None` if no rule matches the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'r> {
    pub allowed: bool,
    pub rule: Option<Rule<'r>>,
    /// Denied because comparing the path with the rules would take too much work.
    pub too_complicated: bool,
}

/// One line of the file. Displayed as it could appear there, in canonical spelling: `Disallow: /private/*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'r> {
    pub allow: bool,
    /// Starts at 1.
    pub line: u32,
    pattern: Pattern<'r>,
}

impl Rule<'_> {
    /// Whether this is an Allow rule with as many escaped slashes as the path, and the path is unusual in no other way.
    /// The site then distinguishes `%2F` from `/`, so the reading with plain slashes is not judged.
    fn allows_spelling(&self, path: &[u8]) -> bool {
        let slashes = readings::escaped_slashes(path);
        self.allow
            && slashes > 0
            && readings::escaped_slashes(self.pattern.octets) == slashes
            && readings::of(path).len() == 1
    }
}

impl Rules {
    /// Parses a robots.txt. Never fails: unreadable bytes give no rules.
    pub fn parse(body: &[u8]) -> Rules {
        Rules::of(parse::parse(body).into())
    }

    /// Reads what [`Rules::as_bytes`] returned. `None` if the bytes are damaged or of another version: then the file
    /// must be fetched again.
    pub fn from_stored(bytes: &[u8]) -> Option<Rules> {
        stream::is_sound(bytes).then(|| Rules::of(bytes.into()))
    }

    fn of(stream: Box<[u8]>) -> Rules {
        let is_empty = stream::groups(&stream).next().is_none();
        let asks_delay = stream::groups(&stream).flat_map(|group| group.agents()).any(|agent| agent.delay.is_some());
        Rules { stream, is_empty, asks_delay }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.stream
    }

    /// Whether the file says nothing to any client.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// RFC 9309, section 2.2.2: the longest matching rule decides, and Allow wins over Disallow of the same length;
    /// robots.txt itself is always allowed. A path that servers read in different ways is denied if one of the readings
    /// is denied.
    pub fn verdict(&self, agents: &Agents, path_and_query: &str) -> Verdict<'_> {
        self.judge(agents, path_and_query, &mut Effort::new()).unwrap_or(Verdict {
            allowed: false,
            rule: None,
            too_complicated: true,
        })
    }

    fn judge(&self, agents: &Agents, path_and_query: &str, effort: &mut Effort) -> Result<Verdict<'_>, TooComplicated> {
        let path = canonical::target(path_and_query);
        let as_it_came = self.judge_reading(agents, &path, effort)?;
        if !as_it_came.allowed || as_it_came.rule.is_some_and(|rule| rule.allows_spelling(&path)) {
            return Ok(as_it_came);
        }
        for reading in readings::of(&path) {
            let verdict = self.judge_reading(agents, &reading, effort)?;
            if !verdict.allowed {
                return Ok(verdict);
            }
        }
        Ok(as_it_came)
    }

    fn judge_reading(&self, agents: &Agents, path: &[u8], effort: &mut Effort) -> Result<Verdict<'_>, TooComplicated> {
        if path == b"/robots.txt" {
            return Ok(Verdict { allowed: true, rule: None, too_complicated: false });
        }
        let (mut decisive, mut precedence): (Option<StoredRule<'_>>, _) = (None, 0);
        for rule in self.groups_for(agents).flat_map(|group| group.rules()) {
            if rule.pattern.most_precedence() < precedence || !rule.pattern.matches(path, effort)? {
                continue;
            }
            let length = rule.pattern.precedence();
            let wins_tie = rule.allow && decisive.is_some_and(|other| !other.allow);
            if length > precedence || (length == precedence && wins_tie) {
                (decisive, precedence) = (Some(rule), length);
            }
        }
        let allowed = decisive.is_none_or(|rule| rule.allow);
        Ok(Verdict { allowed, rule: decisive.map(Rule::from), too_complicated: false })
    }

    /// Whether any rule forbids anything to any client.
    pub fn forbids_something(&self) -> bool {
        stream::groups(&self.stream).flat_map(|group| group.rules()).any(|rule| !rule.allow)
    }

    /// All rules for this client, in the order of the file.
    pub fn rules(&self, agents: &Agents) -> impl Iterator<Item = Rule<'_>> {
        self.groups_for(agents).flat_map(|group| group.rules()).map(Rule::from)
    }

    /// The time between requests that the file asks of this client. If there are several, the largest.
    pub fn delay(&self, agents: &Agents) -> Option<Duration> {
        // Without a delay it does not matter which group applies.
        let choice = if self.asks_delay { self.choice(agents) } else { return None };
        let names = stream::groups(&self.stream).flat_map(|group| group.agents());
        names.filter(|agent| choice.covers(agents, agent.token)).filter_map(|agent| agent.delay).max()
    }

    /// The rule that denies everything but robots.txt, if there is one. It is all that can be said of a tunnel, whose
    /// paths curtsy does not see. Only a rule for all paths counts, and only if no Allow rule can win against it.
    pub fn denies_everything(&self, agents: &Agents) -> Option<Rule<'_>> {
        let rules = || self.groups_for(agents).flat_map(|group| group.rules());
        let all = rules().filter(|rule| !rule.allow && rule.pattern.matches_everything());
        let strongest = all.max_by_key(|rule| rule.pattern.precedence())?;
        let least = strongest.pattern.precedence();
        let opens = |rule: &StoredRule<'_>| {
            let only_robots_txt = rule.pattern.octets == b"/robots.txt";
            rule.allow && rule.pattern.can_match() && !only_robots_txt && rule.pattern.precedence() >= least
        };
        (!rules().any(|rule| opens(&rule))).then(|| strongest.into())
    }

    /// All groups that name the client, or else those for all clients (RFC 9309, section 2.2.1).
    pub fn choice(&self, agents: &Agents) -> Choice<'_> {
        let mut choice = Choice::Nobody;
        for agent in stream::groups(&self.stream).flat_map(|group| group.agents()) {
            if agent.token.is_empty() {
                choice = Choice::Everybody;
            } else if agents.contains(agent.token) {
                return Choice::Named(std::str::from_utf8(agent.token).expect("a token is ASCII"));
            }
        }
        choice
    }

    fn groups_for(&self, agents: &Agents) -> impl Iterator<Item = Group<'_>> {
        let choice = self.choice(agents);
        stream::groups(&self.stream).filter(move |group| group.agents().any(|agent| choice.covers(agents, agent.token)))
    }
}

impl Choice<'_> {
    fn covers(self, agents: &Agents, token: &[u8]) -> bool {
        match self {
            Choice::Named(_) => agents.contains(token),
            Choice::Everybody => token.is_empty(),
            Choice::Nobody => false,
        }
    }
}

#[cfg(test)]
impl Rule<'_> {
    /// The path of the rule in canonical spelling, ASCII without control characters.
    pub fn pattern(&self) -> String {
        self.pattern.to_string()
    }
}

impl<'r> From<StoredRule<'r>> for Rule<'r> {
    fn from(StoredRule { allow, line, pattern }: StoredRule<'r>) -> Rule<'r> {
        Rule { allow, line, pattern }
    }
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.allow { "Allow" } else { "Disallow" }, self.pattern)
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
