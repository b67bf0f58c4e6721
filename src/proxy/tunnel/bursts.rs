//! Finds the requests inside a TLS tunnel by the outlines of its records: which bytes of the client begin one.
//!
//! Decides and counts; moves nothing, waits for nothing, knows no time. It is shown what client and origin send, in
//! order, and says of the client's bytes whether they may pass or need a turn first.
//!
//! # The rule
//! In HTTP/1.1 client and origin alternate. So application bytes of the client that follow bytes of the origin
//! begin a request, and everything until the origin speaks again belongs to that request. Some records look like
//! application bytes and are not. They are recognised by their length, to which encryption adds a fixed number:
//!
//! | record | recognised by |
//! |---|---|
//! | the client's last message of the handshake (TLS 1.3) | the length of a Finished message under the chosen suite |
//! | alerts, key updates | shorter than anything in HTTP |
//! | `100 Continue` | its exact length: what follows belongs to the request |
//! | more of an upload | comes after a record that is full |
//! | HTTP/2, where it was offered | a single frame (settings acknowledged, a window update): no request is so short |
//!
//! If curtsy cannot tell, it counts the bytes as a request: a turn too many costs a moment, one too few breaks a
//! promise.
//!
//! # When it gives up
//! Bytes that are not TLS, that are HTTP/2, that are sent both ways at once or in messages too short for HTTP (a
//! WebSocket) pass freely after their first turn. The caller makes a note of that.

use super::answer_end::AnswerEnd;
use super::hello::{ChosenProtocol, Hello, Offer};
use super::records::{self, APPLICATION, HANDSHAKE, HEADER, LONGEST_PIECE, Records, TlsRecord};

/// What to do with bytes of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BurstVerdict {
    /// This many may go. They count as sent.
    Pass(usize),
    /// The first of them begins a request: claim a turn, call [`Bursts::granted`], ask again.
    Turn,
    /// More bytes are needed to tell.
    More,
}

/// Why the requests inside are not separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpaced {
    Http2,
    /// Not a sequence of requests and answers.
    WebSocket,
    /// Not TLS, or not HTTP in it.
    Other,
    /// Pacing inside tunnels is turned off.
    Off,
}

#[derive(Debug)]
pub(crate) struct Bursts {
    up: Records,
    down: Records,
    client_hello: Hello,
    server_hello: Hello,
    name: Option<String>,
    program: u64,
    may_be_http2: bool,
    shape: Shape,
    /// No more handshake messages are expected from the client.
    finished: bool,
    /// The client has sent a record.
    spoke: bool,
    /// The first request has begun.
    begun: bool,
    granted: bool,
    /// A request waits for its turn.
    held: bool,
    /// The origin has spoken while that request waited.
    crossed: bool,
    /// The origin has spoken since the last request began.
    answered: bool,
    /// The client's last record was full: more of the same request follows.
    full: bool,
    /// Records since the last request that were too short for anything but an alert or a key update.
    slight: u8,
    /// At most this many application bytes were sent in the current exchange: `asked` by the client, `told` by the
    /// origin.
    asked: usize,
    told: usize,
    /// How many things have happened that do not happen in HTTP/1.1.
    oddities: u8,
    answer_end: AnswerEnd,
    unpaced: Option<Unpaced>,
}

/// The lengths by which records are recognised.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The least that encryption adds to a record.
    overhead: usize,
    /// The length of the client's Finished, if it looks like application bytes.
    finished: Option<usize>,
}

