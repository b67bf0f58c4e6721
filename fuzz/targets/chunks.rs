//! Any content in any chunks: what is written can be read back unchanged.

#![no_main]

use curtsy::upstream::fuzzing::{End, read_body, write_body};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|pieces: Vec<Vec<u8>>| {
    let wire = write_body(&pieces);
    for cut in [wire.len(), 1, 7] {
        let read = read_body(&wire.chunks(cut).collect::<Vec<_>>());
        assert_eq!((read.content, read.end), (pieces.concat(), End::Whole(0)), "in pieces of {cut}");
        assert!(read.trailers.is_empty());
    }
});
