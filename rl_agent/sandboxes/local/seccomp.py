"""Seccomp filter that blocks system calls of commands in a sandbox.

Most of these calls need capabilities that commands do not have; the filter also keeps them away from the kernel code that checks.
The others need none: user namespaces, BPF, performance counters, user fault handling and key rings.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

AUDIT_X86_64: Final = 0xC000003E
X32_BIT: Final = 0x40000000
NEW_USER: Final = 0x10000000
"""CLONE_NEWUSER"""
REFUSED: Final = {
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "init_module": 175,
    "delete_module": 176,
    "finit_module": 313,
    "kexec_load": 246,
    "kexec_file_load": 320,
    "pivot_root": 155,
    "mount": 165,
    "umount2": 166,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "acct": 163,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "iopl": 172,
    "ioperm": 173,
    "quotactl": 179,
    "settimeofday": 164,
    "clock_settime": 227,
    "unshare": 272,
    "setns": 308,
    "perf_event_open": 298,
    "bpf": 321,
    "userfaultfd": 323,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "kcmp": 312,
    "nfsservctl": 180,
}
"""Numbers for x86_64."""
CLONE: Final = 56
CLONE3: Final = 435

_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_KILL: Final = 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


def program() -> bytes | None:
    """Return the filter as an array of sock_filter; None for other machines than x86-64."""
    if platform.machine() != "x86_64":
        return None
    refuse = _ERROR | errno.EPERM
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, AUDIT_X86_64),
        (_RETURN, 0, 0, _KILL),  # numbers of another architecture mean other calls
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, X32_BIT),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_JUMP_EQUAL, 0, 1, CLONE3),  # a filter cannot see its flags; callers fall back to clone
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for number in sorted(REFUSED.values()):
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    steps += [
        (_JUMP_EQUAL, 0, 3, CLONE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, NEW_USER),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
