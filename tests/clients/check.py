"""Real clients go through curtsy: they get the right content, and origins see polite requests.

    check.py PROGRAM [--all] [STORY…]

PROGRAM is curtsy. Each story has its own hosts, so all stories run in parallel. --all also runs the stories that need
programs which are not installed for the tests; a story fails if its program is missing.
"""

import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import files
import programs
import sites
import stories
from curtsy import Curtsy, guarded
from internet import Certificates, Internet

NAMES = ["*.plain.test", "*.tunnel.test", "*.intercept.test", "*.closed.test", "*.shop.test", "*.exec.test",
         "*.setup.test", "*.pages.test", "*.cache.test"]
AT_ONCE = 5


def main():
    program, *wanted = sys.argv[1:]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="curtsy-clients-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # LinkChecker becomes another user if it is started by root
        certificates = Certificates(folder, NAMES)
        sites.FILES.update(files.repository(folder) | files.packages(folder) | files.registries())
        internet = Internet(sites.answer, certificates)
        curtsies = start(str(Path(program).resolve()), folder, internet)
        try:
            results = run_all(stories.World(*curtsies, internet, folder), wanted)
            results += [keeps_its_promise(curtsy) for curtsy in curtsies]
        finally:
            for curtsy in curtsies:
                curtsy.close()
            internet.close()
    failed = results.count(False)
    print(f"\ntest result: {'FAILED' if failed else 'ok'}. {results.count(True)} passed; {failed} failed; "
          f"in {time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)


def start(program, folder, internet):
    """Two curtsys: one that every client may use, and one that requires a name and a password."""
    users = [client.name for client in programs.clients()] + ["git"]
    curtsies = [Curtsy(program, folder / "open", stories.DELAY_MS, internet)]
    curtsies.append(guarded(program, folder / "guarded", stories.DELAY_MS, internet, users))
    for curtsy in curtsies:
        curtsy.trust(internet.certificates)
    return curtsies


def run_all(world, wanted):
    """The result of each story."""
    names = [story.name for story in stories.all_stories()]
    unknown = set(wanted) - {"--all"} - set(names)
    if unknown:
        sys.exit(f"no story called {', '.join(unknown)}; there are: {', '.join(names)}")
    chosen = [story for story in stories.all_stories() if is_wanted(story, wanted)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda story: tell(story, world), chosen))


def is_wanted(story, wanted):
    if wanted and wanted != ["--all"]:
        return story.name in wanted
    return "--all" in wanted or not story.needs


def tell(story, world):
    began = time.monotonic()
    try:
        story.run(world)
    except Exception:
        print(f"FAILED {story.name}\n{traceback.format_exc()}", flush=True)
        return False
    print(f"ok     {story.name}, {time.monotonic() - began:.1f} s", flush=True)
    return True


def keeps_its_promise(curtsy):
    """Checks curtsy's own metrics."""
    violations = curtsy.metric("curtsy_spacing_violations_total")
    if violations:
        print(f"FAILED curtsy counted {violations:.0f} requests that started too early")
    return not violations


if __name__ == "__main__":
    main()
