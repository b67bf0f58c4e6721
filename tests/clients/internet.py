"""A small internet: one program plays every origin, http:// and https://, as curtsy's parent proxy.

So names need no resolver, and a client that bypasses the proxy reaches no origin. Arrival times are the kernel's
timestamps of a request's first bytes, so that a busy machine does not falsify the gaps.
"""

import socket
import ssl
import struct
import subprocess
import threading
import time
from dataclasses import dataclass

SO_TIMESTAMPNS = 35  # Python has no name for it before 3.14
IDLE = 5  # seconds that origins keep an idle connection, as Node and Apache do


@dataclass
class Visit:
    at: float
    scheme: str
    host: str
    path: str
    fields: dict
    status: int = 0
    answer: dict = None
    # Before the answer was written, and after.
    answering: float = 0.0
    answered: float = 0.0


class Internet:
    """`site(visit, earlier)` says what a host answers: status, fields, body. `earlier` are its visits so far."""

    def __init__(self, site, certificates):
        self.site, self.certificates = site, certificates
        self.lock, self.hosts = threading.Lock(), {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def visits(self, host):
        with self.lock:
            return list(self.hosts.get(host, []))

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        stream, tunnel = Stream(connection), None
        try:
            while head := stream.head():
                method, target, fields = read_head(head)
                stream.body(int(fields.get("content-length", 0)))
                if method == "CONNECT":
                    tunnel = target.partition(":")[0]
                    stream.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    stream.begin_tls_if_asked(self.certificates)
                    continue
                self._answer(stream, method, self._visit(stream, target, fields, tunnel))
                connection.settimeout(IDLE)
        except (OSError, ssl.SSLError, ValueError):
            pass  # the client disconnected
        finally:
            connection.close()

    def _visit(self, stream, target, fields, tunnel):
        scheme, host, path = "http", tunnel, target
        if "://" in target:
            scheme, _, rest = target.partition("://")
            authority, slash, path = rest.partition("/")
            host, path = authority.partition(":")[0], slash + path
        return Visit(stream.began, "https" if stream.tls else scheme, host, path, fields)

    def _answer(self, stream, method, visit):
        with self.lock:
            earlier = self.hosts.setdefault(visit.host, [])
            visit.status, visit.answer, body = self.site(visit, earlier)
            visit.answering = time.time()
            earlier.append(visit)
        # A 304 says nothing about a body (RFC 9110, section 15.4.5).
        usual = {} if visit.status == 304 else {"Content-Type": "text/plain", "Content-Length": len(body)}
        fields = {**usual, **visit.answer}
        lines = [f"HTTP/1.1 {visit.status} So", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        stream.write("\r\n".join(lines).encode() + (b"" if method == "HEAD" else body))
        visit.answered = time.time()


def read_head(head):
    line, *rest = head.decode("latin-1").split("\r\n")
    method, target, _ = line.split(" ")
    pairs = (field.partition(":") for field in rest if field)
    return method, target, {name.lower(): value.strip() for name, _, value in pairs}


class Stream:
    """The bytes of one connection and their arrival times; inside TLS after `begin_tls_if_asked`."""

    def __init__(self, connection):
        self.connection, self.unread, self.began, self.arrived = connection, b"", 0.0, 0.0
        self.tls = self.incoming = self.outgoing = None

    def head(self):
        """The next head, or None if there are no more."""
        self.began = self.arrived if self.unread else 0.0
        while b"\r\n\r\n" not in self.unread:
            piece = self._read()
            if not piece:
                return b""
            self.began = self.began or self.arrived
            self.unread += piece
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        return head

    def body(self, length):
        while len(self.unread) < length:
            piece = self._read()
            if not piece:
                raise ValueError("half a body")
            self.unread += piece
        self.unread = self.unread[length:]

    def write(self, text):
        if not self.tls:
            return self.connection.sendall(text)
        self.tls.write(text)
        self.connection.sendall(self.outgoing.read())

    def begin_tls_if_asked(self, certificates):
        """In a tunnel a client may speak TLS or plain HTTP."""
        first = self.unread or self._receive()
        self.unread = b""
        if first[:1] != b"\x16":
            self.unread = first
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.leaf, certificates.leaf_key)
        context.set_alpn_protocols(["http/1.1"])
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.incoming.write(first)
        self._until_done(self.tls.do_handshake)

    def _read(self):
        if not self.tls:
            return self._receive()
        try:
            return self._until_done(lambda: self.tls.read(1 << 16))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _until_done(self, step):
        while True:
            try:
                result = step()
                self.connection.sendall(self.outgoing.read())
                return result
            except ssl.SSLWantReadError:
                self.connection.sendall(self.outgoing.read())
                piece = self._receive()
                if piece:
                    self.incoming.write(piece)
                else:
                    self.incoming.write_eof()

    def _receive(self):
        piece, fields, _, _ = self.connection.recvmsg(1 << 16, socket.CMSG_SPACE(16))
        stamps = [struct.unpack("@qq", value) for _, kind, value in fields if kind == SO_TIMESTAMPNS]
        self.arrived = stamps[0][0] + stamps[0][1] / 1e9 if stamps else time.time()
        return piece


class Certificates:
    """The CA of the origins and the one certificate that they share. `names` may begin with `*.`."""

    def __init__(self, folder, names):
        self.ca, self.leaf, self.leaf_key = folder / "origins.pem", folder / "leaf.pem", folder / "leaf.key"
        ca_key, request, words = folder / "origins.key", folder / "leaf.csr", folder / "leaf.ext"
        words.write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names) + "\n")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=a CA for origins",
                "-addext", "keyUsage=critical,keyCertSign", "-keyout", ca_key, "-out", self.ca)
        openssl("req", *key, "-subj", "/CN=an origin", "-keyout", self.leaf_key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", ca_key, "-set_serial", "2", "-days", "1",
                "-extfile", words, "-out", self.leaf)


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
