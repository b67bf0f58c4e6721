//! What curtsy knows about common client programs: how they name themselves, how long they wait before they give up,
//! which setting makes them wait longer, and which makes them trust one more CA.
//!
//! Only a table and its lookups. Times are the programs' defaults, measured while a proxy held the request, each in the
//! release that was current at the time. They are shown to users and influence no decision, except for
//! [`reuses_closed`].

use std::time::Duration;

/// One kind of program, or the library that it is made with.
#[derive(Debug)]
pub struct Program {
    /// The name that users know it by.
    pub name: &'static str,
    /// The products in its User-Agent (RFC 9110, section 10.1.5). One match is enough.
    products: &'static [&'static str],
    /// After how many seconds it gives up by default.
    pub gives_up: GivesUp,
    /// The setting that changes this time, with [`SECONDS`] as the placeholder.
    longer: &'static str,
    pub trust: TrustWay,
}

/// How long a program waits, in seconds, by what the proxy makes it wait for; `None` = it waits forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivesUp {
    /// The answer to a request in plain HTTP.
    pub plain: Option<u32>,
    /// The answer to CONNECT.
    pub connect: Option<u32>,
    /// The answer to a request inside a tunnel.
    pub inside: Option<u32>,
}

/// What makes a program trust one more CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustWay {
    /// An environment variable with the path of a file.
    Variable(&'static str, TrustFile),
    /// Anything else, as an instruction for the user.
    Other(&'static str),
}

/// Which file the setting needs. A setting that replaces all other roots needs the bundle, which also contains those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustFile {
    Ca,
    Bundle,
}

impl Program {
    /// Returns the setting that makes the program wait longer than curtsy may hold a request.
    pub fn longer_than(&self, max_wait: Duration) -> String {
        self.longer.replace(SECONDS, &(max_wait + SPARE).as_secs().to_string())
    }
}

impl GivesUp {
    const NEVER: GivesUp = GivesUp::after(None);

    const fn at(seconds: u32) -> Self {
        GivesUp::after(Some(seconds))
    }

    const fn after(seconds: Option<u32>) -> Self {
        GivesUp { plain: seconds, connect: seconds, inside: seconds }
    }

    /// For a program that limits only the time until its tunnel is open.
    const fn connecting(seconds: u32) -> Self {
        GivesUp { plain: None, connect: Some(seconds), inside: None }
    }

    /// Returns the shortest of the three times.
    pub fn soonest(&self) -> Option<u32> {
        [self.plain, self.connect, self.inside].into_iter().flatten().min()
    }
}

impl TrustWay {
    pub fn words(self) -> String {
        match self {
            TrustWay::Variable(name, file) => format!("set {name}={}", file.name()),
            TrustWay::Other(words) => words.to_owned(),
        }
    }
}

impl TrustFile {
    pub fn name(self) -> &'static str {
        match self {
            TrustFile::Ca => "ca.pem",
            TrustFile::Bundle => "bundle.pem",
        }
    }
}

/// The advice for unknown programs. OpenSSL reads this variable, and most programs use OpenSSL.
pub const USUAL_TRUST: &str = "set SSL_CERT_FILE=bundle.pem, which most programs read";

/// Returns the program that sent this User-Agent. The first match in the table wins: npm also sends `node`.
pub fn of_user_agent(agent: &str) -> Option<&'static Program> {
    let is_one_of = |program: &Program, product: &str| program.products.iter().any(|p| p.eq_ignore_ascii_case(product));
    PROGRAMS.iter().find(|program| products(agent).any(|product| is_one_of(program, product)))
}

/// Whether the program that sent this User-Agent hands a kept connection to its next request without looking whether
/// the connection is closed. aiohttp does so while requests wait for a connection, and repeats a lost request only
/// once.
pub fn reuses_closed(agent: &str) -> bool {
    products(agent).any(|product| product.eq_ignore_ascii_case("aiohttp"))
}

/// Returns the program with this name.
pub fn named(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

/// Returns the product names in a User-Agent, without their versions.
fn products(agent: &str) -> impl Iterator<Item = &str> {
    agent
        .split([' ', ';', '(', ')', ','])
        .filter_map(|word| word.split('/').next())
        .filter(|product| !product.is_empty())
}

/// How much longer than `max_wait` the advised timeout is, so that the program receives curtsy's error before it gives
/// up.
const SPARE: Duration = Duration::from_secs(30);

const SECONDS: &str = "SECONDS";

const OPENSSL: TrustWay = TrustWay::Variable("SSL_CERT_FILE", TrustFile::Bundle);
const NODE: TrustWay = TrustWay::Variable("NODE_EXTRA_CA_CERTS", TrustFile::Ca);

/// A row of the table.
const fn row(
    name: &'static str,
    products: &'static [&'static str],
    gives_up: GivesUp,
    longer: &'static str,
    trust: TrustWay,
) -> Program {
    Program { name, products, gives_up, longer, trust }
}

