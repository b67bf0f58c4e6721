//! The configuration as a whole: text in, settings or a report out.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::file::ConfigSource;
use super::keys::{KEYS, RULE_KEYS, RULES, name_of, section_of};
use super::load::read;
use super::schema::description;
use super::*;

fn parse_all(text: &str) -> Result<Loaded, Problems> {
    load_all(text, &Sources::default())
}

fn load_all(text: &str, sources: &Sources) -> Result<Loaded, Problems> {
    let source = ConfigSource { path: "curtsy.toml".into(), text: text.to_owned(), exposed: false };
    read(Some(&source), sources)
}

fn accepted(text: &str) -> Config {
    parse_all(text).unwrap_or_else(|problems| panic!("{problems}")).config
}

fn refused(text: &str) -> String {
    parse_all(text).map(|loaded| loaded.config).expect_err("problems").to_string()
}

#[track_caller]
fn check_refused(text: &str, parts: &[&str]) {
    let report = refused(text);
    for part in parts {
        assert!(report.contains(part), "{part:?} is not in:\n{report}");
    }
}

#[track_caller]
fn check_warned(text: &str, parts: &[&str]) {
    let warnings = parse_all(text).unwrap_or_else(|problems| panic!("{problems}")).warnings;
    let report = Problems::new(warnings).to_string();
    for part in parts {
        assert!(report.contains(part), "{part:?} is not in:\n{report}");
    }
}

fn env(pairs: &[(&str, &str)]) -> Sources {
    let env = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { file: FileChoice::Nothing, env, overrides: ConfigOverrides::default() }
}

fn flags(list: &[(&str, &str, &str)]) -> ConfigOverrides {
    let mut overrides = ConfigOverrides::default();
    for (flag, path, value) in list {
        overrides.add(flag, path, value);
    }
    overrides
}

// --- the documented file ---

#[test]
fn the_documented_file_is_the_defaults() {
    let loaded = parse(TEMPLATE, Path::new("config.toml")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.warnings, []);
}

/// The file that `config init` writes sets nothing, and has every key with its default in comments.
#[test]
fn the_file_to_start_from_sets_nothing() {
    let loaded = parse(&starter(), Path::new("curtsy.toml")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((loaded.config, loaded.warnings), (Config::default(), vec![]));
    assert!(KEYS.iter().all(|row| loaded.origins.of(row.path).is_none()));
    let is_default =
        |line: &str| TEMPLATE.lines().any(|set| set.split_once("  #").is_some_and(|(set, _)| set.trim_end() == line));
    let text = starter();
    let (keys, _) = text.split_once("# [[host]]").expect("an example");
    let uncommented = keys.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if is_default(rest.split_once("  #").map_or(rest, |(set, _)| set).trim_end()) => {
            rest.to_owned() + "\n"
        }
        _ => line.to_owned() + "\n",
    });
    let loaded =
        parse(&uncommented.collect::<String>(), Path::new("x")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config, Config::default());
    let documented = parse(TEMPLATE, Path::new("config.toml")).unwrap_or_else(|problems| panic!("{problems}")).origins;
    let is_missing = |path: &&str| documented.of(path).is_some() && loaded.origins.of(path).is_none();
    let missing: Vec<&str> = KEYS.iter().map(|row| row.path).filter(is_missing).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert!(starter().lines().all(|line| line.chars().count() <= 120));
}

/// A file with every default as a line of its own gives `profile` nothing to do.
#[test]
fn a_profile_without_effect_is_warned_of() {
    let warnings = |text: &str| parse(text, Path::new("x")).unwrap_or_else(|problems| panic!("{problems}")).warnings;
    let told = warnings(&TEMPLATE.replace("profile = \"none\"", "profile = \"aggressive\""));
    assert!(told.len() == 1 && told[0].message.contains("`profile` changes nothing"), "{told:?}");
    let profile = "[politeness]\nprofile = 'standard'\n";
    assert_eq!(warnings(&format!("{profile}burst = 2")), []);
    assert_eq!(warnings(&format!("{profile}delay = '1s'")), []);
    assert_eq!(warnings(&format!("{profile}rate = '1/s'\nburst = 2")).len(), 1);
}

