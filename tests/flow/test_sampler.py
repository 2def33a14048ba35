"""The sampler where prior and noise are Gaussian: everything is known, by dense linear algebra.

The expected errors of estimators that are linear in A*y₀ are computed, not sampled: the matrix of an estimator is
found from its values for unit vectors, which are leading axes.
"""

from dataclasses import dataclass
from functools import cached_property

import pytest
import torch

from upmri.flow.path import noise
from upmri.flow.sampler import Cyclic, measurement_field, single_evaluation
from upmri.physics.sense import SenseOperator

SHAPE = (1, 2, 8)
RANK = 12  # 2 coils, 3 of 8 lines, 2 rows: so many conjugate gradients are exact
SIGMA = 0.01


@dataclass
class Toy:
    """x₀ ~ CN(0, Σ), rms 0.26, neighbours correlated; y₀ = A x₀ + e, A with a null space of dimension 4 in 16."""

    operator: SenseOperator
    normal: torch.Tensor
    sigma: float = SIGMA

    @cached_property
    def prior(self):
        pixels = torch.cartesian_prod(torch.arange(2.0), torch.arange(8.0)).double()
        return 0.07 * torch.exp(-torch.cdist(pixels, pixels) / 1.5).to(torch.complex128)

    @cached_property
    def inverse(self):
        return pinv(self.normal)

    @cached_property
    def range(self):
        return self.inverse @ self.normal

    @cached_property
    def null(self):
        return torch.eye(16) - self.range

    @cached_property
    def data(self):
        """Covariance of A*y₀."""
        return self.normal @ self.prior @ self.normal + self.sigma**2 * self.normal

    @cached_property
    def mean(self):
        """A*y₀ ↦ E[x₀ | y₀]."""
        return self.prior @ self.normal @ pinv(self.data)

    def velocity(self, z, t):
        """E[x₁ − x₀ | A*y_t]."""
        (t,) = set(t.tolist())
        covariance = (1 - t) ** 2 * self.data + 2 * t**2 * self.normal @ self.normal
        cross = 2 * t * self.normal - (1 - t) * self.prior @ self.normal
        return (z.flatten(1) @ (cross @ pinv(covariance)).mT).unflatten(1, z.shape[1:])

    def matrix(self, estimator):
        """The matrix of an estimator of A*y₀, on the range of A*."""
        columns = estimator(self.range.mT.reshape(16, *SHAPE))
        return columns.reshape(16, 16).mT

    def error(self, matrix, part, of=None):
        """√(E‖part (matrix A*y₀ − of)‖² / E‖part x₀‖²), of x₀, or of another linear estimator of it."""
        if of is None:
            cross = matrix @ self.normal @ self.prior
            covariance = matrix @ self.data @ matrix.mH - cross - cross.mH + self.prior
        else:
            covariance = (matrix - of) @ self.data @ (matrix - of).mH
        return (trace(part @ covariance) / trace(part @ self.prior)) ** 0.5


def pinv(matrix):
    return torch.linalg.pinv(matrix, hermitian=True, rtol=1e-10)


def trace(matrix):
    return torch.trace(matrix).real.item()


def unit_maps(maps):
    return maps / maps.abs().square().sum(1, keepdim=True).sqrt()


@pytest.fixture
def toy(rng, dense):
    mask = torch.zeros(1, 1, 8, dtype=torch.bool)
    mask[..., [0, 4, 5]] = True
    operator = SenseOperator(unit_maps(rng(1, 2, 2, 8)), mask)
    return Toy(operator, dense(operator.normal, SHAPE))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


@pytest.fixture
def sigma():
    return torch.full((1,), SIGMA, dtype=torch.float64)


def network(z, t):
    """Nonlinear, not holomorphic, not a useful velocity."""
    return torch.tanh(2 * z.real) + 1j * z.roll(1, -1).imag + t[:, None, None] * z.conj() + 0.3


