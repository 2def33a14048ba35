"""Other contrasts and phases: what may change, what must not."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from upmri.cli import demo
from upmri.physics.contrast import vary, with_fat

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
    varied = vary(image, generator(seed)).abs()
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
    peak = image.flatten().quantile(0.999)
    varied = peak * vary(image, generator(seed)).abs()
    factor = (varied / image).double().log()
    basis = cosines(2, image.shape)
    fit = torch.linalg.lstsq(basis[:, :, 1::2].flatten(1).mT, factor[:, 1::2].reshape(-1, 1)).solution
    smooth = (fit[:, :, None] * basis).sum(0)
    return (varied / smooth.exp())[:, ::2]


def test_what_is_dark_stays_dark(brain):
    """Below a tenth of the 99.9th percentile nothing changes but by the shading, a smooth factor."""
    grey = torch.from_numpy(brain.copy()) / np.percentile(brain, 99.9)
    for seed in range(20):
        varied = vary(brain, generator(seed)).abs()
        factor = (varied / grey)[(grey > 0) & (grey <= 0.1)].log()
        assert factor.abs().max() < 2  # six deviations
        assert (varied[grey == 0] == 0).all()
        assert varied[grey <= 0.1].max() < varied[grey > 0.5].quantile(0.5)


@given(seed=st.integers(0, 2**62), scale=st.floats(1e-6, 1e6), kind=st.sampled_from(["noise", "flat", "zero", "few"]))
def test_the_result_is_an_image_whatever_the_image(seed, scale, kind):
    image = scale * torch.rand(SHAPE, generator=generator(seed))
    image = {"noise": image, "flat": torch.full(SHAPE, scale), "zero": 0 * image, "few": image * (image > 0.99 * scale)}
    before = image[kind].clone()
    varied = vary(image[kind], generator(seed))
    assert torch.equal(image[kind], before)
    assert varied.shape == SHAPE
    assert varied.dtype == torch.complex64
    assert torch.view_as_real(varied).isfinite().all()
    assert torch.equal(varied == 0, image[kind] == 0)


def test_the_units_are_those_of_the_99_9th_percentile(brain):
    one, other = vary(brain, generator(0)), vary(1e4 * brain.astype(np.float64), generator(0))
    assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    peaks = torch.stack([vary(brain, generator(seed)).abs().flatten().quantile(0.999) for seed in range(40)])
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
    ranks = [spearmanr(brain[inside], vary(brain, generator(seed)).abs()[inside]).statistic for seed in range(60)]
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


def test_a_pixel_depends_on_its_own_grey_value_and_its_place():
    """So the field is the same whatever lies around; shuffled, the other half still has the same percentile."""
    image = torch.rand(SHAPE, generator=generator(0))
    other = image.clone()
    other[:, ::2] = image[torch.randperm(SHAPE[0], generator=generator(1))][:, ::2]
    for seed in range(5):
        one, two = (vary(each, generator(seed)) for each in (image, other))
        assert torch.allclose(one[:, 1::2], two[:, 1::2], atol=1e-6)
        assert not torch.allclose(one[:, ::2], two[:, ::2], atol=0.1)


def phases(shape, count, value=1.0):
    """Of an image of one grey value: fields alone."""
    return torch.stack([vary(torch.full(shape, value), generator(seed)).angle() for seed in range(count)])


def turned(phase, axis):
    """Differences of neighbours, in (−π, π]."""
    step = phase.diff(dim=axis)
    return torch.atan2(step.sin(), step.cos())


def test_fields_are_smooth_and_some_turn_several_times():
    phase = phases((96, 96), 60)
    steps = torch.cat([turned(phase, -1).abs().flatten(1), turned(phase, -2).abs().flatten(1)], 1)
    assert steps.max() < 2.5  # the steepest source, 9 rad over 4 % of the image, is 1.5 rad a pixel
    assert steps.quantile(0.99, dim=1).median() < 0.3
    along = turned(phase, -1).cumsum(-1)
    turns = (along.amax(-1) - along.amin(-1)).amax(-1) / (2 * math.pi)
    assert (turns > 1).float().mean() > 0.3
    assert turns.median() < 2
    assert phase.mean((1, 2)).std() > 0.5  # no phase is preferred


def test_tissues_have_a_phase_of_their_own():
    """From one grey value to another the phase changes by the same angle everywhere, in another way each time."""
    angles = []
    for seed in range(40):
        one, two = (
            vary(torch.full(SHAPE, 1.0).index_fill(1, torch.arange(8, 16), grey), generator(seed))
            for grey in (0.3, 0.6)
        )
        change = (two * one.conj())[:, 8:16].angle()
        assert (change - change.mean()).abs().max() < 1e-3
        assert (two * one.conj())[:, 16:].angle().abs().max() < 1e-3
        angles.append(change.mean())
    assert 0.02 < torch.stack(angles).std() < 0.4


# --- fat --------------------------------------------------------------------------------------------------------------


def head(shape=(96, 80), skull=True):
    """An ellipse with a dark ring in it, and how far in each pixel lies, 0 at the centre and 1 on the outline."""
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in shape), indexing="ij")
    radius = ((y / 0.8) ** 2 + (x / 0.7) ** 2).sqrt()
    image = (radius < 1).float()
    if skull:
        image[(radius > 0.82) & (radius < 0.9)] = 0
    return image + 0j, radius


@pytest.mark.parametrize("shape", [(96, 80), (95, 81)])
def test_fat_is_the_outermost_layer_and_what_lies_deeper_stays(shape):
    image, radius = head(shape)
    changes = torch.stack([(with_fat(image, generator(seed)) - image).abs() for seed in range(30)])
    assert changes[:, radius < 0.5].max() < 0.15  # the ringing of edges, no more
    assert changes[:, radius < 0.5].mean() < 0.02
    rim = (radius > 0.95) & (radius < 0.97)
    assert changes[:, rim].mean() > 0.3
    assert changes[:, radius > 1.2].mean() < 0.05


def test_fat_has_a_phase_and_a_brightness_of_its_own():
    image, radius = head(skull=False)
    rim = (radius > 0.93) & (radius < 0.97)
    fats = torch.stack([with_fat(image, generator(seed))[rim] for seed in range(200)])
    means = fats.mean(1)
    assert (means / means.abs()).mean().abs() < 0.2  # any phase
    brightness = fats.abs().median(1).values
    assert 0.2 < brightness.quantile(0.1) < 0.6
    assert 0.95 < brightness.quantile(0.9) < 1.4
    assert (fats.angle() - means.angle()[:, None]).cos().mean() > 0.6  # but all around much the same


def test_fat_shifts_along_the_readout_only():
    """The centre of what is new beyond the outline, a bar's: by up to two pixels this way or that."""
    image = torch.zeros(64, 64, dtype=torch.complex64)
    image[20:44, 8:56] = 1
    before, after = [], []
    for seed in range(60):
        energy = with_fat(image, generator(seed)).abs().square()
        before.append(energy[:20, 16:48].sum() / energy.sum())
        after.append(energy[44:, 16:48].sum() / energy.sum())
        sides = energy[24:40, :6].sum() + energy[24:40, 58:].sum()
        assert sides < 0.03 * energy.sum()
    for shares in (before, after):
        assert max(shares) > 0.02
        assert min(shares) < 0.005


