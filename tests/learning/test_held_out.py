"""Lines that are put aside: which, and what they say of an image."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri.learning.held_out import HeldOut
from upmri.physics.fourier import fft2c
from upmri.physics.masks import calibration_region, poisson_disc, random_lines
from upmri.physics.sense import SenseOperator

ROWS, WIDTH = 24, 40


def generators(count, seed=0):
    return [torch.Generator().manual_seed(seed + i) for i in range(count)]


def masks(whole):
    if whole:
        return torch.stack([random_lines(WIDTH, 2, acs=8, seed=i) for i in range(3)])
    return torch.stack([poisson_disc((ROWS, WIDTH), 3, (6, 6), seed=i) for i in range(3)])


@pytest.fixture
def maps(rng):
    made = rng(3, 4, ROWS, WIDTH)
    return made / made.abs().square().sum(1, keepdim=True).sqrt()


@pytest.fixture(params=[True, False], ids=["lines", "points"])
def mask(request):
    return masks(request.param)


def test_the_error_is_that_on_the_lines_put_aside(maps, mask, rng):
    """‖A_Λ x − y_Λ‖², written out; y holds more than the sampled lines, which must not matter."""
    y, x = rng(3, 4, ROWS, WIDTH), rng(3, ROWS, WIDTH)
    test = HeldOut.draw(maps, mask, y, generators(3))
    residual = fft2c(maps * x[:, None]) - y
    expected = [residual[i][:, test.judge.mask[i].expand(ROWS, -1)].abs().square().sum() for i in range(3)]
    assert torch.allclose(test.error(x), torch.stack(expected), rtol=1e-9)
    assert torch.allclose(test.error(torch.zeros_like(x)), (y * test.judge.mask[:, None]).abs().square().sum((1, 2, 3)))


def test_of_the_truth_noise_is_left(maps, mask, rng):
    x, e = rng(3, ROWS, WIDTH), 0.1 * rng(3, 4, ROWS, WIDTH)
    test = HeldOut.draw(maps, mask, fft2c(maps * x[:, None]) + e, generators(3))
    assert torch.allclose(test.error(x), (e * test.judge.mask[:, None]).abs().square().sum((1, 2, 3)), rtol=1e-9)


def test_what_is_given_knows_nothing_of_what_is_put_aside(maps, mask, rng):
    y = rng(3, 4, ROWS, WIDTH)
    test = HeldOut.draw(maps, mask, y, generators(3))
    assert not (test.operator.mask & test.judge.mask).any()
    assert torch.equal(test.operator.mask | test.judge.mask, mask)
    other = torch.where(test.judge.mask[:, None], rng(3, 4, ROWS, WIDTH), y)
    again = HeldOut.draw(maps, mask, other, generators(3))
    assert torch.equal(again.adjoint, test.adjoint)
    assert not torch.allclose(again.error(test.adjoint), test.error(test.adjoint))
    assert torch.allclose(test.adjoint, SenseOperator(maps, test.operator.mask).adjoint(y))
    assert torch.equal(test.operator.maps, maps)
    assert torch.equal(test.judge.maps, maps)


@given(whole=st.booleans(), share=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_calibration_lines_are_never_put_aside(whole, share, seed):
    mask, nothing = masks(whole), torch.zeros(3, 1, ROWS, WIDTH, dtype=torch.complex64)
    aside = HeldOut.draw(nothing, mask, nothing, generators(3, seed), share).judge.mask
    for lines, mine in zip(aside, mask, strict=True):
        rows, columns = calibration_region(mine, ROWS)
        assert lines.any()
        assert not lines[slice(None) if whole else rows, columns].any()


def test_a_fifth_of_the_others_unless_asked(mask):
    nothing = torch.zeros(3, 1, ROWS, WIDTH, dtype=torch.complex64)

    def taken(**settings):
        shares = []
        for seed in range(0, 600, 3):
            aside = HeldOut.draw(nothing, mask, nothing, generators(3, seed), **settings).judge.mask
            for lines, mine in zip(aside, mask, strict=True):
                rows, columns = calibration_region(mine, ROWS)
                outer = mine.clone()
                outer[rows if len(mine) > 1 else slice(None), columns] = False
                shares.append(lines.sum() / outer.sum())
        return torch.stack(shares).mean().item()

    # Where none was drawn, one is taken all the same: of a dozen lines, in 7 draws of 100.
    assert taken() == pytest.approx(0.2, abs=0.015)
    assert taken(share=0.5) == pytest.approx(0.5, abs=0.015)


def test_each_slice_has_a_generator_of_its_own(maps, mask, rng):
    y = rng(3, 4, ROWS, WIDTH)
    whole, same = (HeldOut.draw(maps, mask, y, generators(3)).judge.mask for _ in range(2))
    assert torch.equal(whole, same)
    alone = HeldOut.draw(maps[2:], mask[2:], y[2:], generators(1, seed=2))
    assert torch.equal(alone.judge.mask, whole[2:])
    assert not torch.equal(HeldOut.draw(maps, mask, y, generators(3, seed=10)).judge.mask, whole)


def test_in_single_precision(maps, mask, rng):
    """The error of an image that is off by 1 %: the difference of numbers 10⁴ times as large."""
    x = rng(3, ROWS, WIDTH)
    y, off = fft2c(maps * x[:, None]), x + 0.01 * rng(3, ROWS, WIDTH)
    exact = HeldOut.draw(maps, mask, y, generators(3)).error(off)
    single = torch.complex64
    rough = HeldOut.draw(maps.to(single), mask, y.to(single), generators(3)).error(off.to(single))
    assert rough.dtype == torch.float32
    assert torch.allclose(rough.double(), exact, rtol=0.02)


@pytest.mark.parametrize("turns", [1, 3, 100])
def test_in_turn_every_line_is_put_aside_once(maps, mask, rng, turns):
    y = rng(3, 4, ROWS, WIDTH)
    tests = list(HeldOut.in_turn(maps, mask, y, generators(3), turns))
    outer = mask.clone()
    for whole, mine in zip(mask, outer, strict=True):
        rows, columns = calibration_region(whole, ROWS)
        mine[rows if len(whole) > 1 else slice(None), columns] = False
    aside = torch.stack([test.judge.mask for test in tests])
    assert torch.equal(aside.sum(0), outer.int())
    counts = aside.sum((2, 3))
    assert (counts.amax(0) - counts.amin(0) <= 1).all()  # evenly
    assert len(tests) == min(turns, outer.sum((1, 2)).max())
    for test in tests:
        assert torch.equal(test.operator.mask, mask & ~test.judge.mask)
        assert torch.allclose(test.adjoint, test.operator.adjoint(y))
    again = [test.judge.mask for test in HeldOut.in_turn(maps, mask, y, generators(3, seed=10), turns)]
    assert turns != 3 or not torch.equal(torch.stack(again), aside)


def test_where_there_are_calibration_lines_alone_they_are_put_aside(maps, rng):
    """All but the four at the centre."""
    lines = torch.zeros(3, 1, WIDTH, dtype=torch.bool)
    lines[..., WIDTH // 2 - 5 : WIDTH // 2 + 5] = True
    tests = HeldOut.in_turn(maps, lines, rng(3, 4, ROWS, WIDTH), generators(3), 4)
    aside = torch.stack([test.judge.mask for test in tests]).sum(0)
    lines[..., WIDTH // 2 - 2 : WIDTH // 2 + 2] = False
    assert torch.equal(aside, lines.int())
