"""What the cache costs: hits beside nginx, Squid and Traffic Server, and what curtsy stores and sends.

All caches run at the same time and get requests in turns, from one client over kept-alive connections. An origin of its own
counts what reaches it, so that a miss is not measured as a hit. A competitor that is not installed is left out, with a line.
"""

import contextlib
import statistics
import time

import cache_peers
import cache_store
import load
import report
from install import which
from peers import PEERS, Site
from process import Failure, free_port, running

DESCRIPTION = "CPU time of a hit beside other caches; memory and disk of stored answers; 1,000 requests at once"
SIZES = {"1 KiB": ("/1k", 1 << 10), "64 KiB": ("/64k", 64 << 10)}
OBJECTS = 1000
PROGRAMS = {"nginx": "nginx", "trafficserver": "traffic_server", "squid": "squid"}
TITLES = {peer.key: peer.title for peer in PEERS} | {"nginx": "nginx, proxy_cache"}
# The ratios that are asked for: curtsy's CPU time for a hit, divided by that of the other cache.
ASKED = {("1 KiB", "nginx"): 0.75, ("1 KiB", "squid"): 0.5, ("1 KiB", "trafficserver"): 0.4, ("64 KiB", "trafficserver"): 0.6}


def rounds(bench, progress):
    """Measure everything; a part that fails leaves the others."""
    results = {}
    with cache_peers.origin(bench) as origin:
        for size, (path, length) in SIZES.items():
            say = lambda text, size=size: progress(f"cache, {size}: {text}")  # noqa: E731
            results[f"hits, {size}"] = attempt(lambda: hits(bench, origin, path, length, say))
        for name, measure in cache_store.PARTS.items():
            progress(f"cache, {name}")
            results[name] = attempt(lambda: [measure(bench, origin)])
    return results


def attempt(measure):
    try:
        return {"rounds": measure(), "error": None}
    except (Failure, OSError) as error:
        return {"rounds": [], "error": str(error)}


def hits(bench, origin, path, length, say):
    """Return the CPU µs of a hit for each cache, by round."""
    script = cache_peers.script(bench, origin, path, OBJECTS)
    own_script = cache_peers.script(bench, origin, path, OBJECTS, forwards=False)
    with contextlib.ExitStack() as stack:
        caches = {}
        for key in installed():
            say(f"filling {TITLES[key]}")
            caches[key] = start(bench, origin, key, stack)
            fill(bench, caches[key], own_script if key == "nginx" else script, path, length)
        found = []
        for number in range(bench.plan.rounds):
            say(f"round {number + 1} of {bench.plan.rounds}")
            keys = list(caches)
            first = number % len(keys)  # no cache always runs after the same other cache
            found.append({key: cost_us(bench, origin, caches[key], own_script if key == "nginx" else script, length)
                          for key in keys[first:] + keys[:first]})
    return found


def installed():
    """Curtsy, and the other caches that are on this machine."""
    return ["curtsy", *(key for key, program in PROGRAMS.items() if which(program))]


def start(bench, origin, key, stack):
    site = Site(
        directory=bench.folder(f"cache-{key}"),
        port=free_port(),
        origin=origin.address,
        workers=bench.plan.cores.workers,
        programs=bench.plan.programs,
        curtsy_settings=bench.plan.curtsy_settings,
    )
    argv, env = cache_peers.START[key](site)
    pid = stack.enter_context(running(argv, site.directory / "output.log", site.port, bench.plan.cores.proxy, env))
    return load.Running(pid, ("127.0.0.1", site.port), key != "nginx", origin.address)


def fill(bench, cache, script, path, length):
    """Ask for everything often enough: Traffic Server moves to memory what was asked for twice."""
    load.check(cache, f"{path}/1", length)
    for _ in range(2):
        load.wrk(cache, script, bench.plan.connections, 2)
    time.sleep(0.5)


def cost_us(bench, origin, cache, script, length):
    seen = origin.requests()
    cost = load.requests(cache, script, length, bench.plan.connections, 1, bench.plan.seconds)["cpu_us"]
    missed = origin.requests() - seen
    if missed > OBJECTS // 10:
        raise Failure(f"{missed} requests reached the origin: these are not hits")
    return cost


def section(results):
    parts = [hit_table(results), cache_store.table(results)]
    parts += [f"{TITLES[key]} is left out: {program} is not installed" for key, program in PROGRAMS.items() if not which(program)]
    return "\n\n".join(parts) + report.failures(results)


def hit_table(results):
    rows = [["hit", "CPU µs", "curtsy ÷ it", "asked"]]
    for size in SIZES:
        found = results[f"hits, {size}"]["rounds"]
        for key in found[0] if found else []:
            ratio = statistics.median(one["curtsy"] / one[key] for one in found)
            asked = ASKED.get((size, key))
            rows.append([f"{size}, {TITLES[key]}", f"{statistics.median(one[key] for one in found):.1f}",
                         "" if key == "curtsy" else f"{ratio:.2f}", f"≤ {asked}" if asked else ""])
    return report.aligned(rows)
