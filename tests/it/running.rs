//! Start, stop and reload: signals, drains, and a shortage of file descriptors.

use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use curtsy::config::{Destination, FileChoice, Sources};

use crate::support::deadline::Stopwatch;
use crate::support::origin::HELLO;
use crate::support::program::{curtsy, run};
use crate::support::{Client, Curtsy, Origin, PATIENCE, Program, ms, soon};

/// An origin that answers each request when the test says so.
fn patient_origin() -> (Origin, mpsc::Sender<()>) {
    let (answer, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            if wait.lock().expect("one waits at a time").recv_timeout(PATIENCE).is_ok() {
                visitor.send(HELLO);
            }
        }
    });
    (origin, answer)
}

/// Sends a request that the origin has received and not answered.
fn in_flight(program: &Program, origin: &Origin) -> Client {
    let mut client = program.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    origin.request();
    client
}

#[test]
fn a_signal_lets_requests_in_flight_finish() {
    for signal in ["TERM", "INT"] {
        let ((origin, answer), mut program) = (patient_origin(), Program::start("", ""));
        let mut client = in_flight(&program, &origin);
        program.signal(signal);
        let address = program.address();
        assert!(soon(|| std::net::TcpStream::connect(address).is_err()), "no new client is let in");
        answer.send(()).unwrap();
        let response = client.response();
        assert_eq!((response.text().as_str(), response.value("Connection").as_str()), ("hello", "close"));
        client.expect_end();
        assert_eq!(program.wait().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_drain_has_an_end() {
    let ((origin, _answer), mut program) = (patient_origin(), Program::start("shutdown_grace = \"300ms\"", ""));
    let mut client = in_flight(&program, &origin);
    program.signal("TERM");
    program.wait();
    client.rest();
}

#[test]
fn a_second_signal_stops_at_once() {
    let ((origin, _answer), mut program) = (patient_origin(), Program::start("shutdown_grace = \"1h\"", ""));
    let mut client = in_flight(&program, &origin);
    program.signal("TERM");
    let address = program.address();
    assert!(soon(|| std::net::TcpStream::connect(address).is_err()));
    assert!(!program.has_ended());
    program.signal("TERM");
    program.wait();
    client.rest();
}

#[test]
fn idle_connections_do_not_hold_up_the_end() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.shutdown_grace = PATIENCE * 4));
    let mut idle = [curtsy.client(), curtsy.client()];
    assert_eq!(idle[1].ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    let watch = Stopwatch::start();
    curtsy.stop();
    assert!(watch.elapsed() < PATIENCE, "{:?}", watch.elapsed());
    idle.iter_mut().for_each(Client::expect_end);
}

#[test]
fn an_upload_in_flight_is_finished_too() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.shutdown_grace = PATIENCE));
    let mut client = curtsy.client();
    client.send(format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfirst", origin.url("/")));
    assert!(soon(|| origin.bytes().ends_with(b"first")));
    let address = curtsy.address();
    let stopping = thread::spawn(move || curtsy.stop());
    assert!(soon(|| std::net::TcpStream::connect(address).is_err()));
    client.send("later");
    assert_eq!(client.response().text(), "hello");
    stopping.join().unwrap();
}

#[test]
fn a_reload_counts_for_the_next_request_of_an_open_connection() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.access.allow_destinations.clear()));
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).refusal(), "destination-denied");
    curtsy.reload(|config| config.access.allow_destinations = vec![Destination::Net("127.0.0.0/8".parse().unwrap())]);
    assert!(soon(|| client.ask(&[&origin.get("/"), "Host: x"]).text() == "hello"));
}

const CLOSED: &str = "[access]\nallow_destinations = []\n";

fn becomes(program: &Program, origin: &Origin, status: u16) -> bool {
    soon(|| program.get(&origin.url("/")).status() == status)
}

#[test]
fn a_hangup_signal_reads_the_file_again() {
    let (origin, program) = (Origin::hello(), Program::start("watch = false", ""));
    assert_eq!(program.get(&origin.url("/")).status(), 200);
    program.rewrite("watch = false", CLOSED);
    program.signal("HUP");
    assert!(becomes(&program, &origin, 403));
    assert!(
        soon(|| program.stderr().iter().any(|line| line.contains("allow_destinations"))),
        "{:#?}",
        program.stderr()
    );
}

