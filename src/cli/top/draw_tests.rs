//! Tests the screen of `curtsy top`, drawn in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde_json::{Value, json};

use super::super::board::{TopPage, TopScreen};
use super::super::watch::{News, TopAction, TopLook, TopSeen};
use super::{draw, figures};
use crate::cli::hosts::SortArg;

fn row(host: &str, state: &str, queued: usize) -> Value {
    json!({"host": host, "state": state, "delay_ms": 2300, "why": "configured", "queued": queued, "in_flight": 1,
           "visits": 3, "next_available_s": 29.44, "held_s": 29.44, "hold_cause": "retry-after", "error_streak": 1,
           "last_sent": null})
}

fn seen(total: u64, rows: &[Value]) -> TopSeen {
    let status = json!({
        "name": "front-desk", "version": "0.1.0", "state": "ready", "started": null, "uptime_s": total as f64,
        "mode": "enforce", "listen": [], "waiting": 14, "in_flight": 17, "connections": 3, "tunnels": 0,
        "requests": {"total": total * 2, "forwarded": 0, "denied": 0, "rejected": 0, "abandoned": 1, "failed": 0,
                     "waited": 0},
        "hosts": {"known": 2, "paused": 0, "broken": 0, "held": 0, "waiting": 0, "active": 0, "idle": 0,
                  "paused_hosts": []},
        "clients_stopped": 0, "wait_p50_ms": 1100, "wait_p90_ms": 6200, "spacing_violations": 0, "overdue_s": 0.0,
        "memory": {"resident_bytes": null, "robots_bytes": 0},
        "state_store": {"kept": false, "pending": 0, "failures": 0, "lost": 0, "last_write_age_s": null,
                        "trouble": null},
        "last_reload_successful": true, "listeners": 0, "notices": [],
    });
    let hosts = json!({"total": rows.len(), "offset": 0, "limit": 200, "hosts": rows});
    TopSeen {
        status: serde_json::from_value(status).expect("a status"),
        hosts: serde_json::from_value(hosts).expect("hosts"),
        chosen: None,
        queue: Vec::new(),
    }
}

fn now(total: u64, rows: &[Value]) -> News {
    News::Seen(Ok(Box::new(seen(total, rows))))
}

fn request(host: &str, path: &str, status: u16, wait_ms: u64) -> News {
    News::Request(json!({"event": "request", "at": "2026-11-16T14:02:12.020Z", "host": host, "method": "GET",
                         "url": format!("http://{host}{path}"), "status": status, "wait_ms": wait_ms, "took_ms": 4213,
                         "why": "robots", "error": null}))
}

/// Returns a host as the API reports it.
fn host(name: &str) -> Value {
    json!({"host": name, "state": "waiting", "mode": "enforce", "delay_ms": 10_000,
           "delay": {"configured_ms": 1000, "robots_ms": 10_000, "learned_ms": 0, "response_ms": 0, "why": "robots"},
           "why": "robots", "floor_ms": null, "probing": false, "error_streak": 0, "success_streak": 4, "held_until": null,
           "held_s": null, "hold_cause": null, "next_available": null, "next_available_s": 3.8, "last_sent": null,
           "last_success": null, "queued": 2, "in_flight": 1, "long_transfers": 0, "visits": 9,
           "concurrency": {"effective": 4, "configured": 4}, "burst": 1, "burst_left": 1,
           "breaker": {"state": "closed", "failures": 0, "until": null}, "paused": false, "paused_until": null,
           "overrides": {"delay_ms": null, "burst": null, "concurrency": null}, "retries_left": null,
           "timeline": {"starts_ms": [-12_000, -2_000], "holds": []}, "unpaced_tunnels": null})
}

/// Returns a board with the first host in full, and requests to it and to another host.
fn lively() -> TopScreen {
    let rows = [row("a.test", "waiting", 2), row("b.test", "idle", 0)];
    let mut board = board(&rows);
    let mut seen = seen(102, &rows);
    seen.chosen = Some(serde_json::from_value(host("a.test")).expect("a host"));
    let waiting = json!({"host": "a.test", "client": "spider", "method": "GET", "url": "http://a.test/next", "since": null,
                         "waited_ms": 1500, "expected_ms": 3800});
    seen.queue = vec![serde_json::from_value(waiting).expect("a waiting request")];
    board.learn(News::Seen(Ok(Box::new(seen))));
    for told in
        [request("a.test", "/old", 200, 0), request("b.test", "/b", 403, 0), request("a.test", "/new", 200, 900)]
    {
        board.learn(told);
    }
    board
}

fn board(rows: &[Value]) -> TopScreen {
    let look = TopLook { sort: SortArg::Queued, reverse: false, filter: String::new(), chosen: None };
    TopScreen::new(look, seen(100, rows))
}

fn screen(board: &mut TopScreen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
    terminal.draw(|frame| draw(frame, board)).expect("memory takes everything");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}

