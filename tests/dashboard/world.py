"""A running curtsy with a small internet behind it: one program plays every origin, as curtsy's parent proxy."""

import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

ROBOTS = {
    "example.com": "User-agent: *\nCrawl-delay: 10\nDisallow: /private/\n",
    "archive.example.org": "User-agent: *\nCrawl-delay: 2\n",
}


class Origins(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/robots.txt":
            text = ROBOTS.get(url.hostname)
            return self.answer(200, text) if text else self.answer(404, "none")
        if url.hostname.startswith("shop.") and "busy" in url.path:
            return self.answer(429, "slow down", {"Retry-After": "30"})
        if url.path.endswith("/missing"):
            return self.answer(404, "not here")
        if url.path == "/kept":
            return self.answer(200, "k" * 1700, {"Cache-Control": "max-age=600"})
        time.sleep(0.02)  # a slow origin
        self.answer(200, f"<p>{url.path}</p>\n" * 20)

    def answer(self, status, text, fields=None):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (fields or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, *_):
        pass  # the client disconnected


class Redis:
    """A redis-server for as long as the block runs."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="curtsy-redis-")
        for _ in range(20):
            port = random.randrange(16_000, 22_700)  # below the ports that the system gives to clients
            argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder]
            self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if self.answers(port):
                self.url = f"redis://127.0.0.1:{port}"
                return self
        raise SystemExit("redis-server does not start")

    def answers(self, port):
        while self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return self.process.poll() is None
            time.sleep(0.02)
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Curtsy:
    def __init__(self, program, settings=""):
        self.program = program
        self.origins = Server(("127.0.0.1", 0), Origins)
        threading.Thread(target=self.origins.serve_forever, daemon=True).start()
        self.folder = tempfile.mkdtemp(prefix="curtsy-dashboard-")
        path = os.path.join(self.folder, "config.toml")
        with open(path, "w") as file:
            file.write(f'listen = ["127.0.0.1:0"]\nadmin = "127.0.0.1:0"\nstate_dir = "memory"\nname = "front-desk"\n'
                       f'{settings}\n[upstream]\nproxy = "http://127.0.0.1:{self.origins.server_port}"\n')
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("CURTSY_") and not name.lower().endswith("_proxy")}
        environment["CURTSY_LOG__FORMAT"] = "json"
        self.process = subprocess.Popen([program, "--config", path, "run"], stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, env=environment, text=True)
        for line in self.process.stderr:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "ready":
                self.proxy, self.admin = event["proxy"], event["admin"]
                break
        else:
            raise SystemExit("curtsy did not get ready")
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()
        self.url = f"http://{self.admin}"

    def api(self, path, method="GET", body=None):
        connection = http.client.HTTPConnection(self.admin, timeout=20)
        fields = {"Content-Type": "application/json"} if method != "GET" else {}
        connection.request(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, fields)
        answer = connection.getresponse()
        return json.loads(answer.read())

    def fetch(self, url, client=None):
        """Sends one request through the proxy: its status, or None if it was cut off."""
        try:
            connection = http.client.HTTPConnection(self.proxy, timeout=180)
            connection.request("GET", url, headers={"Curtsy-Client": client} if client else {})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except OSError:
            return None

    def fetch_later(self, *urls, client=None):
        for url in urls:
            threading.Thread(target=self.fetch, args=(url, client), daemon=True).start()

    def cpu(self):
        """Seconds of processor time so far."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.origins.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)
