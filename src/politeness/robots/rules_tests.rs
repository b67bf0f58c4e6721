//! What a robots.txt says, shown with small files.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Choice, Rules};
use crate::politeness::robots::Agents;
use crate::politeness::robots::effort::{Effort, MOST};

fn nobody() -> Agents {
    Agents::default()
}

fn agents(user_agent: &str) -> Agents {
    Agents::from_user_agent(user_agent)
}

/// The verdict on a path for a client the file does not name: `+` or `-`, then the deciding line and rule.
fn verdict(body: &str, path: &str) -> String {
    let rules = Rules::parse(body.as_bytes());
    let verdict = rules.verdict(&nobody(), path);
    let sign = if verdict.allowed { "+" } else { "-" };
    verdict.rule.map_or(sign.to_owned(), |rule| format!("{sign} {} {rule}", rule.line))
}

/// A site that writes `%2F` into an Allow rule distinguishes it from a slash. No other unusual spelling of the path is
/// allowed with it.
#[test]
fn an_allow_rule_with_an_escaped_slash_is_taken_at_its_word() {
    let rules = Rules::parse(b"User-agent: *\nAllow: /a%2fb\nDisallow: /\n");
    let allowed = |path: &str| rules.verdict(&Agents::default(), path).allowed;
    assert!(allowed("/a%2Fb.html"));
    for path in ["/a/b.html", "/a%2Fb/../private", "/a%2Fb%2F..%2Fprivate", "/a%2Fb//x", "/a%2Fb;x"] {
        assert!(!allowed(path), "{path}");
    }
}

#[test]
fn the_longest_rule_decides_and_is_named() {
    let body = "user-agent: *\ndisallow: /a\nallow: /a/b\ndisallow: /a/b/*.gif$\n";
    assert_eq!(verdict(body, "/"), "+");
    assert_eq!(verdict(body, "/a"), "- 2 Disallow: /a");
    assert_eq!(verdict(body, "/a/b/c"), "+ 3 Allow: /a/b");
    assert_eq!(verdict(body, "/a/b/c.gif"), "- 4 Disallow: /a/b/*.gif$");
    assert_eq!(verdict(body, "/a/b/c.gif?"), "+ 3 Allow: /a/b");
}

#[test]
fn allow_wins_a_tie_wherever_it_stands() {
    assert_eq!(verdict("user-agent: *\nallow: /a\ndisallow: /a", "/a"), "+ 2 Allow: /a");
    assert_eq!(verdict("user-agent: *\ndisallow: /a\nallow: /a", "/a"), "+ 3 Allow: /a");
    assert_eq!(verdict("user-agent: *\ndisallow: /a*\nallow: /%61", "/a"), "- 2 Disallow: /a*");
}

#[test]
fn length_is_counted_in_escaped_octets() {
    assert_eq!(verdict("user-agent: *\nallow: /*aaaa\ndisallow: /ä", "/äaaaa"), "- 3 Disallow: /%C3%A4");
    assert_eq!(verdict("user-agent: *\nallow: /**\ndisallow: /a", "/a"), "+ 2 Allow: /**");
}

#[test]
fn robots_txt_itself_is_always_allowed() {
    let body = "user-agent: *\ndisallow: /";
    assert_eq!(verdict(body, "/robots.txt"), "+");
    assert_eq!(verdict(body, "/robots.txt#x"), "+");
    assert_eq!(verdict(body, "/robots%2Etxt"), "+");
    assert_eq!(verdict(body, "/robots.txt?x"), "- 2 Disallow: /");
}

#[test]
fn the_group_that_names_the_client_counts_alone() {
    let rules = Rules::parse(b"user-agent: *\ndisallow: /\n\nuser-agent: FooBot/2\nuser-agent: bar\ndisallow: /foo\n");
    assert_eq!(rules.choice(&nobody()), Choice::Everybody);
    assert_eq!(rules.choice(&agents("foobot/1.0")), Choice::Named("foobot"));
    assert_eq!(rules.choice(&agents("foobots/1.0")), Choice::Everybody);
    assert!(rules.verdict(&agents("foobot/1.0"), "/x").allowed);
    assert!(!rules.verdict(&agents("foobot/1.0"), "/foo").allowed);
    assert!(!rules.verdict(&agents("foo"), "/x").allowed);
    assert_eq!(Rules::parse(b"user-agent: a\ndisallow: /").choice(&nobody()), Choice::Nobody);
    assert!(Rules::parse(b"user-agent: a\ndisallow: /").verdict(&nobody(), "/x").allowed);
}

