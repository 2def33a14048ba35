"""Weighted SSDU: the expectation of its loss is that of all of k-space that was not input."""

import pytest
import torch

from upmri.methods.weighted_ssdu import WeightedSsduObjective
from upmri.physics.fourier import fft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

WIDTH, ACS = 64, 8


def make_problem(count, rates, coils=1, height=4):
    """Scans of one object with different masks, and their full k-space."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(1, coils, height, WIDTH, dtype=torch.complex64, generator=generator)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    x = torch.randn(1, height, WIDTH, dtype=torch.complex64, generator=generator)
    masks = torch.stack([random_lines(WIDTH, rates[i % len(rates)], ACS, seed=generator) for i in range(count)])
    full = fft2c(maps * x[:, None]).expand(count, -1, -1, -1)
    kspace = full * masks[:, None]
    sigma = torch.full((count,), 0.01)
    operator = SenseOperator(maps.expand(count, -1, -1, -1), masks)
    return Problem(operator, kspace, sigma=sigma, scaled=True, seeds=range(count)), full


class Recorder:
    def __init__(self, f):
        self.f = f

    def __call__(self, operator, adjoint):
        self.operator, self.adjoint = operator, adjoint
        self.output = self.f(adjoint)
        return self.output


@pytest.mark.parametrize("kept", [0.5, 0.8])
def test_the_loss_written_out(kept):
    """p of each slice by itself: there are two accelerations."""
    problem, _ = make_problem(4, (2, 3), coils=3)
    recorder = Recorder(lambda adjoint: 0.7 * adjoint)
    loss = WeightedSsduObjective(kept=kept).loss(recorder, problem)
    loss_mask = problem.operator.mask & ~recorder.operator.mask
    assert loss_mask.any((1, 2)).all()
    residual = (fft2c(problem.operator.maps * recorder.output[:, None]) - problem.kspace) * loss_mask[:, None]
    for i in range(4):
        line = problem.operator.mask[i, 0].tolist()
        low, high = WIDTH // 2, WIDTH // 2
        while line[low - 1]:
            low -= 1
        while line[high + 1]:
            high += 1
        outer = line[:low] + line[high + 1 :]
        assert not loss_mask[i, 0, low : high + 1].any()
        p = sum(outer) / len(outer)
        square = (1 - p * kept) / (p * (1 - kept))
        expected = square * residual[i].abs().square().sum() / problem.kspace[i].abs().square().sum()
        assert loss[i].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("f", [lambda z: 0.8 * z, lambda z: z.flip(1) + 0.5 * z.conj()], ids=["near", "far"])
def test_its_expectation_is_the_supervised_loss_on_all_lines_that_were_not_input(f):
    """For images that depend on the input."""
    count = 1500
    problem, full = make_problem(count, (2.5,))
    recorder = Recorder(f)
    loss = WeightedSsduObjective(kept=0.6).loss(
        recorder, problem.with_seeds(problem.seeds)
    ) * problem.kspace.abs().square().sum((1, 2, 3))
    residual = (fft2c(problem.operator.maps * recorder.output[:, None]) - full) * ~recorder.operator.mask[:, None]
    true = residual.abs().square().sum((1, 2, 3))
    off = (loss - true).std().item() / count**0.5
    assert off < 0.02 * true.mean().item()
    assert loss.mean().item() == pytest.approx(true.mean().item(), abs=4 * off)


def test_input_and_data_consistency_do_not_use_the_loss_lines(changed):
    problem, _ = make_problem(3, (2,), coils=3)
    objective, recorder = WeightedSsduObjective(), Recorder(lambda z: z)
    before = objective.loss(recorder, problem.with_seeds(problem.seeds))
    adjoint, loss_mask = recorder.adjoint, problem.operator.mask & ~recorder.operator.mask
    after = objective.loss(recorder, changed(problem, kspace=problem.kspace + 3 * loss_mask[:, None]))
    assert torch.equal(recorder.adjoint, adjoint)
    assert (after != before).all()