fn press(board: &mut TopScreen, code: KeyCode) -> Option<TopAction> {
    board.press(KeyEvent::from(code))
}

#[test]
fn everything_fits_on_the_usual_screen() {
    let mut board = board(&[row("shop.example.net", "held", 5), row("a.test", "active", 0)]);
    board.learn(now(102, &[row("shop.example.net", "held", 5), row("a.test", "active", 0)]));
    let expected = "\
front-desk  ready for 102 s   2 hosts
2.0 req/s   queued 14   in flight 3   wait p90 6.2 s   gave up 0.5 %

HOST                       STATE         DELAY WHY                QUEUED    NEXT
shop.example.net           held          2.3 s configured              5  29.4 s
a.test                     active        2.3 s configured              0  29.4 s
";
    let screen = screen(&mut board, 80, 24);
    assert!(screen.starts_with(expected), "{screen}");
    let mut unpaced = seen(103, &[]);
    unpaced.status.traffic.unpaced_tunnels = 3;
    assert!(figures(&unpaced, None).starts_with("front-desk  ready for 103 s   0 hosts   3 tunnels not paced\n"));
    assert!(screen.ends_with("q end  ? keys  Enter host  t requests  s sort: queued  / filter\n"), "{screen}");
}

#[test]
fn a_small_screen_shows_less_and_never_breaks() {
    let rows: Vec<Value> = (0..50).map(|number| row(&format!("h{number}.test"), "idle", 0)).collect();
    let mut board = board(&rows);
    for (width, height) in [(40, 10), (20, 5), (5, 3), (1, 1), (200, 60)] {
        screen(&mut board, width, height);
    }
    press(&mut board, KeyCode::End);
    let small = screen(&mut board, 40, 10);
    assert!(small.contains("h49.test") && small.contains("STATE") && !small.contains("QUEUED"), "{small}");
}

#[test]
fn keys_choose_sort_pause_and_filter() {
    let mut board = board(&[row("a.test", "active", 0), row("b.test", "paused", 0)]);
    let pause = |host: &str, paused| Some(TopAction::Pause { host: host.to_owned(), paused });
    assert_eq!(press(&mut board, KeyCode::Char('p')), pause("a.test", true));
    press(&mut board, KeyCode::Down);
    press(&mut board, KeyCode::Down);
    assert_eq!(press(&mut board, KeyCode::Char('p')), pause("b.test", false));
    let Some(TopAction::Look(look)) = press(&mut board, KeyCode::Char('s')) else { panic!("another order") };
    assert_eq!((look.sort, look.chosen.as_deref()), (SortArg::InFlight, Some("b.test")));
    assert_eq!(press(&mut board, KeyCode::Char('/')), None);
    press(&mut board, KeyCode::Char('q'));
    let Some(TopAction::Look(look)) = press(&mut board, KeyCode::Enter) else { panic!("a filter") };
    assert_eq!(look.filter, "q");
    assert_eq!(press(&mut board, KeyCode::Char('q')), Some(TopAction::Leave));
}

/// The panel follows the host where requests wait, until the user chooses one.
#[test]
fn the_first_host_with_waiting_requests_is_shown_in_full() {
    let mut board = board(&[row("a.test", "idle", 0), row("b.test", "idle", 0)]);
    let chosen = |action: Option<TopAction>| match action {
        Some(TopAction::Look(look)) => look.chosen,
        _ => None,
    };
    let busy = now(101, &[row("b.test", "waiting", 5), row("a.test", "idle", 0)]);
    assert_eq!(chosen(board.learn(busy)).as_deref(), Some("b.test"));
    let busier = now(102, &[row("a.test", "waiting", 9), row("b.test", "waiting", 5)]);
    assert_eq!(chosen(board.learn(busier)), None, "requests wait there, too");
    press(&mut board, KeyCode::Down);
    let quiet = now(103, &[row("a.test", "waiting", 9), row("b.test", "idle", 0)]);
    assert_eq!((chosen(board.learn(quiet)), board.chosen()), (None, Some(1)), "the user has chosen");
}

/// One request in two seconds is not "0.0 req/s" in every other second.
#[test]
fn the_rate_is_that_of_some_seconds() {
    let mut board = board(&[row("a.test", "active", 0)]);
    for (second, total) in [(101, 200), (102, 201), (103, 201), (104, 202)] {
        let mut seen = seen(second, &[row("a.test", "active", 0)]);
        seen.status.requests.total = total;
        board.learn(News::Seen(Ok(Box::new(seen))));
    }
    assert_eq!(board.rate, Some(0.5));
}

