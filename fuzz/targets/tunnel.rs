//! Any conversation in a tunnel: no panic, no byte held back without reason, and the same requests however it is split.

#![no_main]

use curtsy::proxy::fuzzing::starts;
use libfuzzer_sys::fuzz_target;

// Input: which side sends, the kind of record, and its content; without a kind, raw bytes.
fuzz_target!(|words: Vec<(bool, Option<u8>, Vec<u8>)>| {
    let wire: Vec<(bool, Vec<u8>)> = words.into_iter().map(|(who, kind, body)| (who, written(kind, body))).collect();
    let sides: Vec<(bool, &[u8])> = wire.iter().map(|(who, bytes)| (*who, &bytes[..])).collect();
    let whole = starts(&sides, usize::MAX);
    for cut in [1, 3, 7] {
        let (begun, gave_up) = starts(&sides, cut);
        assert_eq!(gave_up, whole.1, "in pieces of {cut}");
        // A header that turns out to be invalid is noticed earlier if all of it is there.
        assert!(gave_up || begun == whole.0, "in pieces of {cut}: {begun:?} and not {:?}", whole.0);
    }
});

fn written(kind: Option<u8>, body: Vec<u8>) -> Vec<u8> {
    let Some(kind) = kind else { return body };
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[20 + kind % 5, 3, 3][..], &length, &body].concat()
}
