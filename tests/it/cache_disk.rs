//! Stored answers on disk: what survives a restart and a kill, folders that cannot be used, and `curtsy cache`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::cache::{page, site};
use crate::support::program::curtsy;
use crate::support::{Message, Origin, Program, soon};

/// `/fresh…` may be used for an hour, everything else must be validated.
fn origin() -> Origin {
    site(|request, _| {
        let path = path(request);
        let body = body_of(&path);
        let lifetime = if path.starts_with("/fresh") { 3_600 } else { 0 };
        let fields = format!("ETag: \"{path}\"\r\nCache-Control: max-age={lifetime}\r\n");
        match request.value("if-none-match").contains(&path) && !path.is_empty() {
            true => format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"),
            false => page(&fields, &body),
        }
    })
}

fn path(request: &Message) -> String {
    request.line().split(' ').nth(1).unwrap_or_default().to_owned()
}

/// A body that says which it is, from start to end.
fn body_of(path: &str) -> String {
    let size = if path.contains("large") { 3_000_000 } else { 5_000 };
    let mut body = format!("{path} ").repeat(size / (path.len() + 1));
    body.push_str("end");
    body
}

/// A program that stores answers in `folder`.
fn program(folder: &Path) -> Program {
    program_by(uncached(), folder)
}

fn program_by(command: Command, folder: &Path) -> Program {
    let cache = format!("[cache]\ndisk = \"32MiB\"\ndir = \"{}\"\n", folder.display());
    Program::start_by(command, "admin = \"127.0.0.1:0\"", &cache)
}

/// The program without what keeps the other tests from storing answers on disk.
fn uncached() -> Command {
    let mut command = curtsy();
    command.env_remove("CURTSY_CACHE__DISK");
    command
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a writable temporary directory")
}

/// Waits until the program has read its catalogue.
fn loaded(program: &Program) {
    assert!(soon(|| api(program, "GET /api/v1/cache")["disk"]["loaded"] == true));
}

fn api(program: &Program, line: &str) -> Value {
    let mut client = crate::support::Client::connect(program.admin());
    let json = "Content-Type: application/json";
    client.send_head(&[&format!("{line} HTTP/1.1"), "Host: localhost", "Connection: close", json, "Content-Length: 0"]);
    serde_json::from_slice(&client.response().body).expect("the API answers in JSON")
}

/// How often the origin was asked for a page.
fn visits(origin: &Origin) -> usize {
    origin.requests(0).len()
}

/// Asks until the answer comes from disk: a busy machine may make the disk late, and a late copy is a miss.
fn until_from_disk(program: &Program, origin: &Origin, path: &str, fields: &[&str]) -> Message {
    let line = format!("GET {} HTTP/1.1", origin.url(path));
    let mut answer = None;
    assert!(soon(|| {
        let told = program.ask(&[&[line.as_str(), "Host: ignored.test"], fields].concat());
        let is_hit = told.value("cache-status").contains("; hit");
        answer = Some(told);
        is_hit
    }));
    answer.expect("it was asked for")
}

#[test]
fn answers_survive_a_restart_and_are_validated_when_they_are_stale() {
    let (folder, origin) = (folder(), origin());
    let first = program(folder.path());
    for path in ["/fresh", "/stale", "/fresh-large"] {
        assert_eq!(first.get(&origin.url(path)).text(), body_of(path));
    }
    first.stop();
    let before = visits(&origin);
    let second = program(folder.path());
    loaded(&second);
    let answer = until_from_disk(&second, &origin, "/fresh", &[]);
    assert_eq!(answer.text(), body_of("/fresh"));
    let large = until_from_disk(&second, &origin, "/fresh-large", &[]);
    assert!(large.text() == body_of("/fresh-large"));
    let part = until_from_disk(&second, &origin, "/fresh-large", &["Range: bytes=1000000-1000009"]);
    assert_eq!((part.status(), part.text()), (206, body_of("/fresh-large")[1_000_000..1_000_010].to_owned()));
    if second.metric("curtsy_cache_disk_reads_total{result=\"late\"}") == 0 {
        assert_eq!(visits(&origin), before, "what is fresh is not asked for");
    }
    let stale = second.get(&origin.url("/stale"));
    assert_eq!(stale.text(), body_of("/stale"));
    let last = origin.requests(0).pop().expect("a validation");
    if second.metric("curtsy_cache_disk_reads_total{result=\"late\"}") == 0 {
        assert_eq!(last.value("if-none-match"), "\"/stale\"");
        assert!(stale.value("cache-status").contains("fwd-status=304"), "{}", stale.head());
    }
}

