"""Classical methods over time: conditions of the minimum, closed forms, and BART."""

import math

import numpy as np
import pytest
import torch

from upmri.core.errors import InputError
from upmri.methods.llr import LocallyLowRank
from upmri.methods.low_rank_sparse import LowRankSparse, over_time
from upmri.methods.tv_time import TvTime
from upmri.physics import Problem, SenseOperator, simulate_series
from upmri.physics.time_average import by_series

FRAMES = 6
METHODS = [LocallyLowRank(steps=20), LowRankSparse(low_rank=0.002, sparse=0.005, steps=20), TvTime(steps=20)]


@pytest.fixture(scope="module")
def scan():
    """A body with a disc that grows and shrinks."""
    y, x = np.mgrid[-1:1:32j, -1:1:32j]
    body = 0.5 * (np.hypot(x, y) < 0.8)
    beats = [body + 0.5 * (np.hypot(x, y) < 0.3 + 0.15 * np.sin(2 * np.pi * t / FRAMES)) for t in range(FRAMES)]
    return simulate_series(np.stack(beats), coils=6, acceleration=3, seed=1)


@pytest.fixture(scope="module")
def problem(scan):
    """The problem in the scan's own units, in which BART works."""
    operator = SenseOperator(scan.maps, scan.mask)
    return Problem(operator, scan.kspace, sigma=scan.noise, reference=scan.reference, scaled=True, frames=FRAMES)


def error(image, reference):
    return float((image - reference).norm() / reference.norm())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_they_are_better_than_sense(problem, method):
    sense = problem.operator.solve(problem.adjoint, 0.005)
    assert error(method.reconstruct(problem), problem.reference) < 0.7 * error(sense, problem.reference)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_series_do_not_mix(scan, problem, method):
    maps, mask = torch.cat([scan.maps, scan.maps.flip(-1)]), torch.cat([scan.mask, scan.mask])
    kspace = torch.cat([scan.kspace, 2 * scan.kspace.flip(-2)])
    two = Problem(SenseOperator(maps, mask), kspace, sigma=scan.noise, scaled=True, frames=FRAMES)
    assert torch.allclose(method.reconstruct(two)[:FRAMES], method.reconstruct(problem.with_seeds(0)), atol=1e-4)


def test_locally_low_rank_is_that_of_bart(scan, problem, pics):
    """BART's threshold is λ (√M + √T + √log(B min(M, T))) for B blocks, and a step of 0.95 along A*(y − Ax) is last."""
    lam, blocks = 0.01, 16
    theirs = pics(scan, "-n", "-i300", f"-RL:3:3:{lam}", "-b8")
    same = lam * (1 + math.sqrt(math.log(blocks * FRAMES)) / (8 + math.sqrt(FRAMES)))
    ours = LocallyLowRank(damping=same, steps=300, shifts=False).reconstruct(problem)
    after = ours + 0.95 * (problem.adjoint - problem.operator.normal(ours))
    assert error(after, theirs) < 1e-3
    assert error(problem.operator.solve(problem.adjoint, 0.005), theirs) > 0.05


def test_total_variation_over_time_is_that_of_bart(scan, problem, pics):
    lam = 0.02
    theirs = pics(scan, "-i800", "-u1", "-C30", f"-RT:1024:0:{lam}")
    ours = TvTime(damping=lam, steps=300).reconstruct(problem)
    assert error(ours, theirs) < 5e-3
    assert error(problem.operator.solve(problem.adjoint, 0.005), theirs) > 0.05


def test_the_minimum_of_low_rank_plus_sparse(problem):
    """−∇f is λ_L times a subgradient of ‖L‖_*, and F_t of it λ_S times one of ‖F_t S‖₁."""
    weight, sparse = 0.02, 0.033
    low, moving = LowRankSparse(low_rank=weight, sparse=sparse, steps=1500).parts(problem)
    gap = problem.adjoint - problem.operator.normal(low + moving)
    limit = weight * (32 + math.sqrt(FRAMES))
    matrix, of_low = by_series(gap, FRAMES).flatten(2)[0], by_series(low, FRAMES).flatten(2)[0]
    assert torch.linalg.matrix_norm(matrix, 2) == pytest.approx(limit, rel=0.01)
    nuclear = torch.linalg.svdvals(of_low).sum()
    assert torch.vdot(matrix.flatten(), of_low.flatten()).real == pytest.approx(float(limit * nuclear), rel=0.01)
    spectrum, of_moving = over_time(gap, FRAMES), over_time(moving, FRAMES)
    assert spectrum.abs().max() < 1.02 * sparse
    size = of_moving.abs().sum()
    assert size > 1
    assert nuclear > 1
    assert torch.vdot(spectrum.flatten(), of_moving.flatten()).real == pytest.approx(float(sparse * size), rel=0.01)


def test_temporal_frequencies_are_orthonormal(rng):
    images = rng(2 * FRAMES, 3, 4)
    spectrum = over_time(images, FRAMES)
    assert spectrum.norm() == pytest.approx(float(images.norm()))
    assert torch.allclose(over_time(spectrum, FRAMES, inverse=True), images)
    assert torch.allclose(spectrum[0], images[:FRAMES].sum(0) / math.sqrt(FRAMES))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: LocallyLowRank(block=0), "block"),
        (lambda: LocallyLowRank(damping=-1.0), "damping"),
        (lambda: LowRankSparse(sparse=-1.0), "sparse"),
        (lambda: TvTime(steps=0), "steps"),
    ],
)
def test_wrong_settings(make, field):
    with pytest.raises(InputError) as found:
        make()
    assert found.value.field == field
