//! The name of this deployment in Via and Proxy-Status.

use bytes::Bytes;
use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};

#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    via_10: HeaderValue,
    via_11: HeaderValue,
    via_2: HeaderValue,
    status_name: String,
}

impl Identity {
    /// `name` is a token (RFC 9110, section 5.6.2): the configuration checks it.
    pub fn new(name: &str) -> Self {
        let value = |version: &str| {
            HeaderValue::from_maybe_shared(Bytes::from(format!("{version} {name}"))).expect("a token is a valid value")
        };
        // A structured-field token begins with a letter; any other name is written as a string.
        let is_token = name.starts_with(|c: char| c.is_ascii_alphabetic());
        let status_name = if is_token { name.to_owned() } else { format!("\"{name}\"") };
        Identity { via_10: value("1.0"), via_11: value("1.1"), via_2: value("2"), status_name, name: name.to_owned() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The member name of Proxy-Status.
    pub(crate) fn status_name(&self) -> &str {
        &self.status_name
    }

    /// Adds our entry after all others. `received` is the HTTP version that the message came in.
    pub(crate) fn sign(&self, headers: &mut HeaderMap, received: Version) {
        let value = match received {
            Version::HTTP_10 => &self.via_10,
            Version::HTTP_2 => &self.via_2,
            _ => &self.via_11,
        };
        headers.append(VIA, value.clone());
    }

    /// Whether this message has passed through here before: an entry of a Via field has exactly our name.
    pub(crate) fn has_signed(&self, headers: &HeaderMap) -> bool {
        headers
            .get_all(VIA)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|entry| received_by(entry).is_some_and(|by| by.eq_ignore_ascii_case(self.name.as_bytes())))
    }
}

/// `1.1 name (comment)`: the second word.
fn received_by(entry: &[u8]) -> Option<&[u8]> {
    entry.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(via: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(VIA, via.parse().unwrap());
        Identity::new("curtsy-1").has_signed(&headers)
    }

    #[test]
    fn knows_its_own_name_and_no_other() {
        assert!(signed("1.1 curtsy-1"));
        assert!(signed("1.0 fred, 1.1 CURTSY-1 (x), 1.1 p"));
        assert!(!signed("1.1 curtsy-12"));
        assert!(!signed("1.1 my-curtsy-1"));
        assert!(!signed("1.1 p (curtsy-1)"));
    }

    #[test]
    fn signs_behind_the_others() {
        let mut headers = HeaderMap::new();
        headers.insert(VIA, "1.1 first".parse().unwrap());
        Identity::new("curtsy-1").sign(&mut headers, Version::HTTP_10);
        let all: Vec<_> = headers.get_all(VIA).iter().collect();
        assert_eq!(all, ["1.1 first", "1.0 curtsy-1"]);
    }
}
