"""Small scans and reconstructions to write and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from upmri import Reconstruction, Scan

Array = np.ndarray[Any, np.dtype[Any]]


def noise(*shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


@pytest.fixture
def gaussian() -> Callable[..., Array]:
    """Complex64 noise of a shape."""
    return noise


@pytest.fixture
def scan() -> Scan:
    """Five slices with every field filled, every second line sampled."""
    kspace = noise(5, 3, 8, 6)
    kspace[..., 1::2] = 0
    return Scan(
        kspace=kspace,
        maps=noise(5, 3, 8, 6, seed=1),
        reference=noise(5, 8, 6, seed=2),
        noise=0.1,
        spacing=(1.0, 2.5, 1 / 3),
        name="Größe\0😀",
        meta={"frames": [1, 2], "deep": {"x": None, "y": 0.1, "z": True}},
    )


@pytest.fixture
def rec() -> Reconstruction:
    """Three slices with every field filled."""
    return Reconstruction(
        image=noise(3, 8, 6),
        samples=noise(2, 3, 8, 6, seed=1),
        std=np.abs(noise(3, 8, 6, seed=2)),
        reference=noise(3, 8, 6, seed=3),
        method="cg-sense",
        settings={"damping": 1e-3, "steps": 30},
        seconds=1.25,
        versions={"upmri": "0.0.1"},
        spacing=(0.9, 1.1, 4.0),
        name="head",
        meta={"site": "A"},
    )
