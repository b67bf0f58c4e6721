"""Installs what the comparison needs: peers from Debian, mitmproxy from pip, curtsy from this repository."""

import os
import shutil
import subprocess
from pathlib import Path

from process import Failure

# The package of each program. tinyproxy-bin is tinyproxy without its system service.
PACKAGES = {
    "nginx": "nginx-light",
    "squid": "squid-openssl",  # the plain package cannot decrypt tunnels
    "traffic_server": "trafficserver",
    "tinyproxy": "tinyproxy-bin",
    "wrk": "wrk",
    "taskset": "util-linux",
}
PROGRAM_OF_PEER = {"squid": "squid", "trafficserver": "traffic_server", "tinyproxy": "tinyproxy"}
POLICY = Path("/usr/sbin/policy-rc.d")


def programs(peers, root, options):
    """Install what is missing for `peers`; return the paths of the programs that no package put on PATH."""
    wanted = ["nginx", "wrk", "taskset"] + [PROGRAM_OF_PEER[key] for key in peers if key in PROGRAM_OF_PEER]
    missing = [name for name in wanted if which(name) is None]
    if missing and options.no_install:
        raise Failure(f"not installed: {', '.join(missing)}; run without --no-install")
    if missing:
        install_packages([PACKAGES[name] for name in missing])
    paths = {}
    if "mitmproxy" in peers:
        paths["mitmdump"] = mitmdump(root, options.no_install)
    if "curtsy" in peers:
        paths["curtsy"] = options.curtsy or build_curtsy(root)
    for path in paths.values():
        if not os.access(path, os.X_OK):
            raise Failure(f"{path} is not a program")
    return paths


def which(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin")


def install_packages(packages):
    if which("apt-get") is None:
        raise Failure(f"no apt-get here; install {', '.join(packages)} by hand, or choose with --only")
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if sudo and which("sudo") is None:
        raise Failure(f"installing {', '.join(packages)} needs root or sudo")
    with_quiet_services(sudo, lambda: apt_get(sudo, packages))


def apt_get(sudo, packages):
    call(sudo + ["apt-get", "-qq", "update"], "apt-get update")
    flags = ["-qq", "-y", "--no-install-recommends"]
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    call(sudo + environment + ["apt-get", "install", *flags, *packages], "apt-get install " + " ".join(packages))


def with_quiet_services(sudo, install):
    """Keep Debian from starting the services of the packages: a policy-rc.d that exits with 101 forbids it."""
    ours = not POLICY.exists()
    if ours:
        write = f"printf '#!/bin/sh\\nexit 101\\n' >{POLICY} && chmod 755 {POLICY}"
        call(sudo + ["sh", "-c", write], f"writing {POLICY}")
    try:
        install()
    finally:
        if ours:
            call(sudo + ["rm", "-f", str(POLICY)], f"removing {POLICY}")


def mitmdump(root, no_install):
    venv = root / "target/bench/venv"
    path = venv / "bin/mitmdump"
    if not path.exists():
        if no_install:
            raise Failure(f"mitmproxy is not installed in {venv}; run without --no-install")
        call(["python3", "-m", "venv", str(venv)], "making a Python environment (python3-venv is needed)")
        call([str(venv / "bin/pip"), "install", "--quiet", "mitmproxy"], "pip install mitmproxy")
    return str(path)


def build_curtsy(root):
    # Built as for the image and the Debian package.
    command = ["cargo", "build", "--profile", "dist", "--features", "jemalloc"]
    call([*command, "--quiet"], " ".join(command), cwd=root)
    return str(root / "target/dist/curtsy")


def call(argv, what, cwd=None):
    print(f"# {what}", flush=True)
    try:
        run = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Failure(f"{what}: {error.filename} is not installed") from error
    if run.returncode != 0:
        raise Failure(f"{what} failed:\n{(run.stderr or run.stdout).strip()[-1500:]}")
