//! Chaining: what curtsy sends to a parent proxy.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::UpstreamError;
use crate::config::ParentProxy;
use crate::politeness::HostKey;

/// A longer response to CONNECT is an error.
const LONGEST_HEAD: usize = 16 * 1024;

/// Returns the Proxy-Authorization for the parent, if the operator gave credentials.
pub(super) fn authorization(parent: &ParentProxy) -> Option<HeaderValue> {
    let (user, password) = parent.credentials.as_ref()?;
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Asks the parent for a tunnel. The returned bytes are what the far end has already sent through it.
pub(super) async fn open_tunnel(
    mut stream: TcpStream,
    parent: &ParentProxy,
    host: &HostKey,
    port: u16,
) -> Result<(TcpStream, Bytes), UpstreamError> {
    let mut head = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(value) = authorization(parent) {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await.map_err(UpstreamError::connecting)?;

    let mut answer = BytesMut::with_capacity(1024);
    loop {
        if let Some(end) = find_end(&answer) {
            let head = answer.split_to(end);
            return match status(&head) {
                Some(200..=299) => Ok((stream, answer.freeze())),
                Some(status) => Err(UpstreamError::Parent(status)),
                None => Err(UpstreamError::Protocol("the parent proxy's answer to CONNECT".to_owned())),
            };
        }
        if answer.len() > LONGEST_HEAD {
            return Err(UpstreamError::HeadTooLarge);
        }
        if stream.read_buf(&mut answer).await.map_err(UpstreamError::connecting)? == 0 {
            return Err(UpstreamError::Closed);
        }
    }
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Parses `HTTP/1.x NNN …`.
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_status_of_an_answer() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407\r\n"), Some(407));
        assert_eq!(status(b"SSH-2.0"), None);
        assert_eq!(status(b"HTTP/1.1 xx"), None);
    }
}
