//! Which destinations curtsy refuses. The address that would be dialled decides, however the target was spelled.

use curtsy::config::{Destination, HostPattern};

use crate::support::{Curtsy, Message, Origin, ms};

/// A proxy with the default rules: public addresses only.
fn strict() -> Curtsy {
    Curtsy::with(|config| config.access.allow_destinations.clear())
}

fn expect_denied(response: &Message, what: &str) {
    assert_eq!(
        (response.status(), response.refusal().as_str()),
        (403, "destination-denied"),
        "{what}: {}",
        response.text()
    );
    assert!(response.value("Proxy-Status").contains("error=destination_ip_prohibited"), "{what}: {}", response.head());
}

/// X4
#[test]
fn ipv4_addresses_that_are_not_public_are_denied() {
    let curtsy = strict();
    for ip in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        expect_denied(&curtsy.get(&format!("http://{ip}/")), ip);
        expect_denied(&curtsy.ask(&[&format!("CONNECT {ip}:443 HTTP/1.1")]), ip);
    }
}

/// X5
#[test]
fn ipv6_addresses_that_are_not_public_are_denied() {
    let curtsy = strict();
    for ip in [
        "::",
        "::1",
        "::127.0.0.1",
        "::a9fe:a9fe",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:a9fe:a9fe",
        "::ffff:0:127.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::1",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:1::1",
        "2001:2::1",
        "2001:5::1",
        "2001:10::1",
        "2001:1f::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe90::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "2606:4700::5efe:10.0.0.1",
    ] {
        expect_denied(&curtsy.get(&format!("http://[{ip}]/")), ip);
        expect_denied(&curtsy.ask(&[&format!("CONNECT [{ip}]:443 HTTP/1.1")]), ip);
    }
}

/// X6: an address that embeds an IPv4 address is judged by the embedded address.
#[test]
fn a_translated_address_is_as_allowed_as_the_one_inside() {
    let curtsy = Curtsy::with(|config| config.upstream.connect_timeout = ms(100));
    assert_ne!(curtsy.get("http://[64:ff9b::7f00:1]:81/").refusal(), "destination-denied", "127.0.0.1 is on the list");
    expect_denied(&curtsy.get("http://[64:ff9b::10.0.0.1]:81/"), "10.0.0.1 is not");
}

/// X7: names of metadata services are judged by their addresses, like every other name.
#[test]
fn metadata_services_are_denied() {
    let curtsy = strict();
    for ip in [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
    ] {
        expect_denied(&curtsy.get(&format!("http://{ip}/latest/meta-data/")), ip);
    }
}

/// X1, X8
#[test]
fn however_loopback_is_spelled_it_is_not_reached() {
    let (origin, curtsy) = (Origin::hello(), strict());
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0x7f.1",
        "127.0.1",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1%25lo]",
        "[::1%lo]",
        "localhost",
        "localhost.",
        "LocalHost",
        "foo.localhost",
        "127.0.0.1.",
        "0",
        "0.0.0.0",
    ] {
        let response = curtsy.get(&format!("http://{host}:{}/", origin.port()));
        assert!([400, 403, 502].contains(&response.status()), "{host}: {}", response.line());
        let tunnel = curtsy.ask(&[&format!("CONNECT {host}:{} HTTP/1.1", origin.port())]);
        assert!([400, 403, 502].contains(&tunnel.status()), "{host}: {}", tunnel.line());
    }
    assert_eq!(origin.connections(), 0);
}

/// X1
#[test]
fn a_name_is_judged_by_the_address_it_has() {
    let (origin, curtsy) = (Origin::hello(), strict());
    expect_denied(&curtsy.get(&format!("http://localhost:{}/", origin.port())), "localhost");
    assert_eq!(origin.connections(), 0);
}

