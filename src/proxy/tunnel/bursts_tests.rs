//! Made-up conversations, and those of real clients that `scripts/record-tunnels` has recorded.

use std::fs;
use std::path::Path;

use super::super::fuzzing::starts;
use super::super::hello::samples;
use super::*;

/// Shows a conversation to [`Bursts`] and grants every turn.
struct BurstScene {
    bursts: Bursts,
    /// Lengths of the records that began a request.
    starts: Vec<usize>,
}

const FINISHED: usize = 53;
const REQUEST: usize = 120;
const RESPONSE: usize = 900;

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3][..], &length, body].concat()
}

impl BurstScene {
    /// Before anything was sent.
    fn new() -> Self {
        BurstScene { bursts: Bursts::new(), starts: Vec::new() }
    }

    /// After the hellos.
    fn after_hellos(offer: &[&str], tls13: bool, suite: u16, choice: Option<&str>) -> Self {
        let mut scene = BurstScene::new();
        scene.client_bytes(&record(22, &samples::client("a.test", offer)));
        scene.bursts.origin_sends(&record(22, &samples::server(tls13, suite, choice)));
        scene
    }

    /// TLS 1.3, with the handshake over.
    fn tls13(offer: &[&str]) -> Self {
        let mut scene = BurstScene::after_hellos(offer, true, 0x1301, None);
        scene.origin(&[(20, 1), (23, 40), (23, 900), (23, FINISHED)]);
        scene.client(&[(20, 1), (23, FINISHED)]);
        scene
    }

    fn tls12() -> Self {
        let mut scene = BurstScene::after_hellos(&[], false, 0xc02f, None);
        scene.origin(&[(22, 900), (22, 4)]);
        scene.client(&[(22, 70), (20, 1), (22, 40)]);
        scene.origin(&[(22, 200), (20, 1), (22, 40)]);
        scene
    }

    fn client(&mut self, records: &[(u8, usize)]) -> &mut Self {
        for &(kind, length) in records {
            self.client_bytes(&record(kind, &vec![0xee; length]));
        }
        self
    }

    fn client_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.bursts.client_sends(bytes) {
                BurstVerdict::Pass(count) => bytes = &bytes[count..],
                BurstVerdict::Turn => {
                    self.starts.push(usize::from(u16::from_be_bytes([bytes[3], bytes[4]])));
                    self.bursts.granted();
                }
                BurstVerdict::More => panic!("whole records are enough"),
            }
        }
    }

    fn origin(&mut self, records: &[(u8, usize)]) -> &mut Self {
        for &(kind, length) in records {
            self.bursts.origin_sends(&record(kind, &vec![0xee; length]));
        }
        self
    }

    /// A request that has to wait while the origin speaks.
    fn crossing(&mut self) {
        let request = record(23, &[0; REQUEST]);
        assert_eq!(self.bursts.client_sends(&request), BurstVerdict::Turn);
        self.origin(&[(23, RESPONSE), (23, RESPONSE)]);
        self.client_bytes(&request);
    }
}

#[test]
fn every_request_is_told_in_tls_13() {
    let mut scene = BurstScene::tls13(&["http/1.1"]);
    assert!(scene.starts.is_empty() && !scene.bursts.owes_answer(), "a handshake is no request");
    for _ in 0..5 {
        scene.client(&[(23, REQUEST)]);
        assert!(scene.bursts.owes_answer());
        scene.origin(&[(23, 250), (23, RESPONSE)]);
        assert!(!scene.bursts.owes_answer());
    }
    assert_eq!((scene.starts.len(), scene.bursts.unpaced()), (5, None));
}

#[test]
fn every_request_is_told_in_tls_12() {
    let mut scene = BurstScene::tls12();
    for _ in 0..5 {
        scene.client(&[(23, REQUEST), (23, 50)]).origin(&[(23, RESPONSE)]);
    }
    scene.client(&[(21, 26)]);
    assert_eq!(scene.starts, [REQUEST; 5]);
}

