"""What each client does, and what must be true afterwards."""

import gzip
import shlex
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable

import caching
import files
import programs
import recipes
import setup
import shops
import sites
from curtsy import Curtsy, bare_environment
from gaps import TOLERANCE, check_gaps, pages_seen
from internet import IDLE

MODES = {"plain": "http", "tunnel": "https", "intercept": "https"}
DELAY_MS = 250
# docs/pacing.md: gaps inside a tunnel are kept to within 5 %.
TUNNEL_TOLERANCE = 0.05 * DELAY_MS / 1000


@dataclass
class World:
    curtsy: object
    guarded: object
    internet: object
    folder: Path


@dataclass
class Story:
    name: str
    run: Callable
    # Programs that the tests do not install: such a story runs on demand only.
    needs: list = field(default_factory=list)


def all_stories():
    yield Story("spider", shops.spider_gets_every_page)
    for client in programs.clients():
        yield Story(client.name, partial(fetch_pages, client))
    for library in ("requests", "httpx", "aiohttp"):
        yield Story(f"crowd of {library}", partial(crowd_gets_every_page, library))
    yield Story("wget -r", wget_follows_links)
    yield Story("wget WARC", wget_archives)
    yield Story("git", git_clones)
    yield Story("apt", apt_downloads)
    yield Story("chromium", chromium_loads_pages)
    yield Story("chromium counts pages", chromium_counts_pages)
    yield Story("exec", exec_tells_clients_all)
    yield Story("setup", setup.machine_is_set_up_and_back)
    for name, story in caching.STORIES.items():
        yield Story(f"cache: {name}", story)
    yield Story("recipes left out", recipes.notices_what_is_left_out)
    for section in recipes.all_sections():
        if section.blocks:
            yield Story(f"recipe: {section.name}", partial(recipes.run, section), section.needs)


def fetch_pages(client, world):
    """Three pages and a forbidden one: in plain HTTP, in a tunnel and in an intercepted tunnel; and a host that forbids
    everything. All with name and password, which every client takes from the proxy's URL."""
    paths = ["/1", "/2", "/3", "/private/4"]
    urls = [f"{scheme}://{client.name}.{mode}.test{path}" for mode, scheme in MODES.items() for path in paths]
    urls.append(f"https://{client.name}.closed.test/")
    environment = {**world.guarded.environment(client.name), "PAGES": " ".join(urls)}
    said = programs.run(client.command(urls, world.guarded.bundle), environment, world.folder)
    for mode in MODES:
        check_pages(client, world, mode, said)
    assert client.refused in said, f"no {client.refused!r} of the closed host in:\n{said}"
    assert not pages_seen(world, f"{client.name}.closed.test")
    asked = [request for request in world.guarded.requests() if f"{client.name}." in request["url"]]
    assert len(asked) > 8 and {request["user"] for request in asked} == {client.name}, asked


def check_pages(client, world, mode, said):
    host = f"{client.name}.{mode}.test"
    for path in ("/1", "/2", "/3"):
        assert f"{host} {path}\n" in said, f"{host}{path} did not arrive:\n{said}"
    visits = pages_seen(world, host)
    seen = sorted(visit.path for visit in visits)
    hidden = mode == "tunnel"  # curtsy cannot see its paths
    assert seen == ["/1", "/2", "/3"] + ["/private/4"] * hidden, f"{host} saw {seen}:\n{said}"
    if not hidden:
        assert f"robots.txt of {host}, line 2" in said, f"{client.name} was not told why:\n{said}"
    check_visits(visits, mode, client.agent)


def check_visits(visits, mode, agent):
    """Checks that requests come from this client, that all but tunnelled ones carry Via, and that gaps are kept."""
    hidden = mode == "tunnel"
    for visit in visits:
        assert visit.fields.get("user-agent", "").startswith(agent), visit
        assert ("via" in visit.fields) != hidden, visit
    check_gaps(visits, DELAY_MS / 1000, TUNNEL_TOLERANCE if hidden else TOLERANCE)


