//! Brings up the loopback interface of a new network namespace, with one message to the kernel (rtnetlink(7)).

use std::io::{self, Read, Write};

use socket2::{Domain, Protocol, Socket, Type};

const AF_NETLINK: i32 = 16;
const NETLINK_ROUTE: i32 = 0;
const RTM_NEWLINK: u16 = 16;
/// A request that asks for an answer.
const REQUEST_AND_ACK: u16 = 1 | 4;
/// The index of the loopback interface. In a new namespace it is the first and only interface.
const LOOPBACK: i32 = 1;
const IFF_UP: u32 = 1;
/// `struct nlmsghdr` and `struct ifinfomsg`
const LENGTH: u32 = 16 + 16;

pub(super) fn raise() -> io::Result<()> {
    let socket = Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(Protocol::from(NETLINK_ROUTE)))?;
    (&socket).write_all(&message())?;
    let mut answer = [0; 256];
    let length = (&socket).read(&mut answer)?;
    match error_in(&answer[..length]) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the kernel's answer is too short")),
    }
}

fn message() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&LENGTH.to_ne_bytes());
    bytes.extend_from_slice(&RTM_NEWLINK.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST_AND_ACK.to_ne_bytes());
    // Sequence number and sender, which are not used here, and the family and type of interface, which are unspecified.
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(&LOOPBACK.to_ne_bytes());
    bytes.extend_from_slice(&IFF_UP.to_ne_bytes());
    // The mask of the flags to change.
    bytes.extend_from_slice(&IFF_UP.to_ne_bytes());
    bytes
}

/// Returns the number in a `struct nlmsgerr`, after the header; 0 means success.
fn error_in(answer: &[u8]) -> Option<i32> {
    answer.get(16..20)?.try_into().ok().map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_it_says() {
        assert_eq!(message().len(), LENGTH as usize);
        assert_eq!(error_in(&[0; 19]), None);
        assert_eq!(error_in(&[0; 20]), Some(0));
    }
}
