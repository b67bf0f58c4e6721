"""A fleet of curtsys on one Redis: what sharing costs, and how much of the allowed rate it leaves.

Everything is on loopback and started here: Redis, two to eight curtsys, and an origin that notes when the kernel
received a request and which node sent it (by Via). The hosts are addresses 127.0.x.y. Each node has more waiting
requests for each host than it can start. Takes some five minutes.
"""

import asyncio
import contextlib
import shutil
import socket
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path

import fleet_arrivals
import report
from process import Failure, free_port, ran_seconds, running

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTION = "several curtsys that share every host's budget through Redis; nothing pinned"
NODES = (2, 4, 8)
# Delay, and how long it is measured: at 1 s eight starts of each node at each host, so that shares can be even.
DELAYS_S = {1.0: lambda nodes: 8 * nodes, 0.1: lambda _: 8}
HOSTS = 10
WAITING = 3  # requests that wait at each node for each host
WARM_UP_S = 3
FREE_HOSTS = 60
VISITS = 6  # of each free host; the first is not counted, because Redis may not remember its bucket yet
CLAIMS = 200_000
COLUMNS = (
    report.Column("claims per start", "claims_per_start", digits=3),
    report.Column("Redis calls per start", "calls_per_start", digits=3),
    report.Column("rate used, %", "used_percent"),
    report.Column("Jain", "jain", digits=3),
    report.Column("least gap, % of the delay", "least_gap_percent"),
    report.Column("starts", "starts", digits=0),
)


def rounds(bench, progress):
    """Measure each case once."""
    results = {}
    for delay_s, seconds in DELAYS_S.items():
        for nodes in NODES:
            title = f"{nodes} nodes, {delay_s * 1000:,.0f} ms"
            progress(f"fleet: {title}")
            results[title] = attempt(lambda: backlog(bench, nodes, delay_s, seconds(nodes)))
    progress("fleet: free hosts, and Redis alone")
    results["single figures"] = attempt(lambda: free_hosts(bench) | redis_alone(bench))
    progress("fleet: 10 000 starts, and Redis killed")
    results["arrivals"] = attempt(lambda: spacing(bench) | outage(bench))
    return results


def spacing(bench):
    """10 000 starts of 200 clients at four nodes, by the kernel's timestamps."""
    settings = {"politeness.delay": f'"{fleet_arrivals.SPACED_DELAY_S}s"'}
    with fleet(bench, 4, settings) as (_, proxies, origin):
        return asyncio.run(fleet_arrivals.spacing(ask, starts, proxies, origin))


def outage(bench):
    """Four nodes while Redis is killed, and after an empty one took its place."""
    with contextlib.ExitStack() as stack:
        port = free_port()
        pid, _ = stack.enter_context(redis_server(bench, port))
        own = {"politeness.delay": f'"{fleet_arrivals.AWAY_DELAY_S}s"', "fleet.redis": f'"redis://127.0.0.1:{port}"'}
        proxies = [stack.enter_context(node(bench, f"node-{number + 1}", own)) for number in range(4)]
        wait_for_all(proxies, 4)

        def restart():
            stack.enter_context(redis_server(bench, port))
            return time.time()

        return asyncio.run(fleet_arrivals.comes_back(ask, proxies, free_port(), HOSTS, pid, restart))


def attempt(measure):
    try:
        return {"rounds": [measure()], "error": None}
    except (Failure, OSError, subprocess.SubprocessError) as error:
        return {"rounds": [], "error": str(error)}


def backlog(bench, nodes, delay_s, seconds):
    """Keep a backlog at every node, and count what the origin sees."""
    with fleet(bench, nodes, {"politeness.delay": f'"{delay_s}s"'}) as (redis, proxies, origin):
        return asyncio.run(measure_backlog(redis, proxies, origin, delay_s, seconds))


async def measure_backlog(redis, proxies, origin, delay_s, seconds):
    with fleet_arrivals.stamped_origin(origin) as stop:
        async with fleet_arrivals.clients(ask, proxies, origin, HOSTS, WAITING):
            await asyncio.sleep(WARM_UP_S + 2 * delay_s)
            before, calls, began = claims(proxies), redis_calls(redis), time.time()
            await asyncio.sleep(seconds)
            ended = time.time()
            claimed, called = claims(proxies) - before, redis_calls(redis) - calls
        arrivals = stop()
    counted = [arrival for arrival in arrivals if began <= arrival[0] < ended]
    if not counted:
        raise Failure("nothing arrived at the origin")
    shares = [sum(1 for _, _, via in counted if node == via) for node in {via for _, _, via in arrivals}]
    shares += [0] * (len(proxies) - len(shares))
    # A heartbeat is no part of a start.
    beats = 2 * (ended - began) * len(proxies)
    return {
        "starts": len(counted),
        "claims_per_start": claimed / len(counted),
        "calls_per_start": (called - beats) / len(counted),
        "used_percent": 100 * len(counted) * delay_s / (HOSTS * (ended - began)),
        "jain": sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)),
        "least_gap_percent": 100 * min(fleet_arrivals.gaps(counted), default=float("inf")) / delay_s,
    }


