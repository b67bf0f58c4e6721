//! The names under which a client looks for its group: product tokens, in lower case.
//!
//! A crawler's token is in its User-Agent: `FooBot/1.0`, or in the comment of a string that otherwise looks like a
//! browser, `Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.example)`. Words that every browser sends identify no
//! robot, so a browser has no tokens and falls under `*`. Tokens that never appear in a User-Agent can be configured.

/// More than any known client has. Bounds the work of a comparison.
const MAX_TOKENS: usize = 16;

/// The client's names, as robots.txt uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agents {
    /// Each followed by a space.
    tokens: String,
}

/// Words with which browsers and their imitators name themselves and their platform, in lower case.
#[rustfmt::skip]
const BROWSER_WORDS: &[&str] = &[
    ".net", "android", "applewebkit", "chrome", "chromium", "clr", "crios", "edg", "edga", "edge", "edgios",
    "epiphany", "firefox", "fxios", "gecko", "gsa", "ipad", "iphone", "khtml", "konqueror", "linux", "macintosh",
    "mobile", "mozilla", "msie", "navigator", "netscape", "nt", "opera", "opr", "presto", "rv", "safari",
    "samsungbrowser", "seamonkey", "trident", "ubuntu", "ucbrowser", "version", "vivaldi", "windows", "wow64",
    "x11", "x86_64", "yabrowser",
];

impl Agents {
    /// The tokens of a User-Agent field.
    pub fn from_user_agent(value: &str) -> Agents {
        let mut agents = Agents::default();
        let poses_as_browser = ["mozilla", "opera"].into_iter().any(|name| begins_with(value, name));
        for (text, is_comment) in pieces(value) {
            if is_comment && !names_a_robot(text, poses_as_browser) {
                continue;
            }
            for item in text.split([';', ',']) {
                // `like Gecko`, `like Googlebot`: the name of another client.
                let words = item.split_ascii_whitespace().take_while(|word| !word.eq_ignore_ascii_case("like"));
                for token in words.filter_map(product) {
                    if !poses_as_browser || !is_browser_word(token) {
                        agents.add(token);
                    }
                }
            }
        }
        agents
    }

    /// Reads configured tokens. Text after the product token, such as a version, is dropped.
    pub fn from_tokens<'t>(tokens: impl IntoIterator<Item = &'t str>) -> Agents {
        let mut agents = Agents::default();
        tokens.into_iter().filter_map(|token| product(token.trim())).for_each(|token| agents.add(token));
        agents
    }

    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.split_terminator(' ')
    }

    /// `token` must be in lower case.
    pub(super) fn contains(&self, token: &[u8]) -> bool {
        self.tokens().any(|mine| mine.as_bytes() == token)
    }

    fn add(&mut self, token: &str) {
        let token = token.to_ascii_lowercase();
        if !self.contains(token.as_bytes()) && self.tokens().count() < MAX_TOKENS {
            self.tokens += &token;
            self.tokens.push(' ');
        }
    }
}

