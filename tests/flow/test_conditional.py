"""Sampling where prior and noise are Gaussian, so that D(A*y, x_t, t) is known: by dense algebra.

The draws are then an affine function of x₁. It is fitted to a few of them, so their mean and covariance are exact.
"""

from dataclasses import dataclass
from functools import cached_property

import pytest
import torch

from upmri.flow import conditional
from upmri.flow.conditional import LAST, Mirrored, posterior_mean, sample
from upmri.flow.path import noise
from upmri.networks.unrolled import Unrolled
from upmri.physics.fourier import mirror
from upmri.physics.sense import SenseOperator

SHAPE = (1, 4, 6)
SIGMA = 0.05
NOISE = torch.tensor([SIGMA])


@dataclass
class Toy:
    """x₀ ~ CN(0, Σ), rms 0.26, neighbours correlated; 3 coils and one line of 6: A has rank 12 of 24."""

    operator: SenseOperator
    matrix: torch.Tensor
    truth: torch.Tensor
    y: torch.Tensor

    @cached_property
    def prior(self):
        pixels = torch.cartesian_prod(torch.arange(4.0), torch.arange(6.0)).double()
        return 0.07 * torch.exp(-torch.cdist(pixels, pixels) / 1.5).to(torch.complex128)

    @cached_property
    def gain(self):
        """y ↦ E[x₀ | y], in k-space."""
        a = self.matrix
        return self.prior @ a.mH @ torch.linalg.inv(a @ self.prior @ a.mH + SIGMA**2 * torch.eye(len(a)))

    @cached_property
    def mean(self):
        return (self.gain @ self.y).reshape(SHAPE)

    @cached_property
    def covariance(self):
        """Of x₀ given y."""
        return self.prior - self.gain @ self.matrix @ self.prior

    @cached_property
    def adjoint(self):
        return (self.matrix.mH @ self.y).reshape(SHAPE)

    def predict(self, _, adjoint, noisy, t, __=None):
        """E[x₀ | A*y, x_t], from the joint law of the three."""
        (t,) = set(t.tolist())
        normal = self.matrix.mH @ self.matrix
        seen = self.prior @ normal  # Cov(x₀, A*y)
        known = (1 - t) * self.prior  # Cov(x₀, x_t)
        law = torch.cat(
            [
                torch.cat([normal @ seen + SIGMA**2 * normal, (1 - t) * seen.mH], 1),
                torch.cat([(1 - t) * seen, (1 - t) * known + 2 * t**2 * torch.eye(24)], 1),
            ]
        )
        gain = torch.cat([seen, known], 1) @ torch.linalg.pinv(law, hermitian=True, rtol=1e-11)
        both = torch.cat([adjoint.expand_as(noisy).flatten(-3), noisy.flatten(-3)], -1)
        return (both @ gain.mT).reshape(noisy.shape)

    def draw(self, count, steps, start, seed=0):
        generators = [torch.Generator().manual_seed(seed)]
        return sample(
            self.predict, self.operator, self.mean, self.adjoint, NOISE,
            count=count, steps=steps, start=start, generators=generators,
        )  # fmt: skip

    def law(self, steps, start):
        """Mean and covariance of the draws, over all x₁ ~ CN(0, 2I)."""
        count = 30
        x = self.draw(count, steps, start).flatten(1)
        x1 = noise(self.mean.expand(count, *SHAPE), torch.Generator().manual_seed(0)).flatten(1)
        known = torch.cat([torch.ones(count, 1), x1], 1)
        fit = torch.linalg.lstsq(known, x).solution
        assert torch.allclose(known @ fit, x, atol=1e-8)  # affine in x₁, this x₁
        slope = fit[1:].mT
        return fit[0].reshape(SHAPE), 2 * slope @ slope.mH


@pytest.fixture
def toy(rng, dense):
    maps = rng(1, 3, 4, 6)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.zeros(1, 1, 6, dtype=torch.bool)
    mask[..., 3] = True
    operator = SenseOperator(maps, mask)
    matrix = dense(operator.forward, SHAPE)[mask.expand(3, 4, 6).flatten()]
    made = Toy(operator, matrix, rng(0), rng(0))
    made.truth = torch.linalg.cholesky(made.prior) @ rng(24)
    made.y = matrix @ made.truth + SIGMA * rng(len(matrix))
    return made


