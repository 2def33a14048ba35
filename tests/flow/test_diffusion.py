"""The cosine schedule by its definition, the loss written out, and sampling where the noise is known."""

import math

import pytest
import torch

from upmri.core.errors import InputError
from upmri.flow.diffusion import Cosine, denoise, noise_loss
from upmri.flow.path import noise


def generators(count):
    return [torch.Generator().manual_seed(3 + i) for i in range(count)]


def network(z, t):
    """Nonlinear, not holomorphic."""
    return torch.tanh(z.real) + 0.5j * torch.sin(z.imag + z.roll(1, -1).real) + t[:, None, None] * z.conj()


def keep(guess, a, sigma):
    """A data step without data."""
    return guess, sigma


@pytest.mark.parametrize(("levels", "offset", "largest"), [(1000, 0.008, 0.999), (12, 0.1, 0.4)])
def test_the_schedule_is_the_cosine_with_its_last_steps_clipped(levels, offset, largest):
    def f(i):
        return math.cos((i / levels + offset) / (1 + offset) * math.pi / 2) ** 2

    expected = [1.0]
    for i in range(1, levels + 1):
        expected.append(expected[-1] * (1 - min(1 - f(i) / f(i - 1), largest)))
    signal = Cosine(levels, offset, largest).signal
    assert signal.dtype == torch.float64
    assert torch.allclose(signal, torch.tensor(expected).double(), rtol=1e-6, atol=0)


def test_the_usual_schedule():
    schedule = Cosine()
    assert schedule.signal.shape == (1001,)
    assert schedule.signal[500].item() == pytest.approx(0.4938, abs=1e-4)
    assert 1e-9 < schedule.signal[1000].item() < 1e-8
    assert schedule.scales(0) == (1.0, 0.0)
    a, sigma = schedule.scales(500)
    assert a**2 == pytest.approx(0.4938, abs=1e-4)
    assert a**2 + sigma**2 == pytest.approx(1)


@pytest.mark.parametrize(
    "settings", [{"levels": 0}, {"levels": 100_001}, {"offset": -0.1}, {"largest": 1.0}, {"largest": 0.0}]
)
def test_a_schedule_refuses_settings_out_of_range(settings):
    with pytest.raises(InputError) as error:
        Cosine(**settings)
    assert error.value.field == next(iter(settings))


def test_levels_are_drawn_evenly_from_all_but_the_first():
    drawn = Cosine(3).draw([torch.Generator().manual_seed(i) for i in range(600)])
    counts = drawn.bincount()
    assert len(counts) == 4
    assert counts[0] == 0
    assert (counts[1:] > 150).all()
    assert torch.equal(drawn[:2], Cosine(3).draw([torch.Generator().manual_seed(i) for i in range(2)]))


def test_the_way_back_is_evenly_spaced():
    assert Cosine().way_back(100) == list(range(1000, -1, -10))
    assert Cosine(10).way_back(3) == [10, 7, 3, 0]
    assert Cosine(4).way_back(4) == [4, 3, 2, 1, 0]
    for steps in (0, 5):
        with pytest.raises(InputError, match="expected 1 to 4") as error:
            Cosine(4).way_back(steps)
        assert error.value.field == "steps"


def test_the_loss_is_the_error_of_the_noise(rng):
    x0, eps, level = rng(3, 4, 5), rng(3, 4, 5), torch.tensor([1, 400, 1000])
    schedule = Cosine()
    for i, loss in enumerate(noise_loss(network, schedule, x0, eps, level)):
        signal = schedule.signal[level[i]].item()
        x = signal**0.5 * x0[i] + (1 - signal) ** 0.5 * eps[i]
        error = network(x[None], level[i : i + 1] / 1000)[0] - eps[i]
        assert loss.item() == pytest.approx(error.abs().square().sum().item() / 20, rel=1e-6)


def test_the_loss_in_single_precision(rng):
    x0, eps = rng(2, 4, 5, dtype=torch.complex64), rng(2, 4, 5, dtype=torch.complex64)
    seen = []

    def spy(z, t):
        seen.append((z.dtype, t.dtype))
        return z

    assert noise_loss(spy, Cosine(), x0, eps, torch.tensor([3, 5])).dtype == torch.float32
    assert seen == [(torch.complex64, torch.float32)]


def test_a_step_as_written(rng):
    """Level after level: the estimate, the data step, and the noise, the old and the new."""
    schedule, eta, x = Cosine(9), 0.6, rng(2, 3, 4)
    calls = []

    def data_step(guess, a, sigma):
        calls.append((guess, a, sigma))
        return 0.5 * guess + 1, torch.tensor([0.3, 0.7]) * sigma

    final = denoise(network, schedule, x, data_step, steps=3, eta=eta, generators=generators(2))
    drawn = generators(2)
    for (guess, a, sigma), (now, then) in zip(calls, [(9, 6), (6, 3), (3, 0)], strict=True):
        signal, later = schedule.signal[now].item(), schedule.signal[then].item()
        eps = network(x, torch.full((2,), now / 9).double())
        expected = (x - (1 - signal) ** 0.5 * eps) / signal**0.5
        expected = expected * torch.where(expected.abs() > 4, 4 / expected.abs(), 1)
        assert torch.allclose(guess, expected, rtol=1e-6)
        assert (a, sigma) == pytest.approx((later**0.5, (1 - later) ** 0.5))
        deviation = torch.tensor([0.3, 0.7]).double()[:, None, None] * sigma
        x = a * (0.5 * guess + 1) + deviation * (eta * noise(x, drawn) + 0.8 * eps)
    assert torch.allclose(final, x, rtol=1e-6)
    assert torch.allclose(final, 0.5 * calls[-1][0] + 1)  # nothing is added to the last


def test_an_estimate_is_never_brighter_than_an_image(rng):
    """At the first level it is divided by 5e-5; the phase stays as it is."""
    guesses = []

    def data_step(guess, a, sigma):
        guesses.append(guess)
        return guess, sigma

    x = rng(1, 4, 4)
    denoise(lambda z, _: 0 * z, Cosine(), x, data_step, steps=1, eta=0.0, generators=generators(1))
    assert torch.allclose(guesses[0], 4 * x / x.abs())


def test_the_right_noise_leads_to_the_image(rng):
    """All images are the same: ε = (x_t − a x₀)/σ."""
    schedule, x0 = Cosine(), rng(1, 4, 4)

    def exact(z, t):
        a, sigma = schedule.scales(round(1000 * t[0].item()))
        return (z - a * x0) / sigma

    x = denoise(exact, schedule, rng(1, 4, 4), keep, steps=10, eta=0.85, generators=generators(1))
    assert torch.allclose(x, x0, atol=1e-9)


def test_without_data_it_draws_from_the_prior():
    """x₀ ~ CN(0, 2s² I): the deterministic way from noise ends at images of that variance."""
    schedule, s = Cosine(), 0.3

    def exact(z, t):
        a, sigma = schedule.scales(round(1000 * t[0].item()))
        return sigma / (a**2 * s**2 + sigma**2) * z

    start = noise(torch.empty(1, 100, 100, dtype=torch.complex128), generators(1))
    x = denoise(exact, schedule, start, keep, steps=500, eta=0.0, generators=generators(1))
    assert x.abs().square().mean().item() == pytest.approx(2 * s**2, rel=0.04)
    assert torch.allclose(x / x.abs(), start / start.abs())