def crowd_gets_every_page(library, world):
    """So many requests wait at once that the last ones wait longer than the origin keeps idle connections."""
    host, at_once = f"crowd-{library}.tunnel.test", int(1.3 * IDLE * 1000 / DELAY_MS)
    paths = [f"/{number}" for number in range(2 * at_once)]
    command = [sys.executable, programs.HERE / "crowd.py", library, at_once, *(f"https://{host}{path}" for path in paths)]
    said = programs.run(command, world.curtsy.environment(), world.folder)
    lost = [path for path in paths if f"200 {host} {path}\n" not in said]
    assert not lost, f"{lost} did not arrive:\n{said}"
    visits = pages_seen(world, host)
    assert sorted(visit.path for visit in visits) == sorted(paths), f"{host} saw {len(visits)} requests"
    check_gaps(visits, DELAY_MS / 1000, TUNNEL_TOLERANCE)


def wget_follows_links(world):
    """wget obeys robots.txt itself: it fetches the file through curtsy and skips forbidden pages, also in tunnels,
    where curtsy cannot see them."""
    for mode, scheme in MODES.items():
        host, folder = f"wget-r.{mode}.test", world.folder / f"mirror-{mode}"
        command = ["wget", "-nv", "-r", "-l2", "-P", folder, f"--ca-certificate={world.curtsy.bundle}"]
        said = programs.run([*command, f"{scheme}://{host}/links/"], world.curtsy.environment(), world.folder)
        got = sorted(str(path.relative_to(folder / host)) for path in folder.rglob("*") if path.is_file())
        assert got == ["links/a", "links/b", "links/index.html", "robots.txt"], f"{got}\n{said}"
        visits = pages_seen(world, host)
        assert sorted(visit.path for visit in visits) == ["/links/", "/links/a", "/links/b"], visits
        check_visits(visits, mode, "Wget/")


def wget_archives(world):
    """With the configuration of the recipe, an archive contains nothing from curtsy."""
    folder = world.folder / "archive"
    curtsy = Curtsy(world.curtsy.program, folder, DELAY_MS, world.internet, recipes.block("[responses]"))
    try:
        curtsy.trust(world.internet.certificates)
        urls = ["http://warc.plain.test/1", "https://warc.intercept.test/1"]
        trust = f"--ca-certificate={curtsy.bundle}"
        said = programs.run(["wget", "-nv", "-O-", "--warc-file=site", trust, *urls], curtsy.environment(), folder)
    finally:
        curtsy.close()
    kept = gzip.decompress((folder / "site.warc.gz").read_bytes()).decode()
    answers = [record for record in kept.split("WARC/1.0\r\n") if record.startswith("WARC-Type: response\r\n")]
    assert len(answers) == 2, said
    for answer in answers:
        head = answer.partition("\r\n\r\n")[2].partition("\r\n\r\n")[0]
        fields = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:]}
        # These origins send no Date, so curtsy adds it (RFC 9110, section 6.6.1).
        assert fields == {"content-type", "content-length", "date"}, f"wget kept {head}"


def git_clones(world):
    """Uses git's dumb HTTP protocol: one request per file. git sends its name and password only after a 407."""
    environment = world.guarded.environment("git")
    for mode, scheme in MODES.items():
        host, copy = f"git.{mode}.test", world.folder / f"{mode}.copy"
        said = programs.run(["git", "clone", "-q", f"{scheme}://{host}/repo.git", copy], environment, world.folder)
        assert (copy / "hello").is_file(), f"git in mode {mode}:\n{said}"
        visits = pages_seen(world, host)
        assert len(visits) > 3, visits
        check_visits(visits, mode, "git/")
    url = "http://git.plain.test/private/repo.git"
    said = programs.run(["git", "clone", url, "never"], environment, world.folder)
    assert "error: 403" in said, said


