//! The pages under `http://curtsy.invalid/`: they say that a client goes through curtsy, and how to trust its CA.
//!
//! The name is never looked up, and can never be a real one (RFC 6761, section 6.4), so an answer can only come from
//! curtsy.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::politeness::HostKey;
use crate::proxy::Settings;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::response::{Form, escaped, preferred};
use crate::tls;

const NAME: &str = "curtsy.invalid";

pub(crate) fn is_meant(host: &HostKey) -> bool {
    host.as_str() == NAME
}

/// The certificates that clients have to trust where tunnels are intercepted, in PEM.
pub(crate) fn ca_pem(settings: &Settings) -> Option<String> {
    settings.leaves.as_ref().map(|leaves| leaves.trusted().iter().map(tls::pem).collect())
}

pub(crate) fn page(settings: &Settings, parts: &Parts) -> Response<Body> {
    let (status, media_type, body) = match (parts.uri.path(), &parts.method) {
        (_, method) if *method != Method::GET && *method != Method::HEAD => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, "Only GET and HEAD are allowed here.\n".to_owned())
        }
        ("/", _) => {
            let (media_type, body) = front(settings, parts);
            (StatusCode::OK, media_type, body)
        }
        ("/ca.pem", _) => match ca_pem(settings) {
            Some(pem) => (StatusCode::OK, "application/x-pem-file", pem),
            None => (StatusCode::NOT_FOUND, TEXT, NO_CA.to_owned()),
        },
        _ => (StatusCode::NOT_FOUND, TEXT, "Only / and /ca.pem exist here.\n".to_owned()),
    };
    let mut response = Response::new(Body::from(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    mark(headers, media_type);
    if parts.uri.path() == "/ca.pem" && status == StatusCode::OK {
        let file = HeaderValue::from_static("attachment; filename=\"curtsy-ca.pem\"");
        headers.insert(header::CONTENT_DISPOSITION, file);
    }
    response
}

/// Sets the fields that all of curtsy's own pages have.
pub(crate) fn mark(headers: &mut HeaderMap, media_type: &'static str) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const NO_CA: &str = "curtsy does not intercept HTTPS here, so there is no CA to trust.\n";

fn front(settings: &Settings, parts: &Parts) -> (&'static str, String) {
    let ca = match &settings.leaves {
        None => NO_CA.to_owned(),
        Some(leaves) => {
            let shown = leaves.trusted().iter().filter_map(tls::describe);
            let certificates: String =
                shown.map(|ca| format!("  {}\n  SHA-256 {}\n", ca.name, ca.fingerprint)).collect();
            format!("curtsy reads HTTPS here with a local CA. Programs must trust it:\n\n{certificates}\n{TRUST}")
        }
    };
    let text = format!("Your requests go through curtsy, a proxy that is polite to every host.\n\n{ca}");
    match preferred(parts.headers.get(header::ACCEPT).map(HeaderValue::as_bytes)) {
        Form::Text | Form::Problem => (TEXT, text),
        Form::Html => (HTML, html(&text)),
    }
}

const TRUST: &str = "\
Get it from http://curtsy.invalid/ca.pem, through the proxy. Some programs want it in one
file with all other roots: curtsy ca export --format bundle --out bundle.pem

  curl            --cacert ca.pem, or CURL_CA_BUNDLE=bundle.pem
  wget            --ca-certificate=bundle.pem
  git             GIT_SSL_CAINFO=bundle.pem
  requests, pip   REQUESTS_CA_BUNDLE=bundle.pem
  other Python    SSL_CERT_FILE=bundle.pem
  Node, Bun       NODE_EXTRA_CA_CERTS=ca.pem
  Deno            DENO_CERT=ca.pem
  Go, Ruby, Rust  SSL_CERT_FILE=bundle.pem
  Java            keytool -importcert -file ca.pem, or a trust store of its own
  browsers        import ca.pem as an authority for web sites
";

fn html(text: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>curtsy</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:3rem auto;padding:0 1rem;\
         color-scheme:light dark}}pre{{overflow-x:auto}}</style>\n\
         <h1>curtsy</h1>\n<pre>{}</pre>\n<p><a href=\"/ca.pem\">ca.pem</a></p>\n",
        escaped(text)
    )
}
