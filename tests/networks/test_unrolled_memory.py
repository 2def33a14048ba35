"""Memory and conditioning of the unrolled network: against the cascade written out, and against the plain network."""

import pytest
import torch
from torch import nn

from upmri.networks.cnn import UNet
from upmri.networks.unrolled import Unrolled, smooth_phase_of
from upmri.physics.operator import Operator
from upmri.physics.sense import SenseOperator

SIGMA = torch.tensor([0.03, 0.004])


@pytest.fixture
def problem(rng):
    maps = rng(2, 3, 16, 20, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(2, 1, 20, generator=torch.Generator().manual_seed(0)) < torch.tensor([0.6, 0.3])[:, None, None]
    return SenseOperator(maps, mask), rng(2, 16, 20, dtype=torch.complex64)


def extended(**settings):
    """A network with memory and conditioning, and random weights in place of zeros."""
    torch.manual_seed(0)
    model = Unrolled(**{"cascades": 3, "width": 4, "memory": 4, "conditioned": True, **settings}).eval()
    for parameter in model.network.out.parameters():
        nn.init.normal_(parameter, std=0.1)
    if model.powers is not None:
        nn.init.normal_(model.powers, mean=0.5, std=0.3)
    return model


@torch.no_grad()
def test_cascades_are_those_of_the_formula(problem):
    """Every input channel of the U-Net, and λ, written out for one slice at a time."""
    operator, x0 = problem
    model, adjoint, t = extended(), operator.normal(x0), torch.tensor([0.4, 0.1])
    noisy = x0.flip(-1)
    made = model(operator, adjoint, noisy, t, SIGMA)
    for i in range(2):
        one, rate = operator.take([i]), 20 / operator.mask[i].sum()
        p, q = model.powers
        lam = model.log_damping.exp() * (SIGMA[i] / 0.01) ** p * (rate / 4) ** q
        w = SIGMA[i] ** 2 * (1 - t[i]) ** 2 / (2 * t[i] ** 2)
        b = adjoint[i : i + 1] + w / (1 - t[i]) * noisy[i : i + 1]
        x = z = one.solve(b, lam + w)
        memory = torch.zeros(4, 16, 20)
        for k in range(3):
            phase = smooth_phase_of(x)
            image, change = phase.conj() * x, 10 * phase.conj() * (x - z)
            facts = torch.stack([torch.tensor(k - 1.0), (SIGMA[i] / 0.01).log() / 2, (rate / 4).log(),
                                 ((lam + w) / lam).log() / 4])  # fmt: skip
            inputs = torch.cat([
                image.real, image.imag, change.real, change.imag, memory, facts[:, None, None].expand(-1, 16, 20)
            ])  # fmt: skip
            out = model.network(inputs[None])[0]
            z = x + phase * torch.complex(out[0], out[1])
            memory = out[2:].tanh()
            x = one.solve(b + lam * z, lam + w)
        assert torch.allclose(made[i], x[0], atol=1e-4)


@torch.no_grad()
def test_without_weights_for_the_further_inputs_it_is_the_plain_network(problem):
    operator, x0 = problem
    adjoint, t = operator.normal(x0), torch.ones(2)
    model, plain = extended(), Unrolled(cascades=3, width=4).eval()
    state = model.state_dict()
    first = "network.down.0.0.0.weight"
    plain.load_state_dict({
        key: state[key][:, :2] if key == first else state[key][:2] if ".out." in key else state[key]
        for key in plain.state_dict()
    })  # fmt: skip
    expected = plain(operator, adjoint, adjoint, t, SIGMA)
    assert (model(operator, adjoint, adjoint, t, SIGMA) - expected).norm() > 1e-3 * expected.norm()
    state[first][:, 2:] = 0
    model.powers.copy_(torch.tensor([1.5, 0.0]))
    assert torch.allclose(model(operator, adjoint, adjoint, t, SIGMA), expected, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"conditioned": False}, {"memory": 0}], ids=["both", "memory", "facts"])
def test_images_do_not_mix(problem, settings):
    """Neither slices nor the several points of a leading axis."""
    operator, x0 = problem
    model, adjoint, t = extended(**settings), operator.normal(x0), torch.tensor([0.3, 0.1])
    points = torch.stack([x0, -x0, 0.5 * x0.flip(-1)])
    together = model(operator, adjoint, points, t, SIGMA)
    assert together.shape == points.shape
    for n, point in enumerate(points):
        for i in range(2):
            part = slice(i, i + 1)
            alone = model(operator.take([i]), adjoint[part], point[part], t[part], SIGMA[part])
            assert torch.allclose(together[n, i], alone[0], atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"conditioned": False}, {"memory": 0}], ids=["both", "memory", "facts"])
def test_every_parameter_learns(problem, settings):
    operator, x0 = problem
    model, adjoint = extended(**settings), operator.normal(x0)
    (model(operator, adjoint, adjoint, torch.full((2,), 0.3), SIGMA) - x0).abs().square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


@torch.no_grad()
def test_a_constant_phase_of_the_data_is_a_phase_of_the_image(problem):
    operator, x0 = problem
    model, adjoint, t = extended(), operator.normal(x0), torch.full((2,), 0.3)
    factor = torch.polar(torch.tensor(1.0), torch.tensor(2.1))
    image = model(operator, adjoint, x0, t, SIGMA)
    assert torch.allclose(model(operator, factor * adjoint, factor * x0, t, SIGMA), factor * image, atol=1e-4)


def test_levels_are_those_of_the_u_net():
    deep = Unrolled(cascades=1, width=4, levels=4).network
    assert isinstance(deep, UNet)
    assert [stage[0][0].out_channels for stage in deep.down] == [4, 8, 12, 16]


def test_the_acceleration_of_any_operator_is_that_of_its_samples(problem):
    """Estimated with a random image, for an operator that only has A and A*."""
    operator, _ = problem

    class Other(Operator):
        shape = operator.shape

        def forward(self, image):
            return operator.forward(image)

        def adjoint(self, data):
            return operator.adjoint(data)

    assert torch.allclose(Other().acceleration, operator.acceleration, rtol=0.15)
    assert torch.allclose((Other() / 2).acceleration, Other().acceleration, rtol=1e-4)


@torch.no_grad()
def test_a_conditioned_network_begins_as_the_one_without(problem):
    """Its further inputs count nothing until they are trained; the network it began with stays as it is."""
    operator, x0 = problem
    plain, model = extended(conditioned=False), extended()
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    arguments = operator, operator.normal(x0), x0.flip(-1), torch.tensor([0.4, 0.1]), SIGMA
    assert not torch.allclose(model(*arguments), plain(*arguments), rtol=1e-3)
    model.begin_with(plain)
    torch.testing.assert_close(model(*arguments), plain(*arguments))
    assert all(torch.equal(tensor, before[name]) for name, tensor in plain.state_dict().items())
    other = extended()
    other.begin_with(model)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("settings", [{"memory": 2}, {"width": 8}, {"levels": 2}], ids=str)
def test_a_network_cannot_begin_with_one_of_another_shape(settings):
    with pytest.raises(RuntimeError, match="size mismatch|key"):
        extended().begin_with(extended(conditioned=False, **settings))
    with pytest.raises(RuntimeError, match="size mismatch|key"):
        extended(conditioned=False).begin_with(extended())
