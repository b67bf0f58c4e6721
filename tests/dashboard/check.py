"""The dashboard in a real browser: it shows what the API says, and its buttons work.

    check.py PROGRAM [STORY…]
"""

import sys
import time
import traceback

from browser import Browser
from world import Curtsy, Redis

LIMIT = 80  # rows drawn at once, whatever there is


def span(ms):
    """A time as web/format.js writes it."""
    if ms < 10_000:
        return f"{max(0.1, int(ms / 100 + 0.5) / 10):g} s" if ms else "0 s"
    return f"{ms // 1000} s" if ms < 120_000 else f"{ms // 60_000} min"


def rows(page):
    cells = "host state delay why queued flight last visits".split()
    return page.run(f"""[...document.querySelectorAll("#rows tr:not(.spacer)")].map((row) =>
        {cells}.map((name) => row.querySelector(`.c-${{name}}`).innerText))""")


WORDS = {"robots": "robots.txt", "retry-after": "Retry-After"}


def expected(host):
    why = host["last_error"] or host["hold_cause"] or host["why"]
    return [host["host"], host["state"], span(host["delay_ms"]), WORDS.get(why, why), str(host["queued"]),
            str(host["in_flight"]), str(host["last_status"] or "–"), str(host["visits"])]


def is_calm(page):
    assert page.complaints() == [], page.complaints()
    asked = page.hosts_asked()
    assert len(asked) <= 1, f"the page asked elsewhere: {asked}"


def with_nothing_to_show_it_says_how_to_begin(browser, curtsy):
    page = browser.page(curtsy.url)
    assert page.run("getComputedStyle(document.querySelector('.columns')).display") == "none"
    assert f"export http_proxy=http://{curtsy.proxy}" in page.text(".for-shell")
    page.click("label[for=tab-requests]")
    shows = lambda name: page.run(f"getComputedStyle(document.querySelector('.for-{name}')).display") == "block"
    assert curtsy.proxy in page.text(".for-requests") and shows("requests") and not shows("shell")
    curtsy.fetch("http://news.example.org/")
    page.until(lambda: page.run("getComputedStyle(document.querySelector('.setup')).display") == "none",
               "the hosts to take the place of the first steps")
    page.until(lambda: [row[0] for row in rows(page)] == ["news.example.org"], "the first host")
    is_calm(page)


def what_it_shows_is_what_the_api_says(browser, curtsy):
    page = browser.page(curtsy.url)
    curtsy.fetch_later(*(f"http://example.com/page/{n}" for n in range(4)), client="spider")
    curtsy.fetch_later(*(f"http://archive.example.org/{n}" for n in range(3)))
    curtsy.fetch("http://shop.example.net/")
    curtsy.fetch_later("http://shop.example.net/busy")
    curtsy.fetch("http://10.0.0.1/")

    def agrees():
        told = curtsy.api("/hosts?sort=queued&limit=100")
        status = curtsy.api("/status")
        shown = rows(page)
        return (shown == [expected(host) for host in told["hosts"]] and page.text("#count") == str(told["total"])
                and page.text("[data-tile=waiting] .figure") == str(status["waiting"]) and told["total"] >= 4)

    page.until(agrees, "the table to agree with the API", 15)
    page.until(lambda: any("10.0.0.1" in line and "not a public address" in line for line in page.texts("#feed li")),
               "the refusal to be told")
    page.until(lambda: page.text("[data-tile=denied] .figure") == "1", "the denied request to be counted", 15)
    page.until(lambda: any("held" in line for line in page.texts("#feed .is-news")), "the hold to be told")
    polite = lambda: f"{curtsy.api('/status')['traffic']['full']} requests fully polite, 0 in tunnels only paced, 0 tunnels not paced"
    page.until(lambda: page.text("#traffic") == polite(), "how polite it was", 15)
    status = curtsy.api("/status")
    assert page.text("#pulse").startswith("front-desk"), page.text("#pulse")
    assert status["spacing_violations"] == 0 and status["listeners"] == 1
    is_calm(page)


