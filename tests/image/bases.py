"""Builds base images from Debian packages, for a machine without access to an image registry."""

import pathlib
import shutil
import subprocess
import tempfile

import world
from world import said

SUITE = "bookworm"
# What the Dockerfile needs from rust:1-bookworm besides Rust.
BUILDER = ["ca-certificates", "gcc", "libc6-dev", "make"]
# What distroless/cc-debian12 is made of.
RUNTIME = ["base-files", "ca-certificates", "libc6", "libgcc-s1", "libgomp1", "libssl3", "libstdc++6", "netbase", "tzdata"]
ROOTS = "etc/ssl/certs/ca-certificates.crt"


def make_builder(buildah, root):
    said("debootstrap", "--variant=minbase", f"--include={','.join(BUILDER)}", SUITE, root, timeout=600)
    sysroot = pathlib.Path(said("rustc", "--print", "sysroot", cwd=world.ROOT).strip())
    for name in ["bin", "lib"]:
        shutil.copytree(sysroot / name, root / "usr/local" / name, symlinks=True, dirs_exist_ok=True)
    # The builder uses the machine's own settings for the package registry.
    shutil.copy(f"/{ROOTS}", root / ROOTS)
    buildah.make("builder", root, "--env", "CARGO_HOME=/usr/local/cargo",
                 "--env", "PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    shutil.rmtree(root)


def make_runtime(buildah, root):
    root.mkdir()
    with tempfile.TemporaryDirectory() as download:
        # apt complains if its user may not write there, so it runs as root.
        subprocess.run(["apt-get", "download", "-qq", *RUNTIME], cwd=download, check=True, capture_output=True)
        for package in pathlib.Path(download).glob("*.deb"):
            said("dpkg", "-x", package, root)
    for unwanted in ["usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/share/locale", "usr/sbin"]:
        shutil.rmtree(root / unwanted, ignore_errors=True)
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / ROOTS).parent.mkdir(parents=True, exist_ok=True)
    (root / ROOTS).write_text("".join(path.read_text() for path in certificates))
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nnonroot:x:65532:\n")
    buildah.make("runtime", root, "--user", "65532")
    shutil.rmtree(root)
