//! `curtsy exec` runs real commands behind a proxy of their own. `scripts/test` installs the commands.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tempfile::TempDir;

use crate::support::program::curtsy;
use crate::support::tls_origin;
use crate::support::{Authority, Client, HELLO, Message, Origin, Program, Stopwatch, ms, soon};

const RULES: &str = "HTTP/1.1 200 OK\r\nContent-Length: 34\r\n\r\nUser-agent: *\nDisallow: /private/\n\n";

/// A user's empty home directory, without proxy settings.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Home(tempfile::tempdir().expect("a writable temporary directory"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// `curtsy exec` with these arguments, separated by spaces.
    fn exec(&self, arguments: &str) -> Command {
        let mut command = curtsy();
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "wgetrc"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command.env("HOME", self.0.path()).env("TMPDIR", self.0.path()).env("XDG_STATE_HOME", self.path("state"));
        command.env("CURTSY_ACCESS__ALLOW_DESTINATIONS", "127.0.0.0/8").env("CURTSY_ACCESS__CONNECT_PORTS", "*");
        // A curtsy that happens to run on this machine is not used.
        command.env("CURTSY_ADMIN", "off").env_remove("CURTSY_ADMIN_URL");
        command.current_dir(self.0.path()).stdin(Stdio::null()).arg("exec").args(arguments.split_whitespace());
        command
    }

    fn run(&self, arguments: &str, command: &[&str]) -> Done {
        Done::of(self.exec(arguments).arg("--").args(command).output().expect("the built program starts"))
    }

    fn start(&self, arguments: &str, command: &[&str]) -> Child {
        let mut command_line = self.exec(arguments);
        command_line.arg("--").args(command).stdout(Stdio::piped()).stderr(Stdio::piped());
        command_line.spawn().expect("the built program starts")
    }
}

struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn says(&self, part: &str) {
        assert!(self.err.contains(part), "no {part:?} in\n{}", self.err);
    }
}

/// An origin at 127.0.0.2, because requests for 127.0.0.1 never go through a proxy.
fn origin(script: impl Fn(&str) -> &'static str + Send + Sync + 'static) -> Origin {
    Origin::on("127.0.0.2", move |visitor| {
        while let Some(request) = visitor.request() {
            visitor.send(script(&request.line()));
        }
    })
}

fn with_rules() -> Origin {
    origin(|line| if line.starts_with("GET /robots.txt ") { RULES } else { HELLO })
}

/// The same over TLS.
fn secure_with_rules(authority: &Authority) -> Origin {
    tls_origin::on("127.0.0.2", authority.server_with(&["127.0.0.2"], |_| ()), |visitor| {
        while let Some(request) = visitor.request() {
            visitor.send(if request.line().contains("/robots.txt") { RULES } else { HELLO });
        }
    })
}

/// The request lines that the origin received, except for robots.txt.
fn pages(origin: &Origin) -> Vec<String> {
    let lines = origin.requests(0).iter().map(Message::line).collect::<Vec<_>>();
    lines.into_iter().filter(|line| !line.contains("/robots.txt")).collect()
}

/// The numbers in the summary are those that the origin counts.
#[test]
fn a_command_is_paced_and_its_numbers_are_the_origins() {
    let (home, origin) = (Home::new(), with_rules());
    let urls: Vec<String> = ["/a", "/b", "/private/x", "/c"].map(|path| origin.url(path)).to_vec();
    let watch = Stopwatch::start();
    let mut command = vec!["curl", "-sS", "-w", "%{http_code} "];
    command.extend(urls.iter().flat_map(|url| ["-o", "/dev/null", url]));
    let done = home.run("--delay 500ms", &command);
    assert!(watch.elapsed() >= ms(1_000), "{:?}", watch.elapsed());
    assert_eq!((done.code, done.out.as_str()), (Some(0), "200 200 403 200 "), "{}", done.err);
    assert_eq!(pages(&origin), ["GET /a HTTP/1.1", "GET /b HTTP/1.1", "GET /c HTTP/1.1"]);
    done.says("curtsy: 3 requests to 1 host in ");
    done.says(" 1 denied by robots.txt\n");
    done.says("  127.0.0.2  3 requests  delay 0.5 s (configured)  waited ");
    done.says("1 denied (Disallow: /private/, line 2)");
}

