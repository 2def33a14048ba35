"""Other contrasts: what may change, what must not."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from upmri import demo
from upmri.physics.contrast import vary

SHAPE = (40, 32)
KNOTS = (0.1, 0.25, 0.45, 0.7)


@pytest.fixture(scope="module")
def brain():
    return demo.brain()[1]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def shading(seed):
    """log of the shading alone: an image that is dark but for a few pixels keeps its contrast."""
    image = torch.full(SHAPE, 0.05)
    image[0, :2] = 1
    varied = vary(image, generator(seed))
    grey = image / image.flatten().quantile(0.999)
    return (varied / grey).log(), image < 0.1


def cosines(order, shape=SHAPE):
    """cos(πp y) cos(πq x) with p + q ≤ order, (term, H, W)."""
    y, x = (torch.linspace(0, 1, length).double() for length in shape)
    pairs = [(p, q) for p in range(order + 1) for q in range(order + 1 - p)]
    return torch.stack([torch.outer((math.pi * p * y).cos(), (math.pi * q * x).cos()) for p, q in pairs])


def curves(seed):
    """Grey values 0, …, 1 of a ramp along each of 8 columns, and what they become, without the shading.

    Between the columns all is dark, where the shading shows and is fitted.
    """
    image = torch.full((400, 16), 0.05)
    image[:, ::2] = torch.linspace(0, 1, 400)[:, None]
    grey = image / image.flatten().quantile(0.999)
    factor = (vary(image, generator(seed)) / grey).double().log()
    basis = cosines(2, image.shape)
    fit = torch.linalg.lstsq(basis[:, :, 1::2].flatten(1).mT, factor[:, 1::2].reshape(-1, 1)).solution
    smooth = (fit[:, :, None] * basis).sum(0)
    varied = vary(image, generator(seed)) * image.flatten().quantile(0.999)
    return (varied / smooth.exp())[:, ::2]


def test_what_is_dark_stays_dark(brain):
    """Below a tenth of the 99.9th percentile nothing changes but by the shading, a smooth factor."""
    grey = torch.from_numpy(brain.copy()) / np.percentile(brain, 99.9)
    for seed in range(20):
        varied = vary(brain, generator(seed))
        factor = (varied / grey)[(grey > 0) & (grey <= 0.1)].log()
        assert factor.abs().max() < 2  # six deviations
        assert (varied[grey == 0] == 0).all()
        assert varied[grey <= 0.1].max() < varied[grey > 0.5].quantile(0.5)


@given(seed=st.integers(0, 2**62), scale=st.floats(1e-6, 1e6), kind=st.sampled_from(["noise", "flat", "zero", "few"]))
def test_the_result_is_a_magnitude_whatever_the_image(seed, scale, kind):
    image = scale * torch.rand(SHAPE, generator=generator(seed))
    image = {"noise": image, "flat": torch.full(SHAPE, scale), "zero": 0 * image, "few": image * (image > 0.99 * scale)}
    before = image[kind].clone()
    varied = vary(image[kind], generator(seed))
    assert torch.equal(image[kind], before)
    assert varied.shape == SHAPE
    assert varied.dtype == torch.float32
    assert varied.isfinite().all()
    assert (varied >= 0).all()
    assert torch.equal(varied == 0, image[kind] == 0)


def test_the_units_are_those_of_the_99_9th_percentile(brain):
    one, other = vary(brain, generator(0)), vary(1e4 * brain.astype(np.float64), generator(0))
    assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    peaks = torch.stack([vary(brain, generator(seed)).flatten().quantile(0.999) for seed in range(40)])
    assert 0.5 < peaks.median() < 1.5


def test_the_generator_says_which(brain):
    assert torch.equal(vary(brain, generator(3)), vary(brain, generator(3)))
    assert not torch.allclose(vary(brain, generator(3)), vary(brain, generator(4)), rtol=0.05)
    assert torch.equal(vary(brain, generator(3)), vary(torch.from_numpy(brain.copy()), generator(3)))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    vary(brain, generator(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_contrasts_are_other_contrasts(brain):
    """Ranks of the grey values in the head, before and after; shading alone keeps them at 0.9 and above."""
    inside = brain > 0.15 * np.percentile(brain, 99.9)
    ranks = [spearmanr(brain[inside], vary(brain, generator(seed)).numpy()[inside]).statistic for seed in range(60)]
    assert min(ranks) < 0  # inverted
    assert np.mean(np.array(ranks) < 0.6) > 0.2
    assert max(ranks) > 0.85  # and some nearly as they were
    assert np.median(ranks) > 0.3


def test_curves_are_straight_between_their_knots():
    """α g + (1−α) f(g): one value for one grey value, itself up to 0.1, and bends at the knots alone."""
    grey, bends = torch.linspace(0, 1, 400).double(), []
    for seed in range(30):
        curve = curves(seed)
        assert torch.allclose(curve, curve[:, :1].expand_as(curve), atol=1e-4)
        curve = curve[:, 0]
        assert torch.allclose(curve[grey <= 0.1], grey[grey <= 0.1], atol=1e-5)
        assert (curve[grey > 0.1] > 0.09).all()
        assert curve.max() < 1.01
        bend = curve.diff().diff().abs()
        assert all((grey[i + 1] - torch.tensor(KNOTS)).abs().min() < 0.004 for i in (bend > 1e-4).nonzero())
        bends.append([bend[(grey[1:-1] - knot).abs() < 0.004].max() for knot in KNOTS])
    assert (torch.tensor(bends).median(0).values > 2e-4).all()


def test_shading_is_smooth_and_of_the_stated_deviation():
    basis = cosines(2).flatten(1).mT
    total = 0.0
    for seed in range(60):
        log, dark = shading(seed)
        fit = torch.linalg.lstsq(basis[dark.flatten()], log[dark].double()[:, None]).solution
        assert (basis[dark.flatten()] @ fit - log[dark].double()[:, None]).abs().max() < 1e-5
        total += (log[dark] - log[dark].mean()).square().mean().item() / 60
    assert total**0.5 == pytest.approx(0.3, rel=0.2)
    shadings = torch.stack([shading(seed)[0][shading(seed)[1]].mean() for seed in range(20)])
    assert shadings.abs().max() < 0.01  # no change in brightness on the whole
