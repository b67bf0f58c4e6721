//! TLS records: where one begins, its kind and its length. Nothing inside them is read here.
//!
//! Follows RFC 8446, section 5.1, and RFC 5246, section 6.2, as far as an observer can: the five bytes before each
//! record are in the clear in every version. Must not keep anything but the pieces of one such header.

/// The length of the header before each record: its kind, a version that means nothing any more, and its length.
pub(crate) const HEADER: usize = 5;

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION: u8 = 23;
/// From "change cipher spec" to "heartbeat".
const KINDS: std::ops::RangeInclusive<u8> = 20..=24;

/// The longest piece of a message that fits into one record.
pub(crate) const LONGEST_PIECE: usize = 1 << 14;
/// The longest record: TLS 1.2 lets encryption add the most.
const LONGEST: usize = LONGEST_PIECE + 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsRecord {
    pub(crate) kind: u8,
    pub(crate) length: usize,
}

/// The bytes are not TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotTls;

impl TlsRecord {
    pub(crate) fn read([kind, major, _, high, low]: [u8; HEADER]) -> Result<TlsRecord, NotTls> {
        let length = usize::from(u16::from_be_bytes([high, low]));
        // No record may be empty, whether it is encrypted or not.
        let sound = may_begin(kind) && major == 3 && (1..=LONGEST).contains(&length);
        if sound { Ok(TlsRecord { kind, length }) } else { Err(NotTls) }
    }
}

/// Whether a record can begin with this byte.
pub(crate) fn may_begin(byte: u8) -> bool {
    KINDS.contains(&byte)
}

/// One direction of a connection, record after record.
#[derive(Debug, Default)]
pub(crate) struct Records {
    header: [u8; HEADER],
    /// How many bytes of a header have come.
    have: usize,
    /// How many bytes of the current record are yet to come.
    left: usize,
}

impl Records {
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Whether the next byte belongs to a header that has begun.
    pub(crate) fn is_in_header(&self) -> bool {
        self.have > 0
    }

    /// Notes that this much of the current record has passed.
    pub(crate) fn pass(&mut self, count: usize) {
        self.left -= count;
    }

    pub(crate) fn begin(&mut self, record: TlsRecord) {
        self.left = record.length;
    }

    /// Takes the bytes of the next header off `bytes`; `None` while the header is not complete.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Option<Result<TlsRecord, NotTls>> {
        let taken = (HEADER - self.have).min(bytes.len());
        let (piece, rest) = bytes.split_at(taken);
        self.header[self.have..self.have + taken].copy_from_slice(piece);
        self.have += taken;
        *bytes = rest;
        (self.have == HEADER).then(|| {
            self.have = 0;
            let record = TlsRecord::read(self.header);
            if let Ok(record) = record {
                self.begin(record);
            }
            record
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_record_is_one() {
        assert_eq!(TlsRecord::read([22, 3, 1, 2, 0]), Ok(TlsRecord { kind: 22, length: 512 }));
        assert_eq!(TlsRecord::read([23, 3, 3, 0x48, 0]), Ok(TlsRecord { kind: 23, length: LONGEST }));
        for header in
            [*b"GET /", [23, 3, 3, 0x48, 1], [23, 3, 3, 0, 0], [19, 3, 3, 0, 9], [25, 3, 3, 0, 9], [22, 2, 0, 0, 9]]
        {
            assert_eq!(TlsRecord::read(header), Err(NotTls), "{header:?}");
        }
    }

    #[test]
    fn a_header_may_come_in_pieces() {
        let mut records = Records::default();
        let mut bytes = &[22, 3][..];
        assert_eq!(records.next(&mut bytes), None);
        bytes = &[1, 0, 2, 7, 7];
        assert_eq!(records.next(&mut bytes), Some(Ok(TlsRecord { kind: 22, length: 2 })));
        assert_eq!((records.left(), bytes), (2, &[7, 7][..]));
        records.pass(2);
        assert_eq!(records.left(), 0);
    }
}