def the_keyboard_is_enough(browser, curtsy):
    for name in ("a", "b", "c"):
        curtsy.api(f"/hosts/{name}.key.test", "PATCH", {"delay": f"{ord(name) - 95}s"})
    page = browser.page(curtsy.url)
    page.key("/")
    assert page.run("document.activeElement.id") == "filter"
    page.type("key.test")
    names = lambda: [row[0] for row in rows(page)]
    page.until(lambda: names() == ["a.key.test", "b.key.test", "c.key.test"], "the filter to count")
    assert page.run("location.search") == "?filter=key.test"
    page.click("[data-sort=delay]")
    page.until(lambda: names() == ["c.key.test", "b.key.test", "a.key.test"], "the longest delay first")
    assert page.run("document.querySelector('.c-delay').getAttribute('aria-sort')") == "descending"
    page.click("[data-sort=delay]")
    page.until(lambda: names()[:1] == ["a.key.test"], "the shortest delay first")
    # A reload shows what the address says.
    page.go(page.run("location.href"))
    page.until(lambda: names() == ["a.key.test", "b.key.test", "c.key.test"], "the same view again")
    # Keys work on the rows that the script has drawn, not on those that came with the page.
    page.until(lambda: page.run("document.querySelector('#rows .spacer') !== null"), "the script to draw the rows")
    page.run("document.activeElement.blur()")
    page.key("j")
    page.key("j")
    assert page.run("document.activeElement.textContent") == "b.key.test"
    page.key("k")
    assert page.run("document.activeElement.textContent") == "a.key.test"
    page.key("?")
    assert page.run("document.getElementById('help').open")
    page.run("document.getElementById('help').close()")
    page.key("/")
    page.key("Escape")
    page.until(lambda: len(names()) > 3 and page.run("location.search") == "?sort=delay&order=reverse", "no filter")
    page.key("j")
    first = page.run("document.activeElement.textContent")
    page.key("Enter", "\r")
    page.until(lambda: page.run("document.querySelector('h1')?.innerText") == first, "the page of the host")
    page.until(lambda: page.run("document.documentElement.classList.contains('has-script')"), "its script")
    page.key("u")
    page.until(lambda: page.run("location.pathname") == "/", "all hosts again")


def a_host_is_shown_and_steered(browser, curtsy):
    page = browser.page(f"{curtsy.url}/hosts/example.com")
    told = lambda: curtsy.api("/hosts/example.com")
    parts = lambda: page.texts("[data-show=parts] li")
    page.until(lambda: parts()[:2] == ["configured 1 s", "robots.txt 10 s"], "the parts of the delay")
    assert page.text("#delay-title") == "The delay is 10 s, the largest of"
    assert page.texts(".largest .is-largest") == ["robots.txt 10 s"]
    page.until(lambda: page.text("#pause") == "Pause host", "the button")
    page.until(lambda: "wait because of: robots.txt." in page.text("[data-show=waits]"), "the reason of the wait")
    page.click("#pause")
    page.until(lambda: page.text("#pause").startswith("Pause while "), "the question")
    assert told()["paused"] is False, "one click is not enough while requests wait"
    page.click("#pause")
    page.until(lambda: page.text("#pause") == "Resume host" and page.text(".title .state") == "paused", "the pause")
    assert told()["paused"] is True
    page.click("#pause")
    page.until(lambda: page.text("#pause") == "Pause host", "the end of the pause")
    assert told()["paused"] is False
    page.run("document.getElementById('delay').focus()")
    page.type("15")
    page.key("Enter", "\r")
    page.until(lambda: page.text("#delay-title") == "The delay is 15 s, the largest of", "the new delay")
    assert told()["overrides"]["delay_ms"] == 15_000
    assert page.text("#toml") == '[[host]]\nmatch = ["example.com"]\ndelay = "15s"', page.text("#toml")
    is_calm(page)
    page.run("document.getElementById('delay').value = 'soon'")
    page.run("document.getElementById('set-delay').requestSubmit()")
    page.until(lambda: "soon" in page.text("#said"), "the mistake to be told")
    assert told()["overrides"]["delay_ms"] == 15_000
    page.click("#reset")
    page.until(lambda: page.text("[data-show=delay]") == "10 s", "the configured delay")
    assert told()["overrides"]["delay_ms"] is None
    page.until(lambda: page.run("document.querySelectorAll('.chart .series').length") == 3, "the charts", 15)
    assert page.run("[...document.querySelectorAll('.chart .series')].every((line) => line.getAttribute('d').length > 8)")
    ticks = lambda: page.run("document.querySelectorAll('#timeline .tick').length")
    page.until(lambda: ticks() == len(told()["timeline"]["starts_ms"]) > 1, "a tick for each start")
    page.go(f"{curtsy.url}/hosts/shop.example.net")
    page.until(lambda: page.run("document.querySelectorAll('#timeline .hold').length") == 1, "a bar for the hold")
    page.go(f"{curtsy.url}/hosts/example.com")
    waiting = lambda: [one["url"].split("example.com")[1] for one in curtsy.api("/queue?host=example.com")["waiting"]]
    shown = lambda: [text.split(" ")[-1] for text in page.texts("#queue .url")]
    page.until(lambda: shown() == waiting() and len(shown()) > 0, "those who wait")