/// A browser loads a page with its parts, unless the user wants requests counted. Each part is loaded now or never.
#[test]
fn a_browser_is_paced_by_pages() {
    let (home, origin) = (Home::new(), with_rules());
    let script = format!(
        "get() {{ curl -sS -o /dev/null -w '%{{http_code}} ' -H 'Curtsy-Max-Wait: 0' \"$@\"; }}
         curl -sS -o /dev/null -H 'Sec-Fetch-Dest: document' -H 'Sec-Fetch-Mode: navigate' {0}
         get -H 'Sec-Fetch-Dest: image' {0}1; get -H 'Sec-Fetch-Dest: script' {0}2; get {0}3",
        origin.url("/")
    );
    let done = home.run("--delay 60s", &["bash", "-c", &script]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "200 200 429 "), "{}", done.err);
    let mut command = home.exec("--delay 60s");
    command.env("CURTSY_POLITENESS__COUNT", "requests").env("XDG_STATE_HOME", home.path("other"));
    let done = Done::of(command.args(["--", "bash", "-c", &script]).output().expect("the built program starts"));
    assert_eq!((done.code, done.out.as_str()), (Some(0), "429 429 429 "), "{}", done.err);
}

/// Retries hide a 429 from the command, and the summary counts them.
#[test]
fn what_is_throttled_is_sent_again_and_counted() {
    let (home, count) = (Home::new(), AtomicUsize::new(0));
    let origin = origin(move |line| match line {
        robots if robots.contains("/robots.txt") => "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
        _ if count.fetch_add(1, Relaxed) == 1 => "HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
        _ => HELLO,
    });
    let script = "import sys, urllib.request\nfor u in sys.argv[1:]: print(urllib.request.urlopen(u).status)";
    let urls = [origin.url("/a"), origin.url("/b")];
    let done = home.run("--delay 10ms --as news", &["python3", "-c", script, &urls[0], &urls[1]]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "200\n200\n"), "{}", done.err);
    assert_eq!(pages(&origin).len(), 3);
    done.says("curtsy: 3 requests to 1 host in ");
    done.says(" 1 throttled (1 sent again)");
    done.says("(learned)");
}

/// The summary lists denied, refused and abandoned requests separately. The origin saw none of them.
#[test]
fn what_was_not_sent_is_told_apart() {
    let (home, origin) = (Home::new(), with_rules());
    let closed = std::net::TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap();
    let (a, b) = (origin.url("/a"), origin.url("/b"));
    let script = format!(
        "curl -sS {a}; curl -sS -m 0.3 {b} || echo left
         curl -sS -o /dev/null -w '%{{http_code}} ' http://10.0.0.1/ http://{closed}/"
    );
    let done = home.run("--delay 20s", &["sh", "-c", &script]);
    assert!(done.out.starts_with("helloleft\n403 "), "{}{}", done.out, done.err);
    assert_eq!(pages(&origin), ["GET /a HTTP/1.1"]);
    done.says("curtsy: 1 request to 1 host in ");
    done.says("; 1 refused; 1 gave up;\ncurtsy:     1 failed\n");
    done.says("  10.0.0.1  0 requests");
}

/// The files of the CA are deleted even if a signal ends the run.
#[test]
fn a_signal_leaves_nothing_behind() {
    let home = Home::new();
    let script = "echo $SSL_CERT_FILE > where; mv where ready; exec sleep 60";
    let child = home.start("", &["sh", "-c", script]);
    assert!(soon(|| std::path::Path::new(&home.path("ready")).exists()));
    let bundle = std::fs::read_to_string(home.path("ready")).unwrap();
    assert!(std::path::Path::new(bundle.trim()).exists(), "{bundle}");
    assert!(Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status().unwrap().success());
    let done = Done::of(child.wait_with_output().expect("our own child"));
    assert_eq!(done.code, Some(143), "{}", done.err);
    assert!(!std::path::Path::new(bundle.trim()).parent().unwrap().exists(), "{bundle}");
}