/// Java sends its Finished by itself, and pads it; the tickets then come before the first request.
#[test]
fn the_end_of_the_handshake_is_no_request_however_it_comes() {
    for (suite, finished) in [(0x1301, 53), (0x1302, 69), (0x1303, 53), (0x1305, 45), (0x1302, 85), (0x1301, 69)] {
        let mut scene = BurstScene::after_hellos(&[], true, suite, None);
        scene.origin(&[(20, 1), (23, 40), (23, finished)]).client(&[(23, finished)]);
        scene.origin(&[(23, 250), (23, 250)]).client(&[(23, REQUEST)]);
        assert_eq!(scene.starts, [REQUEST], "{suite:x}");
    }
}

#[test]
fn a_client_certificate_is_taken_for_the_request_that_follows_it() {
    let mut scene = BurstScene::after_hellos(&[], true, 0x1301, None);
    scene.origin(&[(23, 900)]).client(&[(20, 1), (23, 800), (23, 150), (23, FINISHED), (23, REQUEST)]);
    scene.origin(&[(23, RESPONSE)]).client(&[(23, REQUEST)]);
    assert_eq!(scene.starts, [800, REQUEST]);

    let mut none = BurstScene::after_hellos(&[], true, 0x1301, None);
    none.origin(&[(23, 900)]).client(&[(20, 1), (23, 25), (23, FINISHED), (23, REQUEST)]);
    assert_eq!(none.starts, [REQUEST], "a client without a certificate says so");
}

#[test]
fn early_data_is_the_first_request() {
    let mut scene = BurstScene::new();
    scene.client_bytes(&record(22, &samples::client("a.test", &[])));
    scene.client(&[(20, 1), (23, REQUEST)]);
    assert_eq!(scene.starts, [REQUEST]);
    scene.bursts.origin_sends(&record(22, &samples::server(true, 0x1301, None)));
    scene.origin(&[(23, 60), (23, FINISHED), (23, RESPONSE)]).client(&[(23, 21), (23, FINISHED)]);
    assert_eq!(scene.starts.len(), 1, "the end of early data, and of the handshake");
    scene.origin(&[(23, RESPONSE)]).client(&[(23, REQUEST)]);
    assert_eq!((scene.starts.len(), scene.bursts.unpaced()), (2, None));
}

#[test]
fn alerts_and_new_keys_are_no_requests_and_no_answers() {
    let mut scene = BurstScene::tls13(&[]);
    scene.client(&[(23, REQUEST)]).origin(&[(23, 22), (23, 19)]).client(&[(23, REQUEST)]);
    assert_eq!(scene.starts.len(), 1, "the origin has said nothing");
    scene.origin(&[(23, RESPONSE)]).client(&[(23, 22), (23, 19)]);
    assert_eq!(scene.starts.len(), 1);
}

#[test]
fn crumbs_make_a_request() {
    let mut scene = BurstScene::tls13(&[]);
    scene.client(&[(23, REQUEST)]).origin(&[(23, RESPONSE)]).client(&[(23, 22); 30]);
    assert_eq!(scene.starts, [REQUEST, 22]);
}

#[test]
fn an_upload_is_one_request() {
    let full = LONGEST_PIECE + 17;
    let mut scene = BurstScene::tls13(&[]);
    scene.client(&[(23, REQUEST), (23, full), (23, full)]);
    scene.origin(&[(23, 250), (23, 250)]).client(&[(23, full), (23, full), (23, 4000)]);
    assert_eq!(scene.starts.len(), 1, "tickets interrupt nothing");
    scene.origin(&[(23, RESPONSE)]).client(&[(23, REQUEST)]);
    assert_eq!(scene.starts.len(), 2);
}

