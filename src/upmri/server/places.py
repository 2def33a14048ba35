"""Places for clients: how many streams there may be at once, in all and from one address.

A connection without an XML header holds no place. It counts for its address alone, and gives way to the next
connection of that address. So clients that connect and send nothing keep nobody out.
"""

from __future__ import annotations

import threading
from typing import Protocol

from upmri.server.limits import Limits, RefusedError


class Occupant(Protocol):
    """The part of a connection that is used here."""

    number: int
    peer: str

    def fail(self, error: RefusedError) -> None:
        """End the stream for a reason."""


class Places:
    """Counts connections, from any thread.

    Parameters
    ----------
    limits
        Limits of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._waiting: dict[int, Occupant] = {}  # connections without a header, the oldest first
        self._served: dict[int, Occupant] = {}

    def enter(self, one: Occupant) -> None:
        """Let a connection wait for its header; the oldest one that waits gives way if there are too many."""
        limits = self._limits
        with self._lock:
            same = [other for other in self._waiting.values() if other.peer == one.peer]
            over = same if len(same) >= limits.per_address else list(self._waiting.values())
            oldest = over[0] if over is same or len(over) >= limits.clients + limits.per_address else None
            if oldest is not None:
                del self._waiting[oldest.number]
            self._waiting[one.number] = one
        if oldest is not None:
            message = "another client connected while this one had sent no header; send it at once"
            oldest.fail(RefusedError("limit:per_address" if over is same else "limit:clients", message))

    def take(self, one: Occupant) -> None:
        """Give a place to a connection whose header has come; RefusedError if there is none."""
        limits = self._limits
        with self._lock:
            self._waiting.pop(one.number, None)
            if len(self._served) >= limits.clients:
                raise RefusedError(
                    "limit:clients", f"the server is busy with {limits.clients} clients; try again later"
                )
            if sum(other.peer == one.peer for other in self._served.values()) >= limits.per_address:
                message = f"this address has {limits.per_address} streams already, its limit (per_address)"
                raise RefusedError("limit:per_address", f"{message}; try again later")
            self._served[one.number] = one

    def leave(self, one: Occupant) -> None:
        """Free the place of a connection that has ended."""
        with self._lock:
            self._waiting.pop(one.number, None)
            self._served.pop(one.number, None)
