"""Reconstruction of scans and problems: everything that is the same for all methods."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation import evaluate
from upmri.inference.choice import build_method
from upmri.inference.reconstruct import reconstruct_slices
from upmri.inference.scan_session import Session
from upmri.learning.adaptation import Adapted
from upmri.methods import find_method
from upmri.methods.cg_sense import CgSense
from upmri.methods.upmri import Upmri
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping

CLASSICAL = ("zero-filled", "sense", "cg-sense", "grappa", "l1-wavelet")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:2], coils=8, acceleration=4, noise=0.01)


@pytest.fixture(scope="module")
def small():
    return upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)


# Scans.


@pytest.mark.parametrize("name", CLASSICAL)
def test_names_and_settings(name, scan):
    assert find_method(name).name == name
    assert find_method(name).summary
    rec = upmri.reconstruct(scan, name)
    assert rec.method == name
    assert rec.image.shape == scan.reference.shape
    assert rec.image.dtype == torch.complex64
    assert rec.settings["seed"] == 0
    assert rec.seconds > 0
    assert torch.equal(rec.reference, scan.reference)
    assert rec.versions.keys() == {"upmri", "torch"}


@pytest.mark.parametrize("seed", ["x", 1.0, 10**20, True])
def test_a_wrong_seed_is_refused(small, seed):
    with pytest.raises(InputError, match="seed: expected a whole number"):
        upmri.reconstruct(small, "zero-filled", seed=seed)


def test_a_seed_of_numpy(small):
    assert type(upmri.reconstruct(small, "zero-filled", seed=np.int64(3)).settings["seed"]) is int


@pytest.mark.parametrize("method", ["cg-sense", CgSense, CgSense(steps=3)])
def test_a_method_by_name_class_or_instance(small, method):
    rec = upmri.reconstruct(small, method, steps=4)
    settings = {key: value for key, value in rec.settings.items() if not key.startswith("maps_")}
    assert (rec.method, settings) == ("cg-sense", {"steps": 4, "seed": 0})
    assert (rec.settings["maps_from"], rec.settings["maps_quality"]) == ("given", "good")
    assert torch.equal(rec.image, upmri.reconstruct(small, "cg-sense", steps=4).image)


def test_a_model_by_name_file_or_loaded(small):
    from upmri.weights.catalogue import find_weights

    one, *others = (
        upmri.reconstruct(small, model=model, device="cpu")
        for model in ("brain", find_weights("brain"), str(find_weights("brain")), upmri.prior("brain"))
    )
    for other in others:
        assert torch.equal(one.image, other.image)
        assert one.settings["sha256"] == other.settings["sha256"]
    assert one.method == "upmri"
    assert "held_out_gain" not in one.settings


@pytest.mark.parametrize("kind", [torch.Tensor, np.ndarray])
def test_kspace_alone(scan, kind):
    """Maps, mask and noise level are found; with or without a slice axis."""
    kspace = scan.kspace if kind is torch.Tensor else scan.kspace.numpy()
    rec = upmri.reconstruct(kspace, "sense")
    assert torch.equal(rec.image, upmri.reconstruct(upmri.Scan(kspace=scan.kspace), "sense").image)
    assert torch.equal(upmri.reconstruct(kspace[0], "sense").image, rec.image[:1])


def test_order_of_quality(scan):
    score = {name: evaluate(upmri.reconstruct(scan, name))["psnr"] for name in CLASSICAL}
    assert score["sense"] > score["zero-filled"] + 2
    assert score["cg-sense"] > score["zero-filled"] + 2
    assert score["l1-wavelet"] >= score["sense"]


@pytest.mark.parametrize("name", CLASSICAL)
def test_the_result_scales_with_the_scan(name, scan):
    fainter = upmri.Scan(kspace=1e-5 * scan.kspace, mask=scan.mask, maps=scan.maps, noise=1e-5 * scan.noise)
    one, other = upmri.reconstruct(scan, name).image, upmri.reconstruct(fainter, name).image
    assert (1e5 * other - one).norm() < 1e-3 * one.norm()


@pytest.mark.parametrize("name", CLASSICAL)
def test_a_slice_alone_is_the_slice_in_the_volume(name, scan):
    assert torch.equal(upmri.reconstruct(scan, name).image[1:], upmri.reconstruct(scan[1], name).image)


def test_maps_and_noise_are_estimated(scan):
    bare = replace(scan, maps=None, noise=None)
    estimated, given = evaluate(upmri.reconstruct(bare, "sense")), evaluate(upmri.reconstruct(scan, "sense"))
    assert estimated["psnr"] > given["psnr"] - 2


def test_slices_may_be_a_stream(small):
    """Only one of them is in memory at a time; position and name are those of the first."""
    named = replace(small, name="head", spacing=(1.0, 2.0, 3.0))
    slices = (named[i] for i in range(2))
    rec = reconstruct_slices(slices, 2, "sense", seed=0, device="cpu", progress=False)
    assert torch.equal(rec.image, upmri.reconstruct(small, "sense", device="cpu").image)
    assert (rec.name, rec.spacing) == ("head", (1.0, 2.0, 3.0))
    assert torch.equal(rec.reference, small.reference)


def test_a_session_chooses_weights_with_the_first_slice(small):
    session = Session(build_method("upmri"), CPU, seed=0)
    assert session.facts is None
    session(small[0])
    facts = session.facts
    method = session.method
    session(small[1])
    assert session.facts is facts
    assert session.method is method
    assert session.settings["held_out_lead"] == facts["held_out_lead"]


def test_the_gain_over_sense_is_measured_on_one_slice_when_asked(small):
    """For a scan, and for the problem of its slice with the largest energy."""
    strongest = int(small.kspace.abs().square().flatten(1).sum(1).argmax())
    one = Problem.from_scan(small[strongest])
    gain = upmri.reconstruct(one, "l1-wavelet", check=True, steps=20).settings["held_out_gain"]
    again = upmri.reconstruct(small, "l1-wavelet", check=True, steps=20, device="cpu")
    assert again.settings["held_out_gain"] == gain
    assert "held_out_gain" not in upmri.reconstruct(one, "l1-wavelet", steps=20).settings


@pytest.mark.parametrize(("method", "settings"), [("upmri", {}), ("l1-wavelet", {"steps": 5})])
def test_the_first_slice_decides_whatever_is_reconstructed_with_it(small, method, settings):
    facts = []
    for scans in ([small], [small[0]], [small[0], small[1]]):
        session = Session(build_method(method, **settings), CPU, seed=0, check=True)
        session(*scans)
        facts.append(session.facts)
    assert facts[0] == facts[1] == facts[2]
    assert facts[0]["held_out_gain"] != 0


@pytest.mark.parametrize(
    ("name", "settings", "field"),
    [
        ("magic", {}, "method"),
        ("sense", {"steps": 3}, "steps"),
        ("zero-filled", {"damping": 3}, "damping"),
        ("sense", {"samples": 4}, "samples"),
        ("sense", {"model": "brain"}, "model"),
        ("sense", {"damping": 0.0}, "damping"),
        ("sense", {"damping": float("nan")}, "damping"),
        ("cg-sense", {"steps": 0}, "steps"),
        ("sense", {"device": "tpu"}, "device"),
        ("sense", {"device": "cuda:77"}, "device"),
    ],
)
def test_wrong_settings(small, name, settings, field):
    with pytest.raises(InputError) as error:
        upmri.reconstruct(small, name, **settings)
    assert error.value.field == field


def test_one_sample_is_the_image_of_every_method(small):
    assert upmri.reconstruct(small, "sense", samples=1).samples is None


def test_no_calibration_lines(scan):
    mask = torch.arange(96)[None, None].expand(2, 1, -1) % 4 == 0
    bare = upmri.Scan(kspace=0 * scan.kspace + mask[:, None] * (1 + 1j))
    with pytest.raises(InputError, match="no calibration lines"):
        upmri.reconstruct(bare, "sense")


@pytest.mark.parametrize(
    ("pattern", "gain"), [("every 4th", 8.0), ("random", 2.0)], ids=["24 + every 4th (R 2.6)", "24 + 8 random (R 4)"]
)
def test_real_brain(data, pattern, gain):
    """The scan's own k-space, maps from the undersampled calibration lines."""
    kspace = upmri.load(data / "scans" / "invivo_brain_16ch_kspace.npy").kspace
    if pattern == "random":
        mask = random_lines(128, 4, acs=24, seed=0)
    else:
        mask = torch.zeros(1, 128, dtype=torch.bool)
        mask[:, 52:76] = True
        mask[:, ::4] = True
    scan = upmri.estimate_maps(upmri.Scan(kspace=kspace * mask))
    reference = (scan.maps.conj() * ifft2c(kspace)).sum(1)
    scan = replace(scan, reference=reference)
    score = {name: evaluate(upmri.reconstruct(scan, name))["psnr"] for name in CLASSICAL}
    assert score["sense"] > score["zero-filled"] + gain
    assert score["l1-wavelet"] >= score["sense"]


