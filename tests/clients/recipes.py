"""Runs docs/recipes.md as it is written.

Each section is one story. Its files (blocks that begin with a comment with a file name) are written to disk, then one
bash runs its `sh` blocks in order; later sections first run the blocks of "First of all". 3128 stands for curtsy's port
and `example.com` for the section's own host. A line `#=> text` says what must be printed. `toml` blocks must be valid
configuration.

No block is skipped by accident: a file that no `sh` block uses and a block of any other kind fail, unless
`<!-- not run: why -->` precedes the block. A section with `<!-- needs: program -->` runs on demand only.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from curtsy import bare_environment

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/recipes.md"
FIRST = "First of all"
PATIENCE = 90
FILE_NAME = re.compile(r"(?:#|//) (\w+\.\w+)$")


@dataclass
class Block:
    line: int
    language: str
    text: str
    not_run: bool


@dataclass
class Section:
    name: str
    needs: list = field(default_factory=list)
    blocks: list = field(default_factory=list)

    def of(self, language):
        return [block for block in self.blocks if block.language == language and not block.not_run]

    def files(self):
        """The files of the section by name."""
        named = ((FILE_NAME.match(block.text.partition("\n")[0]), block) for block in self.blocks if not block.not_run)
        return {name[1]: block for name, block in named if name}

    def script(self):
        return "".join(block.text for block in self.of("sh"))

    def left_out(self):
        """Blocks that are not run and are not marked as such."""
        files = self.files()
        used = [block for name, block in files.items() if name.partition(".")[0] in self.script()]
        return [block for block in self.blocks
                if not block.not_run and block.language not in ("sh", "toml") and block not in used]


def sections(text):
    found, fence, mark = [Section("")], None, ""
    for number, line in enumerate(text.splitlines(), 1):
        if fence is not None:
            if line == "```":
                fence = None
            else:
                fence.text += line + "\n"
        elif line.startswith("```"):
            fence = Block(number, line[3:], "", mark == "not run")
            found[-1].blocks.append(fence)
            mark = ""
        elif line.startswith("## "):
            found.append(Section(line[3:]))
        elif told := re.fullmatch(r"<!-- (not run|needs): (.+) -->", line):
            mark = told[1]
            if mark == "needs":
                found[-1].needs.append(told[2])
    return found


def all_sections():
    return sections(DOCUMENT.read_text())


def block(first_line):
    """The text of the block that begins like this."""
    (only,) = [one for section in all_sections() for one in section.blocks if one.text.startswith(first_line + "\n")]
    return only.text


def notices_what_is_left_out(_):
    """Tests the rule about skipped blocks on a made-up page."""
    text = """## a
```python
# one.py
```
```python
# two.py
```
<!-- not run: why -->
```console
```
```console
```
```sh
python3 one.py
```
"""
    (_, section) = sections(text)
    assert [block.line for block in section.left_out()] == [5, 11], section.left_out()
    assert list(section.files()) == ["one.py", "two.py"] and section.script() == "python3 one.py\n", section


def run(section, world):
    left_out = [f"docs/recipes.md:{block.line}" for block in section.left_out()]
    assert not left_out, f"never run, and not marked as such: {', '.join(left_out)}"
    folder = world.folder / ("recipe-" + re.sub(r"\W", "", section.name))
    folder.mkdir()
    for number, block in enumerate(section.of("toml")):
        check_configuration(block, folder / f"{number}.toml", world.curtsy)
    if not section.of("sh"):
        return
    host = f"{folder.name.lower()}.intercept.test"
    for name, block in section.files().items():
        (folder / name).write_text(placed(block.text, world.curtsy, host))
    said = bash(placed(set_up_before(section) + section.script(), world.curtsy, host), folder, world.curtsy)
    for text in re.findall(r"^#=> (.*)$", section.script(), re.MULTILINE):
        assert placed(text, world.curtsy, host) in said, f"{text!r} was not printed:\n{said}"


def set_up_before(section):
    """The steps that a reader has done before this section."""
    everything = all_sections()
    names = [one.name for one in everything]
    first = names.index(FIRST)
    return everything[first].script() if names.index(section.name) > first else ""


def check_configuration(block, path, curtsy):
    path.write_text(block.text)
    done = subprocess.run([curtsy.program, "--config", path, "config", "check"], env=bare_environment(),
                          capture_output=True, text=True)
    assert done.returncode == 0, f"docs/recipes.md:{block.line}\n{done.stdout}{done.stderr}"


def placed(text, curtsy, host):
    port, admin_port = (address.rpartition(":")[2] for address in (curtsy.proxy, curtsy.admin))
    text = re.sub(r"\b3128\b", port, text)
    return re.sub(r"\b3129\b", admin_port, text).replace("example.com", host)


def bash(script, folder, curtsy):
    """What a script prints; it must succeed."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "chromium").write_text(f'#!/bin/sh\nexec {shutil.which("chromium")} --no-sandbox "$@"\n')
    (programs / "chromium").chmod(0o755)  # in a container every user is root, and Chromium then needs --no-sandbox
    path = [programs, Path(curtsy.program).parent, Path(sys.executable).parent, os.environ["PATH"]]
    environment = {**bare_environment(), **curtsy.variables, "PATH": ":".join(map(str, path)), "HOME": str(folder),
                   "CURTSY_CONFIG": str(curtsy.config)}
    command = ["timeout", str(PATIENCE), "bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{script}"]
    done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"exit code {done.returncode}\n{script}---\n{said}"
    return said

