//! Any request line and Host field: no panic, and an accepted target means the same when it is read again.

#![no_main]

use curtsy::proxy::Target;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;

// Input: `METHOD target`, then one Host field per line.
fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let mut request_line = lines.next().unwrap_or_default().splitn(2, |byte| *byte == b' ');
    let Ok(method) = Method::from_bytes(request_line.next().unwrap_or_default()) else { return };
    let Ok(uri) = Uri::try_from(request_line.next().unwrap_or_default()) else { return };
    let mut headers = HeaderMap::new();
    for host in lines.filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(HOST, host);
    }

    let Ok(target) = Target::read(&method, &uri, &headers) else { return };
    assert!(headers.len() < 2, "two Host fields were accepted");
    let spelled = match &target {
        Target::Forward(origin) => format!("{origin}/"),
        Target::Tunnel { host, port } => format!("{host}:{port}"),
        Target::Own => return,
    };
    assert!(!spelled.contains('@'), "{uri} became {spelled}");
    let again: Uri = spelled.parse().expect("an accepted target is a URI");
    assert_eq!(Target::read(&method, &again, &HeaderMap::new()).as_ref(), Ok(&target), "{uri} became {spelled}");
});
