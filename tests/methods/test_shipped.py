"""The shipped weights on scans unlike the training data: never much worse than SENSE.

4×, 96×96. Both methods get the same changed scan.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch

import upmri
from upmri.evaluation import evaluate
from upmri.physics.phantom import INSERTS, SHEPP_LOGAN, phantom_scan
from upmri.weights.catalogue import available

pytestmark = [
    pytest.mark.skipif(not available("upmri"), reason="no weights come with this installation"),
    pytest.mark.usefixtures("data"),
]

WORSE = 0.5  # dB


@cache
def brain():
    return upmri.simulate(upmri.demo.brain(), coils=8, acceleration=4)


def score(scan, method):
    rec = upmri.reconstruct(scan, method, device="cpu")
    assert torch.view_as_real(rec.image).isfinite().all()
    return evaluate(rec)["psnr"]


@cache
def score_of_sense():
    """Of the unchanged scan."""
    return score(brain(), "sense")


def gain(scan):
    """PSNR over that of SENSE, in dB."""
    return score(scan, "upmri") - score(scan, "sense")


def test_it_is_better_than_sense():
    assert gain(brain()) > 0.5


@pytest.mark.parametrize("ellipses", [SHEPP_LOGAN, INSERTS], ids=["shepp-logan", "inserts"])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_phantom(ellipses, noise):
    scan = phantom_scan((96, 96), coils=8, acceleration=4, noise=noise, ellipses=ellipses)
    assert gain(scan) > -WORSE


@pytest.mark.soak
def test_upside_down():
    image = upmri.demo.brain()
    assert gain(upmri.simulate(image[:, ::-1], coils=8, acceleration=4)) > -WORSE
    assert gain(upmri.simulate(image.transpose(0, 2, 1), coils=8, acceleration=4)) > -WORSE


@pytest.mark.parametrize("slices", [slice(1, 2), pytest.param(slice(3), marks=pytest.mark.soak)], ids=["one", "all"])
@pytest.mark.parametrize(
    "change",
    [torch.conj, lambda x: -x, lambda x: 1j * x, lambda x: x.abs() + 0j, lambda x: x.abs() * (x / x.abs()) ** 3],
    ids=["conjugated", "negative", "turned", "none", "steep"],
)
def test_another_phase(change, slices):
    image = torch.nan_to_num(change(brain().reference[slices]).resolve_conj())
    assert gain(upmri.simulate(image, coils=8, acceleration=4)) > -WORSE


@pytest.mark.parametrize("factor", [1e4, pytest.param(1e-4, marks=pytest.mark.soak)])
def test_other_units(factor):
    scan = brain()[:1]
    image, other = (
        upmri.reconstruct(s, "upmri", device="cpu", precision="fp32").image
        for s in (scan, replace(scan, kspace=factor * scan.kspace, noise=factor * scan.noise))
    )
    assert (other - factor * image).norm() < 1e-3 * other.norm()


@pytest.mark.parametrize("factor", [3, 1 / 3])
def test_a_wrong_noise_level(factor):
    """Also against SENSE with the right level, on which its damping depends strongly."""
    scan = brain()
    wrong = replace(scan, noise=factor * scan.noise)
    assert score(wrong, "upmri") > max(score_of_sense(), score(wrong, "sense")) - WORSE


@pytest.mark.parametrize("neighbours", [[1, 0, 1], [1, 2, 1]], ids=["below", "above"])
def test_maps_of_a_neighbour(neighbours):
    scan = brain()
    assert gain(replace(scan, maps=scan.maps[neighbours])) > -WORSE


def test_maps_from_the_scan_itself():
    assert gain(replace(brain(), maps=None, noise=None)) > -WORSE
