//! Other ways in which servers read a path, so that no spelling of a denied path is allowed.
//!
//! `/public/../private/x` *is* `/private/x` (RFC 3986, section 6.2.2.3), and nginx, Apache, Node and Python serve it
//! so. Beyond the RFC, servers differ: nginx merges slashes and reads `%2F` as one, IIS reads a backslash as one,
//! Tomcat cuts `;parameters` off segments. curtsy does not know which server it is, so a path is judged in every
//! reading, and denied if any reading is denied. The request is sent unchanged.
//!
//! Works on the octets of `canonical`, in which `%2e` is already a dot and `%5c` a backslash, and only `%2F` is
//! escaped.

/// Returns the other readings of the path, each once and without the original. Nearly every path has none, and costs
/// one scan.
pub(super) fn of(target: &[u8]) -> Vec<Vec<u8>> {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at(end);
    let mut readings: Vec<Vec<u8>> = Vec::new();
    if is_plain(path) {
        return readings;
    }
    for reader in 0..PathReader::COUNT {
        let mut reading = PathReader::number(reader).read(path);
        reading.extend_from_slice(query);
        if reading != target && !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    readings
}

/// Whether every server certainly reads the path in the same way. Any escape may be a slash: then the readings decide.
fn is_plain(path: &[u8]) -> bool {
    let mut after_slash = false;
    path.iter().all(|octet| match octet {
        b'\\' | b';' | b'%' => false,
        b'/' | b'.' if after_slash => false,
        octet => {
            after_slash = *octet == b'/';
            true
        }
    })
}

const ESCAPED_SLASH: &[u8] = b"%2F";

/// Counts the slashes that are written as an escape.
pub(super) fn escaped_slashes(octets: &[u8]) -> usize {
    memchr::memmem::find_iter(octets, ESCAPED_SLASH).count()
}

/// What a server does with a path in addition to removing dot segments.
#[derive(Clone, Copy, Debug)]
struct PathReader {
    reads_escaped_slashes: bool,
    reads_backslashes: bool,
    merges_slashes: bool,
    cuts_parameters: bool,
}

impl PathReader {
    const COUNT: u8 = 16;

    fn number(bits: u8) -> Self {
        let bit = |n: u8| bits & (1 << n) != 0;
        PathReader {
            reads_escaped_slashes: bit(0),
            reads_backslashes: bit(1),
            merges_slashes: bit(2),
            cuts_parameters: bit(3),
        }
    }

    /// Removes dot segments as RFC 3986, section 5.2.4, does, from the path as this server sees it.
    fn read(self, path: &[u8]) -> Vec<u8> {
        let path = self.with_slashes(path);
        let mut segments: Vec<&[u8]> = Vec::new();
        let mut parts = path.split(|octet| *octet == b'/').skip(1).peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            let part = if self.cuts_parameters { before_parameters(part) } else { part };
            match part {
                b"." | b".." => {
                    if part == b".." {
                        segments.pop();
                    }
                    // `/a/..` is `/`, not empty.
                    if is_last {
                        segments.push(b"");
                    }
                }
                b"" if self.merges_slashes && !is_last => {}
                part => segments.push(part),
            }
        }
        let mut read = Vec::with_capacity(path.len());
        for segment in segments {
            read.push(b'/');
            read.extend_from_slice(segment);
        }
        if read.is_empty() { b"/".to_vec() } else { read }
    }

    fn with_slashes(self, path: &[u8]) -> Vec<u8> {
        let mut octets = Vec::with_capacity(path.len());
        let mut rest = path;
        while let [octet, tail @ ..] = rest {
            rest = tail;
            if self.reads_escaped_slashes && *octet == b'%' && tail.starts_with(b"2F") {
                octets.push(b'/');
                rest = &tail[2..];
            } else if self.reads_backslashes && *octet == b'\\' {
                octets.push(b'/');
            } else {
                octets.push(*octet);
            }
        }
        octets
    }
}

fn before_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|octet| *octet == b';').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::robots::canonical;

    fn readings(path: &str) -> Vec<String> {
        let text = |octets: Vec<u8>| String::from_utf8(octets).expect("ASCII");
        let mut readings: Vec<String> = of(&canonical::target(path)).into_iter().map(text).collect();
        readings.sort();
        readings
    }

    #[test]
    fn a_usual_path_has_one_reading() {
        for path in ["/", "/a/b.html?c=//../%2F;x\\", "/a%20b", "/a./b..c", "/..a", "/.well-known/x"] {
            assert_eq!(readings(path), [""; 0], "{path}");
        }
    }

    #[test]
    fn dot_segments_are_removed() {
        assert_eq!(readings("/a/../b"), ["/b"]);
        assert_eq!(readings("/a/%2e%2E/b"), ["/b"]);
        assert_eq!(readings("/./b?/../x"), ["/b?/../x"]);
        assert_eq!(readings("/a/b/.."), ["/a/"]);
        assert_eq!(readings("/../.."), ["/"]);
        assert_eq!(readings("/a/."), ["/a/"]);
    }

    #[test]
    fn servers_differ_about_slashes() {
        assert_eq!(readings("//a//b"), ["/a/b"]);
        assert_eq!(readings("/a//../b"), ["/a/b", "/b"]);
        assert_eq!(readings("/a%2fb"), ["/a/b"]);
        assert_eq!(readings("/a%2f../b"), ["/b"]);
        assert_eq!(readings("/a\\b%5Cc"), ["/a/b/c"]);
        assert_eq!(readings("/a%252fb"), [""; 0], "no server unescapes twice");
        assert_eq!(readings("/a/"), [""; 0]);
        assert_eq!(readings("/a//"), ["/a/"]);
    }

    #[test]
    fn servers_differ_about_parameters() {
        assert_eq!(readings("/a;b=c/d"), ["/a/d"]);
        assert_eq!(readings("/a/..;/b"), ["/b"]);
        assert_eq!(readings("/a;x"), ["/a"]);
    }
}
