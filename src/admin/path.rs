//! Names in paths of the API.

/// Encodes a name as one segment of a path, whatever is in it.
pub fn segment(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(byte.into()),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_part_of_the_path() {
        assert_eq!(segment("a.test"), "a.test");
        assert_eq!(segment("../é ?[::1]"), "..%2F%C3%A9%20%3F%5B%3A%3A1%5D");
    }
}