async def ask(proxy, host):
    """Send requests one after the other, for ever."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
            try:
                while True:
                    writer.write(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                    await reader.readexactly(int(length[0].split(b":")[1]))
            finally:
                writer.close()
        await asyncio.sleep(0.1)


def free_hosts(bench):
    """What a claim adds to a request to a free host: latency, and CPU time of the node. Both sides in turns.

    The CPU time is that of a request in a fleet minus that of the same request to a curtsy without one. Both are medians,
    so that heartbeats, which come twice a second whether there are requests or not, do not count.
    """
    settings = {"politeness.delay": '"50ms"', "adaptive.policy": '"off"'}
    with fleet(bench, 1, settings) as (_, [(pid, port, _)], origin), single(bench, settings) as (alone_pid, alone):
        server = subprocess.Popen(
            ["python3", "-c", ORIGIN, str(origin)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        try:
            server.stdout.readline()
            sides = {"fleet": (pid, port), "alone": (alone_pid, alone)}
            streams = {side: socket.create_connection(("127.0.0.1", port)) for side, (_, port) in sides.items()}
            took, used = {side: [] for side in sides}, {side: [] for side in sides}
            for visit in range(FREE_HOSTS * VISITS):
                name = f"127.0.10.{visit % FREE_HOSTS + 1}:{origin}"
                if visit == FREE_HOSTS:
                    took, used = {side: [] for side in sides}, {side: [] for side in sides}
                for side, (process, _) in sides.items():
                    before, began = ran_seconds(process), time.perf_counter()
                    request_once(streams[side], name)
                    took[side].append(time.perf_counter() - began)
                    used[side].append(settled_seconds(process) - before)
        finally:
            server.kill()
            server.wait()
    middle = {side: statistics.median(times) for side, times in took.items()}
    busy = {side: statistics.median(times) for side, times in used.items()}
    return {
        "added_ms": 1e3 * (middle["fleet"] - middle["alone"]),
        "node_cpu_us": 1e6 * (busy["fleet"] - busy["alone"]),
        "request_cpu_us": 1e6 * busy["alone"],
    }


def settled_seconds(process):
    """The CPU time of a process once it rests: it may still do something after its answer."""
    before = ran_seconds(process)
    while True:
        time.sleep(0.0005)
        after = ran_seconds(process)
        if after == before:
            return after
        before = after


ORIGIN = """
import asyncio, sys
async def answer(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(answer, "0.0.0.0", int(sys.argv[1]))
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def request_once(stream, host):
    stream.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\nok"):
        piece = stream.recv(4096)
        if not piece or b" 200 " not in (answer + piece)[:40]:
            raise Failure(f"the proxy answered {(answer + piece)[:200]!r}")
        answer += piece


def redis_alone(bench):
    """Claims of new hosts by redis-benchmark: CPU time of Redis for each, and the memory of a host."""
    script = (ROOT / "src/ledger/scripts/claim.lua").read_text()
    with redis_server(bench) as (pid, port):
        digest = cli(port, "SCRIPT", "LOAD", script)
        # The arguments of a usual claim: Redis' own time, no deadline, delay 1 s, window 5 ms, 12 ms early, 4 places.
        usual = ["", "9000000000000000", "1000000", "5000", "12000", "0", "0", "0", "0", "0", "120000", "0", "4", "0"]
        before = int(cli_info(port, "memory", "used_memory"))
        claim = ["EVALSHA", digest, "2", "curtsy:{3fa}:h:host-__rand_int__.example", "curtsy:{3fa}:era", *usual]
        used, began = ran_seconds(pid), time.monotonic()
        command = ["redis-benchmark", "-p", str(port), "-q", "-n", str(CLAIMS), "-c", "50", "-r", "1000000", *claim]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=120)
        used, took = ran_seconds(pid) - used, time.monotonic() - began
        hosts = int(cli(port, "DBSIZE")) - 1
        memory = int(cli_info(port, "memory", "used_memory")) - before
    return {
        "redis_us": 1e6 * used / CLAIMS,
        "claims_per_core": CLAIMS / used,
        "claims_per_second": CLAIMS / took,
        "bytes_per_host": memory / hosts,
    }


