//! The metrics for Prometheus: their names, their values, and a bound on the number of series.
//!
//! `tests/data/metrics.txt` lists all names and labels, so that none changes by accident. After a change run
//! `BLESS=1 cargo test --test it metrics`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;

use curtsy::config::{Config, HostPattern, Mode};

use crate::support::tls_client::{believing, intercepting, tunnel};
use crate::support::tls_origin::{self, https};
use crate::support::{Authority, Curtsy, HELLO, Origin, ms, soon};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn page(curtsy: &Curtsy) -> String {
    curtsy.ask_admin(&["GET /metrics HTTP/1.1", "Host: localhost", "Connection: close"]).text()
}

fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(0);
        change(config);
    })
}

/// The page without values and without what differs between builds.
fn normalised(page: &str) -> String {
    let line = |line: &str| match line.starts_with('#') {
        true => line.to_owned(),
        false => line.rsplit_once(' ').expect("a series and its value").0.to_owned(),
    };
    let text = page.lines().map(line).collect::<Vec<_>>().join("\n") + "\n";
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    text.replace(&version, "version=\"…\"").replace("revision=\"unknown\"", "revision=\"…\"")
}

/// The metric names in a text that begin with `curtsy_` or `process_`.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("curtsy_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// The names in the golden file, including the parts of histograms.
fn known() -> BTreeSet<String> {
    names(&read("tests/data/metrics.txt"))
}

/// The names of whole metrics: `# TYPE name kind`.
fn metrics() -> BTreeSet<String> {
    let golden = read("tests/data/metrics.txt");
    let types = golden.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().expect("a name").to_owned()).collect()
}

#[test]
fn the_metrics_of_a_fresh_curtsy_are_those_written_down() {
    let page = normalised(&page(&Curtsy::start()));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file("tests/data/metrics.txt"), &page).expect("a writable tree");
    }
    let golden = read("tests/data/metrics.txt");
    let differing = page.lines().zip(golden.lines()).find(|(now, then)| now != then);
    assert!(
        page == golden,
        "the first difference is {differing:?}; if it is meant: BLESS=1 cargo test --test it metrics"
    );
}

/// docs/metrics.md explains every metric, and only metrics that exist.
#[test]
fn every_metric_is_in_the_documentation() {
    let document = read("docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let explained: BTreeSet<String> = rows.filter_map(|row| row.split(['`', '{']).next()).map(str::to_owned).collect();
    assert_eq!(explained, metrics());
}

/// The names of labels: `{kind="http",outcome="denied"}` has two.
fn labels() -> BTreeSet<String> {
    let golden = read("tests/data/metrics.txt");
    let pairs = golden.split(['{', ',']).filter_map(|text| text.split_once("=\""));
    pairs.map(|(name, _)| name.to_owned()).collect()
}

/// The labels that queries in a text sum by: `sum by (kind, outcome) (…)` has two.
fn summed_by(text: &str) -> BTreeSet<&str> {
    let lists = text.split(" by (").skip(1).filter_map(|rest| rest.split_once(')'));
    lists.flat_map(|(list, _)| list.split(", ")).collect()
}

/// An alert or a panel that queries a metric that does not exist would never show anything.
#[test]
fn alerts_and_dashboard_ask_for_what_exists() {
    for name in ["deploy/alerts.yml", "deploy/grafana/dashboards/curtsy.json", "docs/metrics.md"] {
        let (used, known) = (names(&read(name)), known());
        let unknown: Vec<&String> = used.difference(&known).collect();
        assert!(unknown.is_empty() && used.len() > 10, "{name}: {unknown:?} of {}", used.len());
        // Prometheus adds `instance`; the query itself makes `class` from the status code.
        let (text, known) = (read(name), labels());
        let unknown: Vec<&str> = summed_by(&text).into_iter().filter(|label| !known.contains(*label)).collect();
        assert!(unknown.iter().all(|label| ["instance", "class"].contains(label)), "{name} sums by {unknown:?}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/dashboards/curtsy.json")).expect("a dashboard is JSON");
    let rows = json["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] == "row");
    let rows: Vec<&str> = rows.filter_map(|row| row["title"].as_str()).collect();
    assert_eq!(rows, ["Now", "Politeness", "Origins", "robots.txt", "HTTPS", "Process"]);
}

#[test]
fn hosts_are_told_apart_as_far_as_is_allowed() {
    let answering = |address| {
        Origin::on(address, |visitor| {
            while visitor.request().is_some() {
                visitor.send(HELLO);
            }
        })
    };
    let (one, two, three) = (answering("127.0.0.1"), answering("127.0.0.2"), answering("127.0.0.3"));
    let curtsy = pacing(|config| config.metrics.hosts = 2);
    for origin in [&one, &two, &three, &three, &one] {
        assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    }
    for (host, count) in [("127.0.0.1", 2), ("127.0.0.2", 1), ("_other", 2)] {
        assert_eq!(curtsy.metric(&format!("curtsy_host_requests_total{{host=\"{host}\"}}")), count, "{host}");
    }
    assert_eq!(curtsy.metric("curtsy_hosts_by_state{state=\"idle\"}"), 3);
    curtsy.reload(|config| config.metrics.hosts = 0);
    assert!(!page(&curtsy).contains("curtsy_host_requests_total"));
}

/// X55: no client can create a label value, whatever it sends.
#[test]
fn what_clients_send_makes_no_series() {
    let (origin, curtsy) = (Origin::hello(), pacing(|_| ()));
    curtsy.get(&origin.url("/"));
    let series = page(&curtsy).lines().count();
    for number in 0..50 {
        let fields = [format!("Curtsy-Client: c{number}"), format!("User-Agent: \"u{number}\\")];
        curtsy.ask(&[&origin.get(&format!("/{number}")), "Host: x", &fields[0], &fields[1]]);
        curtsy.ask(&[&format!("M{number} {} HTTP/1.1", origin.url("/")), "Host: x"]);
        curtsy.get(&format!("http://10.0.0.{number}/"));
    }
    assert_eq!(page(&curtsy).lines().count(), series);
}

#[test]
fn a_client_that_leaves_the_line_is_counted_there() {
    let origin = Origin::hello();
    let curtsy = pacing(|config| config.politeness.delay = ms(60_000));
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 1));
    assert_eq!(curtsy.metric("curtsy_host_queued_requests{host=\"127.0.0.1\"}"), 1);
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}") == 1));
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"connecting\"}"), 0);
    // A refused request is not a disconnect.
    let impatient = curtsy.ask(&[&origin.get("/"), "Host: x", "Curtsy-Max-Wait: 0"]);
    assert_eq!(impatient.status(), 429);
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}"), 1);
}