#[test]
fn groups_of_one_name_are_one() {
    let rules =
        Rules::parse(b"user-agent: a\ndisallow: /1\nuser-agent: b\ndisallow: /2\nuser-agent: a\ndisallow: /3\n");
    let denied = |path: &str| rules.verdict(&agents("a"), path).rule.map(|rule| rule.line);
    assert_eq!((denied("/1"), denied("/2"), denied("/3")), (Some(2), None, Some(6)));
    let both = Agents::from_tokens(["a", "b"]);
    assert_eq!(rules.verdict(&both, "/2").rule.map(|rule| rule.line), Some(4));
}

#[test]
fn the_largest_delay_counts() {
    let rules = Rules::parse(
        b"user-agent: a\ncrawl-delay: 1\nrequest-rate: 1/3\ndisallow: /x\nuser-agent: *\ncrawl-delay: 20\n\
          user-agent: b\ndisallow: /\nuser-agent: a\ncrawl-delay: 2.5\n",
    );
    assert_eq!(rules.delay(&agents("a")), Some(Duration::from_secs(3)));
    assert_eq!(rules.delay(&agents("b")), None, "a named client does not inherit from `*`");
    assert_eq!(rules.delay(&nobody()), Some(Duration::from_secs(20)));
    assert_eq!(rules.delay(&Agents::from_tokens(["a", "b"])), Some(Duration::from_secs(3)));
}

#[test]
fn everything_is_denied_only_if_no_path_is_left() {
    let line = |body: &str| Rules::parse(body.as_bytes()).denies_everything(&nobody()).map(|rule| rule.line);
    assert_eq!(line("user-agent: *\ndisallow: /"), Some(2));
    assert_eq!(line("user-agent: *\ndisallow: *"), Some(2));
    assert_eq!(line("user-agent: *\ndisallow: /a\ndisallow: /*\nallow: /"), Some(3));
    assert_eq!(line("user-agent: *\nallow: /robots.txt\ndisallow: /"), Some(3));
    assert_eq!(line("user-agent: *\nallow: never\ndisallow: /"), Some(3));
    assert_eq!(line("user-agent: *\ndisallow: /\nallow: /a"), None);
    assert_eq!(line("user-agent: *\ndisallow: /\nallow: *"), None);
    assert_eq!(line("user-agent: *\ndisallow: /a"), None);
    assert_eq!(line("user-agent: *\ndisallow: /$"), None);
    assert_eq!(line("user-agent: other\ndisallow: /"), None);
    assert_eq!(line(""), None);
}

#[test]
fn what_is_stored_says_the_same() {
    let rules = Rules::parse(b"user-agent: *\ndisallow: /a*b$\ncrawl-delay: 2\n");
    assert_eq!(Rules::from_stored(rules.as_bytes()), Some(rules));
    for damaged in [&b""[..], b"\x02", b"\x01\x05", b"\x01\x02\x02\xff\x00"] {
        assert_eq!(Rules::from_stored(damaged), None, "{damaged:?}");
    }
}

#[test]
fn never_more_than_twice_the_file_is_kept() {
    let line = |start: &str, octet: u8| [start.as_bytes(), &vec![octet; 500], b"\n"].concat();
    let many = |line: &[u8]| line.repeat(100);
    for body in [
        many(&line("disallow: /", 0xff)),
        many(&line("disallow: /", b'%')),
        many(&line("disallow: /", b'*')),
        many(&line("disallow: /", 1)),
        many(b"allow:/index.htm\n"),
        many(format!("allow:/{}/index.htm\n", "a".repeat(500)).as_bytes()),
        many(b"allow:/\n"),
        many(b"useragent:a\n"),
        many(b"useragent:a\nallow:/\n"),
    ] {
        let body = [b"user-agent: *\n", &body[..]].concat();
        let kept = Rules::parse(&body).as_bytes().len();
        assert!(kept <= 2 * body.len(), "{kept} of {}", body.len());
    }
}

/// X62: a file and a path built to be slow take no more than a fixed amount of work, and nothing is allowed because of
/// it.
#[test]
fn a_file_that_takes_too_much_work_denies() {
    let letters = |n: usize| (0..17).map(|bit| if n >> bit & 1 == 0 { 'a' } else { 'b' }).collect::<String>();
    let rules = |count: usize| (0..count).map(|n| format!("Disallow: /*{}\n", letters(n * 7 + 1))).collect::<String>();
    let body = format!("User-agent: *\nAllow: /\n{}", rules(17_000));
    assert!(body.len() > 500_000);
    let path = format!("/{}", "aaaaaaab".repeat(60 * 128));
    let rules = Rules::parse(body.as_bytes());
    let verdict = rules.verdict(&nobody(), &path);
    assert!(!verdict.allowed && verdict.too_complicated && verdict.rule.is_none());
    let mut effort = Effort::new();
    assert!(rules.judge(&nobody(), &path, &mut effort).is_err());
    assert!(effort.spent() <= MOST);
    let usual = rules.verdict(&nobody(), "/articles/2026/how-to-be-polite.html?page=2");
    assert!(usual.allowed && !usual.too_complicated, "a usual path is judged, whatever the file");
    let readings = format!("/{}x", "a;b\\c%2f//../".repeat(4_000));
    assert!(rules.verdict(&nobody(), &readings).too_complicated, "readings share one bound");
}

