"""Comparison on a small part: that it is a scan of its own, which lines are held out, and the lead in decibels."""

import math

import pytest
import torch

from upmri.learning import preference
from upmri.learning.held_out import HeldOut
from upmri.learning.partition import misfit
from upmri.learning.preference import choose, errors_by_unit, lead, small_part
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import calibration_region, poisson_disc, random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

H, W, COILS = 200, 160, 3


def unit_maps(rng, *shape):
    maps = rng(*shape)
    return maps / maps.abs().square().sum(1, keepdim=True).sqrt()


def lines_problem(rng, slices=1, rate=4, noise=0.0, **settings):
    """A scan of whole lines, and its image, which is dark but for rows 30 to 169."""
    maps, image = unit_maps(rng, slices, COILS, H, W), rng(slices, H, W)
    image[:, :30] = 0
    image[:, 170:] = 0
    mask = torch.stack([random_lines(W, rate, acs=8, seed=i) for i in range(slices)])
    kspace = (fft2c(maps * image[:, None]) + noise * rng(slices, COILS, H, W)) * mask[:, None]
    return Problem(SenseOperator(maps, mask), kspace, sigma=noise, scaled=True, **settings), image


def windows_of(problem, image):
    """Images of the two windows, found by their maps, which differ from row to row."""
    part = small_part(problem)
    rows = part.operator.shape[1]
    maps = problem.operator.maps[0]
    starts = [int((maps - mine[:, :1]).abs().sum((0, 2)).argmin()) for mine in part.operator.maps]
    assert all(
        torch.equal(mine, maps[:, start : start + rows]) for mine, start in zip(part.operator.maps, starts, strict=True)
    )
    return starts, torch.stack([image[0, start : start + rows] for start in starts])


def inputs_of(problem, turns=1):
    """The problem that reconstructions get; of both turns, if the second reconstruction seems to be better."""
    found = []

    def record(inputs):
        found.append(inputs)
        return torch.zeros_like(inputs.adjoint)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preference, "_CLEAR", math.inf)  # a lead is never clear after one turn
        errors_by_unit([lambda inputs: 9 * inputs.adjoint, record] if turns == 2 else [record], problem)
    assert len(found) == turns
    return found[0] if turns == 1 else found


def test_rows_of_the_image_are_a_scan_of_their_own(rng):
    """Two windows of 51 rows: their images have the data of the part exactly."""
    problem, image = lines_problem(rng)
    part = small_part(problem)
    assert part.operator.shape == (2, 51, W)
    starts, rows = windows_of(problem, image)
    assert torch.allclose(part.operator(rows), part.kspace, atol=1e-10)
    # A quarter of the energy is above the middle of the first window, and below that of the second.
    assert starts == pytest.approx([30 + 35 - 25, 170 - 35 - 25], abs=3)


def test_windows_stay_inside_small_images(rng):
    for height, rows in ((64, 32), (48, 24), (31, 15), (1, 1)):
        maps = unit_maps(rng, 1, COILS, height, 64)
        operator = SenseOperator(maps, random_lines(64, 2, acs=8, seed=0))
        image = rng(1, height, 64)
        image[:, 1:] = 0  # all energy at the edge
        problem = Problem(operator, operator(image), sigma=0.1, scaled=True)
        part = small_part(problem)
        assert part.operator.shape == (2, rows, 64)
        assert torch.allclose(part.operator(windows_of(problem, image)[1]), part.kspace, atol=1e-10)


def test_rows_have_the_noise_of_the_scan(rng):
    problem, _ = lines_problem(rng, noise=0.1)
    noise = 0.1 * rng(1, COILS, H, W)
    part = small_part(Problem(problem.operator, noise, sigma=0.1, scaled=True))
    assert torch.equal(part.sigma, torch.tensor([0.1, 0.1]))
    assert part.kspace.abs().square().mean().sqrt() == pytest.approx(0.1, rel=0.03)


def test_2d_masks_keep_the_centre_of_k_space_on_the_scale_of_the_scan(rng):
    """An image without high frequencies is the same at every second pixel; noise of half the deviation is left."""
    small, size = 128, 256
    spectrum = torch.zeros(1, size, size, dtype=torch.complex128)
    spectrum[:, 64:192, 64:192] = rng(1, small, small)
    image, noise = ifft2c(spectrum), 0.1 * rng(1, 2, size, size)
    maps = torch.full((1, 2, size, size), 0.5**0.5, dtype=torch.complex128)
    mask = poisson_disc((size, size), 4, (16, 16), seed=0)[None]
    parts = [
        small_part(Problem(SenseOperator(maps, mask), data, sigma=0.1, scaled=True))
        for data in (fft2c(maps * image[:, None]), noise)
    ]
    for part in parts:
        assert part.operator.shape == (1, small, small)
        assert torch.equal(part.operator.mask, mask[:, 64:192, 64:192])
        assert part.sigma.item() == pytest.approx(0.05)
    low = image[:, ::2, ::2]
    masked = parts[0].kspace * parts[0].operator.mask[:, None]
    assert torch.allclose(parts[0].operator(low), masked, atol=1e-10)
    assert parts[1].kspace.abs().square().mean().sqrt() == pytest.approx(0.05, rel=0.03)