def a_question_is_answered(browser, curtsy):
    page = browser.page(curtsy.url)
    page.key("e")
    assert page.run("document.activeElement.id") == "url"
    page.type("http://example.com/private/x")
    page.key("Enter", "\r")
    page.until(lambda: "denied: robots.txt forbids it" in page.text("#answer"), "the verdict")
    assert "robots.txt line 3, for *: Disallow: /private/" in page.text("#answer"), page.text("#answer")
    assert "robots.txt 10 s" in page.texts("#answer .is-largest")
    is_calm(page)


def nothing_foreign_becomes_part_of_the_page(browser, curtsy):
    page = browser.page(curtsy.url)
    # curtsy refuses a URL with < in it; a client name may contain anything.
    evil, quotes = "<img src=x onerror=document.title=1><b>", "%3Cimg%3E&quot;'"
    curtsy.fetch(f"http://10.0.0.1/{quotes}", client=evil)
    curtsy.fetch_later(f"http://example.com/{quotes}", client=evil)
    page.until(lambda: any(quotes in line for line in page.texts("#feed li")), "the request to be told")
    assert page.run("document.querySelectorAll('#feed img, #feed li b b').length") == 0
    page.until(lambda: any(one["client"] == evil for one in curtsy.api("/queue")["waiting"]), "it to wait")
    for off in (False, True):
        page.call("Emulation.setScriptExecutionDisabled", value=off)
        page.go(f"{curtsy.url}/hosts/example.com")
        assert evil in page.text("#queue") and quotes in page.text("#queue"), page.text("#queue")
        assert page.run("document.querySelectorAll('#queue img, #queue b').length") == 0
        assert page.run("document.title") == "example.com"
    page.go(f"{curtsy.url}/hosts/%3Cimg%20src=x%3E")
    assert page.text("h1") == "<img src=x>" and page.run("document.images.length") == 0


def without_scripts_it_is_a_table(browser, curtsy):
    page = browser.page(curtsy.url, script=False)
    told = curtsy.api("/hosts?sort=queued&limit=100")
    assert [row[0] for row in rows(page)] == [host["host"] for host in told["hosts"]]
    assert page.text("#count") == str(told["total"])
    assert page.run("document.querySelector('noscript').innerHTML.includes('refresh')")
    assert page.run("getComputedStyle(document.querySelector('.live')).display") == "none"
    page.go(f"{curtsy.url}/?filter=archive&state=")
    assert [row[0] for row in rows(page)] == ["archive.example.org"]
    page.go(f"{curtsy.url}/hosts/example.com")
    assert page.text("#delay-title") == "The delay is 10 s, the largest of"