# Scans with faults.


@pytest.mark.parametrize("method", ["zero-filled", "sense", "upmri"])
def test_maps_of_0_are_refused(small, method):
    with pytest.raises(InputError) as error:
        upmri.reconstruct(replace(small, maps=0 * small.maps), method, device="cpu")
    assert error.value.field == "maps"


@pytest.mark.parametrize("factor", [1e-12, 3.0, 1e30])
@pytest.mark.parametrize("method", ["sense", "upmri"])
def test_maps_that_are_not_normalised(small, method, factor):
    method = Upmri(precision="fp32") if method == "upmri" else method
    expected = upmri.reconstruct(small, method, device="cpu").image
    with pytest.warns(UserWarning, match="maps: expected .* in slice 0; they are normalised"):
        rec = upmri.reconstruct(replace(small, maps=factor * small.maps), method, device="cpu")
    assert (rec.image - expected).norm() < 1e-4 * expected.norm()
    assert rec.settings["normalised_maps"] == [0, 1]


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("fault", ["dead", "noisy", "spiking"])
def test_a_faulty_coil_is_named_and_left_out(scan, fault, mapped, rng):
    given = scan if mapped else replace(scan, maps=None, noise=None)
    kspace = scan.kspace.clone()
    if fault == "dead":
        kspace[:, 5] = 0
    elif fault == "noisy":
        kspace[:, 5] += rng(2, 96, 96).to(kspace) * scan.mask
    else:
        kspace[:, 5, 10, 48] = 100
    with pytest.warns(UserWarning, match=f"coil 5 is {fault} in slice 0") as caught:
        rec = upmri.reconstruct(replace(given, kspace=kspace), "sense")
    assert len(caught) == 1
    assert rec.settings["left_out_coils"] == [5]
    assert evaluate(rec)["psnr"] > evaluate(upmri.reconstruct(given, "sense"))["psnr"] - 2
    others = [0, 1, 2, 3, 4, 6, 7]
    without = replace(given, kspace=scan.kspace[:, others], maps=scan.maps[:, others] if mapped else None)
    problem = Problem.from_scan(without if mapped else upmri.estimate_maps(without))
    expected = upmri.reconstruct(problem, "sense").image
    assert (rec.image - expected).norm() < 2e-3 * expected.norm()


