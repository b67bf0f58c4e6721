"""Records commands in a terminal as an asciinema cast, version 2."""

import fcntl
import json
import os
import pty
import select
import struct
import termios
import time

WIDTH, HEIGHT = 88, 24
LONGEST_PAUSE = 2.0  # seconds; longer ones are shortened
KEY = 0.05  # seconds between two typed letters


class Cast:
    def __init__(self):
        self.now, self.events = 0.0, []

    def write(self, text, pause=0.0):
        self.now += min(pause, LONGEST_PAUSE)
        self.events.append((round(self.now, 3), text))

    def prompt(self, command):
        """Writes a prompt and types a command; `run` runs it."""
        self.write("\x1b[1;32m$\x1b[0m ", 0.3)
        self.write("", 0.8)
        for letter in command:
            self.write(letter, KEY)
        self.write("\r\n", 0.6)

    def run(self, command, environment, keys=(), folder=None):
        """Runs a command in a terminal of its own. `keys`: pairs of seconds since the last key, and text to send."""
        child, terminal = pty.fork()
        if child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
            os.chdir(folder or ".")
            os.execvpe(command[0], command, environment)
        keys, since, last, unread = list(keys), time.monotonic(), time.monotonic(), b""
        while True:
            if keys and time.monotonic() - since >= keys[0][0]:
                since = time.monotonic()
                os.write(terminal, keys.pop(0)[1].encode())
            if not select.select([terminal], [], [], 0.02)[0]:
                continue
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:  # Linux says so when the command has ended
                data = b""
            if not data:
                break
            now = time.monotonic()
            text, unread = whole(unread + data)
            self.write(text, now - last)
            last = now
        os.close(terminal)
        os.waitpid(child, 0)

    def save(self, path):
        head = {"version": 2, "width": WIDTH, "height": HEIGHT, "env": {"TERM": "xterm-256color"}}
        lines = [json.dumps(head)] + [json.dumps([at, "o", text], ensure_ascii=False) for at, text in self.events]
        path.write_text("\n".join(lines) + "\n")


def whole(data):
    """Splits bytes into text and the beginning of a character that is not complete yet."""
    for end in range(len(data), max(len(data) - 4, -1), -1):
        try:
            return data[:end].decode(), data[end:]
        except UnicodeDecodeError:
            pass
    return data.decode(errors="replace"), b""