def clients_are_shown_and_resumed(browser, curtsy):
    for path in ("1", "2", "3"):
        curtsy.fetch(f"http://docs.example.net/{path}", client="crawler")
    curtsy.fetch("http://10.0.0.1/", client="crawler")
    curtsy.api("/clients/crawler/stop", "POST", {"until": "1h"})

    def shown(page):
        cells = page.run("""[...document.querySelectorAll("#users tbody tr")].map((row) => [...row.children]
            .map((cell) => cell.innerText.trim()))""")
        return [[row[0].split(" ")[0], *row[2:9]] for row in cells]

    def told():
        used = [one for one in curtsy.api("/clients")["clients"] if one["usage"]]
        used.sort(key=lambda one: -one["usage"]["requests"])
        name = lambda one: (f"{one['name']}@{one['address']}" if one["named"] else one["name"]).split(" ")[0]
        number = lambda use, field: str(use[field])
        return [[name(one), number(one["usage"], "requests"), number(one["usage"], "waiting"),
                 *(span(one["usage"][field]) if one["usage"][field] else "–" for field in ("wait_ms", "longest_wait_ms")),
                 number(one["usage"], "failed"), number(one["usage"], "gave_up"),
                 ", ".join(f"{count} {code}" for code, count in one["usage"]["refusals"].items()) or "0"] for one in used]

    page = browser.page(curtsy.url)
    page.go(page.run("[...document.querySelectorAll('.nav a')].find((link) => link.innerText === 'Clients').href"))
    page.until(lambda: shown(page) == told() and len(shown(page)) >= 2, "the clients to agree with the API")
    assert any(row[0].startswith("crawler@") and row[1] == "4" for row in shown(page)), shown(page)
    page.until(lambda: page.run("document.documentElement.classList.contains('has-script')"), "its script")
    page.until(lambda: page.run("document.querySelectorAll('[data-resume=crawler]').length") == 1, "the button")
    page.click("[data-resume=crawler]")
    page.until(lambda: page.text("#said") == "crawler may continue.", "the confirmation")
    page.until(lambda: page.run("document.querySelectorAll('[data-resume=crawler]').length") == 0, "the stop to end")
    assert all(one["stopped"] is None for one in curtsy.api("/clients")["clients"] if one["name"] == "crawler")
    is_calm(page)
    page = browser.page(f"{curtsy.url}/clients", script=False)
    assert shown(page) == told()


def a_thousand_hosts_are_drawn_a_few_at_a_time(browser, curtsy):
    for number in range(1_000):
        curtsy.api(f"/hosts/h{number:04}.many.test", "PATCH", {"delay": f"{number % 60}s"})
    page = browser.page(f"{curtsy.url}/?filter=many.test&sort=host")
    page.until(lambda: page.text("#count").replace("\u202f", "") == "1000", "all of them")
    drawn = lambda: page.run("document.querySelectorAll('#rows tr').length")
    names = lambda: [row[0] for row in rows(page)]
    page.until(lambda: names()[:1] == ["h0000.many.test"] and drawn() < LIMIT, "the first of them")
    height = page.run("document.getElementById('scroll').scrollHeight")
    assert height > 1_000 * 30, height
    page.run("document.getElementById('scroll').scrollTo(0, 1e9)")
    page.until(lambda: names()[-1:] == ["h0999.many.test"], "the last one")
    assert drawn() < LIMIT, drawn()
    page.run("document.getElementById('scroll').scrollTo(0, document.getElementById('scroll').scrollHeight / 2)")
    page.until(lambda: "h0500.many.test" in names(), "those in the middle")
    page.click("[data-sort=delay]")
    page.until(lambda: names()[:1] == ["h0059.many.test"], "the longest delay first")
    # On a phone the columns that are left fill the width, and names stay readable.
    page.size(390, 844)
    page.until(lambda: page.run("document.querySelector('#rows .c-host').clientWidth") > 150, "room for names")
    assert page.run("document.documentElement.scrollWidth") <= 390, "nothing is wider than the screen"
    is_calm(page)


def a_host_says_what_the_cache_saved(browser, curtsy):
    url = "http://kept.example.org/kept"
    curtsy.fetch(url)
    page = browser.page(f"{curtsy.url}/hosts/kept.example.org")
    assert page.text("[data-show=saved]") == "nothing"
    curtsy.fetch(url)
    curtsy.fetch(url)
    page.until(lambda: page.text("[data-show=saved]") == "2 requests, 3.4 kB", "what was saved")
    page.until(lambda: sum("from the cache" in line for line in page.texts("#feed .is-request")) == 2, "both in the list")
    page.go(f"{curtsy.url}/hosts/kept.example.org")
    assert page.text("[data-show=saved]") == "2 requests, 3.4 kB", page.text("[data-show=saved]")
    assert page.text("#stored") == "1, used 2 times", page.text("#stored")
    page.go(curtsy.url)
    page.key("e")
    page.type(url)
    page.key("Enter", "\r")
    page.until(lambda: "allowed, from the cache: it is fresh for 9 min" in page.text("#answer"), "the cache's answer")
    is_calm(page)