def test_edges_ring_as_those_of_a_scanner_do():
    """Cut from a finer grid, the image has lobes of alternating sign; a mask times a phase has none."""
    image, radius = head(skull=False)
    outside = torch.stack([with_fat(image, generator(seed)) for seed in range(20)])[:, radius > 1.05]
    assert (outside.abs() > 0.01).float().mean() > 0.2
    assert (image[radius > 1.05] == 0).all()


@given(seed=st.integers(0, 2**62), kind=st.sampled_from(["noise", "flat", "zero", "point"]))
def test_fat_makes_an_image_of_any_image(seed, kind):
    noise = torch.randn(SHAPE, generator=generator(seed), dtype=torch.complex64)
    point = torch.zeros(SHAPE, dtype=torch.complex64).index_put(
        (torch.tensor(3), torch.tensor(4)), torch.tensor(1 + 0j)
    )
    image = {"noise": noise, "flat": torch.ones(SHAPE) + 0j, "zero": 0 * noise, "point": point}[kind]
    made = with_fat(image, generator(seed))
    assert made.shape == SHAPE
    assert made.dtype == torch.complex64
    assert torch.view_as_real(made).isfinite().all()
    assert torch.equal(made, with_fat(image, generator(seed)))
    assert made.norm() <= 1.4 * image.norm()
