"""SURE against closed forms, against dense algebra, and against the true error in the mean."""

import pytest
import torch

from upmri.learning.divergence import divergence
from upmri.learning.sure import _STEP, Part, sure
from upmri.networks.modl import MoDL
from upmri.networks.varnet import VarNet
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

COILS, H, W = 3, 4, 6
LINES = torch.tensor([True, False, True, True, False, False])[None, None]
ENTRIES = COILS * H * 3


def make_maps(rng, count=1):
    maps = rng(1, COILS, H, W)
    return (maps / maps.abs().square().sum(1, keepdim=True).sqrt()).expand(count, -1, -1, -1)


def make_parts(count):
    """The line at 2 with weight 1, those at 0 and 3 with 2.5."""
    first = torch.zeros(1, 1, W, dtype=torch.bool)
    first[..., 2] = True
    weights = [torch.full((count,), w, dtype=torch.float64) for w in (1.0, 2.5)]
    return [Part(m.expand(count, -1, -1), w) for m, w in zip((first, LINES & ~first), weights, strict=True)]


def diagonal(parts):
    return sum(part.mask[:1] * part.weight[0] for part in parts)[:, None]


@pytest.mark.parametrize("weighted", [False, True])
def test_for_a_linear_network_it_is_the_closed_form(rng, dense, weighted):
    """One probe per sampled entry: their sum is the exact trace, which has the weight 2σ₀²."""
    maps, sigma = make_maps(rng, ENTRIES), 0.7
    operator = SenseOperator(maps, LINES.expand(ENTRIES, -1, -1))
    one = SenseOperator(maps[:1], LINES)
    L, y = rng(H * W, H * W), rng(1, COILS, H, W) * LINES
    parts = make_parts(ENTRIES) if weighted else None
    w = diagonal(parts) if weighted else LINES[:, None].double()
    unit = torch.eye(COILS * H * W, dtype=torch.complex128).reshape(-1, COILS, H, W)[
        LINES.expand(COILS, H, W).flatten().nonzero().flatten()
    ]
    sigmas = torch.full((ENTRIES,), sigma, dtype=torch.float64)
    problem = Problem(operator, y.expand(ENTRIES, -1, -1, -1), sigma=sigmas, scaled=True)
    values, images = sure(lambda _, z: (z.flatten(1) @ L.T).reshape(z.shape), problem, unit, parts)
    A = dense(one.forward, (1, H, W))
    image = L @ A.mH @ y.flatten()
    assert torch.allclose(images[5].flatten(), image)
    weight = w.expand(1, COILS, H, W).flatten().to(A)
    trace = torch.trace(weight[:, None] * (A @ L @ A.mH)).real
    misfit = (weight.real * (A @ image - y.flatten()).abs().square()).sum()
    expected = misfit - sigma**2 * weight.real.sum() + 2 * sigma**2 * trace
    # Each of the estimates has the constant part once, and one entry of the trace.
    fixed = misfit - sigma**2 * weight.real.sum()
    assert torch.allclose((values - fixed).sum() + fixed, expected, rtol=1e-8)
    assert trace.abs() > 1


def network(theta, x):
    """Nonlinear, not holomorphic, and not small."""
    mixed = x.roll(1, -1)
    return theta * torch.tanh(1.5 * x.real) + 1j * torch.sin(x.imag + 0.7 * mixed.real) + 0.3 * theta * x.conj()


@pytest.mark.parametrize("weighted", [False, True])
def test_in_the_mean_it_is_the_true_error(rng, weighted):
    sigma, draws = 0.6, 10_000
    operator = SenseOperator(make_maps(rng, draws), LINES.expand(draws, -1, -1))
    clean = operator.forward(rng(1, H, W).expand(draws, -1, -1))
    parts = make_parts(draws) if weighted else None
    w = diagonal(parts) if weighted else 1.0
    y = clean + sigma * rng(draws, COILS, H, W) * LINES[:, None]
    sigmas, unit = torch.full((draws,), sigma, dtype=torch.float64), rng(draws, COILS, H, W)
    estimate, image = sure(lambda _, z: network(1.0, z), Problem(operator, y, sigma=sigmas, scaled=True), unit, parts)
    truth = (w * (operator.forward(image) - clean).abs().square()).sum((1, 2, 3))
    gap = estimate - truth
    error = gap.std() / draws**0.5
    assert abs(gap.mean()) < 4 * error
    assert error < 0.02 * truth.mean()
    plain = (w * (operator.forward(image) - y).abs().square()).sum((1, 2, 3)) - truth
    assert abs(plain.mean()) > 10 * error  # without the other terms there is a bias


