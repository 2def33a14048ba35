"""Small acquisitions, and checks that hold for every bridge."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import upmri
from upmri.physics import SenseOperator, phantom

SHAPE = (2, 6, 8)

# deepinv and mrpro import torchvision, whose wheel needs this beside a torch without CUDA.
_FOLDER = Path(__file__).parents[2] / "benchmarks"
_spec = importlib.util.spec_from_file_location("peers", _FOLDER / "peers.py")
_peers = importlib.util.module_from_spec(_spec)
with pytest.MonkeyPatch.context() as _patch:
    _patch.syspath_prepend(str(_FOLDER))  # scripts there import each other by their names
    _spec.loader.exec_module(_peers)
_peers.allow_torchvision()


@pytest.fixture
def sense(rng: Any) -> SenseOperator:
    """Two slices of four coils in double precision."""
    maps = rng(2, 4, *SHAPE[1:])
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    return SenseOperator(maps, torch.rand(2, 1, 8, generator=torch.Generator().manual_seed(1)) < 0.6)


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """``assert_same(bridge, sense, rng)``: a bridge to an operator with the same physics gives the same numbers."""

    def check(bridge: Any, sense: SenseOperator, rng: Any, tolerance: float = 1e-10) -> None:
        x = rng(*sense.shape)
        assert bridge.shape == sense.shape
        data = bridge(x)
        y = rng(*data.shape)
        left, right = torch.vdot(data.flatten(), y.flatten()), torch.vdot(x.flatten(), bridge.H(y).flatten())
        assert abs(left - right) <= tolerance * data.norm() * y.norm()
        assert (data.flatten() - sense(x).flatten()).norm() <= tolerance * data.norm()
        assert (bridge.normal(x) - sense.normal(x)).norm() <= tolerance * x.norm()
        solved, wanted = bridge.solve(x, 0.1, tolerance=1e-12), sense.solve(x, 0.1)
        assert (solved - wanted).norm() <= 10 * tolerance * wanted.norm()
        assert torch.equal(bridge.support, sense.support)

    return check


@pytest.fixture
def assert_reconstructs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``assert_reconstructs(wrap)``: methods give the same images with a bridge as with the operator of upmri.

    ``wrap`` maps the operator of upmri, one slice of 64×64, to a bridge to the same operator of a peer. Its systems are
    solved by iterations, here accurately: the network amplifies their error.
    """
    monkeypatch.setattr("upmri.networks.unrolled.ACCURACY", 1e-4)

    def check(wrap: Callable[[SenseOperator], Any]) -> None:
        scan = upmri.simulate(phantom.image((64, 64)), coils=8, acceleration=3, noise=0.01)
        sense = SenseOperator(scan.maps, scan.mask)
        bridge = wrap(sense)
        data = scan.kspace.reshape(bridge.data_shape)
        for method, settings in (("sense", {}), ("cg-sense", {}), ("upmri", {"model": "brain", "precision": "fp32"})):
            made, wanted = (
                upmri.reconstruct(upmri.Problem(operator, y, sigma=scan.noise), method, **settings).image
                for operator, y in ((bridge, data), (sense, scan.kspace))
            )
            assert (made - wanted).norm() < 2e-3 * wanted.norm(), method

    return check