@pytest.mark.parametrize("shape", [(131, 130), (100, 333), (16, 24)])
def test_2d_masks_of_any_size(rng, shape):
    mask = poisson_disc(shape, 3, (8, 8), seed=0)[None]
    problem = Problem(SenseOperator(unit_maps(rng, 1, 2, *shape), mask), rng(1, 2, *shape), sigma=0.1, scaled=True)
    part = small_part(problem)
    assert part.operator.shape == (1, *(min(length, 128) for length in shape))
    assert part.sigma.item() == pytest.approx(0.1 * math.sqrt(math.prod(part.operator.shape) / math.prod(shape)))
    assert torch.allclose(part.operator.maps.abs().square().sum(1), torch.ones(()).double())


def test_a_problem_in_other_units_gives_the_same_comparison(rng):
    problem, _ = lines_problem(rng, noise=0.1)
    scaled = Problem(problem.operator, 50 * problem.kspace, sigma=5.0)
    part, whole = small_part(scaled), scaled
    assert torch.allclose(part.sigma, whole.sigma.expand(2))
    assert part.adjoint.abs().quantile(0.999) == pytest.approx(1, rel=0.2)


def test_a_few_slices_spread_evenly(rng):
    problem, _ = lines_problem(rng, slices=7)
    part = small_part(problem)
    assert len(part) == 6
    assert torch.equal(part.operator.mask, problem.operator.mask[[1, 3, 5, 1, 3, 5]])
    two, _ = lines_problem(rng, slices=2)
    assert torch.equal(small_part(two).operator.mask, two.operator.mask[[0, 1, 0, 1]])


