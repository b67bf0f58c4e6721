"""buildah with separate storage, so that it neither uses nor changes the machine's."""

import contextlib
import json
import os
import pathlib
import subprocess

import world
from world import said

LIMIT_SECONDS = 3000


class Buildah:
    def __init__(self, folder):
        # Layers that share their files if the kernel supports it, or copies.
        self.command = ["buildah", "--root", folder / "storage", "--runroot", folder / "run"]
        # Where caches of `RUN --mount=type=cache` are kept.
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        self.environment = world.environment(TMPDIR=str(temporary), BUILDAH_ISOLATION="chroot")

    def __call__(self, *words, **options):
        return said(*self.command, *words, env=self.environment, timeout=LIMIT_SECONDS, **options).strip()

    def has(self, name):
        return f"localhost/{name}" in self("images", "--format", "{{.Name}}").splitlines()

    def make(self, name, root, *settings):
        """Makes an image from a folder."""
        container = self("from", "scratch").splitlines()[-1]
        self("add", "--quiet", container, root, "/")
        self("config", *settings, container)
        self("commit", "--quiet", "--rm", container, name)

    def build(self, folder, name, **arguments):
        """Builds the folder's Dockerfile, in Docker's format because only that has HEALTHCHECK."""
        given = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
        command = [*self.command, "build", "--format", "docker", "--isolation", "chroot", "--tag", name, *given, folder]
        subprocess.run(list(map(str, command)), env=self.environment, check=True, timeout=LIMIT_SECONDS)

    def config(self, name):
        return json.loads(self("inspect", "--type", "image", name))["Docker"]["config"]

    @contextlib.contextmanager
    def mounted(self, name):
        container = self("from", "--pull-never", f"localhost/{name}").splitlines()[-1]
        yield pathlib.Path(self("mount", container).splitlines()[-1])
        self("umount", container)
        self("rm", container)

    def close(self):
        """Unmounts everything, or the folder could not be deleted."""
        subprocess.run(list(map(str, [*self.command, "rm", "--all"])), env=self.environment, capture_output=True)
        mounts = pathlib.Path("/proc/mounts").read_text().splitlines()
        storage = str(self.command[2])
        for point in sorted((line.split()[1] for line in mounts), reverse=True):
            if point.startswith(storage):
                subprocess.run(["umount", "--lazy", point], check=False)
