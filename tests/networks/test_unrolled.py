from dataclasses import replace

import pytest
import torch

from upmri.networks.adm import SIZES
from upmri.networks.unrolled import Unrolled, channels, complex_image
from upmri.physics.sense import SenseOperator


@pytest.fixture
def problem(rng):
    maps = rng(2, 3, 16, 20, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(2, 1, 20, generator=torch.Generator().manual_seed(0)) < 0.5
    return SenseOperator(maps, mask), rng(2, 16, 20, dtype=torch.complex64)


NOISE = torch.tensor([0.01, 0.01])


def network():
    torch.manual_seed(0)
    return Unrolled(replace(SIZES["tiny"], inputs=4), blocks=2)


def test_channels_round_trip(rng):
    x = rng(2, 5, 7, dtype=torch.complex64)
    assert torch.equal(complex_image(channels(x)), x)
    assert torch.equal(channels(x)[:, 1], x.imag)


def test_an_untaught_network_iterates_towards_the_data(problem):
    operator, x0 = problem
    adjoint = operator.normal(x0)
    out = network()(operator, adjoint, adjoint, torch.zeros(2), NOISE)
    start = operator.solve(adjoint, 0.02)
    misfit = [(operator.normal(x) - adjoint).norm() for x in (start, out)]
    assert misfit[1] < misfit[0]


def test_knows_nothing_but_what_it_is_given(problem):
    operator, x0 = problem
    model, adjoint = network().eval(), operator.normal(x0)
    x = model(operator, adjoint, adjoint, torch.zeros(2), NOISE)
    alone = SenseOperator(operator.maps[:1], operator.mask[:1])
    assert torch.allclose(model(alone, adjoint[:1], adjoint[:1], torch.zeros(1), NOISE[:1]), x[:1], atol=1e-5)


def test_every_parameter_learns(problem):
    operator, x0 = problem
    model, adjoint = network(), operator.normal(x0)
    for parameter in model.parameters():
        if parameter.abs().max() == 0:
            torch.nn.init.normal_(parameter, std=0.1)
    (model(operator, adjoint, adjoint, torch.full((2,), 0.3), NOISE) - x0).abs().square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_the_less_noise_the_more_the_data_are_believed(problem):
    """An untaught network with one block: x = (N + λI)⁻¹ (A*y + λ x̃), λ = 0.02 (σ₀/0.01)^1.5."""
    operator, x0 = problem
    adjoint, sigma = operator.normal(x0), torch.tensor([0.002, 0.04])
    model = Unrolled(replace(SIZES["tiny"], inputs=4), blocks=1)
    damping = 0.02 * (sigma / 0.01) ** 1.5
    start = operator.solve(adjoint, damping)
    expected = operator.solve(adjoint + damping[:, None, None] * start, damping)
    assert torch.allclose(model(operator, adjoint, adjoint, torch.zeros(2), sigma), expected, atol=1e-4)
    assert torch.isfinite(model(operator, adjoint, adjoint, torch.zeros(2), torch.zeros(2)).abs()).all()
