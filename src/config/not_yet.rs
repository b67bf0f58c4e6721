//! Keys of features that are not built yet.
//!
//! They are in the file already, so that its structure does not change later. A value other than the default is
//! refused, so that no operator believes that the feature works. Building a feature includes deleting its line here.

/// Each entry is a key, a whole section if it ends in a dot, or `host.` and a key of a `[[host]]` rule. If only a
/// single value of a working key is not built yet, the reader of that value in `texts.rs` refuses it.
pub(super) const NOT_YET: &[&str] = &[];

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
