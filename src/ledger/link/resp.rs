//! Redis' protocol (RESP 2): writes commands, and reads answers as they come.
//!
//! Claims are short and frequent: numbers are written and read here without a copy of them. Everything else that an
//! answer can be, and every error, is left to the client library.

use redis::Value;

use super::Arg;
use super::error::LedgerError;

/// An answer nests no deeper than this: a list of lists.
const DEEPEST: usize = 8;

/// Appends a command that runs a script.
pub(super) fn write_script(into: &mut Vec<u8>, (command, script): (&str, &str), keys: &[&str], args: &[Arg<'_>]) {
    head(into, b'*', 3 + keys.len() + args.len());
    text(into, command);
    text(into, script);
    number(into, keys.len() as i64);
    keys.iter().for_each(|key| text(into, key));
    for arg in args {
        match arg {
            Arg::Number(value) => number(into, *value),
            Arg::Text(value) => text(into, value),
        }
    }
}

fn text(into: &mut Vec<u8>, text: &str) {
    head(into, b'$', text.len());
    into.extend_from_slice(text.as_bytes());
    into.extend_from_slice(b"\r\n");
}

fn number(into: &mut Vec<u8>, number: i64) {
    let mut digits = Digits::default();
    let digits = digits.of(number);
    head(into, b'$', digits.len());
    into.extend_from_slice(digits);
    into.extend_from_slice(b"\r\n");
}

fn head(into: &mut Vec<u8>, kind: u8, size: usize) {
    into.push(kind);
    into.extend_from_slice(Digits::default().of(size as i64));
    into.extend_from_slice(b"\r\n");
}

/// Room for the digits of a number and its sign.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, number: i64) -> &[u8] {
        let (mut left, mut from) = (number.unsigned_abs(), self.0.len());
        loop {
            from -= 1;
            self.0[from] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        if number < 0 {
            from -= 1;
            self.0[from] = b'-';
        }
        &self.0[from..]
    }
}

/// Reads the answer at the beginning of these bytes. Returns it and its length; `None` if some of it is missing.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Value, usize)>, LedgerError> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.value(0)?.map(|value| (value, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Option<Value>, LedgerError> {
        let begin = self.at;
        let Some((kind, line)) = self.line() else { return Ok(None) };
        let line = &self.bytes[line.0..line.1];
        match kind {
            b':' => Ok(Some(Value::Int(integer(line)?))),
            b'$' => self.bulk(integer(line)?),
            b'*' if depth < DEEPEST => self.list(integer(line)?, depth),
            b'+' | b'-' => redis::parse_redis_value(&self.bytes[begin..self.at]).map(Some).map_err(|_| unreadable()),
            _ => Err(unreadable()),
        }
    }

    /// Takes a line. Returns its first byte, and where the rest of it is.
    fn line(&mut self) -> Option<(u8, (usize, usize))> {
        let left = self.bytes.get(self.at..)?;
        let end = left.windows(2).position(|pair| pair == b"\r\n")?;
        let begin = self.at;
        self.at += end + 2;
        Some((*left.first()?, ((begin + 1).min(begin + end), begin + end)))
    }

    fn bulk(&mut self, length: i64) -> Result<Option<Value>, LedgerError> {
        let Ok(length) = usize::try_from(length) else { return Ok(Some(Value::Nil)) };
        let Some(text) = self.bytes.get(self.at..self.at.saturating_add(length)) else { return Ok(None) };
        let end = self.at + length;
        match self.bytes.get(end..end + 2) {
            None => Ok(None),
            Some(b"\r\n") => {
                self.at = end + 2;
                Ok(Some(Value::BulkString(text.to_vec())))
            }
            Some(_) => Err(unreadable()),
        }
    }

    fn list(&mut self, length: i64, depth: usize) -> Result<Option<Value>, LedgerError> {
        let Ok(length) = usize::try_from(length) else { return Ok(Some(Value::Nil)) };
        let mut items = Vec::with_capacity(length.min(1_024));
        for _ in 0..length {
            let Some(item) = self.value(depth + 1)? else { return Ok(None) };
            items.push(item);
        }
        Ok(Some(Value::Array(items)))
    }
}

fn integer(digits: &[u8]) -> Result<i64, LedgerError> {
    let text = std::str::from_utf8(digits).map_err(|_| unreadable())?;
    text.parse().map_err(|_| unreadable())
}

fn unreadable() -> LedgerError {
    LedgerError::Protocol("it does not speak the protocol of Redis".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_as_the_library_writes_it() {
        let numbers = [0, 7, -1, 1_795_008_309_176_240, i64::MAX, i64::MIN + 1];
        let mut expected = redis::cmd("EVALSHA");
        expected.arg("digest").arg(2).arg("key").arg("era").arg("").arg("tëxt").arg(&numbers[..]);
        let mut args = vec![Arg::Text(""), Arg::Text("tëxt")];
        args.extend(numbers.map(Arg::Number));
        let mut written = Vec::new();
        write_script(&mut written, ("EVALSHA", "digest"), &["key", "era"], &args);
        assert_eq!(String::from_utf8(written), String::from_utf8(expected.get_packed_command()));
    }

    #[test]
    fn an_answer_is_read_as_the_library_reads_it_and_not_before_it_is_there() {
        let answers: [&[u8]; 9] = [
            b":-12\r\n",
            b"$5\r\nab\r\nc\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"+PONG\r\n",
            b"-NOSCRIPT No matching script.\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n+OK\r\n:2\r\n",
        ];
        for answer in answers {
            let expected = redis::parse_redis_value(answer).unwrap();
            let more = [answer, b":9\r\n"].concat();
            assert_eq!(read(&more), Ok(Some((expected, answer.len()))), "{answer:?}");
            for end in 0..answer.len() {
                assert_eq!(read(&answer[..end]), Ok(None), "{end} bytes of {answer:?}");
            }
        }
    }

    #[test]
    fn what_is_no_answer_of_redis_is_an_error() {
        let deep = [b"*1\r\n".repeat(DEEPEST + 1), b":1\r\n".to_vec()].concat();
        for odd in [b"HTTP/1.1 400 Bad Request\r\n".as_slice(), b":x\r\n", b"$1\r\nabcd", b"\r\n", &deep] {
            assert!(read(odd).is_err(), "{odd:?}");
        }
    }
}
