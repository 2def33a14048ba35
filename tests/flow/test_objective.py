"""The loss without ground truth against the one with it: by dense algebra, and in expectation."""

import pytest
import torch

from upmri.flow.objective import DampedFilter, KrylovFilter, filtered, loss_of, no_filter, projected_loss
from upmri.learning.divergence import divergence
from upmri.physics.identity import IdentityOperator
from upmri.physics.sense import SenseOperator

SHAPE = (1, 4, 6)
FILTERS = {"paper": KrylovFilter(60), "damped": DampedFilter(0.05), "lines": no_filter}


@pytest.fixture
def operator(rng):
    maps = rng(1, 3, 4, 6)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.tensor([True, False, True, True, False, False])[None, None]
    return SenseOperator(maps, mask)


def matrix(filter_, operator, dense):
    """R N as a dense matrix; for the paper's filter the exact projection."""
    normal = dense(operator.normal, SHAPE)
    if isinstance(filter_, KrylovFilter):
        return torch.linalg.pinv(normal, hermitian=True, rtol=1e-9) @ normal
    if isinstance(filter_, DampedFilter):
        return torch.linalg.solve(normal + filter_.damping * torch.eye(24), normal)
    return normal


@pytest.mark.parametrize("name", FILTERS)
def test_value_and_gradient_are_those_of_the_projected_error(operator, rng, dense, name):
    filter_, p, u = FILTERS[name], rng(*SHAPE).requires_grad_(), rng(*SHAPE)
    loss = projected_loss(p, operator, operator.normal(u), filter_)
    weight = matrix(filter_, operator, dense)
    error = lambda z: ((z - u).flatten().conj() @ weight @ (z - u).flatten()).real  # noqa: E731
    (slope,) = torch.autograd.grad(loss.sum(), p)
    q = p.detach().clone().requires_grad_()
    (expected,) = torch.autograd.grad(error(q), q)
    assert torch.allclose(slope, expected, atol=1e-7)
    assert torch.allclose(loss.sum() - error(p), -error(torch.zeros_like(u)), atol=1e-7)


def network(x):
    """Nonlinear, not holomorphic, and not small."""
    mixed = x.roll(1, -1)
    return torch.tanh(1.5 * x.real) + 1j * torch.sin(x.imag + 0.7 * mixed.real) + 0.3 * x.conj()


@pytest.mark.parametrize("t", [pytest.param(0.0, marks=pytest.mark.soak), 0.4])
def test_with_its_divergence_the_loss_is_unbiased(operator, rng, t):
    """E⟨D − x₀, W (D − x₀)⟩ = E[loss + 2σ₀²(1−t) Re⟨b, J b⟩] + const, noise and x₁ drawn anew, x₀ fixed."""
    sigma, draws, filter_ = 0.6, 6_000, FILTERS["damped"]
    x0 = rng(*SHAPE)
    many = SenseOperator(operator.maps.expand(draws, -1, -1, -1), operator.mask)
    x0 = x0.expand(draws, -1, -1)
    e = sigma * rng(draws, 3, 4, 6) * operator.mask[:, None]
    adjoint = many.adjoint(many.forward(x0) + e)
    x1 = 2**0.5 * rng(draws, 4, 6)
    at = (1 - t) * filter_(many, adjoint) + t * x1
    prediction = network(at)
    loss = projected_loss(prediction, many, adjoint, filter_)
    probe = many.adjoint(rng(draws, 3, 4, 6))
    with_term = loss + 2 * sigma**2 * (1 - t) * divergence(network, at, filter_(many, probe))
    truth = projected_loss(prediction, many, many.normal(x0), filter_)

    def mean(values):
        return values.mean(), values.std() / draws**0.5

    gap, error = mean(with_term - truth)
    biased, _ = mean(loss - truth)
    assert abs(gap) < 4 * error
    assert abs(biased) > 10 * error  # without the term the bias is large


def test_lines_that_were_not_input_need_no_divergence(operator, rng):
    sigma, draws = 0.6, 40_000
    inputs, loss_lines = operator.mask.clone(), operator.mask.clone()
    inputs[..., 3] = False
    loss_lines = loss_lines & ~inputs
    maps = operator.maps.expand(draws, -1, -1, -1)
    theta, lam = SenseOperator(maps, inputs), SenseOperator(maps, loss_lines)
    x0 = rng(*SHAPE).expand(draws, -1, -1)
    e = sigma * rng(draws, 3, 4, 6)
    prediction = network(theta.adjoint(theta.forward(x0) + e))
    blind = projected_loss(prediction, lam, lam.adjoint(lam.forward(x0) + e), no_filter)
    truth = projected_loss(prediction, lam, lam.normal(x0), no_filter)
    gap = blind - truth
    assert abs(gap.mean()) < 4 * gap.std() / draws**0.5


def test_several_images_are_filtered_at_once(operator, rng):
    p, u, probe = rng(*SHAPE), rng(*SHAPE), rng(*SHAPE)
    for filter_ in FILTERS.values():
        residual, aim, other = filtered(p, operator, u, filter_, probe)
        assert torch.allclose(residual, filter_(operator, operator.normal(p) - u))
        assert torch.allclose(other, filter_(operator, probe))
        assert torch.allclose(loss_of(p, residual, aim), projected_loss(p, operator, u, filter_))


def test_with_the_identity_it_is_supervised_flow_matching(rng):
    p, u = rng(*SHAPE), rng(*SHAPE)
    for filter_ in (no_filter, KrylovFilter(3)):
        loss = projected_loss(p, IdentityOperator(SHAPE), u, filter_) + u.abs().square().sum()
        assert torch.allclose(loss, (p - u).abs().square().sum())
    damped = projected_loss(p, IdentityOperator(SHAPE), u, DampedFilter(1.0)) + u.abs().square().sum() / 2
    assert torch.allclose(damped, (p - u).abs().square().sum() / 2)
