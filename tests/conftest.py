"""What all tests share: random complex tensors, small SENSE problems with their dense matrices, the data folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch import Tensor

# Tests run beside each other: one thread each is faster than two that fight.
torch.set_num_threads(1)
# Weights of whoever runs the tests are none of theirs.
os.environ.pop("UPMRI_MODELS", None)

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
    """The folder with real anatomies and scans."""
    folder = os.environ.get("UPMRI_DATA")
    if not folder:
        pytest.skip("UPMRI_DATA is not set")
    return Path(folder)


def dense(apply: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype = torch.complex128) -> Tensor:
    """The matrix of a linear map on tensors of that shape, column by column."""
    size = int(torch.tensor(shape).prod())
    units = torch.eye(size, dtype=dtype).reshape(size, *shape)
    return torch.stack([apply(unit).flatten() for unit in units], dim=1)


@pytest.fixture(name="dense")
def _dense() -> Callable[..., Tensor]:
    return dense
