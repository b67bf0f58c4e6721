//! `curtsy doctor` finds what is wrong between a client and the proxy, and each line that it suggests fixes it.
//!
//! The clients are real. Each runs in an environment that holds only what the test sets.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use curtsy::config::Mode;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::tls_client::{inside, intercepting, tunnel};
use crate::support::{Authority, Curtsy, Hole, Origin, Program, soon};

/// A machine with curl, Python and a running curtsy that clients should use.
struct Machine {
    program: Program,
    folder: TempDir,
}

/// The result of `curtsy doctor`.
struct Told {
    code: i32,
    text: String,
    findings: Vec<Value>,
}

/// The interpreter itself, not the wrapper of a version manager.
fn python() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let ask = ["-c", "import os, sys; print(os.path.realpath(sys.executable))"];
        let told = Command::new("python3").args(ask).output().expect("python3 is installed");
        PathBuf::from(String::from_utf8_lossy(&told.stdout).trim())
    })
}

fn which(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("a path");
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed"))
}

impl Machine {
    /// `tables` is added to the configuration of the running curtsy.
    fn new(top: &str, tables: &str) -> Self {
        let folder = tempfile::tempdir().expect("a writable temporary directory");
        let state = folder.path().join("state").display().to_string();
        let top = format!("{top}\npoliteness.mode = \"enforce\"\nadmin = \"127.0.0.1:0\"\nstate_dir = {state:?}\n");
        let machine = Machine { program: Program::start(&top, tables), folder };
        let bin = machine.folder.path().join("bin");
        std::fs::create_dir(&bin).expect("a new folder");
        symlink(which("curl"), bin.join("curl")).expect("a new link");
        symlink(env!("CARGO_BIN_EXE_curtsy"), bin.join("curtsy")).expect("a new link");
        // A virtual environment that has only Python's own libraries, whatever the machine has.
        symlink(python(), bin.join("python3")).expect("a new link");
        let home = python().parent().expect("a program is in a folder").display();
        std::fs::write(
            machine.folder.path().join("pyvenv.cfg"),
            format!("home = {home}\ninclude-system-site-packages = false\n"),
        )
        .expect("a new file");
        machine
    }

    fn proxy(&self) -> String {
        format!("http://{}", self.program.address())
    }

    fn admin(&self) -> String {
        let ready = self.program.event("ready").expect("it is ready");
        format!("http://{}", ready["admin"].as_str().expect("an address"))
    }

    /// The four proxy variables with their correct values.
    fn variables(&self) -> BTreeMap<&'static str, String> {
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"].map(|name| (name, self.proxy())).into()
    }

    /// Runs a script with these variables and nothing else.
    fn shell(&self, script: &str, variables: &BTreeMap<&'static str, String>) -> (i32, String) {
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", script]).env_clear().envs(variables).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("PATH", self.folder.path().join("bin")).env("HOME", self.folder.path());
        command.env("CURTSY_ADMIN_URL", self.admin()).env("CURTSY_STATE_DIR", self.folder.path().join("state"));
        let output = command.output().expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().expect("it ended by itself"), text)
    }

    fn doctor(&self, arguments: &str, variables: &BTreeMap<&'static str, String>) -> Told {
        let (code, text) = self.shell(&format!("curtsy doctor --json {arguments}"), variables);
        let told: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let findings = told["findings"].as_array().expect("a list").clone();
        Told { code, text, findings }
    }
}

impl Told {
    /// The one finding of this kind and level.
    fn finding(&self, level: &str, about: &str, text: &str) -> &Value {
        let is_it = |finding: &&Value| {
            finding["level"] == level
                && finding["about"] == about
                && finding["text"].as_str().is_some_and(|told| told.contains(text))
        };
        self.findings.iter().find(is_it).unwrap_or_else(|| panic!("no {level} {about} {text:?} in {}", self.text))
    }

    fn fix(&self, level: &str, about: &str, text: &str) -> String {
        self.finding(level, about, text)["fix"].as_str().expect("something to paste").to_owned()
    }
}