#[rustfmt::skip]
static PROGRAMS: &[Program] = &[
    row("curl", &["curl"], GivesUp::connecting(300), "curl --max-time SECONDS --connect-timeout SECONDS",
        TrustWay::Variable("CURL_CA_BUNDLE", TrustFile::Bundle)),
    row("wget", &["wget", "wget2"], GivesUp::at(900), "wget --timeout=SECONDS",
        TrustWay::Other("use wget --ca-certificate=bundle.pem: it reads no variable for it")),
    row("git", &["git"], GivesUp::connecting(300), "git -c http.lowSpeedTime=SECONDS",
        TrustWay::Variable("GIT_SSL_CAINFO", TrustFile::Bundle)),
    row("aria2", &["aria2"], GivesUp::at(60), "aria2c --timeout=SECONDS",
        TrustWay::Other("use aria2c --ca-certificate=bundle.pem: it reads no variable for it")),
    row("Scrapy", &["scrapy"], GivesUp::at(180), "DOWNLOAD_TIMEOUT = SECONDS", OPENSSL),
    row("pip", &["pip"], GivesUp::at(15), "pip --timeout SECONDS", TrustWay::Variable("PIP_CERT", TrustFile::Bundle)),
    row("requests", &["python-requests"], GivesUp::NEVER, "requests.get(url, timeout=SECONDS)",
        TrustWay::Variable("REQUESTS_CA_BUNDLE", TrustFile::Bundle)),
    row("httpx", &["python-httpx"], GivesUp::at(5), "httpx.Client(timeout=SECONDS)", OPENSSL),
    row("aiohttp", &["aiohttp"], GivesUp::at(300), "aiohttp.ClientTimeout(total=SECONDS)", OPENSSL),
    row("urllib3", &["python-urllib3"], GivesUp::NEVER, "urllib3.Timeout(SECONDS)", OPENSSL),
    row("urllib", &["python-urllib"], GivesUp::NEVER, "urllib.request.urlopen(url, timeout=SECONDS)", OPENSSL),
    row("npm", &["npm"], GivesUp { plain: Some(300), connect: None, inside: Some(300) },
        "npm config set fetch-timeout SECONDS000", TrustWay::Variable("npm_config_cafile", TrustFile::Bundle)),
    row("axios", &["axios"], GivesUp::NEVER, "axios.get(url, { timeout: SECONDS000 })", NODE),
    row("got", &["got"], GivesUp::connecting(5), "got(url, { timeout: { connect: SECONDS000, request: SECONDS000 } })", NODE),
    row("bun", &["bun"], GivesUp::at(360), "fetch(url, { signal: AbortSignal.timeout(SECONDS000) })", NODE),
    row("deno", &["deno"], GivesUp::NEVER, "fetch(url, { signal: AbortSignal.timeout(SECONDS000) })",
        TrustWay::Variable("DENO_CERT", TrustFile::Ca)),
    row("node", &["node", "undici", "node-fetch"], GivesUp::at(300),
        "new undici.Agent({ headersTimeout: SECONDS000 })", NODE),
    row("Colly", &["colly"], GivesUp::at(10), "collector.SetRequestTimeout(SECONDS * time.Second)", OPENSSL),
    row("Go", &["go-http-client"], GivesUp::connecting(60), "http.Client{Timeout: SECONDS * time.Second}", OPENSSL),
    row("Java", &["java-http-client", "java"], GivesUp::NEVER, "HttpRequest.Builder.timeout(Duration.ofSeconds(SECONDS))",
        TrustWay::Other("run `curtsy setup`, or import ca.pem with keytool, or set javax.net.ssl.trustStore")),
    row("Ruby", &["ruby"], GivesUp::at(60), "http.read_timeout = http.open_timeout = SECONDS", OPENSSL),
    row("LWP", &["libwww-perl", "lwp::simple", "lwp-request"], GivesUp::at(180), "LWP::UserAgent->new(timeout => SECONDS)",
        TrustWay::Variable("PERL_LWP_SSL_CA_FILE", TrustFile::Bundle)),
    row("reqwest", &["reqwest"], GivesUp::at(30), "ClientBuilder::timeout(Duration::from_secs(SECONDS))", OPENSSL),
    row("ureq", &["ureq"], GivesUp::NEVER, "Config::timeout_global(Duration::from_secs(SECONDS))",
        TrustWay::Other("add ca.pem to its roots in code: it reads no variable for it")),
    row("Chromium", &["headlesschrome", "chromium", "chrome"], GivesUp::at(30),
        "in Playwright page.goto(url, timeout=SECONDS000)",
        TrustWay::Other("run `curtsy setup`, which adds the CA to the browser, or set ignoreHTTPSErrors in Playwright")),
    row("Firefox", &["firefox"], GivesUp::at(300), "network.http.response.timeout = SECONDS",
        TrustWay::Other("run `curtsy setup`, which adds the CA to every profile")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_aiohttp_is_known_to_use_closed_connections() {
        assert!(reuses_closed("Python/3.11 aiohttp/3.14.5"));
        assert!(!reuses_closed("python-requests/2.34.2") && !reuses_closed(""));
    }

    #[test]
    fn real_clients_are_known_by_what_they_send() {
        for (agent, name) in [
            ("curl/7.88.1", "curl"),
            ("Wget/1.21.3", "wget"),
            ("git/2.47.3", "git"),
            ("aria2/1.36.0", "aria2"),
            ("Scrapy/2.19.0 (+https://scrapy.org)", "Scrapy"),
            (r#"pip/23.2.1 {"ci":null,"cpu":"x86_64","implementation":{"name":"CPython","version":"3.11.7"}}"#, "pip"),
            ("python-requests/2.34.2", "requests"),
            ("python-httpx/0.28.1", "httpx"),
            ("Python/3.11 aiohttp/3.14.5", "aiohttp"),
            ("python-urllib3/2.8.0", "urllib3"),
            ("Python-urllib/3.11", "urllib"),
            ("npm/11.19.0 node/v24.21.0 linux x64 workspaces/false", "npm"),
            ("node", "node"),
            ("undici", "node"),
            ("axios/1.21.1", "axios"),
            ("got (https://github.com/sindresorhus/got)", "got"),
            ("Bun/1.4.4", "bun"),
            ("Deno/2.9.6", "deno"),
            ("Go-http-client/1.1", "Go"),
            ("colly - https://github.com/gocolly/colly/v2", "Colly"),
            ("Java-http-client/17.0.21", "Java"),
            ("Java/17.0.21", "Java"),
            ("Ruby", "Ruby"),
            ("libwww-perl/6.68", "LWP"),
            ("ureq/3.5.1", "ureq"),
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/156.0.0.0 Safari/537.36",
                "Chromium",
            ),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox"),
        ] {
            assert_eq!(of_user_agent(agent).map(|program| program.name), Some(name), "{agent}");
            assert!(named(name).is_some());
        }
    }

    #[test]
    fn others_are_not_mistaken_for_them() {
        for agent in ["", "é", "/", "MyBot/1.0 (+https://example.com/curl)", "curlew/1.0", "github-camo", "Mozilla/5.0"]
        {
            assert!(of_user_agent(agent).is_none(), "{agent}");
        }
    }

    #[test]
    fn every_row_has_a_setting_with_a_time_and_a_name_of_its_own() {
        for program in PROGRAMS {
            let told = program.longer_than(Duration::from_secs(150));
            assert!(told.contains("180") && !told.contains(SECONDS), "{}: {told}", program.name);
            assert_eq!(PROGRAMS.iter().filter(|other| other.name == program.name).count(), 1, "{}", program.name);
            assert!(program.products.iter().all(|product| *product == product.to_ascii_lowercase()));
        }
        assert_eq!(named("Go").and_then(|go| go.gives_up.soonest()), Some(60));
        assert_eq!(named("requests").and_then(|requests| requests.gives_up.soonest()), None);
    }

    #[test]
    fn each_is_told_its_own_way_to_trust() {
        let words = |agent| of_user_agent(agent).map(|program| program.trust.words()).unwrap_or_default();
        assert_eq!(words("python-requests/2.34"), "set REQUESTS_CA_BUNDLE=bundle.pem");
        assert_eq!(words("node"), "set NODE_EXTRA_CA_CERTS=ca.pem");
        assert!(words("Wget/1.21.3").contains("--ca-certificate"));
    }
}
