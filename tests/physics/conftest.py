"""Checks that hold for every operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch


@pytest.fixture
def assert_adjoint() -> Callable[..., None]:
    """``assert_adjoint(operator, rng)``: ⟨A x, y⟩ = ⟨x, A* y⟩ for random x and y, and N = A*A."""

    def check(operator: Any, rng: Any, dtype: torch.dtype = torch.complex128, tolerance: float = 1e-10) -> None:
        x = rng(*operator.shape, dtype=dtype)
        data = operator(x)
        y = rng(*data.shape, dtype=dtype)
        left = torch.vdot(data.flatten(), y.flatten())
        right = torch.vdot(x.flatten(), operator.H(y).flatten())
        assert abs(left - right) <= tolerance * data.norm() * y.norm()
        assert (operator.normal(x) - operator.H(data)).norm() <= tolerance * data.norm() * (1 + operator.norm() ** 0.5)

    return check


@pytest.fixture
def double_by_default() -> Iterator[Callable[[], None]]:
    """``double_by_default()``: from now on torch makes tensors in double precision; single again after the test."""
    yield lambda: torch.set_default_dtype(torch.float64)
    torch.set_default_dtype(torch.float32)