@pytest.mark.parametrize("rate", [2, 4, 8])
def test_lines_near_the_calibration_lines_are_held_out_in_turn(rng, rate):
    problem, _ = lines_problem(rng, slices=2, rate=rate)
    inputs = inputs_of(problem)
    held_out = small_part(problem).lines & ~inputs.lines
    for index in (0, 1):
        mask, (one, other) = problem.lines[index, 0], held_out[[index, index + 2], 0]
        assert not (one & other).any()
        outer = mask.clone()
        outer[calibration_region(mask[None], H)[1]] = False
        assert not ((one | other) & ~outer).any()
        distance = (torch.arange(W) - W // 2).abs()
        count = math.ceil(int(outer.sum()) / 4)
        assert one.sum() == count
        assert count - 1 <= other.sum() <= count
        assert distance[one | other].max() <= distance[outer & ~(one | other)].min()
        # In turn: of two neighbours in the order of the distance, each window holds out one.
        first = distance[one].sort().values[: int(other.sum())]
        assert (first <= distance[other].sort().values).all()


def test_in_the_second_turn_the_windows_change_places(rng):
    problem, _ = lines_problem(rng, slices=2, noise=0.1)
    part, both = small_part(problem), inputs_of(problem, turns=2)
    first, second = (part.lines & ~inputs.lines for inputs in both)
    assert torch.equal(second, first[[2, 3, 0, 1]])


def test_a_second_turn_only_if_another_leads_the_first_and_not_clearly(rng, monkeypatch):
    problem, _ = lines_problem(rng, noise=0.1)
    calls = []

    def good(inputs):
        calls.append("good")
        return inputs.operator.solve(inputs.adjoint, 0.01)

    def poor(inputs):
        calls.append("poor")
        return 9 * inputs.adjoint

    once, clear = errors_by_unit([good, poor, poor], problem), errors_by_unit([poor, good], problem)
    assert calls == ["good", "poor", "poor", "poor", "good"]
    assert torch.equal(clear, once[[1, 0]])
    monkeypatch.setattr(preference, "_CLEAR", math.inf)
    twice = errors_by_unit([poor, good], problem)
    assert calls[5:] == ["poor", "good", "poor", "good"]
    assert torch.equal(twice[:, : once.shape[1]], clear)
    assert once.shape[1] < twice.shape[1]


def test_an_eighth_of_the_points_of_a_2d_mask(rng):
    mask = poisson_disc((H, W), 4, (16, 16), seed=0)[None]
    problem = Problem(SenseOperator(unit_maps(rng, 1, COILS, H, W), mask), rng(1, COILS, H, W), sigma=0.1, scaled=True)
    part = small_part(problem)
    held_out = part.lines & ~inputs_of(problem).lines
    rows, columns = calibration_region(part.lines[0], part.operator.shape[1])
    assert not held_out[0, rows, columns].any()
    outer = part.lines.sum() - part.lines[0, rows, columns].sum()
    assert held_out.sum() == math.ceil(outer / 8)


@pytest.mark.parametrize("kind", ["lines", "points", "other operator"])
def test_errors_of_units_add_up_to_that_on_the_held_out_lines(rng, kind):
    problem, _ = lines_problem(rng, noise=0.1)
    if kind == "points":
        mask = poisson_disc((H, W), 4, (16, 16), seed=0)[None]
        problem = Problem(SenseOperator(problem.operator.maps, mask), rng(1, COILS, H, W), sigma=0.1, scaled=True)
    if kind == "other operator":
        problem = Problem(problem.operator.scaled(2.0), problem.kspace, sigma=0.1, scaled=True)
    part = small_part(problem)
    assert (part is problem) == (kind == "other operator")
    guess = rng(*part.operator.shape)
    found = errors_by_unit([lambda inputs: inputs.adjoint, lambda _: 9 * guess], problem)  # the first is better
    inputs = inputs_of(problem)
    held_out = part.lines & ~inputs.lines
    test = HeldOut.split(part, held_out)
    units = {"lines": 4 * held_out.sum(), "points": held_out.any(1).sum(), "other operator": held_out.sum()}
    assert found.shape == (2, units[kind])
    for errors, image in zip(found, (inputs.adjoint, 9 * guess), strict=True):
        assert errors.sum() == pytest.approx(misfit(image, test.lines).sum().item(), rel=1e-6)


def test_a_unit_is_a_line_in_a_block_of_rows(rng):
    """An image that is right but in the second block of the first window has errors in that block alone."""
    problem, image = lines_problem(rng)
    part, (_, rows) = small_part(problem), windows_of(problem, image)
    wrong = rows + 1e-3
    wrong[0, 13:26] += 1  # 51 rows are 13, 13, 13 and 12
    errors = errors_by_unit([lambda _: rows + 1e-6, lambda _: wrong], problem)
    lines = (part.lines & ~inputs_of(problem).lines).sum((1, 2))
    off = (errors[1] > 1).nonzero().flatten()
    assert torch.equal(off, torch.arange(lines[0], 2 * lines[0]))


def pairs(ratios, size=1.0):
    """Errors and others with these ratios in dB; ``size`` is the mean of both."""
    ratio = 10 ** (torch.as_tensor(ratios).double() / 10)
    return 2 * size / (1 + ratio), 2 * size * ratio / (1 + ratio)


def test_the_lead_and_its_standard_error_in_decibels():
    mean, error = lead(*pairs([1.0, 2.0, 4.0, 5.0]))
    assert mean == pytest.approx(3)
    assert error == pytest.approx(math.sqrt(10) / 4)
    assert lead(torch.ones(1), torch.ones(1)) == (0.0, math.inf)
    assert lead(torch.ones(0), torch.ones(0)) == (0.0, math.inf)


def test_the_weight_of_a_unit_is_the_root_of_its_error():
    mean, error = lead(*pairs([2.0, 6.0], torch.tensor([1.0, 9.0])))  # weights 1 and 3
    assert mean == pytest.approx(5)
    assert error == pytest.approx(math.hypot(1 * 3, 3 * 1) / 4)


@pytest.mark.parametrize(
    ("mean", "error", "chosen"),
    [(-5.0, 0.1, 0), (0.0, 0.1, 0), (0.01, 0.01, 0), (0.02, 0.01, 1), (1.4, 1.0, 0), (1.6, 1.0, 1), (9.0, 1.0, 1)],
)
def test_others_are_chosen_beyond_some_standard_errors(mean, error, chosen):
    ratios = 2 * error * torch.tensor([-1.0, 1.0, -1.0, 1.0]).double() + mean
    errors = torch.stack(pairs(-ratios))  # the second row is ahead of the first
    assert choose(errors) == chosen
    assert choose(torch.stack([*errors, errors[0] / 100])) == 2


def test_where_there_is_nothing_to_compare_the_first_is_chosen(rng):
    """Slices of zeros, and scans without lines outside the centre."""
    problem, _ = lines_problem(rng)
    centre = torch.zeros(1, 1, W, dtype=torch.bool)
    centre[..., W // 2 - 2 : W // 2 + 2] = True
    for empty in (
        Problem(problem.operator, 0 * problem.kspace, sigma=0.1, scaled=True),
        Problem(problem.operator.restrict(centre), problem.kspace, sigma=0.1, scaled=True),
    ):
        errors = errors_by_unit([lambda inputs: inputs.adjoint] * 2, empty)
        assert errors.shape == (2, 0)
        assert choose(errors) == 0
