"""An origin by Python's http.server: prints the port it listens on, then each request as it reads it, as JSON."""
import http.server
import json
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            length = 0
            while size := int(self.rfile.readline().split(b";")[0], 16):
                length += len(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return length
        return len(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def answer(self):
        seen = [self.command, self.path, self.body()]
        print(json.dumps(seen), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
sys.stdin.close()
server.serve_forever()
