//! `curtsy env`: real shells and other readers of such files understand what it prints.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::Program;
use crate::support::program::curtsy;

/// A value with every character that has a meaning in a shell.
const ODD: &str = r#"a b'c"d\e$f`g;h*i"#;

struct Scene {
    home: TempDir,
    program: Program,
}

impl Scene {
    fn new() -> Self {
        let program = Program::start("admin = \"127.0.0.1:0\"", "");
        Scene { home: tempfile::tempdir().expect("a writable temporary directory"), program }
    }

    fn proxy(&self) -> String {
        self.proxy_for(self.home.path().file_name().and_then(OsStr::to_str).expect("a name").trim_start_matches('.'))
    }

    /// The proxy with the name of a client. Without another name it is that of the current folder.
    fn proxy_for(&self, name: &str) -> String {
        format!("http://{name}:x@{}", self.program.address())
    }

    /// Runs a script in the given shell, with `curtsy` in its path, and returns what the script prints.
    fn shell(&self, shell: &str, script: &str) -> String {
        let admin = self.program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
        let programs = std::path::Path::new(env!("CARGO_BIN_EXE_curtsy")).parent().expect("a folder").display();
        let mut command = Command::new(shell);
        command.args(["-c", script]).current_dir(self.home.path()).stdin(Stdio::null()).env_clear();
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()));
        command.env("HOME", self.home.path()).env("CURTSY_ADMIN_URL", format!("http://{admin}"));
        command.env("NO_PROXY", ODD).env("HTTP_PROXY", "http://me:hunter2@corp:1").env("GIT_SSL_CAINFO", ODD);
        let output = command.output().unwrap_or_else(|error| panic!("{shell}: {error}"));
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).expect("it was written")
    }
}

/// `curtsy env --unset` restores the variables as they were before, even if they were set twice.
#[test]
fn shells_take_the_variables_and_give_them_back() {
    let scene = Scene::new();
    let extended = format!("{ODD},localhost,127.0.0.1,::1");
    let told = format!("{}\n{extended}\n1\n{ODD}\n", scene.proxy());
    let restored = format!("http://me:hunter2@corp:1\n{ODD}\nunset\n{ODD}\n");
    let show = r#"printf '%s\n' "$HTTP_PROXY" "$no_proxy" "$CURTSY_ACTIVE" "$GIT_SSL_CAINFO""#;
    let after =
        r#"printf '%s\n' "$HTTP_PROXY" "$NO_PROXY" "${http_proxy-unset}" "$GIT_SSL_CAINFO"; env | grep -c CURTSY_OLD"#;
    let script = format!(
        "set -eu; eval \"$(curtsy env)\"; {show}; eval \"$(curtsy env)\"; eval \"$(curtsy env --unset)\"; {after} || true
         eval \"$(curtsy env --unset)\"; echo $HTTP_PROXY"
    );
    for shell in ["sh", "bash"] {
        let printed = scene.shell(shell, &script);
        assert_eq!(printed, format!("{told}{restored}0\nhttp://me:hunter2@corp:1\n"), "{shell}");
    }
    if Command::new("fish").arg("--version").output().is_err() {
        eprintln!("fish is not installed, so it was not tried");
        return;
    }
    let show = r#"printf '%s\n' $HTTP_PROXY $no_proxy $CURTSY_ACTIVE $GIT_SSL_CAINFO"#;
    let script = format!(
        "curtsy env --format fish | source; {show}; curtsy env --format fish | source
         curtsy env --unset --format fish | source
         set -q http_proxy; and set -l lower set; or set -l lower unset
         printf '%s\n' $HTTP_PROXY $NO_PROXY $lower $GIT_SSL_CAINFO; env | string match -r CURTSY_OLD | count; true"
    );
    assert_eq!(scene.shell("fish", &script), format!("{told}{restored}0\n"), "fish");
}

