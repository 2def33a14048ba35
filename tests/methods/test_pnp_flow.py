"""PnP-Flow: its rounds in closed form for a Gaussian prior."""

import pytest
import torch

from upmri.flow.path import noise
from upmri.methods.pnp_flow import PnpFlow, plug_and_play
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
def prior():
    """Σ of x₀ ~ CN(0, Σ): nearby pixels are alike."""
    pixels = torch.cartesian_prod(torch.arange(2.0), torch.arange(8.0)).double()
    return 0.5 * torch.exp(-torch.cdist(pixels, pixels) / 1.5).to(torch.complex128)


@pytest.mark.parametrize(("steps", "draws", "alpha"), [(1, 1, 0.1), (4, 1, 1.0), (3, 2, 0.1)])
def test_every_round_in_closed_form(operator, prior, rng, dense, steps, draws, alpha):
    """With the exact velocity, z − t v is E[x₀ | x_t = z] = (1−t) Σ ((1−t)² Σ + 2t² I)⁻¹ z."""
    eye = torch.eye(16, dtype=torch.complex128)

    def denoiser(t):
        return (1 - t) * prior @ torch.linalg.inv((1 - t) ** 2 * prior + 2 * t**2 * eye)

    def velocity(z, t):
        (t,) = set(t.tolist())
        noise_ = 2 * t * torch.linalg.inv((1 - t) ** 2 * prior + 2 * t**2 * eye)  # E[x₁ | x_t]
        return (z.flatten(1) @ (noise_ - denoiser(t)).mT).reshape(z.shape)

    adjoint, normal = operator.normal(rng(*SHAPE)), dense(operator.normal, SHAPE)
    generator = torch.Generator().manual_seed(2)
    image = plug_and_play(velocity, operator, adjoint, steps=steps, draws=draws, alpha=alpha, generator=generator)
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
    assert PnpFlow() == PnpFlow(steps=100, draws=1, alpha=0.1)
