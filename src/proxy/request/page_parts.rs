//! Which requests load parts of a page: the labels that browsers send (Fetch Metadata, `Sec-Fetch-Dest`).
//!
//! A client can write any label. So a label counts only for a client that opened a page by a browser's labels not long
//! ago, and whatever it says, the lane bounds how many parts ride on one turn. Many programs copy the header fields of
//! one request from a browser; nearly all of them send no others, and are paced request by request.

use std::collections::HashMap;
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::politeness::visit::{ClientId, PagePart};

/// Clients that opened a page lately.
#[derive(Debug, Default)]
pub(crate) struct Browsers(Mutex<HashMap<ClientId, Instant>>);

/// For how long after its last page a client counts as a browser: a page that stays open loads parts as it is scrolled.
const BROWSES: Duration = Duration::from_secs(600);

/// The most browsers remembered: 40 kB. If there are more, the parts of some wait for turns.
const MOST_BROWSERS: usize = 1024;

/// What a label says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchLabel {
    /// A document that a browser opens, in a window or a frame. It takes a turn.
    Document,
    Part(PagePart),
}

impl Browsers {
    /// Returns whether this request of this client loads a part of a page.
    pub(crate) fn part(&self, client: ClientId, headers: &HeaderMap) -> PagePart {
        let Some(label) = label(headers) else { return PagePart::No };
        let (now, mut browsers) = (clock::now(), self.0.lock());
        match label {
            FetchLabel::Document => {
                if browsers.len() >= MOST_BROWSERS {
                    browsers.retain(|_, opened| now.duration_since(*opened) < BROWSES);
                }
                if browsers.len() < MOST_BROWSERS || browsers.contains_key(&client) {
                    browsers.insert(client, now);
                }
                PagePart::No
            }
            FetchLabel::Part(part) => {
                let browses = browsers.get(&client).is_some_and(|opened| now.duration_since(*opened) < BROWSES);
                if browses { part } else { PagePart::No }
            }
        }
    }
}

/// Reads the label of a request. `embed` and `object` may load a page, `report` and `webidentity` belong to none: they
/// have no label here, and take turns.
fn label(headers: &HeaderMap) -> Option<FetchLabel> {
    let destination = headers.get("sec-fetch-dest")?;
    // A page that the browser loads in advance is not needed by the one that is open.
    if headers.contains_key("sec-purpose") || headers.contains_key("purpose") {
        return None;
    }
    let navigates = || headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    match destination.as_bytes() {
        b"document" | b"iframe" | b"frame" if navigates() => Some(FetchLabel::Document),
        b"empty" => Some(FetchLabel::Part(PagePart::Data)),
        b"audio" | b"audioworklet" | b"font" | b"image" | b"json" | b"manifest" | b"paintworklet" | b"script"
        | b"serviceworker" | b"sharedworker" | b"style" | b"track" | b"video" | b"worker" | b"xslt" => {
            Some(FetchLabel::Part(PagePart::Resource))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const A: ClientId = ClientId(1);
    const PAGE: &[(&str, &str)] = &[("sec-fetch-dest", "document"), ("sec-fetch-mode", "navigate")];
    const IMAGE: &[(&str, &str)] = &[("sec-fetch-dest", "image"), ("sec-fetch-mode", "no-cors")];

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_label_tells_pages_from_parts() {
        let read = |fields| label(&headers(fields));
        assert_eq!(read(PAGE), Some(FetchLabel::Document));
        assert_eq!(read(&[("sec-fetch-dest", "iframe"), ("sec-fetch-mode", "navigate")]), Some(FetchLabel::Document));
        assert_eq!(read(IMAGE), Some(FetchLabel::Part(PagePart::Resource)));
        assert_eq!(read(&[("sec-fetch-dest", "empty")]), Some(FetchLabel::Part(PagePart::Data)));
        assert_eq!(read(&[("sec-fetch-mode", "cors")]), None, "the fetch of Node");
        assert_eq!(read(&[("sec-fetch-dest", "document")]), None);
        assert_eq!(read(&[("sec-fetch-dest", "object"), ("sec-fetch-mode", "navigate")]), None);
        assert_eq!(read(&[("sec-fetch-dest", "empty"), ("sec-purpose", "prefetch")]), None);
        assert_eq!(read(&[]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_opens_pages_loads_parts() {
        let browsers = Browsers::default();
        assert_eq!(browsers.part(A, &headers(IMAGE)), PagePart::No, "a program that copies header fields");
        assert_eq!(browsers.part(A, &headers(PAGE)), PagePart::No);
        assert_eq!(browsers.part(A, &headers(IMAGE)), PagePart::Resource);
        assert_eq!(browsers.part(ClientId(2), &headers(IMAGE)), PagePart::No, "another client");
        tokio::time::advance(BROWSES).await;
        assert_eq!(browsers.part(A, &headers(IMAGE)), PagePart::No, "long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn browsers_are_bounded() {
        let browsers = Browsers::default();
        for client in 0..5_000 {
            browsers.part(ClientId(client), &headers(PAGE));
        }
        assert_eq!(browsers.0.lock().len(), MOST_BROWSERS);
        tokio::time::advance(BROWSES).await;
        browsers.part(ClientId(9_999), &headers(PAGE));
        assert_eq!(browsers.0.lock().len(), 1);
    }
}
