//! Any text as a configuration file: no panic, and a rejected file has problems that can be shown.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(problems) = curtsy::config::parse(text, Path::new("fuzz.toml")) {
        assert!(!problems.to_string().is_empty(), "refused without a word");
    }
});
