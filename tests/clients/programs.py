"""The clients, and the command with which each fetches some URLs. The tests look only at what they print."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
PATIENCE = 90  # seconds for one client, on a busy machine


@dataclass
class Client:
    name: str
    # Its token in robots.txt, and how the User-Agent that origins see begins.
    token: str
    agent: str
    # What it prints if a tunnel is refused because robots.txt forbids the whole host.
    refused: str
    # Makes the command from URLs and a file with the trusted CAs, if the environment does not name one.
    command: Callable


def run(command, environment, folder):
    """What a command prints. The exit code is ignored, because refusals are part of the tests."""
    try:
        done = subprocess.run([str(word) for word in command], env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
        return done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        raise AssertionError(f"{command[0]} was not ready after {PATIENCE} s\n{said}") from None


def python(library):
    return lambda urls, _: [sys.executable, HERE / "pages.py", library, *urls]


def curl(urls, _):
    return ["curl", "-sS", *urls]


def wget(urls, bundle):
    trust = [f"--ca-certificate={bundle}"] if bundle else []
    return ["wget", "-nv", "--tries=1", "--content-on-error", "-O-", *trust, *urls]


def node(urls, _):
    return ["node", HERE / "fetch.js", *urls]


def scrapy(*_):
    return [sys.executable, "-m", "scrapy", "runspider", HERE / "pages_spider.py"]


def clients():
    said = "Denied by robots.txt (curtsy)"
    yield Client("curl", "curl", "curl/", "response 403", curl)
    yield Client("wget", "wget", "Wget/", said, wget)
    yield Client("requests", "python-requests", "python-requests/", said, python("requests"))
    yield Client("httpx", "python-httpx", "python-httpx/", said, python("httpx"))
    yield Client("aiohttp", "*", "Python/", said, python("aiohttp"))
    yield Client("scrapy", "scrapy", "Scrapy/", said, scrapy)
    yield Client("node", "*", "", "fetch failed", node)
