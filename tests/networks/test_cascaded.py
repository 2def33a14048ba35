"""Many light U-Nets between data consistencies, beside the one that is used many times."""

from dataclasses import replace

import pytest
import torch

from upmri.networks.adm import SIZES
from upmri.networks.cascaded import Cascaded
from upmri.networks.unrolled import Unrolled
from upmri.physics.sense import SenseOperator

SIGMA = torch.tensor([0.01, 0.03])


@pytest.fixture
def problem(rng):
    maps = rng(2, 3, 14, 18, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    operator = SenseOperator(maps, torch.rand(2, 1, 18, generator=torch.Generator().manual_seed(0)) < 0.5)
    x0 = rng(2, 14, 18, dtype=torch.complex64)
    return operator, x0, operator.normal(x0)


def taught():
    torch.manual_seed(0)
    model = Cascaded(cascades=3, width=4)
    for network in model.networks:
        torch.nn.init.normal_(network.out.weight, std=0.1)
    return model


def test_with_one_network_for_all_it_is_the_unrolled_one(problem):
    operator, x0, adjoint = problem
    torch.manual_seed(0)
    one = Unrolled(replace(SIZES["tiny"], inputs=4), blocks=2, damping=0.1).eval()
    torch.nn.init.normal_(one.network.out.weight, std=0.1)
    many = Cascaded(cascades=2, damping=0.1)
    many.networks = torch.nn.ModuleList([one.network] * 2)
    t = torch.tensor([0.2, 1.0])
    with torch.no_grad():
        assert torch.equal(many(operator, adjoint, x0, t, SIGMA), one(operator, adjoint, x0, t, SIGMA))


def test_every_cascade_has_weights_of_its_own_and_learns(problem):
    operator, x0, adjoint = problem
    model = taught()
    (model(operator, adjoint, x0, torch.tensor([0.3, 0.6]), SIGMA) - x0).abs().square().sum().backward()
    parameters = list(model.parameters())
    assert len({p.data_ptr() for p in parameters}) == len(parameters)
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in parameters)


def test_it_is_told_the_time_and_the_point(problem):
    """At t = 1 the point is noise alone and is not shown; before, both matter, and slices keep to themselves."""
    operator, x0, adjoint = problem
    model = taught()
    with torch.no_grad():
        early, late = (model(operator, adjoint, x0, torch.full((2,), t), SIGMA) for t in (0.0, 0.5))
        assert (early - late).norm() > 1e-3 * early.norm()
        nothing, something = (model(operator, adjoint, z, torch.zeros(2), SIGMA) for z in (0 * x0, x0))
        assert (nothing - something).norm() > 1e-3 * nothing.norm()
        end = [model(operator, adjoint, z, torch.ones(2), SIGMA) for z in (x0, -x0)]
        assert torch.equal(*end)
        alone = SenseOperator(operator.maps[1:], operator.mask[1:])
        single = model(alone, adjoint[1:], x0[1:], torch.zeros(1), SIGMA[1:])
    assert torch.allclose(single, something[1:], atol=1e-4)


def test_the_networks_may_be_of_half_precision(problem):
    operator, x0, adjoint = problem
    model, t = taught(), torch.zeros(2)
    with torch.no_grad():
        whole = model(operator, adjoint, x0, t, SIGMA)
        model.networks.to(torch.bfloat16)
        half = model(operator, adjoint, x0, t, SIGMA)
    assert half.dtype == torch.complex64
    assert 0 < (half - whole).norm() < 0.05 * whole.norm()
