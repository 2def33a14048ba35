"""Bounds from held-out lines: predictions in closed form, coverage on new scans, and scans that get none."""

import json
import math
from dataclasses import replace

import pytest
import torch

from upmri.core.errors import InputError
from upmri.core.similarity import psnr
from upmri.learning.fit_bounds import LEAST, calibrate, fit_bounds, measure_slices
from upmri.learning.held_out_bounds import Calibration, bound_slice, bound_slices, image_predictors
from upmri.learning.line_errors import NAMES, SliceLines, measure_lines
from upmri.learning.line_model import LineModel
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping
from upmri.physics.simulate import complex_normal

H, W, COILS = 16, 48, 4


def scene(seed, *, noise=None, rate=None):
    """A scan of an image with a falling spectrum: its lines, its noise level and its rate vary."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(3, generator=generator).tolist()
    maps = ifft2c(torch.nn.functional.pad(complex_normal((1, COILS, 4, 4), generator), (22, 22, 6, 6)))
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    radius = ((torch.arange(W) - W // 2) ** 2 + ((torch.arange(H) - H // 2) ** 2)[:, None]).sqrt() + 1
    image = ifft2c(complex_normal((1, H, W), generator) * 6 / radius**1.5)
    image = image / image.abs().max()
    sigma = 0.003 * 5 ** draw[0] if noise is None else noise
    mask = random_lines(W, 2 + 2 * draw[1] if rate is None else rate, acs=6, seed=seed)[None]
    data = fft2c(maps * image[:, None]) + complex_normal((1, COILS, H, W), generator, sigma=sigma)
    return Problem(
        SenseOperator(maps, mask), data * mask[:, None], sigma=torch.tensor([sigma]), reference=image, scaled=True
    )


def sense(problem):
    return problem.operator.solve(problem.adjoint, sense_damping(problem.sigma))


def deviations(_, image):
    return torch.full_like(image.real, 0.05)


@pytest.fixture(scope="module")
def measured():
    return [one for seed in range(80) for one in measure_slices(sense, scene(seed), deviations)]


@pytest.fixture(scope="module")
def calibration(measured):
    return calibrate(measured)


def test_the_predicted_error_of_the_image_is_that_of_its_lines():
    """Known energies of the missing lines: the mean squared error is Σ C e² / W, as a transform of the image shows."""
    generator = torch.Generator().manual_seed(0)
    mask = random_lines(W, 3, acs=6, seed=0)[0]
    error = ifft2c(complex_normal((H, W), generator) * ~mask)
    maps = complex_normal((COILS, H, W), generator)
    maps = maps / maps.norm(dim=0)
    energy = fft2c(maps * error).abs().square().mean((0, 1)).double()  # of every line: noise-free errors leak to all
    features = torch.zeros(W, len(NAMES), dtype=torch.float64)
    features[:, 1] = energy.log()
    model = LineModel((0.0, 1.0, *(0.0,) * (len(NAMES) - 2)), 1.0, 0.1, 0.1)
    lines = SliceLines(energy, features, features, torch.arange(W), 1e-6, 3.0, COILS * H)
    image = torch.rand(H, W, generator=generator) + 1
    of_psnr, _ = image_predictors(model, lines, 0.0, image, torch.ones(H, W, dtype=torch.bool))
    wanted = 10 * math.log10(image.max().item() ** 2 / error.abs().square().mean().item())
    assert of_psnr[3].item() == of_psnr[4].item() == pytest.approx(wanted, abs=1e-4)  # no line was acquired
    assert of_psnr[:3].tolist() == pytest.approx([1.0, math.log(3.0), math.log(1e-6)])


def test_the_predicted_error_follows_the_noise_of_acquired_lines():
    """A reconstruction that knows the missing lines: its error is the noise of the others, in the object alone."""
    nothing = LineModel((-30.0, *(0.0,) * (len(NAMES) - 1)), 1.0, 0.1, 0.1)
    support = torch.zeros(H, W, dtype=torch.bool)
    support[:, W // 4 :] = True
    likeness = []
    for sigma in (0.003, 0.01, 0.03):
        problem = scene(1, noise=sigma, rate=2)
        maps, truth = problem.operator.maps * support, problem.reference * support
        noise = problem.kspace - problem.operator.forward(problem.reference)
        image = truth + (maps.conj() * ifft2c(noise)).sum(1)
        (lines,) = measure_lines(lambda _, image=image: image, problem, image)
        of_psnr, of_ssim = image_predictors(nothing, lines, 0.0, image[0].abs(), support)
        wanted = 10 * math.log10(image.abs().max().item() ** 2 / (image - truth).abs().square().mean().item())
        assert of_psnr[4].item() == pytest.approx(wanted, abs=0.3)
        assert of_psnr[3].item() > 55  # that of the missing lines alone
        likeness.append(of_ssim[4].item())
    assert likeness == sorted(likeness, reverse=True)


def test_the_predicted_likeness_falls_with_the_error():
    features = torch.zeros(W, len(NAMES), dtype=torch.float64)
    lines = SliceLines(torch.ones(1), features, features, torch.arange(W), 1e-6, 3.0, COILS * H)
    image, support = torch.rand(H, W), torch.ones(H, W, dtype=torch.bool)
    found = [
        image_predictors(LineModel((level,) + (0.0,) * 6, 1.0, 0.1, 0.1), lines, level, image, support)[1][3].item()
        for level in (-12.0, -8.0, -4.0)
    ]
    assert found == sorted(found, reverse=True)


def test_bounds_hold_on_new_scans(calibration):
    """Forty new scans drawn the same way: each share is within four standard errors of its confidence, or above."""
    covered = {"0.8": [0, 0], "0.9": [0, 0]}
    above = {"0.8": 0, "0.9": 0}
    inside, count = [], 40
    for seed in range(1000, 1000 + count):
        problem = scene(seed)
        image = sense(problem)
        (lines,) = measure_lines(sense, problem, image)
        for key, shares in covered.items():
            scores = calibration.model.scores(lines)
            shares[0] += int((scores <= calibration.lines[key]).sum())
            shares[1] += len(scores)
            made = bound_slice(calibration, key, lines, image[0].abs(), problem.operator.support[0])
            quality = psnr(image, problem.reference).item()
            above[key] += made.psnr[0] is None or made.psnr[0] <= quality
        error = (image.abs() - problem.reference.abs()).abs()
        inside.append((error <= calibration.pixels["0.9"] * 0.05).double().mean().item())
    for key, (below, all_lines) in covered.items():
        assert abs(below / all_lines - float(key)) < 0.06
        assert above[key] / count > float(key) - 4 * math.sqrt(float(key) * (1 - float(key)) / count)
    assert abs(sum(inside) / count - 0.9) < 0.05


def test_lines_that_were_not_acquired_stay_below_their_bounds(calibration):
    problem = scene(2000)
    found = bound_slices(calibration, sense, problem, sense(problem), 0.9)
    missing = ~problem.lines[0, 0]
    assert bool((found.lines[0, missing] > 0).all())
    assert bool((found.lines[0, ~missing] == 0).all())
    full = fft2c(problem.operator.maps * problem.reference[:, None])
    off = (fft2c(problem.operator.maps * sense(problem)[:, None]) - full).abs().square().mean((1, 2)).sqrt()
    assert (off[0, missing] <= found.lines[0, missing]).double().mean() > 0.75


def test_the_image_says_more_than_its_mean(measured, calibration):
    """Predictions of PSNR, from about ten held-out lines, vary less around the truth than the truth itself."""
    known = [one for one in measured if one.scores is not None]
    model, coefficients = calibration.model, torch.tensor(calibration.psnr["coefficients"], dtype=torch.float64)
    predicted = torch.stack(
        [
            image_predictors(model, one.lines, model.level(one.lines), one.magnitude, one.support)[0] @ coefficients
            for one in known
        ]
    )
    truth = predicted.new_tensor([one.scores[0] for one in known])
    assert (predicted - truth).std() < 0.8 * truth.std()


def test_a_scan_unlike_the_others_gets_no_bound(calibration):
    """Coil maps of another scan: held-out lines show it. So do a noise level and a rate outside the calibration."""
    right, other = scene(3000), scene(3001)
    wrong = Problem(
        SenseOperator(other.operator.maps, right.operator.mask), right.kspace, sigma=right.sigma, scaled=True
    )
    for problem, why in (
        (wrong, "held-out lines"),
        (scene(3002, noise=0.2), "noise level"),
        (scene(3003, rate=1.2), "unknowns per sample"),
    ):
        found = bound_slices(calibration, sense, problem, sense(problem), 0.9)
        assert why in found.reasons[0]
        assert found.psnr == (None,)
        assert bool(found.lines.isnan().all())
    assert bound_slices(calibration, sense, right, sense(right), 0.9).reasons == ("",)


def test_few_lines_and_points_get_no_bound(calibration):
    problem = scene(4000)
    few = problem.lines.clone()
    few[..., : W // 2 - 3] = False
    few[..., W // 2 + 3 :] = False
    few[..., 2] = problem.lines[..., 2]
    small = problem.restrict(few)
    assert "lines outside the calibration" in bound_slices(calibration, sense, small, sense(small), 0.9).reasons[0]
    points = SenseOperator(problem.operator.maps, problem.operator.mask.expand(-1, H, -1).clone())
    points.mask[0, 0] = True
    flat = Problem(points, problem.kspace, sigma=problem.sigma, scaled=True)
    assert "whole lines" in bound_slices(calibration, sense, flat, sense(flat), 0.9).reasons[0]


def test_one_side_of_k_space_gets_no_bound(calibration):
    problem = scene(4001, rate=1.5)
    half = problem.lines.clone()
    half[..., : W // 2 - 8] = False
    cut = problem.restrict(half)
    assert "both sides" in bound_slices(calibration, sense, cut, sense(cut), 0.9).reasons[0]


def test_the_card_gives_back_the_calibration(calibration):
    again = Calibration.from_card({"bounds": json.loads(json.dumps(calibration.card()))}, "weights")
    assert again.card() == calibration.card()
    problem = scene(5000)
    made = [bound_slices(one, sense, problem, sense(problem), 0.8).psnr[0] for one in (calibration, again)]
    assert made[0] == pytest.approx(made[1], abs=1e-3)


def test_a_card_without_bounds_says_what_to_do():
    with pytest.raises(InputError, match="brain has no calibrated bounds; `upmri train` adds them") as caught:
        Calibration.from_card({}, "brain")
    assert caught.value.field == "bounds"


@pytest.mark.parametrize(
    "damage",
    [
        {"level": [1]},
        {"lines": 3},
        {"model": {}},
        {"noise": ["a", "b"]},
        {"level": [math.nan, 1, 2]},
        {"level": [0.0, 1.0, 0]},
        {"psnr": {"coefficients": [1.0]}},
        {"ssim": [1]},
        {"unknowns": [1.0]},
        {"psnr": {"coefficients": [1.0], "quantiles": {"0.9": 1.0}}},
        {"psnr": {"coefficients": [1.0] * 4, "quantiles": {"0.9": 1.0}}},
        {"psnr": {"coefficients": [1.0] * 6, "quantiles": {"0.9": 1.0}}},
        {"pixels": {"0.9": None}},
    ],
)
def test_a_damaged_card_is_refused(calibration, damage):
    with pytest.raises(InputError, match="damaged"):
        Calibration.from_card({"bounds": calibration.card() | damage}, "weights")


def test_a_confidence_that_was_not_calibrated_is_refused(calibration):
    few = replace(calibration, lines={"0.8": 1.0})
    problem = scene(6000)
    with pytest.raises(InputError, match=r"0\.8") as caught:
        bound_slices(few, sense, problem, sense(problem), 0.95)
    assert caught.value.field == "confidence"


def test_too_few_slices_give_no_calibration(measured):
    with pytest.raises(InputError, match=str(LEAST)):
        calibrate(measured[: LEAST - 1])
    assert fit_bounds(sense, [scene(seed) for seed in range(3)]) == {}


def test_lines_are_calibrated_without_references():
    problems = [scene(seed) for seed in range(LEAST)]
    blind = [Problem(p.operator, p.kspace, sigma=p.sigma, scaled=True) for p in problems]
    entry = fit_bounds(sense, blind)["bounds"]
    assert entry["psnr"] == entry["ssim"] == entry["pixels"] == {}
    assert set(entry["lines"]) == {"0.8", "0.9", "0.95"}
    found = bound_slices(Calibration.from_card({"bounds": entry}, ""), sense, blind[0], sense(blind[0]), 0.9)
    assert found.psnr == (None,)
    assert bool((found.lines > 0).any())