/// C27: what an unsafe request makes invalid stays so after a restart.
#[test]
fn an_invalidated_answer_does_not_come_back() {
    let (folder, origin) = (folder(), origin());
    let first = program(folder.path());
    first.get(&origin.url("/fresh"));
    first.ask(&[&format!("DELETE {} HTTP/1.1", origin.url("/fresh")), "Host: x"]);
    first.stop();
    let before = visits(&origin);
    let second = program(folder.path());
    loaded(&second);
    assert_eq!(second.get(&origin.url("/fresh")).status(), 200);
    assert_eq!(visits(&origin), before + 1);
}

/// C51: kills the program while it stores. Whatever a client gets afterwards is whole and right.
#[test]
fn no_torn_answer_is_served_after_a_kill() {
    let rounds = std::env::var("CURTSY_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let (folder, origin) = (folder(), origin());
    let mut dice = fastrand::Rng::with_seed(3);
    let paths: Vec<String> =
        (0..30).map(|n| format!("/fresh-{n}{}", if n % 10 == 0 { "-large" } else { "" })).collect();
    let mut hits = 0;
    for _ in 0..rounds {
        let program = program(folder.path());
        loaded(&program);
        // Kills after some answers, not after some time.
        for path in paths.iter().take(dice.usize(1..paths.len())) {
            let answer = program.get(&origin.url(path));
            assert!(answer.text() == body_of(path), "a torn answer for {path}");
            hits += usize::from(answer.value("cache-status").contains("; hit"));
        }
        assert_eq!(program.metric("curtsy_cache_disk_reads_total{result=\"damaged\"}"), 0);
        if dice.bool() {
            // Often enough the last second is catalogued.
            assert!(soon(|| api(&program, "GET /api/v1/cache/entries")["total"].as_u64() > Some(0)));
        }
        program.kill();
    }
    assert!(hits > 0, "nothing survived any kill");
    let program = program(folder.path());
    loaded(&program);
    program.stop();
    let verified = command(&["cache", "verify", "--cache", &folder.path().display().to_string()]);
    assert_eq!(verified.0, 0, "{}", verified.1);
}

/// C54
#[test]
fn a_second_curtsy_goes_without_the_folder_and_says_so() {
    let (folder, origin) = (folder(), origin());
    let first = program(folder.path());
    loaded(&first);
    let second = program(folder.path());
    assert!(soon(|| second.event("cache.unwritten").is_some()), "{:#?}", second.stderr());
    let why = second.event("cache.unwritten").expect("it was logged")["why"].to_string();
    assert!(why.contains(&format!("another curtsy uses the folder (process {})", first.id())), "{why}");
    let mut listener = crate::support::Client::connect(second.admin());
    listener.send_head(&["GET /api/v1/events?kind=cache&recent=9 HTTP/1.0", "Host: localhost"]);
    let mut told = String::new();
    while !told.contains("cache.unwritten") {
        told += &String::from_utf8_lossy(&listener.read_some().expect("the stream goes on"));
    }
    assert!(told.contains("another curtsy uses the folder"), "{told}");
    assert_eq!(second.get(&origin.url("/fresh")).text(), body_of("/fresh"));
    assert_eq!(second.get(&origin.url("/fresh")).text(), body_of("/fresh"));
    assert_eq!(visits(&origin), 1, "memory works");
    assert!(api(&second, "GET /api/v1/cache")["disk"]["trouble"].is_string());
}

/// C61: `explain` and `check` find what is on disk alone, and the answer stays there.
#[test]
fn explain_and_check_look_on_disk() {
    let (folder, origin) = (folder(), origin());
    let first = program(folder.path());
    for path in ["/fresh", "/stale", "/fresh-large"] {
        first.get(&origin.url(path));
    }
    first.stop();
    let second = program(folder.path());
    loaded(&second);
    let before = visits(&origin);
    for (path, state) in [("/fresh", "fresh"), ("/fresh-large", "fresh"), ("/stale", "validate"), ("/other", "miss")] {
        let told = api(&second, &format!("GET /api/v1/explain?url={}", origin.url(path)));
        assert_eq!(told["cache"]["state"], state, "{path}: {told}");
    }
    let admin = format!("http://{}", second.admin());
    let (code, told) = command(&["check", &origin.url("/fresh"), &origin.url("/stale"), "--json", "--admin", &admin]);
    assert!(code == 0 && told.contains("\"fresh\"") && told.contains("\"validate\""), "{told}");
    assert_eq!(api(&second, "GET /api/v1/cache")["memory"]["objects"], 0, "a question brings nothing into memory");
    assert_eq!(api(&second, "GET /api/v1/cache")["disk"]["read"], 0, "and is no use of the answer");
    assert_eq!(visits(&origin), before);
}

/// Why an answer was not stored, and what is stored for a request with other fields.
#[test]
fn people_see_why_nothing_is_stored_for_a_request() {
    let folder = folder();
    let origin = site(|request, _| match path(request).as_str() {
        "/robots.txt" => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/login" => page("Cache-Control: max-age=60\r\nSet-Cookie: a=1\r\n", "hello"),
        _ => page("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", &request.value("accept-language")),
    });
    let running = program(folder.path());
    let admin = format!("http://{}", running.admin());
    let say = |arguments: &[&str]| command(&[arguments, &["--admin", &admin]].concat());
    let url = origin.url("/login");
    assert_eq!(say(&["cache", "show", &url]), (3, format!("nothing is stored for {url}\n")));
    running.get(&url);
    let (code, told) = say(&["cache", "show", &url]);
    assert!(code == 3 && told.ends_with("\nthe last answer was not stored: it sets a cookie\n"), "{told}");
    let (code, told) = say(&["explain", &url]);
    assert!(code == 0 && told.contains("the last answer was not stored (it sets a cookie)"), "{told}");
    let url = origin.url("/page");
    for language in ["de", "fr", "fr"] {
        running.ask(&[&format!("GET {url} HTTP/1.1"), &format!("Accept-Language: {language}")]);
    }
    let show = |fields: &[&str]| say(&[&["cache", "show", &url], fields].concat());
    let (code, told) = show(&[]);
    assert!(code == 0 && told.matches("only for requests with").count() == 2, "{told}");
    let (code, told) = show(&["--header", "Accept-Language: fr"]);
    assert!(code == 0 && told.contains("accept-language: fr") && told.contains("1 more for other requests"), "{told}");
    assert!(!told.contains("accept-language: de") && told.contains("1 hits"), "{told}");
    let (code, told) = show(&["-H", "Accept-Language: en"]);
    assert!(code == 3 && told.contains("2 for others"), "{told}");
    assert!(show(&["-H", "nonsense"]).1.contains("is no header field"), "{:?}", show(&["-H", "nonsense"]));
    let (_, told) = say(&["cache"]);
    assert!(told.contains("age      oldest ") && told.lines().all(|line| line.len() <= 80), "{told}");
}

/// What the cache saved is told for each host.
#[test]
fn a_host_says_what_the_cache_saved() {
    let (folder, origin) = (folder(), origin());
    let mut paced = uncached();
    paced.env("CURTSY_POLITENESS__MODE", "enforce").env("CURTSY_POLITENESS__DELAY", "0s");
    let running = program_by(paced, folder.path());
    for path in ["/fresh", "/fresh", "/fresh", "/stale", "/stale"] {
        running.get(&origin.url(path));
    }
    let saved = || api(&running, "GET /api/v1/hosts/127.0.0.1")["saved"].clone();
    let bytes = 2 * body_of("/fresh").len() + body_of("/stale").len();
    let wanted = serde_json::json!({ "requests": 2, "bytes": bytes });
    assert!(soon(|| saved() == wanted), "{} is not {wanted}", saved());
    let (_, told) = command(&["host", "127.0.0.1", "--admin", &format!("http://{}", running.admin())]);
    assert!(told.contains("saved     2 requests, 15.0 kB (from the cache)"), "{told}");
    assert_eq!(running.metric("curtsy_host_saved_requests_total{host=\"127.0.0.1\"}"), 2);
    assert_eq!(running.metric("curtsy_host_saved_bytes_total{host=\"127.0.0.1\"}"), bytes as u64);
}

/// C52: a folder that cannot be made is logged once, counted, and harms no request.
#[test]
fn a_folder_that_cannot_be_used_harms_nothing() {
    let (folder, origin) = (folder(), origin());
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "in the way").expect("a writable temporary directory");
    let program = program(&blocked);
    assert!(soon(|| program.event("cache.unwritten").is_some()), "{:#?}", program.stderr());
    for path in ["/fresh", "/stale", "/fresh-large"] {
        assert!(program.get(&origin.url(path)).text() == body_of(path));
    }
    assert!(program.metric("curtsy_cache_disk_write_failures_total") > 0);
    assert!(soon(|| program.metric("curtsy_cache_disk_write_failures_total") > 1), "it is tried again");
    let logged = program.stderr().iter().filter(|line| line.contains("cache.unwritten")).count();
    assert_eq!(logged, 1);
}

