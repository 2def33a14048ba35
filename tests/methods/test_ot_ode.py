"""OT-ODE: its loss, its guidance against dense algebra, and a prior for which it draws from the posterior."""

import pytest
import torch

from upmri.flow.path import TimeLaw, noise
from upmri.learning.training_noise import path_noise
from upmri.methods.ot_ode import FlowObjective, OtOde, follow, guidance
from upmri.methods.prior import Prior
from upmri.physics.identity import IdentityOperator
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.weights.files import load_prior

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


def test_it_takes_equal_steps_in_time(operator, rng):
    velocity, adjoint, x1 = Linear(rng), operator.normal(rng(*SHAPE)), rng(*SHAPE)
    sigma = torch.tensor([0.2]).double()
    made = follow(velocity, operator, adjoint, sigma, x1, steps=3, start=0.6, strength=0.7)
    x = 0.4 * adjoint + 0.6 * x1
    for t in (0.6, 0.4, 0.2):
        v, g = guidance(velocity, operator, adjoint, sigma, x, t)
        x = x - 0.2 * v + 0.2 * 0.7 * t / (1 - t) * g
    assert torch.allclose(made, x)


def test_for_a_standard_prior_it_draws_from_the_posterior(operator, dense, rng):
    """x₀ ~ CN(0, 2I), where the guidance assumes the true law of x₀ given x_t: mean and covariance of 4000 draws."""
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

    x0, law = rng(2, 4, 6), TimeLaw(location=0.5)
    problem = Problem(IdentityOperator(x0.shape), x0, reference=x0, scaled=True, seeds=(11, 12))
    loss = FlowObjective(size="tiny", time=law).loss(network, problem)
    fresh = problem.with_seeds(problem.seeds)
    t, x1 = law.draw_each(fresh.generators), path_noise(fresh)
    s = t[:, None, None]
    error = (network((1 - s) * x0 + s * x1, t) - (x1 - x0)).abs().square().sum((1, 2))
    assert torch.allclose(24 * loss, error - (x1 - x0).abs().square().sum((1, 2)))
    assert not torch.equal(loss, FlowObjective(size="tiny").loss(network, problem.with_seeds(problem.seeds)))


def test_validation_takes_few_steps_and_leaves_no_gradients(scan):
    """Always from the same noise; the derivative of the network is taken although gradients are off outside."""
    problem, objective = Problem.from_scan(scan[0]), FlowObjective(size="tiny")
    network = objective.network()
    torch.nn.init.normal_(network.network.out.weight, std=0.05)
    x1 = noise(problem.adjoint, torch.Generator().manual_seed(0))
    with torch.no_grad():
        image = OtOde(model=Prior(network, objective, "ot-ode"), **OtOde.validation).reconstruct(problem)
    expected = follow(network, problem.operator, problem.adjoint, problem.sigma, x1, steps=20, start=0.8, strength=1.0)
    assert torch.equal(image, expected)
    assert all(p.grad is None for p in network.parameters())


def test_its_settings_are_used(scan, save):
    prior, problem = load_prior(save("ot-ode", FlowObjective(size="tiny"))), Problem.from_scan(scan[0], seed=5)
    method = OtOde(model=prior, steps=2, start=0.5, strength=0.3)
    x1 = noise(problem.adjoint, torch.Generator().manual_seed(5))
    parts = problem.operator, problem.adjoint, problem.sigma
    expected = follow(prior.network, *parts, x1, steps=2, start=0.5, strength=0.3)
    assert torch.equal(method.reconstruct(problem), expected)