/// The earlier values of the variables may be secret, so they are not printed.
#[test]
fn nothing_secret_is_printed() {
    let scene = Scene::new();
    for format in ["sh", "fish", "docker", "direnv", "json"] {
        let printed = scene.shell("sh", &format!("curtsy env --format {format}"));
        assert!(printed.contains(&scene.proxy()) && !printed.contains("hunter2"), "{format}: {printed}");
    }
}

/// A shell, docker's rules and a JSON parser read the right values from the files.
#[test]
fn files_are_read_as_they_were_meant() {
    let scene = Scene::new();
    scene.shell(
        "sh",
        "curtsy env --format docker --as news > docker.env; curtsy env --format json > vars.json
         curtsy env --format direnv > envrc; NO_PROXY='a b#\"$c' curtsy env --format dotenv > .env",
    );
    let lines = scene.file("docker.env");
    let docker: BTreeMap<&str, &str> = lines.lines().map(|line| line.split_once('=').expect("NAME=value")).collect();
    assert_eq!(docker["no_proxy"], format!("{ODD},localhost,127.0.0.1,::1"));
    assert_eq!(docker["https_proxy"], scene.proxy_for("news"));
    let json: BTreeMap<String, String> = serde_json::from_str(&scene.file("vars.json")).expect("JSON");
    assert_eq!(json["NO_PROXY"], docker["NO_PROXY"]);
    let read = |file: &str| scene.shell("sh", &format!("unset no_proxy; set -a; . ./{file}; env | grep ^no_proxy="));
    assert_eq!(read("envrc"), format!("no_proxy={ODD},localhost,127.0.0.1,::1\n"));
    assert_eq!(read(".env"), "no_proxy=a b#\"$c,localhost,127.0.0.1,::1\n");
    let refused = scene.shell("sh", "curtsy env --format dotenv 2>&1 || echo code $?");
    assert!(refused.contains("a quote") && refused.ends_with("code 1\n"), "{refused}");
}

/// The name of a folder stays on this machine, and is not sent to a curtsy that would take it for a user.
#[test]
fn the_default_name_is_that_of_the_folder_unless_it_could_do_harm() {
    let scene = Scene::new();
    let plain = format!("http://{}\n", scene.program.address());
    let show = |options: &str| {
        scene.shell(
            "sh",
            &format!("mkdir -p crawl-news; cd crawl-news; eval \"$(curtsy env {options})\"; echo $https_proxy"),
        )
    };
    assert_eq!(show(""), format!("{}\n", scene.proxy_for("crawl-news")));
    assert_eq!(show("--as ''"), plain);
    assert_eq!(show("--proxy http://proxy.test:8"), "http://proxy.test:8\n");
    assert_eq!(show("--proxy http://proxy.test:8 --as news"), "http://news:x@proxy.test:8\n");
    let users = scene.home.path().join("users");
    std::fs::write(&users, "ada:$2b$04$ufPArKFuESnVF8FbP4kRQeIzf5l42dP4D9uq5OaHdD6ce1Lq5JJL2\n")
        .expect("room for a file");
    let guarded = Program::start("admin = \"127.0.0.1:0\"", &format!("[access]\nusers_file = {users:?}\n"));
    let admin = guarded.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let told =
        scene.shell("sh", &format!("curtsy env --format docker --admin {admin} 2>&1 | grep -e users -e ^http_proxy"));
    assert!(told.starts_with("note: this curtsy wants users"), "{told}");
    assert!(told.ends_with(&format!("http_proxy=http://{}\n", guarded.address())), "{told}");
}

/// `curtsy exec` warns about it too.
#[test]
fn an_old_node_is_warned_about() {
    let scene = Scene::new();
    let told = |version: &str| {
        let node = format!("printf '#!/bin/sh\\necho {version}\\n' > node; chmod +x node");
        scene.shell("sh", &format!("{node}; PATH=.:$PATH curtsy env 2>&1 >/dev/null"))
    };
    assert!(told("v20.20.2").contains("note: node reads no proxy variables before version 22.21"));
    assert_eq!(told("v24.1.0"), "");
}

