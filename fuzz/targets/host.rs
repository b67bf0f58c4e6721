//! Any text as a host: no panic, and one spelling for each host.

#![no_main]

use curtsy::politeness::HostKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(host) = HostKey::parse(text) else { return };
    let spelled = host.as_str();
    assert!(!spelled.is_empty() && !spelled.ends_with('.'), "{text:?} became {spelled:?}");
    assert!(
        !spelled.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii_graphic()),
        "{text:?} became {spelled:?}"
    );

    let written = if spelled.contains(':') { format!("[{spelled}]") } else { spelled.to_owned() };
    let again = HostKey::parse(&written).expect("the one spelling of a host is a host");
    assert_eq!(again, host, "{text:?} has two spellings");
});
