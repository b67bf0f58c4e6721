//! The list of clients in the API: who asks, how much, for what, and what became of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curtsy::config::{Config, Mode};
use serde_json::{Value, json};

use crate::support::schema::{document, problems};
use crate::support::{Client, Curtsy, Hole, Origin, ms, soon};

fn with(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(0);
        change(config);
    })
}

fn get(curtsy: &Curtsy, path: &str) -> String {
    let mut client = Client::connect(curtsy.admin());
    client.ask(&[&format!("GET {path} HTTP/1.1"), "Host: localhost", "Connection: close"]).text()
}

fn clients(curtsy: &Curtsy) -> Vec<Value> {
    let told: Value = serde_json::from_str(&get(curtsy, "/api/v1/clients")).expect("JSON");
    let schema = &document()["components"]["schemas"]["Clients"];
    assert_eq!(problems(&document(), schema, &told), Vec::<String>::new(), "{told:#}");
    told["clients"].as_array().expect("a list").clone()
}

fn client(curtsy: &Curtsy, name: &str) -> Value {
    clients(curtsy).into_iter().find(|client| client["name"] == name && client["host"].is_null()).unwrap_or_default()
}

fn stop(curtsy: &Curtsy, name: &str) {
    let mut client = Client::connect(curtsy.admin());
    let fields = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 0";
    client.send(format!("POST /api/v1/clients/{name}/stop HTTP/1.1\r\n{fields}\r\n\r\n"));
    assert_eq!(client.response().status(), 200);
}