/// X8: digits of other scripts and zone identifiers are refused.
#[test]
fn an_address_in_disguise_is_no_address() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for host in [
        "①②⑦.⓪.⓪.①",
        "１２７.0.0.1",
        "[::1%25lo]",
        "[::1%lo]",
        "[127.0.0.1]",
        "127.0.0.1%00.example.org",
        "127。0。0。1",
    ] {
        let response = curtsy.get(&format!("http://{host}:{}/", origin.port()));
        assert!([400, 403].contains(&response.status()), "{host}: {}", response.line());
    }
    assert_eq!(origin.connections(), 0);
}

/// X8: all numeric spellings of an address become one host, so that they share one budget.
#[test]
fn numbers_that_mean_an_address_are_that_address_or_nothing() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for host in ["127.1", "2130706433", "0x7f000001", "017700000001"] {
        let response = curtsy.get(&format!("http://{host}:{}/", origin.port()));
        assert!([200, 400].contains(&response.status()), "{host}: {}", response.line());
    }
    assert!(origin.requests(0).iter().all(|request| request.value("Host") == origin.authority()));
}

/// X9
#[test]
fn a_name_that_is_no_name_is_refused() {
    let curtsy = Curtsy::start();
    let (label, long) = ("a".repeat(64), ["a".repeat(63).as_str(); 4].join("."));
    for host in [
        "[localhost]",
        "[[localhost]]",
        "localhost..",
        "a..b",
        ".localhost",
        "",
        "a b",
        label.as_str(),
        long.as_str(),
        "exa%00mple.org",
        "*",
        "a,b",
        "xn--",
        "a\\b",
    ] {
        let response = curtsy.get(&format!("http://{host}/"));
        assert_eq!(response.status(), 400, "{host}: {}", response.line());
    }
}

/// X9
#[test]
fn an_escaped_or_odd_name_is_the_plain_one_or_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for host in ["l%6fcalhost", "LOCALHOST", "localhost.", "_x.localhost"] {
        let response = curtsy.get(&format!("http://{host}:{}/", origin.port()));
        assert!([200, 400, 502].contains(&response.status()), "{host}: {}", response.line());
    }
    for request in origin.requests(1) {
        assert_eq!(request.value("Host"), format!("localhost:{}", origin.port()));
    }
}

/// X10
#[test]
fn a_target_that_can_be_read_two_ways_is_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let b = origin.authority();
    for target in [
        format!("http://a@{b}/"),
        format!("http://a\\@{b}/"),
        format!("http:///{b}/"),
        format!("http:{b}"),
        format!("http:/{b}/"),
        format!("http://{b}\t/"),
        format!("ht\ttp://{b}/"),
        format!("http://a;@{b}/"),
        format!("http://a%40{b}/"),
        format!("http://a?@{b}/"),
        format!("http://{b}:80/"),
        format!("//{b}/"),
        format!("http//{b}/"),
        format!("http://a/\\{b}\n/"),
    ] {
        let response = curtsy.ask(&[&format!("GET {target} HTTP/1.1"), "Host: x"]);
        assert!(response.status() >= 400, "{target}: {}", response.line());
    }
    let fragment = curtsy.get(&format!("http://no-such-name.invalid#@{b}/"));
    assert!(fragment.status() >= 400, "{}", fragment.line());
    assert_eq!(origin.connections(), 0);
}

/// X11
#[test]
fn a_pattern_means_the_names_below_and_nothing_else() {
    let below = HostPattern::Below("example.com".to_owned());
    for (host, matches) in [
        ("a.example.com", true),
        ("a.b.example.com", true),
        ("example.com", false),
        ("evilexample.com", false),
        (".example.com", false),
        ("example.com.evil.org", false),
    ] {
        assert_eq!(below.matches(host), matches, "{host}");
    }
}

/// X11
#[test]
fn a_pattern_for_everything_is_no_pattern() {
    for pattern in ["*.", "", "a.*", "*a.example", "**", "."] {
        let settings = format!("[access]\nallow_destinations = [\"{pattern}\"]\n");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), settings).unwrap();
        let (code, printed) =
            crate::support::program::run(&["config", "check", "--config", file.path().to_str().unwrap()]);
        assert_eq!(code, 1, "{pattern:?}: {printed}");
        assert!(printed.contains("allow_destinations"), "{printed}");
    }
}

