from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import upmri
from upmri.methods import find_method
from upmri.methods.base import Objective
from upmri.methods.learned import Learned
from upmri.methods.upmri_objective import UpmriObjective
from upmri.methods.upmri_paper import PaperObjective
from upmri.physics.fourier import fft2c
from upmri.physics.sense import sense_damping
from upmri.training.config import DataConfig
from upmri.training.data import PreparedSlices
from upmri.training.prepare import prepare
from upmri.training.validation import validate

CPU = torch.device("cpu")


@dataclass(frozen=True)
class FunctionObjective(Objective):
    """An objective whose network does nothing: the image is a function of A, A*y and σ₀."""

    image: Callable

    def network(self):
        return nn.Identity()

    def loss(self, *_):
        raise AssertionError("validation needs no loss")


@dataclass(frozen=True)
class Function(Learned):
    """The method of that objective."""

    name = "function"
    summary = "for tests"
    objective = FunctionObjective

    def reconstruct(self, problem):
        return self.prior.objective.image(problem.operator, problem.adjoint, problem.sigma)


def sense(operator, adjoint, sigma):
    return operator.solve(adjoint, sense_damping(sigma))


def measure(image, slices, batch=16):
    return validate(Function, FunctionObjective(image), nn.Identity(), {}, slices, batch)


@pytest.fixture(scope="module")
def slices(simulated, cache):
    return PreparedSlices(prepare(simulated, cache), CPU)


@pytest.fixture(scope="module")
def everything(slices):
    (group,) = slices.groups
    return slices.collect(group, seeds=group)


def test_sense_has_no_gain_over_itself(slices):
    assert measure(sense, slices) == {"held_out_gain": 0.0, "gain": 0.0}


def test_the_truth_is_better_and_zero_is_worse(slices, everything):
    truth = measure(lambda *_: everything.reference * (1 + 1e-4), slices)
    assert truth["held_out_gain"] > 3
    assert truth["gain"] > 20
    nothing = measure(lambda _, adjoint, __: 0 * adjoint, slices)
    assert nothing["held_out_gain"] < -1
    assert nothing["gain"] < -3


def test_gain_is_in_decibels(slices, everything):
    """With a tenth of the error of SENSE, all lines being input: 20 dB."""

    def nearer(operator, adjoint, sigma):
        return (0.9 * everything.reference.abs() + 0.1 * sense(operator, adjoint, sigma).abs()).to(adjoint.dtype)

    assert measure(nearer, slices)["gain"] == pytest.approx(20, abs=1e-3)


def test_held_out_lines_measure_the_error_and_are_no_input(slices, everything):
    calls = []

    def spoilt(operator, adjoint, sigma):
        calls.append((operator, adjoint))
        return sense(operator, adjoint, sigma) * (1 + 0.2j)

    reported = measure(spoilt, slices)["held_out_gain"]
    (inputs, adjoint), (full, _) = calls
    mask, maps = everything.operator.mask, everything.operator.maps
    assert torch.equal(full.mask, mask)
    held_out = mask & ~inputs.mask
    assert not (inputs.mask & ~mask).any()
    assert held_out.any(-1).all()
    assert held_out.float().sum() / mask.sum() == pytest.approx(0.2, abs=0.1)
    assert torch.allclose(adjoint, inputs.adjoint(everything.kspace * inputs.mask[:, None]))

    def error(image):
        residual = held_out[:, None] * fft2c(maps * image[:, None]) - held_out[:, None] * everything.kspace
        return residual.abs().square().sum((1, 2, 3))

    image = sense(inputs, adjoint, everything.sigma)
    decibels = 10 * (error(image) / error(image * (1 + 0.2j))).log10()
    assert reported == pytest.approx(decibels.mean().item(), abs=1e-2)
    assert reported < -0.1


def test_without_a_reference_there_is_no_gain(tmp_path, heads):
    image = upmri.formats.load_images(heads / "00.npz")
    replace(upmri.simulate(image, 4, 2), reference=None).save(tmp_path / "a.h5")
    slices = PreparedSlices(prepare(DataConfig(scans=(str(tmp_path / "a.h5"),)), tmp_path / "cache"), CPU)
    assert measure(sense, slices) == {"held_out_gain": 0.0}


def test_batches_do_not_matter(slices):
    def brighter(operator, adjoint, sigma):
        return 1.1 * sense(operator, adjoint, sigma)

    whole = measure(brighter, slices)
    for batch in (1, 3, 16, 99):
        assert measure(brighter, slices, batch) == pytest.approx(whole, abs=2e-4)


@pytest.mark.parametrize(
    ("method", "objective"),
    [("upmri", UpmriObjective(cascades=1, width=4)), ("upmri-paper", PaperObjective(size="tiny"))],
)
def test_the_average_is_validated_and_nothing_is_changed(slices, method, objective):
    torch.manual_seed(0)
    network, other = objective.network(), objective.network()
    for p in (*network.parameters(), *other.parameters()):
        nn.init.normal_(p, std=0.05) if p.ndim else None
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    average = {name: p.detach().clone() for name, p in other.named_parameters()}

    def values(network, weights):
        return validate(find_method(method), objective, network, weights, slices, 8)

    state = torch.get_rng_state()
    first = values(network, average)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in network.named_parameters())
    assert all(torch.equal(p, average[name]) for name, p in other.named_parameters())
    assert values(other, average) == first
    assert values(network, before) != first