/// A shell with the variables must not keep trusting a CA that was replaced.
#[test]
fn a_replaced_ca_leaves_the_bundle() {
    let home = tempfile::tempdir().expect("a writable temporary directory");
    let run = |arguments: &[&str], roots: Option<&str>| {
        let mut command = curtsy();
        command.env("HOME", home.path()).env("CURTSY_STATE_DIR", home.path().join("state")).args(arguments);
        command
            .env("CURTSY_TLS__INTERCEPT", "true")
            .env("CURTSY_ADMIN", "off")
            .envs(roots.map(|file| ("SSL_CERT_FILE", file)));
        let output = command.output().expect("the built program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let env = |roots: Option<&str>| -> BTreeMap<String, String> {
        serde_json::from_str(&run(&["env", "--format", "json"], roots)).expect("JSON")
    };
    let old = run(&["ca", "export"], None);
    let bundle = env(None)["SSL_CERT_FILE"].clone();
    assert!(std::fs::read_to_string(&bundle).unwrap().ends_with(&old));
    run(&["ca", "rotate", "--now"], None);
    assert_eq!(env(Some(&bundle))["SSL_CERT_FILE"], bundle);
    let (text, new) = (std::fs::read_to_string(&bundle).unwrap(), run(&["ca", "export"], None));
    assert!(text.ends_with(&new) && !text.contains(&old), "the old CA is still in it");
}

/// Names the CA of a running curtsy that intercepts. Without a running curtsy, uses the address from `--proxy` and no
/// CA.
#[test]
fn the_ca_is_named_where_there_is_one() {
    let home = tempfile::tempdir().expect("a writable temporary directory");
    let state = home.path().join("state");
    let top = format!("admin = \"127.0.0.1:0\"\nstate_dir = {state:?}");
    let program = Program::start(&top, "[tls]\nintercept = true\n");
    let admin = program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let env = |arguments: &[&str]| {
        let mut command = curtsy();
        command.env("HOME", home.path()).env("CURTSY_STATE_DIR", &state).arg("env").args(arguments);
        let output = command.args(["--format", "json"]).output().expect("the built program starts");
        serde_json::from_slice::<BTreeMap<String, String>>(&output.stdout).expect("JSON")
    };
    let asked = ["--admin", &format!("http://{admin}")];
    let named = env(&asked);
    let (ca, bundle) = (&named["NODE_EXTRA_CA_CERTS"], &named["SSL_CERT_FILE"]);
    let (ca, bundle) = (std::fs::read_to_string(ca).unwrap(), std::fs::read_to_string(bundle).unwrap());
    assert_eq!(ca, program.get("http://curtsy.invalid/ca.pem").text());
    assert!(bundle.ends_with(&ca));
    assert!(!env(&[&asked[..], &["--no-ca"]].concat()).contains_key("SSL_CERT_FILE"));
    assert!(named["SSL_CERT_FILE"].contains("/trust/"), "{}", named["SSL_CERT_FILE"]);

    // The CA of another curtsy does not replace the CA of this one.
    let other = Program::start(
        &format!("admin = \"127.0.0.1:0\"\nstate_dir = {:?}", home.path().join("other")),
        "[tls]\nintercept = true\n",
    );
    let admin = other.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let theirs = env(&["--admin", &admin]);
    let their_ca = std::fs::read_to_string(&theirs["NODE_EXTRA_CA_CERTS"]).unwrap();
    assert_eq!(their_ca, other.get("http://curtsy.invalid/ca.pem").text());
    assert_eq!(std::fs::read_to_string(&named["NODE_EXTRA_CA_CERTS"]).unwrap(), ca, "it was not replaced");
    program.stop();
    let without = env(&["--proxy", "http://proxy.test:8"]);
    assert_eq!((without["http_proxy"].as_str(), without.get("SSL_CERT_FILE")), ("http://proxy.test:8", None));
}
