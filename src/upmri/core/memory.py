"""Keep memory that was freed: a network asks for the same again at once, and fresh pages can cost half of its time."""

from __future__ import annotations

import ctypes

# Of glibc's mallopt: how many pieces may come in pages of their own, which go back when freed, and how much may lie
# free at the end of the heap before it is given back.
_MMAP_MAX, _TRIM_THRESHOLD, _NEVER = -4, -1, 2**31 - 1


def keep_freed() -> bool:
    """Ask the C library to keep what is freed, for this process; False where there is no way to ask.

    The command line does. A library should not, so Python code that reconstructs much on the CPU may.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