#[test]
fn names_of_the_admin_listener_are_names() {
    let config = accepted("access.admin_hosts = ['Curtsy.Example.org', 'localhost.']");
    let names: Vec<String> = config.access.admin_hosts.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["curtsy.example.org", "localhost"]);
    for name in ["*", "*.example.org", "curtsy:3129", "http://curtsy", "a/b", ""] {
        let text = format!("access.admin_hosts = ['{name}']");
        let report = parse(&text, Path::new("x")).expect_err("an error").to_string();
        assert!(report.contains("is not a host name") || name.is_empty(), "{report}");
    }
}

#[test]
fn every_key_is_documented() {
    for row in KEYS.iter() {
        let comment = description(section_of(row.path), name_of(row.path));
        let comment = comment.unwrap_or_else(|| panic!("{} is not in config.toml", row.path));
        assert_eq!(row.needs_restart, comment.contains("[restart]"), "{}", row.path);
    }
    for row in RULE_KEYS.iter() {
        assert!(description(RULES, row.path).is_some(), "{} is not in config.toml", row.path);
    }
}

#[test]
fn the_documented_host_rule_is_valid() {
    let start = TEMPLATE.find("# [[host]]").expect("an example");
    let rule: String = TEMPLATE[start..].lines().map(|line| line.trim_start_matches("# ").to_owned() + "\n").collect();
    let without_rate: String = rule.lines().filter(|line| !line.starts_with("rate")).collect::<Vec<_>>().join("\n");
    assert_eq!(accepted(&without_rate).host.len(), 1);
}

#[test]
fn no_file_means_the_defaults() {
    let loaded = load(&env(&[])).expect("the defaults");
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.path, None);
}

// --- reports ---

