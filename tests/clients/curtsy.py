"""A running curtsy with a small internet behind it, and the files that clients need to trust it."""

import json
import os
import subprocess
import threading

SETTINGS = """listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
state_dir = "{folder}/state"
log.format = "json"

[politeness]
delay = "{delay}ms"

[adaptive]
step_up = "100ms"
step_down = "100ms"

[tls]
intercept = true
only = ["*.intercept.test", "*.shop.test", "*.pages.test", "*.cache.test"]
extra_roots = ["{roots}"]

[[host]]
match = "*.shop.test"
delay = "100ms"

[[host]]
match = "*.pages.test"
count = "pages"

[[host]]
match = "patient-reader.cache.test"
min_refresh = "30m"
delay = "50ms"

[[host]]
match = "*.cache.test"
delay = "50ms"
"""
# Variables of the test run's environment that would affect the clients.
PRIVATE = ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT",
           "GIT_SSL_CAINFO", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "WGETRC", "PYTHONPATH")
PRIVATE_PREFIXES = ("CURTSY_", "PIP_", "NPM_CONFIG_", "GIT_")

PASSWORD = "tulip"
HASH = "$2b$04$ufPArKFuESnVF8FbP4kRQeIzf5l42dP4D9uq5OaHdD6ce1Lq5JJL2"


def guarded(program, folder, delay_ms, internet, users):
    """A curtsy that requires the password of every client, and logs each client's requests."""
    folder.mkdir()
    (folder / "users").write_text("".join(f"{user}:{HASH}\n" for user in users))
    variables = {"CURTSY_ACCESS__USERS_FILE": str(folder / "users"), "CURTSY_LOG__ACCESS": str(folder / "access")}
    return Curtsy(program, folder, delay_ms, internet, variables=variables)


def bare_environment():
    """The environment without any proxy, CA or setting of curtsy."""
    return {name: value for name, value in os.environ.items()
            if name not in PRIVATE and not name.upper().startswith(PRIVATE_PREFIXES)
            and not name.lower().endswith("_proxy")}


class Curtsy:
    def __init__(self, program, folder, delay_ms, internet, more="", variables=None):
        """`more` and `variables` are configuration besides the common settings."""
        self.program, self.folder = program, folder
        folder.mkdir(exist_ok=True)
        self.config = folder / "curtsy.toml"
        roots = internet.certificates.ca
        self.config.write_text(SETTINGS.format(folder=folder, delay=delay_ms, roots=roots) + more)
        # As a variable, so that `more` may contain the section.
        self.variables = {"CURTSY_UPSTREAM__PROXY": f"http://127.0.0.1:{internet.port}", **(variables or {})}
        self.start([program, "--config", self.config], {**bare_environment(), **self.variables})

    def start(self, command, environment):
        """Starts it and waits until it is ready."""
        self.log = []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL,
                                        env=environment)
        for line in self.process.stderr:
            self.log.append(line)
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "ready":
                self.proxy, self.admin = event["proxy"], event["admin"]
                break
        else:
            raise SystemExit("curtsy did not start:\n" + "".join(self.log))
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()

    def trust(self, origins):
        """Writes the two files of docs/https.md. In tunnels clients see the origins' CA, so the bundle has both CAs."""
        self.ca, self.bundle, self.origins = self.folder / "ca.pem", self.folder / "bundle.pem", origins.ca
        for path, form in ((self.ca, "pem"), (self.bundle, "bundle")):
            command = [self.program, "--config", self.config, "ca", "export", "--format", form, "--out", path]
            subprocess.run(command, check=True, capture_output=True, env=bare_environment())
        with self.bundle.open("a") as file:
            file.write(origins.ca.read_text())

    def environment(self, user=""):
        """The variables that docs/recipes.md tells people to set."""
        proxy = f"http://{user}:{PASSWORD}@{self.proxy}" if user else f"http://{self.proxy}"
        return {**bare_environment(), "http_proxy": proxy, "https_proxy": proxy, "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy,
                "SSL_CERT_FILE": str(self.bundle), "REQUESTS_CA_BUNDLE": str(self.bundle),
                "GIT_SSL_CAINFO": str(self.bundle), "NODE_EXTRA_CA_CERTS": str(self.bundle), "NODE_USE_ENV_PROXY": "1"}

    def metric(self, name):
        """The sum of a metric's series."""
        import urllib.request
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(f"http://{self.admin}/metrics", timeout=20).read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)

    def host(self, name):
        """What the API says about a host."""
        import urllib.request
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return json.load(opener.open(f"http://{self.admin}/api/v1/hosts/{name}", timeout=20))

    def requests(self):
        """The access log, if there is one."""
        return [json.loads(line) for line in (self.folder / "access").read_text().splitlines()]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
