"""Shared by the deployment checks: programs that end with the test, an origin, and tools that may be missing."""

import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# What is fetched for the checks stays here for the next run.
KEPT = ROOT / "target" / "deploy"
PATIENCE = 30


class NotPossible(Exception):
    """A check cannot run on this machine; the message says why."""


class Program:
    """A program that writes to a log and ends with the test."""

    def __init__(self, command, log, **options):
        self.log = pathlib.Path(log)
        options.setdefault("env", environment())
        words = [str(part) for part in command]
        self.process = subprocess.Popen(words, stdout=self.log.open("w"), stderr=subprocess.STDOUT, **options)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.kill()
        self.process.wait()
        if kind is not None:
            print(f"--- the end of {self.log.name}", *self.log.read_text().splitlines()[-20:], sep="\n", file=sys.stderr)

    def ready(self):
        """Waits for curtsy's ready line and returns it."""
        return wait(lambda: self.event("ready"), "curtsy to be ready")

    def event(self, name):
        assert self.process.poll() is None, f"it has ended with {self.process.returncode}: {self.log.read_text()}"
        lines = (line for line in self.log.read_text().splitlines() if line.startswith("{"))
        return next((told for told in map(json.loads, lines) if told.get("event") == name), None)

    def stop(self, within):
        """Stops the program as an operator does and returns the seconds that this took."""
        began = time.monotonic()
        self.process.terminate()
        code = self.process.wait(within)
        assert code == 0, f"it ended with {code}: {self.log.read_text()}"
        return time.monotonic() - began


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_):
        pass


def start_origin(address="127.0.0.1"):
    server = http.server.ThreadingHTTPServer((address, 0), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"{address}:{server.server_port}"


def get(url, proxy):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://{proxy}"}))
    with opener.open(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def environment(**more):
    """The environment of the test run, without proxies and settings of curtsy."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CURTSY_") and not name.lower().endswith("_proxy")
    }
    return mine | more


def wait(condition, what):
    """Waits until the condition is true and returns its value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


def said(*command, refused=False, **options):
    """What a command prints; it must succeed, or fail if it is to be refused."""
    words = [str(part) for part in command]
    options = {"text": True, "capture_output": True, "timeout": 120, "env": environment()} | options
    done = subprocess.run(words, **options)
    assert (done.returncode != 0) == refused, f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def need(**packages):
    """Installs the Debian packages of commands that are missing. Underscores stand for dashes."""
    named = {command.replace("_", "-"): package for command, package in packages.items()}
    missing = [package for command, package in named.items() if not shutil.which(command)]
    if not missing:
        return
    if os.getuid() != 0 or not shutil.which("apt-get"):
        raise NotPossible(f"please install {' '.join(missing)}")
    print(f"  installing {' '.join(missing)}")
    quietly = environment(DEBIAN_FRONTEND="noninteractive")
    said("apt-get", "update", "-qq", env=quietly)
    install = ["apt-get", "install", "-o", "DPkg::Lock::Timeout=300", "-y", "-qq", "--no-install-recommends"]
    said(*install, *missing, env=quietly, timeout=600)


def build():
    subprocess.run(["cargo", "build", "--locked", "--quiet", "--bin", "curtsy"], cwd=ROOT, check=True)
    return (ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug/curtsy").resolve()