#[test]
fn five_mistakes_are_five_errors_in_order_of_line() {
    let report = parse(FIVE_MISTAKES, Path::new("/etc/curtsy/config.toml")).expect_err("problems");
    let lines: Vec<usize> = report
        .iter()
        .map(|problem| match &problem.place.as_ref().expect("a place").origin {
            ValueSource::File { line, .. } => *line,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(lines, [1, 4, 5, 8, 9]);
    assert_eq!(report.ending("The running configuration was not changed.").to_string(), FIVE_ERRORS);
}

const FIVE_MISTAKES: &str = r#"listen = "localhost:3128"

[upstream]
conect_timeout = "5s"
keep_alive = 10

[log]
format = "xml"
levle = "debug"
"#;

const FIVE_ERRORS: &str = r#"error: `listen` is not an address to listen on: "localhost:3128"
 --> /etc/curtsy/config.toml:1:10
  |
1 | listen = "localhost:3128"
  |          ^^^^^^^^^^^^^^^^ write an IP address and a port, such as "127.0.0.1:3128"

error: unknown key `conect_timeout` in [upstream]
 --> /etc/curtsy/config.toml:4:1
  |
4 | conect_timeout = "5s"
  | ^^^^^^^^^^^^^^ did you mean `connect_timeout`?

error: `keep_alive` needs a unit
 --> /etc/curtsy/config.toml:5:14
  |
5 | keep_alive = 10
  |              ^^ write "10s"

error: `format` cannot be "xml"
 --> /etc/curtsy/config.toml:8:10
  |
8 | format = "xml"
  |          ^^^^^ write "auto", "text" or "json"

error: unknown key `levle` in [log]
 --> /etc/curtsy/config.toml:9:1
  |
9 | levle = "debug"
  | ^^^^^ did you mean `level`?

5 errors. The running configuration was not changed."#;

#[test]
fn a_syntax_error_is_one_problem() {
    let problems = parse("listen = [\nworkers = \n[[[", Path::new("x.toml")).expect_err("problems");
    assert_eq!((problems.errors(), problems.warnings()), (1, 0));
    assert!(problems.to_string().contains("not valid TOML"));
}

#[test]
fn a_byte_order_mark_and_windows_lines_are_fine() {
    assert_eq!(accepted("\u{feff}workers = 2\r\nwatch = false\r\n").workers, 2);
    check_refused("\u{feff}workers = 2\r\nwatch = 1\r\n", &[":2:9", "2 | watch = 1\n  |         ^ write"]);
}

#[test]
fn every_wrong_item_of_a_list_is_named() {
    let problems = parse_all(r#"access.allow = ["10.0.0.0/8", "x", "y"]"#).expect_err("problems");
    assert_eq!(problems.errors(), 2);
}

#[test]
fn strangers_are_told_where_they_belong() {
    check_refused("[politness]\ndelay = '1s'", &["unknown section [politness]", "did you mean [politeness]?"]);
    check_refused("[log]\nlisten = '127.0.0.1:1'", &["`listen` belongs at the top, before the first [section]"]);
    check_refused(
        "[access]\nmax_wait = '1s'",
        &["unknown key `max_wait` in [access]", "`max_wait` belongs in [politeness]"],
    );
    check_refused("dellay = '1s'", &["unknown key `dellay`"]);
    check_refused("upstream = 5", &["[upstream] is a section"]);
    check_refused("[[log]]\nlevel = 'info'", &["[log] is a section"]);
    check_refused("[host]\nmatch = 'a'", &["write [[host]]"]);
    check_refused("host = [1]", &["a host rule is a table"]);
    check_refused(
        "[[host]]\nmatch = 'a'\ndely = '1s'",
        &["unknown key `dely` in [[host]] #1", "did you mean `delay`?"],
    );
}

#[test]
fn wrong_types_and_ranges_say_what_is_allowed() {
    check_refused("watch = 'yes'", &["`watch` must be true or false, not a string"]);
    check_refused("workers = 1.5", &["`workers` must be a whole number, not a number", "from 0 to 1024"]);
    check_refused("workers = -1", &["cannot be -1", "the smallest allowed is 0, the largest 1024"]);
    check_refused("workers = 0xffffffffffffffff", &["`workers`"]);
    check_refused("shutdown_grace = '2d'", &["cannot be 2d", "the largest 1h"]);
    check_refused("limits.head_size = '1KiB'", &["cannot be 1KiB", "the smallest allowed is 8KiB"]);
    check_refused("limits.head_size = 65536", &["needs a unit", "write \"65536B\""]);
    check_refused("politeness.jitter = nan", &["`jitter` cannot be NaN"]);
    check_refused("listen = []", &["`listen` is empty"]);
    check_refused("listen = [['127.0.0.1:1']]", &["`listen` must be a string, not a list"]);
    check_refused("access.allow = []", &["no client could use the proxy"]);
    check_refused("name = 2024-01-01", &["not a date"]);
}

#[test]
fn json_names_the_place() {
    let json = parse(FIVE_MISTAKES, Path::new("a.toml")).expect_err("problems").to_json();
    assert_eq!(json["errors"], 5);
    let second = &json["problems"][1];
    assert_eq!((&second["line"], &second["column"], &second["end_column"]), (&4.into(), &1.into(), &15.into()));
    assert_eq!(second["advice"], "did you mean `connect_timeout`?");
}

#[test]
fn a_secret_is_in_no_report() {
    for text in [
        "upstream.proxy = 'ftp://me:hunter2@a'",
        "metrics.token = ' hunter2'",
        "fleet.redis = 'http://me:hunter2@a'",
        "[metrics]\ntoken = 'hunter2",
        "[metrics]\ntokne = 'hunter2'",
        "metrics = { hots = 1, \"token\" = 'hunter2' }",
    ] {
        let problems = parse_all(text).expect_err("problems");
        assert!(!problems.to_string().contains("hunter2"), "{problems}");
        assert!(!problems.to_json().to_string().contains("hunter2"));
    }
    let problems = load(&env(&[("CURTSY_UPSTREAM__PROXY", "ftp://me:hunter2@a")])).expect_err("problems");
    assert!(!problems.to_string().contains("hunter2"), "{problems}");
}

// --- settings ---

#[test]
fn values_end_up_in_their_fields() {
    let config = accepted(
        r#"
        listen = ["127.0.0.1:1", "[::1]:2"]
        admin = "off"
        state_dir = "memory"
        [politeness]
        rate = "30/m"
        key = "domain"
        [robots]
        user_agent = "mybot"
        [upstream]
        proxy = "http://me:secret@corp:8080"
        bind = "192.0.2.7"
        [access]
        connect_ports = ["*"]
        allow_destinations = ["10.0.0.0/8", "*.internal"]
        [limits]
        head_size = "8KiB"
        [[host]]
        match = "*.example.org"
        delay = "5s"
        "#,
    );
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.admin, None);
    assert_eq!(config.state_dir, StateDir::Memory);
    assert_eq!((config.politeness.delay, config.pacing.key), (Duration::from_secs(2), Key::Domain));
    assert_eq!(config.robots.user_agent, ["mybot"]);
    assert_eq!(config.upstream.proxy.expect("a parent").port, 8080);
    assert_eq!(config.access.connect_ports, None);
    assert_eq!(config.access.allow_destinations.len(), 2);
    assert_eq!(config.limits.head_size, 8192);
    assert_eq!(config.host[0].delay, Some(Duration::from_secs(5)));
}

#[test]
fn delay_and_rate_are_alternatives() {
    check_refused("[politeness]\ndelay = '1s'\nrate = '1/s'", &["two ways to say the same"]);
    check_refused("[[host]]\nmatch = 'a'\ndelay = '1s'\nrate = '1/s'", &["two ways to say the same"]);
}

#[test]
fn a_stronger_source_may_say_it_the_other_way() {
    let mut sources = env(&[("CURTSY_POLITENESS__RATE", "2/s")]);
    let loaded = load_all("politeness.delay = '9s'", &sources).expect("valid");
    assert_eq!(loaded.config.politeness.delay, Duration::from_millis(500));
    assert_eq!(loaded.origins.of("politeness.delay"), Some(&ValueSource::Env("CURTSY_POLITENESS__RATE".to_owned())));
    sources.overrides = flags(&[("--delay", "politeness.delay", "3s")]);
    let loaded = load_all("politeness.delay = '9s'", &sources).expect("valid");
    assert_eq!(loaded.config.politeness.delay, Duration::from_secs(3));
    assert_eq!(loaded.origins.of("politeness.delay"), Some(&ValueSource::Flag("--delay".to_owned())));
}

#[test]
fn a_profile_fills_in_what_is_not_given() {
    for (profile, millis, burst) in [("conservative", 10_000, 1), ("standard", 1000, 3), ("aggressive", 100, 20)] {
        let config = accepted(&format!("politeness.profile = '{profile}'"));
        assert_eq!((config.politeness.delay.as_millis(), config.politeness.burst), (millis, burst));
    }
    let config = accepted("[politeness]\nprofile = 'aggressive'\nrate = '1/s'");
    assert_eq!((config.politeness.delay.as_millis(), config.politeness.burst), (1000, 20));
}

// --- checks across keys ---

#[test]
fn an_open_proxy_is_refused() {
    check_refused("listen = '0.0.0.0:3128'", &["nothing says who may use the proxy", "access.users_file", ":1:10"]);
    check_refused("listen = '[::]:3128'", &["nothing says who may use the proxy"]);
    accepted("listen = ['0.0.0.0:3128', '[::ffff:127.0.0.1]:1']\naccess.allow = '10.0.0.0/8'");
    accepted("listen = '0.0.0.0:3128'\naccess.users_file = 'users'");
    let secure = "tls = { listen = '0.0.0.0:3130', listen_cert = 'c', listen_key = 'k' }";
    check_refused(secure, &["reach `tls.listen` 0.0.0.0:3130, but nothing says who may use the proxy"]);
    accepted(&format!("{secure}\naccess.allow = '10.0.0.0/8'"));
    check_warned("listen = '0.0.0.0:3128'\naccess.allow = '0.0.0.0/0'", &["anyone who can reach this proxy"]);
}

#[test]
fn a_listener_for_tls_needs_all_its_parts() {
    let refused = |tls: &str, words: &str| check_refused(&format!("tls = {{ {tls} }}"), &[words]);
    refused("listen = '127.0.0.1:1'", "`tls.listen` is no use without `tls.listen_cert`");
    refused("listen = '127.0.0.1:1', listen_cert = 'c'", "`tls.listen` is no use without `tls.listen_key`");
    refused("listen_key = 'k'", "`tls.listen_key` is no use without `tls.listen`");
    accepted("tls = { listen = '127.0.0.1:1', listen_cert = 'c', listen_key = 'k' }");
    let twice = "tls = { listen = '127.0.0.1:1', listen_cert = 'c', listen_key = 'k' }\nlisten = '127.0.0.1:1'";
    check_refused(twice, &["already has 127.0.0.1:1 too"]);
}

#[test]
fn an_open_admin_listener_needs_a_token() {
    check_refused("admin = '0.0.0.0:3129'", &["without a token", "set metrics.token"]);
    accepted("admin = '0.0.0.0:3129'\nmetrics.token = 'x'");
}

#[test]
fn contradictions_are_refused() {
    check_refused("listen = '127.0.0.1:3129'", &["`admin` has 127.0.0.1:3129 too"]);
    check_refused("listen = ['127.0.0.1:1', '127.0.0.1:1']", &["`listen` already has 127.0.0.1:1 too"]);
    accepted("listen = ['127.0.0.1:0', '127.0.0.1:0']\nadmin = '127.0.0.1:0'");
    check_refused("tls.ca_cert = 'a.pem'", &["`tls.ca_cert` is no use without `tls.ca_key`"]);
    check_refused("politeness.max_queue = 30000", &["more (30000) than all hosts together (20000)"]);
    check_refused("[[host]]\ndelay = '1s'", &["[[host]] #1 does not say which hosts it is for", ":1:1"]);
}

#[test]
fn what_probably_was_not_meant_is_a_warning() {
    check_warned("politeness.delay = '0s'", &["turns pacing off"]);
    check_warned("politeness.max_wait = '10m'", &["Scrapy (180 s), aiohttp (300 s) or curl (300 s) waits", ":1:23"]);
    check_warned("politeness.max_wait = '4m'", &["longer than Scrapy (180 s) waits"]);
    check_warned("[[host]]\nmatch = 'a'\nmax_wait = '4m'\ndelay = '0s'", &[":3:12", ":4:9"]);
    check_warned("access.allow_destinations = '*'", &["cloud metadata"]);
    assert_eq!(parse_all("politeness.max_wait = '3m'").expect("valid").warnings, []);
}

#[test]
fn a_rule_behind_a_wider_one_is_noticed() {
    let rules = "[[host]]\nmatch = '*.a.org'\n[[host]]\nmatch = 'b.org'\n[[host]]\nmatch = ['x.a.org', 'b.org']\n";
    check_warned(rules, &["[[host]] #3 can never match: \"*.a.org\" in #1 comes first", ":6:9"]);
    let rules = "[[host]]\nmatch = '*.a.org'\n[[host]]\nmatch = ['x.a.org', 'b.org']\n";
    assert_eq!(parse_all(rules).expect("valid").warnings, []);
}

#[test]
fn a_secret_in_a_file_others_can_read_is_a_warning() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("curtsy.toml");
    std::fs::write(&path, "metrics.token = 'hunter2'").unwrap();
    let sources = Sources { file: FileChoice::Path(path.clone()), ..Sources::default() };
    for (mode, warnings) in [(0o600, 0), (0o640, 1), (0o604, 1)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let loaded = load(&sources).expect("valid");
        assert_eq!(loaded.warnings.len(), warnings, "{mode:o}");
        assert!(!Problems::new(loaded.warnings).to_string().contains("hunter2"));
    }
    std::fs::write(&path, "upstream.proxy = 'http://corp:3128'").unwrap();
    assert_eq!(load(&sources).expect("valid").warnings, []);
}

#[test]
fn the_urls_of_a_fleet_are_one_redis() {
    let problems = parse_all("fleet.redis = ['redis://a', 'redis://:hunter2@b']").expect_err("problems").to_string();
    assert!(problems.contains("`fleet.redis` has URLs that differ in scheme, user or password"), "{problems}");
    assert!(!problems.contains("hunter2"), "{problems}");
    let fleet =
        parse_all("fleet.redis = ['redis://a', 'redis://b:7000']\nfleet.name = 'shop'").expect("valid").config.fleet;
    assert_eq!((fleet.redis.len(), fleet.redis[1].port, fleet.name.as_str()), (2, 7000, "shop"));
}

#[test]
fn a_delay_and_a_rate_exclude_each_other() {
    let path = Path::new("x.toml");
    assert!(parse("[politeness]\ndelay = '1000ms'\nrate = '60/m'", path).is_err());
    assert!(parse("[politeness]\nrate = '60/m'", path).is_ok());
}

#[test]
fn what_is_built_can_be_set() {
    let text = "workers = 2\npoliteness.delay = '2s'\n[[host]]\nmatch = 'a'\ndelay = '5s'\n[upstream]\nkeep_alive = '5s'\n[limits]\nclient_idle = '5s'\n[metrics]\nhosts = 5\ntoken = 'x'\n[tls]\nextra_roots = ['a.pem']\nmin_version = '1.3'
tunnel.pace_requests = false";
    assert!(parse(text, Path::new("x.toml")).is_ok());
    check_refused("upstream.resolver = '1.1.1.1:53'", &["not available yet"]);
}

// --- variables and flags ---

#[test]
fn flags_beat_variables_and_variables_beat_the_file() {
    let mut sources = env(&[("CURTSY_WORKERS", "2"), ("CURTSY_LISTEN", "127.0.0.1:1, 127.0.0.1:2")]);
    sources.overrides = flags(&[("--listen", "listen", "127.0.0.1:8"), ("--listen", "listen", "127.0.0.1:9")]);
    let loaded = load_all("workers = 1\nwatch = false\nlisten = '127.0.0.1:7'", &sources).expect("valid");
    assert_eq!((loaded.config.workers, loaded.config.watch), (2, false));
    let listen: Vec<String> = loaded.config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:8", "127.0.0.1:9"]);
}

#[test]
fn every_key_can_be_set_by_a_variable() {
    for row in KEYS.iter() {
        let Some(value) = row.get(&Config::default()) else { continue };
        let text = match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map_or(item.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join(","),
            other => other.to_string(),
        };
        let loaded =
            load(&env(&[(&environment::variable(row.path), &text)])).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(loaded.config, Config::default(), "{}", row.path);
    }
}

#[test]
fn a_wrong_variable_or_flag_is_named() {
    let mut sources =
        env(&[("CURTSY_UPSTREAM__KEEP_ALIVE", "150"), ("CURTSY_UPSTREAM_BIND", "::1"), ("CURTSY_NONSENSE", "")]);
    sources.overrides = flags(&[("--access-log", "log.access", "")]);
    let report = load(&sources).expect_err("problems").to_string();
    let expected = r#"error: unknown variable CURTSY_NONSENSE
 --> env CURTSY_NONSENSE
  = `curtsy config show` lists the keys; CURTSY_SECTION__KEY sets one

error: unknown variable CURTSY_UPSTREAM_BIND
 --> env CURTSY_UPSTREAM_BIND
  = did you mean CURTSY_UPSTREAM__BIND?

error: `keep_alive` needs a unit
 --> env CURTSY_UPSTREAM__KEEP_ALIVE
  |
  | CURTSY_UPSTREAM__KEEP_ALIVE=150
  |                             ^^^ write "150s"

error: `access` is not a path
 --> --access-log
  |
  | --access-log
  |              ^ write the path of a file

4 errors."#;
    assert_eq!(report, expected);
}

#[test]
fn names_of_others_are_left_alone() {
    let others =
        ["CURTSY_CONFIG", "CURTSY_ADMIN_URL", "CURTSY_PROXY", "CURTSY_ACTIVE", "CURTSY_PORT_3128_TCP", "OTHER"];
    for name in others {
        assert!(load(&env(&[(name, "")])).is_ok(), "{name}");
    }
}

#[test]
fn a_value_can_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "hunter2\n").unwrap();
    let path = path.to_str().unwrap();
    let loaded = load(&env(&[("CURTSY_METRICS__TOKEN_FILE", path)])).expect("valid");
    assert_eq!(loaded.config.metrics.token.as_deref(), Some("hunter2"));
    assert!(show(&loaded, true).contains("# env CURTSY_METRICS__TOKEN_FILE"));

    let both = load(&env(&[("CURTSY_METRICS__TOKEN_FILE", path), ("CURTSY_METRICS__TOKEN", "x")]));
    assert!(both.expect_err("problems").to_string().contains("are both set"));
    let missing = load(&env(&[("CURTSY_METRICS__TOKEN_FILE", "/nowhere")]));
    assert!(missing.expect_err("problems").to_string().contains("/nowhere cannot be read"));
}

