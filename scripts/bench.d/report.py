"""The tables: medians over the rounds, and the ratios that count."""

import platform
import statistics
import subprocess
from dataclasses import dataclass

# Whom a row is compared with, and the heading of that column.
YARDSTICKS = {"nginx": "× nginx", "trafficserver": "× Traffic Server", "squid": "× Squid"}


@dataclass(frozen=True)
class Column:
    heading: str
    key: str
    scale: float = 1.0
    digits: int = 1


MIB = 1 / (1 << 20)
KIB = 1 / (1 << 10)
REQUESTS = [
    Column("req/s", "rate", digits=0),
    Column("p50 ms", "p50_ms", digits=2),
    Column("p99 ms", "p99_ms", digits=2),
    Column("memory MiB", "memory_bytes", MIB),
]
COLUMNS = {
    "idle": [
        Column("KiB per connection", "each_bytes", KIB),
        Column("still open", "open", digits=0),
        Column("memory before MiB", "before_bytes", MIB),
    ],
    "stream": [
        Column("growth MiB", "growth_bytes", MIB),
        Column("memory before MiB", "before_bytes", MIB),
        Column("CPU ns/byte", "cpu_ns_per_byte", digits=3),
        Column("MiB/s", "mib_per_s", digits=0),
    ],
    "tunnel": [Column("MiB/s", "mib_per_s", digits=0)],
}
# The figure of a scenario that the ratios are made of.
COMPARED = {"idle": None, "stream": None, "tunnel": Column("CPU ns/byte", "cpu_ns_per_byte", digits=3)}
COMPARED_REQUESTS = Column("CPU µs/req", "cpu_us")


def medians(rounds):
    """The middle of each number over the rounds: one disturbed round does not move it."""
    keys = set.intersection(*(set(result) for result in rounds)) if rounds else set()
    return {key: statistics.median(result[key] for result in rounds) for key in keys}


def table(scenario, rows):
    """`rows`: (title, key, medians, error). A Markdown table, aligned to be read as it is."""
    compared = COMPARED.get(scenario, COMPARED_REQUESTS)
    columns = COLUMNS.get(scenario, REQUESTS)
    lines = [["", *headings(compared, columns)]]
    base = {key: numbers.get(compared.key) for _, key, numbers, _ in rows} if compared else {}
    for title, key, numbers, error in rows:
        if error:
            title += " (failed)"
        cells = [number(numbers, compared), *ratios(numbers, compared, base)] if compared else []
        lines.append([title, *cells, *(number(numbers, column) for column in columns)])
    return aligned(lines)


def headings(compared, columns):
    first = [compared.heading, *YARDSTICKS.values()] if compared else []
    return first + [column.heading for column in columns]


def ratios(numbers, compared, base):
    mine = numbers.get(compared.key)
    return [f"{mine / base[key]:.2f}" if mine and base.get(key) else "–" for key in YARDSTICKS]


def number(numbers, column):
    value = numbers.get(column.key)
    return "–" if value is None else f"{value * column.scale:,.{column.digits}f}"


def aligned(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows = [lines[0], rule, *lines[1:]]
    return "\n".join("| " + " | ".join(pad(cell, i, widths[i]) for i, cell in enumerate(row)) + " |" for row in rows)


def pad(cell, column, width):
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def machine():
    """What the figures were measured on."""
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    with open("/proc/meminfo") as file:
        memory_gib = int(file.readline().split()[1]) / (1 << 20)
    cpu = models[0] if models else platform.machine()
    return f"{len(models)} × {cpu}, {memory_gib:.0f} GiB, Linux {platform.release()}"


def versions(commands):
    """The first line each program says about its version."""
    return {key: first_line(argv) for key, argv in commands.items()}


def first_line(argv):
    try:
        run = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    except OSError as error:
        return str(error)
    return next(iter((run.stdout + run.stderr).strip().splitlines()), "")
