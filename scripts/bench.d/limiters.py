"""Real limiters: how much of a limit that it does not know curtsy uses, and how often it is refused.

Starts servers and limiter libraries that others wrote, each on a loopback address of its own, and drives all of them at
once through curtsy: first with `adaptive.policy = "steps"`, then with "auto". Clients ask for the next page as soon as
they have one. An answer's `Curtsy` field says how often its request was sent, so every refusal is counted.
"""

import contextlib
import http.client
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import install
import report
from peers import Site, curtsy
from process import Failure, free_port, running

DESCRIPTION = "real limiters through curtsy: goodput in % of the limit, refusals and failures per 1000"
HERE = Path(__file__).resolve().parent
SECONDS = 300
THREADS = 8
PACKAGES = {"nginx": "nginx-light", "haproxy": "haproxy", "apache2": "apache2 libapache2-mod-evasive", "node": "nodejs npm"}
PYPI = ["flask", "Flask-Limiter", "fastapi", "slowapi", "uvicorn", "django", "django-ratelimit", "waitress"]
NPM = ["express", "express-rate-limit", "fastify", "@fastify/rate-limit", "rate-limiter-flexible"]
# Steps as small as the base delay: with the usual ones of 1 s, `steps` would use a tenth of such hosts.
SETTINGS = {"politeness.delay": '"50ms"', "politeness.concurrency": "8", "politeness.max_wait": '"10m"',
            "robots.mode": '"off"', "cache.mode": '"off"',
            "adaptive.step_up": '"50ms"', "adaptive.step_down": '"50ms"',
            "responses.headers": '"full"', "breaker.failures": "0", "breaker.job_failures": "0"}
POLICIES = ["steps", "auto"]


@dataclass
class Limiter:
    title: str
    rate: float  # requests per second that it allows
    start: object  # (files, address, port) -> argv


def nginx(zone, rule):
    def start(files, address, port):
        # A file, because limits are checked before the content phase, which `return` skips.
        (files / "index.html").write_bytes(b"x" * 12288)
        temporary = "".join(f"{kind}_temp_path {files}; " for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
        conf = f"""daemon off;
master_process off;
pid {files}/pid;
error_log {files}/error.log crit;
events {{}}
http {{
  access_log off;
  {temporary}
  limit_req_status 429;
  limit_conn_status 429;
  {zone}
  server {{ listen {address}:{port}; root {files}; {rule} }}
}}
"""
        (files / "nginx.conf").write_text(conf)
        return [install.which("nginx"), "-c", str(files / "nginx.conf")]

    return start


def haproxy(rules, more=""):
    def start(files, address, port):
        conf = f"""defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
{more}
frontend limited
  bind {address}:{port}
{rules}
  http-request return status 200 content-type text/plain string page
"""
        (files / "haproxy.cfg").write_text(conf)
        return [install.which("haproxy"), "-db", "-f", str(files / "haproxy.cfg")]

    return start


def apache(status):
    def start(files, address, port):
        (files / "index.html").write_text("page")
        modules = "/usr/lib/apache2/modules"
        loads = ["mpm_worker", "authz_core", "dir"]
        conf = f"""ServerRoot {files}
ServerName limited
Listen {address}:{port}
PidFile {files}/pid
ErrorLog {files}/error.log
{"".join(f"LoadModule {name}_module {modules}/mod_{name}.so{chr(10)}" for name in loads)}
LoadModule evasive20_module {modules}/mod_evasive20.so
ServerLimit 1
StartServers 1
ThreadsPerChild 16
MaxRequestWorkers 16
DocumentRoot {files}
DOSPageCount 9
DOSPageInterval 1
DOSSiteCount 9
DOSSiteInterval 1
DOSBlockingPeriod 10
DOSHTTPResponseCode {status}
DOSLogDir {files}
"""
        (files / "apache.conf").write_text(conf)
        return [install.which("apache2"), "-DFOREGROUND", "-f", str(files / "apache.conf")]

    return start


def python(name):
    return lambda files, address, port: [str(files.parent / "venv/bin/python"), str(HERE / "limiters_app.py"), name,
                                         address, str(port)]


def node(name):
    return lambda files, address, port: [install.which("node"), str(HERE / "limiters_app.cjs"), name, address, str(port),
                                         str(files.parent)]


ZONE = "limit_req_zone $binary_remote_addr zone=z:1m rate="
TABLE = "  stick-table type ip size 1k expire 1m store http_req_rate"
OVER = "if { sc_http_req_rate(0) gt 12 }"
# Exceeding the limit puts the client into a second table for 10 s.
BAN = f"""{TABLE}(1s)
  http-request deny deny_status 429 if {{ src,in_table(bans) }}
  http-request track-sc0 src
  http-request track-sc1 src table bans {OVER}
  http-request deny deny_status 429 {OVER}"""
LIMITERS = [
    Limiter("nginx limit_req 8r/s", 8, nginx(ZONE + "8r/s;", "limit_req zone=z;")),
    Limiter("nginx limit_req 7r/s burst=5 nodelay", 7, nginx(ZONE + "7r/s;", "limit_req zone=z burst=5 nodelay;")),
    # 12 KiB at 8 KiB/s: nginx sends 8 KiB at once and the rest a second later.
    Limiter("nginx limit_conn 3, answers of 1 s", 3,
            nginx("limit_conn_zone $binary_remote_addr zone=z:1m;", "limit_conn z 3; limit_rate 8k;")),
    Limiter("HAProxy 40 in 5 s", 8, haproxy(f"""{TABLE}(5s)
  http-request track-sc0 src
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 40 }}""")),
    Limiter("HAProxy 12/s, ban of 10 s", 12, haproxy(
        BAN, "backend bans\n  stick-table type ip size 1k expire 10s store gpc0")),
    Limiter("Apache mod_evasive 9/s, ban of 10 s", 9, apache(429)),
    Limiter("Apache mod_evasive 9/s, ban of 10 s, with 403", 9, apache(403)),
    Limiter("Flask-Limiter 35/5s", 7, python("flask-window")),
    Limiter("Flask-Limiter 60/5s moving window, fields", 12, python("flask-moving")),
    Limiter("slowapi 7/s", 7, python("slowapi")),
    Limiter("django-ratelimit 40/5s", 8, python("django-429")),
    Limiter("django-ratelimit 40/5s with 403", 8, python("django-403")),
    Limiter("express-rate-limit 35/5s, fields", 7, node("express-fields")),
    Limiter("express-rate-limit 60/5s", 12, node("express-silent")),
    Limiter("@fastify/rate-limit 40/5s", 8, node("fastify")),
    Limiter("rate-limiter-flexible 60/5s, block 10 s", 12, node("flexible-block")),
]


def prepare(directory, no_install):
    """Install the servers and the libraries that are missing."""
    missing = [packages for program, packages in PACKAGES.items() if install.which(program) is None]
    venv, modules = directory / "venv", directory / "node_modules"
    if no_install and (missing or not venv.exists() or not modules.exists()):
        raise Failure("limiters are not installed; run without --no-install")
    if missing:
        install.install_packages(" ".join(missing).split())
    if not (venv / "bin/flask").exists():
        install.call(["python3", "-m", "venv", str(venv)], "making a Python environment (python3-venv is needed)")
        install.call([str(venv / "bin/pip"), "install", "--quiet", *PYPI], "pip install " + " ".join(PYPI))
    if not (modules / "express").exists():
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", *NPM]
        install.call(command, "npm install " + " ".join(NPM), cwd=directory)


def rounds(bench, progress):
    directory = bench.folder("limiters")
    prepare(directory, bench.plan.no_install)
    results = {limiter.title: {"rounds": [], "error": None, "rate": limiter.rate} for limiter in LIMITERS}
    for policy in POLICIES:
        measure(bench, directory, policy, results, progress)
    return results


def measure(bench, directory, policy, results, progress):
    """Drive all limiters at once by one policy."""
    with contextlib.ExitStack() as stack:
        proxy = free_port()
        settings = SETTINGS | bench.plan.curtsy_settings | {"adaptive.policy": f'"{policy}"'}
        site = Site(bench.folder(f"limiters/curtsy-{policy}"), proxy, "", 1, bench.plan.programs, curtsy_settings=settings)
        argv, env = curtsy(site)
        stack.enter_context(running(argv, site.directory / "output.log", proxy, None, env))
        drives = []
        for number, limiter in enumerate(LIMITERS):
            try:
                address, port = f"127.0.3.{number + 1}", free_port()
                files = bench.folder(f"limiters/{number}")
                argv = limiter.start(files, address, port)
                stack.enter_context(running(argv, files / "output.log", port, None, None, address))
                drives.append(Drive(limiter, proxy, f"{address}:{port}"))
            except (Failure, OSError) as error:
                results[limiter.title]["error"] = str(error)
        seconds = bench.plan.limiter_seconds
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=drive.run, args=(until,), daemon=True) for drive in drives for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        while time.monotonic() < until + 1:
            progress(f"limiters, {policy}: {max(0, until - time.monotonic()):.0f} s left")
            time.sleep(1)
        for drive in drives:
            results[drive.limiter.title]["rounds"].append({"policy": policy, **drive.figures(seconds)})


