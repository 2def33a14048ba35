"""Keep memory that was freed: a network asks for the same again at once, and fresh pages cost a third of its time."""

from __future__ import annotations

import ctypes

# Of glibc's mallopt: what is larger comes in pages of its own, which go back when freed (32 MiB is the most it takes),
# and how much may lie free at the end of the heap before it is given back.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_LARGEST, _NEVER = 2**25, 2**31 - 1


def keep_freed() -> bool:
    """Ask the C library to keep what is freed, for this process; False where there is no way to ask.

    The command line does. A library should not, so Python code that reconstructs much on the CPU may.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
