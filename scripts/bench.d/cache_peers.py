"""The caches that `cache.py` compares, and their origin.

Each cache may use 256 MiB of memory (nginx: of disk, which stays in the page cache). Everything else is as in `peers.py`.
"""

import contextlib
import http.client
import re
import socket
from dataclasses import dataclass

import load
import peers
from peers import Site
from process import free_port, running

MEMORY_MIB = 256


@dataclass
class Origin:
    address: str
    asked: int = 0

    def answer_bytes(self, path):
        """Return the length of an answer, head and body."""
        host, port = self.address.split(":")
        with contextlib.closing(socket.create_connection((host, int(port)), timeout=10)) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {self.address}\r\nConnection: close\r\n\r\n".encode())
            self.asked += 1
            return sum(map(len, iter(lambda: stream.recv(65536), b"")))

    def requests(self):
        """Return how many requests reached it, without those that ask for this number."""
        host, port = self.address.split(":")
        with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=10)) as connection:
            connection.request("GET", "/count")
            numbers = re.search(r"requests\s+\d+ \d+ (\d+)", connection.getresponse().read().decode())
        self.asked += 1
        return int(numbers.group(1)) - self.asked


@contextlib.contextmanager
def origin(bench):
    """Start the origin: any path below /1k and /64k, fresh for a day, and below /no-store."""
    site = Site(bench.folder("cache-origin"), free_port(), origin="", workers=1)
    (site.directory / "64k").write_bytes(b"x" * (64 << 10))
    peers.open_to_others(site.directory)
    argv, env = peers.nginx_command(
        site,
        f"""
    sendfile on;
    keepalive_timeout 1h;
    default_type text/plain;
    server {{
        listen 127.0.0.1:{site.port} backlog=4096;
        root {site.directory};
        add_header Cache-Control "public, max-age=86400";
        location = /robots.txt {{ return 200 "User-agent: *\\nDisallow: /private/\\n"; }}
        location = /count {{ stub_status; }}
        location /1k/ {{ return 200 "{'x' * 1024}"; }}
        location /no-store/ {{ add_header Cache-Control no-store; return 200 "{'x' * 1024}"; }}
        location /64k/ {{ rewrite ^ /64k break; }}
    }}""",
    )
    with running(argv, site.directory / "output.log", site.port, bench.plan.cores.load, env):
        yield Origin(f"127.0.0.1:{site.port}")


def script(bench, origin, path, objects, forwards=True, start=0):
    """Write a script for wrk that asks for that many objects in turn, from `start` on, and begins anew after the last."""
    base = f"http://{origin.address}{path}" if forwards else path
    file = bench.plan.directory / f"cache{path.replace('/', '-')}-{objects}-{forwards}.lua"
    file.write_text(
        f"""\
local requests, turn = {{}}, {start}
function init()
  for i = 1, {objects} do
    requests[i] = "GET {base}/" .. i .. " HTTP/1.1\\r\\nHost: {origin.address}" ..
      "\\r\\nUser-Agent: {load.AGENT}\\r\\nAccept: */*\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n"
  end
end
{load.WRK_TURNS}"""
    )
    return file


def nginx(site):
    """A reverse proxy that knows its origin. Its cache is made of files, which it sends with sendfile."""
    folder = site.directory / "stored"
    folder.mkdir(exist_ok=True)
    peers.open_to_others(site.directory)
    return peers.nginx_command(
        site,
        f"""
    sendfile on;
    proxy_cache_path {folder} levels=1:2 keys_zone=stored:10m max_size={MEMORY_MIB}m inactive=1d use_temp_path=off;
    upstream origin {{ server {site.origin}; keepalive 256; }}
    server {{
        listen 127.0.0.1:{site.port} backlog=4096;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache stored;
        }}
    }}""",
    )


def squid(site):
    argv, env = peers.squid(site)
    path = site.directory / "squid.conf"
    memory = f"cache_mem {MEMORY_MIB} MB\nmaximum_object_size_in_memory 1 MB\n"
    path.write_text(path.read_text().replace("cache deny all\n", memory))
    return argv, env


def traffic_server(site):
    argv, env = peers.traffic_server(site)
    records = site.directory / "etc/records.config"
    off, on = "cache.http INT 0", f"cache.http INT 1\nCONFIG proxy.config.cache.ram_cache.size INT {MEMORY_MIB << 20}"
    records.write_text(records.read_text().replace(off, on))
    site.write("etc/storage.config", f"{site.directory}/cache {MEMORY_MIB}M\n")
    peers.open_to_others(site.directory)
    return argv, env


def curtsy(site, **settings):
    """Start curtsy with its cache on; `settings` are values of [cache]."""
    ours = {"cache.mode": '"shared"', "cache.memory": f'"{MEMORY_MIB}MiB"'}
    ours |= {f"cache.{key}": value for key, value in settings.items()}
    return peers.curtsy(Site(**{**vars(site), "curtsy_settings": ours | site.curtsy_settings}))


START = {"nginx": nginx, "squid": squid, "trafficserver": traffic_server, "curtsy": curtsy}
