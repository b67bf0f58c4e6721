//! Export and import: an export can be imported, and a bad line changes nothing.

use super::*;

fn filled(directory: &Path) -> Store {
    let (store, _) = open(directory);
    let overrides = StoredOverrides { delay_ms: Some(250), burst: None, concurrency: Some(1) };
    store.put_host("a.example", HostRecord { overrides, paused: true, ..learned(1_500) });
    store.put_host("::1", learned(20));
    store.put_robots("https://a.example", RobotsRecord { body: vec![0, 255, b'\n'], ..robots("") });
    store.put_job("spider \"x\"\n", JobRecord { reason: "status 503".into(), failures: 3, since_us: 1, until_us: 0 });
    store
}

/// Accepts every record as it is.
fn import(store: &Store, text: &[u8]) -> Result<Imported, LinesError> {
    store.import(text, |entry| {
        match entry {
            StoredLine::Host(host, record) => store.put_host(host.as_str(), record),
            StoredLine::Robots(origin, record) => store.put_robots(&origin, record),
            StoredLine::Job(client, record) => store.put_job(&client, record),
        }
        ImportFate::New
    })
}

fn taken(hosts: u64, robots: u64, jobs: u64) -> Imported {
    let new = |new| ImportTally { new, ..ImportTally::default() };
    Imported { hosts: new(hosts), robots: new(robots), jobs: new(jobs) }
}

fn export(store: &Store) -> String {
    let mut text = Vec::new();
    store.export(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn what_is_exported_can_be_imported() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = filled(here.path());
    let mut text = Vec::new();
    assert_eq!(store.export(&mut text).unwrap(), LineCount { hosts: 2, robots: 1, jobs: 1 });
    let (other, _) = open(there.path());
    other.put_host("a.example", learned(1));
    other.put_host("b.example", learned(2));
    assert_eq!(import(&other, &text).unwrap(), taken(2, 1, 1));
    assert_eq!(other.host("a.example"), store.host("a.example"));
    assert_eq!(other.host("b.example").unwrap().learned_ms, 2, "others stay");
    assert_eq!(other.robots("https://a.example").await, store.robots("https://a.example").await);
    other.delete_host("b.example");
    let again = export(&other);
    assert_eq!(again.as_bytes(), text, "in the same words and order");
    close(&other);
    assert_eq!(open(there.path()).1.hosts, 2);
}

const HEAD: &str = "{\"kind\":\"curtsy-state\",\"version\":1}\n";
const GOOD: &str = "{\"kind\":\"host\",\"key\":\"good.example\",\"record\":{\"paused\":true}}\n";

/// Imports `text` and expects this error about this line.
fn check_refused(text: &str, line: u64, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    let before = export(&store);
    let error = import(&store, text.as_bytes()).unwrap_err();
    assert!(matches!(error, LinesError::Line { number, .. } if number == line), "{error}");
    let message = error.to_string();
    assert!(message.contains(expected), "{message}");
    assert!(message.ends_with("Nothing was imported: fix or remove the line and import again"), "{message}");
    assert_eq!(export(&store), before);
    assert_eq!(store.host("good.example"), None);
}

#[test]
fn a_bad_line_is_named_and_nothing_is_imported() {
    let bad = |line: &str| format!("{HEAD}{GOOD}{line}\n");
    check_refused(&bad("{\"kind\":\"host\",\"key\":\"a.exa"), 3, "EOF while parsing");
    check_refused(&bad(""), 3, "EOF while parsing");
    check_refused(&bad("{\"kind\":\"hots\"}"), 3, "unknown variant `hots`");
    check_refused(
        &bad("{\"kind\":\"host\",\"key\":\"a.example\",\"record\":{\"learnd_ms\":1}}"),
        3,
        "unknown field `learnd_ms`",
    );
    check_refused(&bad("{\"kind\":\"host\",\"key\":\"a.example\",\"record\":{},\"x\":1}"), 3, "unknown field `x`");
    check_refused(&bad("{\"kind\":\"host\",\"key\":\"a.example\",\"record\":{\"learned_ms\":-1}}"), 3, "invalid value");
    check_refused(&bad("{\"kind\":\"host\",\"key\":\"A.example\",\"record\":{}}"), 3, "write it as \"a.example\"");
    check_refused(&bad("{\"kind\":\"host\",\"key\":\"a b\",\"record\":{}}"), 3, "has host \"a b\", which is none");
    check_refused(
        &bad("{\"kind\":\"robots\",\"origin\":\"a.example\",\"record\":{}}"),
        3,
        "write it as \"https://example.org\"",
    );
    check_refused(
        &bad("{\"kind\":\"robots\",\"origin\":\"https://a.example\",\"record\":{\"body\":\"?\"}}"),
        3,
        "Invalid",
    );
    check_refused(&bad("{\"kind\":\"job\",\"client\":\"\",\"record\":{}}"), 3, "a job without a client");
    check_refused(&bad(HEAD.trim()), 3, "begins a second export");
    check_refused(&bad(&format!("\"{}\"", "x".repeat(5 << 20))), 3, "is longer than 4194304 bytes");
}

#[test]
fn the_first_line_must_be_ours() {
    check_refused("", 1, "is missing");
    check_refused("hello\n", 1, "does not begin a curtsy export");
    check_refused(GOOD, 1, "is not the first line of a curtsy export");
    check_refused("{\"kind\":\"curtsy-state\",\"version\":2}\n", 1, "says version 2, this curtsy reads version 1");
}

#[test]
fn lines_people_write_may_leave_out_what_they_do_not_know() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let text = format!("{HEAD}{}", GOOD.trim_end());
    assert_eq!(import(&store, text.as_bytes()).unwrap(), taken(1, 0, 0));
    assert_eq!(store.host("good.example"), Some(HostRecord { paused: true, ..HostRecord::default() }));
}

#[test]
fn a_store_that_keeps_nothing_has_nothing_to_move() {
    let store = Store::memory(Retention::default());
    assert!(matches!(store.export(Vec::new()), Err(LinesError::NothingKept)));
    assert!(matches!(import(&store, b""), Err(LinesError::NothingKept)));
}

/// More than the outbox can hold at once: the import waits for the disk.
#[test]
fn a_large_export_is_taken_in_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let mut text = HEAD.to_owned();
    for n in 0..70_000 {
        text += &format!("{{\"kind\":\"host\",\"key\":\"{n}.example\",\"record\":{{\"paused\":true}}}}\n");
    }
    assert_eq!(import(&store, text.as_bytes()).unwrap(), taken(70_000, 0, 0));
    assert_eq!((store.hosts(), store.health().unwrap().lost), (70_000, 0));
    let mut seen = 0;
    store.each_host(|_, record| seen += u32::from(record.paused)).unwrap();
    assert_eq!(seen, 70_000);
    assert_eq!(
        std::fs::read_dir(directory.path())
            .unwrap()
            .filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("import"))
            })
            .count(),
        0,
        "the spool file is left behind"
    );
}
