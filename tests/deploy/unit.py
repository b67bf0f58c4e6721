"""curtsy.service is valid and restrictive, and curtsy works under it (X61).

systemd itself is not started: `confine.py` reads the restrictions from the unit and applies them, so that a call which
the unit does not allow ends the program and the test.
"""

import os
import pathlib
import re
import signal
import socket
import sys

import world
from world import DEPLOY, NotPossible, Program, said

UNIT = DEPLOY / "curtsy.service"
# Out of ten; systemd calls less than two "OK". The rest is network access, which a proxy needs.
EXPOSURE = 1.5


def check(curtsy, folder):
    world.need(systemd_analyze="systemd", kill="procps")
    verify(curtsy, folder)
    exposure()
    confined(curtsy, folder)


def verify(curtsy, folder):
    """The unit as installed, except for the paths of the program and the manual."""
    copy = folder / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/curtsy", str(curtsy)))
    complaints = [line for line in said("systemd-analyze", "verify", "--man=no", copy).splitlines() if "curtsy" in line]
    assert not complaints, complaints
    print("  systemd finds the unit sound")


def exposure():
    table = said("systemd-analyze", "security", "--no-pager", "--offline=true", UNIT)
    level = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", table)[1])
    assert level <= EXPOSURE, f"{level}\n{table}"
    print(f"  its exposure is {level} of 10")


def confined(curtsy, folder):
    """A request goes through, a reload works, and systemd is notified of both."""
    if os.getuid() != 0:
        raise NotPossible("only root can confine a program as systemd does")
    supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"curtsy-test-{os.getpid()}"
    supervisor.bind(f"\0{name}")
    supervisor.settimeout(world.PATIENCE)

    def heard():
        return supervisor.recv(256).decode()

    origin = world.start_origin()
    config = folder / "unit.toml"
    config.write_text('listen = ["127.0.0.1:0"]\nadmin = "127.0.0.1:0"\n'
                      'access.allow_destinations = ["127.0.0.0/8"]\npoliteness.delay = "0s"\n')
    confine = [sys.executable, "-B", pathlib.Path(__file__).with_name("confine.py"), UNIT, curtsy, config]
    told = world.environment(NOTIFY_SOCKET=f"@{name}", CURTSY_LOG__FORMAT="json")
    with Program(["unshare", "--mount", *confine], folder / "unit.log", env=told) as program:
        proxy = program.ready()["proxy"]
        assert heard() == "READY=1"
        assert world.get(f"http://{origin}/", proxy) == "hello\n"
        # A name, so that the resolver has to work too.
        port = origin.rsplit(":", 1)[1]
        assert world.get(f"http://localhost:{port}/", proxy) == "hello\n"
        assert not program.event("store.failed") and not program.event("limits.files"), program.log.read_text()
        program.process.send_signal(signal.SIGHUP)
        assert [heard(), heard()] == ["RELOADING=1", "READY=1"]
        program.process.terminate()
        assert heard() == "STOPPING=1"
        assert program.process.wait(world.PATIENCE) == 0, program.log.read_text()
    print("  curtsy works with all that is forbidden, and tells when it is ready, reloads and stops")