def bias(covariance, exact):
    """Relative error of a covariance, and of its trace."""
    total = [torch.trace(c).real.item() for c in (covariance, exact)]
    return ((covariance - exact).norm() / exact.norm()).item(), total[0] / total[1] - 1


def test_a_single_evaluation_is_the_posterior_mean(toy):
    assert torch.linalg.matrix_rank(toy.matrix) == 12
    assert torch.allclose(posterior_mean(toy.predict, toy.operator, toy.adjoint, NOISE), toy.mean, atol=1e-9)


def test_at_the_end_of_the_path_the_predictor_returns_the_image(toy):
    """A check of the toy itself: as t → 0, D → x_t, whatever the data are."""
    near = toy.predict(toy.operator, toy.adjoint, toy.truth.reshape(SHAPE), torch.tensor([1e-4]).double())
    assert (near.flatten() - toy.truth).norm() < 1e-3 * toy.truth.norm()


@pytest.mark.parametrize("start", [1.0, 0.5])
@pytest.mark.parametrize("steps", [1, 4, 64])
def test_the_mean_of_the_draws_is_the_posterior_mean(toy, steps, start):
    """For any number of steps: the mean of the draws moves on a straight line, where Euler steps are exact."""
    mean, _ = toy.law(steps, start)
    assert torch.allclose(mean, toy.mean, atol=1e-8)


@pytest.mark.parametrize(
    ("start", "steps", "error", "trace"),
    [
        (1.0, 4, 0.669, -0.660),
        (1.0, 16, 0.202, -0.197),
        (1.0, 64, 0.053, -0.052),
        (1.0, 400, 0.009, -0.010),
        (0.5, 4, 0.623, -0.609),
        (0.5, 16, 0.192, -0.184),
        (0.5, 64, 0.073, -0.065),
        (0.5, 400, 0.040, -0.031),
    ],
)
def test_the_covariance_of_draws_approaches_that_of_the_posterior(toy, start, steps, error, trace):
    """From below. What is left for a start at 0.5 is the variance of the posterior in x_½, which is not drawn."""
    _, covariance = toy.law(steps, start)
    assert bias(covariance, toy.covariance) == pytest.approx((error, trace), abs=0.003)


def test_a_late_start_leaves_out_a_known_part_of_the_covariance(toy):
    """x_½ given y has the covariance Σ'/4 + I/2, of which only I/2 is drawn: that of the draws is smaller than Σ'."""
    whole = 0.25 * toy.covariance + 0.5 * torch.eye(24)
    _, covariance = toy.law(400, 0.5)
    assert bias(covariance, 0.5 * toy.covariance @ torch.linalg.inv(whole))[0] < 0.012
    assert bias(covariance, toy.covariance)[0] > 0.035


def test_draws_have_the_computed_mean_and_covariance(toy):
    """4000 of them: x₁ is CN(0, 2I), another for each draw."""
    mean, covariance = toy.law(8, 1.0)
    x = toy.draw(4000, 8, 1.0).flatten(1)
    centred = x - x.mean(0)
    assert (x.mean(0) - mean.flatten()).norm() < 4 * (torch.trace(covariance).real / 4000) ** 0.5
    assert bias(centred.mT @ centred.conj() / 4000, covariance)[0] < 0.1


@pytest.mark.parametrize(("steps", "start"), [(1, 0.5), (1, 1.0), (2, 0.3), (7, 1.0)])
def test_the_network_is_evaluated_once_per_step(toy, steps, start):
    """At times that decrease geometrically to LAST; its last output is the image."""
    calls = []

    def predict(operator, adjoint, noisy, t, sigma):
        assert sigma is NOISE
        assert operator is toy.operator
        assert adjoint is toy.adjoint
        calls.append((t.item(), noisy, toy.predict(operator, adjoint, noisy, t)))
        return calls[-1][2]

    x = sample(
        predict, toy.operator, toy.mean, toy.adjoint, NOISE,
        count=3, steps=steps, start=start, generators=[torch.Generator().manual_seed(0)],
    )  # fmt: skip
    times = [t for t, _, _ in calls]
    assert len(times) == steps
    assert times[0] == start
    assert times == pytest.approx([start * (LAST / start) ** (i / max(1, steps - 1)) for i in range(steps)])
    assert torch.allclose(x, calls[-1][2], rtol=1e-12)
    x1 = noise(x, torch.Generator().manual_seed(0))
    assert torch.allclose(calls[0][1], (1 - start) * toy.mean + start * x1, rtol=1e-12)