#[test]
fn codes_and_variables_pass_through() {
    let home = Home::new();
    for (command, code) in [("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        let done = home.run("--quiet", &["sh", "-c", command]);
        assert_eq!((done.code, done.err.as_str()), (Some(code), ""), "{command}");
    }
    assert_eq!(home.run("", &["no-such-command"]).code, Some(127));
    std::fs::write(home.path("plain"), "text").unwrap();
    assert_eq!(home.run("", &["./plain"]).code, Some(126));
    assert_eq!(home.run("", &[]).code, Some(2));
    let script = "echo $no_proxy $CURTSY_ACTIVE $https_proxy $SSL_CERT_FILE";
    let output = home.exec("--quiet --as news").env("NO_PROXY", "intra.test").args(["--", "sh", "-c", script]).output();
    let out = Done::of(output.unwrap()).out;
    assert!(out.starts_with("intra.test,localhost,127.0.0.1,::1 1 http://news:x@127.0.0.1:"), "{out}");
    assert_eq!(out.split_whitespace().count(), 4, "{out}");
    let plain = home.run("--quiet --no-intercept", &["sh", "-c", script]).out;
    assert!(plain.starts_with("localhost,127.0.0.1,::1 1 http://sh:x@127.0.0.1:"), "named after the command: {plain}");
    assert_eq!(plain.split_whitespace().count(), 3, "{plain}");
}

/// curtsy passes each signal on to the command once and waits for the command to end.
#[test]
fn signals_reach_the_command_once() {
    let home = Home::new();
    let script = "import signal, sys, time
got = []
def note(number, frame):
    got.append(signal.Signals(number).name)
    if number == signal.SIGTERM: print(' '.join(got)); sys.exit(5)
for name in 'HUP INT QUIT USR1 USR2 WINCH TERM'.split(): signal.signal(getattr(signal, 'SIG' + name), note)
open('ready', 'w').close()
while True: time.sleep(0.01)";
    let child = home.start("", &["python3", "-c", script]);
    assert!(soon(|| std::path::Path::new(&home.path("ready")).exists()));
    for name in ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "TERM"] {
        let line = format!("kill -{name} {}; sleep 0.05", child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("a shell").success());
    }
    let done = Done::of(child.wait_with_output().expect("our own child"));
    assert_eq!(done.out, "SIGHUP SIGINT SIGQUIT SIGUSR1 SIGUSR2 SIGWINCH SIGTERM\n", "{}", done.err);
    assert_eq!(done.code, Some(5));
    done.says("curtsy: no request came through the proxy in ");
}

/// A command on a terminal, which `script` provides.
struct OnTerminal {
    child: Child,
    keys: ChildStdin,
    out: ChildStdout,
    told: String,
}

