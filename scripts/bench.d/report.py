"""The tables: medians over the rounds, and the ratios that count."""

import os
import platform
import statistics
import subprocess
from dataclasses import asdict, dataclass

from install import which

# The proxies that rows are compared with, and the headings of those columns.
YARDSTICKS = {
    "nginx": "× nginx",
    "trafficserver": "× Traffic Server",
    "squid": "× Squid",
    "tinyproxy": "× tinyproxy",
    "mitmproxy": "× mitmproxy",
}


@dataclass(frozen=True)
class Column:
    heading: str
    key: str
    scale: float = 1.0
    digits: int = 1


BUSY = 0.5  # load average above which other programs visibly change the figures
MIB = 1 / (1 << 20)
KIB = 1 / (1 << 10)
PER_BYTE = Column("CPU ns/byte", "cpu_ns_per_byte", digits=3)
SPEED = Column("MiB/s", "mib_per_s", digits=0)
BEFORE = Column("memory before, MiB", "before_bytes", MIB)


@dataclass(frozen=True)
class Layout:
    """The columns of a scenario's table. The first one is followed by its ratios to `yardsticks`."""

    columns: tuple
    yardsticks: tuple = ()


REQUESTS = Layout(
    (
        Column("CPU µs/request", "cpu_us"),
        Column("requests/s", "rate", digits=0),
        Column("p50 ms", "p50_ms", digits=2),
        Column("p99 ms", "p99_ms", digits=2),
        Column("memory MiB", "memory_bytes", MIB),
    ),
    ("nginx", "trafficserver", "squid"),
)
INSIDE = Layout(
    (
        Column("CPU µs/request", "cpu_us"),
        Column("requests/s", "rate", digits=0),
        Column("memory MiB", "memory_bytes", MIB),
    ),
    ("squid", "mitmproxy"),
)
LAYOUTS = {
    "inside": INSIDE,
    "handshakes": INSIDE,
    "idle": Layout((Column("KiB per connection", "each_bytes", KIB), Column("still open", "open", digits=0), BEFORE)),
    "stream": Layout((Column("growth MiB", "growth_bytes", MIB), BEFORE, PER_BYTE, SPEED)),
    "tunnel": Layout((PER_BYTE, SPEED), ("trafficserver", "squid", "tinyproxy")),
}


def section(scenario, results, peers):
    """Return one scenario's table in Markdown, aligned to be readable as text, and its errors."""
    layout = LAYOUTS.get(scenario, REQUESTS)
    first, *rest = layout.columns
    rows = [["", first.heading, *(YARDSTICKS[key] for key in layout.yardsticks), *(column.heading for column in rest)]]
    for peer in (peer for peer in peers if peer.key in results):
        rounds = results[peer.key]["rounds"]
        against = [results.get(key, {"rounds": []})["rounds"] for key in layout.yardsticks]
        ratios = [ratio(rounds, others, first.key) for others in against]
        rows.append([peer.title, middle(rounds, first), *ratios, *(middle(rounds, column) for column in rest)])
    return aligned(rows) + failures({peer.title: results[peer.key] for peer in peers if peer.key in results})


def failures(results):
    return "".join(f"\n\n{title} failed: {result['error']}" for title, result in results.items() if result["error"])


def middle(rounds, column):
    """Return the median, which one disturbed round does not move."""
    values = [result[column.key] for result in rounds if column.key in result]
    return f"{statistics.median(values) * column.scale:,.{column.digits}f}" if values else "–"


def ratio(rounds, others, key):
    """Return the median of the ratios within each round, so that both sides had the same conditions."""
    pairs = [(mine[key], other[key]) for mine, other in zip(rounds, others) if key in mine and other.get(key)]
    return f"{statistics.median(mine / other for mine, other in pairs):.2f}" if pairs else "–"


def aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join("| " + " | ".join(padded(row, widths)) + " |" for row in [rows[0], rule, *rows[1:]])


def padded(row, widths):
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]


def facts(plan, keys):
    """Return what was measured, on which machine, and how."""
    return {
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "versions": versions(plan.programs, keys),
        "curtsy_settings": plan.curtsy_settings,
        "cores": asdict(plan.cores),
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "connections": plan.connections,
    }


def headline(facts):
    cores, busy = facts["cores"], facts["load_average"]
    where = f"proxy on core {cores['proxy']}, load and origin on core {cores['load']}"
    lines = [
        facts["machine"],
        where if cores["proxy"] is not None else "nothing pinned",
        f"{cores['workers']} worker(s) for each proxy, {facts['connections']} connections",
        f"median of {facts['rounds']} round(s) of {facts['seconds']} s",
        *facts["versions"].values(),
    ]
    if busy > BUSY:
        lines.append(f"The machine is busy with something else (load average {busy:.1f}): trust the ratios only.")
    return "\n".join(lines)


def machine():
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    with open("/proc/meminfo") as file:
        memory_gib = int(file.readline().split()[1]) / (1 << 20)
    cpu = models[0] if models else platform.machine()
    return f"{os.cpu_count()} × {cpu}, {memory_gib:.0f} GiB, Linux {platform.release()}"


def versions(programs, keys):
    asked = {
        "nginx": [which("nginx"), "-v"],
        "curtsy": [programs.get("curtsy"), "--version"],
        "trafficserver": [which("traffic_server"), "--version"],
        "squid": [which("squid"), "--version"],
        "tinyproxy": [which("tinyproxy"), "-v"],
        "mitmproxy": [programs.get("mitmdump"), "--version"],
    }
    return {key: first_line(argv) for key, argv in asked.items() if key in keys}


def first_line(argv):
    run = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    return next(iter((run.stdout + run.stderr).strip().splitlines()), "no version")
