//! What an HTTP/2 error means: for the client, and for sending the request again.

use std::io;

use h2::{Error, Reason};

use super::witness::WitnessRecord;
use crate::upstream::error::UpstreamError;
use crate::upstream::reply::Broken;

/// What may have happened to a request without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum StreamOutcome {
    /// The origin has not processed it (RFC 9113, section 8.7).
    Untouched,
    /// The origin has not processed it, and wants it over HTTP/1.1.
    Misplaced,
    /// The connection ended, and it is unknown whether the origin processed the request.
    Unknown,
    /// The origin has processed it in some way.
    Dealt,
}

/// Returns why the connection ended.
pub(super) fn of_connection(error: &Error, record: &WitnessRecord) -> UpstreamError {
    if let Some(cut) = record.cut.clone() {
        return cut.error();
    }
    match error.get_io() {
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => UpstreamError::Closed,
        Some(error) => UpstreamError::reading(error),
        None if error.is_remote() => UpstreamError::Reset,
        None => UpstreamError::Protocol(error.to_string()),
    }
}

/// Returns why a request has no response.
pub(super) fn of_request(error: &Error, stream: u32, record: &WitnessRecord) -> (UpstreamError, StreamOutcome) {
    let is_beyond = record.last_stream.is_some_and(|last| stream > last);
    if record.was_kept(stream) || is_beyond {
        return (UpstreamError::Closed, StreamOutcome::Untouched);
    }
    match error.reason() {
        Some(Reason::REFUSED_STREAM) if error.is_remote() => (UpstreamError::Reset, StreamOutcome::Untouched),
        Some(Reason::HTTP_1_1_REQUIRED) if error.is_remote() => (UpstreamError::Reset, StreamOutcome::Misplaced),
        _ if error.is_reset() && error.is_remote() => (UpstreamError::Reset, StreamOutcome::Dealt),
        // The library gives no more details.
        _ if error.is_reset() => (
            UpstreamError::Protocol("its head is malformed, or longer than limits.head_size".to_owned()),
            StreamOutcome::Dealt,
        ),
        _ => match of_connection(error, record) {
            ended if ended.is_unanswered() => (ended, StreamOutcome::Unknown),
            other => (other, StreamOutcome::Dealt),
        },
    }
}

/// Returns why a body was cut off.
pub(super) fn of_body(error: &Error) -> Broken {
    match error.get_io() {
        Some(error) if error.kind() == io::ErrorKind::TimedOut => Broken::TimedOut,
        Some(error) if error.kind() == io::ErrorKind::ConnectionReset => Broken::Reset,
        Some(_) => Broken::Truncated,
        None if error.is_library() => Broken::Malformed,
        None => Broken::Reset,
    }
}
