"""Small scans and reconstructions to write and read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from upmri import InputError, Reconstruction, Scan, load

Array = np.ndarray[Any, np.dtype[Any]]


def noise(*shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


@pytest.fixture(scope="session")
def refused() -> Callable[..., AbstractContextManager[pytest.ExceptionInfo[InputError]]]:
    """``with refused(word, field=…, path=…)``: an InputError of one line, with this word, of this field and path."""

    @contextmanager
    def expect(
        word: str = "", *, field: str | None = None, path: str | Path | None = None
    ) -> Iterator[pytest.ExceptionInfo[InputError]]:
        with pytest.raises(InputError) as error:
            yield error
        assert (error.value.field, error.value.path) == (field, None if path is None else str(path))
        assert word in error.value.message
        assert len(str(error.value).splitlines()) == 1

    return expect


@pytest.fixture(scope="session")
def refuse(refused: Callable[..., AbstractContextManager[object]]) -> Callable[..., None]:
    """``refuse(path, word, field=…, **options)``: this file is refused as a scan."""

    def check(path: Path, word: str = "", *, field: str | None = None, **options: Any) -> None:
        with refused(word, field=field, path=path):
            load(path, **options)

    return check


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
