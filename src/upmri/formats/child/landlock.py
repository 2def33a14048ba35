"""Landlock, Linux 5.13 and later: a process opens the files that it names beforehand, and no others.

Nothing is allowed but reading of these files. Where the kernel can, TCP, abstract Unix sockets and signals to other
processes are refused, too. See landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_VERSION, _PATH_BENEATH = 1, 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by version of the interface
_TCP, _SCOPES = 0b11, 0b11
_TCP_SINCE, _SCOPES_SINCE = 4, 6


def allow_only(paths: Iterable[Path]) -> bool:
    """Let this process open only these files, and all files in these folders, for reading; return if that holds.

    It must be forbidden to gain new privileges before (:func:`upmri.formats.child.seccomp.deny_new_privileges`).
    """
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None).syscall
    version = call(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    rights = _FILE_RIGHTS[max(known for known in _FILE_RIGHTS if known <= version)]
    handled = [rights, *([_TCP] * (version >= _TCP_SINCE)), *([_SCOPES] * (version >= _SCOPES_SINCE))]
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    rules = call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return False
    try:
        for path in paths:
            _allow(call, rules, path)
        return bool(call(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _allow(call: ctypes._NamedFuncPointer, rules: int, path: Path) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what does not exist needs no permission
    try:
        folder = stat.S_ISDIR(os.fstat(opened).st_mode)
        rule = struct.pack("=Qi", _READ_FILE | (_READ_DIR if folder else 0), opened)
        call(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)
