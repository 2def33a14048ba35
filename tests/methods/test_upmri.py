"""The default method with weights of its own: its images, draws, and adaptation."""

from dataclasses import replace
from functools import partial

import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation import evaluate
from upmri.evaluation.metrics import psnr
from upmri.inference.choice import complete
from upmri.learning.bootstrap import deviation
from upmri.learning.held_out import gain_over_sense
from upmri.methods.prior import Prior
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import UpmriObjective, mean_image
from upmri.methods.upmri_paper import PaperObjective
from upmri.physics import phantom
from upmri.physics.fourier import mirror
from upmri.physics.masks import poisson_disc
from upmri.physics.problem import Problem
from upmri.physics.refine_maps import refine_maps
from upmri.physics.sense import SenseOperator
from upmri.weights import catalogue
from upmri.weights.files import load_prior, save_weights

OBJECTIVE = UpmriObjective(cascades=2, width=4)
SPREAD = {"radius": [5.0, 12.0], "gain": [1.5, 1.5], "exponent": [0.5, 0.5]}


def network(std=0.02):
    """A network that does something: half of its layers would start at zero, and ignore the time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = OBJECTIVE.network()
        for name, value in made.named_parameters():
            if value.count_nonzero() == 0:
                torch.nn.init.normal_(value, std=std if ".out." in name else 0.1)
    return made


def write(path, *, std=0.02, **card):
    return save_weights(path, network(std).state_dict(), "upmri", OBJECTIVE, {"name": path.stem, **card})


def recon(scan, model=None, **settings):
    """In single precision, so that equal things are equal."""
    return upmri.reconstruct(scan, "upmri", model=model, device="cpu", **{"precision": "fp32", **settings})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def model(folder):
    return write(folder / "calibrated.safetensors", spread=SPREAD)


@pytest.fixture(scope="module")
def bare(folder):
    return write(folder / "bare.safetensors")


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """``ship(name=std, …)``: a package with these weights and no others."""
    monkeypatch.setattr(catalogue, "_FOLDER", tmp_path)

    def make(**stds):
        for name, std in stds.items():
            write(tmp_path / f"{name}.safetensors", std=std)

    return make


# The image, and draws around it.


def test_image_and_settings(scan, model):
    rec = recon(scan, model)
    assert rec.image.shape == scan.reference.shape
    assert rec.image.dtype == torch.complex64
    assert rec.samples is None
    assert rec.std is None
    assert rec.settings["model"] == str(model)
    assert rec.settings["sha256"] == load_prior(model).digest
    sense = upmri.reconstruct(scan, "sense").image
    off = (rec.image - sense).norm() / sense.norm()
    assert 0.01 < off < 0.5  # the network does something, and is not all there is


def test_the_image_is_one_evaluation_at_t_1(scan, model):
    problem = Problem.from_scan(scan)
    with torch.no_grad():
        x = load_prior(model).network(
            problem.operator, problem.adjoint, torch.randn_like(problem.adjoint), torch.ones(2), problem.sigma
        )
    assert torch.allclose(recon(scan, model).image, x * problem.scale[:, None, None], rtol=1e-4, atol=1e-5)


def test_untrained_weights_are_near_sense(scan, folder):
    """λ = 0.02 (σ₀/0.01)^1.5 at first, and the output of the U-Net is 0."""
    image = recon(scan, write(folder / "silent.safetensors", std=0.0)).image
    assert evaluate(replace(recon(scan, folder / "silent.safetensors"), image=image))["psnr"] > 20
    scale = Problem.from_scan(scan).sigma.mean().item() / 0.01
    near = upmri.reconstruct(scan, "sense", damping=0.02 * scale**1.5 / 3).image  # three blocks of λ: nearly one of λ/3
    assert (image - near).norm() < 0.03 * near.norm()


@pytest.mark.parametrize("settings", [{}, {"samples": 3}, {"samples": 3, "steps": 2}])
def test_everything_is_in_the_units_of_the_scan(scan, model, settings):
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise)
    soft, loud = recon(scan, model, **settings), recon(loud, model, **settings)
    for name in ("image", "samples", "std") if settings else ("image",):
        one, other = getattr(soft, name), getattr(loud, name)
        assert (other - 1000 * one).norm() < 1e-3 * other.norm()


@pytest.mark.parametrize("settings", [{"samples": 5}, {"samples": 5, "steps": 2}])
def test_shapes_and_support(scan, model, settings):
    rec = recon(scan, model, **settings)
    assert rec.samples.shape == (5, *rec.image.shape)
    assert rec.std.shape == rec.image.shape
    assert rec.std.dtype == torch.float32
    assert torch.equal(rec.image, recon(scan, model).image)
    outside = (scan.maps == 0).all(1)
    assert 0.1 < outside.float().mean() < 0.9
    assert (rec.image[outside] == 0).all()
    assert (rec.samples[:, outside] == 0).all()
    assert (rec.std[~outside] > 0).all()
    assert (rec.image[~outside] != 0).all()
    spread = (rec.samples - rec.image).abs().square().mean().sqrt()
    assert 0.2 < rec.std[~outside].square().mean().sqrt() / spread < 2


def test_the_deviation_of_samples_along_the_flow_is_theirs(scan, model):
    rec = recon(scan, model, samples=4, steps=3)
    assert torch.allclose(rec.std, rec.samples.abs().std(0), rtol=1e-4, atol=1e-6)


def test_the_deviation_by_the_bootstrap_is_that_of_magnitudes_around_the_image(scan, model):
    rec = recon(scan, model, samples=4)
    assert torch.allclose(rec.std, deviation(rec.samples, rec.image), rtol=1e-3, atol=1e-5)


def test_the_spread_on_the_card_scales_the_bootstrap(scan, model, folder):
    """g (u/2)^p: three times g makes it three times as wide, and one more of p u/2 times; u, pixels for each sample."""
    one = recon(scan, model, samples=3)
    off = one.samples - one.image
    assert off.abs().max() > 0.01
    pixels = (scan.maps != 0).any(1).sum((1, 2))
    unknowns = (pixels / (scan.matrix[0] * scan.mask.sum((1, 2))))[:, None, None]
    assert (unknowns - 2).abs().min() > 0.1
    for change, factor in (({"gain": [4.5, 4.5]}, 3), ({"exponent": [1.5, 1.5]}, unknowns / 2)):
        other = recon(scan, write(folder / "wide.safetensors", spread=SPREAD | change), samples=3)
        assert torch.equal(one.image, other.image)
        assert torch.allclose(other.samples - other.image, factor * off, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"steps": 4}, "steps"),  # without samples
        ({"samples": 0}, "samples"),
        ({"samples": 2, "steps": 0}, "steps"),
        *(({"samples": 2, "steps": 2, "start": start}, "start") for start in (0.0, 0.005, 1.01, float("nan"))),
        ({"samples": 2, "start": 0.3}, "start"),  # without steps
        ({"confidence": 0.95}, "confidence"),  # without bounds
        ({"mirrors": "no"}, "mirrors"),
        ({"adapt": 60}, "adapt"),
        ({"adapt": True, "adapt_steps": 0}, "adapt_steps"),
        ({"adapt_steps": 40}, "adapt_steps"),  # without adapt
        ({"held_out_gain": 3.0}, "held_out_gain"),  # a result, and no setting
    ],
)
def test_settings_are_checked(scan, model, settings, field):
    with pytest.raises(InputError) as error:
        recon(scan, model, **settings)
    assert error.value.field == field


def test_without_validation_scans_the_deviation_is_not_calibrated(scan, bare):
    with pytest.raises(InputError, match=r"bare.safetensors was trained without validation scans") as error:
        recon(scan, bare, samples=4)
    assert error.value.field == "samples"
    assert recon(scan, bare, samples=2, steps=1).std is not None


@pytest.mark.parametrize("settings", [{"samples": 3}, {"samples": 3, "steps": 2}])
def test_the_same_seed_gives_the_same_result(scan, model, settings):
    one, same, other = (recon(scan, model, seed=seed, **settings) for seed in (1, 1, 2))
    for name in ("image", "samples", "std"):
        assert torch.equal(getattr(one, name), getattr(same, name))
    assert torch.equal(one.image, other.image)
    assert not torch.allclose(one.samples, other.samples, rtol=0.01)
    assert not torch.allclose(one.samples[0], one.samples[1], rtol=0.01)


@pytest.mark.parametrize("settings", [{}, {"samples": 3}, {"samples": 3, "steps": 2}])
def test_a_slice_alone_is_the_slice_in_the_volume(scan, model, settings):
    whole, alone = recon(scan, model, **settings), recon(scan[1], model, **settings)
    assert torch.equal(whole.image[1:], alone.image)
    if settings:
        assert torch.equal(whole.samples[:, 1:], alone.samples)
        assert torch.equal(whole.std[1:], alone.std)


def test_points_instead_of_lines(scan, model):
    full = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=1, noise=0.02)
    mask = poisson_disc((32, 32), 2, (10, 10))
    points = replace(full, kspace=full.kspace * mask, mask=mask)
    rec = recon(points, model, samples=2)
    assert rec.image.shape == rec.std.shape == (1, 32, 32)
    assert evaluate(rec)["psnr"] > 15
    A = SenseOperator(points.maps, points.mask)
    misfit = (A.forward(rec.image) - points.kspace).norm() / points.kspace.norm()
    assert misfit < 0.1
    assert recon(points, model).image.equal(rec.image)


# The choice of weights.


@pytest.mark.parametrize("good", ["alpha", "omega"])
def test_without_a_name_the_weights_that_predict_the_scan_best_are_taken(scan, ship, good):
    bad = {"alpha": "omega", "omega": "alpha"}[good]
    ship(**{good: 0.0, bad: 100.0})
    rec = recon(scan)
    assert rec.settings["model"] == good
    assert rec.settings["sha256"] == load_prior(good).digest
    assert torch.equal(rec.image, recon(scan, good).image)
    assert evaluate(rec)["psnr"] > evaluate(recon(scan, bad))["psnr"] + 3


def test_weights_of_other_methods_are_no_candidates(scan, ship, tmp_path):
    ship(bad=100.0)
    objective = PaperObjective(size="tiny")
    save_weights(tmp_path / "a.safetensors", objective.network().state_dict(), "upmri-paper", objective, {"name": "a"})
    assert recon(scan).settings["model"] == "bad"


def test_without_any_weights(scan, ship):
    ship()
    with pytest.raises(InputError, match="no weights") as error:
        recon(scan)
    assert error.value.field == "model"


def test_validation_evaluates_the_network_once_at_t_1(scan):
    problem, model = Problem.from_scan(scan), network()
    adjoint = problem.adjoint
    with torch.no_grad():
        image = Upmri(model=Prior(model, OBJECTIVE, "upmri"), **Upmri.validation).reconstruct(problem)
        expected = model(problem.operator, adjoint, torch.zeros_like(adjoint), torch.ones(2), problem.sigma)
    assert torch.equal(image, expected)


# Adaptation to one scan.


@pytest.fixture(scope="module")
def lined():
    """A scan with lines to hold out."""
    return upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=4, noise=0.02)


@pytest.fixture(scope="module")
def poor(folder):
    """Weights that disturb the image."""
    return write(folder / "poor.safetensors", std=0.1)


def test_adaptation_improves_the_image(lined, poor):
    """Weights that disturb the image are corrected by the scan's own lines; the file stays as it was."""
    before = poor.read_bytes()
    plain, better = recon(lined, poor), recon(lined, poor, adapt=True, adapt_steps=40)
    made = better.settings["adaptation"]
    assert evaluate(better)["psnr"] > evaluate(plain)["psnr"] + 0.05
    assert made["gain"] > 0
    assert made["slices"] == len(lined)
    assert 0 < made["steps"] <= 40
    assert better.settings["adapt"] is True
    assert better.settings["sha256"] == plain.settings["sha256"]
    assert better.settings["adapt_steps"] == 40
    assert poor.read_bytes() == before
    assert torch.equal(recon(lined, poor).image, plain.image)


