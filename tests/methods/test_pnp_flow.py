"""PnP-Flow: its rounds in closed form for a Gaussian prior, and networks from outside."""

import pytest
import torch
from torch import nn

import upmri
from upmri import InputError
from upmri.flow.path import noise
from upmri.methods.ot_ode import FlowObjective
from upmri.methods.pnp_flow import PnpFlow, even_times, geometric_times, plug_and_play
from upmri.methods.prior import Prior
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

SHAPE = (1, 2, 8)


@pytest.fixture
def operator(rng):
    maps = rng(1, 2, 2, 8)
    maps[..., 0] = 0
    maps = torch.nan_to_num(maps / maps.abs().square().sum(1, keepdim=True).sqrt())
    mask = torch.zeros(1, 1, 8, dtype=torch.bool)
    mask[..., [0, 4, 5]] = True
    return SenseOperator(maps, mask)


@pytest.fixture
def covariance():
    """Σ of x₀ ~ CN(0, Σ): neighbouring pixels are similar."""
    pixels = torch.cartesian_prod(torch.arange(2.0), torch.arange(8.0)).double()
    return 0.5 * torch.exp(-torch.cdist(pixels, pixels) / 1.5).to(torch.complex128)


@pytest.mark.parametrize(("steps", "draws", "alpha"), [(1, 1, 0.1), (4, 1, 1.0), (3, 2, 0.1)])
def test_every_round_in_closed_form(operator, covariance, rng, dense, steps, draws, alpha):
    """With the exact velocity, z − t v is E[x₀ | x_t = z] = (1−t) Σ ((1−t)² Σ + 2t² I)⁻¹ z."""
    eye = torch.eye(16, dtype=torch.complex128)

    def denoiser(t):
        return (1 - t) * covariance @ torch.linalg.inv((1 - t) ** 2 * covariance + 2 * t**2 * eye)

    def velocity(z, t):
        (t,) = set(t.tolist())
        noise_ = 2 * t * torch.linalg.inv((1 - t) ** 2 * covariance + 2 * t**2 * eye)  # E[x₁ | x_t]
        return (z.flatten(1) @ (noise_ - denoiser(t)).mT).reshape(z.shape)

    adjoint, normal = operator.normal(rng(*SHAPE)), dense(operator.normal, SHAPE)
    generator = torch.Generator().manual_seed(2)
    image = plug_and_play(
        velocity, operator, adjoint, even_times(steps), draws=draws, alpha=alpha, generators=[generator]
    )
    generator.manual_seed(2)
    aim = adjoint.flatten()
    x, support = aim, operator.support.flatten()
    for i in range(steps):
        t = 1 - i / steps
        z = x - t**alpha * (normal @ x - aim)
        drawn = noise(torch.empty(draws, 16, dtype=torch.complex128), generator)
        x = support * (((1 - t) * z + t * drawn) @ denoiser(t).mT).mean(0)
    assert torch.allclose(image.flatten(), x, atol=1e-9)
    assert (image[..., 0] == 0).all()


def test_its_defaults():
    assert PnpFlow() == PnpFlow(steps=100, draws=1, alpha=0.1, times="geometric", first=0.25, last=0.00125, samples=1)


def test_the_times():
    assert even_times(4) == [1, 0.75, 0.5, 0.25]
    assert geometric_times(0.8, 0.1, 4) == pytest.approx([0.8, 0.4, 0.2, 0.1])
    assert geometric_times(0.8, 0.1, 1) == [0.1]
    # Noise and an image of 0.2 a channel have equal energy near t = 0.17: most evaluations should be below.
    shares = [sum(t < 0.17 for t in times) for times in (even_times(100), geometric_times(0.5, 0.01, 100))]
    assert shares == [16, 72]


@pytest.mark.parametrize(
    "settings", [{"first": 0.001}, {"first": 1.5}, {"last": 0.0}, {"samples": 0}, {"times": "odd"}]
)
def test_wrong_settings(settings):
    with pytest.raises(InputError) as error:
        PnpFlow(**settings)
    assert [error.value.field] == list(settings)


class Denoiser(nn.Module):
    """The velocity (z − x̂₀)/t of a plain denoiser x̂₀: here the posterior mean for x₀ ~ CN(0, s) in k-space.

    In k-space z = (1−t) x₀ + t n, n ~ CN(0, 2I), so that x̂₀ = (1−t) s / ((1−t)² s + 2t²) z.
    """

    def __init__(self, spectrum):
        super().__init__()
        self.spectrum = spectrum

    def forward(self, z, t):
        t = t[:, None, None]
        gain = (1 - t) * self.spectrum / ((1 - t) ** 2 * self.spectrum + 2 * t**2)
        return (z - ifft2c(gain * fft2c(z))) / t


@pytest.mark.parametrize(("given", "times"), [("model", "geometric"), ("instance", "even"), ("function", "even")])
def test_a_denoiser_from_outside(rng, given, times):
    """One coil that sees everything equally: every frequency by itself, in closed form."""
    frequencies = torch.stack(torch.meshgrid(torch.arange(-4.0, 4), torch.arange(-6.0, 6), indexing="ij"))
    spectrum, mask = 2 / (1 + frequencies.square().sum(0)), torch.arange(12)[None, None] % 3 == 0
    kspace = mask[:, None] * (spectrum.sqrt() * rng(1, 1, 8, 12, dtype=torch.complex64))
    operator = SenseOperator(torch.ones(1, 1, 8, 12, dtype=torch.complex64), mask)
    problem = Problem(operator, kspace, sigma=0.01, seeds=3)
    velocity = Denoiser(spectrum)
    prior = Prior(velocity.forward if given == "function" else velocity, FlowObjective(), "ot-ode")
    method, settings = ("pnp-flow", {"model": prior}) if given != "instance" else (PnpFlow(model=prior), {})
    rec = upmri.reconstruct(problem, method, steps=10, draws=2, alpha=0.5, times=times, first=1.0, last=0.1, **settings)
    generator, y = torch.Generator().manual_seed(3), kspace[:, 0] / problem.scale
    x = y
    for i in range(10):
        t = 0.1 ** (i / 9) if times == "geometric" else 1 - i / 10
        z = x - t**0.5 * (mask * x - y)
        n = fft2c(noise(torch.empty(2, 1, 8, 12, dtype=torch.complex64), generator))
        gain = (1 - t) * spectrum / ((1 - t) ** 2 * spectrum + 2 * t**2)
        x = (gain * ((1 - t) * z + t * n)).mean(0)
    expected = problem.scale * ifft2c(x)
    assert torch.allclose(rec.image, expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())
    assert rec.method == "pnp-flow"
