"""The table of clients in docs/cache.md, row by row: what origins see when a client comes again.

Each site has pages with a lifetime, which must not be asked for again, and pages with a validator, which may only be
validated.
"""

import base64
import hashlib
import io
import json
import re
import sys
import tarfile
from collections import Counter

import files
import programs
from curtsy import bare_environment
from gaps import TOLERANCE, check_gaps, pages_seen

DELAY = 0.05  # of *.cache.test, in curtsy.py
PAGES = 12
AGENTS = 10
FOREVER = {"Cache-Control": "max-age=31536000, immutable"}
ENTRY = "<item><title>one</title><link>http://reader.cache.test/1</link></item>"
FEED = f"<rss version='2.0'><channel><title>news</title>{ENTRY}</channel></rss>".encode()
READER = """import feedparser, sys
for _ in range(3):
    feed = feedparser.parse(sys.argv[1])
    print("read", feed.status, len(feed.entries))"""


def answer(visit):
    path = visit.path
    if path == "/feed":
        return validated(visit, {"Content-Type": "application/rss+xml"}, FEED)
    if path.endswith((".whl", ".tgz")):
        return 200, {"Content-Type": "application/octet-stream", **FOREVER}, archives()[path]
    if path == "/simple/hello/":
        return validated(visit, {"Content-Type": "text/html"}, files.registries()[path])
    if path == "/npm/hello":
        return validated(visit, {"Content-Type": "application/json"}, npm_index())
    number = int(path.strip("/") or 1)
    if number > PAGES:
        return 404, {}, b"no such page\n"
    links = "".join(f"<a href=/{page}>{page}</a>" for page in (2 * number, 2 * number + 1) if page <= PAGES + 1)
    page = f"<p>{visit.host} {number}</p>{links}".encode()
    if has_lifetime(path):
        return 200, {"Content-Type": "text/html", "Cache-Control": "max-age=3600"}, page
    return validated(visit, {"Content-Type": "text/html"}, page)


def has_lifetime(path):
    return int(path.strip("/")) % 2 == 1


