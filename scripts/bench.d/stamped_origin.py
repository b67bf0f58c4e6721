"""An origin that notes when the kernel received each request, and which node sent it (by Via).

    python3 stamped_origin.py PORT

Answers every request with two bytes. When its standard input ends, it prints a line for each request: the time in
nanoseconds, the address that was asked, and the Via field.
"""

import selectors
import socket
import struct
import sys

SO_TIMESTAMPING = 37  # linux/socket.h; Python has no name for it
SOFTWARE_TIMES = 1 << 3 | 1 << 4  # take them when a packet is received, and report them
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Visitor:
    def __init__(self, stream, arrivals):
        self.stream, self.arrivals, self.head = stream, arrivals, b""
        self.host = stream.getsockname()[0]

    def read(self):
        """Reads what there is; returns whether the connection goes on."""
        try:
            data, notes, _, _ = self.stream.recvmsg(65536, 512)
        except OSError:
            return False
        self.head += data
        if self.head.endswith(b"\r\n\r\n"):
            via = next((line for line in self.head.split(b"\r\n") if line.lower().startswith(b"via:")), b"")
            self.arrivals.append((stamp(notes), self.host, via.decode()))
            self.head = b""
            self.stream.sendall(ANSWER)
        return bool(data)


def stamp(notes):
    """The kernel's time of the last byte. A connection has one request at a time."""
    note = next(data for level, kind, data in notes if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING))
    seconds, nanoseconds = struct.unpack("=qq", note[:16])
    return seconds * 1_000_000_000 + nanoseconds


def main(port):
    arrivals, waiting = [], selectors.DefaultSelector()
    listener = socket.create_server(("0.0.0.0", port), backlog=1024)
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOFTWARE_TIMES)  # inherited by its connections
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is sys.stdin:
                for at, host, via in arrivals:
                    print(at, host, via)
                return
            if key.fileobj is listener:
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                waiting.register(stream, selectors.EVENT_READ, Visitor(stream, arrivals))
            elif not key.data.read():
                waiting.unregister(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
