//! Any client, path and robots.txt: the verdict equals that of a slow matcher that follows RFC 9309 word by word.

#![no_main]

use curtsy::politeness::robots::survey::{Survey, SurveyGroup};
use curtsy::politeness::robots::{Agents, Rules};
use libfuzzer_sys::fuzz_target;

// Input: a line with the User-Agent, a line with the path, then the file.
fuzz_target!(|text: &str| {
    let mut parts = text.splitn(3, '\n');
    let (Some(user_agent), Some(path), Some(body)) = (parts.next(), parts.next(), parts.next()) else { return };
    let (agents, rules) = (Agents::from_user_agent(user_agent), Rules::parse(body.as_bytes()));
    let verdict = rules.verdict(&agents, path);
    let slow = slow_verdict(&Survey::of(body.as_bytes()), &agents, path);
    let fast = verdict.rule.map(|rule| (rule.line, rule.allow));
    // Servers read some paths in several ways. A path that is denied in one of them is denied.
    if verdict.too_complicated || has_other_readings(path) {
        assert!(!verdict.allowed || slow.is_none_or(|(_, allow)| allow), "{path:?} is denied as it came");
        return;
    }
    assert_eq!(fast, slow, "{agents:?} {path:?} {body:?} by {:?}", verdict.rule.map(|rule| rule.to_string()));
    assert_eq!(verdict.allowed, slow.is_none_or(|(_, allow)| allow));
    if let Some(rule) = rules.denies_everything(&agents) {
        assert!(!verdict.allowed || path.starts_with("/robots"), "{rule} but {path:?} is allowed");
    }
});

/// Whether the path may have other readings. True for more paths than really have some.
fn has_other_readings(path: &str) -> bool {
    let odd = ["//", "/.", "/%2e", "\\", ";", "%2f", "%5c"];
    let path = path.to_ascii_lowercase();
    odd.iter().any(|odd| path.contains(odd)) || path.starts_with('.') || path.starts_with("%2e")
}

/// The line that decides and whether it allows.
fn slow_verdict(survey: &Survey, agents: &Agents, path: &str) -> Option<(u32, bool)> {
    let path = path.split('#').next().unwrap_or_default();
    let path = symbols(&if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }, false);
    if path == symbols("/robots.txt", false) {
        return None;
    }
    let is_named =
        |group: &&SurveyGroup| group.names.iter().any(|name| agents.tokens().any(|mine| name.token.as_deref() == Some(mine)));
    let is_general = |group: &&SurveyGroup| group.names.iter().any(|name| name.token.as_deref() == Some("*"));
    let mut groups: Vec<&SurveyGroup> = survey.groups.iter().filter(is_named).collect();
    if groups.is_empty() {
        groups = survey.groups.iter().filter(is_general).collect();
    }
    let mut best: Option<(usize, bool, u32)> = None;
    for rule in groups.iter().flat_map(|group| &group.rules) {
        for pattern in [Some(rule.path.clone()), directory(&rule.path).filter(|_| rule.allow)].into_iter().flatten() {
            let length = length(&pattern);
            let stronger =
                best.is_none_or(|(other, allow, _)| length > other || (length == other && rule.allow && !allow));
            if !pattern.is_empty() && stronger && matches(&pattern, &path) {
                best = Some((length, rule.allow, rule.line));
            }
        }
    }
    best.map(|(_, allow, line)| (line, allow))
}

fn directory(pattern: &str) -> Option<String> {
    let (directory, page) = pattern.rsplit_once('/')?;
    page.starts_with("index.htm").then(|| format!("{directory}/$"))
}

const ANY: u32 = 256;
const PERCENT: u32 = 257;
/// Added to the first symbol of a reserved character that is escaped. Such a character is written as three symbols.
const ESCAPE: u32 = 512;

/// Maps the characters of a path to symbols by their meaning. An escaped reserved character is three symbols, because a
/// wildcard may end within it as within any text.
fn symbols(text: &str, is_rule: bool) -> Vec<u32> {
    let (bytes, mut symbols, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let escaped = hex.filter(|_| bytes[at] == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let octet = escaped.unwrap_or(bytes[at]);
        let keeps_escape = (escaped.is_some() && b":/?#@!&'()+,;=".contains(&octet)) || octet == 0 || octet == b'\n';
        if keeps_escape {
            symbols.extend(format!("%{octet:02X}").bytes().map(u32::from));
            let start = symbols.len() - 3;
            symbols[start] += ESCAPE;
        } else if octet == b'%' {
            symbols.push(PERCENT);
        } else if octet == b'*' && is_rule && escaped.is_none() {
            symbols.push(ANY);
        } else {
            symbols.push(u32::from(octet));
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    symbols
}

fn split_anchor(pattern: &str) -> (&str, bool) {
    pattern.strip_suffix('$').map_or((pattern, false), |path| (path, true))
}

fn length(pattern: &str) -> usize {
    let (path, anchored) = split_anchor(pattern);
    let one = |symbol: &u32| {
        let octet = u8::try_from(*symbol).unwrap_or(b'a');
        *symbol != PERCENT && (octet.is_ascii_alphanumeric() || b"-._~*$:/?#@!&'()+,;=".contains(&octet))
    };
    symbols(path, true).iter().map(|symbol| if one(symbol) { 1 } else { 3 }).sum::<usize>() + usize::from(anchored)
}

/// Tracks all prefixes of the path that the pattern matches so far, one symbol of the pattern after the other.
fn matches(pattern: &str, path: &[u32]) -> bool {
    let (pattern, anchored) = split_anchor(pattern);
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for symbol in symbols(pattern, true) {
        let mut next = vec![false; path.len() + 1];
        for at in 0..=path.len() {
            next[at] = if symbol == ANY {
                reached[..=at].contains(&true)
            } else {
                at > 0 && reached[at - 1] && path[at - 1] == symbol
            };
        }
        reached = next;
    }
    if anchored { reached[path.len()] } else { reached.contains(&true) }
}
