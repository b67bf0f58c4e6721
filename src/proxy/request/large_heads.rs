//! Bounds the memory of large request heads while their requests wait, for each connection and in total.
//!
//! An HTTP/2 client can name a field of 4 KiB with one byte, as often as it likes (RFC 7541, section 2.3.2), so 250 KiB
//! on the wire would take 130 MiB here. Ordinary heads are not counted: the bounds of the queue cover them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::proxy::Shared;
use crate::proxy::accept::client::Client;
use crate::proxy::answer::failure::Refusal;

/// A waiting request takes 7 KiB besides its head and should take less than 20 KiB in total.
const USUAL: usize = 8 * 1024;
/// The bound for one connection: eight of the largest heads that HTTP/1.1 may have, or sixteen of HTTP/2.
const MOST_OF_A_CONNECTION: usize = 512 * 1024;
/// The bound for all connections: 3 KiB for each of the 20 000 requests that may wait by default.
const MOST: usize = 64 * 1024 * 1024;
/// When a client may retry: by default one request a second leaves the queue of each host.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A large head that waits, counted while this value lives.
#[derive(Debug)]
pub(crate) struct LargeHead {
    shared: Arc<Shared>,
    client: Arc<Client>,
    size: usize,
}

/// Counts a head of this size if it is large. Refuses it if too many such bytes wait already.
pub(crate) fn weigh(shared: &Arc<Shared>, client: &Arc<Client>, size: usize) -> Result<Option<LargeHead>, Refusal> {
    if size <= USUAL {
        return Ok(None);
    }
    let heavy = LargeHead { shared: shared.clone(), client: client.clone(), size };
    let of_connection = add(&client.heavy, size);
    let of_all = add(&shared.heavy, size);
    if of_connection > MOST_OF_A_CONNECTION || of_all > MOST {
        return Err(Refusal::HeadsFull { retry_after: RETRY_AFTER });
    }
    Ok(Some(heavy))
}

fn add(bytes: &AtomicUsize, size: usize) -> usize {
    bytes.fetch_add(size, Relaxed) + size
}

impl Drop for LargeHead {
    fn drop(&mut self) {
        self.client.heavy.fetch_sub(self.size, Relaxed);
        self.shared.heavy.fetch_sub(self.size, Relaxed);
    }
}
