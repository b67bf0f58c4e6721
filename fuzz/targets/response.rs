//! Any bytes as an origin's response: no panic, no content that was not sent, and the same result however the bytes are
//! split.

#![no_main]

use curtsy::upstream::fuzzing::{End, read_response};
use libfuzzer_sys::fuzz_target;

// Input: two bytes that say how the rest is split and whether it answers HEAD, then the response.
fuzz_target!(|bytes: &[u8]| {
    let [first, second, wire @ ..] = bytes else { return };
    let is_head = first & 0x80 != 0;
    let whole = read_response(&[wire], is_head);
    let left = if let End::Whole(left) = whole.end { left } else { 0 };
    assert!(whole.content.len() + left <= wire.len(), "{whole:?}");

    let mut sizes = [first % 64, second % 64].map(|size| usize::from(size) + 1).into_iter().cycle();
    let (mut pieces, mut rest) = (Vec::new(), wire);
    while let (false, Some(size)) = (rest.is_empty(), sizes.next()) {
        let (piece, later) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = later;
    }
    assert_eq!(read_response(&pieces, is_head), whole, "cut into {pieces:?}");
    let bytes: Vec<&[u8]> = wire.chunks(1).collect();
    assert_eq!(read_response(&bytes, is_head), whole, "byte by byte");
});