def validated(visit, fields, body):
    """A 304 if the request has the right validator."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    if visit.fields.get("if-none-match") == etag:
        return 304, {"ETag": etag}, b""
    return 200, {"ETag": etag, **fields}, body


def archives():
    wheel = "/simple/hello-1-py3-none-any.whl"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        content = json.dumps({"name": "hello", "version": "1.0.0"}).encode()
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return {wheel: WHEEL, "/npm/hello-1.0.0.tgz": packed.getvalue()}


# A zip file has the time of its making: made once, so that every answer is the same.
WHEEL = files.registries()["/simple/hello-1-py3-none-any.whl"]


def npm_index():
    archive = archives()["/npm/hello-1.0.0.tgz"]
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    dist = {"tarball": "https://npm.cache.test/npm/hello-1.0.0.tgz", "integrity": integrity}
    version = {"name": "hello", "version": "1.0.0", "dist": dist}
    return json.dumps({"name": "hello", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}).encode()


def spider_runs_again(world):
    """Scrapy, twice through one curtsy: the second run sends nothing but validations."""
    spider = [sys.executable, "-m", "scrapy", "runspider", programs.HERE / "shop_spider.py"]
    hosts = {"scrapy-plain.cache.test": "http", "scrapy.cache.test": "https"}
    environment = {**world.curtsy.environment(), "SHOPS": " ".join(f"{way}://{host}/1" for host, way in hosts.items())}
    first = programs.run(spider, environment, world.folder)
    before = {host: pages_seen(world, host) for host in hosts}
    second = programs.run(spider, environment, world.folder)
    wanted = Counter(f"{200 if page <= PAGES else 404} {way}://{host}/{page}" for host, way in hosts.items()
                     for page in range(1, PAGES + 2))
    for said in (first, second):
        got = Counter(line for line in said.splitlines() if re.match(r"(\d{3}|failed) http", line))
        assert got == wanted, said
    for host in hosts:
        assert len(before[host]) == PAGES + 1, before[host]
        only_validations(world, host, before[host], {f"/{page}" for page in range(2, PAGES + 1, 2)}, {f"/{PAGES + 1}"})


def only_validations(world, host, before, validations, errors=frozenset()):
    """Checks what a host saw since `before`: a 304 for each of these paths, and the errors, which may not be hidden."""
    again = pages_seen(world, host)[len(before):]
    seen = sorted((visit.path, visit.status) for visit in again)
    wanted = sorted([(path, 304) for path in validations] + [(path, 404) for path in errors])
    assert seen == wanted, f"{host} saw {seen} in the second run, not {wanted}"
    check_gaps(again, DELAY, TOLERANCE)


def feed_reader_asks_again(world):
    """feedparser without etag and modified: curtsy validates for it; with `min_refresh` it does not even ask."""
    for host, statuses in (("reader.cache.test", [200, 304, 304]), ("patient-reader.cache.test", [200])):
        command = [sys.executable, "-c", READER, f"https://{host}/feed"]
        said = programs.run(command, world.curtsy.environment(), world.folder)
        assert said.splitlines() == ["read 200 1"] * 3, said
        assert [visit.status for visit in pages_seen(world, host)] == statuses, pages_seen(world, host)


def link_checkers_look_again(world):
    """LinkChecker twice, then wget with HEAD: pages are not downloaded again, and a dead link is dead each time."""
    host, folder = "links.cache.test", world.folder
    (folder / "links.ini").write_text(f"[checking]\nsslverify={world.curtsy.bundle}\ntimeout=100\n")
    check = [sys.executable, "-m", "linkcheck", "-f", folder / "links.ini", "--no-status", "--no-warnings", f"https://{host}/1"]
    pages, dead = {f"/{page}" for page in range(2, PAGES + 1, 2)}, {f"/{PAGES + 1}"}
    before = []
    for run in range(2):
        said = programs.run(check, world.curtsy.environment(), folder)
        assert said.count("404") == 1 and "1 error found" in said, f"{said}\n{pages_seen(world, host)}"
        if run:
            only_validations(world, host, before, pages, dead)
        before = pages_seen(world, host)
    urls = [f"https://{host}/{page}" for page in range(1, PAGES + 2)]
    command = ["wget", "--spider", "-nv", f"--ca-certificate={world.curtsy.bundle}", *urls]
    said = programs.run(command, world.curtsy.environment(), folder)
    assert said.count("200 OK") == PAGES and "broken link" in said, said
    only_validations(world, host, before, pages, dead)


def pip_downloads_again(world):
    """`curtsy exec -- pip`, twice, without pip's own cache: the wheel is not downloaded again."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-cache-dir", "--no-deps", "--disable-pip-version-check",
               "--index-url", "https://pip.cache.test/simple/", "hello"]
    install_twice(world, "pip.cache.test", "/simple/hello/", lambda folder: [*command, "-d", folder], "hello-1*.whl")


def npm_installs_again(world):
    """`curtsy exec -- npm`, twice, each time with an empty cache of its own: the archive is not downloaded again."""
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--registry", "https://npm.cache.test/npm/"]
    command = lambda folder: [*words, "--prefix", folder, "--cache", folder / "cache", "hello"]  # noqa: E731
    install_twice(world, "npm.cache.test", "/npm/hello", command, "node_modules/hello/package.json")


def install_twice(world, host, index, command, installed):
    home = world.folder / f"home-{host}"
    environment = {**bare_environment(), **world.curtsy.variables, "HOME": str(home), "CURTSY_ADMIN": "off",
                   "CURTSY_TLS__EXTRA_ROOTS": str(world.curtsy.origins), "CURTSY_POLITENESS__DELAY": "50ms"}
    before = []
    for run in ("first", "second"):
        folder = home / run
        folder.mkdir(parents=True)
        said = programs.run([world.curtsy.program, "exec", "--", *command(folder)], environment, folder)
        assert list(folder.glob(installed)), f"{host}, {run} run:\n{said}"
        if run == "second":
            only_validations(world, host, before, {index})
            assert "1 from the cache" in said, said
        before = pages_seen(world, host)


def agents_ask_at_once(world):
    """Ten requests for one page at the same moment are one visit."""
    url = "https://agents.cache.test/1"
    command = [sys.executable, programs.HERE / "crowd.py", "aiohttp", AGENTS, *[url] * AGENTS]
    said = programs.run(command, world.curtsy.environment(), world.folder)
    assert said.count("200 <p>agents.cache.test 1</p>") == AGENTS, said
    assert len(pages_seen(world, "agents.cache.test")) == 1, pages_seen(world, "agents.cache.test")


STORIES = {"Scrapy": spider_runs_again, "feed reader": feed_reader_asks_again, "link checkers": link_checkers_look_again,
           "pip": pip_downloads_again, "npm": npm_installs_again, "agents": agents_ask_at_once}
