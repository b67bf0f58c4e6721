"""The compared proxies: how each is configured and started.

Every proxy does the same job: forward plain requests over kept-alive connections, no cache, no log. What is not needed
for that stays at the proxy's own default. A configuration is written below the run's directory and nowhere else.
"""

import os
import resource
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from install import which
from process import Failure


@dataclass(frozen=True)
class Site:
    """Where one proxy runs: its directory, its port, the origin's address and its number of workers."""

    directory: Path
    port: int
    origin: str
    workers: int
    programs: dict = field(default_factory=dict)
    curtsy_settings: dict = field(default_factory=dict)
    keys: object = None  # from inside.py: the proxy decrypts tunnels with this CA

    def write(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Peer:
    key: str
    title: str
    start: Callable[[Site], tuple]  # writes the configuration; returns the command line and its extra environment
    forwards: bool = True  # accepts absolute-form requests for any host
    tunnels: bool = True  # accepts CONNECT
    looks_inside: bool = False  # can decrypt tunnels


NGINX_FRAME = """\
daemon off;
pid {directory}/nginx.pid;
error_log stderr error;
worker_processes {workers};
worker_rlimit_nofile {files};
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {directory}/tmp-body;
    proxy_temp_path {directory}/tmp-proxy;
    fastcgi_temp_path {directory}/tmp-fastcgi;
    uwsgi_temp_path {directory}/tmp-uwsgi;
    scgi_temp_path {directory}/tmp-scgi;
{http}
}}
"""


def nginx_command(site, http):
    text = NGINX_FRAME.format(directory=site.directory, workers=site.workers, files=open_files(), http=http)
    return [program("nginx"), "-e", "stderr", "-p", str(site.directory), "-c", site.write("nginx.conf", text)], {}


def nginx(site):
    """The yardstick: a reverse proxy that knows its one origin beforehand and has nothing to decide."""
    # Otherwise a long body would be spilled to disk when the client is slower; and with the default buffers of 4 KiB a
    # body of 64 KiB costs twice the CPU time, which would flatter the other proxies.
    return nginx_command(
        site,
        f"""
    upstream origin {{ server {site.origin}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{site.port} backlog=4096;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_max_temp_file_size 0;
            proxy_buffers 8 32k;
        }}
    }}""",
    )


def squid(site):
    listen, bump = (squid_bump(site) if site.keys else ("", ""))
    text = f"""\
http_port 127.0.0.1:{site.port}{listen}
{bump}http_access allow all
cache deny all
access_log none
cache_log {site.directory}/cache.log
cache_store_log none
pid_filename none
coredump_dir {site.directory}
visible_hostname localhost
workers 1
max_filedescriptors {open_files()}
pinger_enable off
shutdown_lifetime 0 seconds
"""
    path = site.write("squid.conf", text)
    open_to_others(site.directory)
    return [program("squid"), "-N", "-f", path], {}


def squid_bump(site):
    """Return what is added to `http_port`, and the TLS lines. The usual recipe: peek at the hello, then bump."""
    helper, database = "/usr/lib/squid/security_file_certgen", site.directory / "certificates"
    if not os.path.exists(helper):
        raise Failure("Squid looks into tunnels with the package squid-openssl only")
    if not database.exists():
        made = subprocess.run([helper, "-c", "-s", str(database), "-M", "4MB"], capture_output=True, text=True)
        if made.returncode != 0:
            raise Failure(f"Squid cannot look into tunnels: {made.stderr.strip()[-300:]}")
    keys = f"cert={site.keys.ca} key={site.keys.ca_key}"
    listen = f" ssl-bump {keys} generate-host-certificates=on dynamic_cert_mem_cache_size=4MB"
    bump = f"""\
sslcrtd_program {helper} -s {database} -M 4MB
acl first_step at_step SslBump1
ssl_bump peek first_step
ssl_bump bump all
tls_outgoing_options cafile={site.keys.origin_ca}
"""
    return listen, bump


TRAFFIC_SERVER_RECORDS = """\
CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1
CONFIG proxy.config.admin.user_id STRING {user}
CONFIG proxy.config.http.cache.http INT 0
CONFIG proxy.config.reverse_proxy.enabled INT 0
CONFIG proxy.config.url_remap.remap_required INT 0
CONFIG proxy.config.http.connect_ports STRING *
CONFIG proxy.config.http.keep_alive_enabled_out INT 1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.net.connections_throttle INT {connections}
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT {workers}
CONFIG proxy.config.exec_thread.affinity INT 0
CONFIG proxy.config.crash_log_helper STRING NULL
"""

TRAFFIC_SERVER_ACCESS = """\
ip_allow:
  - {apply: in, ip_addrs: 127.0.0.0/8, action: allow, methods: ALL}
  - {apply: out, ip_addrs: 127.0.0.0/8, action: allow, methods: ALL}
"""


def traffic_server(site):
    home = site.directory
    for folder in ["etc", "run", "log", "cache"]:
        (home / folder).mkdir(parents=True, exist_ok=True)
    records = TRAFFIC_SERVER_RECORDS.format(
        port=site.port,
        user="nobody" if os.geteuid() == 0 else "#-1",
        workers=site.workers,
        connections=open_files() // 2,
    )
    site.write("etc/records.config", records)
    site.write("etc/ip_allow.yaml", TRAFFIC_SERVER_ACCESS)
    for name in ["storage.config", "remap.config", "plugin.config"]:
        site.write(f"etc/{name}", "")
    site.write("runroot.yaml", traffic_server_folders(home))
    open_to_others(home)
    return [program("traffic_server")], {"TS_RUNROOT": str(home)}


def traffic_server_folders(home):
    folders = {"prefix": home, "sysconfdir": home / "etc", "localstatedir": home / "run", "runtimedir": home / "run"}
    folders |= {"logdir": home / "log", "cachedir": home / "cache", "datadir": home / "cache"}
    folders |= {"bindir": "/usr/bin", "libexecdir": "/usr/lib/trafficserver/modules"}
    return "".join(f"{name}: {path}\n" for name, path in folders.items())


def tinyproxy(site):
    text = f"""\
Listen 127.0.0.1
Port {site.port}
Allow 127.0.0.1
MaxClients 4000
Timeout 60
LogLevel Critical
LogFile "{site.directory}/tinyproxy.log"
"""
    return [program("tinyproxy"), "-d", "-c", site.write("tinyproxy.conf", text)], {}


def mitmproxy(site):
    options = ["connection_strategy=lazy", "stream_large_bodies=1", f"confdir={site.directory}"]
    if site.keys:
        site.write("mitmproxy-ca.pem", site.keys.ca_key.read_text() + site.keys.ca.read_text())
        options.append(f"ssl_verify_upstream_trusted_ca={site.keys.origin_ca}")
    flags = [word for option in options for word in ("--set", option)]
    listen = ["--listen-host", "127.0.0.1", "--listen-port", str(site.port)]
    return [site.programs["mitmdump"], "-q", *listen, *flags], {}


# What costs time per request stays on (robots.txt, pacing, metrics); limits that would delay requests are raised.
CURTSY_SETTINGS = {
    "admin": '"off"',
    "state_dir": '"memory"',
    "access.allow_destinations": '["127.0.0.0/8"]',
    "access.connect_ports": '["*"]',
    "access.max_client_connections": "10000",
    "upstream.pool_per_host": "256",
    # curtsy decides everything as for a real host, and no request has to wait.
    "politeness.delay": '"0s"',
    "politeness.concurrency": "1000",
    "log.level": '"warn"',
    # Each request is forwarded, as by the others.
    "cache.mode": '"off"',
}


def curtsy(site):
    own = {"listen": f'["127.0.0.1:{site.port}"]', "workers": str(site.workers)}
    if site.keys:
        own |= {"tls.intercept": "true", "tls.extra_roots": f'["{site.keys.origin_ca}"]'}
        own |= {"tls.ca_cert": f'"{site.keys.ca}"', "tls.ca_key": f'"{site.keys.ca_key}"'}
    settings = own | CURTSY_SETTINGS | site.curtsy_settings
    text = "".join(f"{key} = {value}\n" for key, value in settings.items())
    return [site.programs["curtsy"], "--config", site.write("curtsy.toml", text)], {}


PEERS = [
    Peer("direct", "direct, no proxy", start=None, forwards=False),
    Peer("nginx", "nginx, fixed reverse proxy", nginx, forwards=False, tunnels=False),
    Peer("curtsy", "curtsy", curtsy, looks_inside=True),
    Peer("trafficserver", "Traffic Server", traffic_server),
    Peer("squid", "Squid", squid, looks_inside=True),
    Peer("tinyproxy", "tinyproxy", tinyproxy),
    # mitmproxy is made to decrypt tunnels, so its cost for an opaque one says nothing.
    Peer("mitmproxy", "mitmproxy", mitmproxy, tunnels=False, looks_inside=True),
]


def origin(site, hosts, folder, tls_port):
    """The origin: short answers from memory, long ones by sendfile from the page cache; the first host under TLS too."""
    # One listening socket for each address instead of 0.0.0.0, so that nothing is reachable from outside.
    listen = "\n".join(f"        listen {host}:{site.port} backlog=4096;" for host in hosts)
    return nginx_command(
        site,
        f"""
    sendfile on;
    tcp_nopush on;
    open_file_cache max=10 inactive=1h;
    keepalive_timeout 1h;
    default_type text/plain;
    server {{
{listen}
        root {folder};
        location = /robots.txt {{ return 200 "User-agent: *\\nDisallow: /private/\\n"; }}
        location = /1k {{ return 200 "{'x' * 1024}"; }}
    }}
    server {{
        listen {hosts[1]}:{tls_port} ssl backlog=4096;
        ssl_certificate {site.keys.origin};
        ssl_certificate_key {site.keys.origin_key};
        ssl_session_tickets off;
        location = /robots.txt {{ return 200 "User-agent: *\\nDisallow: /private/\\n"; }}
        location = /1k {{ return 200 "{'x' * 1024}"; }}
        location = /close {{ keepalive_timeout 0; return 200 "{'x' * 1024}"; }}
    }}""",
    )


def program(name):
    path = which(name)
    if path is None:
        raise Failure(f"{name} is not installed")
    return path


def open_files():
    """Return the limit on open files that `scripts/bench` has set; children inherit it."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_to_others(directory):
    """Make files accessible to Squid and Traffic Server, which drop root after the start."""
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
