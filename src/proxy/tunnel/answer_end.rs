//! Judges whether an answer inside a TLS tunnel may have ended, by the outlines of the origin's records.
//!
//! Nothing in a record says that it is the last of an answer, but much says that it is not. What is left is a guess,
//! and the caller confirms it by waiting. A wrong guess cuts an answer short, so each doubt counts against the end.
//!
//! In TLS 1.3 an origin sends session tickets after the handshake, which look like application bytes. They come with or
//! before the first answer, and an origin's tickets all have the same length.

use super::records::{ALERT, APPLICATION, LONGEST_PIECE, TlsRecord};

/// The origin's records since the last request began.
#[derive(Debug, Default)]
pub(crate) struct AnswerEnd {
    /// How many bytes of the last record have come, its header included.
    last_record: usize,
    /// The last record was an alert, with which an origin announces that it closes.
    alert: bool,
    /// The last record was full: more of the same answer follows.
    full: bool,
    /// How many records since the handshake may be session tickets, and the length of each.
    tickets: u8,
    ticket: usize,
    /// Something other than session tickets has come, or no tickets are expected any more.
    beyond_tickets: bool,
    /// The second request has begun.
    second_request: bool,
}

/// RFC 8446, section 6. Nothing else that an origin sends is as short.
const ALERT_LENGTH: usize = 2;

/// OpenSSL sends 2 tickets of 250 bytes, rustls up to 4. Tickets with a client's certificate in them have 1 to 3 KiB.
const MOST_TICKETS: u8 = 4;
const LONGEST_TICKET: usize = 4 * 1024;

impl AnswerEnd {
    pub(crate) fn last_record(&self) -> usize {
        self.last_record
    }

    pub(crate) fn is_second_request(&self) -> bool {
        self.second_request
    }

    pub(crate) fn is_alert(&self) -> bool {
        self.alert
    }

    /// Whether the last record may be the last of an answer.
    pub(crate) fn is_possible(&self) -> bool {
        self.beyond_tickets && !self.full
    }

    /// Notes that a request begins. If the origin has sent tickets before, what comes now is an answer.
    pub(crate) fn begin_request(&mut self, is_second: bool) {
        self.second_request |= is_second;
        self.beyond_tickets |= is_second || self.tickets > 0;
    }

    /// Notes that tickets do not look like application bytes here (TLS 1.2).
    pub(crate) fn without_tickets(&mut self) {
        self.beyond_tickets = true;
    }

    pub(crate) fn begin_record(&mut self) {
        self.last_record = 0;
    }

    /// Takes bytes of the last record.
    pub(crate) fn take(&mut self, count: usize) {
        self.last_record += count;
    }

    /// Reads the beginning of a record of any kind, with at most this many bytes inside.
    pub(crate) fn hear(&mut self, record: TlsRecord, inside: usize) {
        self.alert = record.kind == ALERT || (record.kind == APPLICATION && inside == ALERT_LENGTH);
        self.full = record.kind == APPLICATION && record.length >= LONGEST_PIECE;
    }

    /// Reads the beginning of a record that belongs to an answer, or is a ticket.
    pub(crate) fn hear_answer(&mut self, record: TlsRecord) {
        if self.beyond_tickets {
            return;
        }
        if self.tickets == 0 {
            self.ticket = record.length;
        }
        self.tickets += 1;
        self.beyond_tickets =
            record.length != self.ticket || record.length > LONGEST_TICKET || self.tickets > MOST_TICKETS;
    }
}