/// A file with fewer stars than octets can cause as many searches.
#[test]
fn starting_a_search_is_work_too() {
    let body = format!("User-agent: *\n{}", format!("Disallow: /{}b\n", "*a".repeat(8_000)).repeat(31));
    let rules = Rules::parse(body.as_bytes());
    let mut effort = Effort::new();
    assert!(rules.judge(&nobody(), &format!("/{}", "a".repeat(8_191)), &mut effort).is_err());
}

/// A verdict on a large real file with a long URL takes less than a twentieth of the bound.
#[test]
fn no_usual_file_comes_near_the_bound() {
    let rule = |n: usize| match n % 10 {
        0 => format!("Allow: /section{n}/public/\n"),
        1 => format!("Disallow: /*?sort{n}=\n"),
        2 => format!("Disallow: /*/print{n}/*.html$\n"),
        _ => format!("Disallow: /section{n}/private/\n"),
    };
    let body = format!("User-agent: *\n{}", (0..1_000).map(rule).collect::<String>());
    let path = format!("/articles/2026/11/how-to-be-polite.html?{}", "utm_source=newsletter&".repeat(20));
    let (rules, mut effort) = (Rules::parse(body.as_bytes()), Effort::new());
    assert!(rules.judge(&nobody(), &path, &mut effort).is_ok_and(|verdict| verdict.allowed));
    assert!(effort.spent() < MOST / 20, "{}", effort.spent());
}

/// Removes dot segments exactly as in RFC 3986, section 5.2.4: an independent reference.
fn remove_dot_segments(path: &str) -> String {
    let (mut input, mut output) = (path.to_owned(), String::new());
    while !input.is_empty() {
        if let Some(rest) = input.strip_prefix("../").or_else(|| input.strip_prefix("./")) {
            input = rest.to_owned();
        } else if input.starts_with("/./") || input == "/." {
            input = format!("/{}", input.get(3..).unwrap_or_default());
        } else if input.starts_with("/../") || input == "/.." {
            input = format!("/{}", input.get(4..).unwrap_or_default());
            output.truncate(output.rfind('/').unwrap_or(0));
        } else if input == "." || input == ".." {
            input.clear();
        } else {
            let end = input[1..].find('/').map_or(input.len(), |at| at + 1);
            output += &input[..end];
            input = input[end..].to_owned();
        }
    }
    output
}

proptest! {
    /// Promise 4: the verdict is the same, however a denied path is spelled.
    #[test]
    fn no_spelling_of_a_denied_path_is_allowed(
        parts in vec(select(&["a", "b", "private", "..", ".", "", "%2e%2e", ".%2E", "%2e", "x;y", "..;"][..]), 0..8),
        slashes in vec(select(&["/", "//", "%2f", "%2F", "\\", "%5c"][..]), 8),
        query in select(&["", "?", "?a=/../b"][..]),
    ) {
        let rules = Rules::parse(b"User-agent: *\nDisallow: /private\nDisallow: /a/b\nAllow: /private/a\n");
        let spelled: String = parts.iter().zip(&slashes).map(|(part, slash)| format!("{slash}{part}")).collect();
        let path = format!("/{}{query}", spelled.strip_prefix('/').unwrap_or(&spelled));
        let verdict = rules.verdict(&nobody(), &path);
        // How three kinds of servers read the path.
        let dots = path.split('?').next().unwrap_or_default().replace("%2e", ".").replace("%2E", ".");
        let slashed = dots.replace("%2f", "/").replace("%2F", "/").replace('\\', "/").replace("%5c", "/");
        let mut merged = slashed.clone();
        while merged.contains("//") {
            merged = merged.replace("//", "/");
        }
        for read in [remove_dot_segments(&dots), remove_dot_segments(&slashed), remove_dot_segments(&merged)] {
            let literal = rules.judge_reading(&nobody(), read.as_bytes(), &mut Effort::new());
            let denied = literal.is_ok_and(|literal| !literal.allowed);
            prop_assert!(!(denied && verdict.allowed), "{path} is allowed, and {read} is not");
        }
    }
}
