"""Draws a cast as an animated SVG, in light and dark colours. The same cast gives the same bytes.

Understands what curtsy writes: text, colours, cursor positions, clearing, and the second screen of full-screen programs.
"""

import json
import re
from xml.sax.saxutils import escape

CELL, LINE, SIDE, TOP = 7.8, 17, 14, 38  # pixels
STEP = 0.1  # seconds: faster changes share a frame
END = 3.0  # seconds that the last frame stays
CODE = re.compile(r"\x1b\[([?>]?)([\d;]*)([A-Za-z])|\x1b[()].|\x1b[=>78]|\x1b\][^\x07]*\x07")
BEGUN = re.compile(r"\x1b(\[[?>]?[\d;]*|\][^\x07]*|[()])?$")
COLOURS = {1: "red", 2: "green", 3: "yellow", 4: "blue", 5: "blue", 6: "blue"}
STYLE = """
  .paper { fill: #fbfbfc; stroke: #d9dbe0; }
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1c1d21; white-space: pre; }
  .dim { fill: #757a86; } .bold { font-weight: 600; }
  .red { fill: #b3261e; } .green { fill: #1f7a4a; } .yellow { fill: #94610a; } .blue { fill: #2457b8; }
  .back { fill: #dfe5f2; } .dot { fill: #cfd2d9; }
  .frame { visibility: hidden; animation: LENGTHs step-end infinite; }
  .still { visibility: visible; }
  @media (prefers-reduced-motion: reduce) { .frame { animation: none; } }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #15171a; stroke: #33363d; } text { fill: #e4e6ea; } .dim { fill: #8b909b; }
    .red { fill: #ff8077; } .green { fill: #57c98f; } .yellow { fill: #e0ad4e; } .blue { fill: #84aaf5; }
    .back { fill: #2c3444; } .dot { fill: #3b3f47; }
  }
"""


class Screen:
    def __init__(self, width, height):
        self.width, self.height = width, height
        self.other, self.look = None, ("", False, False, False)  # colour, bold, dim, reversed
        self.unread = ""  # the beginning of a code whose end comes with the next event
        self.clear()

    def clear(self):
        self.rows = [[(" ", ("", False, False, False))] * self.width for _ in range(self.height)]
        self.x = self.y = 0

    def feed(self, text):
        text, end = self.unread + text, 0
        begun = BEGUN.search(text)
        self.unread = begun.group() if begun else ""
        text = text[:len(text) - len(self.unread)]
        for code in CODE.finditer(text):
            self.put(text[end:code.start()])
            if code.group(3):
                self.obey(code.group(1), [int(number or 0) for number in code.group(2).split(";")], code.group(3))
            end = code.end()
        self.put(text[end:])

    def put(self, text):
        for letter in text:
            if letter == "\r":
                self.x = 0
            elif letter == "\n":
                self.down()
            elif letter >= " ":
                if self.x == self.width:
                    self.x = 0
                    self.down()
                self.rows[self.y][self.x] = (letter, self.look)
                self.x += 1

    def down(self):
        self.y += 1
        if self.y == self.height:
            self.rows = self.rows[1:] + [[(" ", self.rows[0][0][1])] * self.width]
            self.y -= 1

    def obey(self, private, numbers, letter):
        first = numbers[0]
        if private and 1049 in numbers:
            self.switch(letter == "h")
        elif letter == "m":
            self.paint(numbers)
        elif letter == "H":
            self.y = min(max(first, 1), self.height) - 1
            self.x = min(max(numbers[1] if len(numbers) > 1 else 1, 1), self.width) - 1
        elif letter == "J" and first == 2:
            x, y = self.x, self.y
            self.clear()
            self.x, self.y = x, y
        elif letter == "K":
            begin = 0 if first == 2 else self.x
            self.rows[self.y][begin:] = [(" ", ("", False, False, False))] * (self.width - begin)

    def switch(self, to_second):
        if to_second:
            self.other = (self.rows, self.x, self.y)
            self.clear()
        elif self.other:
            (self.rows, self.x, self.y), self.other = self.other, None

    def paint(self, numbers):
        colour, bold, dim, turned = self.look
        while numbers:
            number = numbers.pop(0)
            if number == 0:
                colour, bold, dim, turned = "", False, False, False
            elif number in (1, 2):
                bold, dim = bold or number == 1, dim or number == 2
            elif number == 22:
                bold, dim = False, False
            elif number in (7, 27):
                turned = number == 7
            elif 30 <= number <= 37 or 90 <= number <= 97:
                colour = COLOURS.get(number % 10, "")
            elif number == 39:
                colour = ""
            elif number in (38, 48):
                # Colours of the palette: 38;5;N. The background is not drawn.
                code = numbers[1] if numbers[:1] == [5] else 0
                colour = COLOURS.get(code % 8, "") if number == 38 and code < 16 else colour
                numbers = numbers[2:]
        self.look = (colour, bold, dim, turned)

    def lines(self):
        return [line(row) for row in self.rows]


