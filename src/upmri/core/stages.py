"""Seconds of each stage of a reconstruction, measured on request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds", default=None)


@contextmanager
def measured(seconds: dict[str, float]) -> Iterator[None]:
    """Measure the stages within this context; their seconds are added by name, in the order of their first use.

    An accelerator is waited for at the ends of every stage, so that a measured reconstruction is slower than others.
    """
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the time within this context for a stage, and not for one around it."""
    seconds = _seconds.get()
    if seconds is None:
        yield
        return
    seconds.setdefault(name, 0.0)
    before = sum(seconds.values())
    start = _now()
    try:
        yield
    finally:
        inner = sum(seconds.values()) - before
        seconds[name] += _now() - start - inner


def _now() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()
