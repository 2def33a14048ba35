"""OT-ODE: its loss, its guidance against dense algebra, and a prior for which it draws from the posterior."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import weights
from upmri.flow.path import TimeLaw, noise
from upmri.physics.problem import Problem
from upmri.methods.ot_ode import FlowObjective, OtOde, follow, guidance
from upmri.physics.sense import SenseOperator

SHAPE = (1, 2, 8)


@pytest.fixture
def operator(rng):
    maps = rng(1, 2, 2, 8)
    mask = torch.zeros(1, 1, 8, dtype=torch.bool)
    mask[..., [0, 4, 5]] = True
    return SenseOperator(maps / maps.abs().square().sum(1, keepdim=True).sqrt(), mask)


class Linear:
    """v = (1 + t)(P x + Q x̄): linear in the real channels only, and its transpose."""

    def __init__(self, rng):
        self.p, self.q = 0.3 * rng(16, 16), 0.3 * rng(16, 16)

    def __call__(self, z, t):
        flat = z.flatten(1)
        return ((1 + t[:, None]) * (flat @ self.p.mT + flat.conj() @ self.q.mT)).reshape(z.shape)

    def transposed(self, q, t):
        return (1 + t) * (self.p.mH @ q + self.q.mT @ q.conj())


@pytest.mark.parametrize("t", [0.05, 0.3, 0.8])
def test_the_guidance_is_the_gradient_of_the_likelihood(operator, rng, dense, t):
    """Jᵀ A*(r² AA* + σ_y² I)⁻¹ (y − A x̂₀), in k-space as it is written, σ_y = σ₀/√2."""
    velocity, x, y, sigma = Linear(rng), rng(*SHAPE), operator.forward(rng(*SHAPE)), 0.3
    v, g = guidance(velocity, operator, operator.adjoint(y), torch.tensor([sigma]).double(), x, t)
    assert torch.allclose(v, velocity(x, torch.tensor([t])))
    a, flat = dense(operator.forward, SHAPE), (x - t * v).flatten()
    r2 = t**2 / (t**2 + (1 - t) ** 2)
    covariance = r2 * a @ a.mH + sigma**2 / 2 * torch.eye(len(a))
    q = a.mH @ torch.linalg.solve(covariance, y.flatten() - a @ flat)
    assert torch.allclose(g.flatten(), q - t * velocity.transposed(q, t), rtol=1e-4)
    assert not v.requires_grad
    assert not g.requires_grad


def test_it_goes_down_in_equal_steps(operator, rng):
    velocity, adjoint, x1 = Linear(rng), operator.normal(rng(*SHAPE)), rng(*SHAPE)
    sigma = torch.tensor([0.2]).double()
    made = follow(velocity, operator, adjoint, sigma, x1, steps=3, start=0.6, strength=0.7)
    x = 0.4 * adjoint + 0.6 * x1
    for t in (0.6, 0.4, 0.2):
        v, g = guidance(velocity, operator, adjoint, sigma, x, t)
        x = x - 0.2 * v + 0.2 * 0.7 * t / (1 - t) * g
    assert torch.allclose(made, x)


def test_for_a_standard_prior_it_draws_from_the_posterior(operator, dense, rng):
    """x₀ ~ CN(0, 2I), where x₀ given x_t is what the guidance takes it for: mean and covariance of 4000 draws."""
    sigma = 0.5
    adjoint = operator.adjoint(operator.forward(rng(*SHAPE)) + sigma * rng(1, 2, 2, 8)).expand(4000, *SHAPE)
    x1 = noise(adjoint, torch.Generator().manual_seed(0))

    def velocity(z, t):
        t = t[:, None, None]
        return (2 * t - 1) / ((1 - t) ** 2 + t**2) * z

    x = follow(
        velocity, operator, adjoint, torch.tensor([sigma]).double(), x1, steps=300, start=0.99, strength=1.0
    ).flatten(1)
    inverse = torch.linalg.inv(dense(operator.normal, SHAPE) + sigma**2 / 2 * torch.eye(16))
    mean, covariance = inverse @ adjoint[0].flatten(), sigma**2 * inverse
    centred = x - x.mean(0)
    assert (x.mean(0) - mean).norm() < 0.05 * mean.norm()
    assert (centred.mT @ centred.conj() / len(x) - covariance).norm() < 0.1 * covariance.norm()


def test_the_loss_is_that_of_supervised_flow_matching(rng):
    def network(z, t):
        return torch.tanh(z.real) + 0.5j * z.imag + t[:, None, None] * z.conj()

    y, x0, law = rng(2, 3, 4, 6), rng(2, 4, 6), TimeLaw(location=0.5)
    batch = Batch(y, y, torch.ones(2, 1, 6) > 0, torch.ones(2), x0, (11, 12))
    loss = FlowObjective(size="tiny", time=law).loss(network, batch)
    t, x1 = changed(batch).times(law), path_noise(batch)
    s = t[:, None, None]
    error = (network((1 - s) * x0 + s * x1, t) - (x1 - x0)).abs().square().sum((1, 2))
    assert torch.allclose(24 * loss, error - (x1 - x0).abs().square().sum((1, 2)))
    assert not torch.equal(loss, FlowObjective(size="tiny").loss(network, changed(batch)))


def test_what_validation_looks_at():
    """A few steps, always from the same noise; though no graph is wanted outside."""
    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem.from_scan(scan)
    problem.__dict__["scale"] = torch.ones(1)  # or A*y would be rounded in two ways
    objective = FlowObjective(size="tiny")
    network = objective.network()
    torch.nn.init.normal_(network.network.out.weight, std=0.05)
    x1 = noise(problem.adjoint, torch.Generator().manual_seed(0))
    with torch.no_grad():
        image = objective.predict(network, problem.operator, problem.kspace, problem.sigma)
    expected = follow(network, problem.operator, problem.adjoint, problem.sigma, x1, steps=20, start=0.8, strength=1.0)
    assert torch.equal(image, expected)
    assert all(p.grad is None for p in network.parameters())


def test_its_settings_reach_it(tmp_path):
    objective = FlowObjective(size="tiny")
    path = save_weights(
        tmp_path / "a.safetensors", objective.network().state_dict(), "ot-ode", objective, {"name": "a"}
    )
    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem.from_scan(scan, seed=5)
    method = OtOde(model=str(path), steps=2, start=0.5, strength=0.3)
    x1 = noise(problem.adjoint, torch.Generator().manual_seed(5))
    parts = problem.operator, problem.adjoint, problem.sigma
    expected = follow(load_prior(path).network, *parts, x1, steps=2, start=0.5, strength=0.3)
    assert torch.equal(method.reconstruct(problem), expected)
