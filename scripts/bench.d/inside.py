"""The load inside TLS: tunnels that the proxy decrypts, with many requests on each connection, or one.

Python is slower than the proxies, so their CPU time counts here and not the rate.
"""

import contextlib
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from process import Failure

BODY = 1024
TUNNELS = 16


@dataclass(frozen=True)
class Keys:
    """The CAs: `ca` signs the proxies' certificates, `origin_ca` the origin's own."""

    ca: Path
    ca_key: Path
    origin_ca: Path
    origin: Path
    origin_key: Path


def make_keys(directory, host):
    """Make new keys and certificates for each run."""
    keys = Keys(*(directory / name for name in ["ca.pem", "ca.key", "origin-ca.pem", "origin.pem", "origin.key"]))
    origin_ca_key = directory / "origin-ca.key"
    authority = ["-x509", "-days", "30", "-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
    openssl("req", *authority, "-subj", "/CN=bench CA", "-out", keys.ca, "-keyout", keys.ca_key)
    openssl("req", *authority, "-subj", "/CN=origin CA", "-out", keys.origin_ca, "-keyout", origin_ca_key)
    server = ["-x509", "-days", "30", "-CA", keys.origin_ca, "-CAkey", origin_ca_key, "-subj", f"/CN={host}"]
    names = ["-addext", f"subjectAltName=IP:{host}", "-addext", "basicConstraints=critical,CA:FALSE"]
    openssl("req", *server, *names, "-out", keys.origin, "-keyout", keys.origin_key)
    for key in [keys.ca_key, keys.origin_key]:
        key.chmod(0o600)
    return keys


def openssl(command, *arguments):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run = subprocess.run(["openssl", command, *key, *map(str, arguments)], capture_output=True, text=True)
    if run.returncode != 0:
        raise Failure(f"openssl {command} failed: {run.stderr.strip()[-300:]}")


def kept(running, keys, origin, warm_up_s, measured_s):
    """Send requests on connections that stay open."""
    context = believing(keys)
    with contextlib.ExitStack() as stack:
        tunnels = [stack.enter_context(contextlib.closing(tunnel(running, context, origin))) for _ in range(TUNNELS)]
        ask_in_turn(tunnels, origin, warm_up_s)
        return measured(running, lambda: ask_in_turn(tunnels, origin, measured_s))


def fresh(running, keys, origin, warm_up_s, measured_s):
    """Open a tunnel for each request, with an origin that closes: both handshakes every time."""
    context = believing(keys)

    def one_each(seconds):
        asked, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.closing(tunnel(running, context, origin)) as stream:
                ask(stream, origin, "/close")
                read_answer(stream)
            asked += 1
        return asked

    one_each(warm_up_s)
    return measured(running, lambda: one_each(measured_s))


def measured(running, work):
    used, began = running.cpu_seconds(), time.monotonic()
    asked = work()
    seconds, used = time.monotonic() - began, running.cpu_seconds() - used
    if not asked:
        raise Failure("no request was answered in time")
    return {"cpu_us": used / asked * 1e6, "rate": asked / seconds, "memory_bytes": running.memory_bytes()}


def believing(keys):
    context = ssl.create_default_context(cafile=str(keys.ca))
    context.set_alpn_protocols(["http/1.1"])
    return context


def tunnel(running, context, origin):
    stream = socket.create_connection(running.address, timeout=30)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(f"CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = stream.recv(4096)
        if not piece:
            raise Failure(f"CONNECT was not answered: {answer[:200]!r}")
        answer += piece
    if b" 200 " not in answer.split(b"\r\n")[0]:
        raise Failure(f"CONNECT was answered with {answer[:200]!r}")
    return context.wrap_socket(stream, server_hostname=origin.rpartition(":")[0])


def ask_in_turn(tunnels, origin, seconds):
    asked, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for stream in tunnels:
            ask(stream, origin, "/1k")
        for stream in tunnels:
            read_answer(stream)
        asked += len(tunnels)
    return asked


def ask(stream, origin, path):
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {origin}\r\nUser-Agent: curtsy-bench/1.0\r\nAccept: */*\r\n\r\n".encode())


def read_answer(stream):
    answer = b""
    while True:
        head, end, body = answer.partition(b"\r\n\r\n")
        if end and len(body) >= BODY:
            break
        piece = stream.recv(16384)
        if not piece:
            raise Failure(f"the answer ended early: {answer[:200]!r}")
        answer += piece
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise Failure(f"answered {head[:200]!r}")
