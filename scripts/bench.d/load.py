"""The load of each scenario, and the cost of one run of it.

Each function takes a running proxy and returns one flat dictionary of numbers, with units in the names.
"""

import contextlib
import http.client
import json
import math
import socket
import subprocess
import threading
import time
from dataclasses import dataclass

from process import Failure, cpu_seconds, memory_bytes

IDLE_CONNECTIONS = 1000
SAMPLE_EVERY_S = 0.02
SETTLE_S = 0.5
STALL_S = 1.0
AGENT = "curtsy-bench/1.0"

# wrk visits the hosts in turn. The requests are built once, so that each costs wrk one table look-up.
WRK_SCRIPT = """\
local hosts = {{ {hosts} }}
local requests, turn = {{}}, 0
function init()
  for i, host in ipairs(hosts) do
    requests[i] = "GET " .. {target} .. " HTTP/1.1\\r\\nHost: " .. host ..
      "\\r\\nUser-Agent: {agent}\\r\\nAccept: */*\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n"
  end
end
"""
# Asks for the prepared requests in turn, and prints what came back as JSON.
WRK_TURNS = """\
function request()
  turn = turn % #requests + 1
  return requests[turn]
end
function done(summary, latency)
  local e = summary.errors
  local form = '{"requests":%d,"bytes":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"failed":%d,"broken":%d}'
  print("RESULT " .. string.format(form,
    summary.requests, summary.bytes, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, e.status, e.connect + e.read + e.write + e.timeout))
end
"""


@dataclass(frozen=True)
class Running:
    """A running proxy, or the origin itself: then `pid` is None, and its costs are NaN."""

    pid: int | None
    address: tuple
    forwards: bool
    origin: str  # host:port of the first origin host

    def target(self, path):
        return f"http://{self.origin}{path}" if self.forwards else path

    def cpu_seconds(self):
        return cpu_seconds(self.pid) if self.pid else math.nan

    def memory_bytes(self):
        return memory_bytes(self.pid) if self.pid else math.nan


def check(running, path, size):
    """Send one request and check the answer: a proxy that answers something else must not be measured."""
    connection = connect(running)
    with contextlib.closing(connection):
        answer = ask(connection, running, path)
        body = answer.read(size + 1)
    if answer.status != 200 or len(body) != size:
        raise Failure(f"answered {answer.status} with {len(body)} bytes instead of 200 with {size}")


def connect(running):
    connection = http.client.HTTPConnection(*running.address, timeout=60)
    connection.connect()
    return connection


def ask(connection, running, path):
    connection.putrequest("GET", running.target(path), skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", running.origin)
    connection.putheader("User-Agent", AGENT)
    connection.endheaders()
    return connection.getresponse()


def requests(running, script, size, connections, warm_up_s, measured_s):
    """Send requests as fast as they are answered, over kept-alive connections."""
    wrk(running, script, connections, warm_up_s)
    before = running.cpu_seconds()
    result = wrk(running, script, connections, measured_s)
    used = running.cpu_seconds() - before
    answered = result["requests"]
    if not answered:
        raise Failure(f"no request was answered within {measured_s} s")
    if result["failed"] or result["bytes"] < size * answered:
        raise Failure(f"{result['failed']} of {answered} requests were answered with an error or in part")
    return {
        "cpu_us": used / answered * 1e6,
        "rate": answered / result["seconds"],
        "p50_ms": result["p50_ms"],
        "p99_ms": result["p99_ms"],
        "memory_bytes": running.memory_bytes(),
        "broken": result["broken"],
    }


def wrk(running, script, connections, seconds):
    host, port = running.address
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script, f"http://{host}:{port}/"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 60)
    for line in run.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise Failure(f"wrk gave no result: {(run.stderr or run.stdout).strip()[-300:]}")


def wrk_script(hosts, port, path, forwards):
    target = f'"http://" .. host .. "{path}"' if forwards else f'"{path}"'
    names = ", ".join(f'"{host}:{port}"' for host in hosts)
    return WRK_SCRIPT.format(hosts=names, target=target, agent=AGENT) + WRK_TURNS


def idle(running):
    """Measure the memory of client connections that made one request each and now wait."""
    for _ in range(20):
        check(running, "/1k", 1024)
    before = running.memory_bytes()
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(IDLE_CONNECTIONS):
            connections.append(connect(running))
            stack.callback(connections[-1].close)
            ask(connections[-1], running, "/1k").read()
        time.sleep(SETTLE_S)
        open_still = sum(map(is_open, connections))
        grown = running.memory_bytes() - before
    result = {"open": open_still, "before_bytes": before}
    # A figure per connection is meaningful only if the connections are still open.
    return result | ({"each_bytes": grown / open_still} if open_still == IDLE_CONNECTIONS else {})


def is_open(connection):
    if connection.sock is None:
        return False
    connection.sock.setblocking(False)
    try:
        return connection.sock.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def stream(running, path, size):
    """Read one long body with a client that stalls at first, so that a proxy that stores the body grows."""
    connection = connect(running)
    with contextlib.closing(connection), Peak(running) as peak:
        used = running.cpu_seconds()
        answer = ask(connection, running, path)
        time.sleep(STALL_S)
        started = time.monotonic()
        drain(answer, size)
        seconds = time.monotonic() - started
        used = running.cpu_seconds() - used
    return {
        "cpu_ns_per_byte": used / size * 1e9,
        "mib_per_s": size / seconds / (1 << 20),
        "before_bytes": peak.before,
        "growth_bytes": peak.highest - peak.before,
    }


def tunnel(running, path, size):
    """Read one long body through CONNECT: the proxy moves bytes without parsing them."""
    connection = http.client.HTTPConnection(*running.address, timeout=60)
    if running.forwards:
        connection.set_tunnel(running.origin)
    with contextlib.closing(connection):
        connection.connect()
        used, started = running.cpu_seconds(), time.monotonic()
        connection.request("GET", path, headers={"User-Agent": AGENT})
        drain(connection.getresponse(), size)
        seconds, used = time.monotonic() - started, running.cpu_seconds() - used
    return {"cpu_ns_per_byte": used / size * 1e9, "mib_per_s": size / seconds / (1 << 20)}


def drain(answer, size):
    if answer.status != 200:
        raise Failure(f"answered {answer.status} instead of 200")
    buffer, left = memoryview(bytearray(1 << 20)), size
    while read := answer.readinto(buffer):
        left -= read
    if left:
        raise Failure(f"the body ended {left} bytes early")


class Peak:
    """The highest memory while the block runs, found by frequent sampling."""

    def __init__(self, running):
        self.running = running
        self.before = self.highest = running.memory_bytes()
        self.done = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while not self.done.wait(SAMPLE_EVERY_S):
            self.highest = max(self.highest, self.running.memory_bytes())

    def __enter__(self):
        self.watcher.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.watcher.join()
