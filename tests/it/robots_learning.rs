//! curtsy learns a robots.txt from a client's own request for it, unless the client could have influenced the answer.

use curtsy::config::{CacheMode, Config, RobotsMode};

use crate::support::{Curtsy, Origin};

const FILE: &str = "User-agent: *\nDisallow: /x\n";

fn obedient(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        change(config);
    })
}

fn answer(status: u16, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

#[test]
fn what_a_client_was_told_is_not_asked_again() {
    let origin = Origin::with_robots(answer(200, "", FILE));
    let curtsy = obedient(|_| ());
    let told = curtsy.get(&origin.url("/robots.txt"));
    assert_eq!((told.status(), told.text().as_str()), (200, FILE));
    assert_eq!(curtsy.get(&origin.url("/x")).refusal(), "robots-denied");
    assert_eq!(curtsy.get(&origin.url("/y")).status(), 200);
    assert_eq!(origin.robots_requests(), 1);
}

/// One client may get another answer than the rest, so curtsy fetches the file itself before it allows everything.
#[test]
fn what_forbids_nothing_is_not_learned() {
    for told in [answer(404, "", "no such file"), answer(200, "", "User-agent: *\nAllow: /\n")] {
        let origin = Origin::with_robots(told);
        let curtsy = obedient(|_| ());
        curtsy.get(&origin.url("/robots.txt"));
        assert_eq!(curtsy.get(&origin.url("/x")).status(), 200);
        assert_eq!(origin.robots_requests(), 2);
    }
}

#[test]
fn a_file_of_many_pieces_is_learned_and_passes_whole() {
    let rest = "# a remark that fills the file\n".repeat(20_000);
    let origin = Origin::with_robots(answer(200, "", &format!("{FILE}{rest}")));
    let curtsy = obedient(|_| ());
    assert_eq!(curtsy.get(&origin.url("/robots.txt")).body.len(), FILE.len() + rest.len());
    assert_eq!(curtsy.get(&origin.url("/x")).status(), 403);
    assert_eq!(origin.robots_requests(), 1);
}

/// curtsy learns nothing from an incomplete file, a compressed file or other statuses.
#[test]
fn some_answers_teach_nothing() {
    let half = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\nUser-agent: *\n", FILE.len());
    let half = Origin::scripted(move |visitor| {
        let first = visitor.request_count() == 0;
        while visitor.request().is_some() {
            visitor.send(if first { half.clone() } else { answer(200, "", FILE) });
            if first {
                return;
            }
        }
    });
    let packed = Origin::with_robots(answer(200, "Content-Encoding: gzip\r\n", "abc"));
    let forbidden = Origin::with_robots(answer(403, "", ""));
    let partial = Origin::with_robots(answer(206, "", "User-agent: *\n"));
    let moved = Origin::with_robots(answer(301, "Location: /elsewhere\r\n", ""));
    let ill = Origin::with_robots(answer(503, "", ""));
    for (what, origin) in [half, packed, forbidden, partial, moved, ill].iter().enumerate() {
        let curtsy = obedient(|_| ());
        curtsy.get(&origin.url("/robots.txt"));
        assert_eq!(origin.robots_requests(), 1, "{what}");
        curtsy.get(&origin.url("/x"));
        assert_eq!(origin.robots_requests(), 2, "{what}: curtsy did not ask itself");
    }
}

/// The file applies to all clients, so no client may influence it.
#[test]
fn a_client_cannot_choose_what_is_learned() {
    for field in [
        "Range: bytes=0-0",
        "Cookie: a=b",
        "Accept: application/json",
        "X-Forwarded-Host: b.test",
        "Cache-Control: max-stale=604800",
        "Cache-Control: only-if-cached",
        "Cache-Control: no-cache, max-stale",
        "Pragma: akamai-x-get-cache-key",
    ] {
        let origin = Origin::scripted(move |visitor| {
            while let Some(request) = visitor.request() {
                let fooled =
                    request.has(field.split(':').next().unwrap_or_default()) && !request.has("accept-encoding");
                visitor.send(if fooled { answer(404, "", "") } else { answer(200, "", FILE) });
            }
        });
        // With a cache, `only-if-cached` would not reach the origin.
        let curtsy = obedient(|config| config.politeness.cache = CacheMode::Off);
        assert_eq!(curtsy.ask(&[&origin.get("/robots.txt"), field]).status(), 404, "{field}");
        assert_eq!(curtsy.get(&origin.url("/x")).refusal(), "robots-denied", "{field}");
    }
}

#[test]
fn what_is_fresh_is_not_replaced() {
    let origin = Origin::scripted(|visitor| {
        while visitor.request().is_some() {
            let first = visitor.request_count() == 1;
            visitor.send(answer(200, "", if first { FILE } else { "" }));
        }
    });
    let curtsy = obedient(|_| ());
    assert_eq!(curtsy.get(&origin.url("/x")).status(), 403);
    assert_eq!(curtsy.get(&origin.url("/robots.txt")).text(), "");
    assert_eq!(curtsy.get(&origin.url("/x")).status(), 403);
}

#[test]
fn nothing_is_learned_where_robots_are_off() {
    let origin = Origin::with_robots(answer(200, "", FILE));
    let curtsy = Curtsy::start();
    curtsy.get(&origin.url("/robots.txt"));
    assert_eq!(curtsy.metric("curtsy_robots_cache_bytes"), 0);
    curtsy.reload(|config| config.politeness.robots = RobotsMode::Enforce);
    assert_eq!(curtsy.get(&origin.url("/x")).status(), 403);
    assert_eq!(origin.robots_requests(), 2);
}

/// An origin may serve different files by User-Agent, so one client's User-Agent must not decide for others.
#[test]
fn a_client_cannot_choose_what_is_learned_by_its_name() {
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let is_robots = request.line().starts_with("GET /robots.txt ");
            let welcome = request.has("user-agent") && request.value("user-agent") == "BrowserBot/1.0";
            let file = answer(200, "", if welcome { "<html>Are you human?</html>" } else { FILE });
            visitor.send(if is_robots { file } else { answer(200, "", "page") });
        }
    });
    let curtsy = obedient(|_| ());
    let shown = curtsy.ask(&[&origin.get("/robots.txt"), "User-Agent: BrowserBot/1.0"]);
    assert!(shown.text().starts_with("<html>"));
    assert_eq!(curtsy.ask(&[&origin.get("/x"), "User-Agent: OtherBot/1.0"]).refusal(), "robots-denied");
    assert_eq!(curtsy.get(&origin.url("/x")).refusal(), "robots-denied");
}
