"""Runs curtsy under the restrictions of its systemd unit, without systemd.

    unshare --mount confine.py UNIT PROGRAM CONFIG

The root is read-only except for the state directory, home folders are hidden, all capabilities are dropped, and calls
that SystemCallFilter, RestrictAddressFamilies and MemoryDenyWriteExecute forbid end the program or fail, as under
systemd. The script fails if the unit lacks a setting that it applies.
"""

import ctypes
import os
import pathlib
import socket
import subprocess
import sys

import rights

# From the kernel's headers.
PROT_WRITE, PROT_EXEC = 2, 4
# From libseccomp's.
KILL, ALLOW = 0x80000000, 0x7FFF0000
EQUAL, GREATER, MASKED_EQUAL = 4, 6, 7
EPERM, EAFNOSUPPORT = 1, 97
SOMEBODY = 61184  # the first user that DynamicUser chooses from
PLACE = pathlib.Path("/mnt")


class Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("one", ctypes.c_uint64), ("two", ctypes.c_uint64)]


def main(unit, program, config):
    settings = read_unit(unit)
    calls = allowed_calls(settings)
    families = {getattr(socket, name) for name in settings["RestrictAddressFamilies"][0].split()}
    assert settings["MemoryDenyWriteExecute"] == ["yes"] and settings["NoNewPrivileges"] == ["yes"]
    assert settings["ProtectSystem"] == ["strict"] and settings["ProtectHome"] == ["yes"]
    assert settings["CapabilityBoundingSet"] == [""]

    furnish(program, config)
    rights.give_up(SOMEBODY)
    check_closed()
    filter_calls(calls, families)
    arguments = settings["ExecStart"][0].split()[1:]
    arguments[arguments.index("--config") + 1] = str(PLACE / "config.toml")
    os.environ["STATE_DIRECTORY"] = str(PLACE / settings["StateDirectory"][0])
    os.umask(int(settings["UMask"][0], 8))
    os.execv(PLACE / "program", ["curtsy", *arguments])


def read_unit(path):
    """All values of each key, in order."""
    settings = {}
    for line in pathlib.Path(path).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            settings.setdefault(key, []).append(value)
    return settings


def allowed_calls(settings):
    """Expands groups of system calls with systemd's own lists; `~` removes."""
    groups, name = {}, None
    for line in subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True,
                               check=True).stdout.splitlines():
        if line.startswith("@"):
            name = line.strip()
            groups[name] = set()
        elif name and line.startswith("    ") and not line.strip().startswith("#"):
            groups[name].add(line.strip())

    def spelled(word):
        return set().union(*map(spelled, groups[word])) if word.startswith("@") else {word}

    calls = set()
    for line in settings["SystemCallFilter"]:
        named = set().union(*map(spelled, line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def furnish(program, config):
    """Mounts a small writable folder for the state, the program and its configuration; nothing else is writable."""
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", PLACE)
    for source, name in [(program, "program"), (config, "config.toml")]:
        (PLACE / name).touch()
        mount("--bind", source, PLACE / name)
    state = PLACE / "curtsy"
    state.mkdir(mode=0o700)
    os.chown(state, SOMEBODY, SOMEBODY)
    mount("--bind", state, state)
    for home in [pathlib.Path.home(), pathlib.Path("/home")]:
        mount("-t", "tmpfs", "-o", "mode=000", "tmpfs", home)
    mount("-t", "tmpfs", "tmpfs", "/tmp")
    for folder in ["/", PLACE]:
        mount("-o", "remount,bind,ro", folder)


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True)


def check_closed():
    for forbidden in ["/etc/curtsy-test", "/mnt/curtsy-test"]:
        try:
            open(forbidden, "w")
        except OSError:
            continue
        raise AssertionError(f"{forbidden} can be written")


def filter_calls(calls, families):
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(KILL))

    def rule(action, call, *comparisons):
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # otherwise this machine has no such call
            array = (Comparison * len(comparisons))(*comparisons)
            code = seccomp.seccomp_rule_add_array(rules, action, number, len(comparisons), array)
            assert code == 0, f"{call}: {code}"

    def error(number):
        return 0x00050000 | number

    both = PROT_WRITE | PROT_EXEC
    rule(error(EPERM), "mmap", Comparison(2, MASKED_EQUAL, both, both))
    rule(error(EPERM), "mprotect", Comparison(2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
    for bits in (0, PROT_WRITE, PROT_EXEC):
        rule(ALLOW, "mmap", Comparison(2, MASKED_EQUAL, both, bits))
    rule(ALLOW, "mprotect", Comparison(2, MASKED_EQUAL, PROT_EXEC, 0))
    # One rule for each family: libseccomp accepts one comparison per argument.
    for family in range(max(families) + 1):
        action = ALLOW if family in families else error(EAFNOSUPPORT)
        rule(action, "socket", Comparison(0, EQUAL, family, 0))
    rule(error(EAFNOSUPPORT), "socket", Comparison(0, GREATER, max(families), 0))
    for call in calls - {"mmap", "mprotect", "socket"}:
        rule(ALLOW, call)
    assert seccomp.seccomp_load(rules) == 0


main(*sys.argv[1:])
