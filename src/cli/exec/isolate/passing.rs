//! Passes one listener from process to process (unix(7), `SCM_RIGHTS`), or the reason why there is none.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// A received descriptor is closed when this process becomes another one. Only Linux can do that in one step; on other
/// systems no descriptor is ever sent.
#[cfg(target_os = "linux")]
const RECEIVING: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVING: RecvFlags = RecvFlags::empty();

/// Longer than any reason.
const MOST: usize = 4096;

pub(super) fn send(stream: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    let listeners = [listener.as_fd()];
    if !buffer.push(SendAncillaryMessage::ScmRights(&listeners)) {
        return Err(io::Error::other("there is no room for a listener"));
    }
    // At least one byte of data has to be sent with the descriptor.
    sendmsg(stream, &[IoSlice::new(b"!")], &mut buffer, SendFlags::empty())?;
    Ok(())
}

pub(super) fn receive(stream: &UnixStream) -> io::Result<Result<TcpListener, String>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; MOST];
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut buffer, RECEIVING)?;
    let mut listeners = buffer.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
        _ => None,
    });
    match listeners.next() {
        Some(listener) => {
            let listener = TcpListener::from(listener);
            listener.set_nonblocking(true)?;
            Ok(Ok(listener))
        }
        None if got.bytes == 0 => Ok(Err("--isolate: the process inside ended without a message".to_owned())),
        None => rest_of_reason(stream, text[..got.bytes].to_vec()).map(Err),
    }
}

/// Reads the rest of the reason. It may arrive in pieces, and ends when the process that sends it ends.
fn rest_of_reason(stream: &UnixStream, mut reason: Vec<u8>) -> io::Result<String> {
    stream.take(MOST as u64).read_to_end(&mut reason)?;
    Ok(String::from_utf8_lossy(&reason).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_listener_or_the_reason_arrives() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        send(&there, &listener).unwrap();
        let got = receive(&here).unwrap().unwrap();
        assert_eq!(got.local_addr().unwrap(), listener.local_addr().unwrap());
        let telling = std::thread::spawn(move || {
            for piece in ["not ", "permitted"] {
                there.write_all(piece.as_bytes()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        assert_eq!(receive(&here).unwrap().unwrap_err(), "not permitted");
        telling.join().unwrap();
        assert!(receive(&here).unwrap().unwrap_err().contains("without a message"));
    }
}
