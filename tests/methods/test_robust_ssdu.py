"""Robust SSDU: what is added, what judges, and what is made of it at the end."""

from dataclasses import replace

import pytest
import torch

from upmri.methods.robust_ssdu import RobustSsduLesson, corrected
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch

SHAPE = (24, 64)


def make_batch(count, coils, sigma, *, tau=1.0):
    """Scans of x ~ CN(0, τ²) with noise σ₀; one coil sees all alike, so k-space is CN(0, τ²), too."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.complex64, generator=generator)

    maps = torch.ones(count, 1, *SHAPE) + 0j if coils == 1 else normal(count, coils, *SHAPE)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    clean = fft2c(maps * (tau * normal(count, 1, *SHAPE)))
    masks = torch.stack([random_lines(SHAPE[1], 2, 12, seed=i) for i in range(count)])
    kspace = (clean + sigma * normal(count, coils, *SHAPE)) * masks[:, None]
    return Batch(kspace, maps, masks, torch.full((count,), sigma), None, tuple(range(count)))


class Watched:
    def __init__(self, answer):
        self.answer = answer

    def __call__(self, operator, adjoint):
        self.operator, self.adjoint = operator, adjoint
        self.said = self.answer(adjoint)
        return self.said


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_noise_is_added_to_what_is_given(alpha):
    """α σ₀ in the sense E|ñ|² = α²σ₀², of each slice; the second mask comes before it."""
    batch = make_batch(3, 1, 0.1)
    batch = replace(batch, sigma=torch.tensor([0.1, 0.3, 0.0]))
    watched = Watched(lambda z: z)
    RobustSsduLesson(alpha=alpha).loss(watched, batch)
    given = watched.operator.mask
    added = (fft2c(watched.adjoint) - batch.kspace[:, 0]) * given
    count = given.sum((1, 2)) * SHAPE[0]
    rms = (added.abs().square().sum((1, 2)) / count).sqrt()
    assert torch.allclose(rms, alpha * batch.sigma, rtol=0.08, atol=1e-5)
    assert added[0].real.square().sum() == pytest.approx(added[0].imag.square().sum().item(), rel=0.2)
    assert not torch.allclose(added[0] * 3, added[1], atol=0.1)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_the_loss_written_out(alpha):
    batch, kept = make_batch(3, 4, 0.2), 0.6
    watched = Watched(lambda z: 0.8 * z)
    loss = RobustSsduLesson(alpha=alpha, kept=kept).loss(watched, replace(batch))
    given = watched.operator.mask
    judged = batch.mask & ~given
    assert judged.any((1, 2)).all()
    square = (fft2c(batch.maps * watched.said[:, None]) - batch.kspace).abs().square()
    for i in range(3):
        line = batch.mask[i, 0].tolist()
        low, high = SHAPE[1] // 2, SHAPE[1] // 2
        while line[low - 1]:
            low -= 1
        while line[high + 1]:
            high += 1
        outer = line[:low] + line[high + 1 :]
        p = sum(outer) / len(outer)
        expected = (1 - p * kept) / (p * (1 - kept)) * (square[i] * judged[i]).sum()
        expected += ((1 + alpha**2) / alpha**2) ** 2 * (square[i] * given[i]).sum()
        assert loss[i].item() == pytest.approx((expected / batch.kspace[i].abs().square().sum()).item(), rel=1e-4)


def test_what_was_not_given_does_not_enter():
    batch, watched = make_batch(2, 4, 0.2), Watched(lambda z: z)
    lesson = RobustSsduLesson()
    lesson.loss(watched, replace(batch))
    adjoint, judged = watched.adjoint, batch.mask & ~watched.operator.mask
    lesson.loss(watched, replace(batch, kspace=batch.kspace + 3 * judged[:, None]))
    assert torch.equal(watched.adjoint, adjoint)


@pytest.mark.parametrize("alpha", [1.0, 0.6])
def test_in_the_gaussian_case_the_clean_estimate_is_recovered(alpha):
    """The best gain is that of E[y | ỹ]; corrected, it is Wiener's of y₀, τ²/(τ² + (1+α²)σ₀²)."""
    tau, sigma, count = 1.0, 0.8, 40
    batch, lesson = make_batch(count, 1, sigma, tau=tau), RobustSsduLesson(alpha=alpha, kept=0.5)
    below, at, above = (lesson.loss(Watched(lambda z, c=c: c * z), replace(batch)).mean().item() for c in (0, 1, 2))
    gain = 1 + (below - above) / (below - 2 * at + above) / 2  # the vertex of a parabola
    noisier = tau**2 + (1 + alpha**2) * sigma**2
    assert gain == pytest.approx((tau**2 + sigma**2) / noisier, rel=0.02)
    operator = SenseOperator(batch.maps, batch.mask)
    adjoint = operator.adjoint(batch.kspace)
    image = lesson.predict(lambda _, z: (tau**2 + sigma**2) / noisier * z, operator, batch.kspace, batch.sigma)
    assert torch.allclose(image, tau**2 / noisier * adjoint, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_the_correction_is_of_sampled_entries_of_every_coil(alpha):
    batch = make_batch(2, 4, 0.2)
    maps = batch.maps.clone()
    maps[:, :, :3] = 0
    operator = SenseOperator(maps, batch.mask)
    x = torch.randn(2, *SHAPE, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)) * operator.support
    said = fft2c(maps * x[:, None])
    better = ((1 + alpha**2) * said - batch.kspace) / alpha**2
    entries = torch.where(batch.mask[:, None], better, said)
    expected = (maps.conj() * ifft2c(entries)).sum(1)
    assert torch.allclose(corrected(x, operator, operator.adjoint(batch.kspace), alpha), expected, atol=1e-4)


def test_alpha_comes_with_the_weights(tmp_path):
    """An image is corrected by the α that its network learnt with."""
    import upmri
    from upmri import weights
    from upmri.methods.base import Problem

    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    for alpha in (1.0, 0.5):
        lesson = RobustSsduLesson(cascades=1, width=4, alpha=alpha)
        path = weights.save(tmp_path / f"{alpha}.safetensors", lesson.network().state_dict(), "robust-ssdu", lesson, {})
        image = upmri.reconstruct(scan, "robust-ssdu", model=path, device="cpu").image
        with torch.no_grad():
            plain = weights.load(path).network(problem.operator, problem.adjoint)
            expected = corrected(plain, problem.operator, problem.adjoint, alpha) * problem.scale
        assert torch.allclose(image, expected, rtol=1e-3, atol=1e-4)
        assert not torch.allclose(image, plain * problem.scale, rtol=1e-2)
