"""What an origin sees of a fleet, by the kernel's timestamps: how far apart starts are, and when they go on after Redis
was away."""

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from process import Failure

STARTS = 10_000
SPACED_HOSTS = 50  # with four nodes: 200 clients, each at one host
SPACED_DELAY_S = 0.1
PATIENCE_S = 180
AWAY_DELAY_S = 0.4
AWAY_S = 6
BACK_S = 14
# A rate is counted over the time of five starts, and a little more: the hosts start at about the same times.
COUNTED = 5
WINDOW_S = 1.05 * COUNTED * AWAY_DELAY_S
STEP_S = 0.1
FULL_PERCENT = 90


@contextlib.contextmanager
def stamped_origin(port):
    """Yields a function that ends the origin and returns its arrivals: (seconds, host, via)."""
    program = Path(__file__).with_name("stamped_origin.py")
    argv = ["python3", str(program), str(port)]
    origin = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def arrivals():
        printed, _ = origin.communicate(timeout=60)
        lines = (line.split(" ", 2) for line in printed.splitlines())
        return [(int(at) / 1e9, host, via) for at, host, via in lines]

    try:
        if origin.stdout.readline() != "ready\n":
            raise Failure("the origin does not start")
        yield arrivals
    finally:
        origin.kill()
        origin.wait()


@contextlib.asynccontextmanager
async def clients(ask, proxies, origin, hosts, at_each):
    """Clients that ask again and again while the block runs."""
    places = [f"127.0.{host // 250 + 1}.{host % 250 + 1}:{origin}" for host in range(hosts)]
    askers = [
        asyncio.create_task(ask(port, place)) for _, port, _ in proxies for place in places for _ in range(at_each)
    ]
    try:
        yield
    finally:
        for asker in askers:
            asker.cancel()
        await asyncio.gather(*askers, return_exceptions=True)


def gaps(arrivals):
    by_host = {}
    for at, host, _ in arrivals:
        by_host.setdefault(host, []).append(at)
    ordered = (sorted(times) for times in by_host.values())
    return [b - a for times in ordered for a, b in zip(times, times[1:])]


def count(times, since):
    """The starts in a window."""
    return sum(1 for at in times if since <= at < since + WINDOW_S)


async def spacing(ask, starts, proxies, origin):
    """Lets 200 clients make 10 000 starts, by the nodes' own count. Some grants are not used, hence the fifth more."""
    with stamped_origin(origin) as arrivals:
        async with clients(ask, proxies, origin, SPACED_HOSTS, 1):
            waited = 0
            while starts(proxies) < 1.2 * STARTS and waited < PATIENCE_S:
                await asyncio.sleep(1)
                waited += 1
        between = gaps(arrivals())
    return {
        "spaced_starts": len(between) + SPACED_HOSTS,
        "early_by_1_ms": sum(1 for gap in between if gap < SPACED_DELAY_S - 0.001),
        "least_gap_ms": 1e3 * min(between),
    }


async def comes_back(ask, proxies, origin, hosts, redis, restart):
    """Kills Redis and starts an empty one. Returns how long after it the rate is full, and stays so."""
    with stamped_origin(origin) as arrivals:
        async with clients(ask, proxies, origin, hosts, 3):
            await asyncio.sleep(5)
            os.kill(redis, signal.SIGKILL)
            await asyncio.sleep(AWAY_S)
            returned = restart()
            await asyncio.sleep(BACK_S)
        seen = arrivals()
    times = sorted(at for at, _, _ in seen)
    full = FULL_PERCENT / 100 * hosts * COUNTED
    steps = [returned + STEP_S * step for step in range(int((BACK_S - WINDOW_S) / STEP_S))]
    short = [at for at in steps if count(times, at) < full]
    # From a second after the nodes have noticed on, which takes up to 2.2 s.
    alone = gaps([arrival for arrival in seen if returned - AWAY_S + 3.2 <= arrival[0] < returned])
    return {
        "back_s": short[-1] + STEP_S - returned if short else 0.0,
        "alone_percent": 100 * AWAY_DELAY_S * len(alone) / sum(alone) if alone else 0.0,
        "away_least_gap_ms": 1e3 * min(gaps(seen)),
    }