impl OnTerminal {
    fn start(home: &Home, arguments: &str, command: &str) -> Self {
        // `exec`, because a shell between the two would get Ctrl-C as well, and some shells end on it.
        let line = format!("exec {} exec {arguments} -- {command}", env!("CARGO_BIN_EXE_curtsy"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(home.0.path()).process_group(0).env("SHELL", "/bin/sh");
        // The same environment as in the other tests.
        for (name, value) in home.exec("").get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is installed");
        let keys = child.stdin.take().expect("a pipe was asked for");
        let out = child.stdout.take().expect("a pipe was asked for");
        OnTerminal { child, keys, out, told: String::new() }
    }

    fn until(&mut self, text: &str) {
        let mut piece = [0; 4096];
        while !self.told.contains(text) {
            let length = self.out.read(&mut piece).expect("a terminal");
            assert!(length > 0, "no {text:?} in {:?}", self.told);
            self.told.push_str(&String::from_utf8_lossy(&piece[..length]));
        }
    }

    /// Presses Ctrl-C. Returns the exit code and everything that the terminal has shown.
    fn interrupt(mut self) -> (Option<i32>, String) {
        self.keys.write_all(b"\x03").expect("it reads");
        self.out.read_to_string(&mut self.told).expect("a terminal");
        (self.child.wait().expect("our own child").code(), self.told)
    }
}

/// The command gets one signal for one Ctrl-C.
#[test]
fn what_is_typed_reaches_the_command_once() {
    let home = Home::new();
    let script =
        "trap 'echo got-int' INT; echo begun; i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; exit 3";
    std::fs::write(home.path("trapping.sh"), script).unwrap();
    let mut terminal = OnTerminal::start(&home, "", "sh trapping.sh");
    terminal.until("begun");
    let (code, told) = terminal.interrupt();
    assert_eq!((code, told.matches("got-int").count()), (Some(3), 1), "{told}");
    assert!(told.contains("no request came through the proxy"), "{told}");
}

/// A line on the terminal says why the command waits. It is erased before the summary, and never goes into a pipe.
#[test]
fn a_wait_is_shown_on_the_terminal() {
    let (home, origin) = (Home::new(), with_rules());
    let fetch = format!("curl -sS {} {}", origin.url("/a"), origin.url("/b"));
    let quiet = OnTerminal::start(&home, "--quiet --delay 4500ms --state-dir memory", &fetch);
    let piped = home.start("--delay 4500ms --state-dir memory", &["sh", "-c", &fetch]);
    let mut own = OnTerminal::start(&home, "--delay 30s", &fetch);
    own.until("curtsy: 127.0.0.2: 1 waiting, next in ");
    own.until(" s, because the delay is 30 s");
    let (_, told) = own.interrupt();
    let (before, after) = told.rsplit_once("\x1b[J").expect("it is erased");
    assert!(before.contains("1 waiting") && after.contains("curtsy: 1 request to 1 host"), "{told:?}");
    assert!(!after.contains("waiting"), "{told:?}");

    let pace = "admin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"\npoliteness.delay = \"30s\"";
    let program = Program::start(pace, "");
    let attach = format!("--attach --admin http://{}", program.admin());
    let mut attached = OnTerminal::start(&home, &attach, &fetch);
    attached.until("curtsy: 127.0.0.2: 1 waiting, next in ");
    attached.until("because the delay is 30 s");
    attached.interrupt();

    let mut told = String::new();
    { quiet.out }.read_to_string(&mut told).expect("a terminal");
    assert_eq!(told, "hellohello");
    let piped = Done::of(piped.wait_with_output().expect("our own child"));
    assert!(piped.out == "hellohello" && !piped.err.contains("waiting"), "{}", piped.err);
}

/// With `--report` no request is held or denied, and the summary says what would have been.
#[test]
fn a_report_tells_what_would_have_been() {
    let (home, origin) = (Home::new(), with_rules());
    let (a, b, c, denied) = (origin.url("/a"), origin.url("/b"), origin.url("/c"), origin.url("/private/x"));
    let watch = Stopwatch::start();
    let done = home.run("--report --delay 20s", &["curl", "-sS", &a, &denied, &b, &c]);
    assert!(watch.elapsed() < ms(15_000), "nothing is held");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "hellohellohellohello"), "{}", done.err);
    assert_eq!(pages(&origin).len(), 4);
    done.says("curtsy: 4 requests to 1 host in ");
    done.says("denied once: 127.0.0.2/robots.txt line 2, Disallow: /private/\n");
    let row = done.err.lines().find(|line| line.starts_with("curtsy:   127.0.0.2 ")).expect("a row for the host");
    let cells: Vec<&str> = row.split_whitespace().collect();
    // Two of three visits would have waited, nearly 20 and 40 s; the denied one would not have been sent.
    assert_eq!((cells[2], cells[3]), ("4", "2"), "{row}");
    let longest: f64 = cells[4].parse().expect("a number of seconds");
    assert!((35.0..=40.0).contains(&longest), "{row}");
    assert_eq!(cells[6], "1", "{row}");
    let verdict = done.err.lines().find(|line| line.contains("would have waited")).expect("a verdict");
    let polite: f64 =
        verdict.split("at least ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!(verdict.contains("2 of 4 requests") && (39.0..=42.0).contains(&polite), "{verdict}");
}

/// A user who tries curtsy against a server on this machine is told which line allows it, and the next run works.
#[test]
fn an_address_that_is_not_public_is_named_with_the_line_that_allows_it() {
    let (home, origin) = (Home::new(), with_rules());
    let url = origin.url("/a");
    let mut first = home.exec("");
    first.env_remove("CURTSY_ACCESS__ALLOW_DESTINATIONS").args(["--", "curl", "-sS", &url]);
    let refused = Done::of(first.output().expect("the built program starts"));
    refused.says("127.0.0.2 is no public address; to allow it:\n");
    refused.says("  export CURTSY_ACCESS__ALLOW_DESTINATIONS=127.0.0.2\n");
    let allowed = home.run("", &["curl", "-sS", &url]);
    assert_eq!(allowed.out, "hello", "its robots.txt is not remembered as unreachable: {}", allowed.err);
}

/// The next run knows what the last one learned. A run that finds the state directory in use says so and keeps nothing.
#[test]
fn learning_is_shared_one_after_the_other() {
    let (home, origin) = (Home::new(), with_rules());
    let first = home.run("--delay 10ms", &["curl", "-sS", &origin.url("/a")]);
    assert_eq!(first.out, "hello");
    assert_eq!(home.run("--delay 10ms", &["curl", "-sS", &origin.url("/b")]).out, "hello");
    assert_eq!(origin.robots_requests(), 1, "the second knew it");
    let mut waiting = home.start("", &["sh", "-c", "touch ready; while [ -e ready ]; do sleep 0.02; done"]);
    assert!(soon(|| std::path::Path::new(&home.path("ready")).exists()));
    let other = home.run("--delay 10ms", &["curl", "-sS", &origin.url("/c")]);
    other.says("if you start `curtsy` first, all commands share one budget");
    assert_eq!((other.out.as_str(), origin.robots_requests()), ("hello", 2));
    std::fs::remove_file(home.path("ready")).unwrap();
    assert!(waiting.wait().expect("our own child").success());
}

#[test]
fn a_command_can_go_through_the_curtsy_that_runs() {
    let (home, origin) = (Home::new(), with_rules());
    let authority = Authority::new();
    let secure = tls_origin::on("127.0.0.2", authority.server_with(&["127.0.0.2"], |_| ()), |visitor| {
        while visitor.request().is_some() {
            visitor.send(HELLO);
        }
    });
    let tls = format!("[tls]\nintercept = true\nextra_roots = [{:?}]\n", authority.file());
    let program = Program::start("admin = \"127.0.0.1:0\"", &tls);
    let admin = program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let done = home.run(&format!("--attach --as news --admin http://{admin}"), &["curl", "-sS", &origin.url("/a")]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "hello"), "{}", done.err);
    done.says(&format!("goes through the curtsy that runs on {}", program.address()));
    done.says("that curtsy had 1 request from all its clients");
    let page = tls_origin::https(&secure, "/");
    let read = home.run(&format!("--attach --admin http://{admin}"), &["curl", "-sS", &page]);
    assert_eq!(read.out, "hello", "its CA is trusted: {}", read.err);
    program.stop();
    let nobody = home.run(&format!("--attach --admin http://{admin}"), &["true"]);
    assert_eq!(nobody.code, Some(4), "{}", nobody.err);
}

