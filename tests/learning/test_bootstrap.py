"""Moved lines keep number and density; the errors of SENSE have a known mean and covariance."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from upmri.learning import bootstrap
from upmri.learning.bootstrap import bootstrap_errors, deviation, draw_errors, move_lines
from upmri.physics.masks import calibration_region, equispaced, poisson_disc, random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

ROWS = 24
DAMPING = 0.05


@st.composite
def masks(draw):
    """Whole lines, (1, W), or points, (24, W): random, equispaced or all, with and without calibration lines."""
    width, seed = draw(st.integers(8, 48)), draw(st.integers(0, 2**31))
    rate = draw(st.sampled_from([1.0, 1.15, 1.5, 2.0, 3.0, 4.0]))
    kind = draw(st.sampled_from(["random", "equispaced", "points", "bare", "full"]))
    if kind == "random":
        return random_lines(width, rate, acs=draw(st.integers(0, int(width / rate) - 1)), seed=seed)
    if kind == "equispaced":
        return equispaced(width, round(rate), acs=draw(st.integers(0, width // 2)), offset=seed % round(rate))
    if kind == "points":
        side = draw(st.integers(0, 4))
        return poisson_disc((ROWS, width), rate, (side, side), seed=seed)
    mask = torch.ones(draw(st.sampled_from([1, ROWS])), width, dtype=torch.bool)
    if kind == "bare":
        mask &= torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)) < 1 / rate
        mask[len(mask) // 2, width // 2] = False
        mask[0, 0] = True
    return mask


def calibration(mask):
    rows, columns = calibration_region(mask, ROWS)
    region = torch.zeros_like(mask)
    region[rows if len(mask) > 1 else slice(None), columns] = True
    return region


def reach(mask):
    """R, along each axis."""
    rate = mask.numel() / int(mask.sum())
    return max(1, round(rate if len(mask) == 1 else rate**0.5))


@given(mask=masks(), seed=st.integers(0, 2**62))
def test_the_number_of_lines_stays_and_none_moves_further_than_r(mask, seed):
    before, fixed = mask.clone(), calibration(mask)
    after = move_lines(mask, ROWS, torch.Generator().manual_seed(seed))
    assert torch.equal(mask, before)
    assert after.dtype == torch.bool
    assert after.shape == mask.shape
    assert after.sum() == mask.sum()
    assert torch.equal(after & fixed, mask & fixed)
    old, new = (part.nonzero().double() for part in (mask & ~fixed, after & ~fixed))
    near = torch.cdist(old, new, p=torch.inf) <= reach(mask)
    if len(old):  # a matching of old and new lines
        assert (maximum_bipartite_matching(csr_array(near.numpy())) >= 0).all()


@pytest.mark.parametrize("shape", [(1, 32), (ROWS, 32)])
def test_in_a_full_mask_nothing_moves(shape):
    mask = torch.ones(shape, dtype=torch.bool)
    assert torch.equal(move_lines(mask, ROWS, torch.Generator()), mask)


@pytest.mark.parametrize("mask", [random_lines(96, 4), equispaced(96, 4, acs=0, offset=1), poisson_disc((24, 32), 4)])
def test_lines_move_and_the_generator_decides_where(mask):
    one, same, other = (move_lines(mask, ROWS, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    free = mask & ~calibration(mask)
    assert (one & free).sum() < 0.5 * free.sum()


@pytest.mark.parametrize(
    ("shape", "block", "place", "window"),
    [
        ((1, 48), (slice(None), slice(19, 30)), (0, 6), (slice(None), slice(2, 11))),  # R = 4
        ((1, 48), (slice(None), slice(19, 30)), (0, 1), (slice(None), slice(0, 6))),
        ((1, 48), (slice(None), slice(19, 30)), (0, 16), (slice(None), slice(12, 19))),
        ((24, 24), (slice(7, 18), slice(6, 19)), (3, 9), (slice(1, 6), slice(7, 12))),  # R = 2 along each axis
        ((24, 24), (slice(7, 18), slice(6, 19)), (0, 9), (slice(0, 3), slice(7, 12))),
    ],
)
def test_a_single_line_moves_to_every_free_place_within_r(shape, block, place, window):
    mask, around = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    mask[block] = True
    fixed, count = mask.clone(), 2000
    mask[place] = around[window] = True
    generator = torch.Generator().manual_seed(0)
    places = sum((move_lines(mask, ROWS, generator) & ~fixed).int() for _ in range(count))
    mean = count / int(around.sum())
    assert torch.equal(places > 0, around)
    assert (places[around] - mean).abs().max() < 5 * mean**0.5


def test_the_density_of_lines_stays():
    """Over many masks with a density that decreases outwards, in bands of 2R lines and more."""
    width, generator, before, after = 96, torch.Generator().manual_seed(0), 0, 0
    density = 0.1 + 0.5 * torch.linspace(-1, 1, width).abs().neg().add(1)
    for _ in range(600):
        mask = torch.rand(1, width, generator=generator) < density
        mask[0, 44:52] = True
        before, after = before + mask.int(), after + move_lines(mask, ROWS, generator).int()
    edges = (0, 12, 24, 34, 62, 72, 84, 96)
    for band in (slice(*pair) for pair in pairwise(edges)):
        assert after[0, band].sum() == pytest.approx(before[0, band].sum().item(), rel=0.06)
    assert after[0, :12].sum() < 0.5 * after[0, 24:36].sum()


def test_the_density_of_points_stays():
    shape, generator, before, after = (48, 48), torch.Generator().manual_seed(0), 0, 0
    for seed in range(30):
        mask = poisson_disc(shape, 5, (6, 6), seed=seed)
        before, after = before + mask.int(), after + move_lines(mask, 48, generator).int()
    y, x = torch.meshgrid(torch.arange(48.0) - 24, torch.arange(48.0) - 24, indexing="ij")
    radius = torch.hypot(y, x)
    for low, high in [(0, 8), (8, 14), (14, 20), (20, 40)]:
        ring = (radius >= low) & (radius < high)
        assert after[ring].sum() == pytest.approx(before[ring].sum().item(), rel=0.06)


@pytest.fixture
def problem(rng):
    """Two slices, 3 coils, 4×6, each with its own mask and σ₀."""
    maps = rng(2, 3, 4, 6)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.tensor([[True, False, True, True, False, False], [False, True, False, True, False, True]])[:, None]
    sigma = torch.tensor([0.05, 0.2]).double()
    return Problem(SenseOperator(maps, mask), rng(2, 3, 4, 6), sigma=sigma, scaled=True)


@pytest.fixture
def image(rng):
    return rng(2, 4, 6)


def sense(problem):
    return problem.operator.solve(problem.adjoint, DAMPING)


def draw(problem, image, count, seed=0):
    generators = problem.with_seeds(range(seed, seed + len(image))).generators
    return bootstrap_errors(sense, problem, image, generators, count)


@pytest.mark.parametrize("together", [8, 3])
def test_errors_of_sense_on_the_same_lines(problem, image, dense, monkeypatch, together):
    """Bias −λ (N+λ)⁻¹ x̂ and covariance σ² (N+λ)⁻¹ N (N+λ)⁻¹ of each slice, for any number of slices at a time."""
    monkeypatch.setattr(bootstrap, "move_lines", lambda mask, *_: mask)
    monkeypatch.setattr(bootstrap, "_TOGETHER", together)
    operator, sigma, count = problem.operator, problem.sigma, 1501
    off = draw(problem, image, count)
    assert off.shape == (count, 2, 4, 6)
    assert off.dtype == image.dtype
    for i in range(2):
        normal = dense(SenseOperator(operator.maps[i : i + 1], operator.mask[i : i + 1]).normal, (1, 4, 6))
        inverse = torch.linalg.inv(normal + DAMPING * torch.eye(24))
        e = off[:, i].flatten(1)
        covariance = sigma[i] ** 2 * inverse @ normal @ inverse
        deviation = covariance.diagonal().real.sqrt()
        bias = -DAMPING * inverse @ image[i].flatten()
        assert ((e.mean(0) - bias).abs() < 4 * deviation / count**0.5).all()
        assert (bias.abs() > 20 * deviation / count**0.5).any()  # so that the line above is a real check
        found = (e - e.mean(0)).mT @ (e - e.mean(0)).conj() / count
        assert ((found - covariance).abs() < 5 * deviation[:, None] * deviation / count**0.5).all()


def test_every_measurement_has_its_own_lines(problem, image, monkeypatch):
    """The moved masks of every slice reach the reconstruction, with the maps and the noise level of their slice."""
    operator, moved_from, calls = problem.operator, [], []

    def move(mask, readout, generator):
        assert readout == 4
        moved_from.append(mask)
        return move_lines(mask, readout, generator)

    def reconstruct(again):
        calls.append(again.operator)
        assert torch.equal(again.sigma, problem.sigma.repeat(len(again) // 2))
        return sense(again)

    monkeypatch.setattr(bootstrap, "move_lines", move)
    off = bootstrap_errors(reconstruct, problem, image, problem.generators, 11)
    assert off.shape == (11, 2, 4, 6)
    assert [len(again.mask) for again in calls] == [16, 6]  # at most eight measurements of two slices at a time
    assert all(torch.equal(mask, operator.mask[i // 11]) for i, mask in enumerate(moved_from))
    masks_ = torch.cat([again.mask for again in calls]).unflatten(0, (11, 2))
    assert len({tuple(mask.flatten().tolist()) for mask in masks_}) > 4
    for again in calls:
        assert torch.equal(again.maps, operator.maps.repeat(len(again.mask) // 2, 1, 1, 1))


def test_without_noise_only_the_lines_matter(problem, image):
    """x̂' − x̂ = −λ (N'+λ)⁻¹ x̂ for lines N' that moved."""
    quiet = Problem(problem.operator, problem.kspace, sigma=torch.zeros(2).double(), scaled=True)
    known = []

    def reconstruct(again):
        known.append(-DAMPING * again.operator.solve(image.repeat(len(again) // 2, 1, 1), DAMPING))
        return sense(again)

    off = bootstrap_errors(reconstruct, quiet, image, quiet.generators, 5)
    assert torch.allclose(off.flatten(0, 1), torch.cat(known), atol=1e-9)
    assert (off[0] - off[1]).norm() > 0.01 * image.norm()


def test_the_same_generators_give_the_same_errors(problem, image):
    assert torch.equal(draw(problem, image, 9), draw(problem, image, 9))
    assert not torch.allclose(draw(problem, image, 9), draw(problem, image, 9, seed=1))


@pytest.mark.parametrize("count", [1, 9, 20])
def test_a_slice_has_the_same_errors_alone_as_in_a_stack(problem, image, count):
    both = draw(problem, image, count)
    for i in range(2):
        part = slice(i, i + 1)
        operator = SenseOperator(problem.operator.maps[part], problem.operator.mask[part])
        alone = Problem(operator, problem.kspace[part], sigma=problem.sigma[part], scaled=True)
        assert torch.allclose(draw(alone, image[part], count, seed=i), both[:, part], atol=1e-12)


def test_deviation_is_a_mean_over_neighbours():
    """(|draw| − |mean|)², averaged over draws and over 5×5 pixels, or those that exist at the edge."""
    mean = torch.full((2, 9, 9), 3.0) * torch.exp(torch.tensor(0.7j))
    drawn = mean.expand(4, -1, -1, -1).clone()
    drawn[0, 0, 4, 4] *= 1 + 2 / 3  # |draw| − |mean| = 2
    drawn[1, 1, 0, 0] *= 1 - 1 / 3
    drawn[2, 0] *= 1j  # without effect on magnitudes
    std = deviation(drawn, mean)
    expected = torch.zeros(2, 9, 9)
    expected[0, 2:7, 2:7] = (2**2 / 4 / 25) ** 0.5
    for y in range(3):
        for x in range(3):
            expected[1, y, x] = (1 / 4 / ((3 + y) * (3 + x))) ** 0.5
    assert torch.allclose(std, expected, atol=1e-3)


def rough_errors(problem, image, count, seed=0):
    generators = problem.with_seeds(range(seed, seed + len(image))).generators
    return draw_errors(sense, problem, image, generators, count)


def test_errors_of_draws_without_noise(problem, image, monkeypatch):
    """±λ (N+λ)⁻¹ (x̂ ± κ ε) with the lines of the problem; ε, the errors of the first step; each sign is random."""
    quiet = Problem(problem.operator, problem.kspace, sigma=torch.zeros(2).double(), scaled=True)
    first = draw(quiet, image, 24)
    monkeypatch.setattr(bootstrap, "bootstrap_errors", lambda *_: first)
    off = rough_errors(quiet, image, 24)
    assert off.shape == (24, 2, 4, 6)
    cases = set()
    for j in range(24):
        for i in range(2):
            part = SenseOperator(quiet.operator.maps[i : i + 1], quiet.operator.mask[i : i + 1])
            signs = [(a, b) for a in (-1, 1) for b in (-1, 1)]
            expected = [a * DAMPING * part.solve((image + b * 1.3 * first[j])[i : i + 1], DAMPING)[0] for a, b in signs]
            found = [case for case, one in zip(signs, expected, strict=True) if torch.allclose(off[j, i], one)]
            assert len(found) == 1
            cases.add((i, *found[0]))
    assert len(cases) == 8


def test_the_mean_of_errors_of_draws_is_zero(problem, image):
    off = rough_errors(problem, image, 400)
    deviation_of_mean = off.abs().square().mean(0).sqrt() / 20
    assert (off.mean(0).abs() < 4 * deviation_of_mean).all()
    assert (draw(problem, image, 400).mean(0).abs() > 4 * deviation_of_mean).any()  # the first step has a bias


@pytest.mark.parametrize("count", [1, 9, 20])
def test_a_slice_has_the_same_errors_of_draws_alone_as_in_a_stack(problem, image, count):
    both = rough_errors(problem, image, count)
    assert torch.equal(both, rough_errors(problem, image, count))
    for i in range(2):
        part = slice(i, i + 1)
        operator = SenseOperator(problem.operator.maps[part], problem.operator.mask[part])
        alone = Problem(operator, problem.kspace[part], sigma=problem.sigma[part], scaled=True)
        assert torch.allclose(rough_errors(alone, image[part], count, seed=i), both[:, part], atol=1e-12)
