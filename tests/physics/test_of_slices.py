"""Noise levels and seeds of slices: one for all or one for each, and what is refused."""

import numpy as np
import pytest
import torch

from upmri.core.errors import InputError
from upmri.physics.identity import IdentityOperator
from upmri.physics.of_slices import noise_levels, seeds_of_slices
from upmri.physics.problem import Problem


@pytest.mark.parametrize("sigma", [-1, float("nan"), float("inf"), [0.1, 0.2, 0.3], "much", True, 1j])
def test_wrong_noise_levels_are_refused(sigma):
    with pytest.raises(InputError, match="sigma: expected σ₀ ≥ 0, one number or 2, one per slice"):
        Problem(IdentityOperator((2, 4, 4)), torch.ones(2, 4, 4), sigma=sigma)


@pytest.mark.parametrize("sigma", [0, 0.5, [0, 1], np.array([0.5, 1], np.float32), torch.tensor([2.0])])
def test_noise_levels_are_tensors(sigma):
    assert torch.equal(noise_levels(sigma, 2), torch.as_tensor(sigma))


def test_a_noise_level_may_come_later():
    later = torch.ones(2).clone
    assert noise_levels(later, 2) is later
    assert noise_levels(None, 2) is None


def test_seeds():
    assert seeds_of_slices(3, 2) == (3, 3)
    assert seeds_of_slices(np.array([4, 5]), 2) == (4, 5)
    with pytest.raises(InputError, match="seeds: expected one number or 3, one per slice, got 2"):
        seeds_of_slices([1, 2], 3)
    for wrong in (1.5, "ab", None, [1, 2.5], 2**63):
        with pytest.raises(InputError, match="seeds: expected a whole number"):
            seeds_of_slices(wrong, 2)
