"""Five shops that refuse requests now and then, each in its own way, and a spider that must not see the refusals.

The spider is Scrapy with the settings of docs/recipes.md. Each shop has sixty pages, linked like a tree: page n links to
pages 2n and 2n + 1.
"""

import re
import sys
from collections import Counter

import programs
import recipes
from gaps import TOLERANCE, check_gaps, pages_seen

PAGES = 60
DELAY = 0.1  # of *.shop.test, in curtsy.py
# Two requests closer than this are too fast for the shops that count: longer than the delay, shorter than one step
# more.
HIDDEN = 0.15
# Requests that were sent before a refusal arrived cannot be recalled; on a busy machine that takes a while.
ON_THE_WAY = 0.3
SHOPS = {"one": "http", "two": "http", "three": "http", "four": "https", "five": "https"}
# The visits, by number, that are refused whatever their pace, with status and Retry-After.
MOODS = {
    "one": {15: (429, 1), 16: (429, 1), 40: (429, 1)},
    "two": {10: (429, None), 30: (429, None), 31: (429, None)},
    "four": {20: (503, 1), 45: (429, None)},
}


def answer(name, visit, earlier):
    pages = [one for one in earlier if one.path != "/robots.txt"]
    status, wait = MOODS.get(name, {}).get(len(pages) + 1, (200, None))
    if name in ("three", "five") and pages and visit.at - pages[-1].at < HIDDEN:
        status, wait = 429, 1 if name == "five" else None
    if status != 200:
        return status, {"Retry-After": wait} if wait else {}, b"too fast\n"
    number = int(visit.path.strip("/"))
    links = "".join(f"<a href=/{page}>{page}</a>" for page in (2 * number, 2 * number + 1) if page <= PAGES)
    return 200, {"Content-Type": "text/html"}, f"<p>{number}</p>{links}".encode()


def spider_gets_every_page(world):
    settings = world.folder / "shop_settings.py"
    settings.write_text(recipes.block("# settings.py"))
    environment = {**world.curtsy.environment(), "PYTHONPATH": str(world.folder),
                   "SCRAPY_SETTINGS_MODULE": settings.stem,
                   "SHOPS": " ".join(f"{scheme}://{name}.shop.test/1" for name, scheme in SHOPS.items())}
    spider = programs.HERE / "shop_spider.py"
    said = programs.run([sys.executable, "-m", "scrapy", "runspider", spider], environment, world.folder)
    got = Counter(line for line in said.splitlines() if re.match(r"(\d{3}|failed) http", line))
    wanted = Counter(f"200 {scheme}://{name}.shop.test/{page}" for name, scheme in SHOPS.items()
                     for page in range(1, PAGES + 1))
    assert got == wanted, f"not as it should be: {got - wanted}, missing: {wanted - got}\n{said[-3000:]}"
    for name in SHOPS:
        check_shop(pages_seen(world, f"{name}.shop.test"))


def check_shop(visits):
    """Checks that each page was served once, that gaps were kept, and that no request came during a Retry-After."""
    host = visits[0].host
    served = Counter(visit.path for visit in visits if visit.status == 200)
    assert set(served.values()) == {1} and len(served) == PAGES, f"{host}: {served}"
    refused = [visit for visit in visits if visit.status != 200]
    assert refused, f"{host} never refused, so nothing was shown"
    assert len(refused) <= PAGES / 6, f"{host} had to refuse {len(refused)} times"
    check_gaps(visits, DELAY, TOLERANCE)
    for refusal in refused:
        until = refusal.answering + float(refusal.answer.get("Retry-After", 0)) - TOLERANCE
        early = [visit for visit in visits if refusal.answered + ON_THE_WAY < visit.at < until]
        assert not early, f"{host} was visited {early[0].at - refusal.answered:.3f} s after its {refusal.status}"