def test_the_same_generator_gives_the_same_draws(toy):
    assert torch.equal(toy.draw(3, 4, 1.0, seed=5), toy.draw(3, 4, 1.0, seed=5))
    assert not torch.allclose(toy.draw(3, 4, 1.0, seed=5), toy.draw(3, 4, 1.0, seed=6))
    x = toy.draw(3, 4, 1.0)
    assert (x[0] - x[1]).norm() > 0.1 * x[0].norm()


@pytest.mark.parametrize("rows", [1, 12])
def test_draws_side_by_side_are_draws_one_by_one(rng, monkeypatch, rows):
    """With the network itself, two slices, and the same noise."""
    maps = rng(2, 3, 12, 10, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(2, rows, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    operator, adjoint = SenseOperator(maps, mask), 0.2 * rng(2, 12, 10, dtype=torch.complex64)
    torch.manual_seed(0)
    network = Unrolled(cascades=2, width=16, damping=1e-3).requires_grad_(False)
    torch.nn.init.normal_(network.network.out.weight, std=0.2)
    sigma = torch.tensor([0.05, 0.1])
    x1, mean = rng(4, 2, 12, 10, dtype=torch.complex64), posterior_mean(network, operator, adjoint, sigma)

    def draw(which, slices):
        part = SenseOperator(maps[slices], mask[slices])
        monkeypatch.setattr(conditional, "noise", lambda like, _: x1[which, slices].expand_as(like))
        return sample(
            network, part, mean[slices], adjoint[slices], sigma[slices],
            count=len(x1[which]), steps=3, start=0.3, generators=[],
        )  # fmt: skip

    together = draw(slice(None), slice(None))
    assert together.shape == x1.shape
    assert (together[0] - together[1]).norm() > 0.02 * together[0].norm()
    for i in range(4):
        for s in range(2):
            alone = draw(slice(i, i + 1), slice(s, s + 1))
            assert (alone - together[i : i + 1, s : s + 1]).norm() < 1e-4 * alone.norm()


# Mirror images


@pytest.mark.parametrize("shape", [(8, 10), (7, 9)])
def test_the_mean_over_mirror_images(rng, shape):
    """Each is a scan of the mirrored object, as a simulation would make it; SENSE does not change."""
    maps, image, seen = rng(1, 3, *shape), rng(1, *shape), []
    mask = torch.rand(1, 1, shape[1], generator=torch.Generator().manual_seed(2)) < 0.6
    operator = SenseOperator(maps, mask)
    adjoint = operator.adjoint(operator.forward(image))

    def sense(a, z, noisy, t, sigma):
        seen.append((a, z))
        return a.solve(z, 0.1) + 0 * noisy

    plain = posterior_mean(sense, operator, adjoint, NOISE)
    found = posterior_mean(Mirrored(sense), operator, adjoint, NOISE)
    assert torch.allclose(found, plain, atol=1e-10)
    for dims, (a, z) in zip([[], [-1], [-2], [-2, -1]], seen[1:], strict=True):
        assert torch.allclose(z, a.adjoint(a.forward(mirror(image, *dims))))
        assert dims == [] or not torch.allclose(z, adjoint)


def test_what_depends_on_the_side_is_averaged(rng):
    """A predictor that keeps the left half keeps half of everything."""
    operator = SenseOperator(rng(1, 2, 4, 8), torch.ones(1, 1, 8) > 0)
    x, t = rng(3, 1, 4, 8), torch.ones(1)
    left = torch.arange(8) < 4

    def halve(a, z, noisy, t, sigma):
        return left * noisy

    found = Mirrored(halve)(operator, x[0], x, t, NOISE)
    share = (left.double() + mirror(left.double(), -1)) / 2
    assert torch.allclose(found, share * x)


def test_mirrored_operators_are_made_once(rng, monkeypatch):
    operator, made = SenseOperator(rng(1, 2, 4, 8), torch.ones(1, 1, 8) > 0), []
    plain = SenseOperator.mirror
    monkeypatch.setattr(SenseOperator, "mirror", lambda self, axes: made.append(axes) or plain(self, axes))
    both = Mirrored(lambda a, z, *_: a.solve(z, 0.1))
    x = rng(1, 4, 8)
    for _ in range(3):
        posterior_mean(both, operator, x, NOISE)
    assert len(made) == 3
    posterior_mean(both, SenseOperator(operator.maps, operator.mask), x, NOISE)
    assert len(made) == 6
