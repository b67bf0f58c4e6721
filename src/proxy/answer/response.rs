//! Turns every failure into a response: a short reason, a stable code and what to do about it, in the form that the
//! client accepts.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use hyper::ext::ReasonPhrase;

use super::body::Body;
use super::texts::RefusalText;
use crate::config::Responses;
use crate::proxy::request::headers::Identity;
use crate::telemetry::wrapped;

/// The parts of a request that an answer needs.
#[derive(Debug)]
pub(crate) struct AnsweredRequest<'a> {
    pub(crate) url: &'a str,
    pub(crate) host: Option<&'a str>,
    pub(crate) form: Form,
    pub(crate) is_connect: bool,
    pub(crate) id: u64,
}

/// Returns the complete response.
pub(crate) fn respond(
    words: &RefusalText,
    asked: &AnsweredRequest<'_>,
    identity: &Identity,
    settings: &Responses,
) -> Response<Body> {
    let (media_type, body) = match asked.form {
        Form::Html => ("text/html; charset=utf-8", html(words, asked, &settings.contact)),
        Form::Problem => ("application/problem+json", problem(words, asked, identity)),
        Form::Text => ("text/plain; charset=utf-8", text(words, asked, &settings.contact)),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = words.status;
    if settings.reason_phrases {
        let phrase = format!("{} (curtsy)", words.title);
        response.extensions_mut().insert(ReasonPhrase::try_from(phrase).expect("titles are plain ASCII"));
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CURTSY_ERROR, HeaderValue::from_static(words.code));
    if let Ok(status) = HeaderValue::try_from(format!("{}; error={}", identity.status_name(), words.proxy_error)) {
        headers.insert(PROXY_STATUS, status);
    }
    if let Some(seconds) = words.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if words.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        headers.insert(header::PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"curtsy\""));
    }
    // A client may have sent the first bytes of a tunnel already, or a body that we read differently; neither must ever
    // be read as a request.
    if asked.is_connect || words.close {
        close(headers);
    }
    response
}

pub(crate) fn close(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

const CURTSY_ERROR: HeaderName = HeaderName::from_static("curtsy-error");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Html,
    Problem,
}

/// Returns the form that `Accept` names explicitly with the highest weight. Programs that accept anything get text.
pub(crate) fn preferred(accept: Option<&[u8]>) -> Form {
    let accept = accept.and_then(|value| str::from_utf8(value).ok()).filter(|accept| accept.is_ascii());
    let accept = accept.unwrap_or_default();
    if accept == "*/*" {
        return Form::Text;
    }
    let mut best = (0.0, Form::Text);
    for (weight, form) in accept.split(',').filter_map(weighed) {
        if weight > best.0 {
            best = (weight, form);
        }
    }
    best.1
}

/// `text/html;q=0.8`
fn weighed(range: &str) -> Option<(f32, Form)> {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next()?;
    let (_, form) = FORMS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known))?;
    let weight = parts.find_map(|parameter| parameter.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
    Some((weight, *form))
}

const FORMS: [(&str, Form); 5] = [
    ("text/html", Form::Html),
    ("application/xhtml+xml", Form::Html),
    ("application/json", Form::Problem),
    ("application/problem+json", Form::Problem),
    ("text/plain", Form::Text),
];

/// Returns the body as text for a terminal of 80 columns. The URL and lines of TOML stay whole.
fn text(words: &RefusalText, asked: &AnsweredRequest<'_>, contact: &str) -> Bytes {
    let detail = wrapped(&words.detail, 2, COLUMNS);
    let mut text = format!("curtsy: {}\n\n  {}\n  {detail}\n", lower_first(words.title), asked.url);
    let mut notes = Vec::new();
    if !words.advice.is_empty() {
        notes.push(("fix", words.advice.as_str()));
    }
    if !contact.is_empty() {
        notes.push(("contact", contact));
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for (label, note) in notes {
        text.push_str(&format!("  {label:<9}{}\n", wrapped(note, 11, COLUMNS)));
        if label == "fix" && !words.toml.is_empty() {
            // TOML may be indented, so these lines can be pasted as they are.
            let lines = words.toml.lines().map(|line| format!("           {line}\n"));
            text.push_str(&format!("\n{}", lines.collect::<String>()));
        }
    }
    text.into()
}

/// The width of a terminal.
const COLUMNS: usize = 80;

fn html(words: &RefusalText, asked: &AnsweredRequest<'_>, contact: &str) -> Bytes {
    let paragraph = |text: &str| if text.is_empty() { String::new() } else { format!("<p>{}</p>\n", escaped(text)) };
    let toml = if words.toml.is_empty() { String::new() } else { format!("<pre>{}</pre>\n", escaped(&words.toml)) };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} (curtsy)</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;\
         color-scheme:light dark}}code{{overflow-wrap:anywhere}}</style>\n\
         <h1>{title}</h1>\n<p><code>{url}</code></p>\n{detail}{advice}{contact}\
         <p><small>This message is from the proxy curtsy, not from the site. Code: {code}</small></p>\n",
        title = escaped(words.title),
        url = escaped(asked.url),
        detail = paragraph(&words.detail),
        advice = paragraph(&words.advice) + &toml,
        contact = paragraph(contact),
        code = words.code,
    )
    .into()
}