#[test]
fn what_is_waited_for_is_counted_by_host() {
    let origin = Origin::hello();
    let curtsy = pacing(|config| config.politeness.delay = ms(300));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(curtsy.get(&origin.url("/")).status(), 200));
        }
    });
    let text = page(&curtsy);
    let value = |series: &str| -> f64 {
        let value = text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("no {series}"));
        value.trim().parse().expect("a number")
    };
    let waited = value("curtsy_host_wait_seconds_total{host=\"127.0.0.1\"}");
    assert!((0.8..5.0).contains(&waited), "{waited}");
    assert_eq!(value("curtsy_requests_waited_total"), 2.0);
    assert_eq!(value("curtsy_host_delay_seconds{host=\"127.0.0.1\"}"), 0.3);
    assert!(value("process_resident_memory_bytes") > 1e6);
}

fn bytes(curtsy: &Curtsy) -> [u64; 4] {
    [("client", "received"), ("origin", "sent"), ("origin", "received"), ("client", "sent")].map(|(peer, direction)| {
        curtsy.metric(&format!("curtsy_transferred_bytes_total{{direction=\"{direction}\",peer=\"{peer}\"}}"))
    })
}

/// Bytes are counted as they pass, not at the end of a tunnel that may last for days.
#[test]
fn bytes_are_counted_by_where_they_came_from_and_went() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n", origin.url("/"));
    client.send(head + &"x".repeat(300));
    let hello = client.response().body.len() as u64;
    assert!(hello > 0 && soon(|| bytes(&curtsy) == [300, 300, hello, hello]), "{:?}", bytes(&curtsy));
    let refusal = curtsy.get("ftp://a.test/").body.len() as u64;
    assert!(soon(|| bytes(&curtsy) == [300, 300, hello, hello + refusal]), "{:?}", bytes(&curtsy));

    let echo = Origin::scripted(|visitor| {
        visitor.send("from the origin");
        visitor.linger();
    });
    let mut tunnel = curtsy.client();
    assert_eq!(tunnel.ask(&[&format!("CONNECT {} HTTP/1.1", echo.authority())]).status(), 200);
    tunnel.send("from the client!");
    let [up, down] = [16, 15];
    let expected = [300 + up, 300 + up, hello + down, hello + refusal + down];
    assert!(soon(|| bytes(&curtsy) == expected), "{:?} is not {expected:?}", bytes(&curtsy));
}

#[test]
fn requests_and_handshakes_are_counted_by_kind() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        while visitor.request().is_some() {
            visitor.send(HELLO);
        }
    });
    let curtsy = intercepting(&authority, |config| config.tls.bypass = vec![HostPattern::Name("127.0.0.1".into())]);
    let there = format!("localhost:{}", origin.port());
    assert_eq!(curtsy.get(&format!("https://{there}/")).status(), 200);
    let mut inside = tunnel(&curtsy, &there);
    inside.seek_tls(&believing(&curtsy, &[]), "localhost").expect("curtsy is believed");
    assert_eq!(inside.ask(&["GET / HTTP/1.1", &format!("Host: {there}")]).status(), 200);
    drop(tunnel(&curtsy, &format!("127.0.0.1:{}", origin.port())));
    let forged = tls_origin::origin(tls_origin::self_signed(|_| ()).0, |_| ());
    assert_eq!(curtsy.get(&https(&forged, "/")).status(), 502);
    for (series, count) in [
        ("curtsy_requests_total{kind=\"absolute\",outcome=\"forwarded\"}", 1),
        ("curtsy_requests_total{kind=\"absolute\",outcome=\"failed\"}", 1),
        ("curtsy_requests_total{kind=\"https\",outcome=\"forwarded\"}", 1),
        ("curtsy_requests_total{kind=\"tunnel\",outcome=\"forwarded\"}", 1),
        ("curtsy_tls_handshakes_total{result=\"ok\",side=\"client\"}", 1),
        ("curtsy_tls_handshakes_total{result=\"bypassed\",side=\"client\"}", 1),
        ("curtsy_tls_handshakes_total{result=\"ok\",side=\"origin\"}", 1),
        ("curtsy_tls_handshakes_total{result=\"origin_cert\",side=\"origin\"}", 1),
        ("curtsy_responses_total{code=\"200\"}", 2),
    ] {
        assert!(soon(|| curtsy.metric(series) == count), "{series} is {}", curtsy.metric(series));
    }
}