/// A curtsy that runs is used without being named, so that there is one budget; its client has the name of the command.
#[test]
fn a_running_curtsy_is_used() {
    let (home, origin) = (Home::new(), with_rules());
    let program = Program::start("admin = \"127.0.0.1:0\"", "[log]\naccess = \"-\"\n");
    let page = origin.url("/a");
    let beside = |program: &Program, arguments: &str, command: &[&str]| {
        let mut line = home.exec(arguments);
        line.env("CURTSY_ADMIN", program.admin().to_string()).arg("--").args(command);
        Done::of(line.output().expect("the built program starts"))
    };
    let shared = beside(&program, "", &["curl", "-sS", &page]);
    assert_eq!(shared.out, "hello", "{}", shared.err);
    shared.says(&format!("curtsy: this command goes through the curtsy that runs on {}\n", program.address()));
    shared.says("curtsy: HTTPS is only paced there, unread; --own decrypts it, or `curtsy --intercept`\n");
    let from_curl = |line: &String| line.contains("\"name\":\"curl\"") && line.contains(&page);
    assert!(soon(|| program.stdout().iter().any(from_curl)), "{:#?}", program.stdout());
    let scripted = beside(&program, "", &["sh", "-c", "echo $http_proxy"]);
    assert_eq!(scripted.out, format!("http://sh:x@{}\n", program.address()));
    assert_eq!(beside(&program, "--as news", &["sh", "-c", "echo $http_proxy"]).out.find("http://news:x@"), Some(0));

    let own = beside(&program, "--own --delay 10ms", &["curl", "-sS", &page]);
    assert!(own.out == "hello" && !own.err.contains("a curtsy runs"), "{}", own.err);
    own.says("curtsy: proxy for this command: ");
    let slower = beside(&program, "--delay 10ms", &["curl", "-sS", &page]);
    slower.says("curtsy: a curtsy runs, but --delay needs a proxy of its own:\n");
    slower.says("curtsy: 1 request to 1 host");
    let admin = program.admin().to_string();
    program.stop();
    let alone = home.run(&format!("--admin {admin} --delay 10ms"), &["curl", "-sS", &page]);
    assert_eq!(alone.out, "hello", "{}", alone.err);
    alone.says(&format!("curtsy: no curtsy runs on {admin}: this command has its own proxy\n"));
}

/// A curtsy that the command cannot use does not keep it from running.
#[test]
fn a_running_curtsy_that_cannot_be_used_is_left_alone() {
    let (home, origin) = (Home::new(), with_rules());
    let users = home.path("users");
    std::fs::write(&users, "news:$2y$05$HhyNFIzdXkBl1rSzsI5hl.ZBmCXW4QwBGHt4FAAcV1ynmQjV0XPhe\n").unwrap();
    let cases = [
        ("[metrics]\ntoken = \"secret\"\n".to_owned(), "wants a token (metrics.token):\n"),
        (format!("[access]\nusers_file = {users:?}\n"), "wants a user and a password:\n"),
        ("[access]\nallow = [\"10.0.0.0/8\"]\n".to_owned(), "does not accept requests from here:\n"),
    ];
    for (tables, why) in cases {
        let program = Program::start("admin = \"127.0.0.1:0\"", &tables);
        let mut line = home.exec("");
        line.env("CURTSY_ADMIN", program.admin().to_string());
        let done = Done::of(line.args(["--", "curl", "-sS", &origin.url("/a")]).output().expect("it starts"));
        assert_eq!(done.out, "hello", "{}", done.err);
        done.says(&format!("curtsy: the curtsy on {} {why}", program.admin()));
        done.says("curtsy: this command has its own proxy, which shares no budget with that one\n");
    }
    // Something that is not curtsy, and something that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    for admin in [origin.authority(), silent.local_addr().unwrap().to_string()] {
        let mut line = home.exec("");
        line.env("CURTSY_ADMIN", admin).args(["--", "true"]);
        let done = Done::of(line.output().expect("the built program starts"));
        assert!(done.code == Some(0) && done.err.starts_with("curtsy: proxy for this command"), "{}", done.err);
    }
}

