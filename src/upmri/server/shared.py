"""Objects that all connections of a server share."""

from __future__ import annotations

from dataclasses import dataclass

from upmri.server.counters import Counters
from upmri.server.dispatch import Dispatcher
from upmri.server.limits import Limits
from upmri.server.order import Order
from upmri.server.places import Places


@dataclass(frozen=True)
class Shared:
    """Objects that all connections share.

    Parameters
    ----------
    limits
        Limits of the server.
    default
        Configuration of streams that name no method.
    allowed
        Names of the methods that the server offers.
    dispatcher
        Queue of the worker.
    counters
        Counters of the server.
    places
        Places for clients.
    token
        Secret that clients must send in their configuration; None for none.
    """

    limits: Limits
    default: Order
    allowed: tuple[str, ...]
    dispatcher: Dispatcher
    counters: Counters
    places: Places
    token: str | None = None
