//! Any request and any response: the rules of the cache read their fields without a panic, and a restrictive directive
//! never makes an answer more reusable.

#![no_main]

use curtsy::politeness::reuse::Field;
use curtsy::politeness::reuse::conditions::{Portion, Representation, portion};
use curtsy::politeness::reuse::policy::{CacheTime, ReusePolicy};
use curtsy::politeness::reuse::request::CacheRequest;
use curtsy::politeness::reuse::response::CacheResponse;
use curtsy::politeness::reuse::reusing::{Reuse, reuse};
use curtsy::politeness::reuse::selecting::Selecting;
use curtsy::politeness::reuse::storing::{CacheRules, may_store};
use curtsy::politeness::time::Timestamp;
use libfuzzer_sys::fuzz_target;

// Mon, 21 Sep 2026 14:13:20 GMT
const NOW: CacheTime = CacheTime::both(Timestamp::from_millis(1_790_000_000_000));
const LATER: CacheTime = CacheTime::both(Timestamp::from_millis(1_790_000_060_000));
const RULES: CacheRules = CacheRules { heuristic: 100, stale: 3_600, min_refresh: 0 };

// Input: the fields of a request, an empty line, a status, and the fields of the response; one per line.
fuzz_target!(|text: &str| {
    let (request, response) = text.split_once("\n\n").unwrap_or((text, "200"));
    let asked = read(request);
    let (status, fields) = response.split_once('\n').unwrap_or((response, ""));
    let (status, answered) = (status.parse().unwrap_or(200), read(fields));
    let asked = view(&asked);
    let asked = CacheRequest::read(false, &asked, &[]);
    let stored = store(&asked, status, &answered);
    let length = 10;
    let whole = Representation { status: 200, etag: Some(b"\"1\""), last_modified: None, length };
    if let Portion::Range(first, last) = portion(&asked, &whole, NOW) {
        assert!(first <= last && last < length);
    }
    let Some(policy) = stored else { return };
    let used = reuse(&policy, &asked, &RULES, LATER);
    assert!(!policy.flags.no_cache || used != Reuse::Fresh);
    for word in ["private", "no-store"] {
        let more = [answered.clone(), vec![("cache-control".to_owned(), word.to_owned())]].concat();
        let understood = answered.iter().any(|(_, value)| value.to_lowercase().contains("must-understand"));
        assert!(store(&asked, status, &more).is_none() || (word == "no-store" && understood), "{word}");
    }
    for word in ["no-cache", "max-age=0", "s-maxage=0", "max-age=nonsense, s-maxage=nonsense"] {
        let more = [answered.clone(), vec![("cache-control".to_owned(), word.to_owned())]].concat();
        let fresh = store(&asked, status, &more).map(|policy| reuse(&policy, &asked, &RULES, LATER));
        let freer = fresh == Some(Reuse::Fresh) && used != Reuse::Fresh;
        assert!(!freer, "{word} made it fresh");
    }
});

fn store(asked: &CacheRequest<'_>, status: u16, fields: &[(String, String)]) -> Option<ReusePolicy> {
    let fields = view(fields);
    let response = CacheResponse::read(status, &fields);
    let policy = may_store(asked, &response, &RULES, 0, NOW).ok()?;
    let selecting = Selecting::of(asked, response.vary.expect("`*` is not stored"), policy.flags.ignores_cookie);
    assert!(selecting.matches(asked, policy.flags.ignores_cookie), "an answer is for the request that it answers");
    Some(policy)
}

fn read(lines: &str) -> Vec<(String, String)> {
    let fields = lines.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()
}

fn view(fields: &[(String, String)]) -> Vec<Field<'_>> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}