@pytest.mark.parametrize(("method", "settings"), [("sense", {}), ("upmri", {"model": "brain", "samples": 2})])
def test_a_slice_without_samples_is_0_and_the_others_are_reconstructed(small, method, settings):
    kspace = torch.stack([0 * small.kspace[0], small.kspace[0], 0 * small.kspace[0], small.kspace[1]])
    with pytest.warns(UserWarning, match="nothing was sampled in slice 0, 2;") as caught:
        rec = upmri.reconstruct(upmri.Scan(kspace=kspace), method, device="cpu", **settings)
    assert len(caught) == 1
    assert rec.settings["empty_slices"] == [0, 2]
    expected = upmri.reconstruct(upmri.Scan(kspace=small.kspace), method, device="cpu", **settings)
    assert not rec.image[[0, 2]].any()
    assert torch.equal(rec.image[[1, 3]], expected.image)
    if "samples" in settings:
        assert torch.equal(rec.samples[:, [1, 3]], expected.samples)
        assert torch.equal(rec.std[[1, 3]], expected.std)
        assert not rec.std[[0, 2]].any()


def test_a_session_takes_empty_slices_among_others(small):
    kspace = torch.stack([small.kspace[0], 0 * small.kspace[0], small.kspace[1]])
    made = Session(build_method("sense"), CPU, seed=0)(upmri.Scan(kspace=kspace, noise=small.noise))
    expected = upmri.reconstruct(upmri.Scan(kspace=small.kspace, noise=small.noise), "sense", device="cpu").image
    assert torch.allclose(made.image[[0, 2]], expected, atol=1e-5)
    assert not made.image[1].any()


