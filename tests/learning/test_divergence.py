"""Hutchinson's estimate against the trace that it estimates."""

import pytest
import torch

from upmri.learning.divergence import divergence

SHAPE = (2, 3, 4)


def network(x):
    """Nonlinear, not holomorphic, and not small."""
    return torch.tanh(1.5 * x.real) + 1j * torch.sin(x.imag + 0.7 * x.roll(1, -1).real) + 0.3 * x.conj()


def test_a_difference_quotient_approximates_the_derivative(rng):
    at, probe = rng(*SHAPE), rng(*SHAPE)
    exact = divergence(network, at, probe)
    near = divergence(network, at, probe, known=network(at))
    assert torch.allclose(near, exact, rtol=0.02, atol=0.02)
    assert not torch.allclose(near, exact, rtol=1e-6, atol=1e-6)
    finer = divergence(network, at, probe, known=network(at), step=1e-6)
    assert torch.allclose(finer, exact, rtol=1e-4, atol=1e-4)


def test_the_mean_over_probes_is_the_trace(rng):
    """For x ↦ M x it is Re tr M, b ~ CN(0, I)."""
    matrix = rng(12, 12)
    probes = rng(20_000, 3, 4)
    found = divergence(lambda x: (x.flatten(1) @ matrix.mT).reshape(x.shape), probes, probes, known=None)
    assert found.mean().item() == pytest.approx(
        torch.trace(matrix).real.item(), abs=4 * (found.std() / 20_000**0.5).item()
    )


@pytest.mark.parametrize("step", [1e-3, 1.0])
def test_for_a_linear_network_any_step_is_exact(rng, step):
    at, probe = rng(*SHAPE), rng(*SHAPE)
    found = divergence(lambda x: 2 * x + x.roll(1, -1), at, probe, known=2 * at + at.roll(1, -1), step=step)
    assert torch.allclose(found, divergence(lambda x: 2 * x + x.roll(1, -1), at, probe))


def test_at_zero_the_step_is_absolute(rng):
    nothing = torch.zeros(SHAPE, dtype=torch.complex128)
    probe = rng(*SHAPE)
    assert torch.allclose(
        divergence(lambda x: 3 * x, nothing, probe, known=nothing), 3 * probe.abs().square().sum((1, 2))
    )
