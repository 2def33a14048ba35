"""Robust SSDU: the added noise, the loss, and the correction of the image."""

import pytest
import torch

import upmri
from upmri.methods.prior import Prior
from upmri.methods.robust_ssdu import RobustSsduObjective
from upmri.methods.single_pass import RobustSsdu
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.weights.files import load_prior, save_weights

SHAPE = (24, 64)


def make_problem(count, coils, sigma, *, tau=1.0):
    """Scans of x ~ CN(0, τ²) with noise σ₀; one coil sees all alike, so k-space is CN(0, τ²), too."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.complex64, generator=generator)

    maps = torch.ones(count, 1, *SHAPE) + 0j if coils == 1 else normal(count, coils, *SHAPE)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    clean = fft2c(maps * (tau * normal(count, 1, *SHAPE)))
    masks = torch.stack([random_lines(SHAPE[1], 2, 12, seed=i) for i in range(count)])
    kspace = (clean + sigma * normal(count, coils, *SHAPE)) * masks[:, None]
    return Problem(SenseOperator(maps, masks), kspace, sigma=sigma, scaled=True, seeds=range(count))


class Recorder:
    def __init__(self, f):
        self.f = f

    def __call__(self, operator, adjoint):
        self.operator, self.adjoint = operator, adjoint
        self.output = self.f(adjoint)
        return self.output


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_noise_is_added_to_the_input(changed, alpha):
    """α σ₀ in the sense E|ñ|² = α²σ₀², of each slice; the second mask comes before it."""
    problem = make_problem(3, 1, 0.1)
    problem = changed(problem, sigma=torch.tensor([0.1, 0.3, 0.0]))
    recorder = Recorder(lambda z: z)
    RobustSsduObjective(alpha=alpha).loss(recorder, problem)
    input_mask = recorder.operator.mask
    added = (fft2c(recorder.adjoint) - problem.kspace[:, 0]) * input_mask
    count = input_mask.sum((1, 2)) * SHAPE[0]
    rms = (added.abs().square().sum((1, 2)) / count).sqrt()
    assert torch.allclose(rms, alpha * problem.sigma, rtol=0.08, atol=1e-5)
    assert added[0].real.square().sum() == pytest.approx(added[0].imag.square().sum().item(), rel=0.2)
    assert not torch.allclose(added[0] * 3, added[1], atol=0.1)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_the_loss_written_out(alpha):
    problem, kept = make_problem(3, 4, 0.2), 0.6
    recorder = Recorder(lambda z: 0.8 * z)
    loss = RobustSsduObjective(alpha=alpha, kept=kept).loss(recorder, problem.with_seeds(problem.seeds))
    input_mask = recorder.operator.mask
    loss_mask = problem.operator.mask & ~input_mask
    assert loss_mask.any((1, 2)).all()
    square = (fft2c(problem.operator.maps * recorder.output[:, None]) - problem.kspace).abs().square()
    for i in range(3):
        line = problem.operator.mask[i, 0].tolist()
        low, high = SHAPE[1] // 2, SHAPE[1] // 2
        while line[low - 1]:
            low -= 1
        while line[high + 1]:
            high += 1
        outer = line[:low] + line[high + 1 :]
        p = sum(outer) / len(outer)
        expected = (1 - p * kept) / (p * (1 - kept)) * (square[i] * loss_mask[i]).sum()
        expected += ((1 + alpha**2) / alpha**2) ** 2 * (square[i] * input_mask[i]).sum()
        assert loss[i].item() == pytest.approx((expected / problem.kspace[i].abs().square().sum()).item(), rel=1e-4)


def test_loss_lines_are_not_input(changed):
    problem, recorder = make_problem(2, 4, 0.2), Recorder(lambda z: z)
    objective = RobustSsduObjective()
    objective.loss(recorder, problem.with_seeds(problem.seeds))
    adjoint, loss_mask = recorder.adjoint, problem.operator.mask & ~recorder.operator.mask
    objective.loss(recorder, changed(problem, kspace=problem.kspace + 3 * loss_mask[:, None]))
    assert torch.equal(recorder.adjoint, adjoint)


class Scaled(torch.nn.Module):
    """f = c z."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, _, z):
        return self.factor * z


@pytest.mark.parametrize("alpha", [1.0, 0.6])
def test_in_the_gaussian_case_the_clean_estimate_is_recovered(alpha):
    """The best factor is that of E[y | ỹ]; corrected, it is the Wiener filter of y₀, τ²/(τ² + (1+α²)σ₀²)."""
    tau, sigma, count = 1.0, 0.8, 40
    problem, objective = make_problem(count, 1, sigma, tau=tau), RobustSsduObjective(alpha=alpha, kept=0.5)
    below, at, above = (
        objective.loss(Recorder(lambda z, c=c: c * z), problem.with_seeds(problem.seeds)).mean().item()
        for c in (0, 1, 2)
    )
    gain = 1 + (below - above) / (below - 2 * at + above) / 2  # the vertex of a parabola
    noisier = tau**2 + (1 + alpha**2) * sigma**2
    assert gain == pytest.approx((tau**2 + sigma**2) / noisier, rel=0.02)
    prior = Prior(Scaled((tau**2 + sigma**2) / noisier), objective, "robust-ssdu")
    image = RobustSsdu(model=prior).reconstruct(problem)
    assert torch.allclose(image, tau**2 / noisier * problem.adjoint, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_the_correction_changes_sampled_entries_of_every_coil(alpha):
    problem = make_problem(2, 4, 0.2)
    maps = problem.operator.maps.clone()
    maps[:, :, :3] = 0
    operator = SenseOperator(maps, problem.operator.mask)
    seen = Problem(operator, problem.kspace, scaled=True)
    x = torch.randn(2, *SHAPE, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)) * operator.support
    predicted = fft2c(maps * x[:, None])
    better = ((1 + alpha**2) * predicted - problem.kspace) / alpha**2
    entries = torch.where(problem.operator.mask[:, None], better, predicted)
    expected = (maps.conj() * ifft2c(entries)).sum(1)
    assert torch.allclose(RobustSsduObjective(alpha=alpha).correct(x, seen), expected, atol=1e-4)


def test_alpha_comes_with_the_weights(tmp_path):
    """An image is corrected by the α that its network was trained with."""
    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem.from_scan(scan)
    for alpha in (1.0, 0.5):
        objective = RobustSsduObjective(cascades=1, width=4, alpha=alpha)
        path = save_weights(
            tmp_path / f"{alpha}.safetensors", objective.network().state_dict(), "robust-ssdu", objective, {}
        )
        image = upmri.reconstruct(scan, "robust-ssdu", model=path, device="cpu").image
        with torch.no_grad():
            plain = load_prior(path).network(problem.operator, problem.adjoint)
            expected = objective.correct(plain, problem) * problem.scale
        assert torch.allclose(image, expected, rtol=1e-3, atol=1e-4)
        assert not torch.allclose(image, plain * problem.scale, rtol=1e-2)