@pytest.mark.parametrize("t", [0.0, 1e-3, 0.1, 0.5, 0.95])
def test_the_field_is_the_mean_velocity_of_the_measurements(rng, dense, t):
    """A* E[A x₁ − y₀ | y_t] from E[x₁ − x₀ | y_t], both from joint Gaussians in k-space, more data than unknowns."""
    s = 0.3
    mask = torch.tensor([True, False, True, True, False, False])[None, None]
    operator = SenseOperator(unit_maps(rng(1, 3, 4, 6)), mask)
    sampled = mask.expand(3, 4, 6).flatten()
    a = dense(operator.forward, (1, 4, 6))[sampled]
    root = rng(24, 24)
    prior = root @ root.mH / 24
    y0 = a @ prior @ a.mH + s**2 * torch.eye(len(a))
    inverse = torch.linalg.inv((1 - t) ** 2 * y0 + 2 * t**2 * a @ a.mH)
    y = rng(len(a))
    v = (2 * t * a.mH - (1 - t) * prior @ a.mH) @ inverse @ y
    u = (2 * t * a @ a.mH - (1 - t) * y0) @ inverse @ y
    z = (a.mH @ y).reshape(1, 4, 6)
    field = measurement_field(v.reshape(1, 4, 6), operator, z, t, torch.tensor([s]).double(), 60)
    assert torch.allclose(field.flatten(), a.mH @ u, rtol=1e-6, atol=1e-8)


def test_the_network_is_evaluated_at_the_points_of_the_algorithm(toy, rng, sigma, generator):
    calls = []

    def velocity(z, t):
        calls.append((z, t.item()))
        return network(z, t)

    z0, sampler = toy.operator.normal(rng(*SHAPE)), Cyclic(5, RANK)
    z1 = sampler.forward(velocity, toy.operator, z0, sigma)
    assert [t for _, t in calls] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert torch.allclose(calls[0][0], 0.8 * z0, rtol=1e-12)  # the step from t = 0, whatever the network
    calls.clear()
    sampler(velocity, toy.operator, z0, sigma, generator)
    backward = calls[4:]
    assert [t for _, t in backward] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    for z, t in backward:
        assert torch.allclose(z, (1 - t) * z0 + t * z1, rtol=1e-12)
    calls.clear()
    Cyclic(5, RANK, null_noise=True, image_input=True)(velocity, toy.operator, z0, sigma, generator)
    zeta = noise(z0, generator.manual_seed(1))
    x1 = toy.inverse @ z1.flatten() + toy.null @ zeta.flatten()
    assert torch.allclose(calls[4][0].flatten(), x1, atol=1e-8)


@pytest.mark.parametrize("image_input", [False, True])
@pytest.mark.parametrize("null_noise", [False, True])
def test_without_noise_the_image_agrees_with_the_data(toy, rng, generator, null_noise, image_input):
    """Projecting onto y(t) instead of y(t − 1/T) would leave (y₁ − y₀)/T."""
    x0 = rng(*SHAPE)
    sampler = Cyclic(4, RANK, null_noise, image_input)
    z0, noise_free = toy.operator.normal(x0), torch.zeros(1)
    x = sampler(network, toy.operator, z0, noise_free, generator)
    y0 = toy.operator.forward(x0)
    assert torch.allclose(toy.operator.forward(x), y0, atol=1e-7)
    z1 = sampler.forward(network, toy.operator, z0, noise_free)
    assert (z1 - z0).norm() / 4 > 0.1 * z0.norm()


@pytest.mark.parametrize("null_noise", [False, True])
def test_what_is_drawn_in_the_null_space_stays_there(toy, rng, sigma, generator, null_noise):
    """For a velocity w that is constant: x̂ = A⁺y₀ + (I − P)(η ζ − w), draws batched in a leading axis."""
    w, z0 = rng(2, 8), toy.operator.normal(rng(*SHAPE)).expand(50, *SHAPE)
    x = Cyclic(3, RANK, null_noise)(lambda z, _: w.expand_as(z), toy.operator, z0, sigma, generator)
    zeta = null_noise * noise(z0, generator.manual_seed(1)).flatten(1)
    expected = z0.flatten(1) @ toy.inverse.mT + (zeta - w.flatten()) @ toy.null.mT
    assert torch.allclose(x.flatten(1), expected, atol=1e-7)


