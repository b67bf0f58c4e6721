//! Shared bodies, without sockets.

use super::*;

/// An origin's body of so many pieces of 64 KiB, which counts how many were read.
struct Origin {
    left: usize,
    read: Arc<AtomicUsize>,
    breaks: bool,
}

const PIECE: usize = 64 * 1024;

impl HttpBody for Origin {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.left == 0 {
            return Poll::Ready(self.breaks.then_some(Err(Broken::Truncated)));
        }
        self.left -= 1;
        self.read.fetch_add(1, Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![self.left as u8; PIECE])))))
    }
}

fn origin(pieces: usize) -> (Origin, Arc<AtomicUsize>) {
    let read = Arc::new(AtomicUsize::new(0));
    (Origin { left: pieces, read: read.clone(), breaks: false }, read)
}

/// Reads pieces until the end, or as many as wanted. Returns their first bytes.
async fn read(reader: &mut BodyReader, most: usize) -> Result<Vec<u8>, Broken> {
    let mut all = Vec::new();
    while all.len() < most {
        match poll_fn(|cx| reader.poll_frame(cx)).await {
            Some(frame) => all.push(frame?.into_data().expect("data")[0]),
            None => break,
        }
    }
    Ok(all)
}

fn expected(pieces: usize) -> Vec<u8> {
    (0..pieces).rev().map(|number| number as u8).collect()
}

#[tokio::test]
async fn every_reader_reads_everything() {
    let (from, _) = origin(40);
    let kept = Arc::new(AtomicUsize::new(0));
    let body = SharedBody::new(&from, kept.clone());
    let mut readers: Vec<BodyReader> = (0..5).map(|_| body.reader()).collect();
    let filling = tokio::spawn(async move { body.fill(from).await });
    for reader in &mut readers {
        assert_eq!(read(reader, usize::MAX).await, Ok(expected(40)));
        assert!(reader.is_end_stream());
    }
    assert_eq!(filling.await.unwrap(), None);
    drop(readers);
    assert_eq!(kept.load(Relaxed), 0);
}

/// C43
#[tokio::test]
async fn readers_that_do_not_read_fill_no_memory() {
    let (from, came) = origin(1000);
    let body = SharedBody::new(&from, Arc::default());
    let (mut fast, mut slow) = (body.reader(), body.reader());
    let filling = tokio::spawn(async move { body.fill(from).await });
    while came.load(Relaxed) < AHEAD as usize / PIECE {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    assert_eq!(came.load(Relaxed), AHEAD as usize / PIECE, "no reader has read");
    // One reader alone gets on until the other lags too much.
    let most = MOST_LAG as usize / PIECE;
    assert_eq!(read(&mut fast, most - 8).await.unwrap().len(), most - 8);
    assert!(came.load(Relaxed) <= most);
    let rest = tokio::spawn(async move { read(&mut fast, usize::MAX).await });
    assert_eq!(read(&mut slow, usize::MAX).await.unwrap().len(), 1000);
    assert_eq!(rest.await.unwrap().unwrap().len(), 1000 - (most - 8));
    assert_eq!(filling.await.unwrap(), None);
}

#[tokio::test]
async fn a_reader_that_leaves_holds_up_no_other() {
    let (from, _) = origin(1000);
    let body = SharedBody::new(&from, Arc::default());
    let (mut fast, slow) = (body.reader(), body.reader());
    let filling = tokio::spawn(async move { body.fill(from).await });
    let reading = tokio::spawn(async move { read(&mut fast, usize::MAX).await });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    drop(slow);
    assert_eq!(reading.await.unwrap().unwrap().len(), 1000);
    assert_eq!(filling.await.unwrap(), None);
}

#[tokio::test]
async fn the_rest_is_not_fetched_for_no_reader() {
    let (from, came) = origin(1000);
    let kept = Arc::new(AtomicUsize::new(0));
    let body = SharedBody::new(&from, kept.clone());
    let mut reader = body.reader();
    let filling = tokio::spawn(async move { body.fill(from).await });
    assert_eq!(read(&mut reader, 3).await.unwrap().len(), 3);
    drop(reader);
    filling.await.unwrap();
    assert!(came.load(Relaxed) < 10);
    assert_eq!(kept.load(Relaxed), 0);
}

#[tokio::test]
async fn every_reader_sees_that_the_body_broke_off() {
    let (from, _) = origin(3);
    let from = Origin { breaks: true, ..from };
    let body = SharedBody::new(&from, Arc::default());
    let mut readers = [body.reader(), body.reader()];
    assert_eq!(body.fill(from).await, Some(Broken::Truncated));
    for reader in &mut readers {
        assert_eq!(read(reader, 3).await, Ok(expected(3)));
        assert_eq!(read(reader, 1).await, Err(Broken::Truncated));
    }
}

/// With too much kept for slow readers everywhere, each body keeps only a little.
#[tokio::test]
async fn many_slow_readers_share_the_memory() {
    let (from, came) = origin(1000);
    let body = SharedBody::new(&from, Arc::new(AtomicUsize::new(MOST_KEPT)));
    let (mut fast, slow) = (body.reader(), body.reader());
    let filling = tokio::spawn(async move { body.fill(from).await });
    let reading = tokio::spawn(async move { read(&mut fast, usize::MAX).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(came.load(Relaxed), AHEAD as usize / PIECE);
    drop(slow);
    assert_eq!(reading.await.unwrap().unwrap().len(), 1000);
    filling.await.unwrap();
}