def test_a_method_of_its_own_adapts_too(lined, poor):
    problem = Problem.from_scan(lined)
    method = Upmri(model=load_prior(poor), adapt=True, adapt_steps=20, precision="fp32")
    assert not method.batches
    done, made = method.adapted(problem)
    assert made.gain > 0
    assert not done.adapt
    assert done.batches
    assert torch.equal(method(problem).image, done(problem).image)


def test_adaptation_without_a_gain_gives_the_same_image(lined, model, monkeypatch):
    plain = UpmriObjective.loss
    monkeypatch.setattr(UpmriObjective, "loss", lambda *args: -plain(*args))
    made = recon(lined, model, adapt=True, adapt_steps=10)
    assert made.settings["adaptation"]["steps"] == made.settings["adaptation"]["gain"] == 0
    assert torch.equal(made.image, recon(lined, model).image)


def test_the_mean_over_mirror_images(scan, model):
    """Of a mirrored scan it is the mirrored image; and samples lie around it."""
    turned = replace(scan, **{name: mirror(getattr(scan, name), -2) for name in ("kspace", "maps", "reference")})
    image = recon(scan, model, mirrors=True).image
    assert torch.allclose(mirror(recon(turned, model, mirrors=True).image, -2), image, atol=1e-4 * image.abs().max())
    plain = recon(scan, model).image
    assert not torch.allclose(mirror(recon(turned, model).image, -2), plain, atol=1e-3 * image.abs().max())
    drawn = recon(scan, model, mirrors=True, samples=2, steps=2)
    assert torch.equal(drawn.image, image)
    assert drawn.settings["mirrors"] is True


