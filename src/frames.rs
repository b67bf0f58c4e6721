//! Finds where one HTTP/2 frame ends and the next begins, in bytes that pass in pieces of any size (RFC 9113, section
//! 4.1), and notices a peer that sends frames without purpose.
//!
//! Reads only the head of every frame and the first bytes of its content. The `h2` crate interprets the frames.

/// Length of the connection preface that a client sends before its first frame (RFC 9113, section 3.4).
pub const PREFACE: usize = 24;
const HEAD: usize = 9;
/// As many bytes of a frame's content as this code looks at.
const OPENING: usize = 4;

const CONTENT: u8 = 0x0;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const CONTINUATION: u8 = 0x9;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// A frame that has passed completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub stream: u32,
    kind: u8,
    flags: u8,
    length: u32,
    opening: [u8; OPENING],
}

impl Frame {
    /// Whether this is the last frame of a head, or of trailers.
    pub fn ends_head(&self) -> bool {
        matches!(self.kind, HEADERS | CONTINUATION) && self.flags & END_HEADERS != 0
    }

    pub fn has_content(&self) -> bool {
        self.kind == CONTENT && self.length > 0
    }

    /// Whether this carries the peer's own settings, and not the acknowledgement of ours.
    pub fn tells_settings(&self) -> bool {
        self.kind == SETTINGS && self.flags & ACK == 0
    }

    /// For a GOAWAY frame: the last stream that the peer may have processed (RFC 9113, section 6.8).
    pub fn last_stream(&self) -> Option<u32> {
        (self.kind == GOAWAY).then(|| number(self.opening))
    }
}

/// Counts the frames of a peer that neither bring content nor answer anything: PING, SETTINGS, cancelled requests and
/// the like. An honest peer sends a few a minute. An attacker sends as many as it can, because each costs us work.
#[derive(Debug, Default)]
pub struct Chatter(u32);

impl Chatter {
    /// In a row. Other servers set this limit between 1 000 and 10 000.
    const MOST: u32 = 1000;

    pub fn read(&mut self, frame: Frame) {
        self.0 = if frame.has_content() { 0 } else { self.0.saturating_add(1) };
    }

    /// Resets the count: a head or content that we send gives the peer a reason to answer.
    pub fn wrote(&mut self, frame: Frame) {
        if frame.ends_head() || frame.has_content() {
            self.0 = 0;
        }
    }

    pub fn is_too_much(&self) -> bool {
        self.0 > Self::MOST
    }
}

/// Follows one direction of a connection.
#[derive(Debug)]
pub struct Follower {
    /// Bytes that belong to no frame.
    skip: usize,
    head: [u8; HEAD],
    /// How much of `head` is known.
    known: usize,
    opening: [u8; OPENING],
    passed: u32,
}

impl Follower {
    /// `skip`: bytes before the first frame.
    pub fn new(skip: usize) -> Self {
        Follower { skip, head: [0; HEAD], known: 0, opening: [0; OPENING], passed: 0 }
    }

    /// Calls `each` for every frame that ends in these bytes.
    pub fn follow(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame)) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.known < HEAD {
                let now = (HEAD - self.known).min(bytes.len());
                self.head[self.known..self.known + now].copy_from_slice(&bytes[..now]);
                self.known += now;
                bytes = &bytes[now..];
            } else {
                let now = ((self.length() - self.passed) as usize).min(bytes.len());
                self.pass(&bytes[..now]);
                bytes = &bytes[now..];
            }
            if self.known == HEAD && self.passed == self.length() {
                each(self.end());
            }
        }
    }

    fn pass(&mut self, content: &[u8]) {
        for (place, byte) in self.opening.iter_mut().skip(self.passed as usize).zip(content) {
            *place = *byte;
        }
        self.passed += content.len() as u32;
    }

    fn end(&mut self) -> Frame {
        let [.., a, b, c, d] = self.head;
        let (kind, flags, length) = (self.head[3], self.head[4], self.length());
        self.known = 0;
        self.passed = 0;
        Frame { kind, flags, stream: number([a, b, c, d]), length, opening: std::mem::take(&mut self.opening) }
    }

    fn length(&self) -> u32 {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]])
    }
}

/// Reads 31 bits, after a reserved bit.
fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & (u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request head in two frames, an empty DATA, and GOAWAY with last stream 5.
    const WIRE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
        \x00\x00\x03\x01\x01\x00\x00\x00\x07abc\
        \x00\x00\x01\x09\x04\x00\x00\x00\x07d\
        \x00\x00\x00\x00\x01\x80\x00\x00\x07\
        \x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00";

    fn followed(piece: usize) -> Vec<Frame> {
        let (mut follower, mut frames) = (Follower::new(PREFACE), Vec::new());
        for piece in WIRE.chunks(piece) {
            follower.follow(piece, |frame| frames.push(frame));
        }
        frames
    }

    #[test]
    fn a_peer_may_talk_for_a_while() {
        let (ping, content) = (Frame { kind: 6, ..followed(WIRE.len())[2] }, Frame { length: 1, ..followed(1)[2] });
        let mut chatter = Chatter::default();
        for _ in 0..Chatter::MOST {
            chatter.read(ping);
        }
        assert!(!chatter.is_too_much());
        chatter.read(ping);
        assert!(chatter.is_too_much());
        chatter.wrote(ping);
        assert!(chatter.is_too_much());
        chatter.wrote(content);
        assert!(!chatter.is_too_much());
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let whole = followed(WIRE.len());
        assert_eq!(whole.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [HEADERS, CONTINUATION, CONTENT, GOAWAY]);
        assert_eq!(whole.iter().map(Frame::ends_head).collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!((whole[2].stream, whole[2].has_content()), (7, false));
        assert_eq!(whole[3].last_stream(), Some(5));
        for piece in 1..WIRE.len() {
            assert_eq!(followed(piece), whole, "in pieces of {piece}");
        }
    }
}