/// An alert has 2 bytes, a key update has 5.
const SLIGHT: usize = 5;
/// An honest client updates its keys and sends a closing alert; more than that is a request in tiny pieces.
const MOST_SLIGHT: u8 = 2;
/// A client that is asked for a certificate and has none says so in 8 bytes; "end of early data" has 4.
const NO_CERTIFICATE: usize = 8;
/// Java adds this many zeros to each record (TLS 1.3).
const JAVA_PADS: usize = 16;
/// `GET / HTTP/1.1`, a Host of one letter, and the line ends.
const SHORTEST_REQUEST: usize = 26;
/// `HTTP/1.1 200 OK` and two line ends.
const SHORTEST_RESPONSE: usize = 19;
/// `HTTP/1.1 100 Continue` and two line ends. No server sends a shorter final answer.
const CONTINUE: usize = 25;
/// A single one may be chance: an origin that times out says so without being asked.
const MOST_ODDITIES: u8 = 3;

impl Bursts {
    pub(crate) fn new() -> Self {
        Bursts {
            up: Records::default(),
            down: Records::default(),
            client_hello: Hello::new(),
            server_hello: Hello::new(),
            name: None,
            program: 0,
            may_be_http2: true,
            shape: Shape { overhead: 16, finished: None },
            finished: false,
            spoke: false,
            begun: false,
            granted: false,
            held: false,
            crossed: false,
            answered: true,
            full: false,
            slight: 0,
            asked: 0,
            told: 0,
            oddities: 0,
            answer_end: AnswerEnd::default(),
            unpaced: None,
        }
    }

    /// Takes one turn for the whole tunnel, whatever is in it.
    pub(crate) fn unwatched() -> Self {
        Bursts { unpaced: Some(Unpaced::Off), ..Bursts::new() }
    }

    pub(crate) fn unpaced(&self) -> Option<Unpaced> {
        self.unpaced
    }

    /// Notes that the tunnel carries HTTP/2 in the clear.
    pub(crate) fn is_http2(&mut self) {
        self.give_up(Unpaced::Http2);
    }

    /// The host that the client named in its hello, once that is read.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// A hash of what does not change in the hellos of a program; zero before the hello is read.
    pub(crate) fn program(&self) -> u64 {
        self.program
    }

    /// Whether a request has begun, and the origin has said nothing since.
    pub(crate) fn owes_answer(&self) -> bool {
        self.begun && !self.answered
    }

    /// Whether what the origin has sent so far may be all of its answer. False if that is wrong or in doubt: a record
    /// is incomplete or full, only session tickets have come, or this may be HTTP/2.
    pub(crate) fn may_be_answered(&self) -> bool {
        let is_between_records = self.down.left() == 0 && !self.down.is_in_header();
        let is_http1 = !self.may_be_http2 || self.answer_end.is_second_request();
        let is_exchange = self.unpaced.is_none() && self.begun && self.answered && is_http1;
        is_exchange && is_between_records && self.answer_end.is_possible()
    }

    /// Whether the origin has said last that it closes the connection.
    pub(crate) fn is_origin_closing(&self) -> bool {
        self.answer_end.is_alert()
    }

    /// How many bytes of the answer have come, at most.
    pub(crate) fn told(&self) -> usize {
        self.told
    }

    /// How many bytes of the origin's last record have come, its header included.
    pub(crate) fn last_record(&self) -> usize {
        self.answer_end.last_record()
    }

    /// Notes that the request that needed a turn has it.
    pub(crate) fn granted(&mut self) {
        self.granted = true;
        self.held = false;
        self.crossed = false;
    }

    /// Judges bytes of the client, from the first that has not passed.
    pub(crate) fn client_sends(&mut self, bytes: &[u8]) -> BurstVerdict {
        let mut passed = 0;
        while passed < bytes.len() {
            if self.unpaced.is_some() {
                return if self.may_begin() {
                    BurstVerdict::Pass(bytes.len())
                } else {
                    stop_at(passed, BurstVerdict::Turn)
                };
            }
            let rest = &bytes[passed..];
            let inside = self.up.left().min(rest.len());
            if inside > 0 {
                self.client_says(&rest[..inside]);
                self.up.pass(inside);
                passed += inside;
                continue;
            }
            match rest.first_chunk::<HEADER>() {
                Some(&header) if !self.up.is_in_header() => match TlsRecord::read(header) {
                    Ok(record) if self.is_request(record) && !self.may_begin() => {
                        return stop_at(passed, BurstVerdict::Turn);
                    }
                    Ok(record) if self.unpaced.is_none() => {
                        self.take(record);
                        passed += HEADER;
                    }
                    Ok(_) => {}
                    Err(_) => self.give_up(Unpaced::Other),
                },
                // Only for application bytes the length matters as well.
                None if rest[0] == APPLICATION && !self.up.is_in_header() => {
                    return stop_at(passed, BurstVerdict::More);
                }
                _ => passed += self.take_piece(rest),
            }
        }
        stop_at(passed, BurstVerdict::More)
    }