#[test]
fn a_key_that_ends_in_file_is_itself() {
    let loaded = load(&env(&[("CURTSY_ACCESS__USERS_FILE", "/nowhere")])).expect("valid");
    assert_eq!(loaded.config.access.users_file, Some("/nowhere".into()));
}

#[test]
fn the_parent_proxy_can_be_that_of_the_environment() {
    let mut sources = env(&[("HTTP_PROXY", "http://upper:1"), ("http_proxy", "lower:2")]);
    let loaded = load_all("upstream.proxy = 'env'", &sources).expect("valid");
    assert_eq!(loaded.config.upstream.proxy.expect("a parent").host, "lower");
    assert_eq!(loaded.origins.of("upstream.proxy"), Some(&ValueSource::Env("http_proxy".to_owned())));
    sources.env.clear();
    assert_eq!(load_all("upstream.proxy = 'env'", &sources).expect("valid").config.upstream.proxy, None);
    let circular = load_all("upstream.proxy = 'env'", &env(&[("http_proxy", "env")])).expect("valid");
    assert_eq!(circular.config.upstream.proxy.expect("a parent").host, "env");
}

// --- show, schema, differences ---

#[test]
fn show_says_where_values_come_from() {
    let mut sources = env(&[("CURTSY_WATCH", "false")]);
    sources.overrides = flags(&[("--admin", "admin", "off")]);
    let text = "workers = 3\n[politeness]\nprofile = 'standard'\n[[host]]\nmatch = 'a.org'\nrate = '1/m'";
    let shown = show(&load_all(text, &sources).expect("valid"), true);
    for line in [
        "listen = [\"127.0.0.1:3128\"]            # default",
        "admin = \"off\"                          # --admin",
        "workers = 3                              # curtsy.toml:1",
        "watch = false                            # env CURTSY_WATCH",
        "burst = 3                                # curtsy.toml:3",
        "delay = \"1m\"                           # curtsy.toml:6",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let found = shown.lines().any(|shown| shown.split_whitespace().collect::<Vec<_>>() == words);
        assert!(found, "{line:?} is not in:\n{shown}");
    }
}

