//! Any bytes as a record of a cache segment: no panic, and what is read is exactly what would be written.

#![no_main]

use curtsy::cache::disk::record::{END, WarcHeader, digest_of, read_whole};
use curtsy::cache::disk::note;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, length)) = WarcHeader::read(bytes) {
        assert_eq!(header.write().as_deref().map(str::as_bytes), Some(&bytes[..length]));
        if let Some(terms) = note::read(&header.note, header.address) {
            assert_eq!(note::write(&terms), header.note);
        }
        // The same header with a block that fits it is a whole record.
        let block = &bytes[length..];
        let header = WarcHeader { digest: digest_of([block]), block_length: block.len() as u64, ..header };
        let text = header.write().expect("only digest and length have changed");
        let record = [text.as_bytes(), block, END].concat();
        assert_eq!(read_whole(&record), Ok((header, text.len())));
    }
    if let Ok((header, at)) = read_whole(bytes) {
        let block = &bytes[at..bytes.len() - END.len()];
        assert_eq!((digest_of([block]), block.len() as u64), (header.digest, header.block_length));
    }
    if let Some(terms) = note::read(bytes, None) {
        assert_eq!(note::write(&terms), bytes);
    }
});
