"""VarNet against the same written out with dense matrices."""

import pytest
import torch

from upmri.networks.cnn import on_channels
from upmri.networks.varnet import VarNet
from upmri.physics.sense import SenseOperator

SHAPE = (6, 8)
DAMPING = 0.3


@pytest.fixture(params=[1, SHAPE[0]], ids=["lines", "points"])
def operator(rng, request):
    maps = rng(2, 3, *SHAPE)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    maps[:, :, 4:, :3] = 0  # outside the support
    return SenseOperator(maps, torch.rand(2, request.param, SHAPE[1], generator=torch.Generator().manual_seed(0)) < 0.5)


def network():
    torch.manual_seed(0)
    made = VarNet(cascades=2, width=3, damping=DAMPING).double()
    for parameter in made.networks.parameters():
        if parameter.count_nonzero() == 0:
            torch.nn.init.normal_(parameter, std=0.3)
    return made


def test_cascades_are_those_of_dense_matrices(rng, operator, dense):
    kspace, model = rng(2, 3, *SHAPE), network()
    with torch.no_grad():
        image = model(operator, operator.adjoint(kspace))
        for i in range(2):
            alone = SenseOperator(operator.maps[i : i + 1], operator.mask[i : i + 1])
            forward = dense(lambda x, a=alone: a.forward(x[None])[0], SHAPE)
            y = (operator.mask[i] * kspace[i]).flatten()
            back = (forward.mH @ forward + DAMPING * torch.eye(forward.shape[1])).inverse()
            x = back @ forward.mH @ y
            for u_net in model.networks:
                change = on_channels(u_net, x.reshape(1, *SHAPE)) * operator.support[i]
                x = back @ (forward.mH @ y + DAMPING * (x + change.flatten()))
            assert torch.allclose(image[i].flatten(), x, atol=1e-6 if len(operator.mask[0]) == 1 else 1e-3)


def test_every_parameter_learns(rng, operator):
    x0, model = rng(2, *SHAPE), network()
    (model(operator, operator.normal(x0)) - x0).abs().square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_cascades_share_nothing_and_are_few_enough():
    model = VarNet()
    assert len(model.networks) == 10
    parameters = list(model.parameters())
    assert len({p.data_ptr() for p in parameters}) == len(parameters)
    assert 3e6 < sum(p.numel() for p in parameters) <= 5.5e6


def test_untrained_cascades_go_from_sense_towards_the_data(rng, operator):
    adjoint = operator.normal(rng(2, *SHAPE))
    made = [VarNet(cascades=k, width=2, damping=DAMPING) for k in (1, 3, 10)]
    misfits = [(operator.normal(model(operator, adjoint)) - adjoint).norm() for model in made]
    sense = (operator.normal(operator.solve(adjoint, DAMPING)) - adjoint).norm()
    assert sense > misfits[0] > misfits[1] > misfits[2] > 0


def test_sampled_lines_stay_for_any_output_of_the_networks(rng, operator):
    adjoint, model = operator.normal(rng(2, *SHAPE)), network()
    with torch.no_grad():
        model.log_damping.fill_(-16.0)
        assert torch.allclose(operator.normal(model(operator, adjoint)), adjoint, atol=1e-3)


def test_support_and_slices(rng, operator):
    model, adjoint = network(), operator.normal(rng(2, *SHAPE))
    with torch.no_grad():
        image = model(operator, adjoint)
        alone = SenseOperator(operator.maps[1:], operator.mask[1:])
        assert torch.allclose(model(alone, adjoint[1:]), image[1:], rtol=1e-8)
    assert (image[~operator.support] == 0).all()
    assert (image[operator.support] != 0).all()


def test_an_operator_of_a_user_gives_the_same(rng, assert_any_operator_serves):
    maps = rng(2, 3, *SHAPE)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    maps[:, :, 4:, :3] = 0
    sense, x0 = SenseOperator(maps, torch.arange(SHAPE[1]) % 3 != 0), rng(2, *SHAPE)
    assert_any_operator_serves(network(), sense, lambda model, operator: model(operator, operator.normal(x0)))