def apt_downloads(world):
    """A package list and a package, with separate folders instead of the system's."""
    for mode, scheme in MODES.items():
        host, folder = f"apt.{mode}.test", world.folder / f"apt-{mode}"
        options = files.apt_options(folder, f"{scheme}://{host}/apt/", world.curtsy)
        said = programs.run(["apt-get", *options, "update"], world.curtsy.environment(), folder)
        said += programs.run(["apt-get", *options, "download", "hello"], world.curtsy.environment(), folder)
        assert list(folder.glob("hello_1_all.deb")), f"apt in mode {mode}:\n{said}"
        visits = pages_seen(world, host)
        assert visits[-1].path.endswith("hello_1_all.deb"), visits
        check_visits(visits, mode, "Debian APT-HTTP/")


def chromium_loads_pages(world):
    """Pages with scripts, each script a request of its own; and what a refusal looks like to people."""
    browser = files.chromium(world.folder, world.curtsy)
    try:
        for mode, scheme in MODES.items():
            host = f"chromium.{mode}.test"
            page = browser.page(f"{scheme}://{host}/parts")
            assert page.text("body") == f"part of {host} part of {host}", page.run("document.documentElement.outerHTML")
            visits = pages_seen(world, host)
            assert {"/parts", "/parts/1.js", "/parts/2.js"} <= {visit.path for visit in visits}, visits
            check_visits(visits, mode, "Mozilla/5.0")
        for mode in ("plain", "intercept"):
            page.go(f"{MODES[mode]}://chromium.{mode}.test/private/4")
            assert "robots.txt" in page.text("body"), page.text("body")
        page.go("https://chromium.closed.test/")
        assert "ERR_TUNNEL_CONNECTION_FAILED" in page.text("body"), page.text("body")
    finally:
        browser.close()


def chromium_counts_pages(world):
    """With `count = "pages"` pictures ride on the turn of their page: pages keep their distance, pictures need none."""
    browser = files.chromium(world.folder, world.curtsy, "pages-browser")
    host, elsewhere = "chromium.pages.test", "chromium-pictures.pages.test"
    try:
        for number in (1, 2, 3):
            page = browser.page(f"https://{host}/album/{number}")
            loaded = page.run("[...document.images].filter((image) => image.naturalWidth).length")
            assert loaded == sites.PICTURES + sites.ELSEWHERE, f"{loaded} pictures at {host}"
    finally:
        browser.close()
    albums = [visit for visit in pages_seen(world, host) if not visit.path.endswith(".svg")]
    assert [visit.path for visit in albums] == ["/album/1", "/album/2", "/album/3"], albums
    check_gaps(albums, DELAY_MS / 1000, TOLERANCE)
    assert world.curtsy.host(host)["parts"] == 3 * sites.PICTURES, world.curtsy.host(host)
    # At the host that has no pages, the first picture takes a turn, and others if that one carries no more.
    turns = 3 * sites.ELSEWHERE - world.curtsy.host(elsewhere)["parts"]
    assert 1 <= turns <= 3, f"{turns} pictures of {elsewhere} took turns"


def exec_tells_clients_all(world):
    """`curtsy exec`: with its variables alone, each client uses curtsy and trusts its CA."""
    # Before 22.21 Node itself reads no proxy variables.
    clients = [client for client in programs.clients() if client.name != "node"]
    commands = [client.command([f"https://{client.name}.exec.test/1"], None) for client in clients]
    commands.append(["git", "ls-remote", "https://git.exec.test/repo.git"])
    script = "".join(f"{shlex.join(map(str, command))} &\n" for command in commands) + "wait\n"
    environment = {**bare_environment(), **world.curtsy.variables, "PAGES": "https://scrapy.exec.test/1",
                   "CURTSY_TLS__EXTRA_ROOTS": str(world.curtsy.origins), "HOME": str(world.folder),
                   "CURTSY_ADMIN": "off"}
    command = [world.curtsy.program, "exec", "--", "bash", "-c", script]
    said = programs.run(command, environment, world.folder)
    assert "refs/heads/main" in said, f"git did not get its answer:\n{said}"
    for client in clients:
        assert f"{client.name}.exec.test /1\n" in said, f"{client.name} did not get its page:\n{said}"
        check_visits(pages_seen(world, f"{client.name}.exec.test"), "intercept", client.agent)