/// The proxy that the environment named becomes the parent proxy.
#[test]
fn the_proxy_of_before_becomes_the_parent() {
    let (home, origin, outer) = (Home::new(), with_rules(), Program::start("", ""));
    let before = format!("http://{}", outer.address());
    let mut command = home.exec("--delay 10ms");
    command.env("http_proxy", &before).args(["--", "curl", "-sS", &origin.url("/a")]);
    let done = Done::of(command.output().expect("the built program starts"));
    assert_eq!(done.out, "hello", "{}", done.err);
    done.says("requests go through the proxy that http_proxy named");
    let via = origin.requests(1).iter().find(|request| request.line().contains("/a")).unwrap().value("Via");
    assert!(via.contains("front-desk") && via.contains("curtsy-"), "{via}");
}

/// Real clients trust the CA that is made for this run, and its files are deleted at the end.
#[test]
fn a_command_can_trust_what_reads_its_https() {
    let (home, authority) = (Home::new(), Authority::new());
    let origin = secure_with_rules(&authority);
    let (page, denied) = (tls_origin::https(&origin, "/a"), tls_origin::https(&origin, "/private/x"));
    std::fs::write(home.path(".wgetrc"), "user_agent = of-before\n").unwrap();
    let python = format!("import urllib.request; print(urllib.request.urlopen('{page}').read().decode(), end='')");
    let script = format!(
        "curl -sS {page} && wget -qO- {page} && python3 -c \"{python}\" && curl -sS {denied} -o /dev/null -w %{{http_code}}
         stat -c ' %a' $(dirname $SSL_CERT_FILE) $SSL_CERT_FILE | tr '\\n' ' '; grep -c BEGIN $NODE_EXTRA_CA_CERTS"
    );
    let mut command = home.exec("--delay 10ms");
    command.env("CURTSY_TLS__EXTRA_ROOTS", authority.file()).args(["--", "sh", "-c", &script]);
    let done = Done::of(command.output().expect("the built program starts"));
    assert_eq!(done.out, "hellohellohello403 700  600 2\n", "the CA and the extra root: {}", done.err);
    assert!(origin.requests(4).iter().any(|request| request.value("User-Agent") == "of-before"), "wget's own file");
    done.says("HTTPS is decrypted with a CA that only this command trusts");
    done.says("curtsy: 3 requests to 1 host in ");
    done.says("1 denied by robots.txt");
    let left: Vec<_> = std::fs::read_dir(home.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("curtsy-")), "{left:?}");
    assert!(!std::path::Path::new(&home.path("state/curtsy/ca.key")).exists(), "no CA is kept");
}

/// Roots that the environment names for one client are trusted, by curtsy and by the command in its tunnels.
#[test]
fn roots_of_the_environment_still_count() {
    let (home, authority) = (Home::new(), Authority::new());
    let origin = secure_with_rules(&authority);
    let page = tls_origin::https(&origin, "/a");
    for arguments in ["--delay 10ms", "--delay 10ms --bypass 127.0.0.2"] {
        let mut command = home.exec(arguments);
        command.env("REQUESTS_CA_BUNDLE", authority.file()).args(["--", "curl", "-sS", &page]);
        let done = Done::of(command.output().expect("the built program starts"));
        assert_eq!(done.out, "hello", "{arguments}: {}", done.err);
    }
    let unknown = home.run("--delay 10ms", &["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", &page]);
    assert_eq!(unknown.out, "502", "nothing names them now: {}", unknown.err);
}

