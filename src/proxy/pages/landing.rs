//! The page for people who open the proxy's port like a web site: how to use it. Never proxied, whatever Host says.

use bytes::Bytes;
use http::header;
use http::{HeaderMap, Method, Response, StatusCode, Uri};

use super::help;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::response::{Form, preferred};

const TEXT: &str = "This is curtsy, a forward proxy that is polite to every host.\n\n\
    Use it as a proxy, not as a web site:\n\n\
    \x20 export http_proxy=http://THIS-ADDRESS https_proxy=http://THIS-ADDRESS\n\
    \x20 curl http://example.com/\n";

const HTML: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width\">\n<title>curtsy</title>\n\
    <style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;\
    color-scheme:light dark}</style>\n\
    <h1>curtsy</h1>\n<p>This is a forward proxy that is polite to every host.\n\
    Use it as a proxy, not as a web site:</p>\n\
    <pre>export http_proxy=http://THIS-ADDRESS https_proxy=http://THIS-ADDRESS\ncurl http://example.com/</pre>\n";

pub(crate) fn page(method: &Method, uri: &Uri, headers: &HeaderMap) -> Response<Body> {
    let (media_type, body) = match preferred(headers.get(header::ACCEPT).map(|accept| accept.as_bytes())) {
        Form::Html => ("text/html; charset=utf-8", HTML),
        Form::Text | Form::Problem => ("text/plain; charset=utf-8", TEXT),
    };
    let mut response = Response::new(Body::from(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = match (uri.path(), method) {
        ("/", &Method::GET | &Method::HEAD) => StatusCode::OK,
        ("*", &Method::OPTIONS) => {
            *response.body_mut() = Body::from(Bytes::new());
            StatusCode::OK
        }
        ("/", _) => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::NOT_FOUND,
    };
    help::mark(response.headers_mut(), media_type);
    response
}