#[test]
fn every_client_is_listed_with_what_became_of_its_requests() {
    let (origin, closed) = (Origin::hello(), Hole::refusing());
    let curtsy = with(|_| ());
    assert!(clients(&curtsy).is_empty());
    for path in ["/1", "/2", "/3"] {
        curtsy.ask(&[&origin.get(path), "Host: x", "Curtsy-Client: spider", "User-Agent: Scrapy/2.19"]);
    }
    curtsy.ask(&["GET http://10.0.0.1/ HTTP/1.1", "Host: x", "Curtsy-Client: spider", "User-Agent: MyBot/1.0"]);
    let failing = format!("GET {} HTTP/1.1", closed.url().replace("127.0.0.1", "127.0.0.2"));
    curtsy.ask(&[&failing, "Host: x", "Curtsy-Client: spider", "User-Agent: MyBot/2.0"]);
    curtsy.get(&origin.url("/"));
    assert!(soon(|| client(&curtsy, "spider")["usage"]["requests"] == 5), "{:#?}", clients(&curtsy));
    let spider = client(&curtsy, "spider");
    assert_eq!((&spider["address"], &spider["named"]), (&json!("127.0.0.1"), &json!(true)));
    let usage = &spider["usage"];
    assert_eq!((&usage["refused"], &usage["refusals"]), (&json!(1), &json!({"destination-denied": 1})));
    assert_eq!((&usage["failed"], &usage["gave_up"], &usage["tunnels"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!((&usage["hosts"], &usage["busiest"][0]), (&json!(3), &json!({"host": "127.0.0.1", "requests": 3})));
    assert_eq!(usage["programs"], json!(["Scrapy", "MyBot"]));
    assert!(usage["bytes"].as_u64().is_some_and(|bytes| bytes > 0) && usage["last_seen"].is_string(), "{usage:#}");
    // A client without a name is its address.
    assert!(soon(|| client(&curtsy, "127.0.0.1")["usage"]["requests"] == 1), "{:#?}", clients(&curtsy));
    assert_eq!(client(&curtsy, "127.0.0.1")["named"], false);
    // The failing host has a row of its own, without counts.
    let rows = clients(&curtsy);
    let at_host = rows.iter().find(|client| client["host"] == "127.0.0.2").expect("a row");
    assert!(at_host["failures"] == 1 && at_host["usage"].is_null(), "{at_host:#}");
}

/// A stop by hand is for the name at every address, so the row of the client shows it.
#[test]
fn a_stopped_client_is_shown_as_stopped() {
    let (origin, curtsy) = (Origin::hello(), with(|_| ()));
    curtsy.ask(&[&origin.get("/"), "Host: x", "Curtsy-Client: spider"]);
    stop(&curtsy, "spider");
    let refused = curtsy.ask(&[&origin.get("/"), "Host: x", "Curtsy-Client: spider"]);
    assert_eq!((refused.status(), refused.value("curtsy-error").as_str()), (403, "job-stopped"));
    let row = || clients(&curtsy).into_iter().find(|client| client["usage"]["requests"] == 2).unwrap_or_default();
    assert!(soon(|| row()["stopped"]["reason"] == "stopped by the operator"), "{:#?}", clients(&curtsy));
    assert_eq!(row()["usage"]["refusals"], json!({"job-stopped": 1}));
}

#[test]
fn waiting_requests_count_for_their_client() {
    let origin = Origin::hello();
    let curtsy = with(|config| config.politeness.delay = ms(2_000));
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let spider = |path: &str| {
        let mut client = curtsy.client();
        client.send_head(&[&origin.get(path), "Host: x", "Curtsy-Client: spider"]);
        client
    };
    let mut waiting = [spider("/1"), spider("/2")];
    assert!(soon(|| client(&curtsy, "spider")["usage"]["waiting"] == 2), "{:#?}", clients(&curtsy));
    assert_eq!(waiting[0].response().status(), 200);
    let usage = || client(&curtsy, "spider")["usage"].clone();
    assert!(soon(|| usage()["waited"] == 1 && usage()["waiting"] == 1), "{:#}", usage());
    assert!(usage()["longest_wait_ms"].as_u64().is_some_and(|wait| wait > 0), "{:#}", usage());
    drop(waiting);
    assert!(soon(|| usage()["gave_up"] == 1 && usage()["waited"] == 2), "the time of a client that left counts too");
}

/// X54: nothing that a client sends becomes part of the page.
#[test]
fn the_page_of_clients_is_escaped_text() {
    let (origin, curtsy) = (Origin::hello(), with(|_| ()));
    curtsy.ask(&[&origin.get("/"), "Host: x", "Curtsy-Client: <b>\"'&", "User-Agent: <i>/1"]);
    let page = || get(&curtsy, "/clients");
    assert!(soon(|| page().contains("&lt;b&gt;&quot;&#39;&amp;@127.0.0.1")), "{}", page());
    assert!(page().contains("&lt;i&gt;") && !page().contains("<b>\"") && !page().contains("<i>"), "{}", page());
}

/// A user that logs in is one client at every address. A request without a password counts for its address.
#[test]
fn users_are_clients_and_strangers_are_addresses() {
    let origin = Origin::hello();
    let file = tempfile::NamedTempFile::new().expect("a writable temporary directory");
    // The least work bcrypt allows: the test is not about its strength.
    let hash = bcrypt::hash("tulip", 4).expect("a password bcrypt takes");
    std::fs::write(file.path(), format!("ada:{hash}\n")).expect("a writable temporary directory");
    let curtsy = with(|config| config.access.users_file = Some(file.path().to_owned()));
    let password = format!("Proxy-Authorization: Basic {}", STANDARD.encode("ada:tulip"));
    assert_eq!(curtsy.ask(&[&origin.get("/"), "Host: x", &password]).status(), 200);
    assert_eq!(curtsy.ask(&[&origin.get("/"), "Host: x", "Curtsy-Client: ada"]).status(), 407);
    assert!(soon(|| clients(&curtsy).len() == 2), "{:#?}", clients(&curtsy));
    let (ada, stranger) = (client(&curtsy, "ada"), client(&curtsy, "127.0.0.1"));
    assert_eq!((&ada["address"], &ada["usage"]["requests"]), (&Value::Null, &json!(1)));
    assert_eq!((&stranger["named"], &stranger["usage"]["refusals"]), (&json!(false), &json!({"auth-required": 1})));
}

#[test]
fn a_tunnel_is_one_request() {
    let origin = Origin::hello();
    let curtsy = with(|config| config.access.connect_ports = None);
    let mut tunnel = curtsy.client();
    tunnel.send_head(&[&format!("CONNECT 127.0.0.1:{} HTTP/1.1", origin.port()), "Host: x", "Curtsy-Client: dig"]);
    assert_eq!(tunnel.response_head().status(), 200);
    drop(tunnel);
    assert!(soon(|| client(&curtsy, "dig")["usage"]["tunnels"] == 1), "{:#?}", clients(&curtsy));
}