@contextlib.contextmanager
def fleet(bench, nodes, settings):
    """Redis and that many nodes; yields the port of Redis, (pid, port, admin) of each node, and a port for the origin."""
    with contextlib.ExitStack() as stack:
        _, redis = stack.enter_context(redis_server(bench))
        # A pace that is learned would begin slower than the delay.
        own = settings | {"adaptive.policy": '"off"', "fleet.redis": f'"redis://127.0.0.1:{redis}"'}
        proxies = [stack.enter_context(node(bench, f"node-{number + 1}", own)) for number in range(nodes)]
        wait_for_all(proxies, nodes)
        yield redis, proxies, free_port()


def wait_for_all(proxies, nodes):
    deadline = time.monotonic() + 20
    while any(metric(admin, "curtsy_fleet_nodes") < nodes for _, _, admin in proxies):
        if time.monotonic() > deadline:
            raise Failure("the nodes do not find each other")
        time.sleep(0.1)


@contextlib.contextmanager
def single(bench, settings):
    with node(bench, "single", settings) as (pid, port, _):
        yield pid, port


@contextlib.contextmanager
def node(bench, name, settings):
    port, admin, folder = free_port(), free_port(), bench.folder(f"fleet-{name}")
    all_settings = {
        "listen": f'["127.0.0.1:{port}"]',
        "admin": f'"127.0.0.1:{admin}"',
        "name": f'"{name}"',
        "state_dir": '"memory"',
        "workers": "1",
        "robots.mode": '"off"',
        "cache.mode": '"off"',
        "access.allow_destinations": '["127.0.0.0/8"]',
    }
    lines = (f"{key} = {value}\n" for key, value in (all_settings | settings | bench.plan.curtsy_settings).items())
    config = folder / "curtsy.toml"
    config.write_text("".join(lines))
    argv = [str(Path(bench.plan.programs["curtsy"]).resolve()), "run", "--config", str(config), "--log-format", "json"]
    with running(argv, folder / "output.log", port) as pid:
        yield pid, port, admin


@contextlib.contextmanager
def redis_server(bench, port=None):
    for program in ["redis-server", "redis-cli", "redis-benchmark"]:
        if shutil.which(program) is None:
            raise Failure(f"{program} is missing: apt-get install redis-server")
    port, folder = port or free_port(), bench.folder("fleet-redis")
    argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with running(argv, folder / "output.log", port) as pid:
        yield pid, port


def cli(port, *words):
    run = subprocess.run(
        ["redis-cli", "-p", str(port), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10
    )
    return run.stdout.strip()


def cli_info(port, section, name):
    lines = cli(port, "INFO", section).splitlines()
    return next(line.split(":")[1] for line in lines if line.startswith(f"{name}:"))


def redis_calls(port):
    lines = cli(port, "INFO", "commandstats").splitlines()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith("cmdstat_evalsha:"))


def claims(proxies):
    return sum(metric(admin, "curtsy_fleet_claims_total") for _, _, admin in proxies)


def starts(proxies):
    """Claims that were granted."""
    return claims(proxies) - sum(metric(admin, "curtsy_fleet_refused_claims_total") for _, _, admin in proxies)


def metric(admin, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def section(results):
    rows = [["", *(column.heading for column in COLUMNS)]]
    for name, result in results.items():
        if name not in ("single figures", "arrivals"):
            rows.append([name, *(report.middle(result["rounds"], column) for column in COLUMNS)])
    figures = single_figures(results["single figures"]["rounds"]) + seen_figures(results["arrivals"]["rounds"])
    return report.aligned(rows) + figures + report.failures(results)


def seen_figures(measured):
    if not measured:
        return ""
    (one,) = measured
    rows = [
        ["by the kernel's timestamps at the origin", "measured"],
        ["starts of 4 nodes and 200 clients, 100 ms", f"{one['spaced_starts']:,}"],
        ["of them early by more than 1 ms", f"{one['early_by_1_ms']}"],
        ["least gap", f"{one['least_gap_ms']:.2f} ms"],
        ["rate used while Redis is away, 4 nodes, 400 ms", f"{one['alone_percent']:.0f} %"],
        ["least gap before, during and after it", f"{one['away_least_gap_ms']:.1f} ms"],
        ["full rate after Redis returns, empty", f"{one['back_s']:.1f} s"],
    ]
    return "\n\n" + report.aligned(rows)


def single_figures(measured):
    if not measured:
        return ""
    (one,) = measured
    rows = [
        ["", "measured"],
        ["added to a request to a free host, p50", f"{one['added_ms']:.2f} ms"],
        ["node CPU that a claim adds", f"{one['node_cpu_us']:.0f} µs"],
        ["node CPU of the same request without a fleet", f"{one['request_cpu_us']:.0f} µs"],
        ["Redis CPU per claim, 50 clients", f"{one['redis_us']:.1f} µs"],
        ["claims per second and Redis core", f"{one['claims_per_core']:,.0f}"],
        ["Redis memory per host visited", f"{one['bytes_per_host']:.0f} B"],
    ]
    return "\n\n" + report.aligned(rows)
