//! `curtsy doctor --redis` finds what makes a Redis unfit for a fleet.

use curtsy::ledger::rights::RIGHTS;
use serde_json::Value;

use crate::support::Hole;
use crate::support::program::run;
use crate::support::redis::RedisServer;
use crate::support::redis_sets::{RedisCluster, SentinelSet};

/// Runs it and returns the exit code and the findings as "level about", with their texts.
fn doctor(urls: &[String]) -> (i32, Vec<(String, String)>) {
    let mut arguments = vec!["doctor", "--json"];
    arguments.extend(urls.iter().flat_map(|url| ["--redis", url]));
    let (code, printed) = run(&arguments);
    let json: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let finding = |finding: &Value| {
        let line = format!("{} {}", text(&finding["level"]), text(&finding["about"]));
        (line, format!("{} {}", text(&finding["text"]), text(&finding["fix"])))
    };
    (code, json["findings"].as_array().expect("findings").iter().map(finding).collect())
}

/// The text of this finding.
#[track_caller]
fn text_of<'a>(findings: &'a [(String, String)], line: &str) -> &'a str {
    findings
        .iter()
        .find(|(found, _)| found == line)
        .map_or_else(|| panic!("no {line}: {findings:#?}"), |found| &found.1)
}

#[test]
fn a_fit_server_passes() {
    let redis = RedisServer::start();
    let (code, findings) = doctor(&[redis.url()]);
    // A busy machine may be slow, and says so.
    let slow = findings.iter().any(|(line, _)| line == "fail latency");
    assert_eq!(code, i32::from(slow), "{findings:#?}");
    assert!(text_of(&findings, "ok redis").contains(&format!("127.0.0.1:{} is Redis ", redis.port())));
    text_of(&findings, "ok eviction");
    text_of(&findings, "ok rights");
    assert!(findings.iter().any(|(line, text)| line.ends_with("latency") && text.contains("a round trip takes")));
    assert_eq!(redis.run::<u64>(&["DBSIZE"]), 0, "it leaves no key");
}

#[test]
fn exactly_the_documented_rights_are_enough() {
    let redis = RedisServer::start();
    let user = |rights: &str| {
        let rights: Vec<&str> = rights.split_whitespace().collect();
        redis.run::<()>(&[&["ACL", "SETUSER", "curtsy", "reset", "on", ">hunter2", "~curtsy:*"], &rights[..]].concat());
    };
    let url = format!("redis://curtsy:hunter2@127.0.0.1:{}", redis.port());
    user(RIGHTS);
    text_of(&doctor(std::slice::from_ref(&url)).1, "ok rights");
    // Without any single one of them it says which.
    for right in RIGHTS.split_whitespace().filter(|right| right.starts_with('+') && *right != "+cluster|slots") {
        user(&RIGHTS.replace(&format!("{right} "), " "));
        let (code, findings) = doctor(std::slice::from_ref(&url));
        let told: String = findings.iter().map(|(line, text)| format!("{line}: {text}\n")).collect();
        assert!(!told.contains("hunter2"), "{told}");
        // The script is loaded by now, so EVAL is not needed.
        if right == "+eval" {
            continue;
        }
        // Some providers forbid INFO. A fleet can do without it.
        if right == "+info" {
            assert!(text_of(&findings, "warn redis").contains("may not call INFO"));
            continue;
        }
        assert!(code == 1 && told.contains(&right[1..]), "{right}: {told}");
    }
    let elsewhere = doctor(&[url.replace("hunter2", "swordfish")]);
    assert!(text_of(&elsewhere.1, "fail redis").contains("refuses the user or password"));
}

/// Starts a server with the files that deploy/ gives to users, with other paths and another password.
#[test]
fn the_deployed_redis_is_fit() {
    let read = |name: &str| std::fs::read_to_string(format!("{}/deploy/redis/{name}", env!("CARGO_MANIFEST_DIR")));
    let users = read("users.acl").expect("a file of the repository");
    assert!(users.contains(&format!("user curtsy on >PASSWORD ~curtsy:* {RIGHTS}\n")), "{users}");
    let folder = tempfile::tempdir().expect("a writable temporary directory");
    let file = folder.path().join("users.acl");
    std::fs::write(&file, users.replace("PASSWORD", "hunter2")).expect("a new folder");
    let path = file.display().to_string();
    let settings = read("redis.conf").expect("a file of the repository").replace("/etc/redis/users.acl", &path);
    let words: Vec<String> = settings
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| {
            line.split_whitespace()
                .enumerate()
                .map(|(at, word)| if at == 0 { format!("--{word}") } else { word.to_owned() })
        })
        .collect();
    let redis = RedisServer::with(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let (_, findings) = doctor(&[format!("redis://curtsy:hunter2@127.0.0.1:{}", redis.port())]);
    for line in ["ok redis", "ok eviction", "ok rights"] {
        text_of(&findings, line);
    }
    let stranger = doctor(&[redis.url()]).1;
    text_of(&stranger, "fail redis");
}

#[test]
fn what_is_unfit_is_told_with_a_fix() {
    let redis = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let (code, findings) = doctor(&[redis.url()]);
    assert_eq!(code, 1);
    assert!(text_of(&findings, "fail eviction").contains("CONFIG SET maxmemory-policy noeviction"));

    let master = RedisServer::start();
    redis.run::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    assert!(text_of(&doctor(&[redis.url()]).1, "fail redis").contains("a replica"));

    let hole = Hole::refusing();
    let (code, findings) = doctor(&[format!("redis://me:hunter2@{}", hole.authority())]);
    assert_eq!(code, 1);
    assert!(text_of(&findings, "fail redis").contains("cannot be reached"));
    assert!(!format!("{findings:?}").contains("hunter2"));
}

#[test]
fn a_cluster_and_a_sentinel_are_followed() {
    let cluster = RedisCluster::start();
    let (_, findings) = doctor(&cluster.urls());
    assert_eq!(findings.iter().filter(|(line, _)| line == "ok redis").count(), 3, "{findings:#?}");
    text_of(&findings, "ok rights");
    assert!(text_of(&doctor(&cluster.urls()[..1]).1, "fail redis").contains("only one URL is given"));

    let set = SentinelSet::start();
    assert!(text_of(&doctor(&[set.url()]).1, "ok redis").contains("the master is Redis"));
}

#[test]
fn a_wrong_url_is_refused_without_quoting_it() {
    for (url, told) in [
        ("http://me:hunter2@a", "is not the URL of a Redis"),
        ("redis://hunter2@a", "has a user without a password"),
        ("redis+sentinel://:hunter2@a", "does not name the master"),
    ] {
        let (code, printed) = run(&["doctor", "--redis", url]);
        assert!(code == 1 && printed.contains(told) && !printed.contains("hunter2"), "{code}: {printed}");
    }
    let (code, printed) = run(&["doctor", "--redis"]);
    assert!(code == 1 && printed.contains("no Redis is named"), "{code}: {printed}");
}
