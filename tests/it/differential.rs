//! Compares the requests that curtsy logs as forwarded with the requests that foreign HTTP servers parse. If two
//! parsers disagreed about where a request ends, they would see different requests.
//!
//! The origins are Python's `http.server` and, where it is installed, Node's `http`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::support::{Program, ms, soon};

/// An origin in another process, with every request that it has parsed.
struct Parser {
    child: Child,
    port: u16,
    read: Arc<Mutex<Vec<String>>>,
}

impl Parser {
    /// `None` if the program is not installed.
    fn start(program: &str, script: &str) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parsers").join(script);
        let mut child = Command::new(program).arg(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe was asked for")).lines();
        let port = lines.next().expect("its port").expect("text").parse().expect("a number");
        let read = Arc::<Mutex<Vec<String>>>::default();
        let noted = read.clone();
        thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| noted.lock().expect("no thread has panicked").push(line));
        });
        Some(Parser { child, port, read })
    }

    /// Method, path and length of the body of each request.
    fn requests(&self) -> Vec<(String, String, u64)> {
        let lines = self.read.lock().expect("no thread has panicked").clone();
        let read = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        read.map(|seen| (text(&seen[0]), text(&seen[1]), seen[2].as_u64().expect("a length"))).collect()
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Version, fields and body of each request, with every trick of `framing` and some more.
fn corpus() -> Vec<(&'static str, String, String)> {
    let chunks = "3\r\nabc\r\n0\r\n\r\n";
    let mut cases = Vec::new();
    let mut add = |version, fields: &str, body: &str| cases.push((version, fields.to_owned(), body.to_owned()));
    for length in [
        "3",
        "03",
        "+3",
        "-1",
        "0x3",
        "3,4",
        "3, 3",
        "",
        "3 3",
        "3.0",
        "abc",
        "99999999999999999999999",
        "3;q=1",
        "\"3\"",
        " 3 ",
        "\t3",
        "3\r\nContent-Length: 3",
        "3\r\nContent-Length: 4",
        "4\r\nContent-Length: 3",
        "3\r\nX: 1\r\nContent-Length: 3",
        "0",
        "0\r\nContent-Length: 3",
    ] {
        add("1.1", &format!("Content-Length: {length}"), "abc");
    }
    for coding in [
        "chunked",
        "Chunked",
        " chunked ",
        "\tchunked",
        "xchunked",
        "chunked, identity",
        "chunked,chunked",
        "chunked\r\nTransfer-Encoding: chunked",
        "identity",
        "gzip, chunked",
        "\"chunked\"",
        "chunked;q=1",
        "chunked\r\nTransfer-Encoding: identity",
        ", chunked",
        "chunked,",
        "\x0bchunked",
        "chunked\x0b",
        "chunked chunked",
    ] {
        add("1.1", &format!("Transfer-Encoding: {coding}"), chunks);
    }
    for fields in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "Transfer-Encoding : chunked",
        "Content-Length : 3",
        "Transfer_Encoding: chunked\r\nContent-Length: 0",
        "Connection: Content-Length\r\nContent-Length: 3",
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
        "X: a\rContent-Length: 3",
        "X: a\r\n Content-Length: 3",
        "X: a\nContent-Length: 3",
        "Content-Length: 3\nX: 1",
        "X\0: 1\r\nContent-Length: 3",
        "Expect: x\r\nContent-Length: 3",
    ] {
        add("1.1", fields, "abc");
        add("1.1", fields, chunks);
    }
    for body in [
        "3\r\nabc\r\n0\r\n\r\n",
        "03\r\nabc\r\n0\r\n\r\n",
        "3;a=b\r\nabc\r\n0;c\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFF3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: 1\r\n\r\n",
        "3\r\nabc\r\n0\r\nno colon\r\n\r\n",
        "3\r\nabc\r\n00\r\n\r\n",
        "3;\"a\nb\"\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n\r\n0\r\n\r\n",
        "a\r\n0\r\n\r\nGET /\r\n0\r\n\r\n",
    ] {
        add("1.1", "Transfer-Encoding: chunked", body);
    }
    add("1.0", "Transfer-Encoding: chunked", chunks);
    add("1.0", "Content-Length: 3", "abc");
    add("1.0", "Content-Length: 3\r\nConnection: keep-alive", "abc");
    cases
}

/// Sends each case and then a second request on the same connection.
fn send_all(program: &Program, port: u16) {
    for (number, (version, fields, body)) in corpus().into_iter().enumerate() {
        let mut client = program.client();
        client.patience(ms(2_000));
        client.send(format!(
            "POST http://127.0.0.1:{port}/case/{number} HTTP/{version}\r\nHost: x\r\n{fields}\r\n\r\n{body}\
             GET http://127.0.0.1:{port}/next/{number} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        ));
        client.read_to_end();
    }
}

/// Method and path of each request that the log says an origin answered with 200.
fn logged(program: &Program, port: u16) -> BTreeSet<(String, String)> {
    let origin = format!("http://127.0.0.1:{port}");
    let lines = program.stdout();
    let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    lines
        .filter(|line| line["status"] == 200 && line["error"].is_null())
        .filter_map(|line| Some((text(&line["method"]), line["url"].as_str()?.strip_prefix(&origin)?.to_owned())))
        .collect()
}

/// X27
#[test]
fn origins_by_others_read_what_curtsy_says_it_sent() {
    let python = Parser::start("python3", "origin.py").expect("python3 is installed");
    let parsers: Vec<Parser> = [Some(python), Parser::start("node", "origin.js")].into_iter().flatten().collect();
    let program = Program::start("", "[log]\naccess = \"-\"\nformat = \"json\"\n");
    thread::scope(|scope| parsers.iter().for_each(|parser| drop(scope.spawn(|| send_all(&program, parser.port)))));
    let mut views = Vec::new();
    for parser in &parsers {
        let read = || parser.requests().into_iter().map(|(method, path, _)| (method, path)).collect::<BTreeSet<_>>();
        soon(|| read() == logged(&program, parser.port));
        assert_eq!(read(), logged(&program, parser.port), "read on the left, logged on the right");
        assert_eq!(read().len(), parser.requests().len(), "something was read twice");
        assert!(read().len() > 20, "most of the corpus goes nowhere, but not all of it: {:?}", read());
        let mut requests = parser.requests();
        requests.sort();
        views.push(requests);
    }
    assert!(views.windows(2).all(|pair| pair[0] == pair[1]), "two parsers read different requests: {views:#?}");
}
