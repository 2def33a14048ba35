"""The limits of a child that parses a file: memory, time, files, system calls.

Limits on resources hold on every POSIX system. On Linux a filter of system calls and Landlock come on top. Each that is
in place has a name, which `upmri doctor` shows.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from upmri.formats.child import landlock, seccomp

_OVERHEAD = 2**30  # bytes for temporary arrays and threads
_FOLD = 2  # arrays of the file, and the same once more in another order or type
_OPEN_FILES = 64
_SET_PDEATHSIG = 1
# What libraries read when they are first used: the loader's list, the processors.
_SYSTEM = ("/lib", "/lib64", "/etc/ld.so.cache", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system")


def enter(allowed: Iterable[Path], max_bytes: int, parent: int) -> list[str]:
    """Set all limits for this process, which has one thread; return the names of those that are in place.

    Parameters
    ----------
    allowed
        Files, and folders with files, that may be opened for reading.
    max_bytes
        Most bytes of memory for the arrays of the file.
    parent
        Process whose end also ends this one.
    """
    active = []
    if _end_with(parent):
        active.append("ends with the program")
    _first_for_the_kernel_to_end()
    os.chdir("/")
    if _limit(resource.RLIMIT_DATA, _data_bytes() + _FOLD * max_bytes + _OVERHEAD):
        active.append("memory limit")
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if _limit(resource.RLIMIT_FSIZE, 0):
        active.append("no file grows")
    active.append("time limit")
    if seccomp.deny_new_privileges():
        active.append("no new privileges")
        if landlock.allow_only([*map(Path, _SYSTEM), *allowed]):
            active.append("no other files (Landlock)")
        if seccomp.filter_calls():
            active.append("no network, programs or writing (seccomp)")
    return active


def allow_seconds(seconds: float) -> None:
    """Let this process use so much more processor time, over all threads; then SIGXCPU ends it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def _limit(kind: int, value: int) -> bool:
    """Lower a limit for good; return whether it is at most ``value`` now."""
    with suppress(ValueError, OSError):
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))
        return True
    return False


def _data_bytes() -> int:
    """Return the bytes of private memory that this process has now, which count for its limit."""
    try:
        with Path("/proc/self/statm").open() as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 2**31


def _end_with(parent: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    done = ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)
    return bool(done)


def _first_for_the_kernel_to_end() -> None:
    """When the machine is out of memory, the kernel ends this process, not the program."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
