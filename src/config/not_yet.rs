//! Keys whose part of curtsy is not built yet.
//!
//! They are in the file already, so that it does not change its shape later, but nobody may believe that they work: a
//! value other than the default is refused. Whoever builds a part deletes its line here.

/// A key, or a whole section when it ends in a dot; `host.` and a key for one of a `[[host]]` rule. A single value of a working key that is not built yet is refused
/// by the reader of that value, in `texts.rs`.
pub(super) const NOT_YET: &[&str] = &["fleet."];

pub(super) fn lists(not_yet: &[&str], path: &str) -> bool {
    not_yet.iter().any(|entry| if entry.ends_with('.') { path.starts_with(entry) } else { path == *entry })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_keys_that_exist() {
        use crate::config::keys::{KEYS, RULE_KEYS};
        for entry in NOT_YET {
            let known = KEYS.iter().any(|row| lists(&[entry], row.path));
            let of_rule = entry.strip_prefix("host.").is_some_and(|name| RULE_KEYS.iter().any(|row| row.path == name));
            assert!(known || of_rule, "{entry}");
        }
    }
}
