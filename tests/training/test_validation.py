from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import upmri
from upmri.methods.base import Objective
from upmri.methods.sense import default_damping
from upmri.methods.upmri import UpmriObjective
from upmri.methods.upmri_paper import PaperObjective
from upmri.physics.fourier import fft2c
from upmri.training.config import DataConfig
from upmri.training.data import PreparedSlices
from upmri.training.prepare import prepare
from upmri.training.validation import validate

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Answer(Objective):
    """A objective whose network has nothing to say: the image is whatever a function makes of A, A*y and σ₀."""

    image: Callable

    def network(self):
        return nn.Identity()

    def loss(self, *_):
        raise AssertionError("validation takes no loss")

    def predict(self, _, operator, kspace, sigma):
        return self.image(operator, operator.adjoint(kspace), sigma)


def sense(operator, adjoint, sigma):
    return operator.solve(adjoint, default_damping(sigma))


def judge(image, slices, batch=16):
    return validate(Answer(image), nn.Identity(), {}, slices, batch)


@pytest.fixture(scope="module")
def slices(simulated, cache):
    return PreparedSlices(prepare(simulated, cache), CPU)


@pytest.fixture(scope="module")
def everything(slices):
    (group,) = slices.groups
    return slices.collect(group, seeds=group)


def test_sense_is_where_both_scales_begin(slices):
    assert judge(sense, slices) == {"held_out": 0.0, "gain": 0.0}


def test_the_truth_is_better_and_zero_is_worse(slices, everything):
    truth = judge(lambda *_: everything.reference * (1 + 1e-4), slices)
    assert truth["held_out"] < -3
    assert truth["gain"] > 20
    nothing = judge(lambda _, adjoint, __: 0 * adjoint, slices)
    assert nothing["held_out"] > 1
    assert nothing["gain"] < -3


def test_gain_is_in_decibels(slices, everything):
    """A tenth of SENSE's error, given all lines: 20 dB."""

    def nearer(operator, adjoint, sigma):
        return (0.9 * everything.reference.abs() + 0.1 * sense(operator, adjoint, sigma).abs()).to(adjoint.dtype)

    assert judge(nearer, slices)["gain"] == pytest.approx(20, abs=1e-3)


def test_held_out_lines_judge_and_are_not_shown(slices, everything):
    calls = []

    def spoilt(operator, adjoint, sigma):
        calls.append((operator, adjoint))
        return sense(operator, adjoint, sigma) * (1 + 0.2j)

    reported = judge(spoilt, slices)["held_out"]
    (theta, adjoint), (full, _) = calls
    assert torch.equal(full.mask, everything.mask)
    judged = everything.mask & ~theta.mask
    assert not (theta.mask & ~everything.mask).any()
    assert judged.any(-1).all()
    assert judged.float().sum() / everything.mask.sum() == pytest.approx(0.2, abs=0.1)
    assert torch.allclose(adjoint, theta.adjoint(everything.kspace * theta.mask[:, None]))

    def error(image):
        residual = judged[:, None] * fft2c(everything.maps * image[:, None]) - judged[:, None] * everything.kspace
        return residual.abs().square().sum((1, 2, 3))

    image = sense(theta, adjoint, everything.sigma)
    decibels = 10 * (error(image * (1 + 0.2j)) / error(image)).log10()
    assert reported == pytest.approx(decibels.mean().item(), abs=1e-2)
    assert reported > 0.1


def test_without_a_reference_there_is_no_gain(tmp_path, heads):
    image = upmri.formats.load_images(heads / "00.npz")
    replace(upmri.simulate(image, 4, 2), reference=None).save(tmp_path / "a.h5")
    slices = PreparedSlices(prepare(DataConfig(scans=(str(tmp_path / "a.h5"),)), tmp_path / "cache"), CPU)
    assert judge(sense, slices) == {"held_out": 0.0}


def test_batches_do_not_matter(slices):
    def twice(operator, adjoint, sigma):
        return 1.1 * sense(operator, adjoint, sigma)

    whole = judge(twice, slices)
    for batch in (1, 3, 16, 99):
        assert judge(twice, slices, batch) == pytest.approx(whole, abs=2e-4)


@pytest.mark.parametrize("objective", [UpmriObjective(cascades=1, width=4), PaperObjective(size="tiny")])
def test_the_average_is_judged_and_nothing_is_changed(slices, objective):
    torch.manual_seed(0)
    network, other = objective.network(), objective.network()
    for p in (*network.parameters(), *other.parameters()):
        nn.init.normal_(p, std=0.05) if p.ndim else None
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    average = {name: p.detach().clone() for name, p in other.named_parameters()}
    state = torch.get_rng_state()
    values = validate(objective, network, average, slices, 8)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in network.named_parameters())
    assert all(torch.equal(p, average[name]) for name, p in other.named_parameters())
    assert validate(objective, other, average, slices, 8) == values
    assert validate(objective, network, before, slices, 8) != values