    /// Reads bytes of the origin. All of them pass.
    pub(crate) fn origin_sends(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && (!self.begun || self.unpaced.is_none()) {
            let inside = self.down.left().min(bytes.len());
            if inside > 0 {
                self.origin_says(&bytes[..inside]);
                self.down.pass(inside);
                self.answer_end.take(inside);
                bytes = &bytes[inside..];
                continue;
            }
            if !self.down.is_in_header() {
                self.answer_end.begin_record();
            }
            let before = bytes.len();
            let next = self.down.next(&mut bytes);
            self.answer_end.take(before - bytes.len());
            match next {
                Some(Ok(record)) => self.hear(record),
                Some(Err(_)) => return self.give_up(Unpaced::Other),
                None => return,
            }
        }
    }

    /// Whether a request may begin here. If so, begins it.
    fn may_begin(&mut self) -> bool {
        if self.begun && self.unpaced.is_some() {
            return true;
        }
        if !self.granted {
            self.held = true;
            return false;
        }
        self.judge_exchange();
        self.answer_end.begin_request(self.begun);
        self.begun = true;
        // With early data, the handshake has yet to end.
        self.finished |= self.shape.finished.is_some();
        self.granted = false;
        self.answered = false;
        self.slight = 0;
        self.asked = 0;
        self.told = 0;
        true
    }

    /// Whether a record of the client is the first of a request.
    fn is_request(&mut self, record: TlsRecord) -> bool {
        if !self.spoke && record.kind != HANDSHAKE {
            self.give_up(Unpaced::Other);
            return false;
        }
        if record.kind != APPLICATION || self.ends_handshake(record.length) || !self.answered || self.full {
            return false;
        }
        if record.length <= self.shape.overhead + SLIGHT && self.slight < MOST_SLIGHT {
            self.slight += 1;
            return false;
        }
        if self.may_be_http2 && self.begun && self.inside(record) < SHORTEST_REQUEST {
            self.give_up(Unpaced::Http2);
            return false;
        }
        true
    }

    /// Whether this is one of the client's last messages of the handshake. With a certificate, or padded, they may have
    /// any length, and are taken for a request.
    fn ends_handshake(&mut self, length: usize) -> bool {
        if self.finished || self.shape.finished.is_none() {
            return false;
        }
        if self.shape.finished.is_some_and(|usual| length == usual || length == usual + JAVA_PADS) {
            self.finished = true;
            // With early data, the answer may have come already, among the origin's handshake messages.
            self.answered = true;
            return true;
        }
        length <= self.shape.overhead + NO_CERTIFICATE
    }

    /// Takes a piece of a header that begins no request. Returns how many bytes it took.
    fn take_piece(&mut self, bytes: &[u8]) -> usize {
        let expected = if self.spoke { records::may_begin(bytes[0]) } else { bytes[0] == HANDSHAKE };
        if !expected && !self.up.is_in_header() {
            self.give_up(Unpaced::Other);
            return 0;
        }
        let mut rest = bytes;
        match self.up.next(&mut rest) {
            Some(Ok(record)) => self.take(record),
            Some(Err(_)) => self.give_up(Unpaced::Other),
            None => {}
        }
        bytes.len() - rest.len()
    }