#[test]
fn a_body_that_was_asked_for_is_no_new_request() {
    let mut scene = BurstScene::tls13(&[]);
    scene.client(&[(23, REQUEST)]).origin(&[(23, 25 + 17)]).client(&[(23, 4000)]);
    scene.origin(&[(23, RESPONSE)]).client(&[(23, REQUEST)]);
    assert_eq!(scene.starts, [REQUEST; 2]);
    for overhead in [16, 24] {
        let mut old = BurstScene::tls12();
        old.client(&[(23, REQUEST)]).origin(&[(23, 25 + overhead)]).client(&[(23, 4000)]);
        assert_eq!(old.starts, [REQUEST], "{overhead}");
    }
}

#[test]
fn http2_is_known_by_the_hellos_or_by_its_first_short_frame() {
    let alone = BurstScene::after_hellos(&["h2"], true, 0x1301, None);
    assert_eq!(alone.bursts.unpaced(), Some(Unpaced::Http2));
    let chosen = BurstScene::after_hellos(&["h2", "http/1.1"], false, 0xc02f, Some("h2"));
    assert_eq!(chosen.bursts.unpaced(), Some(Unpaced::Http2));
    for frame in [26, 30, 42] {
        let mut scene = BurstScene::tls13(&["h2", "http/1.1"]);
        scene.client(&[(23, 81), (23, 60)]).origin(&[(23, 282), (23, 26)]);
        assert_eq!(scene.bursts.unpaced(), None);
        scene.client(&[(23, frame), (23, 48)]).origin(&[(23, RESPONSE)]).client(&[(23, 48)]);
        assert_eq!((scene.bursts.unpaced(), scene.starts.len()), (Some(Unpaced::Http2), 1), "{frame}");
    }
}

#[test]
fn what_is_not_chosen_is_not_assumed() {
    let mut scene = BurstScene::tls13(&["h2", "http/1.1"]);
    for _ in 0..20 {
        scene.client(&[(23, REQUEST)]).origin(&[(23, RESPONSE)]);
    }
    assert_eq!((scene.starts.len(), scene.bursts.unpaced()), (20, None));
    let old = BurstScene::after_hellos(&["h2", "http/1.1"], false, 0xc02f, Some("http/1.1"));
    assert_eq!(old.bursts.unpaced(), None);
}

#[test]
fn what_is_too_short_for_http_is_a_websocket_in_the_end() {
    let mut scene = BurstScene::tls13(&[]);
    scene.client(&[(23, REQUEST)]).origin(&[(23, RESPONSE)]);
    for _ in 0..20 {
        scene.client(&[(23, 30)]).origin(&[(23, 30)]);
    }
    assert_eq!((scene.starts.len(), scene.bursts.unpaced()), (5, Some(Unpaced::WebSocket)));
}

#[test]
fn speaking_at_the_same_time_is_a_websocket_in_the_end() {
    let mut scene = BurstScene::tls13(&[]);
    scene.client(&[(23, REQUEST)]).origin(&[(23, RESPONSE)]);
    for crossings in 1..3 {
        scene.crossing();
        assert_eq!(scene.bursts.unpaced(), None, "{crossings} may be chance");
        scene.origin(&[(23, RESPONSE)]);
    }
    scene.crossing();
    assert_eq!(scene.bursts.unpaced(), Some(Unpaced::WebSocket));
}

#[test]
fn what_is_not_tls_takes_one_turn() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"G",
        b"SSH-2.0-x",
        &[23, 3, 3, 0, 9],
        &[22, 9],
        &[22, 3, 1, 0xff, 0xff],
        &[22, 3, 1, 0, 0],
    ] {
        let mut bursts = Bursts::new();
        let mut verdict = bursts.client_sends(bytes);
        while let BurstVerdict::Pass(_) = verdict {
            // The start of what looked like a header has passed before the rest arrives.
            verdict = bursts.client_sends(b"and more");
        }
        assert_eq!((verdict, bursts.unpaced()), (BurstVerdict::Turn, Some(Unpaced::Other)), "{bytes:?}");
        bursts.granted();
        assert_eq!(bursts.client_sends(bytes), BurstVerdict::Pass(bytes.len()));
    }
}