def test_null_space_noise_spoils_even_the_exact_field(toy, rng, sigma, generator):
    """Error in the null space, relative to x₀: 5.2 with the noise, 0.85 without, 0.74 for the posterior mean."""
    plain = toy.matrix(lambda z: Cyclic(10, RANK)(toy.velocity, toy.operator, z, sigma, generator))
    best = toy.error(toy.mean, toy.null)
    error = toy.error(plain, toy.null)
    assert best < 0.9 * error
    assert error < 0.95

    draws = 2000
    x0 = rng(draws, 16) @ torch.linalg.cholesky(toy.prior).mT
    x0 = x0.reshape(draws, *SHAPE)
    e = SIGMA * rng(draws, 1, 2, 2, 8)
    z0 = toy.operator.adjoint(toy.operator.forward(x0) + e)
    x = Cyclic(10, RANK, null_noise=True)(toy.velocity, toy.operator, z0, sigma, generator)

    def power(image):
        return (image.flatten(1) @ toy.null.mT).abs().square().sum()

    noisy = (power(x - x0) / power(x0)).item() ** 0.5
    added = (2 * trace(toy.null) / trace(toy.null @ toy.prior)) ** 0.5
    assert noisy > 4
    assert noisy == pytest.approx((error**2 + added**2) ** 0.5, rel=0.05)  # the whole noise is in the image


def test_the_spread_of_draws_does_not_depend_on_the_prior(toy, rng, sigma, generator):
    """Cov(x̂ | y₀) = 2 (I − P), here 48 times the posterior's in the null space; without the noise it is 0."""
    z0 = toy.operator.normal(rng(*SHAPE)).expand(4000, *SHAPE)
    x = Cyclic(4, RANK, null_noise=True)(toy.velocity, toy.operator, z0, sigma, generator).flatten(1)
    centred = x - x.mean(0)
    covariance = centred.mT @ centred.conj() / len(x)
    assert (covariance - 2 * toy.null).norm() < 0.1 * (2 * toy.null).norm()
    posterior = toy.prior - toy.mean @ toy.normal @ toy.prior
    assert trace(toy.null @ covariance) > 30 * trace(toy.null @ posterior)
    plain = Cyclic(4, RANK)(toy.velocity, toy.operator, z0, sigma, generator)
    assert torch.equal(plain, plain[:1].expand_as(plain))


def test_one_evaluation_is_the_posterior_mean(toy):
    mean = toy.matrix(lambda z: single_evaluation(toy.velocity, toy.operator, z, 0))
    assert torch.allclose(mean, toy.mean @ toy.range, atol=1e-8)
    consistent = toy.matrix(lambda z: single_evaluation(toy.velocity, toy.operator, z, RANK))
    assert torch.allclose(toy.null @ consistent, toy.null @ toy.mean @ toy.range, atol=1e-7)
    assert torch.allclose(toy.range @ consistent, toy.inverse, atol=1e-7)  # with data consistency, A⁺y₀ in the range


@pytest.mark.parametrize(("steps", "expected", "band"), [(10, 0.52, 0.03), (50, 0.88, 0.02), (1000, 1.0, 0.01)])
def test_euler_under_disperses_the_noise(toy, sigma, steps, expected, band):
    """E‖A⁺y₁‖² against that of P x₁, x₁ ~ CN(0, 2I): the flow has a layer of width t ~ σ₀ that few steps skip."""
    forward = toy.matrix(lambda z: Cyclic(steps, RANK).forward(toy.velocity, toy.operator, z, sigma))
    latent = toy.inverse @ forward
    assert trace(latent @ toy.data @ latent.mH) / (2 * RANK) == pytest.approx(expected, abs=band)