#[test]
fn what_is_shown_reads_back() {
    for text in [
        TEMPLATE,
        "politeness.rate = '3/s'\nresponses.contact = '\"\\\u{e4}'\n[[host]]\nmatch = ['a', '::1']\njitter = 0.5",
    ] {
        let loaded = parse_all(text).expect("valid");
        for with_origin in [false, true] {
            assert_eq!(accepted(&show(&loaded, with_origin)), loaded.config);
        }
    }
}

#[test]
fn secrets_are_not_shown() {
    let text = "metrics.token = 'hunter2'\nfleet.redis = ['redis://:hunter2@a']\n\
        upstream.proxy = 'http://me:hunter2@corp:8080'";
    let loaded = parse_all(text).expect("valid");
    let json = show_json(&loaded, true).to_string();
    for shown in
        [show(&loaded, true), json, format!("{:?}", loaded.config.upstream), format!("{:?}", loaded.config.metrics)]
    {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(show(&loaded, false).contains("proxy = \"http://me:***@corp:8080\""));
}

#[test]
fn json_has_sections_and_origins() {
    let loaded = parse_all("tls.tunnel.max_lifetime = '5m'").expect("valid");
    assert_eq!(show_json(&loaded, false)["tls"]["tunnel"]["max_lifetime"], "5m");
    let leaf = &show_json(&loaded, true)["tls"]["tunnel"]["max_lifetime"];
    assert_eq!(leaf["origin"], "curtsy.toml:1");
}

#[test]
fn the_schema_knows_every_key() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for row in KEYS.iter() {
        let value = row.path.split('.').fold(&schema, |parent, part| &parent["properties"][part]);
        assert!(value["description"].is_string(), "{}", row.path);
        assert_eq!(value.get("default"), row.get(&Config::default()).as_ref(), "{}", row.path);
    }
    assert_eq!(schema["properties"]["host"]["items"]["required"][0], "match");
    assert_eq!(schema["properties"]["log"]["additionalProperties"], false);
}

