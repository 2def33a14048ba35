"""Fixtures of all tests: random complex tensors, dense matrices of linear maps, the data folder."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

# Tests run in parallel processes: one thread each is faster than several that share the cores.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in processes that tests start, too
# A shell starts a job in the background with SIGINT ignored, and every process that it starts would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Weights of the user who runs the tests must not change their results.
os.environ.pop("UPMRI_MODELS", None)
# Files are read in this process: most tests look at readers, and some replace parts of them. tests/formats/child reads
# in a process of its own, as users do.
os.environ.setdefault("UPMRI_TRUSTED", "1")

# The same examples in every run; `make soak` tries many more.
settings.register_profile("quick", max_examples=30, deadline=None, derandomize=True, database=None)
settings.register_profile("soak", max_examples=300, deadline=None, derandomize=True, database=None)
settings.load_profile("soak" if os.environ.get("UPMRI_SOAK") else "quick")


@pytest.fixture
def rng() -> Callable[..., Tensor]:
    """``rng(*shape)``: complex normal tensors, the same in every run."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int, dtype: torch.dtype = torch.complex128) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=generator)

    return draw


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with real anatomies and scans. Without it tests are skipped, except in CI, where they fail."""
    folder = os.environ.get("UPMRI_DATA", "")
    if not folder or not Path(folder).is_dir():
        reason = f"UPMRI_DATA names no folder: {folder!r}" if folder else "UPMRI_DATA is not set"
        (pytest.fail if os.environ.get("UPMRI_CI") else pytest.skip)(reason)
    return Path(folder)


@pytest.fixture
def popen() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """``popen(command, **settings)``: a process that is killed and awaited when the test ends, also when it fails.

    One that a failed test leaves behind would raise a ResourceWarning in another test. With ``start_new_session`` all
    that it has started is killed with it.
    """

    def end(process: subprocess.Popen[Any], group: bool) -> None:
        if process.poll() is None:
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)

    with ExitStack() as stack:

        def start(command: list[Any], **settings: Any) -> subprocess.Popen[Any]:
            process = stack.enter_context(subprocess.Popen(command, **settings))
            stack.callback(end, process, settings.get("start_new_session", False))
            return process

        yield start


def dense(apply: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype = torch.complex128) -> Tensor:
    """The matrix of a linear map on tensors of that shape, column by column."""
    size = int(torch.tensor(shape).prod())
    units = torch.eye(size, dtype=dtype).reshape(size, *shape)
    return torch.stack([apply(unit).flatten() for unit in units], dim=1)


@pytest.fixture(name="dense")
def _dense() -> Callable[..., Tensor]:
    return dense