@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients_are_those_of_coil_data(rng, weighted):
    """The same computed in k-space of all coils, with gradients by autograd."""
    n = 3
    operator = SenseOperator(make_maps(rng, n), LINES.expand(n, -1, -1))
    y, unit = rng(n, COILS, H, W) * LINES[:, None], rng(n, COILS, H, W)
    sigma = torch.tensor([0.5, 0.1, 2.0], dtype=torch.float64)
    parts = make_parts(n) if weighted else None
    w = diagonal(parts) if weighted else LINES[:, None].double()
    theta = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    ours, _ = sure(lambda _, z: network(theta, z), Problem(operator, y, sigma=sigma, scaled=True), unit, parts)

    def predict(kspace):
        z = (operator.maps.conj() * ifft2c(LINES[:, None] * kspace)).sum(1)
        return fft2c(operator.maps * network(theta, z)[:, None])

    b = w.sqrt() * unit
    with torch.no_grad():
        size = operator.adjoint(y).abs().square().sum((1, 2)) / operator.adjoint(b).abs().square().sum((1, 2))
        step = (1e-2 * size.sqrt())[:, None, None, None]
    change = (predict(y + step * b) - predict(y)) / step
    plain = (
        (w * ((predict(y) - y).abs().square() - sigma[:, None, None, None] ** 2)).expand_as(unit.real).sum((1, 2, 3))
    )
    plain = plain + 2 * sigma**2 * (b.conj() * change).real.sum((1, 2, 3))
    assert torch.allclose(ours, plain, rtol=1e-9)
    for i in range(n):
        slopes = [torch.autograd.grad(loss[i], theta, retain_graph=True)[0] for loss in (ours, plain)]
        assert torch.allclose(*slopes, rtol=1e-7)
        assert slopes[0].abs() > 1e-3


@pytest.mark.parametrize("kind", [VarNet, MoDL])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 0.02), (torch.bfloat16, 0.05)])
def test_the_step_suits_the_precision(rng, kind, dtype, tolerance):
    """Against the derivative in double precision, of networks with random weights, which are not smooth."""
    torch.manual_seed(0)
    made = VarNet(cascades=2, width=8) if kind is VarNet else MoDL(unrolls=2, layers=3, width=8)
    for name, parameter in made.named_parameters():
        if not name.startswith("log_") and parameter.count_nonzero() == 0:
            torch.nn.init.normal_(parameter, std=0.02)
    maps = rng(1, 4, 32, 32)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    operator = SenseOperator(maps, random_lines(32, 2, 8, seed=0)[None])
    at, probe = operator.adjoint(0.2 * rng(1, 4, 32, 32)), operator.adjoint(rng(1, 4, 32, 32))
    made.double()
    change = torch.func.jvp(lambda z: made(operator, z), (at,), (probe,))[1]
    exact = (probe.conj() * change).real.sum()
    made.float()
    for child in made.networks if kind is VarNet else [made.network]:
        child.to(dtype)
    single = SenseOperator(maps.to(torch.complex64), operator.mask)
    at, probe = at.to(torch.complex64), probe.to(torch.complex64)
    with torch.no_grad():
        found = divergence(lambda z: made(single, z), at, probe, known=made(single, at), step=_STEP)
    assert found.item() == pytest.approx(exact.item(), rel=tolerance)


def test_a_blank_slice_has_a_finite_loss(rng):
    operator = SenseOperator(make_maps(rng), LINES)
    y, unit, sigma = torch.zeros(1, COILS, H, W) + 0j, rng(1, COILS, H, W), torch.ones(1, dtype=torch.float64)
    assert sure(lambda _, z: 0.5 * z, Problem(operator, y, sigma=sigma), unit)[0].isfinite().all()
