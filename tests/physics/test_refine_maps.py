"""Refined coil maps: against dense linear algebra, true maps, and outlines that are wrong."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.physics import refine_maps as module
from upmri.physics.fourier import fft2c
from upmri.physics.identity import IdentityOperator
from upmri.physics.masks import poisson_disc
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.refine_maps import fit_maps, outline, refine_maps
from upmri.physics.sense import SenseOperator
from upmri.physics.waves import Waves


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))


def mask_of(kind, h, w):
    drawn = torch.rand(2, 1 if kind == "lines" else h, w, generator=torch.Generator().manual_seed(3))
    return drawn < 0.6


@pytest.mark.parametrize("kind", ["lines", "points"])
def test_maps_are_the_minimiser_over_maps_and_image(kind, monkeypatch):
    """The joint problem in coefficients and image error, as one dense least-squares problem for each slice."""
    h, w, coils, order, field, smooth, stay = 6, 8, 3, 1, 1.5, 0.01, 0.2
    x, old, y = random(2, h, w), random(2, coils, h, w, seed=1), random(2, coils, h, w, seed=2)
    mask = mask_of(kind, h, w)
    damping = torch.tensor([0.3, 0.05], dtype=torch.float64)
    monkeypatch.setattr(module, "_INNER", 1e-12)
    fitted = fit_maps(
        y, x, SenseOperator(old, mask), damping,
        order=order, field=field, smooth=smooth, stay=stay, iterations=300, tolerance=1e-12,
    )  # fmt: skip
    waves = Waves.over((h, w), order, field, x)
    n, pixels, count = 9, h * w, 9 * coils
    for i in range(2):
        basis = torch.stack([waves.maps(e[None, :, None])[0, 0] for e in torch.eye(n, dtype=x.dtype)])  # (n, h, w)

        def data(images, i=i):
            return (mask[i] * fft2c(images)).flatten(-3).movedim(0, -1)

        one = torch.eye(coils, dtype=x.dtype)
        per_coil = one[None, :, :, None, None] * (x[i] * basis)[:, None, None]  # (wave, coil, coil, h, w)
        delta = torch.eye(pixels, dtype=x.dtype).reshape(pixels, 1, h, w)
        fit = torch.cat([data(per_coil.flatten(0, 1)), data(delta * old[i])], 1)
        coil_images = per_coil.flatten(0, 1).flatten(1).T
        near_old = stay**0.5 * torch.cat([coil_images, torch.zeros(coils * pixels, pixels)], 1)
        weights = (smooth * x[i].abs().square().sum() * waves.penalty).repeat_interleave(coils)
        small = torch.diag(torch.cat([weights, damping[i].expand(pixels)]).sqrt()).to(x.dtype)
        left = torch.cat([fit, near_old, small])
        goal = [(mask[i] * y[i]).flatten(), stay**0.5 * (x[i] * old[i]).flatten(), torch.zeros(count + pixels)]
        q = torch.linalg.lstsq(left, torch.cat(goal)[:, None]).solution[:count, 0].reshape(n, coils)
        torch.testing.assert_close(fitted[i], waves.maps(q[None])[0], atol=1e-6, rtol=1e-6)


def test_the_outline_holds_dark_parts_and_all_of_an_empty_image():
    disc = torch.zeros(2, 40, 40, dtype=torch.complex64)
    disc[0, 8:32, 10:30] = 1j
    disc[0, 15:20, 15:20] = 0
    found = outline(disc)
    assert found[0, 8:32, 10:30].all()
    assert not found[0, :5].any()
    assert found[1].all()


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(image((96, 80)), coils=8, acceleration=4, seed=1)


def problem_of(scan, *, exact=False):
    maps = scan.maps if exact else upmri.estimate_maps(scan).maps
    return Problem(SenseOperator(maps, scan.mask), scan.kspace, sigma=scan.noise)


def first_image(problem, scan):
    """The true image in the phase of the problem's maps, with an error of 2 % of its peak."""
    coils = scan.maps * scan.reference[:, None]
    combined = (problem.operator.maps.conj() * coils).sum(1) / problem.scale[:, None, None]
    return combined + 0.02 * problem.operator.support * random(*combined.shape).to(combined.dtype)