/// Returns the body as problem details (RFC 9457).
fn problem(words: &RefusalText, asked: &AnsweredRequest<'_>, identity: &Identity) -> Bytes {
    let problem = serde_json::json!({
        "type": format!("urn:curtsy:problem:{}", words.code),
        "title": words.title,
        "status": words.status.as_u16(),
        "detail": words.detail,
        "instance": format!("urn:curtsy:request:{}:{:x}", identity.name(), asked.id),
        "url": asked.url,
        "host": asked.host,
        "advice": (!words.advice.is_empty()).then_some(&words.advice),
        "toml": (!words.toml.is_empty()).then_some(&words.toml),
        "retry_after_s": words.retry_after,
    });
    let mut text = format!("{problem:#}");
    text.push('\n');
    text.into()
}

fn lower_first(title: &str) -> String {
    let mut chars = title.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;
    use crate::politeness::HostKey;
    use crate::proxy::answer::failure::{BadRequest, Failure, Forbidden, Refusal};
    use crate::upstream::Denied;

    #[test]
    fn the_form_follows_accept() {
        let form = |accept: &str| preferred(Some(accept.as_bytes()));
        assert_eq!(form("*/*"), Form::Text);
        assert_eq!(form("text/html,application/xhtml+xml,*/*;q=0.8"), Form::Html);
        assert_eq!(form("application/json"), Form::Problem);
        assert_eq!(form("text/html;q=0, application/problem+json"), Form::Problem);
        assert_eq!(form("text/plain, text/html"), Form::Text);
        assert_eq!(form("text/html;q=0.1, application/problem+json"), Form::Problem);
        assert_eq!(preferred(None), Form::Text);
    }

    /// What a body offers to paste is the same valid configuration in every form, and text fits a terminal.
    #[test]
    fn every_form_has_the_lines_to_paste_as_they_are() {
        let host = HostKey::parse("news.test").unwrap();
        let forbidden = Forbidden {
            host,
            rule: Some((2, "Disallow: /private/".to_owned())),
            group: "*".to_owned(),
            everything: true,
        };
        let port = Failure::Refused(Refusal::Destination(Denied::ConnectPort(22)));
        for failure in
            [Failure::Refused(Refusal::Robots(Box::new(forbidden))), Failure::Refused(Refusal::ClientDenied), port]
        {
            let words = failure.words();
            let asked =
                AnsweredRequest { url: "http://news.test/", host: None, form: Form::Text, is_connect: false, id: 1 };
            let text = String::from_utf8(text(&words, &asked, "ops@example.org").to_vec()).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
            let fix = text.split("\n\n").last().unwrap();
            let pasted: String = fix.lines().take(words.toml.lines().count()).map(|line| format!("{line}\n")).collect();
            let identity = Identity::new("desk");
            let problem: serde_json::Value = serde_json::from_slice(&problem(&words, &asked, &identity)).unwrap();
            let page = String::from_utf8(html(&words, &asked, "").to_vec()).unwrap();
            let page = page.split_once("<pre>").unwrap().1.split_once("</pre>").unwrap().0.replace("&quot;", "\"");
            for lines in [pasted.as_str(), problem["toml"].as_str().unwrap(), &page] {
                let trimmed: String = lines.lines().map(|line| format!("{}\n", line.trim_start())).collect();
                assert_eq!(trimmed, words.toml, "{lines}");
                if let Err(problems) = config::parse(lines, Path::new("curtsy.toml")) {
                    panic!("{lines}\n{problems}");
                }
            }
        }
    }

    #[test]
    fn nothing_a_client_sends_becomes_markup() {
        let asked = AnsweredRequest {
            url: "http://a.test/<script>'\"&",
            host: None,
            form: Form::Text,
            is_connect: false,
            id: 1,
        };
        let page = html(&Failure::Bad(BadRequest::Port).words(), &asked, "");
        assert!(!String::from_utf8_lossy(&page).contains("<script>"));
    }
}