/// HTTPS is tunnelled where the user wants it: with an option, for a host, or by a setting, which an option overrides.
#[test]
fn https_is_tunnelled_on_request() {
    let (home, authority) = (Home::new(), Authority::new());
    let origin = secure_with_rules(&authority);
    let denied = tls_origin::https(&origin, "/private/x");
    let fetch = |arguments: &str, setting: &str| {
        let mut command = home.exec(&format!("--delay 10ms {arguments}"));
        command.env("CURTSY_TLS__EXTRA_ROOTS", authority.file()).env("CURL_HOME", home.0.path());
        if let Some((name, value)) = setting.split_once('=') {
            command.env(name, value);
        }
        // Inside a tunnel curl sees the origin's own certificate.
        command.args(["--", "curl", "-sS", "-o", "page", "-w", "%{http_code} ", &denied]);
        command.arg("--cacert").arg(authority.file());
        Done::of(command.output().expect("the built program starts"))
    };
    let tunnelled = fetch("--no-intercept", "");
    assert_eq!(tunnelled.out, "200 ", "the path is not seen: {}", tunnelled.err);
    tunnelled.says("HTTPS went through tunnels, unread");
    let by_host = fetch("--bypass 127.0.0.2 --bypass other.test", "");
    assert_eq!(by_host.out, "200 ", "{}", by_host.err);
    let both = fetch("--bypass other.test", "CURTSY_TLS__BYPASS=127.0.0.2");
    assert_eq!(both.out, "200 ", "the configured hosts count, too: {}", both.err);
    let configured = fetch("", "CURTSY_TLS__INTERCEPT=false");
    assert_eq!(configured.out, "200 ", "{}", configured.err);
    configured.says("HTTPS is tunnelled, unread: tls.intercept is false in\ncurtsy: env CURTSY_TLS__INTERCEPT;");
    let overridden = fetch("--intercept", "CURTSY_TLS__INTERCEPT=false");
    assert_eq!(overridden.out, "000 ", "curl trusts only the origin's CA: {}", overridden.err);
    let wrong = fetch("--bypass http://x/", "");
    assert_eq!(wrong.code, Some(1), "{}", wrong.err);
    wrong.says("--bypass");
}

/// A client that does not trust the CA fails once. Then its HTTPS to that host is tunnelled, and the summary says what
/// was lost.
#[test]
fn a_rejected_certificate_is_noticed_and_told() {
    let (home, authority) = (Home::new(), Authority::new());
    let origin = secure_with_rules(&authority);
    let (page, denied) = (tls_origin::https(&origin, "/a"), tls_origin::https(&origin, "/private/x"));
    let pinned = format!("curl -sS --cacert {} -o /dev/null -w '%{{http_code}} '", authority.file().display());
    let script = format!("{pinned} {page}; {pinned} {page}; {pinned} {denied}");
    let mut command = home.exec("--delay 10ms");
    command.env("CURTSY_TLS__EXTRA_ROOTS", authority.file()).args(["--", "sh", "-c", &script]);
    let done = Done::of(command.output().expect("the built program starts"));
    assert_eq!(done.out, "000 200 200 ", "{}", done.err);
    done.says("curl rejected curtsy's certificate for 127.0.0.2: it answered with the alert UnknownCA.");
    let told = "\
curtsy: 127.0.0.2: curl rejected curtsy's certificate; since then:
curtsy:   2 requests in tunnels, where robots.txt paths and 429 do not count
curtsy:   --bypass 127.0.0.2 tunnels it from the start
";
    done.says(told);
    let mut strict = home.exec("--delay 10ms");
    strict.env("CURTSY_TLS__EXTRA_ROOTS", authority.file()).env("CURTSY_TLS__ON_UNTRUSTED", "error");
    let strict = Done::of(strict.args(["--", "sh", "-c", &script]).output().expect("the built program starts"));
    assert_eq!(strict.out, "000 000 000 ", "what the user has set counts: {}", strict.err);
    assert_eq!(strict.err.matches("rejected curtsy's certificate for").count(), 1, "{}", strict.err);
    strict.says("127.0.0.2: curl rejected curtsy's certificate; no request came after that\n");
}

