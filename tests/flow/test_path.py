"""Points of the path, noise, and random times."""

import math

import pytest
import torch

from upmri.core.errors import InputError
from upmri.flow.path import TimeLaw, evaluate_field, interpolate, noise


def test_ends_of_the_path(rng):
    x0, x1 = rng(2, 4, 4), rng(2, 4, 4)
    assert torch.equal(interpolate(x0, x1, torch.zeros(2)), x0)
    assert torch.equal(interpolate(x0, x1, torch.ones(2)), x1)
    middle = interpolate(x0, x1, torch.tensor([0.25, 0.5]))
    assert torch.allclose(middle[0], 0.75 * x0[0] + 0.25 * x1[0])


def test_noise_has_variance_2():
    x1 = noise(torch.empty(100, 40, 40, dtype=torch.complex64), torch.Generator().manual_seed(0))
    assert torch.allclose(x1.abs().square().mean(), torch.tensor(2.0), rtol=0.01)
    assert torch.allclose(x1.square().mean().abs(), torch.tensor(0.0), atol=0.02)


def test_logit_normal_quantiles():
    t = TimeLaw(location=-1.5, scale=0.8).draw(200_000, torch.Generator().manual_seed(0))
    for n, share in ((-1.0, 0.1587), (0.0, 0.5), (2.0, 0.9772)):
        edge = torch.sigmoid(torch.tensor(-1.5 + 0.8 * n))
        assert abs((t < edge).float().mean() - share) < 0.005


def test_a_share_of_zeros():
    t = TimeLaw(at_zero=0.3).draw(100_000, torch.Generator().manual_seed(0))
    assert abs((t == 0).float().mean() - 0.3) < 0.01


def test_one_time_per_generator():
    """The time of a slice alone is its time in a stack."""
    law = TimeLaw(location=-1.0)
    both = law.draw_each([torch.Generator().manual_seed(seed) for seed in (3, 4)])
    for i, seed in enumerate((3, 4)):
        assert torch.equal(law.draw(1, torch.Generator().manual_seed(seed)), both[i : i + 1])


def test_noise_of_a_slice_is_the_same_alone_as_in_a_stack(rng):
    like = rng(3, 2, 5, 6)
    both = noise(like, [torch.Generator().manual_seed(seed) for seed in (3, 4)])
    assert both.shape == like.shape
    for i, seed in enumerate((3, 4)):
        part = slice(i, i + 1)
        assert torch.equal(noise(like[:, part], torch.Generator().manual_seed(seed)), both[:, part])


def test_a_field_is_evaluated_with_all_leading_axes_as_slices(rng):
    z, shapes = rng(3, 2, 5, 6), []

    def field(flat, t):
        shapes.append((flat.shape, t.tolist()))
        return flat * torch.arange(6)[:, None, None]

    found = evaluate_field(field, z, 0.25)
    assert shapes == [((6, 5, 6), [0.25] * 6)]
    assert torch.equal(found, z * torch.arange(6).reshape(3, 2, 1, 1))


@pytest.mark.parametrize(
    ("field", "value"),
    [("scale", -1.0), ("at_zero", 1.2), ("at_zero", -0.1), ("location", math.nan), ("scale", math.inf)],
)
def test_a_law_without_times_is_refused(field, value):
    with pytest.raises(InputError) as error:
        TimeLaw(**{field: value})
    assert error.value.field == field