/// Runs a command of the program to its end, without a running curtsy.
fn command(arguments: &[&str]) -> (i32, String) {
    let mut command = uncached();
    command.env("CURTSY_ADMIN", "off").env_remove("CURTSY_ADMIN_URL").args(arguments);
    let output = command.output().expect("the built program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("an exit code"), text(&output.stdout) + &text(&output.stderr))
}

/// C60: the commands see the same while curtsy runs and afterwards.
#[test]
fn people_list_show_forget_and_verify() {
    let (folder, origin) = (folder(), origin());
    let running = program(folder.path());
    for path in ["/fresh", "/fresh-large", "/stale"] {
        running.get(&origin.url(path));
    }
    let admin = format!("http://{}", running.admin());
    let live = |arguments: &[&str]| command(&[&["cache"], arguments, &["--admin", &admin]].concat());
    assert!(soon(|| live(&[]).1.contains("3 answers")), "{:?}", live(&[]));
    let (code, list) = live(&["list", "127.0.0.1", "--sort", "size"]);
    assert_eq!((code, list.lines().count()), (0, 4), "{list}");
    assert!(
        list.lines().nth(1).is_some_and(|line| line.contains("2.9 MiB") && line.contains("/fresh-large")),
        "{list}"
    );
    let (code, shown) = live(&["show", &origin.url("/fresh")]);
    assert!(code == 0 && shown.contains("  fresh for ") && shown.contains("ETag: \"/fresh\""), "{shown}");
    let (code, nothing) = live(&["show", &origin.url("/other")]);
    assert!(code == 3 && nothing.contains("nothing is stored"), "{nothing}");
    assert_eq!(live(&["purge", &origin.url("/fresh")]), (0, "forgot 1 stored answer\n".to_owned()));
    running.stop();
    let path = folder.path().display().to_string();
    let offline = |arguments: &[&str]| command(&[&["cache"], arguments, &["--cache", &path]].concat());
    let (code, list) = offline(&["list", "--json"]);
    assert!(code == 0 && list.contains("\"total\": 2") && list.contains("offline: "), "{list}");
    assert!(offline(&["verify"]).1.contains("2 stored answers"));
    let segment = folder.path().join("large/000002.warc");
    let mut bytes = std::fs::read(&segment).expect("the large answer has a file of its own");
    bytes[2_000_000] ^= 1;
    std::fs::write(&segment, bytes).expect("a writable file");
    let (code, told) = offline(&["verify"]);
    assert!(code == 1 && told.contains("damaged: ") && told.contains("/fresh-large"), "{told}");
    assert!(offline(&["purge", "--all"]).1.contains("forgot 2 stored answers"));
    let (code, told) = offline(&["list"]);
    assert!(code == 0 && told.contains("nothing is stored"), "{told}");
}

/// C62: the summary of `exec` adds up with the origin's log.
#[test]
fn exec_keeps_answers_for_the_next_run() {
    let folder = folder();
    let origin = Origin::on("127.0.0.2", |visitor| {
        while let Some(request) = visitor.request() {
            let path = path(&request);
            let fields = if path == "/fresh" {
                "Cache-Control: max-age=60\r\n"
            } else {
                "ETag: \"1\"\r\nCache-Control: no-cache\r\n"
            };
            if path == "/robots.txt" {
                visitor.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            } else if request.has("if-none-match") {
                visitor.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes());
            } else {
                visitor.send(page(fields, "hello").as_bytes());
            }
        }
    });
    let exec = |arguments: &[&str]| {
        let mut command = uncached();
        for name in ["http_proxy", "no_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command.env("HOME", folder.path()).env("XDG_STATE_HOME", folder.path()).env("XDG_CACHE_HOME", folder.path());
        command.env("CURTSY_ACCESS__ALLOW_DESTINATIONS", "127.0.0.0/8").env("CURTSY_ADMIN", "off");
        command.args(["exec", "--delay", "0s"]).args(arguments).arg("--");
        command.args(["curl", "-sS", &origin.url("/fresh"), &origin.url("/checked")]);
        let output = command.output().expect("the built program starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hellohello", "{arguments:?}: {told}");
        told
    };
    let pages = || origin.requests(0).iter().filter(|request| path(request) != "/robots.txt").count();
    assert!(!exec(&[]).contains("not sent"));
    assert_eq!(pages(), 2);
    let told = exec(&[]);
    assert!(told.contains("1 was not sent (1 from the cache);") && told.contains("1 unchanged (304)"), "{told}");
    assert_eq!(pages(), 3);
    assert!(folder.path().join("curtsy/cache.db").exists());
    assert!(!exec(&["--no-cache"]).contains("not sent"));
    assert_eq!(pages(), 5);
    std::fs::remove_dir_all(folder.path().join("curtsy")).expect("the folder of the first run");
    exec(&["--report"]);
    assert!(!folder.path().join("curtsy/cache.db").exists(), "a dry run leaves nothing behind");
    assert_eq!(pages(), 7);
    let own = folder.path().join("own");
    assert!(!exec(&["--cache", &own.display().to_string()]).contains("not sent"));
    assert!(pages() == 9 && own.join("cache.db").exists());
}
