"""SSDU: what is given and what judges have nothing in common."""

from dataclasses import replace

import pytest
import torch

from upmri.methods.base import Problem
from upmri.methods.ssdu import SsduLesson
from upmri.physics.fourier import fft2c
from upmri.training.data import Batch

kinds = pytest.mark.parametrize(
    "lesson",
    [
        SsduLesson(cascades=2, width=4),
        SsduLesson(cascades=2, width=4, kind="points"),
        SsduLesson(cascades=2, width=4, kind="points", density="gaussian", judged=0.2),
    ],
    ids=["columns", "points", "gaussian"],
)


@pytest.fixture
def batch(scan):
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    return Batch(problem.kspace, problem.operator.maps, problem.operator.mask, problem.sigma, None, (5, 6))


class Watched:
    """A network that remembers what it was asked and answered."""

    def __init__(self, lesson, answer=None):
        torch.manual_seed(0)
        self.network, self.answer = lesson.network(), answer
        for name, parameter in self.network.named_parameters():
            if name != "log_damping" and parameter.count_nonzero() == 0:
                torch.nn.init.normal_(parameter, std=0.1)

    def __call__(self, operator, adjoint):
        self.operator, self.adjoint = operator, adjoint
        with torch.no_grad():
            self.said = self.network(operator, adjoint) if self.answer is None else self.answer
        return self.said


def judges(lesson, batch):
    """Λ: what of Ω the network was not given."""
    watched = Watched(lesson, torch.zeros_like(batch.kspace[:, 0]))
    lesson.loss(watched, replace(batch))
    given = watched.operator.mask
    assert (given & ~batch.mask).sum() == 0
    return batch.mask & ~given, given


@kinds
def test_neither_input_nor_data_consistency_touches_what_judges(batch, lesson):
    judged, given = judges(lesson, batch)
    share = judged.sum((1, 2)) / batch.mask.expand_as(judged).sum((1, 2))
    assert torch.allclose(share, torch.full((2,), lesson.judged), atol=0.03)
    said, losses = [], []
    for change in (0 * judged, judged, given):
        watched = Watched(lesson)
        losses.append(lesson.loss(watched, replace(batch, kspace=batch.kspace + 3 * change[:, None])))
        said.append(watched.said)
    assert torch.equal(said[0], said[1])
    assert not torch.allclose(losses[0], losses[1], rtol=0.01)
    assert not torch.allclose(said[0], said[2], rtol=0.01)


@kinds
def test_the_loss_is_the_relative_error_on_what_judges(batch, lesson):
    judged, given = judges(lesson, batch)
    x = torch.randn(batch.kspace[:, 0].shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    watched = Watched(lesson, x)
    residual = (fft2c(batch.maps * x[:, None]) - batch.kspace) * judged[:, None]
    energy = (batch.kspace * judged[:, None]).abs().square().sum((1, 2, 3))
    loss = lesson.loss(watched, replace(batch))
    assert torch.allclose(loss, residual.abs().square().sum((1, 2, 3)) / energy, rtol=1e-4)
    assert torch.allclose(watched.adjoint, watched.operator.adjoint(batch.kspace * given[:, None]), atol=1e-6)


def test_the_split_is_another_for_other_seeds(batch):
    lesson = SsduLesson(cascades=1, width=4)
    assert not torch.equal(judges(lesson, batch)[0], judges(lesson, replace(batch, seeds=(7, 8)))[0])


def test_as_published_but_for_columns():
    assert (SsduLesson().judged, SsduLesson().kind, SsduLesson().density) == (0.4, "columns", "uniform")


def test_the_density_is_the_lesson_s(batch):
    """Around DC what judges is denser than it is evenly drawn."""
    far = (torch.arange(32) - 16).abs()[:, None].float()
    uniform, gaussian = (
        (judged * far).sum() / judged.sum()
        for judged, _ in (judges(SsduLesson(1, 4, kind="points", density=d), batch) for d in ("uniform", "gaussian"))
    )
    assert gaussian < 0.9 * uniform
