//! Decides which requests a stored answer is for: the selecting fields (RFC 9111, section 4.1).
//!
//! Selecting fields are those that Vary names, Cookie unless the answer is explicitly shareable, and every request
//! field that is not known to be harmless. The last rule goes beyond the RFC: a field that no one has listed may be a
//! key of an API, or a trick to poison the cache (`X-Forwarded-Host`).

/// The selecting fields of a stored answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selecting {
    /// The names in Vary: lower-case, sorted, separated by commas.
    pub vary: Box<str>,
    /// The selecting fields of the request that was answered, in their normal form: lines of `name: value`, sorted.
    pub values: Box<[u8]>,
}
