//! Large answers: written while they pass, and read in pieces.

use std::future::poll_fn;

use super::*;

/// The head of a large answer.
fn head() -> Arc<Entry> {
    entry(b"")
}

fn pieces(count: u8) -> impl Iterator<Item = Bytes> {
    (0..count).map(|n| Bytes::from(vec![n; 300_000]))
}

async fn read_all(entry: Entry) -> (Entry, Vec<u8>) {
    let body = entry.large().unwrap();
    (entry, read_body(body).await)
}

async fn read_body(mut body: LargeBody) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|cx| body.poll_piece(cx)).await {
        let piece = piece.unwrap();
        assert!(piece.len() <= 256 * 1024);
        all.extend_from_slice(&piece);
    }
    all
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn it_is_written_while_it_passes_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    let mut write = first.begin(key("/iso"), head()).unwrap();
    for piece in pieces(20) {
        assert!(write.push(piece));
        settle(&first);
        assert!(read(&first, &key("/iso")).is_none(), "it is not complete");
    }
    write.finish();
    settle(&first);
    let wanted = pieces(20).collect::<Vec<_>>().concat();
    let (found, content) = run(read_all(read(&first, &key("/iso")).unwrap()));
    assert_eq!((found.field("etag"), &found.terms), (Some(&b"\"1\""[..]), &terms()));
    assert!(content == wanted);
    close(&first);
    let second = tier(directory.path());
    let (_, content) = run(read_all(read(&second, &key("/iso")).unwrap()));
    assert!(content == wanted);
    let path = directory.path().join("large/000001.warc");
    assert!(record::read_whole(&std::fs::read(path).unwrap()).is_ok(), "the file is a whole record");
}

/// C12
#[test]
fn one_that_breaks_off_is_never_found() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    let mut write = first.begin(key("/iso"), head()).unwrap();
    pieces(5).for_each(|piece| assert!(write.push(piece)));
    drop(write);
    let mut unfinished = first.begin(key("/other"), head()).unwrap();
    pieces(5).for_each(|piece| assert!(unfinished.push(piece)));
    settle(&first);
    close(&first);
    drop(unfinished);
    let second = tier(directory.path());
    assert!(read(&second, &key("/iso")).is_none() && read(&second, &key("/other")).is_none());
    assert!(files::segments(directory.path()).unwrap().is_empty(), "nothing is left of them");
}

#[test]
fn one_that_is_too_large_for_the_folder_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let tier = tier_of(directory.path(), 4 * 1024 * 1024);
    let mut write = tier.begin(key("/iso"), head()).unwrap();
    pieces(10).for_each(|piece| assert!(write.push(piece)));
    write.finish();
    settle(&tier);
    assert!(read(&tier, &key("/iso")).is_none());
    assert!(files::segments(directory.path()).unwrap().is_empty());
}

#[test]
fn part_of_it_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let tier = tier(directory.path());
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 251) as u8).collect();
    tier.put(key("/iso"), entry(&content));
    settle(&tier);
    for (first, length) in [(0, 1), (1_000_000, 700_000), (2_999_990, 10)] {
        let entry = read(&tier, &key("/iso")).unwrap();
        let mut body = entry.large().unwrap();
        assert_eq!(body.left(), content.len() as u64);
        body.select(first as u64, length as u64);
        assert_eq!(body.left(), length as u64);
        let part = run(read_body(body));
        assert!(part == content[first..first + length]);
    }
}

/// C53: after a kill, a large answer is read through before it is used.
#[test]
fn a_flipped_bit_after_a_kill_is_found_before_the_first_byte_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    first.put(key("/iso"), entry(&vec![7; 3_000_000]));
    first.put(key("/good"), entry(&vec![8; 3_000_000]));
    close(&first);
    // The lock file of a process that was killed has its process id.
    std::fs::write(directory.path().join(files::LOCK), "4711\n").unwrap();
    let path = directory.path().join("large/000001.warc");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[2_000_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let second = tier(directory.path());
    assert!(read(&second, &key("/iso")).is_none());
    assert!(read(&second, &key("/good")).is_some());
    assert_eq!(second.status().counts.damaged, 1);
    assert!(second.find(&key("/iso").borrowed()).is_empty(), "it is forgotten");
}
