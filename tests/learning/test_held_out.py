"""Held-out lines: which they are, and the error of an image on them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri.core.errors import InputError
from upmri.learning.held_out import HeldOut, gain_over_sense
from upmri.physics.fourier import fft2c
from upmri.physics.identity import IdentityOperator
from upmri.physics.masks import calibration_region, poisson_disc, random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping

ROWS, WIDTH = 24, 40


def problem_of(maps, mask, y, seed=0):
    """A problem whose slices have the seeds ``seed``, ``seed`` + 1, …"""
    seeds = range(seed, seed + len(maps))
    return Problem(SenseOperator(maps, mask), y, sigma=0.1, scaled=True, seeds=seeds)


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


def test_the_error_is_that_on_the_lines_held_out(maps, mask, rng):
    """‖A_Λ x − y_Λ‖², written out; y holds more than the sampled lines, which must not matter."""
    y, x = rng(3, 4, ROWS, WIDTH), rng(3, ROWS, WIDTH)
    test = HeldOut.draw(problem_of(maps, mask, y))
    residual = fft2c(maps * x[:, None]) - y
    expected = [residual[i][:, test.lines.lines[i].expand(ROWS, -1)].abs().square().sum() for i in range(3)]
    assert torch.allclose(test.error(x), torch.stack(expected), rtol=1e-9)
    assert torch.allclose(
        test.error(torch.zeros_like(x)), (y * test.lines.lines[:, None]).abs().square().sum((1, 2, 3))
    )


def test_the_error_of_the_true_image_is_the_noise(maps, mask, rng):
    x, e = rng(3, ROWS, WIDTH), 0.1 * rng(3, 4, ROWS, WIDTH)
    test = HeldOut.draw(problem_of(maps, mask, fft2c(maps * x[:, None]) + e))
    assert torch.allclose(test.error(x), (e * test.lines.lines[:, None]).abs().square().sum((1, 2, 3)), rtol=1e-9)


def test_inputs_do_not_depend_on_held_out_lines(maps, mask, rng):
    y = rng(3, 4, ROWS, WIDTH)
    test = HeldOut.draw(problem_of(maps, mask, y))
    assert not (test.inputs.operator.mask & test.lines.lines).any()
    assert torch.equal(test.inputs.operator.mask | test.lines.lines, mask)
    other = torch.where(test.lines.lines[:, None], rng(3, 4, ROWS, WIDTH), y)
    again = HeldOut.draw(problem_of(maps, mask, other))
    assert torch.equal(again.inputs.adjoint, test.inputs.adjoint)
    assert not torch.allclose(again.error(test.inputs.adjoint), test.error(test.inputs.adjoint))
    assert torch.allclose(test.inputs.adjoint, SenseOperator(maps, test.inputs.operator.mask).adjoint(y))
    assert torch.equal(test.inputs.operator.maps, maps)
    assert torch.equal(test.lines.operator.maps, maps)


@given(whole=st.booleans(), share=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_calibration_lines_are_never_held_out(whole, share, seed):
    mask, nothing = masks(whole), torch.zeros(3, 1, ROWS, WIDTH, dtype=torch.complex64)
    aside = HeldOut.draw(problem_of(nothing, mask, nothing, seed), share).lines.lines
    for lines, mine in zip(aside, mask, strict=True):
        rows, columns = calibration_region(mine, ROWS)
        assert lines.any()
        assert not lines[slice(None) if whole else rows, columns].any()


def test_a_fifth_of_the_other_lines_by_default(mask):
    nothing = torch.zeros(3, 1, ROWS, WIDTH, dtype=torch.complex64)

    def share_of(**settings):
        shares = []
        for seed in range(0, 600, 3):
            aside = HeldOut.draw(problem_of(nothing, mask, nothing, seed), **settings).lines.lines
            for lines, mine in zip(aside, mask, strict=True):
                rows, columns = calibration_region(mine, ROWS)
                outer = mine.clone()
                outer[rows if len(mine) > 1 else slice(None), columns] = False
                shares.append(lines.sum() / outer.sum())
        return torch.stack(shares).mean().item()

    # Where none was drawn, one is taken: of a dozen lines, in 7 draws of 100.
    assert share_of() == pytest.approx(0.2, abs=0.015)
    assert share_of(share=0.5) == pytest.approx(0.5, abs=0.015)


def test_each_slice_has_its_own_generator(maps, mask, rng):
    y = rng(3, 4, ROWS, WIDTH)
    whole, same = (HeldOut.draw(problem_of(maps, mask, y)).lines.lines for _ in range(2))
    assert torch.equal(whole, same)
    alone = HeldOut.draw(problem_of(maps[2:], mask[2:], y[2:], seed=2))
    assert torch.equal(alone.lines.lines, whole[2:])
    assert not torch.equal(HeldOut.draw(problem_of(maps, mask, y, seed=10)).lines.lines, whole)


def test_in_single_precision(maps, mask, rng):
    """The error of an image that is off by 1 %: the difference of numbers 10⁴ times as large."""
    x = rng(3, ROWS, WIDTH)
    y, off = fft2c(maps * x[:, None]), x + 0.01 * rng(3, ROWS, WIDTH)
    exact = HeldOut.draw(problem_of(maps, mask, y)).error(off)
    single = torch.complex64
    rough = HeldOut.draw(problem_of(maps.to(single), mask, y.to(single))).error(off.to(single))
    assert rough.dtype == torch.float32
    assert torch.allclose(rough.double(), exact, rtol=0.02)


@pytest.mark.parametrize("turns", [1, 3, 100])
def test_in_turn_every_line_is_held_out_once(maps, mask, rng, turns):
    y = rng(3, 4, ROWS, WIDTH)
    tests = list(HeldOut.in_turn(problem_of(maps, mask, y), turns))
    outer = mask.clone()
    for whole, mine in zip(mask, outer, strict=True):
        rows, columns = calibration_region(whole, ROWS)
        mine[rows if len(whole) > 1 else slice(None), columns] = False
    aside = torch.stack([test.lines.lines for test in tests])
    assert torch.equal(aside.sum(0), outer.int())
    counts = aside.sum((2, 3))
    assert (counts.amax(0) - counts.amin(0) <= 1).all()  # evenly
    assert len(tests) == min(turns, outer.sum((1, 2)).max())
    for test in tests:
        assert torch.equal(test.inputs.operator.mask, mask & ~test.lines.lines)
        assert torch.allclose(test.inputs.adjoint, test.inputs.operator.adjoint(y))
    again = [test.lines.lines for test in HeldOut.in_turn(problem_of(maps, mask, y, seed=10), turns)]
    assert turns != 3 or not torch.equal(torch.stack(again), aside)


def test_where_there_are_calibration_lines_alone_they_are_held_out(maps, rng):
    """All but the four at the centre."""
    lines = torch.zeros(3, 1, WIDTH, dtype=torch.bool)
    lines[..., WIDTH // 2 - 5 : WIDTH // 2 + 5] = True
    tests = HeldOut.in_turn(problem_of(maps, lines, rng(3, 4, ROWS, WIDTH)), 4)
    aside = torch.stack([test.lines.lines for test in tests]).sum(0)
    lines[..., WIDTH // 2 - 2 : WIDTH // 2 + 2] = False
    assert torch.equal(aside, lines.int())


def test_parts_keep_the_noise_level_and_the_scale(maps, mask, rng):
    """Data in other units: both parts are on the scale of the whole problem."""
    y, x = 50 * rng(3, 4, ROWS, WIDTH), rng(3, ROWS, WIDTH)
    problem = Problem(SenseOperator(maps, mask), y, sigma=2.0)
    test = HeldOut.draw(problem)
    for part in (test.inputs, test.lines):
        assert torch.equal(part.sigma, problem.sigma)
        assert torch.equal(part.kspace, problem.kspace)
    whole = HeldOut.draw(problem_of(maps, mask, problem.kspace, seed=0).with_seeds(0))
    assert torch.equal(test.error(x), whole.error(x))


def test_sense_is_that_of_the_input_lines(maps, mask, rng):
    test = HeldOut.draw(problem_of(maps, mask, rng(3, 4, ROWS, WIDTH)))
    expected = test.inputs.operator.solve(test.inputs.adjoint, sense_damping(torch.tensor([0.1])).item())
    assert torch.allclose(test.sense(), expected, rtol=1e-5, atol=1e-6)


def test_the_gain_over_sense_in_decibels(maps, rng):
    """Written out; the same lines for every reconstruction, whatever the seed of the problem."""
    mask, x = masks(True), rng(3, ROWS, WIDTH)
    y = fft2c(maps * x[:, None]) + 0.1 * rng(3, 4, ROWS, WIDTH)
    problem, parts = problem_of(maps, mask, y, seed=5), []

    def reconstruct(inputs):
        parts.append(inputs.lines)
        return 0.9 * x

    found = gain_over_sense(reconstruct, problem, turns=4)
    tests = list(HeldOut.in_turn(problem_of(maps, mask, y).with_seeds(0), 4))
    assert all(torch.equal(test.inputs.lines, part) for test, part in zip(tests, parts, strict=True))
    ours, sense = (sum(test.error(image).sum() for test, image in zip(tests, images, strict=True)) for images in (
        [0.9 * x] * 4, [test.sense() for test in tests]
    ))  # fmt: skip
    assert found == pytest.approx(10 * math.log10(sense / ours))
    assert gain_over_sense(lambda inputs: HeldOut(inputs, inputs).sense(), problem) == pytest.approx(0, abs=1e-9)


def test_an_operator_without_a_mask_has_no_lines_to_hold_out(rng):
    problem = Problem(IdentityOperator((1, 4, 4)), rng(1, 4, 4))
    for hold_out in (HeldOut.draw, lambda p: list(HeldOut.in_turn(p, 2))):
        with pytest.raises(InputError) as error:
            hold_out(problem)
        assert error.value.field == "operator"


def test_where_there_is_nothing_to_compare_the_gain_is_0(maps, rng):
    """Slices of zeros, and scans without lines outside the centre."""
    y, centre = rng(3, 4, ROWS, WIDTH), torch.zeros(3, 1, WIDTH, dtype=torch.bool)
    centre[..., WIDTH // 2 - 2 : WIDTH // 2 + 2] = True
    for problem in (problem_of(maps, masks(True), 0 * y), problem_of(maps, centre, y)):
        assert gain_over_sense(lambda inputs: inputs.adjoint, problem) == 0
