"""What pacing costs: runs the same program twice, with pacing and with politeness.mode = "off".

The two differ by a few percent, which is less than a machine varies from one second to the next. So both run on the
same core and get requests at the same time, each from half of the connections: what disturbs one disturbs the other, and
CPU time is counted separately.
"""

import contextlib
import statistics
from concurrent.futures import ThreadPoolExecutor

import load
import report
from peers import Site, curtsy
from process import Failure, free_port, ran_seconds, running

DESCRIPTION = "CPU time per request with pacing decided (delay 0), against politeness.mode = off"
PAIR_S = 2
SIDES = {"off": {"politeness.mode": '"off"'}, "paced": {"politeness.delay": '"0s"', "politeness.concurrency": "1000"}}
CASES = {
    "robots.txt and learning off": {"robots.mode": '"off"', "adaptive.policy": '"off"'},
    "robots.txt and learning on": {},
}


def rounds(bench, progress):
    """Measure the pairs of each case: CPU µs per request of both sides."""
    results = {case: {"rounds": [], "error": None} for case in CASES}
    for case, settings in CASES.items():
        try:
            with both(bench, settings) as sides:
                for number in range(bench.plan.pairs):
                    progress(f"pacing, {case}: pair {number + 1} of {bench.plan.pairs}")
                    results[case]["rounds"].append(costs_us(bench, sides))
        except (Failure, OSError) as error:
            results[case]["error"] = str(error)
    return results


@contextlib.contextmanager
def both(bench, settings):
    """Start both instances and warm them up."""
    with contextlib.ExitStack() as stack:
        sides = {}
        for side, own in SIDES.items():
            site = Site(
                directory=bench.folder(f"curtsy-{side}"),
                port=free_port(),
                origin=bench.origin,
                workers=1,
                programs=bench.plan.programs,
                curtsy_settings=settings | bench.plan.curtsy_settings | own,
            )
            argv, env = curtsy(site)
            log = site.directory / "output.log"
            pid = stack.enter_context(running(argv, log, site.port, bench.plan.cores.proxy, env))
            sides[side] = load.Running(pid, ("127.0.0.1", site.port), True, bench.origin)
            load.check(sides[side], "/1k", 1024)
        costs_us(bench, sides)
        yield sides


def costs_us(bench, sides):
    """Return the CPU µs per request of both, measured at the same time."""
    script, connections = bench.script(1, "/1k", True), max(1, bench.plan.connections // len(sides))
    with ThreadPoolExecutor(len(sides)) as threads:
        asking = {side: threads.submit(cost_us, proxy, script, connections) for side, proxy in sides.items()}
    return {side: cost.result() for side, cost in asking.items()}


def cost_us(proxy, script, connections):
    before = ran_seconds(proxy.pid)
    result = load.wrk(proxy, script, connections, PAIR_S)
    used = ran_seconds(proxy.pid) - before
    if not result["requests"] or result["failed"]:
        raise Failure(f"{result['failed']} of {result['requests']} requests were answered with an error")
    return used / result["requests"] * 1e6


def section(results):
    rows = [["", "off, CPU µs/request", "paced, CPU µs/request", "ratio", "standard error", "pairs"]]
    for case, result in results.items():
        rows.append([case, *figures(result["rounds"])])
    return report.aligned(rows) + report.failures(results)


def figures(pairs):
    """Return medians, which one disturbed second does not move. The error is that of the mean of the ratios."""
    if len(pairs) < 2:
        return ["–"] * 4 + [str(len(pairs))]
    ratios = [pair["paced"] / pair["off"] for pair in pairs]
    medians = [f"{statistics.median(pair[side] for pair in pairs):.1f}" for side in SIDES]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return [*medians, f"{statistics.median(ratios):.3f}", f"{error:.3f}", str(len(pairs))]
