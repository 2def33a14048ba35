"""SSDU: input samples and loss samples have nothing in common."""

import pytest
import torch

from upmri.methods.ssdu import SsduObjective
from upmri.physics.fourier import fft2c
from upmri.physics.problem import Problem

kinds = pytest.mark.parametrize(
    "objective",
    [
        SsduObjective(cascades=2, width=4),
        SsduObjective(cascades=2, width=4, kind="points"),
        SsduObjective(cascades=2, width=4, kind="points", density="gaussian", loss_share=0.2),
    ],
    ids=["columns", "points", "gaussian"],
)


@pytest.fixture
def problem(scan):
    return Problem.from_scan(scan).with_seeds((5, 6))


class Recorder:
    """A network that records its last call, and may return a input_mask image."""

    def __init__(self, objective, image=None):
        torch.manual_seed(0)
        self.network, self.image = objective.network(), image
        for name, parameter in self.network.named_parameters():
            if name != "log_damping" and parameter.count_nonzero() == 0:
                torch.nn.init.normal_(parameter, std=0.1)

    def __call__(self, operator, adjoint):
        self.operator, self.adjoint = operator, adjoint
        with torch.no_grad():
            self.output = self.network(operator, adjoint) if self.image is None else self.image
        return self.output


def loss_and_input(objective, problem):
    """Λ and Θ: the samples that were not input to the network, and those that were."""
    recorder = Recorder(objective, torch.zeros_like(problem.kspace[:, 0]))
    objective.loss(recorder, problem.with_seeds(problem.seeds))
    input_mask = recorder.operator.mask
    assert (input_mask & ~problem.operator.mask).sum() == 0
    return problem.operator.mask & ~input_mask, input_mask


@kinds
def test_neither_input_nor_data_consistency_uses_the_loss_samples(problem, changed, objective):
    loss_mask, input_mask = loss_and_input(objective, problem)
    share = loss_mask.sum((1, 2)) / problem.operator.mask.expand_as(loss_mask).sum((1, 2))
    assert torch.allclose(share, torch.full((2,), objective.loss_share), atol=0.03)
    outputs, losses = [], []
    for change in (0 * loss_mask, loss_mask, input_mask):
        recorder = Recorder(objective)
        losses.append(objective.loss(recorder, changed(problem, kspace=problem.kspace + 3 * change[:, None])))
        outputs.append(recorder.output)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(losses[0], losses[1], rtol=0.01)
    assert not torch.allclose(outputs[0], outputs[2], rtol=0.01)


@kinds
def test_the_loss_is_the_relative_error_on_the_loss_samples(problem, objective):
    loss_mask, input_mask = loss_and_input(objective, problem)
    x = torch.randn(problem.kspace[:, 0].shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    recorder = Recorder(objective, x)
    residual = (fft2c(problem.operator.maps * x[:, None]) - problem.kspace) * loss_mask[:, None]
    energy = (problem.kspace * loss_mask[:, None]).abs().square().sum((1, 2, 3))
    loss = objective.loss(recorder, problem.with_seeds(problem.seeds))
    assert torch.allclose(loss, residual.abs().square().sum((1, 2, 3)) / energy, rtol=1e-4)
    assert torch.allclose(recorder.adjoint, recorder.operator.adjoint(problem.kspace * input_mask[:, None]), atol=1e-6)


def test_the_split_is_another_for_other_seeds(problem):
    objective = SsduObjective(cascades=1, width=4)
    assert not torch.equal(
        loss_and_input(objective, problem)[0], loss_and_input(objective, problem.with_seeds((7, 8)))[0]
    )


def test_as_published_but_for_columns():
    assert (SsduObjective().loss_share, SsduObjective().kind, SsduObjective().density) == (0.4, "columns", "uniform")


def test_the_density_is_that_of_the_objective(problem):
    """Gaussian loss samples are nearer to DC than uniform ones."""
    far = (torch.arange(32) - 16).abs()[:, None].float()
    distance = []
    for density in ("uniform", "gaussian"):
        loss_mask, _ = loss_and_input(SsduObjective(1, 4, kind="points", density=density), problem)
        distance.append((loss_mask * far).sum() / loss_mask.sum())
    assert distance[1] < 0.9 * distance[0]