/// X11
#[test]
fn a_host_rule_allows_that_host_only() {
    let origin = Origin::hello();
    let curtsy = Curtsy::with(|config| {
        config.access.allow_destinations = vec![Destination::Host(HostPattern::Name("localhost".to_owned()))];
    });
    assert_eq!(curtsy.get(&format!("http://localhost:{}/", origin.port())).text(), "hello");
    expect_denied(&curtsy.get(&origin.url("/")), "by address");
}

/// X3
#[test]
fn one_hosts_connection_is_not_used_for_another() {
    let (one, other) = (
        Origin::hello(),
        Origin::on("127.0.0.2", |visitor| {
            visitor.request();
            visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother");
        }),
    );
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&one.get("/"), "Host: x"]).text(), "hello");
    assert_eq!(client.ask(&[&other.get("/"), "Host: x"]).text(), "other");
    assert_eq!(client.ask(&[&one.get("/"), "Host: x"]).text(), "hello");
}

/// X13
#[test]
fn plain_requests_do_not_reach_ports_that_speak_something_else() {
    let curtsy = Curtsy::start();
    for port in [1, 7, 22, 23, 25, 53, 79, 110, 143, 465, 514, 587, 636, 993, 995, 2049, 5060, 6000, 6667, 6697, 10080]
    {
        let response = curtsy.get(&format!("http://127.0.0.1:{port}/"));
        assert_eq!((response.status(), response.refusal().as_str()), (403, "destination-denied"), "{port}");
    }
}

/// X16
#[test]
fn a_redirect_is_the_clients_to_follow() {
    let other = Origin::hello();
    let origin = Origin::answering(format!(
        "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        other.url("/secret")
    ));
    let response = Curtsy::start().get(&origin.url("/"));
    assert_eq!((response.status(), response.value("Location")), (302, other.url("/secret")));
    assert_eq!(other.connections(), 0);
}

/// X21
#[test]
fn a_client_is_known_by_its_address_and_not_by_what_it_claims() {
    let (origin, curtsy) =
        (Origin::hello(), Curtsy::with(|config| config.access.allow = vec!["10.0.0.0/8".parse().unwrap()]));
    let response = curtsy.ask(&[
        &origin.get("/"),
        "Host: x",
        "X-Forwarded-For: 10.0.0.1",
        "Forwarded: for=10.0.0.1",
        "X-Real-IP: 10.0.0.1",
    ]);
    assert_eq!((response.status(), response.refusal().as_str()), (403, "client-denied"));
    origin.expect_untouched();
}

/// X19
#[test]
fn a_client_seen_through_an_ipv6_listener_keeps_its_ipv4_address() {
    let origin = Origin::hello();
    let allowing =
        |net: &'static str| move |config: &mut curtsy::config::Config| config.access.allow = vec![net.parse().unwrap()];
    assert_eq!(Curtsy::on("[::]:0", allowing("127.0.0.0/8")).get(&origin.url("/")).status(), 200);
    assert_eq!(Curtsy::on("[::]:0", allowing("10.0.0.0/8")).get(&origin.url("/")).refusal(), "client-denied");
}

/// X3
#[test]
fn a_kept_connection_does_not_outlive_the_leave_to_use_it() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    curtsy.reload(|config| config.access.allow_destinations.clear());
    expect_denied(&client.ask(&[&origin.get("/"), "Host: x"]), "after the reload");
    assert_eq!(origin.count(), 1);
}

/// X13
#[test]
fn plain_requests_do_not_reach_databases() {
    let curtsy = Curtsy::start();
    for port in [445, 3306, 5432, 6379, 11211] {
        let response = curtsy.get(&format!("http://127.0.0.1:{port}/"));
        assert_eq!((response.status(), response.refusal().as_str()), (403, "destination-denied"), "{port}");
    }
}