/// Returns the beginning of the text that can be a product token. RFC 9309 allows only letters, `_` and `-`, but names
/// with digits and dots are in use (`MJ12bot`, `archive.org_bot`).
pub(super) fn product_token(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(text.len());
    &text[..end]
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

/// Returns the product that a word names; `None` for a version, a URL or an address.
fn product(word: &str) -> Option<&str> {
    let token = &word[..product_token(word.as_bytes()).len()];
    let names_a_place = word.contains("://") || word.contains('@') || begins_with(word, "www.");
    let is_filler = token.eq_ignore_ascii_case("compatible");
    (!names_a_place && !is_filler && token.bytes().any(|byte| byte.is_ascii_alphabetic())).then_some(token)
}

/// Splits the value into comments (in parentheses) and the text between them. A parenthesis within a comment divides
/// it, which breaks no known client's name.
fn pieces(value: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut depth = 0_usize;
    value.split_inclusive(['(', ')']).map(move |piece| {
        let is_comment = depth > 0;
        match piece.as_bytes().last() {
            Some(b'(') => depth += 1,
            Some(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        (piece.trim_end_matches(['(', ')']), is_comment)
    })
}

/// Whether a comment names a robot. Comments describe the machine, unless they say `compatible` or, after a browser's
/// name, give a contact URL: `(compatible; Googlebot/2.1; +http://www.google.com/bot.html)`, `(Applebot/0.1;
/// +http://www.apple.com/go/applebot)`.
fn names_a_robot(comment: &str, poses_as_browser: bool) -> bool {
    let compatible = comment.split([';', ',']).any(|item| item.trim().eq_ignore_ascii_case("compatible"));
    compatible || (poses_as_browser && comment.contains("://"))
}

fn is_browser_word(token: &str) -> bool {
    BROWSER_WORDS.iter().any(|word| token.eq_ignore_ascii_case(word))
}

fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(user_agent: &str, expected: &[&str]) {
        let agents = Agents::from_user_agent(user_agent);
        assert_eq!(agents.tokens().collect::<Vec<_>>(), expected, "{user_agent}");
    }

    #[test]
    fn a_product_is_a_token_without_its_version() {
        check("FooBot/1.0", &["foobot"]);
        check("MJ12bot", &["mj12bot"]);
        check("python-requests/2.31.0", &["python-requests"]);
        check("Scrapy/2.11 (+https://scrapy.org)", &["scrapy"]);
        check("Apache-HttpClient/4.5.13 (Java/11.0.20)", &["apache-httpclient"]);
        check("foo bar/2 foo", &["foo", "bar"]);
        check("chrome", &["chrome"]);
    }

    #[test]
    fn a_robot_is_found_behind_a_browsers_name() {
        check("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", &["googlebot"]);
        check(
            "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
            &["yahoo", "slurp"],
        );
        check(
            "Mozilla/5.0 (compatible; archive.org_bot +http://archive.org/details/archive.org_bot)",
            &["archive.org_bot"],
        );
        check("Mozilla denybot 99.9", &["denybot"]);
        check(
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; \
             +http://www.bing.com/bingbot.htm) Chrome/116.0.0.0 Safari/537.36",
            &["bingbot"],
        );
        check(
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; GPTBot/1.2; +https://openai.com/gptbot",
            &["gptbot"],
        );
        check(
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.1.1 \
             Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)",
            &["applebot"],
        );
        check(
            "DoCoMo/2.0 N905i(c100;TB;W24H16) (compatible; Googlebot-Mobile/2.1)",
            &["docomo", "n905i", "googlebot-mobile"],
        );
    }

    #[test]
    fn a_browser_has_no_tokens() {
        for browser in [
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 \
             Safari/537.36 Edg/126.0.0.0",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
             Version/17.5 Mobile/15E148 Safari/604.1",
            "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.2; Trident/6.0)",
            "Opera/9.80 (Windows NT 6.1; WOW64) Presto/2.12.388 Version/12.18",
            "Mozilla/5.0",
        ] {
            check(browser, &[]);
        }
    }

    #[test]
    fn a_value_without_a_product_has_no_tokens() {
        for nobody in ["", "*", " ", "1.0", "()", "((", "))", "(compatible)", "+https://a.example", "a@b.example", "ü"]
        {
            check(nobody, &[]);
        }
    }

    #[test]
    fn tokens_can_be_given() {
        let agents = Agents::from_tokens(["MyBot/2.0", " Google-Extended ", "", "mybot"]);
        assert_eq!(agents.tokens().collect::<Vec<_>>(), ["mybot", "google-extended"]);
    }

    #[test]
    fn there_are_never_too_many() {
        let endless: String = (0..1_000).map(|n| format!("bot{n} ")).collect();
        assert_eq!(Agents::from_user_agent(&endless).tokens().count(), MAX_TOKENS);
    }
}