#[test]
fn a_supervisor_is_told_how_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("the supervisor is told something");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut command = curtsy();
    command.env("NOTIFY_SOCKET", &path);
    let program = Program::start_by(command, "", "");
    assert_eq!(heard(), "READY=1");
    program.signal("HUP");
    assert_eq!([heard(), heard()], ["RELOADING=1", "READY=1"]);
    program.stop();
    assert_eq!(heard(), "STOPPING=1");
}

#[test]
fn a_changed_file_is_noticed() {
    let (origin, program) = (Origin::hello(), Program::start("", ""));
    assert_eq!(program.get(&origin.url("/")).status(), 200);
    program.rewrite("", CLOSED);
    assert!(becomes(&program, &origin, 403));
}

/// A reload applies the whole file or nothing of it.
#[test]
fn a_broken_file_changes_nothing() {
    let (origin, program) = (Origin::hello(), Program::start("watch = false", ""));
    assert_eq!(program.get(&origin.url("/")).status(), 200);
    program.rewrite("watch = false", &format!("{CLOSED}max_client_conections = 3\n"));
    program.signal("HUP");
    assert!(
        soon(|| program.stderr().iter().any(|line| line.contains("max_client_conections"))),
        "{:#?}",
        program.stderr()
    );
    assert_eq!(program.get(&origin.url("/")).status(), 200);
}

/// X17
/// `cargo run` hands the variables of build.rs to the program.
#[test]
fn it_runs_by_cargo_too() {
    let (origin, mut command) = (Origin::hello(), curtsy());
    command.env("CURTSY_REVISION", "0123456789ab");
    let program = Program::start_by(command, "", "");
    assert_eq!(program.get(&origin.url("/")).text(), "hello");
}

#[test]
fn listening_to_the_world_needs_a_reason() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let (code, printed) = run(&["--listen", address, "--admin", "off", "--state-dir", "memory"]);
        assert_eq!(code, 1, "{printed}");
        assert!(printed.contains(address.split(":0").next().unwrap()) && printed.contains("allow"), "{printed}");
    }
    let program = Program::start("listen = [\"0.0.0.0:0\"]", "[access]\nallow = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n");
    assert!(program.event("ready").is_some());
}

/// X17
#[test]
fn it_listens_on_loopback_by_default() {
    let listen = curtsy::config::Config::default().listen;
    assert!(listen.iter().all(|curtsy::config::Listen::Tcp(address)| address.ip().is_loopback()));
}

/// X18: the image accepts clients from loopback and private networks, and from nowhere else.
#[test]
fn the_image_accepts_private_clients_only() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/image.toml");
    let sources = Sources { file: FileChoice::Path(file.clone()), ..Sources::default() };
    let allow = curtsy::config::load(&sources).expect("the image's configuration is sound").config.access.allow;
    let accepts = |ip: &str| allow.iter().any(|net| net.contains(&ip.parse::<IpAddr>().expect("an address")));
    for private in ["127.0.0.1", "::1", "10.9.8.7", "172.16.0.1", "172.31.255.254", "192.168.1.1", "fd00::1"] {
        assert!(accepts(private), "{private}");
    }
    for public in ["8.8.8.8", "172.15.0.1", "172.32.0.1", "192.169.0.1", "100.64.0.1", "169.254.1.1", "2001:db8::1"] {
        assert!(!accepts(public), "{public}");
    }
    // The program obeys this list: with the image's own, a client that is on it gets through to the origin.
    let (text, origin) = (std::fs::read_to_string(file).expect("a file of this repository"), Origin::hello());
    let line = text.lines().find(|line| line.starts_with("allow = ")).expect("a list").to_owned();
    let tables = |allow: &str| format!("[access]\n{allow}\nallow_destinations = [\"127.0.0.0/8\"]\n");
    let program = Program::start("", &tables(&line));
    assert_eq!(program.get(&origin.url("/")).status(), 200);
    program.stop();
    // Without loopback on it, the same client is refused.
    let program = Program::start("", &tables(&line.replace("\"127.0.0.0/8\", ", "")));
    assert_eq!(program.get(&origin.url("/")).status(), 403);
    assert_eq!(origin.count(), 1);
}

#[test]
fn an_address_in_use_is_said_to_be_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, printed) = run(&["--listen", &address, "--admin", "off", "--state-dir", "memory"]);
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains(&address) && printed.contains("cannot listen"), "{printed}");
}

