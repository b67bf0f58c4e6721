"""Draws the charts of docs/images from docs/images/judge.json. The same data gives the same bytes."""

from xml.sax.saxutils import escape

WIDTH = 760
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1c1d21; }
  .faint { fill: #6b6f7a; }
  .title { font-weight: 600; font-size: 15px; }
  .number { font-variant-numeric: tabular-nums; }
  .track { fill: #eceef1; }
  .without { fill: #c9453c; }
  .with { fill: #2f8f5b; }
  .line { stroke: #c9ccd3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8e9ec; }
    .faint { fill: #9a9ea8; }
    .track { fill: #2a2c31; }
    .without { fill: #ff7b72; }
    .with { fill: #4cc38a; }
    .line { stroke: #44474f; }
  }
"""


def svg(height, title, parts):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 -6 {WIDTH + 24} {height + 12}" width="{WIDTH + 24}" '
            f'height="{height + 12}" role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n')
    return head + "\n".join(parts) + "\n</svg>\n"


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x, y, width, height, kind):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" class="{kind}"/>'


def legend(y):
    return [box(170, y - 10, 12, 12, "without"), text(188, y, "without curtsy"),
            box(300, y - 10, 12, 12, "with"), text(318, y, "with curtsy")]


def scores(data):
    """Two bars for each client: its score without and with curtsy."""
    left, span, row = 170, 520, 44
    title = "Politeness score of common crawlers, out of 100"
    parts = [text(0, 18, title, "title"), *legend(44)]
    for number, client in enumerate(data["clients"]):
        y = 62 + number * row
        parts.append(text(left - 12, y + 20, client["name"], anchor="end"))
        for offset, kind in ((0, "without"), (16, "with")):
            score = client[kind]["score"]
            parts += [box(left, y + offset, span, 13, "track"), box(left, y + offset, span * score / 100, 13, kind),
                      text(left + span + 8, y + offset + 11, str(score), "number")]
    height = 62 + len(data["clients"]) * row + 24
    few = [client for client in data["clients"] if client["without"]["tested"] < 50]
    note = "".join(f" {client['name']} met rules worth {client['without']['tested']} points only." for client in few)
    words = "curtsy judge, default settings. The score counts the rules that a client met." + note
    parts.append(text(0, height - 8, words, "faint"))
    return svg(height, title, parts)


def gaps(data):
    """When the requests of one client arrived at one host, without and with curtsy."""
    case = data["gaps"]
    left, span = 170, 560
    end = max(case["without"] + case["with"] + [1])
    title = f"When the requests of {case['client']} arrived at {case['host']}"
    parts = [text(0, 18, title, "title")]
    for y, kind, label in ((58, "without", "without curtsy"), (108, "with", "with curtsy")):
        count = f"{len(case[kind])} requests in {case[kind][-1]:.1f} s"
        parts += [text(left - 12, y, label, anchor="end"), text(left - 12, y + 15, count, "faint number", "end"),
                  f'<line x1="{left}" y1="{y}" x2="{left + span}" y2="{y}" class="line"/>']
        parts += [box(round(left + span * at / end, 1) - 1, y - 14, 2, 28, kind) for at in case[kind]]
    for second in range(int(end) + 1):
        x = round(left + span * second / end, 1)
        parts.append(text(x, 146, f"{second} s", "faint number", "middle"))
    return svg(160, title, parts)


def draw(data, folder):
    (folder / "judge.svg").write_text(scores(data))
    (folder / "judge-gaps.svg").write_text(gaps(data))
