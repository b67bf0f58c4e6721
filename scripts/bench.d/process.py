"""Starts processes, measures their cost and ends them.

Every process started here is ended here, by its own process id, also after an error or Ctrl-C. Costs are those of a
whole process tree, because half of the proxies fork.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START_LIMIT_S = 20
STOP_LIMIT_S = 3


class Failure(Exception):
    """A problem to report to the user, in one sentence."""


@contextlib.contextmanager
def running(argv, log_path, port, core=None, env=None, address="127.0.0.1"):
    """Run `argv` until the block ends; yields its process id once `port` accepts connections."""
    pinned = ["taskset", "--cpu-list", str(core)] if core is not None else []
    with open(log_path, "wb") as log:
        # Its own session, so that Ctrl-C reaches only this program, which then ends its children in order.
        process = subprocess.Popen(
            pinned + argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    try:
        wait_until_open(process, (address, port), log_path)
        yield process.pid
    finally:
        end(process)


def wait_until_open(process, place, log_path):
    deadline = time.monotonic() + START_LIMIT_S
    while not accepts(place):
        if process.poll() is not None:
            raise Failure(f"it ended with status {process.returncode}: {tail(log_path)}")
        if time.monotonic() > deadline:
            raise Failure(f"nothing accepts on {place[0]}:{place[1]} after {START_LIMIT_S} s: {tail(log_path)}")
        time.sleep(0.02)


def accepts(place):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(place) == 0


def tail(path, lines=5):
    with open(path, errors="replace") as file:
        return "\n".join(["see " + str(path)] + file.read().splitlines()[-lines:])


def end(process):
    family = tree(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT_S)
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == process.pid:  # still ours: the system may have reused the process id
                os.kill(pid, signal.SIGKILL)
    process.wait()


def output(argv, limit_s, cwd):
    """Run `argv` to its end, and return what it printed."""
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=cwd, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(argv)} has not ended after {limit_s} s") from None
    finally:
        end(process)
    if process.returncode != 0:
        raise Failure(f"{' '.join(argv)} ended with status {process.returncode}")
    return printed


def free_port():
    """A port that is free on every loopback address: the origin listens on many of them."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return probe.getsockname()[1]


def tree(root):
    """The process ids of `root` and everything below it."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(stat_fields(entry)[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def stat_fields(pid):
    """/proc/PID/stat after the command name, which may itself contain spaces and brackets."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def cpu_seconds(root):
    """User and system time of the tree, with that of children already waited for."""
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            total += sum(int(field) for field in stat_fields(pid)[11:15])
    return total / TICKS_PER_SECOND


def ran_seconds(pid):
    """How long the threads of one process have run, to the nanosecond: `cpu_seconds` counts in hundredths."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def memory_bytes(root):
    """Proportional set size of the tree: a page shared by n processes counts as one n-th for each."""
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return total * 1024
