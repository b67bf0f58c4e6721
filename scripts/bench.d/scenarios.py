"""The scenarios, and the rounds in which every proxy runs them."""

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

import inside
import load
from peers import Site, origin
from process import Failure, free_port, running

BODIES = {"1k": 1 << 10, "64k": 64 << 10}
HOST_COUNTS = [1, 100, 1000]
HOSTS = [f"127.0.{1 + i // 250}.{1 + i % 250}" for i in range(max(HOST_COUNTS))]
SCENARIOS = [f"{body}-{count}" for body in BODIES for count in HOST_COUNTS] + ["idle", "stream", "tunnel", "inside", "handshakes"]
QUICK = ["1k-1", "1k-1000", "64k-1", "idle", "stream", "tunnel", "inside", "handshakes"]
LOOKING_INSIDE = ["inside", "handshakes"]
WARM_UP_S = 1


@dataclass(frozen=True)
class Cores:
    """Which core each part runs on. Pinned, the proxy has its own core, and the load and the origin share another.

    Squid and mitmproxy use one core in any case. Pinned, all proxies are measured like that: one worker, and the proxy
    is the bottleneck, so that all of them are compared at full load. Pinning is also a little steadier: on a busy
    two-core machine 36 rounds of 1k-1 had a standard deviation of 11 % for nginx and 15 % for Squid pinned, 15 % and
    20 % spread.
    """

    load: int | None
    proxy: int | None
    workers: int
    all: tuple

    @staticmethod
    def choose(spread):
        cores = sorted(os.sched_getaffinity(0))
        if spread or len(cores) < 2:
            return Cores(None, None, len(cores), tuple(cores))
        return Cores(cores[0], cores[1], 1, tuple(cores))


@dataclass(frozen=True)
class Plan:
    """How one run measures."""

    directory: Path
    cores: Cores
    programs: dict
    curtsy_settings: dict
    rounds: int
    seconds: int
    connections: int
    long_body: int
    pairs: int  # for `pacing`
    backlog_seconds: int
    limiter_seconds: int
    no_install: bool


class Bench:
    """A running origin; proxies are started and stopped for each measurement."""

    def __init__(self, plan, origin_port, keys, tls_port):
        self.plan = plan
        self.keys = keys
        self.tls_origin = f"{HOSTS[0]}:{tls_port}"
        self.origin_port = origin_port
        self.origin = f"{HOSTS[0]}:{origin_port}"

    def rounds(self, scenario, peers, progress):
        """Run each proxy once per round, instead of one long run for each: a slow minute then affects all of them."""
        results = {peer.key: {"rounds": [], "error": None} for peer in peers if takes_part(peer, scenario)}
        for number in range(self.plan.rounds):
            first = number % len(peers)  # no proxy always runs after the same other proxy
            for peer in peers[first:] + peers[:first]:
                result = results.get(peer.key)
                if result is None or result["error"]:
                    continue
                progress(f"{scenario}, round {number + 1} of {self.plan.rounds}: {peer.title}")
                try:
                    result["rounds"].append(self.once(scenario, peer))
                except (Failure, OSError) as error:
                    result["error"] = str(error)
        return results

    def once(self, scenario, peer):
        """Run one scenario once with one proxy, started afresh so that no memory of another scenario is counted."""
        if peer.start is None:
            numbers = self.measure(scenario, load.Running(None, (HOSTS[0], self.origin_port), False, self.origin))
            return {key: value for key, value in numbers.items() if not math.isnan(value)}
        site = self.site(peer, scenario)
        argv, env = peer.start(site)
        with running(argv, site.directory / "output.log", site.port, self.plan.cores.proxy, env) as pid:
            return self.measure(scenario, load.Running(pid, ("127.0.0.1", site.port), peer.forwards, self.origin))

    def site(self, peer, scenario):
        plan = self.plan
        looks_inside = scenario in LOOKING_INSIDE
        return Site(
            directory=folder(plan, f"{peer.key}-inside" if looks_inside else peer.key),
            keys=self.keys if looks_inside else None,
            port=free_port(),
            origin=self.origin,
            workers=plan.cores.workers,
            programs=plan.programs,
            curtsy_settings=plan.curtsy_settings,
        )

    def measure(self, scenario, proxy):
        load.check(proxy, "/1k", BODIES["1k"])
        if scenario == "idle":
            return load.idle(proxy)
        if scenario == "stream":
            return load.stream(proxy, "/long", self.plan.long_body)
        if scenario == "tunnel":
            return load.tunnel(proxy, "/long", self.plan.long_body)
        if scenario in LOOKING_INSIDE:
            measure = inside.kept if scenario == "inside" else inside.fresh
            return measure(proxy, self.keys, self.tls_origin, WARM_UP_S, self.plan.seconds)
        body, count = scenario.split("-")
        script = self.script(int(count), f"/{body}", proxy.forwards)
        return load.requests(proxy, script, BODIES[body], self.plan.connections, WARM_UP_S, self.plan.seconds)

    def script(self, hosts, path, forwards):
        """Write the script of wrk, which requests `path` from that many hosts in turn."""
        script = self.plan.directory / "wrk.lua"
        script.write_text(load.wrk_script(HOSTS[:hosts], self.origin_port, path, forwards))
        return script

    def folder(self, name):
        return folder(self.plan, name)


def takes_part(peer, scenario):
    if scenario == "tunnel":
        return peer.tunnels
    if scenario in LOOKING_INSIDE:
        return peer.looks_inside
    return scenario != "idle" or peer.start is not None


def describe(scenario, plan):
    length = f"{plan.long_body >> 20:,} MiB"
    if scenario == "idle":
        return f"{load.IDLE_CONNECTIONS} client connections that made one request each and wait"
    if scenario == "stream":
        return f"one body of {length}, whose client stalls for {load.STALL_S:.0f} s after the head"
    if scenario == "tunnel":
        return f"one body of {length} through CONNECT"
    if scenario == "inside":
        return f"bodies of 1 KiB over {inside.TUNNELS} tunnels that the proxy decrypts, TLS on both sides"
    if scenario == "handshakes":
        return "CONNECT, TLS on both sides and one request, on connections of their own"
    body, count = scenario.split("-")
    bodies = f"bodies of {BODIES[body] >> 10} KiB from"
    return f"{bodies} 1 host" if count == "1" else f"{bodies} {count} hosts (nginx and direct stay with one origin)"


@contextlib.contextmanager
def bench(plan):
    """Start the origin, on the core of the load; it ends with the block."""
    port = free_port()
    files = folder(plan, "www")
    (files / "64k").write_bytes(b"x" * BODIES["64k"])
    with open(files / "long", "wb") as file:
        file.truncate(plan.long_body)  # a sparse file: needs no disk space, and reading it does not touch the disk
    keys, tls_port = inside.make_keys(folder(plan, "keys"), HOSTS[0]), free_port()
    site = Site(folder(plan, "origin"), port, origin="", workers=1, keys=keys)
    argv, env = origin(site, ["127.0.0.1", *HOSTS], files, tls_port)
    with running(argv, site.directory / "output.log", port, plan.cores.load, env):
        yield Bench(plan, port, keys, tls_port)


def folder(plan, name):
    path = plan.directory / name
    path.mkdir(parents=True, exist_ok=True)
    return path
