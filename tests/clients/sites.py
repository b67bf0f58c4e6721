"""The answers of the origins of the small internet. A host's name says what kind it is."""

import caching
import programs
import shops

FILES = {}  # path: content, the same on every host; check.py adds what is made for this run
LINKS = b"<a href=a>a</a> <a href=b>b</a> <a href=/private/c>c</a>"
PARTS = b"<!doctype html><link rel=icon href=data:,><body><script src=/parts/1.js></script><script src=/parts/2.js></script>"
PICTURE = b"<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'/>"
PICTURES = 60
ELSEWHERE = 20
TOKENS = {client.name: client.token for client in programs.clients()}


def answer(visit, earlier):
    """Status, fields and body."""
    name, _, kind = visit.host.partition(".")
    path = visit.path.partition("?")[0].replace("/./", "/")
    if path == "/robots.txt":
        return 200, {}, robots(name, kind)
    if kind == "shop.test":
        return shops.answer(name, visit, earlier)
    if kind == "cache.test":
        return caching.answer(visit)
    if path == "/links/":
        return 200, {"Content-Type": "text/html"}, LINKS
    if path == "/parts":
        return 200, {"Content-Type": "text/html"}, PARTS
    if path.startswith("/parts/"):
        return 200, {"Content-Type": "text/javascript"}, f"document.body.append('part of {visit.host} ')".encode()
    if path.startswith("/album/") and path.endswith(".svg"):
        return 200, {"Content-Type": "image/svg+xml", "Cache-Control": "no-store"}, PICTURE
    if path.startswith("/album/"):
        return 200, {"Content-Type": "text/html"}, album(visit.scheme, name, path)
    if path in FILES:
        kind = "text/html" if path.endswith("/") else "application/octet-stream"
        return 200, {"Content-Type": kind}, FILES[path]
    if path.startswith(("/repo.git/", "/apt/")):
        return 404, {}, b"no such file\n"
    fields = {"Content-Type": "text/html"} if path.startswith("/links/") else {}
    return 200, fields, f"{visit.host} {visit.path}\n".encode()


def album(scheme, name, path):
    """A page with many pictures of its own host, and some of a host that serves nothing else."""
    own = "".join(f"<img src={path}/{number}.svg>" for number in range(PICTURES))
    others = "".join(f"<img src={scheme}://{name}-pictures.pages.test{path}/{number}.svg>" for number in range(ELSEWHERE))
    return f"<!doctype html><link rel=icon href=data:,><body>{own}{others}".encode()


def robots(name, kind):
    """Rules for the one client that the host is named after, so that they apply only if curtsy recognises the client.
    It may not do so for a tunnel: some clients send their User-Agent only inside."""
    if kind == "closed.test":
        return b"User-agent: *\nDisallow: /\n"
    return f"User-agent: {TOKENS.get(name, '*')}\nDisallow: /private/\n".encode()
