"""The origins of the pictures: curtsy's parent proxy plays a news site that links to a shop."""

import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from world import Server

ROBOTS = "User-agent: *\nCrawl-delay: 2\nDisallow: /private/\n"
FRONT = "".join(f'<a href="/story/{number}">story</a>\n' for number in range(12))
FRONT += '<a href="/private/draft">draft</a>\n<a href="http://shop.example.net/">shop</a>\n'


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/robots.txt":
            is_news = url.hostname == "news.example.org"
            return self.answer(200, ROBOTS) if is_news else self.answer(404, "none")
        self.answer(200, FRONT if url.path == "/" else f"<p>{url.path}</p>\n")

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start():
    """Starts the origins and returns the address of the parent proxy."""
    server = Server(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
