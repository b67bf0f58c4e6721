//! Any bytes as a robots.txt: no panic, at most twice its size stored, the same when read back, and the same reading in
//! the matcher and in the survey. Any bytes as a stored file: no panic, damaged or not.

#![no_main]

use curtsy::politeness::robots::survey::Survey;
use curtsy::politeness::robots::{Agents, Choice, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let rules = Rules::parse(body);
    // Twice, because an allowed index page also allows its directory; plus one byte for the version and two for a
    // group.
    assert!(rules.as_bytes().len() <= body.len() * 2 + 3, "{} of {} bytes kept", rules.as_bytes().len(), body.len());
    assert_eq!(Rules::from_stored(rules.as_bytes()).as_ref(), Some(&rules), "what is stored is read");

    let survey = Survey::of(body);
    for name in survey.groups.iter().flat_map(|group| &group.names) {
        let Some(token) = &name.token else { continue };
        let agents = Agents::from_tokens([token.as_str()]);
        if token != "*" && agents.tokens().next().is_none() {
            continue;
        }
        let chosen = if token == "*" { Choice::Everybody } else { Choice::Named(token) };
        assert_eq!(rules.choice(&agents), chosen);
        let same = survey.groups.iter().flat_map(|group| &group.names).filter(|other| other.token == name.token);
        assert_eq!(rules.delay(&agents), same.map(|name| name.delay).max().flatten(), "the delay of {token}");
    }

    if let Some(stored) = Rules::from_stored(body) {
        for agents in [Agents::default(), Agents::from_user_agent("FooBot/1.0 a b c")] {
            let denied = stored.denies_everything(&agents).map(|rule| rule.to_string());
            let verdict = stored.verdict(&agents, "/some/path.html?query");
            assert!(denied.is_none() || !verdict.allowed, "{denied:?} but {verdict:?}");
            assert!(verdict.rule.is_none_or(|rule| rule.to_string().is_ascii()));
            let _ = stored.delay(&agents);
        }
    }
});
