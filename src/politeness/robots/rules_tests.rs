//! What a robots.txt says, told in small files.

use std::time::Duration;

use super::{Choice, Rules};
use crate::politeness::robots::Agents;

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
    assert_eq!(rules.delay(&agents("b")), None, "a named client does not inherit from everybody");
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

/// Long enough that the search changes its way in the middle.
#[test]
fn a_hostile_file_gets_the_verdict_it_deserves() {
    let miss = "disallow:/*aaaaaaaa\n".repeat(300);
    let body = format!("user-agent:*\nallow:/a*ba\n{miss}disallow:/*ab*aba*b$\n");
    let path = format!("/{}", "aaaaaaab".repeat(500));
    assert_eq!(verdict(&body, &path), "- 303 Disallow: /*ab*aba*b$");
    assert_eq!(verdict(&body, &format!("{path}a")), "+ 2 Allow: /a*ba");
    assert_eq!(verdict(&body, &format!("{path}aaaaaaaa")), "- 3 Disallow: /*aaaaaaaa");
}
