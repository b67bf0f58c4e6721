"""Tests the shell completions with the shells and the manual pages with man."""

import re
import shutil

from world import said

# Completes `curtsy ex`, as bash does when Tab is pressed.
PRESS_TAB = r"""
source "$1"
[[ $(complete -p curtsy) =~ -F\ ([^ ]+) ]] || exit 9
COMP_WORDS=(curtsy "${@:2}") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"${BASH_REMATCH[1]}" curtsy "${@: -1}" "${@: -2:1}"
printf '%s\n' "${COMPREPLY[@]}"
"""


def check(curtsy, folder):
    for shell, tried in {"bash": bash, "zsh": zsh, "fish": fish}.items():
        script = folder / f"completions.{shell}"
        script.write_text(said(curtsy, "completions", shell))
        if shutil.which(shell):
            tried(script)
            print(f"  {shell} completes")
        else:
            print(f"  {shell}: not tried, it is not here")
    manual(curtsy, folder / "man1")


def bash(script):
    def press_tab(*words):
        return said("bash", "-euc", PRESS_TAB, "tab", script, *words).split()

    said("bash", "-n", script)
    assert "explain" in press_tab("ex"), press_tab("ex")
    assert press_tab("config", "in") == ["init"], press_tab("config", "in")
    assert "--delay" in press_tab("--de"), press_tab("--de")


def zsh(script):
    said("zsh", "-n", script)
    loaded = f"autoload -U compinit && compinit -D -u && source {script} && print $_comps[curtsy]"
    assert said("zsh", "-fc", loaded).strip() == "_curtsy"


def fish(script):
    offered = said("fish", "--no-config", "-c", f"source {script}; complete -C 'curtsy ex'")
    assert "explain\t" in offered, offered


def manual(curtsy, folder):
    """Checks that every page has the usual sections and that man reports no problems."""
    said(curtsy, "man", folder)
    pages = sorted(folder.glob("*.1"))
    main = (folder / "curtsy.1").read_text()
    listed = re.findall(r"^curtsy\\-(\w+)\(1\)$", main, re.MULTILINE)
    missing = [name for name in listed if not (folder / f"curtsy-{name}.1").exists()]
    assert len(listed) > 10 and not missing, (listed, missing)
    for page in pages:
        for heading in ["NAME", "SYNOPSIS", "OPTIONS"]:
            assert f".SH {heading}\n" in page.read_text(), f"{page.name} has no {heading}"
    if not shutil.which("man"):
        print(f"  man: not tried, it is not here; {len(pages)} pages are written")
        return
    for page in pages:
        complaints = said("man", "--warnings", "--local-file", "-Tutf8", "-Z", page, encoding="utf-8")
        warnings = [line for line in complaints.splitlines() if "warning:" in line]
        assert not warnings, f"{page.name}: {warnings}"
    print(f"  man reads {len(pages)} pages")