#[test]
fn an_origin_that_does_not_speak_tls_is_let_speak() {
    let mut scene = BurstScene::new();
    scene.client_bytes(&record(22, &samples::client("a.test", &[])));
    scene.bursts.origin_sends(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(scene.bursts.unpaced(), Some(Unpaced::Other));
}

#[test]
fn a_hello_in_many_records_is_read() {
    let mut scene = BurstScene::new();
    for piece in samples::client("a.test", &["h2"]).chunks(10) {
        scene.client_bytes(&record(22, piece));
    }
    assert_eq!((scene.bursts.unpaced(), scene.bursts.name()), (Some(Unpaced::Http2), Some("a.test")));
}

/// A hello that is too long tells nothing, but requests are found all the same.
#[test]
fn a_hello_without_end_hides_no_request() {
    let mut scene = BurstScene::new();
    scene.client_bytes(&record(22, &[&[1, 1, 0, 0][..], &[0; 16_000]].concat()));
    scene.client(&[(22, 16_000), (22, 16_000), (22, 17_540)]);
    scene.bursts.origin_sends(&record(22, &samples::server(true, 0x1301, None)));
    scene.origin(&[(23, 900)]).client(&[(20, 1), (23, FINISHED), (23, REQUEST)]);
    scene.origin(&[(23, RESPONSE)]).client(&[(23, REQUEST)]);
    assert_eq!((scene.starts.len(), scene.bursts.unpaced(), scene.bursts.name()), (2, None, None));
}

#[test]
fn where_bytes_are_cut_changes_nothing() {
    let hellos = [record(22, &samples::client("a.test", &[])), record(22, &samples::server(true, 0x1301, None))];
    let stream: Vec<u8> = [(20, 1), (23, FINISHED), (23, REQUEST)]
        .iter()
        .flat_map(|&(kind, length)| record(kind, &vec![0; length]))
        .collect();
    let sides = [(true, &hellos[0][..]), (false, &hellos[1]), (true, &stream)];
    for cut in 1..stream.len() {
        assert_eq!(starts(&sides, cut), (vec![hellos[0].len() + 6 + 5 + FINISHED], false), "{cut}");
    }
}

/// Found by the fuzz target `tunnel` (`fuzz/seeds/tunnel/hello_shorter_than_its_record`): a record that goes on after
/// its first message was read as one message or as two, depending on how much of it had come at once.
#[test]
fn a_hello_is_the_same_however_it_is_cut() {
    let short = [1, 0, 0, 0];
    let offer = samples::client("a.test", &["h2"]);
    let longer = record(22, &[&short[..], &offer[short.len()..]].concat());
    let after = record(23, &[0; REQUEST]);
    let sides = [(true, &longer[..]), (true, &after)];
    let whole = starts(&sides, usize::MAX);
    assert_eq!(whole, (vec![longer.len()], false), "nothing is known of a hello of no bytes");
    for cut in 1..longer.len() + after.len() {
        assert_eq!(starts(&sides, cut), whole, "in pieces of {cut}");
    }
}

/// The recordings of `scripts/record-tunnels`: five pages each, and for a browser the page that led to them.
#[test]
fn requests_of_real_clients_are_told() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tunnels");
    let mut seen = 0;
    for file in fs::read_dir(recordings).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let scene = replay(&fs::read_to_string(&path).unwrap());
        let (starts, unpaced) = match name.as_str() {
            "chromium" => (6..=6, None),
            // One request after the first may wait for a turn before HTTP/2 is recognised.
            _ if name.ends_with("-http2") => (1..=2, Some(Unpaced::Http2)),
            _ => (5..=5, None),
        };
        assert_eq!(scene.bursts.unpaced(), unpaced, "{name}");
        assert!(starts.contains(&scene.starts.len()), "{name}: {:?}", scene.starts);
        seen += 1;
    }
    assert!(seen >= 10, "{seen} recordings");
}