def test_the_gain_on_held_out_lines_is_a_result(scan, model):
    """Of the slice with the largest energy, with which the weights are chosen."""
    strongest = int(scan.kspace.abs().square().flatten(1).sum(1).argmax())
    problem, prior = Problem.from_scan(scan[strongest]), load_prior(model, shared=True)
    gain = gain_over_sense(partial(mean_image, prior.network), problem)
    assert recon(scan, model, check=True).settings["held_out_gain"] == pytest.approx(gain, abs=0.01)
    completed, facts = complete(Upmri(model=str(model)), problem, check=True)
    assert completed.prior is prior
    assert facts == {"held_out_gain": pytest.approx(gain, abs=0.01)}


def test_a_calibration_of_earlier_versions_is_refused(scan, folder):
    """It was fitted to other errors; the image itself needs none."""
    old = write(folder / "old.safetensors", spread={"factor": 1.5, "exponent": 0.5})
    assert recon(scan, old).std is None
    assert recon(scan, old, samples=2, steps=2).std is not None
    with pytest.raises(InputError, match="earlier version") as error:
        recon(scan, old, samples=2)
    assert error.value.field == "samples"


def test_refined_maps_are_those_of_the_first_image(model):
    scan = upmri.simulate(phantom.image((64, 64)), coils=8, acceleration=4)
    scan = replace(scan, maps=None)
    refined = recon(scan, model, refine_maps=True)
    assert refined.settings["refine_maps"] is True
    prior = load_prior(model)
    problem = Problem.from_scan(scan)
    with torch.no_grad():
        better = refine_maps(problem, mean_image(prior.network, problem))
        expected = mean_image(prior.network, better) * problem.scale[:, None, None]
    torch.testing.assert_close(refined.image, expected)
    assert not torch.equal(refined.image, recon(scan, model).image)


def test_draws_use_the_refined_maps(model):
    scan = replace(upmri.simulate(phantom.image((64, 64)), coils=8, acceleration=4), maps=None)
    one, drawn = (recon(scan, model, refine_maps=True, samples=count) for count in (1, 2))
    torch.testing.assert_close(drawn.image, one.image)
    assert drawn.std.shape == (1, 64, 64)


def test_partial_fourier_is_used_unless_switched_off():
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=6, acceleration=1, acs=0, noise=0.005)
    lines = torch.arange(scan.matrix[1])[None, None] < 0.7 * scan.matrix[1]
    scan = replace(scan, kspace=scan.kspace * lines[:, None], mask=lines)
    used, ignored = (
        upmri.reconstruct(scan, model="brain", precision="fp32", partial_fourier=on, samples=2) for on in (True, False)
    )
    assert used.settings["recognised"] == "partial Fourier 71% along phase"
    assert psnr(used.image, scan.reference) > psnr(ignored.image, scan.reference)
    assert 0.8 < used.std.mean() / ignored.std.mean() < 1.25
