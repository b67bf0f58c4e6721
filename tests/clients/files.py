"""Files that clients need, and what origins serve besides pages: a git repository, packages, a browser profile."""

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "dashboard"))

from browser import Browser
from curtsy import bare_environment

SOMEBODY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.com"}


def repository(folder):
    """A repository as the files that git requests from a server without git support."""
    work, bare = folder / "work", folder / "repo.git"
    environment = {**bare_environment(), **SOMEBODY, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words):
        subprocess.run(["git", *map(str, words)], cwd=folder, check=True, capture_output=True, env=environment)

    git("init", "-q", "-b", "main", work)
    (work / "hello").write_text("hello\n")
    git("-C", work, "add", "hello")
    git("-C", work, "commit", "-q", "-m", "Say hello")
    git("clone", "-q", "--bare", work, bare)
    git("-C", bare, "update-server-info")
    return {f"/repo.git/{path.relative_to(bare)}": path.read_bytes() for path in bare.rglob("*") if path.is_file()}


def packages(folder):
    """A Debian package, its package list, and the release file."""
    tree = folder / "hello"
    (tree / "DEBIAN").mkdir(parents=True)
    control = "Package: hello\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: hello\n"
    (tree / "DEBIAN/control").write_text(control)
    archive = folder / "hello_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, archive], check=True, capture_output=True)
    content = archive.read_bytes()
    listed = f"{control}Filename: ./hello_1_all.deb\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    known = f"SHA256:\n {hashlib.sha256(listed.encode()).hexdigest()} {len(listed)} Packages\n"
    return {"/apt/Release": known.encode(), "/apt/Packages": listed.encode(), "/apt/hello_1_all.deb": content}


def registries():
    """A Python package and a Node package, with the indexes that pip and npm read."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hello-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1\n")
        archive.writestr("hello-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    name = "hello-1-py3-none-any.whl"
    package = {"name": "hello", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "hello", "version": "1.0.0"}}}
    return {"/simple/hello/": f"<a href=/simple/{name}>{name}</a>".encode(), f"/simple/{name}": wheel.getvalue(),
            "/npm/hello": json.dumps(package).encode()}


def apt_options(folder, url, curtsy):
    """Options that keep apt-get away from the system's files, so that it needs no rights and changes nothing."""
    for name in ("etc/preferences.d", "etc/trusted.gpg.d", "state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "state/status").touch()
    (folder / "etc/sources.list").write_text(f"deb [trusted=yes] {url} ./\n")
    settings = {
        "Dir::Etc": folder / "etc", "Dir::Etc::sourceparts": "/dev/null", "Dir::Etc::parts": "/dev/null",
        "Dir::State": folder / "state", "Dir::State::status": folder / "state/status", "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "", "Acquire::Languages": "none", "Acquire::http::Proxy": f"http://{curtsy.proxy}",
        "Acquire::https::Proxy": f"http://{curtsy.proxy}", "Acquire::https::CaInfo": curtsy.bundle,
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def chromium(folder, curtsy, name="browser"):
    """A browser that uses curtsy and trusts its CA, with its own home directory."""
    home = folder / name
    database = home / ".pki/nssdb"
    database.mkdir(parents=True)
    for name, path in (("curtsy", curtsy.ca), ("origins", curtsy.origins)):
        command = ["certutil", "-d", f"sql:{database}", "-A", "-t", "C,,", "-n", name, "-i", path]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    environment = {**bare_environment(), "HOME": str(home)}
    return Browser([f"--proxy-server=http://{curtsy.proxy}"], environment)
