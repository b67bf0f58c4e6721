//! The compact form of a robots.txt: one run of bytes that is matched without decoding it first.
//!
//! ```text
//! stream  = version group*
//! group   = length(agents) agents length(rules) rules
//! agent   = length * 2 + has_delay, token in lower case (none for `*`), microseconds of delay if it has one
//! rule    = length * 4 + anchored * 2 + allow, lines since the rule before, path as in `canonical`
//! ```
//! Every number is a LEB128 of at most 64 bits. Real files take about a quarter of their size.
//!
//! Promises: reading any bytes ends and never panics. Damaged bytes may read as less than was written, so code that
//! takes bytes from outside must call [`is_sound`] first.

use std::time::Duration;

use super::agent::is_token_byte;
use super::pattern::Pattern;
use crate::politeness::time::whole_micros;

/// Increase it with every change of the format: bytes of another version are not read.
pub(super) const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'s> {
    agents: &'s [u8],
    rules: &'s [u8],
}

/// One name of a group. An empty token is `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agent<'s> {
    pub(super) token: &'s [u8],
    pub(super) delay: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredRule<'s> {
    pub(super) allow: bool,
    pub(super) line: u32,
    pub(super) pattern: Pattern<'s>,
}

pub(super) fn groups(stream: &[u8]) -> impl Iterator<Item = Group<'_>> {
    let mut rest = stream.get(1..).unwrap_or_default();
    std::iter::from_fn(move || take_group(&mut rest))
}

impl<'s> Group<'s> {
    pub(super) fn agents(&self) -> impl Iterator<Item = Agent<'s>> + use<'s> {
        let mut rest = self.agents;
        std::iter::from_fn(move || take_agent(&mut rest))
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = StoredRule<'s>> + use<'s> {
        let (mut rest, mut line) = (self.rules, 0);
        std::iter::from_fn(move || take_rule(&mut rest, &mut line))
    }
}

/// Whether reading the bytes reaches their end and finds only what could have been written.
pub(super) fn is_sound(stream: &[u8]) -> bool {
    let [VERSION, rest @ ..] = stream else { return false };
    let mut rest = rest;
    while !rest.is_empty() {
        let Some(group) = take_group(&mut rest) else { return false };
        let (mut agents, mut rules, mut line) = (group.agents, group.rules, 0);
        while !agents.is_empty() {
            let agent = take_agent(&mut agents);
            if agent.is_none_or(|agent| !agent.token.iter().all(|byte| is_token_byte(*byte))) {
                return false;
            }
        }
        while !rules.is_empty() {
            if take_rule(&mut rules, &mut line).is_none() {
                return false;
            }
        }
    }
    true
}

pub(super) fn put_group(stream: &mut Vec<u8>, agents: &[Agent<'_>], rules: &[u8]) {
    let mut names = Vec::new();
    for agent in agents {
        put_number(&mut names, (agent.token.len() as u64) << 1 | u64::from(agent.delay.is_some()));
        names.extend(agent.token.iter().map(u8::to_ascii_lowercase));
        if let Some(delay) = agent.delay {
            put_number(&mut names, whole_micros(delay));
        }
    }
    put_number(stream, names.len() as u64);
    stream.extend(names);
    put_number(stream, rules.len() as u64);
    stream.extend_from_slice(rules);
}

/// `line` is the line of the previous rule, 0 at first.
pub(super) fn put_rule(rules: &mut Vec<u8>, line: &mut u32, rule: StoredRule<'_>) {
    let Pattern { octets, anchored } = rule.pattern;
    put_number(rules, (octets.len() as u64) << 2 | u64::from(anchored) << 1 | u64::from(rule.allow));
    put_number(rules, u64::from(rule.line.saturating_sub(*line)));
    rules.extend_from_slice(octets);
    *line = rule.line;
}

fn take_group<'s>(rest: &mut &'s [u8]) -> Option<Group<'s>> {
    Some(Group { agents: take_run(rest)?, rules: take_run(rest)? })
}

fn take_agent<'s>(rest: &mut &'s [u8]) -> Option<Agent<'s>> {
    let head = take_number(rest)?;
    let token = take(rest, head >> 1)?;
    let delay = if head & 1 == 1 { Some(Duration::from_micros(take_number(rest)?)) } else { None };
    Some(Agent { token, delay })
}

fn take_rule<'s>(rest: &mut &'s [u8], line: &mut u32) -> Option<StoredRule<'s>> {
    let head = take_number(rest)?;
    *line = line.checked_add(take_number(rest)?.try_into().ok()?)?;
    let pattern = Pattern { octets: take(rest, head >> 2)?, anchored: head & 2 != 0 };
    Some(StoredRule { allow: head & 1 != 0, line: *line, pattern })
}

fn take_run<'s>(rest: &mut &'s [u8]) -> Option<&'s [u8]> {
    let length = take_number(rest)?;
    take(rest, length)
}

fn take<'s>(rest: &mut &'s [u8], length: u64) -> Option<&'s [u8]> {
    let (taken, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(taken)
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        let bits = u64::from(byte & 0x7f);
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return (number >> shift == bits).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let (mut stream, mut rules, mut line) = (vec![VERSION], Vec::new(), 0);
        for (number, allow, anchored, octets) in [(3, true, false, &b"/a"[..]), (700, false, true, &[b'x'; 200])] {
            let pattern = Pattern { octets, anchored };
            put_rule(&mut rules, &mut line, StoredRule { allow, line: number, pattern });
        }
        let agents =
            [Agent { token: b"FooBot", delay: Some(Duration::from_millis(1_500)) }, Agent { token: b"", delay: None }];
        put_group(&mut stream, &agents, &rules);
        put_group(&mut stream, &agents[1..], &[]);
        stream
    }

    #[test]
    fn what_is_written_is_read() {
        let stream = sample();
        let groups: Vec<Group<'_>> = groups(&stream).collect();
        let agents: Vec<Agent<'_>> = groups[0].agents().collect();
        assert_eq!(agents[0], Agent { token: b"foobot", delay: Some(Duration::from_millis(1_500)) });
        assert_eq!(agents[1], Agent { token: b"", delay: None });
        let rules: Vec<StoredRule<'_>> = groups[0].rules().collect();
        assert_eq!((rules[0].line, rules[0].allow, rules[0].pattern.octets), (3, true, &b"/a"[..]));
        assert_eq!((rules[1].line, rules[1].allow, rules[1].pattern.anchored), (700, false, true));
        assert_eq!((groups.len(), groups[1].rules().count()), (2, 0));
    }

    #[test]
    fn damage_is_noticed_or_harmless() {
        let stream = sample();
        assert!(is_sound(&stream));
        for end in 0..stream.len() {
            // If the cut is between two groups, the beginning is a valid stream too.
            let whole_groups = end == 1 || end == stream.len() - 3;
            assert_eq!(is_sound(&stream[..end]), whole_groups, "cut at {end}");
        }
        for at in 0..stream.len() {
            for bit in 0..8 {
                let mut damaged = stream.clone();
                damaged[at] ^= 1 << bit;
                let _ = is_sound(&damaged);
                let read: usize = groups(&damaged).map(|group| group.agents().count() + group.rules().count()).sum();
                assert!(read <= damaged.len());
            }
        }
    }

    #[test]
    fn numbers_are_read_as_written_and_no_larger() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            assert_eq!(take_number(&mut &bytes[..]), Some(number));
        }
        assert_eq!(take_number(&mut &[0xff; 10][..]), None);
        assert_eq!(take_number(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..]), None);
        assert_eq!(take_number(&mut &[0x80][..]), None);
    }
}
