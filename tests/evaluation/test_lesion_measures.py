"""Measures of lesions against closed forms: white noise and a known signal."""

import math

import numpy as np
import pytest
import torch

from upmri import InputError
from upmri.evaluation.lesion_measures import (
    contrast_kept,
    detectability,
    disc_and_ring,
    local_contrast,
    responses,
    templates,
)  # fmt: skip
from upmri.evaluation.lesions import Lesion, disc

SHAPE = (40, 48)
LESIONS = [Lesion(12, 14.4, 3, 0.6, 0.5), Lesion(25.5, 33, 8, -0.3, 0.8)]


def test_the_response_is_the_amplitude():
    w = templates(SHAPE, LESIONS)
    for i, lesion in enumerate(LESIONS):
        image = 2.0 + lesion.amplitude * disc(SHAPE, lesion.row, lesion.column, lesion.diameter)
        # A constant background does not matter, and a phase neither.
        assert responses(torch.polar(image, torch.full_like(image, 0.7)), w)[i].item() == pytest.approx(
            lesion.amplitude
        )
    torch.testing.assert_close(w.sum((1, 2)), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)


def test_contrast_kept_does_not_see_what_both_have():
    w = templates(SHAPE, LESIONS)
    anatomy = 3 + torch.rand(SHAPE, generator=torch.Generator().manual_seed(0)).double()
    discs = [lesion.amplitude * disc(SHAPE, lesion.row, lesion.column, lesion.diameter) for lesion in LESIONS]
    shown = anatomy + 0.7 * discs[0] + 0.2 * discs[1]
    kept = contrast_kept(shown, anatomy, w, LESIONS)
    torch.testing.assert_close(kept, torch.tensor([0.7, 0.2], dtype=torch.float64), atol=1e-3, rtol=0)


def test_local_contrast():
    image = torch.full(SHAPE, 1.0)
    inside, ring = disc_and_ring(SHAPE, 20, 20, 6)
    image[inside] = 1.5
    assert local_contrast(image, 20, 20, 6) == pytest.approx(0.5)
    assert not (inside & ring).any()
    assert inside.sum() == 29  # pixels with i² + j² ≤ 9
    image[ring] = 1.25
    assert local_contrast(image.to(torch.complex64) * 1j, 20, 20, 6) == pytest.approx(0.25)


def test_white_noise_has_the_exact_detectability():
    lesion, sigma, n = Lesion(12, 14, 4, 0.1, 1.0), 0.2, 4000
    (w,) = templates((24, 28), [lesion])
    noise = 5 + sigma * torch.randn(n, 24, 28, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    absent = noise.flatten(1) @ w.flatten()
    changes = torch.full((3,), 0.1)
    found = detectability(changes, absent)
    expected = 0.1 / (sigma * w.norm().item())  # a ‖d − d̄‖ / σ, as ‖w‖ = 1/‖d − d̄‖
    assert 0.8 < expected < 3
    assert found.d_prime == pytest.approx(expected, rel=4 / math.sqrt(2 * n))
    assert found.auc == pytest.approx(0.5 * (1 + math.erf(expected / 2)), abs=0.01)  # Φ(d′/√2)


def test_changes_that_vary_make_it_worse():
    absent = torch.randn(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    changes = 1 + 2 * torch.randn(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = detectability(changes, absent)
    # d′ by its definition, from means and variances of both classes.
    present = absent[:, None] + changes
    expected = (present.mean() - absent.mean()) / math.sqrt((present.var() + absent.var()) / 2)
    assert found.d_prime == pytest.approx(expected.item(), rel=1e-3)
    # AUC of two normal classes with variances 5 and 1.
    assert found.auc == pytest.approx(
        0.5 * (1 + math.erf(changes.mean().item() / math.sqrt(6) / math.sqrt(2))), abs=0.02
    )


def test_area_by_brute_force():
    g = torch.Generator().manual_seed(4)
    absent, changes = torch.randint(5, (7,), generator=g), torch.tensor([-1, 0, 2])
    wins = [
        0.5 * (1 + np.sign(t0 + change - other))
        for change in changes.tolist()
        for i, t0 in enumerate(absent.tolist())
        for j, other in enumerate(absent.tolist())
        if i != j
    ]
    assert detectability(changes, absent).auc == pytest.approx(np.mean(wins))


def test_ends_of_the_scale():
    still = torch.zeros(4)
    assert detectability(torch.tensor([1.0, 1.0]), still) == (math.inf, 1.0)
    assert detectability(torch.zeros(2), torch.tensor([0.0, 1.0, 2.0])) == (0.0, 0.5)


def test_wrong_input():
    for field, values in {"changes": ([1.0], [1.0, 2.0]), "absent": ([1.0, 2.0], [math.nan, 1.0])}.items():
        with pytest.raises(InputError) as error:
            detectability(*map(torch.tensor, values))
        assert error.value.field == field
    with pytest.raises(InputError) as error:
        responses(torch.ones(3, 3), templates(SHAPE, LESIONS))
    assert error.value.field == "image"