#[test]
fn differences_are_told_in_words() {
    let old = accepted("metrics.token = 'a'\nname = 'x'");
    let new = accepted(
        "metrics.token = 'b'\n[upstream]\nkeep_alive = '10s'\n[politeness]\nrate = '2/s'\n[[host]]\nmatch = 'a'",
    );
    let told: Vec<String> = differences(&old, &new).iter().map(ToString::to_string).collect();
    let expected = [
        "name x -> auto (needs a restart)",
        "politeness.delay 1s -> 500ms",
        "upstream.keep_alive 4s -> 10s",
        "metrics.token changed",
        "host 1 rule added",
    ];
    assert_eq!(told, expected);
    assert_eq!(differences(&old, &old), []);
}

#[test]
fn these_keys_need_a_restart() {
    let restart: Vec<&str> = KEYS.iter().filter(|row| row.needs_restart).map(|row| row.path).collect();
    let known = [
        "listen",
        "admin",
        "state_dir",
        "name",
        "workers",
        "state.hosts",
        "state.robots",
        "cache.memory",
        "cache.disk",
        "cache.dir",
        "tls.listen",
    ];
    let fleet = ["fleet.redis", "fleet.name", "fleet.timeout", "fleet.nodes"];
    assert_eq!(restart, [&known[..], &fleet].concat());
}

// --- robustness ---

/// Parses a file and prints the result.
fn digest(text: &str) {
    let source = ConfigSource { path: "x".into(), text: text.to_owned(), exposed: true };
    match read(Some(&source), &Sources::default()) {
        Ok(loaded) => drop(show(&loaded, true)),
        Err(problems) => drop((problems.to_string(), problems.to_json())),
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        digest(&text);
    }

    #[test]
    fn no_value_makes_it_panic(index in 0..KEYS.len(), value in ".{0,40}") {
        let row = &KEYS[index];
        digest(&format!("{} = {value}", row.path));
        digest(&format!("{} = {}", row.path, show::toml(&value.clone().into())));
        let _ = load(&env(&[(&environment::variable(row.path), &value)])).map_err(|problems| problems.to_string());
    }

    #[test]
    fn no_change_to_the_documented_file_makes_it_panic(at in 0..TEMPLATE.len(), cut in 0usize..200, put in ".{0,20}") {
        let end = (at + cut).min(TEMPLATE.len());
        let mut bytes = TEMPLATE.as_bytes().to_vec();
        bytes.splice(at..end, put.bytes());
        digest(&String::from_utf8_lossy(&bytes));
    }
}
