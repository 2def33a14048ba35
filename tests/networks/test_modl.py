"""MoDL against the same written out: dense matrices, dense solves, plain autograd."""

import pytest
import torch

from upmri.networks.cnn import on_channels
from upmri.networks.modl import MoDL
from upmri.physics.sense import SenseOperator

SHAPE = (6, 8)


def problem(rng):
    maps = rng(2, 3, *SHAPE)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    maps[:, :, 4:, :3] = 0  # outside the support
    mask = torch.rand(2, 1, SHAPE[1], generator=torch.Generator().manual_seed(0)) < 0.5
    return SenseOperator(maps, mask), rng(2, *SHAPE)


def network(**settings):
    torch.manual_seed(0)
    made = MoDL(**{"unrolls": 3, "layers": 3, "width": 4} | settings).double()
    for parameter in made.parameters():
        if parameter.numel() > 1 and parameter.count_nonzero() == 0:
            torch.nn.init.normal_(parameter, std=0.3)
    return made


def written_out(model, operator, adjoint, dense):
    maps, mask = operator.maps, operator.mask
    systems = []
    for i in range(len(maps)):
        alone = SenseOperator(maps[i : i + 1], mask[i : i + 1])
        forward = dense(lambda x, a=alone: a.forward(x[None])[0], SHAPE)
        systems.append(forward.mH @ forward)
    system, support = torch.stack(systems), (maps != 0).any(1)
    damping, x = model.log_damping.exp(), adjoint
    for _ in range(model.unrolls):
        z = x + support * on_channels(model.network, x)
        unit = torch.eye(system.shape[-1], dtype=system.dtype)
        x = torch.linalg.solve(system + damping * unit, (adjoint + damping * z).flatten(1)[..., None])
        x = x.reshape(adjoint.shape)
    return x


def test_image_and_gradient_are_those_of_dense_solves(rng, dense):
    operator, x0 = problem(rng)
    model, adjoint = network(), operator.normal(x0)
    images, gradients = [], []
    for image in (model(operator, adjoint), written_out(model, operator, adjoint, dense)):
        model.zero_grad()
        (image - x0).abs().square().sum().backward()
        images.append(image.detach())
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert torch.allclose(*images, rtol=1e-8, atol=1e-10)
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    of_damping = dict(zip(dict(model.named_parameters()), gradients[0], strict=True))["log_damping"]
    assert of_damping.abs() > 1e-3


def test_the_published_shape_is_the_default():
    model = MoDL()
    assert model.unrolls == 10
    assert model.log_damping.exp().item() == pytest.approx(0.05)
    weights = 2 * 64 * 9 + 3 * 64 * 64 * 9 + 64 * 2 * 9
    assert sum(p.numel() for p in model.parameters()) == weights + 4 * 3 * 64 + 2 + 1


def test_untrained_every_unroll_reduces_the_misfit(rng):
    operator, x0 = problem(rng)
    adjoint = operator.normal(x0)
    misfits = [(operator.normal(MoDL(unrolls=k).double()(operator, adjoint)) - adjoint).norm() for k in (1, 3, 10)]
    assert misfits[0] > misfits[1] > misfits[2] > 0


def test_support_and_slices(rng):
    operator, x0 = problem(rng)
    model, adjoint = network(), operator.normal(x0)
    with torch.no_grad():
        image = model(operator, adjoint)
        alone = SenseOperator(operator.maps[1:], operator.mask[1:])
        assert torch.allclose(model(alone, adjoint[1:]), image[1:], rtol=1e-8)
    assert (image[~operator.support] == 0).all()
    assert (image[operator.support] != 0).all()


def test_points_instead_of_lines(rng, dense):
    lines, x0 = problem(rng)
    mask = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(1)) < 0.6
    operator, model = SenseOperator(lines.maps, mask), network()
    adjoint = operator.normal(x0)
    with torch.no_grad():
        expected = written_out(model, operator, adjoint, dense)
        assert torch.allclose(model(operator, adjoint), expected, rtol=1e-4, atol=1e-5)


def test_an_operator_of_a_user_gives_the_same(rng, assert_any_operator_serves):
    maps = rng(2, 3, *SHAPE)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    maps[:, :, 4:, :3] = 0
    sense, x0 = SenseOperator(maps, torch.arange(SHAPE[1]) % 3 != 0), rng(2, *SHAPE)
    assert_any_operator_serves(network(), sense, lambda model, operator: model(operator, operator.normal(x0)))