    fn take(&mut self, record: TlsRecord) {
        self.spoke = true;
        self.up.begin(record);
        if record.kind == APPLICATION {
            self.full = record.length >= LONGEST_PIECE;
            self.asked = self.asked.saturating_add(self.inside(record));
        }
    }

    /// Reads the beginning of a record of the origin.
    fn hear(&mut self, record: TlsRecord) {
        let handshaking = self.shape.finished.is_some() && !self.finished;
        let inside = self.inside(record);
        self.answer_end.hear(record, inside);
        if record.kind != APPLICATION || handshaking || inside <= SLIGHT || (self.begun && self.is_continue(record)) {
            return;
        }
        // In HTTP/1.1 the origin sends nothing while the next request is held; tickets come before the first request.
        if self.begun && self.held && !std::mem::replace(&mut self.crossed, true) {
            self.count_oddity();
        }
        self.answered = true;
        self.told = self.told.saturating_add(inside);
        self.answer_end.hear_answer(record);
    }

    fn is_continue(&self, record: TlsRecord) -> bool {
        // AES-GCM adds 8 bytes more in TLS 1.2 (RFC 5288, section 3).
        let inside = self.inside(record);
        self.told == 0 && (inside == CONTINUE || (self.shape.finished.is_none() && inside == CONTINUE + 8))
    }

    /// The most application bytes that a record can have.
    fn inside(&self, record: TlsRecord) -> usize {
        record.length.saturating_sub(self.shape.overhead)
    }

    /// Judges the exchange that is over because the next one begins.
    fn judge_exchange(&mut self) {
        if self.begun && (self.asked < SHORTEST_REQUEST || (1..SHORTEST_RESPONSE).contains(&self.told)) {
            self.count_oddity();
        }
    }

    fn count_oddity(&mut self) {
        self.oddities += 1;
        if self.may_be_http2 {
            self.give_up(Unpaced::Http2);
        } else if self.oddities >= MOST_ODDITIES {
            self.give_up(Unpaced::WebSocket);
        }
    }

    fn client_says(&mut self, piece: &[u8]) {
        let Some(message) = self.client_hello.gather(piece) else { return };
        let Some(offer) = Offer::read(&message) else { return };
        self.may_be_http2 = offer.http2;
        self.name = offer.name;
        self.program = offer.program;
        if !offer.http1 {
            self.give_up(if offer.http2 { Unpaced::Http2 } else { Unpaced::Other });
        }
    }

    fn origin_says(&mut self, piece: &[u8]) {
        let Some(message) = self.server_hello.gather(piece) else { return };
        let Some(choice) = ChosenProtocol::read(&message) else { return };
        self.shape = Shape::of(choice);
        if !choice.tls13 {
            self.may_be_http2 = false;
            self.answer_end.without_tickets();
            if choice.http2 {
                self.give_up(Unpaced::Http2);
            }
        }
    }

    fn give_up(&mut self, why: Unpaced) {
        self.unpaced.get_or_insert(why);
    }
}

impl Default for Bursts {
    fn default() -> Self {
        Bursts::new()
    }
}

impl Shape {
    fn of(choice: ChosenProtocol) -> Shape {
        if !choice.tls13 {
            return Shape { overhead: 16, finished: None };
        }
        // A tag, and the real type of the record; RFC 8446, section 5.2. The suites are in its appendix B.4.
        let overhead = if choice.suite == 0x1305 { 8 + 1 } else { 16 + 1 };
        let hash = if choice.suite == 0x1302 { 48 } else { 32 };
        Shape { overhead, finished: Some(4 + hash + overhead) }
    }
}

/// Lets the bytes before those in question pass first.
fn stop_at(passed: usize, verdict: BurstVerdict) -> BurstVerdict {
    if passed > 0 { BurstVerdict::Pass(passed) } else { verdict }
}

#[cfg(test)]
#[path = "bursts_tests.rs"]
mod tests;