#[test]
fn a_curtsy_that_went_away_is_told_and_what_was_seen_stays() {
    let mut board = board(&[row("a.test", "active", 0)]);
    board.learn(News::Seen(Err("no curtsy runs on 127.0.0.1:3129".to_owned())));
    let without = screen(&mut board, 80, 24);
    assert!(without.starts_with("no curtsy runs on 127.0.0.1:3129") && without.contains("a.test"), "{without}");
    board.learn(now(1, &[]));
    assert!(screen(&mut board, 80, 24).contains("no hosts"));
    assert_eq!((board.rate, press(&mut board, KeyCode::Char('p'))), (None, None), "it was started anew");
}

#[test]
fn the_page_of_a_host_has_its_delay_and_its_requests() {
    let mut board = lively();
    assert_eq!(press(&mut board, KeyCode::Enter), None);
    let told = screen(&mut board, 80, 24);
    for part in [
        "delay     10 s = the largest of configured 1 s, robots.txt 10 s <-",
        "2 waiting, 1 in flight of 4",
        "spider            1.5 s     3.8 s  GET /next",
        "starts    ",
    ] {
        assert!(told.contains(part), "no {part} in\n{told}");
    }
    let recent = "14:02:12    200   0.9 s   4.2 s robots        GET /new\n 14:02:12    200       -";
    assert!(told.contains(recent) && !told.contains("b.test"), "{told}");
    press(&mut board, KeyCode::Esc);
    assert_eq!(board.page, TopPage::Hosts);
    for key in [KeyCode::Enter, KeyCode::Char('t'), KeyCode::Char('?'), KeyCode::Esc] {
        press(&mut board, key);
    }
    assert_eq!(board.page, TopPage::Host, "Esc leads back to where the other pages were opened");
    press(&mut board, KeyCode::Esc);
    let large = screen(&mut board, 120, 40);
    assert!(large.contains("RECENT") && large.contains("b.test") && !large.contains("/b"), "{large}");
}

#[test]
fn requests_and_keys_have_pages_of_their_own() {
    let mut board = lively();
    press(&mut board, KeyCode::Char('t'));
    let requests = screen(&mut board, 80, 24);
    let order = ["a.test/new", "b.test/b", "a.test/old"].map(|part| requests.find(part).expect("all are there"));
    assert!(order.is_sorted(), "{requests}");
    assert_eq!(press(&mut board, KeyCode::Char('p')), None, "no host is chosen here");
    press(&mut board, KeyCode::Char('?'));
    assert!(screen(&mut board, 80, 24).contains("explain a URL"));
    for (width, height) in [(30, 8), (5, 3), (1, 1)] {
        for page in [TopPage::Host, TopPage::Requests, TopPage::Explained, TopPage::Keys] {
            board.page = page;
            screen(&mut board, width, height);
        }
    }
    assert_eq!(press(&mut board, KeyCode::Char('q')), Some(TopAction::Leave));
}

#[test]
fn a_delay_and_a_url_are_typed() {
    let mut board = lively();
    let typed = |board: &mut TopScreen, text: &str| {
        text.chars().for_each(|letter| assert_eq!(press(board, KeyCode::Char(letter)), None));
        press(board, KeyCode::Enter)
    };
    let delay =
        |delay: Option<&str>| Some(TopAction::Delay { host: "a.test".to_owned(), delay: delay.map(str::to_owned) });
    assert_eq!(typed(&mut board, "d2s"), delay(Some("2s")));
    assert_eq!(typed(&mut board, "d"), delay(None));
    press(&mut board, KeyCode::Char('d'));
    assert!(screen(&mut board, 80, 24).contains("delay of a.test: _"));
    press(&mut board, KeyCode::Char('q'));
    assert_eq!(press(&mut board, KeyCode::Esc), None, "changes nothing");
    assert_eq!(typed(&mut board, "ex"), Some(TopAction::Explain("http://a.test/newx".to_owned())));
    board.learn(News::Refused("the delay must be a day at most".to_owned()));
    assert!(screen(&mut board, 80, 24).ends_with("the delay must be a day at most\n"));
    press(&mut board, KeyCode::Down);
    assert!(!screen(&mut board, 80, 24).contains("a day at most"), "until the next key");
}

#[test]
fn an_explanation_is_shown_as_soon_as_it_is_there() {
    let mut board = lively();
    let told = json!({"url": "http://a.test/private", "host": "a.test", "allowed": false, "verdict": "denied",
                      "reason": "rule", "rule": {"line": 7, "rule": "Disallow: /private"}, "group": "*",
                      "delay_ms": 10_000, "delay": host("a.test")["delay"], "why": "robots", "wait_ms": null, "refusal": null,
                      "known": null});
    board.learn(News::Explained(Box::new(serde_json::from_value(told).expect("an explanation"))));
    let told = screen(&mut board, 80, 24);
    assert!(told.contains("DENIED   http://a.test/private") && told.contains("robots.txt line 7"), "{told}");
    press(&mut board, KeyCode::Esc);
    assert_eq!(board.page, TopPage::Hosts);
}
