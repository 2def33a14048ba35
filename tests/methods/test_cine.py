"""The objective and the method of cine: an unbiased loss, and series as problems."""

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.learning.partition import misfit
from upmri.methods.cine import Cine, CineObjective
from upmri.methods.prior import Prior
from upmri.physics import Problem, simulate_series
from upmri.physics.time_average import average_image, to_frames

FRAMES = 6
OBJECTIVE = CineObjective(cascades=2, width=4)


@pytest.fixture(scope="module")
def beats():
    y, x = np.mgrid[-1:1:32j, -1:1:32j]
    body = 0.5 * (np.hypot(x, y) < 0.8)
    return np.stack([body + 0.5 * (np.hypot(x, y) < 0.3 + 0.2 * np.sin(2 * np.pi * t / FRAMES)) for t in range(FRAMES)])


@pytest.fixture(scope="module")
def scan(beats):
    return simulate_series(beats, coils=6, acceleration=3, seed=1)


@pytest.fixture
def series(scan):
    return Problem.from_scans([scan], frames=FRAMES, seed=3)


@pytest.fixture
def prior():
    torch.manual_seed(0)
    return Prior(OBJECTIVE.network(), OBJECTIVE, "cine").eval()


def test_the_loss_is_the_error_on_lines_that_were_not_input(series):
    """By a network that returns a known image and records its lines."""
    image, lines = torch.randn(FRAMES, 32, 32, dtype=torch.complex64), []

    def network(operator, adjoint, sigma, frames):
        lines.append(operator.mask)
        assert frames == FRAMES
        assert sigma.unique().numel() == 1
        assert torch.allclose(adjoint, series.restrict(operator.mask).adjoint)
        return image

    found = OBJECTIVE.loss(network, series.with_seeds(3))
    inputs, held = series.restrict(lines[0]), series.operator.mask & ~lines[0]
    mean = to_frames(average_image(inputs.operator, inputs.adjoint, FRAMES), FRAMES)
    part = series.restrict(held)
    expected = held.sum() / series.operator.mask.sum() * misfit(image, part).sum() / misfit(mean, part).sum()
    assert found.shape == (1,)
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


def test_training_reduces_the_loss(series):
    """Steps along the gradient of a fixed split."""
    torch.manual_seed(0)
    network = OBJECTIVE.network()
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    losses = []
    for _ in range(10):
        optimiser.zero_grad()
        loss = OBJECTIVE.loss(network, series.with_seeds(1)).sum()
        loss.backward()
        losses.append(loss.item())
        optimiser.step()
    assert losses[-1] < 0.95 * losses[0]


def test_the_method_is_the_network(series, prior):
    found = Cine(model=prior, precision="fp32").reconstruct(series)
    assert torch.equal(found, prior.network(series.operator, series.adjoint, series.sigma, FRAMES))


def test_units_do_not_matter(scan, prior):
    images = [
        upmri.reconstruct(upmri.Scan(
            kspace=f * scan.kspace, mask=scan.mask, maps=scan.maps, noise=f * scan.noise, meta=scan.meta
        ), Cine(model=prior, precision="fp32"), device="cpu").image
        for f in (1, 1000)
    ]  # fmt: skip
    assert torch.allclose(1000 * images[0], images[1], rtol=1e-3, atol=1e-2)


def test_a_prior_serves_series(scan, series, prior):
    operator = series.operator
    image = prior(operator, operator.H(scan.kspace), scan.noise, frames=FRAMES)
    expected = Cine(model=prior).reconstruct(series) * series.scale[:, None, None]
    assert torch.allclose(image, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("field", "value"),
    [("damping", 0.0), ("damping", -0.2), ("low_rank", 0.0), ("low_rank", -1.0), ("sigma_jitter", -1.0)],
)
def test_settings_of_the_objective_are_checked(field, value):
    with pytest.raises(InputError) as error:
        CineObjective(**{field: value})
    assert error.value.field == field


def test_an_unknown_precision():
    with pytest.raises(InputError, match="precision: expected"):
        Cine(precision="fp8")
