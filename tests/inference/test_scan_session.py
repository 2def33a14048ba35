"""A session: which slices decide about weights, and are adapted to."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri.inference.choice import build_method
from upmri.inference.scan_session import Session
from upmri.learning.adaptation import Adapted

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def head():
    return upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)


@pytest.fixture(scope="module")
def noise(head):
    """A slice above the head: the same lines and maps, noise alone."""
    drawn = torch.randn(head.kspace.shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    return replace(head, kspace=0.02 * drawn * head.mask[:, None], reference=None)


@pytest.mark.parametrize(("method", "settings"), [("upmri", {}), ("l1-wavelet", {"steps": 5})])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_slice_with_the_largest_energy_decides(head, noise, method, settings, place):
    alone = Session(build_method(method, **settings), CPU, seed=0, check=True)
    alone(head)
    session = Session(build_method(method, **settings), CPU, seed=0, check=True)
    session.begin(lambda index: head if index == place else noise, 3)
    assert session.facts == alone.facts
    assert session.facts["held_out_gain"] != 0


def test_three_slices_are_looked_at(head):
    read = []
    session = Session(build_method("upmri"), CPU, seed=0)
    session.begin(lambda index: read.append(index) or head, 90)
    assert read == [15, 45, 75]


@pytest.mark.parametrize(
    ("method", "settings", "check", "count"),
    [("upmri", {"model": "brain"}, False, 9), ("sense", {}, False, 9), ("upmri", {}, True, 1)],
)
def test_nothing_is_read_where_there_is_nothing_to_choose(method, settings, check, count):
    session = Session(build_method(method, **settings), CPU, seed=0, check=check)
    session.begin(lambda _: pytest.fail("read"), count)
    assert session.facts is None


def test_weights_are_not_adapted_to_slices_of_noise(head, noise, monkeypatch):
    adapted = []

    def adapt(self, problem, report):
        adapted.append(len(problem))
        return replace(self, adapt=False), Adapted(self.prior.network, 1, 0.5, 1.0, 1, len(problem), 0.1)

    monkeypatch.setattr("upmri.methods.upmri.Upmri.adapted", adapt)
    session = Session(build_method("upmri", model="brain", adapt=True), CPU, seed=0)
    session.begin([noise, head, head, noise].__getitem__, 4)
    assert adapted == [2]
