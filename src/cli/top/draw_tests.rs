//! The screen of `curtsy top`, drawn on one in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde_json::{Value, json};

use super::super::board::{Board, Deed};
use super::super::watch::{Look, Seen};
use super::draw;
use crate::cli::hosts::Sort;

fn row(host: &str, state: &str, queued: usize) -> Value {
    json!({"host": host, "state": state, "delay_ms": 2300, "why": "configured", "queued": queued, "in_flight": 1,
           "visits": 3, "next_available_s": 29.44, "held_s": 29.44, "hold_cause": "retry-after", "error_streak": 1,
           "last_sent": null})
}

fn seen(total: u64, rows: &[Value]) -> Seen {
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
    Seen {
        status: serde_json::from_value(status).expect("a status"),
        hosts: serde_json::from_value(hosts).expect("hosts"),
        chosen: None,
    }
}

fn board(rows: &[Value]) -> Board {
    let look = Look { sort: Sort::Queued, reverse: false, filter: String::new(), chosen: None };
    Board::new(look, seen(100, rows))
}

fn screen(board: &mut Board, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
    terminal.draw(|frame| draw(frame, board)).expect("memory takes everything");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}

fn press(board: &mut Board, code: KeyCode) -> Option<Deed> {
    board.press(KeyEvent::from(code))
}

#[test]
fn everything_fits_on_the_usual_screen() {
    let mut board = board(&[row("shop.example.net", "held", 5), row("a.test", "active", 0)]);
    board.learn(Ok(seen(102, &[row("shop.example.net", "held", 5), row("a.test", "active", 0)])));
    let expected = "\
front-desk  ready for 102 s   2 hosts
2.0 req/s   queued 14   in flight 3   wait p90 6.2 s   gave up 0.5 %

HOST                    STATE      DELAY WHY           QUEUED IN FLIGHT     NEXT
shop.example.net        held       2.3 s configured         5         1   29.4 s
a.test                  active     2.3 s configured         0         1   29.4 s
";
    let screen = screen(&mut board, 80, 24);
    assert!(screen.starts_with(expected), "{screen}");
    assert!(screen.ends_with("q end  s sort: queued  r turn  p pause  / filter\n"), "{screen}");
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
    let pause = |host: &str, paused| Some(Deed::Pause { host: host.to_owned(), paused });
    assert_eq!(press(&mut board, KeyCode::Char('p')), pause("a.test", true));
    press(&mut board, KeyCode::Down);
    press(&mut board, KeyCode::Down);
    assert_eq!(press(&mut board, KeyCode::Char('p')), pause("b.test", false));
    let Some(Deed::Look(look)) = press(&mut board, KeyCode::Char('s')) else { panic!("another order") };
    assert_eq!((look.sort, look.chosen.as_deref()), (Sort::InFlight, Some("b.test")));
    assert_eq!(press(&mut board, KeyCode::Char('/')), None);
    press(&mut board, KeyCode::Char('q'));
    let Some(Deed::Look(look)) = press(&mut board, KeyCode::Enter) else { panic!("a filter") };
    assert_eq!(look.filter, "q");
    assert_eq!(press(&mut board, KeyCode::Char('q')), Some(Deed::Leave));
}

#[test]
fn a_curtsy_that_went_away_is_told_and_what_was_seen_stays() {
    let mut board = board(&[row("a.test", "active", 0)]);
    board.learn(Err("no curtsy runs on 127.0.0.1:3129".to_owned()));
    let without = screen(&mut board, 80, 24);
    assert!(without.starts_with("no curtsy runs on 127.0.0.1:3129") && without.contains("a.test"), "{without}");
    board.learn(Ok(seen(1, &[])));
    assert!(screen(&mut board, 80, 24).contains("no hosts"));
    assert_eq!((board.rate, press(&mut board, KeyCode::Char('p'))), (None, None), "it was started anew");
}