def misalignment(maps, scan):
    """Share of the image's energy that maps of another direction than the true ones lose."""
    energy = scan.reference.abs().square()
    along = (scan.maps.conj() * maps).sum(1).abs().square()
    return (((1 - along) * energy).sum() / energy.sum()).item()


def test_refined_maps_are_closer_to_the_truth(scan):
    problem = problem_of(scan)
    refined = refine_maps(problem, first_image(problem, scan))
    before, after = (misalignment(p.operator.maps, scan) for p in (problem, refined))
    assert after < 0.5 * before
    assert refined.operator.support.sum() < problem.operator.support.sum()
    assert not (~refined.operator.support & (scan.reference.abs() > 0.05)).any()
    torch.testing.assert_close(refined.kspace, problem.kspace)
    torch.testing.assert_close(refined.sigma, problem.sigma)


def test_the_default_type_of_torch_changes_nothing_but_rounding(scan, double_by_default):
    problem = Problem.from_scan(scan[:1])
    expected = refine_maps(problem, scan.reference[:1]).operator.maps
    double_by_default()
    found = refine_maps(Problem.from_scan(scan[:1]), scan.reference[:1]).operator.maps
    assert (found - expected).norm() < 1e-3 * expected.norm()


def test_a_slice_does_not_depend_on_the_others(scan):
    other = upmri.simulate(image((96, 80)), coils=8, acceleration=4, seed=2)
    both = Problem.from_scans([scan, other])
    first = both.operator.solve(both.adjoint, 0.02)
    together = refine_maps(both, first).operator.maps
    alone = Problem.from_scan(other)
    torch.testing.assert_close(together[1:], refine_maps(alone, first[1:]).operator.maps, atol=1e-3, rtol=1e-3)


def test_points_are_refined_too():
    full = upmri.simulate(image((64, 64)), coils=8, acceleration=1, acs=0, seed=1)
    mask = poisson_disc((64, 64), 4, (8, 8), seed=0)[None]
    scan = replace(full, kspace=full.kspace * mask[:, None], mask=mask)
    problem = problem_of(scan)
    refined = refine_maps(problem, first_image(problem, scan))
    assert misalignment(refined.operator.maps, scan) < misalignment(problem.operator.maps, scan)


def test_pixels_with_signal_are_not_removed(scan, monkeypatch):
    problem = problem_of(scan)
    first = problem.operator.solve(problem.adjoint, 0.02)
    seen = outline(first)
    cut = seen.clone()
    cut[:, :20] = False
    monkeypatch.setattr(module, "outline", lambda _: cut)
    assert (refine_maps(problem, first).operator.support >= (seen & problem.operator.support)).all()


def test_maps_that_explain_the_samples_no_better_are_not_taken(scan):
    """The true maps, refined with an image that is all wrong."""
    problem = problem_of(scan, exact=True)
    wrong = problem.operator.support * random(1, 96, 80).to(torch.complex64)
    torch.testing.assert_close(refine_maps(problem, wrong).operator.maps, scan.maps)


def test_an_empty_slice_stays_as_it_is(scan):
    problem = Problem(SenseOperator(scan.maps, scan.mask), torch.zeros_like(scan.kspace), sigma=0.01)
    refined = refine_maps(problem, torch.zeros_like(problem.adjoint))
    torch.testing.assert_close(refined.operator.maps, scan.maps)


def test_an_operator_without_maps_is_refused():
    problem = Problem(IdentityOperator((1, 4, 4)), torch.ones(1, 4, 4, dtype=torch.complex64), sigma=0.1)
    with pytest.raises(InputError, match="coil maps") as caught:
        refine_maps(problem, problem.adjoint)
    assert caught.value.field == "refine_maps"
