"""Rebuilds the networks of compose.yaml: a crawler on an internal network whose only way out is curtsy.

Three network namespaces stand for the containers: the crawler's is connected only to curtsy's, and curtsy's also to the
origin's. They do not touch the machine's own network and disappear with the processes.
"""

import os
import shutil
import subprocess

import world
from world import DEPLOY, NotPossible, Program, said

CRAWLER, CURTSY = "10.99.0.3", "10.99.0.2"
# Any public address will do: no packet leaves these namespaces.
WEB, ORIGIN = "11.22.33.1", "11.22.33.44"
ORIGIN_PROGRAM = f"import world, time; print(world.start_origin('{ORIGIN}'), flush=True); time.sleep(600)"


def check(curtsy, folder):
    world.need(ip="iproute2", curl="curl")
    if os.getuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        raise NotPossible("network namespaces are not permitted here")
    with Namespace() as crawler, Namespace() as proxy, Namespace() as web:
        join(crawler, f"{CRAWLER}/24", proxy, f"{CURTSY}/24")
        join(proxy, f"{WEB}/24", web, f"{ORIGIN}/24")
        with Program(web.inside("python3", "-Bc", ORIGIN_PROGRAM), folder / "origin.log", cwd=os.path.dirname(__file__)) as origin, \
                Program(proxy.inside(curtsy, "run", "--config", DEPLOY / "image.toml"), folder / "proxy.log",
                        env=world.environment(CURTSY_STATE_DIR="memory", CURTSY_LOG__FORMAT="json")) as program:
            program.ready()
            address = world.wait(lambda: origin.log.read_text().strip(), "the origin")
            try_ways_out(crawler, f"http://{address}/")


def try_ways_out(crawler, url):
    curl = ["curl", "-sS", "--connect-timeout", "1", url]
    assert "hello" in said(*crawler.inside(*curl, "--proxy", f"http://{CURTSY}:3128")), "the way through curtsy is closed"
    assert fails(crawler.inside(*curl, "--noproxy", "*")), "the crawler got out without curtsy"
    # Also if the crawler uses curtsy as its gateway: curtsy forwards requests, its machine forwards no packets.
    said(*crawler.inside("ip", "route", "add", "default", "via", CURTSY))
    assert fails(crawler.inside(*curl, "--noproxy", "*")), "the crawler got out past curtsy"
    print("  a crawler on the internal network gets out through curtsy, and not otherwise")


def fails(command):
    return subprocess.run(command, capture_output=True, env=world.environment()).returncode != 0


class Namespace:
    """A network namespace, kept alive by a process that only sleeps."""

    def __enter__(self):
        self.keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep 600"],
                                       stdout=subprocess.PIPE, text=True)
        assert self.keeper.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_):
        self.keeper.kill()
        self.keeper.wait()

    def inside(self, *command):
        return [shutil.which("nsenter"), "--target", str(self.keeper.pid), "--net", "--", *map(str, command)]


def join(one, one_address, other, other_address):
    """A cable between two networks."""
    names = [f"to{other.keeper.pid}", f"to{one.keeper.pid}"]
    said("ip", "link", "add", names[0], "netns", one.keeper.pid, "type", "veth", "peer", "name", names[1], "netns", other.keeper.pid)
    for namespace, name, address in [(one, names[0], one_address), (other, names[1], other_address)]:
        said(*namespace.inside("ip", "address", "add", address, "dev", name))
        said(*namespace.inside("ip", "link", "set", name, "up"))