def line(row):
    """Returns a row of the screen as SVG, at y = 0; empty if there is nothing on it."""
    parts, x = [], 0
    while x < len(row):
        look, begin = row[x][1], x
        while x < len(row) and row[x][1] == look:
            x += 1
        text = "".join(letter for letter, _ in row[begin:x])
        colour, bold, dim, turned = look
        if turned:
            parts.append(f'<rect class="back" x="{begin * CELL:.1f}" y="-13" width="{(x - begin) * CELL:.1f}" height="{LINE}"/>')
        if not text.strip():
            continue
        begin += len(text) - len(text.lstrip())
        text = text.strip()
        kind = " ".join(filter(None, [colour, "bold" if bold else "", "dim" if dim else ""]))
        kind = f' class="{kind}"' if kind else ""
        parts.append(f'<text x="{begin * CELL:.1f}" textLength="{len(text) * CELL:.1f}"{kind}>{escape(text)}</text>')
    return "".join(parts)


def frames(cast):
    """Returns pairs of the time and the lines on the screen, without repetitions."""
    head, *events = map(json.loads, cast.splitlines())
    screen, shown = Screen(head["width"], head["height"]), []
    for number, (at, _, text) in enumerate(events):
        screen.feed(text)
        follows = number + 1 < len(events) and events[number + 1][0] - at < STEP and len(shown) > 0
        if follows and at - shown[-1][0] < STEP:
            continue
        lines = screen.lines()
        if not shown or shown[-1][1] != lines:
            shown.append((at, lines))
    return head, shown


def draw(cast, title):
    head, shown = frames(cast)
    length = shown[-1][0] + END
    width, height = head["width"] * CELL + 2 * SIDE, head["height"] * LINE + TOP + 8
    times = [at for at, _ in shown] + [length]
    # Where pictures do not move, the frame is seen that stays longest.
    still = max(range(len(shown)), key=lambda number: times[number + 1] - times[number])
    known, pictures = {}, []
    for number, (at, lines) in enumerate(shown):
        uses = []
        for y, text in enumerate(lines):
            if text:
                name = known.setdefault(text, f"l{len(known)}")
                uses.append(f'<use href="#{name}" y="{y * LINE}"/>')
        first, last = 100 * at / length, 100 * times[number + 1] / length
        kind = "frame still" if number == still else "frame"
        keys = f"@keyframes f{number} {{ 0% {{ visibility: hidden }} {first:.2f}% {{ visibility: visible }} {last:.2f}% {{ visibility: hidden }} }}"
        pictures.append((keys, f'<g class="{kind}" style="animation-name:f{number}">{"".join(uses)}</g>'))
    style = STYLE.replace("LENGTH", f"{length:.1f}") + "\n".join(keys for keys, _ in pictures)
    dots = "".join(f'<circle class="dot" cx="{SIDE + 6 + 18 * n}" cy="18" r="5.5"/>' for n in range(3))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>", f"<style>{style}</style>",
        "<defs>", *(f'<g id="{name}">{text}</g>' for text, name in known.items()), "</defs>",
        f'<rect class="paper" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>', dots,
        f'<g transform="translate({SIDE} {TOP + 12})">', *(picture for _, picture in pictures), "</g>", "</svg>", ""])
