"""Drops all privileges, as a container engine or systemd does."""

import ctypes
import os
import pathlib

# From the kernel's headers.
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38


def give_up(user, root="/"):
    """From here on this process is `user`, sees nothing but `root`, has no capability, and cannot gain one."""
    libc = ctypes.CDLL(None, use_errno=True)
    last = int(pathlib.Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
