//! Real clients in intercepted tunnels. `scripts/test` installs the clients.

use std::io::Write as _;
use std::process::{Command, Output};

use curtsy::config::{Mode, RobotsMode};
use tempfile::NamedTempFile;

use crate::support::tls_client::intercepting;
use crate::support::{Authority, Curtsy, HELLO, Message, Origin, Stopwatch, ms, soon};

const RULES: &str = "User-agent: *\nDisallow: /private\n";

/// An origin with a robots.txt, a curtsy in front of it that paces and intercepts, and the CA in a file.
struct Scene {
    origin: Origin,
    curtsy: Curtsy,
    ca: NamedTempFile,
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new();
        let origin = authority.origin(|visitor| {
            while let Some(request) = visitor.request() {
                let robots = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{RULES}", RULES.len());
                visitor.send(if request.line().contains("/robots.txt") { robots } else { HELLO.to_owned() });
            }
        });
        let curtsy = intercepting(&authority, |config| {
            config.politeness.robots = RobotsMode::Enforce;
            config.politeness.mode = Mode::Enforce;
            config.politeness.delay = ms(200);
        });
        let mut ca = NamedTempFile::new().expect("a writable temporary directory");
        ca.write_all(curtsy.get("http://curtsy.invalid/ca.pem").text().as_bytes()).expect("room for a certificate");
        Scene { origin, curtsy, ca }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.origin.port())
    }

    fn proxy(&self) -> String {
        format!("http://{}", self.curtsy.address())
    }

    fn ca(&self) -> String {
        self.ca.path().display().to_string()
    }

    /// Runs a client whose environment names only the proxy.
    fn run(&self, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(program);
        for name in ["no_proxy", "NO_PROXY", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "http_proxy", "HTTP_PROXY"] {
            command.env_remove(name);
        }
        command.args(arguments).env("https_proxy", self.proxy()).envs(variables.iter().copied());
        command.output().unwrap_or_else(|error| panic!("{program} is not installed: {error}"))
    }

    /// The request lines that the origin received, except for robots.txt.
    fn pages(&self) -> Vec<String> {
        let lines = self.origin.requests(0).iter().map(Message::line).collect::<Vec<_>>();
        lines.into_iter().filter(|line| !line.contains("/robots.txt")).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn curl_gets_through_in_both_versions() {
    for (version, used) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let scene = Scene::new();
        let watch = Stopwatch::start();
        let (a, b, denied) = (scene.url("/a"), scene.url("/b"), scene.url("/private"));
        let form = " %{http_code} %{http_version}\n";
        let output = scene.run("curl", &["-sS", version, "--cacert", &scene.ca(), "-w", form, &a, &b, &denied], &[]);
        let (told, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(told.starts_with(&format!("hello 200 {used}\nhello 200 {used}\n")), "{told}{errors}");
        assert!(told.contains("Denied by robots.txt") || told.contains("denied by robots.txt"), "{told}");
        assert!(told.ends_with(&format!(" 403 {used}\n")), "{told}");
        assert!(watch.elapsed() >= ms(200), "{:?}", watch.elapsed());
        assert_eq!(scene.pages(), ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
    }
}

#[test]
fn curl_sends_plain_http_through_a_tunnel() {
    let (scene, plain) = (Scene::new(), Origin::hello());
    let url = format!("http://localhost:{}/x", plain.port());
    let output = scene.run("curl", &["-sS", "-p", "-x", &scene.proxy(), "--noproxy", "", &url], &[]);
    assert_eq!(text(&output.stdout), "hello", "{}", text(&output.stderr));
    assert!(plain.robots_requests() == 1, "it is treated as plain HTTP");
}

#[test]
fn curl_without_the_ca_is_counted_as_untrusting() {
    let scene = Scene::new();
    let output = scene.run("curl", &["-sS", &scene.url("/")], &[]);
    assert_eq!(output.status.code(), Some(60), "{}", text(&output.stderr));
    assert!(soon(
        || scene.curtsy.metric("curtsy_tls_handshakes_total{result=\"client_untrusted\",side=\"client\"}") == 1
    ));
}

#[test]
fn wget_gets_through_and_is_counted_without_the_ca() {
    let scene = Scene::new();
    let ca = format!("--ca-certificate={}", scene.ca());
    let output = scene.run("wget", &["-q", "-O-", &ca, &scene.url("/a"), &scene.url("/b")], &[]);
    assert_eq!(text(&output.stdout), "hellohello", "{}", text(&output.stderr));
    let output = scene.run("wget", &["-q", "-O-", "--tries=1", &scene.url("/c")], &[]);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        soon(|| scene.curtsy.metric("curtsy_tls_handshakes_total{result=\"client_untrusted\",side=\"client\"}") == 1),
        "it leaves after the handshake"
    );
    assert_eq!(scene.pages(), ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
}

#[test]
fn python_gets_through() {
    let scene = Scene::new();
    let script = "import sys, urllib.request\nprint(urllib.request.urlopen(sys.argv[1]).read().decode())";
    let (ca, url) = (scene.ca(), scene.url("/a"));
    let output = scene.run("python3", &["-c", script, &url], &[("SSL_CERT_FILE", &ca)]);
    assert_eq!(text(&output.stdout), "hello\n", "{}", text(&output.stderr));
}
