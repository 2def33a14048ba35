"""Weighted SSDU: its loss is, in the mean, that of all k-space which was not given."""

from dataclasses import replace

import pytest
import torch

from upmri.methods.weighted_ssdu import WeightedSsduLesson
from upmri.physics.fourier import fft2c
from upmri.physics.masks import random_lines
from upmri.training.data import Batch

WIDTH, ACS = 64, 8


def make_batch(count, rates, coils=1, height=4):
    """Scans of one object with other masks: everything is known of all of k-space."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(1, coils, height, WIDTH, dtype=torch.complex64, generator=generator)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    x = torch.randn(1, height, WIDTH, dtype=torch.complex64, generator=generator)
    masks = torch.stack([random_lines(WIDTH, rates[i % len(rates)], ACS, seed=generator) for i in range(count)])
    full = fft2c(maps * x[:, None]).expand(count, -1, -1, -1)
    kspace = full * masks[:, None]
    sigma = torch.full((count,), 0.01)
    return Batch(kspace, maps.expand(count, -1, -1, -1), masks, sigma, None, tuple(range(count))), full


class Watched:
    def __init__(self, answer):
        self.answer = answer

    def __call__(self, operator, adjoint):
        self.operator, self.adjoint = operator, adjoint
        self.said = self.answer(adjoint)
        return self.said


@pytest.mark.parametrize("kept", [0.5, 0.8])
def test_the_loss_written_out(kept):
    """p of each slice by itself: there are two accelerations."""
    batch, _ = make_batch(4, (2, 3), coils=3)
    watched = Watched(lambda adjoint: 0.7 * adjoint)
    loss = WeightedSsduLesson(kept=kept).loss(watched, batch)
    judged = batch.mask & ~watched.operator.mask
    assert judged.any((1, 2)).all()
    residual = (fft2c(batch.maps * watched.said[:, None]) - batch.kspace) * judged[:, None]
    for i in range(4):
        line = batch.mask[i, 0].tolist()
        low, high = WIDTH // 2, WIDTH // 2
        while line[low - 1]:
            low -= 1
        while line[high + 1]:
            high += 1
        outer = line[:low] + line[high + 1 :]
        assert not judged[i, 0, low : high + 1].any()
        p = sum(outer) / len(outer)
        square = (1 - p * kept) / (p * (1 - kept))
        expected = square * residual[i].abs().square().sum() / batch.kspace[i].abs().square().sum()
        assert loss[i].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("answer", [lambda z: 0.8 * z, lambda z: z.flip(1) + 0.5 * z.conj()], ids=["near", "far"])
def test_in_the_mean_it_is_the_supervised_loss_on_all_that_was_not_given(answer):
    """With an answer that depends on what was given."""
    count = 1500
    batch, full = make_batch(count, (2.5,))
    watched = Watched(answer)
    loss = WeightedSsduLesson(kept=0.6).loss(watched, replace(batch)) * batch.kspace.abs().square().sum((1, 2, 3))
    residual = (fft2c(batch.maps * watched.said[:, None]) - full) * ~watched.operator.mask[:, None]
    true = residual.abs().square().sum((1, 2, 3))
    off = (loss - true).std().item() / count**0.5
    assert off < 0.02 * true.mean().item()
    assert loss.mean().item() == pytest.approx(true.mean().item(), abs=4 * off)


def test_input_and_data_consistency_do_not_touch_what_judges():
    batch, _ = make_batch(3, (2,), coils=3)
    lesson, watched = WeightedSsduLesson(), Watched(lambda z: z)
    before = lesson.loss(watched, replace(batch))
    adjoint, judged = watched.adjoint, batch.mask & ~watched.operator.mask
    after = lesson.loss(watched, replace(batch, kspace=batch.kspace + 3 * judged[:, None]))
    assert torch.equal(watched.adjoint, adjoint)
    assert (after != before).all()
