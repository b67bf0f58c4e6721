"""What curtsy's cache costs besides hits: memory, bytes written to disk, visits for 1,000 requests at once, misses."""

import asyncio
import contextlib
import shutil
import statistics
import threading
import time
import urllib.request

import cache_peers
import load
import report
from peers import Site
from process import Failure, free_port, memory_bytes, running

OBJECTS = 100_000
ON_DISK = {"/1k": 20_000, "/64k": 2_000}
CROWD = 1000
FILL_LIMIT_S = 120
SETTLE_S = 1.2
QUIET_S = 3  # the catalogue is written once a second


@contextlib.contextmanager
def curtsy(bench, name, origin, **settings):
    """Start a curtsy of its own; yields it and the address of its listener for operators."""
    admin = f"127.0.0.1:{free_port()}"
    site = Site(
        directory=bench.folder(f"cache-{name}"),
        port=free_port(),
        origin=origin,
        workers=bench.plan.cores.workers,
        programs=bench.plan.programs,
        curtsy_settings={"admin": f'"{admin}"'} | bench.plan.curtsy_settings,
    )
    argv, env = cache_peers.curtsy(site, **settings)
    with running(argv, site.directory / "output.log", site.port, bench.plan.cores.proxy, env) as pid:
        yield load.Running(pid, ("127.0.0.1", site.port), True, origin), admin


def fill(bench, origin, proxy, admin, path, objects, tier):
    """Ask for every object until all are stored; returns how many are. Each run of wrk breaks off its last requests."""
    stored, limit = 0, time.monotonic() + FILL_LIMIT_S
    while stored < objects and time.monotonic() < limit:
        script = cache_peers.script(bench, origin, path, objects, start=max(0, int(stored) - 4 * bench.plan.connections))
        load.wrk(proxy, script, bench.plan.connections, 5)
        time.sleep(SETTLE_S)
        stored = metric(admin, f'curtsy_cache_objects{{tier="{tier}"')
    if stored < objects * 0.99:
        raise Failure(f"only {stored:.0f} of {objects} objects were stored within {FILL_LIMIT_S} s")
    return stored


def in_memory(bench, origin):
    """Measure how much curtsy grows by an object of 1 KiB."""
    with curtsy(bench, "memory", origin.address, memory='"1GiB"') as (proxy, admin):
        script = cache_peers.script(bench, origin, "/1k", 10)
        load.wrk(proxy, script, bench.plan.connections, 2)  # buffers and threads are there before the first measurement
        before = memory_bytes(proxy.pid)
        stored = fill(bench, origin, proxy, admin, "/1k", OBJECTS, "memory")
        grown = memory_bytes(proxy.pid) - before
        counted = metric(admin, "curtsy_cache_bytes")
    return {"overhead_bytes": grown / stored - 1024, "counted_bytes": counted / stored - 1024}


def on_disk(bench, origin):
    """Measure what curtsy writes for each byte of an answer, head and body."""
    found = {}
    for path, objects in ON_DISK.items():
        folder = bench.folder(f"cache-disk-files{path.replace('/', '-')}")
        shutil.rmtree(folder)
        with curtsy(bench, "disk", origin.address, disk='"1GiB"', dir=f'"{folder}"') as (proxy, admin):
            stored = fill(bench, origin, proxy, admin, path, objects, "disk")
            written = settled(lambda: written_bytes(proxy.pid))
        found[f"written{path}"] = written / (stored * origin.answer_bytes(f"{path}/1"))
    return found


def written_bytes(pid):
    with open(f"/proc/{pid}/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("write_bytes"))


def settled(read):
    """Return a number once it stops growing."""
    last, since, limit = read(), time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since < QUIET_S and time.monotonic() < limit:
        time.sleep(0.2)
        if (now := read()) != last:
            last, since = now, time.monotonic()
    return last


def at_once(bench, _origin):
    """Send 1,000 identical requests at once to an origin that answers after a second."""
    with slow_origin() as slow, curtsy(bench, "crowd", slow.address) as (proxy, _):
        answers = asyncio.run(crowd(proxy))
    good = sum(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    if good != CROWD:
        raise Failure(f"only {good} of {CROWD} requests were answered with 200")
    return {"visits": slow.visits}


async def crowd(proxy):
    async def ask():
        reader, writer = await asyncio.open_connection(*proxy.address)
        await gate.wait()
        writer.write(f"GET {proxy.target('/page')} HTTP/1.1\r\nHost: {proxy.origin}\r\nConnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    gate = asyncio.Event()
    asked = [asyncio.create_task(ask()) for _ in range(CROWD)]
    await asyncio.sleep(2)  # until all are connected
    gate.set()
    return await asyncio.gather(*asked)


class slow_origin:
    """An origin that answers after a second and counts visits other than to robots.txt."""

    def __enter__(self):
        self.visits, self.loop, ready = 0, asyncio.new_event_loop(), threading.Event()
        self.thread = threading.Thread(target=self.serve, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait(10)
        return self

    def serve(self, ready):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.answer, "127.0.0.1", 0, backlog=2048))
        self.address = "127.0.0.1:{}".format(server.sockets[0].getsockname()[1])
        ready.set()
        self.loop.run_forever()

    async def answer(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"/robots.txt" not in head.split(b"\r\n")[0]:
                    self.visits += 1
                    await asyncio.sleep(1)
                writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\npage")

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


def not_stored(bench, origin):
    """Measure requests whose answers may not be stored, with the cache on and off, in turns."""
    script = cache_peers.script(bench, origin, "/no-store", OBJECTS)
    with curtsy(bench, "on", origin.address) as (on, _), curtsy(bench, "off", origin.address, mode='"off"') as (off, _):
        ratios = []
        for number in range(bench.plan.rounds):
            sides = [("on", on), ("off", off)]
            cost = {name: load.requests(proxy, script, 1024, bench.plan.connections, 1, bench.plan.seconds)["cpu_us"]
                    for name, proxy in (sides if number % 2 else reversed(sides))}
            ratios.append(cost["on"] / cost["off"])
    return {"not_stored": statistics.median(ratios)}


def metric(admin, start):
    """Return the sum of the series that start so."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(f"http://{admin}/metrics", timeout=20).read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))


PARTS = {"memory": in_memory, "disk": on_disk, "at once": at_once, "not stored": not_stored}


def table(results):
    found = {key: value for name in PARTS for one in results[name]["rounds"] for key, value in one.items()}
    rows = [["curtsy alone", "measured", "asked"]]
    for key, title, form, asked in [
        ("overhead_bytes", "memory besides the body, of an answer of 1 KiB", "{:.0f} B", "≤ 717 B (0.7 KiB)"),
        ("counted_bytes", "the same as curtsy counts it", "{:.0f} B", ""),
        ("written/1k", "written to disk ÷ head and body, of 1 KiB", "{:.2f}", "≤ 1.5"),
        ("written/64k", "written to disk ÷ head and body, of 64 KiB", "{:.3f}", "≤ 1.02"),
        ("visits", "visits of the origin for 1,000 identical requests at once", "{}", "1"),
        ("not_stored", "CPU of a request whose answer is not stored ÷ with the cache off", "{:.2f}", "≤ 1.03"),
    ]:
        if key in found:
            rows.append([title, form.format(found[key]), asked])
    return report.aligned(rows)