fn replay(recording: &str) -> BurstScene {
    let mut scene = BurstScene::new();
    let mut hello = None;
    for line in recording.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "offer" => hello = Some(samples::client("localhost", &words[1..])),
            "choice" => {
                let suite = u16::from_str_radix(words[2], 16).unwrap();
                hello = Some(samples::server(words[1] == "1.3", suite, words.get(3).copied()));
            }
            side @ (">" | "<") => {
                let body = hello.take().unwrap_or_else(|| vec![0xee; words[2].parse().unwrap()]);
                let bytes = record(words[1].parse().unwrap(), &body);
                if side == ">" { scene.client_bytes(&bytes) } else { scene.bursts.origin_sends(&bytes) }
            }
            _ => {}
        }
    }
    scene
}

#[test]
fn an_answer_may_have_ended_after_a_record_that_is_whole_and_not_full() {
    for mut scene in [BurstScene::tls13(&["http/1.1"]), BurstScene::tls12()] {
        assert!(!scene.bursts.may_be_answered());
        scene.client(&[(23, REQUEST)]);
        assert!(!scene.bursts.may_be_answered());
        scene.origin(&[(23, 400), (23, RESPONSE)]);
        assert_eq!((scene.bursts.may_be_answered(), scene.bursts.last_record()), (true, RESPONSE + 5));
        let next = record(23, &[0; RESPONSE]);
        for (piece, last, may_be) in [(0..3, 3, false), (3..200, 200, false), (200..905, 905, true)] {
            scene.bursts.origin_sends(&next[piece]);
            assert_eq!((scene.bursts.may_be_answered(), scene.bursts.last_record()), (may_be, last));
        }
        scene.origin(&[(23, LONGEST_PIECE + 17)]);
        assert!(!scene.bursts.may_be_answered(), "more follows a full record");
        scene.origin(&[(23, 22)]);
        assert!(scene.bursts.may_be_answered(), "the end of a chunked body is as short as an alert");
        scene.client(&[(23, REQUEST)]);
        assert!(!scene.bursts.may_be_answered());
    }
}

/// Tickets are as long as each other. A single record may be a ticket or a short answer.
#[test]
fn tickets_are_no_answer() {
    let mut scene = BurstScene::tls13(&["http/1.1"]);
    scene.client(&[(23, REQUEST)]);
    for _ in 0..MOST_TICKETS_SEEN {
        scene.origin(&[(23, 255)]);
        assert!(!scene.bursts.may_be_answered());
    }
    scene.origin(&[(23, RESPONSE)]);
    assert!(scene.bursts.may_be_answered());
    scene.client(&[(23, REQUEST)]).origin(&[(23, 255)]);
    assert!(scene.bursts.may_be_answered(), "no tickets come later");

    let mut scene = BurstScene::tls13(&["http/1.1"]);
    scene.origin(&[(23, 255)]).client(&[(23, REQUEST)]).origin(&[(23, 255)]);
    assert!(scene.bursts.may_be_answered(), "the ticket came before");
}

/// OpenSSL sends two.
const MOST_TICKETS_SEEN: usize = 2;

/// HTTP/2 shows when the client acknowledges the origin's settings. Until then its first answer may be of HTTP/2.
#[test]
fn what_may_be_http2_has_not_ended() {
    let mut scene = BurstScene::tls13(&["h2", "http/1.1"]);
    scene.client(&[(23, REQUEST)]).origin(&[(23, 255), (23, RESPONSE)]);
    assert!(!scene.bursts.may_be_answered());
    scene.client(&[(23, REQUEST)]).origin(&[(23, RESPONSE)]);
    assert!(scene.bursts.may_be_answered());
    scene.client(&[(23, 26)]);
    assert!(!scene.bursts.may_be_answered());
}