class Drive:
    """Asks one limiter for pages, with several clients, and counts what came of it."""

    def __init__(self, limiter, proxy, host):
        self.limiter, self.proxy, self.host = limiter, proxy, host
        self.lock = threading.Lock()
        self.served = self.refused = self.failed = 0

    def run(self, until):
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy, timeout=700)
        while time.monotonic() < until:
            try:
                connection.request("GET", f"http://{self.host}/", headers={"Host": self.host, "User-Agent": "bench"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                continue
            if time.monotonic() < until:
                self.count(answer.status, answer.getheader("Curtsy") or "")

    def count(self, status, field):
        attempts = re.search(r"attempts=(\d+)", field)
        sent, served = int(attempts[1]) if attempts else 1, status == 200
        with self.lock:
            self.served += served
            self.failed += not served
            self.refused += sent - 1 if served else sent

    def figures(self, seconds):
        answers = max(1, self.served + self.failed)
        sent = max(1, self.served + self.refused)
        return {"goodput": 100 * self.served / seconds / self.limiter.rate, "refused": 1000 * self.refused / sent,
                "failed": 1000 * self.failed / answers}


def section(results):
    rows = [["limiter", *(f"{policy}: goodput, %" for policy in POLICIES), *(f"{policy}: refused" for policy in POLICIES),
             *(f"{policy}: failed" for policy in POLICIES)]]
    keys = ["goodput", "refused", "failed"]
    by_policy = [{found["policy"]: found for found in result["rounds"]} for result in results.values()]
    for title, found in zip(results, by_policy):
        rows.append([title, *(cell(found.get(policy), key) for key in keys for policy in POLICIES)])
    means = [mean([found[policy][key] for found in by_policy if policy in found]) for key in keys for policy in POLICIES]
    rows.append(["**mean**", *means])
    return report.aligned(rows) + report.failures(results)


def cell(figures, key):
    return f"{figures[key]:.1f}" if figures else "–"


def mean(values):
    return f"{sum(values) / len(values):.1f}" if values else "–"