/// The suggested lines fix an unset variable and an untrusted CA; a second run then reports no problem.
#[test]
fn what_is_pasted_puts_a_machine_right() {
    let machine = Machine::new("", "[tls]\nintercept = true\n");
    let told = machine.doctor("", &BTreeMap::new());
    assert_eq!(told.code, 1, "{}", told.text);
    told.finding("ok", "proxy", "same version");
    let fixes = [
        told.fix("fail", "variables", "is set"),
        told.fix("fail", "client", "curl: does not trust curtsy's CA (CURL_CA_BUNDLE is not set)"),
        told.fix("fail", "client", "does not trust curtsy's CA (SSL_CERT_FILE is not set)"),
    ];
    let script = format!("{}\ncurtsy doctor", fixes.join("\n"));
    let (code, text) = machine.shell(&script, &BTreeMap::new());
    assert_eq!(code, 0, "{script}\n{text}");
    assert!(text.ends_with(" all is well\n"), "{text}");
    for line in [
        " ok    http_proxy https_proxy HTTP_PROXY HTTPS_PROXY are set and equal\n",
        " ok    curl: http and https come through, and it trusts the CA\n",
        ": http and https come through, and it trusts the CA\n ok    timeouts of curl, urllib:",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

/// `https://` in the proxy's URL, a missing scheme, a wrong port and the like.
#[test]
fn proxy_urls_that_lead_elsewhere_are_found() {
    let machine = Machine::new("", "");
    let (address, nobody) = (machine.program.address(), Hole::refusing().url());
    let elsewhere = Origin::hello();
    for (name, value, expected) in [
        ("https_proxy", format!("https://{address}"), "starts with https://, but that port is plain HTTP"),
        ("HTTPS_PROXY", address.to_string(), "has no scheme"),
        ("http_proxy", machine.admin(), "is the admin port"),
        ("http_proxy", nobody.clone(), "nothing answers there"),
        ("HTTP_PROXY", format!("socks5://{address}"), "a scheme that curtsy does not support"),
        ("http_proxy", String::new(), "http_proxy is not set: curl and wget read no other spelling"),
        ("https_proxy", elsewhere.url(""), "is not curtsy"),
    ] {
        let mut variables = machine.variables();
        variables.insert(name, value);
        let told = machine.doctor("-- curl", &variables);
        assert_eq!(told.code, 1, "{}", told.text);
        let fix = told.fix("fail", "variables", expected);
        assert!(fix.starts_with("export ") && fix.contains(&machine.proxy()), "{fix}");
        told.finding("ok", "client", "curl: http and https come through; https is not read here");
    }
    let mut variables = machine.variables();
    variables.remove("HTTPS_PROXY");
    let told = machine.doctor("-- curl", &variables);
    assert_eq!(
        (told.code, told.fix("warn", "variables", "HTTPS_PROXY is not set").contains("HTTPS_PROXY=")),
        (0, true)
    );
}

/// A client may ignore the proxy variables because of its own settings or because of `no_proxy`.
#[test]
fn a_client_that_goes_round_the_proxy_is_found() {
    let machine = Machine::new("", "");
    std::fs::write(machine.folder.path().join(".curlrc"), "noproxy = \"*\"\n").expect("a new file");
    let told = machine.doctor("-- curl http://example.com/", &machine.variables());
    assert_eq!(told.code, 1, "{}", told.text);
    assert!(told.fix("fail", "client", "curl: bypasses the proxy").contains(".curlrc"));
    std::fs::remove_file(machine.folder.path().join(".curlrc")).expect("it is there");

    let mut variables = machine.variables();
    variables.insert("no_proxy", "*".to_owned());
    let told = machine.doctor("-- curl", &variables);
    assert_eq!(told.fix("fail", "exceptions", "every request bypasses the proxy"), "unset no_proxy NO_PROXY");
    variables.insert("no_proxy", "localhost,.example.com".to_owned());
    let told = machine.doctor("-- curl https://www.example.com/ http://localhost:8000/", &variables);
    told.finding("warn", "exceptions", "www.example.com bypasses the proxy: no_proxy has .example.com");
    told.finding("warn", "exceptions", "localhost bypasses the proxy: no_proxy has localhost");
    assert_eq!(told.code, 0, "{}", told.text);
}

/// A client's timeout is shorter than the wait in the queue: given as an argument, or its default.
#[test]
fn a_timeout_shorter_than_the_queue_is_found() {
    let machine = Machine::new("politeness.delay = \"40s\"", "");
    let origin = Origin::hello();
    assert_eq!(machine.program.get(&origin.url("/")).status(), 200);
    let mut waiting = machine.program.client();
    waiting.send_head(&[&origin.get("/"), "Host: x"]);
    let url = format!("curl -m 2 {}", origin.url("/"));
    let mut told = machine.doctor(&format!("-- {url}"), &machine.variables());
    // The request takes a moment to reach the queue.
    assert!(soon(|| {
        told = machine.doctor(&format!("-- {url}"), &machine.variables());
        told.text.contains("in the queue now up to 4")
    }));
    let fix = told.fix("warn", "timeouts", "-m 2: it gives up after 2 s, and a request may be held up to 150 s");
    assert!(fix.contains("--max-time 180"), "{fix}");
    assert_eq!(told.code, 0, "it may work: {}", told.text);

    let script = machine.folder.path().join("crawl.py");
    std::fs::write(&script, "import asyncio\nfrom httpx import AsyncClient\nimport aiohttp\n").expect("a new file");
    let told = machine.doctor("-- python3 crawl.py", &machine.variables());
    assert_eq!(told.fix("warn", "timeouts", "httpx gives up after 5 s by default"), "httpx.Client(timeout=180)");
    assert!(told.fix("warn", "client", "the script uses aiohttp").contains("trust_env=True"));
    told.finding("fail", "client", "httpx is imported, but this Python has no such library");
}

#[test]
fn what_keeps_everybody_out_is_told_first() {
    let machine = Machine::new("", "[access]\nallow = [\"10.0.0.0/8\"]\n");
    let told = machine.doctor("", &machine.variables());
    assert_eq!((told.code, told.findings.len()), (1, 1), "{}", told.text);
    assert!(told.fix("fail", "proxy", "may this machine use it?").contains("access.allow"));
    let told = machine.doctor("-- no-such-program", &machine.variables());
    assert_eq!(told.code, 1, "{}", told.text);
}

#[test]
fn without_a_curtsy_there_is_nothing_to_look_at() {
    let nobody = Hole::refusing().url();
    let machine = Machine::new("", "");
    let script = format!("curtsy doctor --admin {0} --proxy {0}", nobody.trim_end_matches('/'));
    let (code, text) = machine.shell(&script, &BTreeMap::new());
    assert_eq!(code, 4, "{text}");
    assert!(text.starts_with("error: no curtsy answers on ") && text.lines().count() == 1, "{text}");
    let (code, text) = machine.shell(&format!("curtsy doctor --proxy {} -- gone", machine.proxy()), &BTreeMap::new());
    assert!(code == 1 && text.contains(" fail  there is no program gone\n"), "{text}");
}

/// curtsy answers the probe itself: no host is contacted, no turn is taken and no robots.txt is fetched.
#[test]
fn probes_stay_on_this_machine() {
    let pacing = |curtsy: &Curtsy| {
        let ask = |_| curtsy.get("http://probe.curtsy.invalid/any/path");
        let answers: Vec<Value> =
            (0..3).map(ask).map(|answer| serde_json::from_str(&answer.text()).expect("JSON")).collect();
        assert!(answers.iter().all(|answer| answer["probe"] == "curtsy" && answer["intercepted"] == false));
        assert_eq!(curtsy.metric("curtsy_hosts"), 0, "it is not a known host");
        answers[0].clone()
    };
    let slowly = |config: &mut curtsy::config::Config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = std::time::Duration::from_secs(60);
        config.politeness.robots = curtsy::config::RobotsMode::Enforce;
    };
    let tunnelling = Curtsy::with(slowly);
    let told = pacing(&tunnelling);
    assert!(told["intercepts"] == false && told["mode"] == "enforce" && told["max_wait_s"] == 150.0, "{told}");
    let refused = tunnelling.ask(&["CONNECT probe.curtsy.invalid:443 HTTP/1.1"]);
    assert_eq!(refused.line(), "HTTP/1.1 501 Routing works, interception is off (curtsy)");

    let reading = intercepting(&Authority::new(), slowly);
    assert_eq!(pacing(&reading)["intercepts"], true);
    let get = ["GET / HTTP/1.1", "Host: probe.curtsy.invalid"];
    let answer: Value =
        serde_json::from_str(&inside(&reading, "probe.curtsy.invalid", 443).ask(&get).text()).expect("JSON");
    assert!(answer["intercepted"] == true && answer["scheme"] == "https", "{answer}");
    assert_eq!(tunnel(&reading, "probe.curtsy.invalid:80").ask(&get).status(), 200);
    let strangers = ["http://x.probe.curtsy.invalid/", "http://probe.curtsy.invalid.test/"];
    let others: Vec<_> = strangers.into_iter().map(|url| reading.get(url).status()).collect();
    assert!(others.iter().all(|status| *status >= 500), "{others:?}");
    // A client that does not trust the CA is not counted for the probe, but it is for the next host.
    let origin = Origin::hello();
    for host in ["probe.curtsy.invalid".to_owned(), format!("localhost:{}", origin.port())] {
        let mut curl = Command::new("curl");
        curl.env_clear().args(["-sSq", "--noproxy", "", "-x", &format!("http://{}", reading.address())]);
        let ended = curl.arg(format!("https://{host}/")).output().expect("curl is installed").status;
        assert_eq!(ended.code(), Some(60), "{host}: the certificate is not trusted");
    }
    let untrusting = "curtsy_tls_handshakes_total{result=\"client_untrusted\",side=\"client\"}";
    assert!(soon(|| reading.metric(untrusting) > 0));
    assert_eq!(reading.metric(untrusting), 1);
}
