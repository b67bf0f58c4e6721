"""Runs an image's program as an engine does with `--read-only --cap-drop ALL`, and tests it (X61).

    unshare --net --mount inside.py ROOT CONFIG FOLDER

The root is read-only except for the volume, the network namespace is separate, and the user is the image's.
"""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy"))

import rights
import world
from world import Program, said

# Far less than `shutdown_grace`: nothing is in flight.
STOP_SECONDS = 5


def main(root, config, folder):
    root, folder = pathlib.Path(root), pathlib.Path(folder)
    config = json.loads(pathlib.Path(config).read_text())
    user = int(config["User"].split(":")[0])
    furnish(root, folder, user)

    def enter():
        rights.give_up(user, root)

    def health():
        command = config["Healthcheck"]["Test"][1:]
        return subprocess.run(command, preexec_fn=enter, env={}, capture_output=True, timeout=world.PATIENCE).returncode

    assert health() == 4, "nobody runs yet"
    origin = world.start_origin()
    settings = {"CURTSY_ACCESS__ALLOW_DESTINATIONS": "127.0.0.0/8", "CURTSY_LOG__FORMAT": "json"}
    command = [*config["Entrypoint"], *config["Cmd"]]
    with Program(command, folder / "curtsy.log", env=settings, preexec_fn=enter) as program:
        ready = program.ready()
        assert ready["proxy"] == "0.0.0.0:3128", ready
        assert world.get(f"http://{origin}/", "127.0.0.1:3128") == "hello\n"
        assert health() == 0, "it runs, and says that it does not"
        owner = pathlib.Path(f"/proc/{program.process.pid}").stat().st_uid
        assert owner == user, f"it runs as {owner}"
        took = program.stop(STOP_SECONDS)
    kept = sorted(path.name for path in (root / "var/lib/curtsy").iterdir())
    assert kept, "nothing was kept in the volume"
    print(f"  with a read-only root: a request goes through, it is healthy, it keeps {', '.join(kept)}, "
          f"and SIGTERM ends it in {took * 1000:.0f} ms")


def furnish(root, folder, user):
    """Mounts the image's root read-only and its volume, and brings up the loopback network."""
    said("ip", "link", "set", "lo", "up")
    volume = folder / "volume"
    volume.mkdir()
    os.chown(volume, user, user)
    said("mount", "--bind", root, root)
    said("mount", "--bind", volume, root / "var/lib/curtsy")
    said("mount", "-o", "remount,bind,ro", root)
    try:
        (root / "etc/curtsy/written").touch()
    except OSError:
        return
    raise AssertionError("the root can be written")


main(*sys.argv[1:])