#[test]
fn five_mistakes_are_five_messages() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mistakes =
        "listen = []\nshutdown_grace = 30\n[politeness]\ndelya = \"1s\"\nburst = -1\n[log]\nformat = \"xml\"\n";
    std::fs::write(file.path(), mistakes).unwrap();
    let (code, printed) = run(&["--config", file.path().to_str().unwrap()]);
    assert_eq!(code, 1, "{printed}");
    for mistake in ["listen", "shutdown_grace", "delya", "burst", "format"] {
        assert!(printed.contains(mistake), "{mistake} in {printed}");
    }
    assert!(printed.contains("did you mean `delay`"), "{printed}");
}

#[test]
fn an_unknown_argument_is_a_mistake_of_use() {
    assert_eq!(run(&["--no-such-flag"]).0, 2);
    assert_eq!(run(&["--config", "/no/such/file.toml"]).0, 1);
    assert_eq!(run(&["--version"]), (0, format!("curtsy {}\n", env!("CARGO_PKG_VERSION"))));
}

/// S17: the name is made once and stored.
#[test]
fn the_name_survives_a_restart() {
    let (origin, directory) = (Origin::hello(), tempfile::tempdir().unwrap());
    let top = format!("name = \"auto\"\nstate_dir = {:?}", directory.path().to_str().unwrap());
    for _ in 0..2 {
        Program::start(&top, "").get(&origin.url("/"));
    }
    let requests = origin.requests(2);
    assert!(requests[0].value("Via").starts_with("1.1 curtsy-"));
    assert_eq!(requests[0].value("Via"), requests[1].value("Via"));
}

/// X40
#[test]
fn a_shortage_of_descriptors_is_survived() {
    let origin = Origin::scripted(|visitor| {
        while let Ok(bytes) = visitor.read_some() {
            visitor.send(bytes);
        }
    });
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_curtsy")]);
    let mut program = Program::start_by(shell, "", "");
    let mut tunnel = program.client();
    assert_eq!(tunnel.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]).status(), 200);
    let crowd: Vec<Client> = (0..100).map(|_| program.client()).collect();
    tunnel.send("still here");
    assert_eq!(tunnel.read_exactly(10), Ok(b"still here".to_vec()));
    drop(crowd);
    let (hello, again) =
        (Origin::hello(), |client: &mut Client, line: &str| client.ask(&[line, "Host: x"]).status() == 200);
    assert!(again(&mut program.client(), &hello.get("/")), "clients after the crowd are served");
    assert!(!program.has_ended());
}

/// Any worker may serve a connection.
#[test]
fn many_clients_at_once_all_get_their_answer() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.workers = 2));
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = curtsy.client();
                for _ in 0..20 {
                    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
                }
            });
        }
    });
    assert_eq!(origin.count(), 400);
}

#[test]
fn every_listener_is_served() {
    let (origin, program) = (Origin::hello(), Program::start("listen = [\"127.0.0.1:0\", \"[::1]:0\"]", ""));
    let addresses = program.addresses();
    assert_eq!(addresses.len(), 2);
    for address in addresses {
        assert_eq!(Client::connect(address).ask(&[&origin.get("/"), "Host: x"]).text(), "hello", "{address}");
    }
}

/// A tunnel counts as a request in flight.
#[test]
fn a_tunnel_lives_on_while_the_drain_lasts() {
    let origin = Origin::scripted(|visitor| {
        while let Ok(bytes) = visitor.read_some() {
            visitor.send(bytes);
        }
    });
    let mut program = Program::start("", "");
    let mut tunnel = program.client();
    assert_eq!(tunnel.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]).status(), 200);
    let address = program.address();
    program.signal("TERM");
    assert!(soon(|| std::net::TcpStream::connect(address).is_err()));
    tunnel.send("still here");
    assert_eq!(tunnel.read_exactly(10), Ok(b"still here".to_vec()));
    drop(tunnel);
    assert_eq!(program.wait().code(), Some(0));
}

/// X35: requests that are refused leave nothing behind.
#[test]
fn a_refused_crowd_leaves_the_proxy_as_it_was() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    for n in 0..500 {
        assert_eq!(
            client.ask(&[&format!("GET http://10.0.{}.{}/ HTTP/1.1", n / 250, n % 250), "Host: x"]).status(),
            403
        );
    }
    client.patience(ms(4_000));
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
}
