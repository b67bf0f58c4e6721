"""`curtsy setup`: from an empty home directory to clients that are intercepted, and back."""

import re
import shlex
import subprocess

import programs
from curtsy import Curtsy, bare_environment
from files import Browser

# The stores of the machine itself are not for tests.
PARTS = "chromium,firefox,variables,intercept"


class HomeCurtsy(Curtsy):
    """A curtsy with the configuration that it finds in a home directory."""

    def __init__(self, program, home, internet):
        self.program, self.home, self.folder = program, home, home
        self.settings = {
            **bare_environment(), "HOME": str(home), "CURTSY_LISTEN": "127.0.0.1:0", "CURTSY_ADMIN": "127.0.0.1:0",
            "CURTSY_LOG__FORMAT": "json", "CURTSY_LOG__ACCESS": str(home / "access"), "CURTSY_POLITENESS__DELAY": "50ms",
            "CURTSY_UPSTREAM__PROXY": f"http://127.0.0.1:{internet.port}",
            "CURTSY_TLS__EXTRA_ROOTS": str(internet.certificates.ca),
        }
        for name in [name for name in self.settings if name.startswith("XDG_")]:
            del self.settings[name]

    def run(self, *arguments):
        """What a command prints; it must succeed."""
        done = subprocess.run([self.program, *arguments], env=self.settings, cwd=self.home, capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def shell(self, commands, *options):
        """What the commands print, side by side, in a shell with the variables of `curtsy env`."""
        words = [self.program, "env", "--admin", f"http://{self.admin}", *options]
        script = f'eval "$({shlex.join(map(str, words))})"\n'
        script += "".join(f"{shlex.join(map(str, command))} &\n" for command in commands) + "wait\n"
        return programs.run(["bash", "-c", script], self.settings, self.home)


def machine_is_set_up_and_back(world):
    home = world.folder / "setup-home"
    home.mkdir()
    make_firefox_profile(home)
    curtsy = HomeCurtsy(world.curtsy.program, home, world.internet)
    said = curtsy.run("setup", "--only", PARTS)
    for line in (r"chromium +trusted in ~/\.pki/nssdb", r"firefox +trusted in ~/\.mozilla/firefox/a\.default",
                 r"variables +files for", r"intercept +turned on in ~/\.config/curtsy/config\.toml"):
        assert re.search(line, said), f"{line} is not in:\n{said}"
    again = curtsy.run("setup", "--only", PARTS)
    assert again.count("already") == 4, again
    curtsy.start([curtsy.program], curtsy.settings)
    try:
        clients_come_through(curtsy)
        curtsy.run("setup", "--undo", "--only", PARTS)
        clients_complain(curtsy)
    finally:
        curtsy.close()
    left = [path for path in (home / ".config/curtsy", home / ".local/state/curtsy/trust") if path.exists()]
    assert not left, left


def make_firefox_profile(home):
    profile = home / ".mozilla/firefox/a.default"
    profile.mkdir(parents=True)
    subprocess.run(["certutil", "-N", "-d", f"sql:{profile}", "--empty-password"], check=True, capture_output=True)


def https_clients():
    """Clients that verify certificates and read their proxy from the environment, each with the command for a page."""
    for client in programs.clients():
        if client.name != "scrapy":  # it does not verify
            yield client.name, client.command([f"https://{client.name}.setup.test/1"], None)
    yield "git", ["git", "ls-remote", "https://git.setup.test/repo.git"]


def clients_come_through(curtsy):
    named = dict(https_clients())
    said = curtsy.shell(named.values())
    for name in named:
        page = "refs/heads/main" if name == "git" else f"{name}.setup.test /1\n"
        assert page in said, f"{name} did not get its page:\n{said}"
    for request in curtsy.requests():
        expected = None if "git.setup.test" in request["url"] else curtsy.home.name  # git sends it only when asked
        assert request["name"] == expected, request
    assert chromium(curtsy) == "part of chromium.setup.test part of chromium.setup.test"


def clients_complain(curtsy):
    """curtsy still intercepts, because it has not been started again, but no client trusts it any more."""
    named = dict(https_clients())
    said = curtsy.shell(named.values(), "--no-ca")
    for name in named:
        assert f"{name}.setup.test /1\n" not in said and "refs/heads" not in said, f"{name} got its page:\n{said}"
    assert said.lower().count("certificate") >= len(named), said
    shown = chromium(curtsy)
    assert "part of" not in shown, shown


def chromium(curtsy):
    """The text that Chromium shows, with the home directory of this curtsy."""
    browser = Browser([f"--proxy-server=http://{curtsy.proxy}"], {**bare_environment(), "HOME": str(curtsy.home)})
    try:
        return browser.page("https://chromium.setup.test/parts").text("body")
    finally:
        browser.close()