def when_curtsy_is_gone_it_says_so(browser, curtsy):
    page = browser.page(curtsy.url)
    page.until(lambda: "running" in (page.text("#pulse") or ""), "the line at the top")
    curtsy.close()
    page.until(lambda: page.text("#pulse") == "no answer, trying again", "the loss to be told")
    assert "What is shown is from then." in page.text("#stale"), page.text("#stale")
    assert float(page.run("getComputedStyle(document.querySelector('.tiles')).opacity")) < 1, "old numbers look old"


def a_fleet_is_shown_and_a_node_forgotten(browser, curtsy):
    with Redis() as redis:
        front, back = (Curtsy(curtsy.program, f'fleet.redis = "{redis.url}"\npoliteness.delay = "100ms"') for _ in range(2))
        try:
            a_fleet_of_two(browser, front, back, redis)
        finally:
            front.close()
            back.close()


def a_fleet_of_two(browser, front, back, redis):
    page = browser.page(f"{front.url}/fleet")
    states = lambda: page.texts("#nodes .state")
    page.until(lambda: states() == ["joined", "joined"], "both nodes")
    assert "From Redis" in page.text("#source"), page.text("#source")
    told = front.api("/fleet")["nodes"]
    page.until(lambda: page.texts("#nodes tbody .c-id") == [node["id"] for node in told], "their ids")
    is_calm(page)
    back.kill()
    page.until(lambda: states() == ["joined", "missing"], "the silence to be noticed")
    page.click("[data-forget]")
    page.until(lambda: states() == ["joined"] and "Forgotten" in page.text("#said"), "the node to be forgotten")
    front.fetch("http://news.example.org/")
    page.go(f"{front.url}/hosts/news.example.org")
    page.until(lambda: "from Redis: last start" in page.text("[data-show=fleet]"), "the host to be the fleet's")
    page.go(front.url)
    page.until(lambda: page.text("#turns") == "turns from Redis, counts of this node", "where turns come from")
    redis.kill()
    page.until(lambda: page.text("#turns") == "turns of this node alone", "that the node is alone")
    page.until(lambda: any("is alone" in notice for notice in page.texts("#notices .notice")), "the notice")
    page.go(f"{front.url}/hosts/news.example.org")
    page.until(lambda: page.text("[data-show=fleet]").startswith("this node alone"), "the host to be this node's")
    page.go(f"{front.url}/fleet")
    page.until(lambda: "alone" in page.text("#source") and "Redis cannot be reached" in page.text("#source"), "the outage")
    page.size(390, 844)
    assert page.run("document.documentElement.scrollWidth") <= 390, "nothing is wider than the screen"
    is_calm(page)
    page.close()
    plain = browser.page(f"{front.url}/fleet", script=False)
    assert plain.texts("#nodes .state") == ["alone"]


STORIES = [
    with_nothing_to_show_it_says_how_to_begin, what_it_shows_is_what_the_api_says, the_keyboard_is_enough,
    a_host_is_shown_and_steered, a_question_is_answered, nothing_foreign_becomes_part_of_the_page,
    without_scripts_it_is_a_table, clients_are_shown_and_resumed, a_fleet_is_shown_and_a_node_forgotten,
    a_thousand_hosts_are_drawn_a_few_at_a_time, a_host_says_what_the_cache_saved, when_curtsy_is_gone_it_says_so,
]


def main(program):
    """The stories build on each other: each one sees what the earlier ones have fetched."""
    began, failed = time.monotonic(), 0
    browser, curtsy = Browser(), Curtsy(program)
    try:
        for story in STORIES:
            try:
                story(browser, curtsy)
                print(f"{story.__name__} ... ok", flush=True)
            except Exception:
                failed += 1
                print(f"{story.__name__} ... FAILED", flush=True)
                traceback.print_exc()
            for page in list(browser.pages.values()):
                page.close()
    finally:
        browser.close()
        curtsy.close()
    word = "FAILED" if failed else "ok"
    print(f"\ntest result: {word}. {len(STORIES) - failed} passed; {failed} failed; in {time.monotonic() - began:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