/// Some clients open a connection only to learn whether the origin speaks HTTP/2, and close it. One whose requests come
/// over other connections trusts the CA.
#[test]
fn a_connection_that_only_looks_is_no_rejection() {
    let (home, authority) = (Home::new(), Authority::new());
    let origin = secure_with_rules(&authority);
    let script = r#"
import os, socket, ssl, sys, time
from urllib.parse import urlsplit
proxy, page = urlsplit(os.environ["https_proxy"]), urlsplit(sys.argv[1])
def connect():
    plain = socket.create_connection((proxy.hostname, proxy.port))
    plain.sendall(f"CONNECT {page.netloc} HTTP/1.1\r\nHost: {page.netloc}\r\n\r\n".encode())
    assert b" 200 " in plain.recv(4096)
    return ssl._create_unverified_context().wrap_socket(plain, server_hostname=page.hostname)
def get(tls, path):
    tls.sendall(f"GET {path} HTTP/1.1\r\nHost: {page.netloc}\r\n\r\n".encode())
    print(tls.recv(4096).split()[1].decode())
first = connect()
get(first, "/a")
connect().close()
time.sleep(1)
get(connect(), "/private/x")
"#;
    let mut command = home.exec("--delay 10ms");
    command.env("CURTSY_TLS__EXTRA_ROOTS", authority.file());
    command.args(["--", "python3", "-c", script, &tls_origin::https(&origin, "/a")]);
    let done = Done::of(command.output().expect("the built program starts"));
    assert_eq!(done.out, "200\n403\n", "the last request was intercepted: {}", done.err);
    assert!(!done.err.contains("rejected"), "{}", done.err);
}

/// Java's `keytool` reads the trust store that curtsy makes for Java.
#[test]
fn java_reads_its_trust_store() {
    if Command::new("keytool").arg("-help").output().is_err() {
        eprintln!("not tried, because Java is not installed");
        return;
    }
    let script = "keytool -list -storepass changeit -keystore $(dirname $SSL_CERT_FILE)/trust.jks 2>/dev/null
                  grep -c BEGIN $SSL_CERT_FILE; echo $JAVA_TOOL_OPTIONS";
    let done = Home::new().run("--java", &["sh", "-c", script]);
    let bundled = done.out.lines().rev().nth(1).expect("a number").to_owned();
    assert_eq!(done.out.matches("trustedCertEntry").count().to_string(), bundled, "{}", done.out);
    assert!(done.out.contains("-Djavax.net.ssl.trustStore="), "{}", done.out);
}

/// With `--isolate` a connection that does not use the proxy fails.
#[test]
fn an_isolated_command_has_no_other_way_out() {
    let permitted =
        Command::new("unshare").args(["--user", "--net", "true"]).output().expect("util-linux is installed");
    if !permitted.status.success() {
        eprintln!("not tried, because this system does not permit it: {}", String::from_utf8_lossy(&permitted.stderr));
        return;
    }
    let (home, origin) = (Home::new(), with_rules());
    let url = origin.url("/a");
    let script = format!("curl -sS --noproxy '*' -m 5 {url}/past || echo none; curl -sS {url}; id -u; exit 9");
    let done = home.run("--isolate --delay 10ms", &["sh", "-c", &script]);
    let user = Command::new("id").arg("-u").output().expect("a user").stdout;
    let user = String::from_utf8_lossy(&user);
    assert_eq!((done.code, done.out), (Some(9), format!("none\nhello{user}")), "{}", done.err);
    assert_eq!(pages(&origin), ["GET /a HTTP/1.1"]);
    assert!(done.err.contains("curtsy: 1 request to 1 host in "), "{}", done.err);
    let missing = home.run("--isolate", &["no-such-command"]);
    assert_eq!(missing.code, Some(127), "{}", missing.err);
    assert!(missing.err.contains("no-such-command cannot be run"), "{}", missing.err);
}

/// If the system does not permit `--isolate`, the command is not run and the message says what is missing. The test
/// runs in a user namespace that permits no further ones.
#[test]
fn isolation_that_is_not_permitted_is_explained() {
    let home = Home::new();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces || exit 77; exec \"$0\" exec --isolate -- echo ran";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, env!("CARGO_BIN_EXE_curtsy")]);
    command.env("HOME", home.0.path()).env("CURTSY_STATE_DIR", "memory").env_remove("http_proxy");
    let done = Done::of(command.output().expect("util-linux is installed"));
    if done.code == Some(77) || done.err.starts_with("unshare") {
        eprintln!("not tried, because this system does not permit the limit to be set: {}", done.err);
        return;
    }
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.err);
    done.says("--isolate needs a user and a network namespace");
    done.says("sysctl user.max_user_namespaces");
}

/// The user name in a proxy URL is the client's name if no passwords are configured.
#[test]
fn a_client_is_known_by_the_name_in_its_proxy_url() {
    let (origin, program) = (Origin::hello(), Program::start("admin = \"127.0.0.1:0\"", "[log]\naccess = \"-\"\n"));
    let line = [&origin.get("/") as &str, "Host: x", "Proxy-Authorization: Basic bmV3czp4"];
    assert_eq!(Client::connect(program.address()).ask(&line).status(), 200);
    assert!(soon(|| program.stdout().iter().any(|line| line.contains("news"))), "{:#?}", program.stdout());
    assert_eq!(origin.request().value("Proxy-Authorization"), "");
}