@pytest.mark.parametrize("slices", [1, 2])
def test_slices_without_samples_alone_are_refused(small, slices):
    with pytest.raises(InputError) as error:
        upmri.reconstruct(0 * small.kspace[:slices], "zero-filled")
    assert error.value.field == "mask"
    empty = upmri.Scan(kspace=0 * small.kspace[:1])
    with pytest.raises(InputError) as error:
        reconstruct_slices([empty] * slices, slices, "sense", seed=0, device="cpu", progress=False)
    assert error.value.field == "mask"


def test_errors_of_linear_algebra_are_one_line(small):
    problem = Problem(SenseOperator(1e30 * small.maps, small.mask), small.kspace, sigma=small.noise)
    with pytest.raises(InputError) as error:
        upmri.reconstruct(problem, "sense")
    assert error.value.field == "operator"


def test_good_scans_have_no_findings(small):
    found = upmri.reconstruct(small, "sense").settings.keys()
    assert not found & {"empty_slices", "left_out_coils", "normalised_maps"}


# Problems with an operator of the user.


class Own(Operator):
    """A user's operator: coils and lines, in NumPy's or torch's functions, with nothing else."""

    def __init__(self, maps, mask):
        self.maps, self.lines = maps, mask
        self.shape = (len(maps), *maps.shape[-2:])

    def forward(self, image):
        return self.lines[:, None] * fft2c(self.maps * image[:, None])

    def adjoint(self, data):
        return (self.maps.conj() * ifft2c(self.lines[:, None] * data)).sum(1)


@pytest.fixture(scope="module")
def own(small):
    return Problem(Own(small.maps, small.mask), small.kspace, sigma=small.noise, reference=small.reference)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("zero-filled", {}), ("sense", {}), ("cg-sense", {}), ("upmri", {"model": "brain", "precision": "fp32"})],
)
def test_an_operator_of_the_user(small, own, method, settings):
    """The image is that of the package's operator, which is solved in another way."""
    assert own.operator.mask is None
    rec = upmri.reconstruct(own, method, **settings)
    known = Problem(SenseOperator(small.maps, small.mask), small.kspace, sigma=small.noise)
    expected = upmri.reconstruct(known, method, **settings).image
    error = 4e-3 if method == "upmri" else 1e-4  # solves by conjugate gradients are no more accurate than it needs
    assert (rec.image - expected).norm() < error * expected.norm()
    assert rec.method == method
    assert torch.allclose(rec.reference, small.reference, rtol=1e-5)


def test_sense_with_an_operator_of_the_user_agrees_with_dense_algebra(rng, dense):
    operator = Own(rng(1, 3, 4, 6), torch.tensor([True, False, True, True, False, True])[None, None])
    problem = Problem(operator, operator(rng(1, 4, 6)), sigma=torch.tensor(0.2).double())
    A = dense(operator.forward, (1, 4, 6))
    lam = sense_damping(0.2 / problem.scale).item()
    expected = torch.linalg.solve(A.mH @ A + lam * torch.eye(24), A.mH @ problem._kspace.flatten())
    found = find_method("sense")().reconstruct(problem) * problem.scale
    assert torch.allclose(found.flatten(), expected, rtol=1e-4)
    few = upmri.reconstruct(problem, "cg-sense", steps=24).image  # as many steps as unknowns
    least = torch.linalg.lstsq(A, problem._kspace.flatten()[:, None], driver="gelsd").solution[:, 0]
    assert (A @ few.flatten().to(A) - A @ least).norm() < 1e-3 * (A @ least).norm()