@pytest.mark.parametrize(("steps", "bias", "total"), [(10, 0.42, 0.85), (100, 0.36, 0.82)])
def test_the_bias_of_the_mean_does_not_vanish_with_more_steps(toy, sigma, generator, steps, bias, total):
    """In the null space, relative to x₀, against E[x₀ | y₀]: the backward pass averages E[x₀ | y_t] over all t."""
    cyclic = toy.matrix(lambda z: Cyclic(steps, RANK)(toy.velocity, toy.operator, z, sigma, generator))
    assert toy.error(cyclic, toy.null, of=toy.mean) == pytest.approx(bias, abs=0.01)
    assert toy.error(cyclic, toy.null) == pytest.approx(total, abs=0.01)
    assert torch.allclose(toy.range @ cyclic, toy.inverse, atol=1e-6)


@pytest.mark.parametrize("t", [1e-3, 0.1, 0.9, 0.999])
def test_the_field_in_single_precision(rng, dense, t):
    """λ_t down to 5e-13, with a null space: too small to factor in single precision."""
    maps, sigma = unit_maps(rng(1, 2, 2, 8)), 1e-3
    mask = torch.tensor([True, False, False, False, True, True, False, False])[None, None]
    normal = dense(SenseOperator(maps, mask).normal, SHAPE)
    v, z = rng(*SHAPE), (normal @ rng(16)).reshape(SHAPE)
    operator = SenseOperator(maps.to(torch.complex64), mask)
    field = measurement_field(v.to(torch.complex64), operator, z.to(torch.complex64), t, torch.tensor([sigma]))
    kappa = 2 * t / ((1 - t) ** 2 * sigma**2)
    inner = (1 - t) * normal @ v.flatten() + z.flatten()
    exact = normal @ v.flatten() - torch.linalg.solve(torch.eye(16) + kappa * normal, inner) / (1 - t)
    assert field.dtype == torch.complex64
    # Rounding puts eps·|z| into the null space, where nothing but 1/(1−t) acts on it.
    assert (field.flatten() - exact).norm() < 1e-5 * exact.norm() / (1 - t)


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("null_noise", [False, True])
def test_slices_draws_types_and_support(rng, generator, rows, null_noise):
    """Slices and draws do not mix, and outside the maps the image is 0."""
    maps = unit_maps(rng(2, 6, 16, 12, dtype=torch.complex64))
    maps[..., :3] = 0
    mask = torch.rand(2, rows, 12, generator=generator) < 0.7
    sigma = torch.tensor([1e-3, 0.2])
    operator = SenseOperator(maps, mask)
    z0 = operator.adjoint(rng(3, 2, 6, 16, 12, dtype=torch.complex64))
    sampler = Cyclic(8, null_noise=null_noise, image_input=null_noise)
    x = sampler(network, operator, z0, sigma, generator)
    assert x.shape == (3, 2, 16, 12)
    assert x.dtype == torch.complex64
    assert x.isfinite().all()
    assert (x[..., :3] == 0).all()
    assert (x[..., 3:] != 0).all()
    z1 = sampler.forward(network, operator, z0, sigma)
    for draw, i in [(0, 1), (2, 0)]:
        part = slice(i, i + 1)
        alone = SenseOperator(maps[part], mask[part])
        one = sampler.forward(network, alone, z0[draw, part], sigma[part])
        assert torch.allclose(one, z1[draw, part], rtol=1e-4, atol=1e-4)
        if not null_noise:
            one = sampler(network, alone, z0[draw, part], sigma[part], generator)
            assert torch.allclose(one, x[draw, part], rtol=1e-4, atol=1e-4)


def test_it_stays_on_its_device(generator):
    """On torch's device without data, which cannot be mixed with any other; only ζ comes from another one."""
    place = torch.device("meta")
    operator = SenseOperator(torch.ones(2, 3, 8, 8, dtype=torch.complex64, device=place), torch.ones(2, 1, 8) > 0)
    z0 = torch.ones(2, 8, 8, dtype=torch.complex64, device=place)
    sampler = Cyclic(3, 4, null_noise=True, image_input=True)
    x = sampler(network, operator, z0, torch.ones(2, device=place), generator)
    assert x.device == place
    assert single_evaluation(network, operator, z0).device == place