def test_the_seed_of_a_problem_is_its_own(own):
    rec = upmri.reconstruct(own.with_seeds(5), "l1-wavelet", steps=5)
    assert rec.settings["seed"] == 5
    assert not torch.equal(rec.image, upmri.reconstruct(own, "l1-wavelet", steps=5).image)


def test_the_same_problem_again_gives_the_same_image(own):
    one, two = (upmri.reconstruct(own, "l1-wavelet", steps=5) for _ in range(2))
    assert one.settings == two.settings
    assert torch.equal(one.image, two.image)


def test_data_that_are_not_finite(own):
    """Iterations stop at once with them, and the image was 0."""
    data = own.data.clone()
    data[0, 0, 0, data[0, 0].abs().sum(0).argmax()] = torch.nan
    with pytest.raises(InputError, match="NaN or infinity") as error:
        upmri.reconstruct(Problem(own.operator, data, sigma=0.1), "sense")
    assert error.value.field == "kspace"


def test_a_problem_without_a_noise_level(small):
    problem = Problem(Own(small.maps, small.mask), small.kspace)
    assert upmri.reconstruct(problem, "cg-sense").image.isfinite().all()
    assert upmri.reconstruct(problem, "sense", damping=0.01).image.isfinite().all()
    with pytest.raises(InputError) as error:
        upmri.reconstruct(problem, "sense")
    assert error.value.field == "sigma"


@pytest.mark.parametrize("settings", [{"adapt": True}, {"samples": 3}])
def test_what_needs_lines_says_so(own, settings):
    with pytest.raises(InputError) as error:
        upmri.reconstruct(own, "upmri", model="brain", **settings)
    assert error.value.field == "operator"


def test_weights_are_adapted_to_slices_spread_over_the_scan(small, monkeypatch):
    """A bounded number of them, read before the others; slices without samples are left out."""
    monkeypatch.setattr("upmri.inference.scan_session._MOST_SLICES", 3)
    empty = upmri.Scan(kspace=0 * small.kspace[:1])
    read, adapted = [], []

    def adapt(self, problem, report):
        adapted.append(len(problem))
        report(0.5)
        return replace(self, adapt=False), Adapted(self.prior.network, 1, 0.5, 1.0, 1, len(problem), 0.1)

    def one(index):
        read.append(index)
        return empty if index == 4 else replace(small[0], maps=None, reference=None)

    monkeypatch.setattr("upmri.methods.upmri.Upmri.adapted", adapt)
    stream = (one(index) for index in range(9))
    with pytest.warns(UserWarning, match="nothing was sampled"):
        rec = reconstruct_slices(
            stream, 9, "upmri", seed=0, device="cpu", progress=False, read=one, model="brain", adapt=True
        )
    assert read == [4, 1, 4, 7, *range(9)]
    assert adapted == [2]
    assert rec.settings["adaptation"] == {"steps": 1, "slices": 2, "seconds": 0.1, "gain": 0.5, "share": 1.0}
    assert rec.settings["empty_slices"] == [4]
    adapted.clear()
    stream = (one(index) for index in range(2))
    reconstruct_slices(stream, 2, "upmri", seed=0, device="cpu", progress=False, model="brain", adapt=True)
    assert adapted == [1]  # without `read`, the first slice


def test_a_scan_with_too_few_lines_is_not_adapted_to(small):
    lines = small.mask.clone()
    lines[..., :8] = False
    few = replace(small, mask=lines, kspace=small.kspace * lines[:, None])
    with pytest.warns(UserWarning, match="held out"):
        rec = upmri.reconstruct(few, model="brain", adapt=True, device="cpu")
    assert rec.settings["adaptation"]["steps"] == 0
    assert torch.equal(rec.image, upmri.reconstruct(few, model="brain", device="cpu").image)
