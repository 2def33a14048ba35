import json
import warnings

import numpy as np
import pytest
import torch

import upmri
from upmri.formats import load_maps


@pytest.fixture
def bare(scan, tmp_path):
    """The scan without maps, ``bare.npy``, and a reference scan of it, ``reference.npy``."""
    np.save(tmp_path / "bare.npy", scan.kspace.numpy())
    full = upmri.physics.fourier.fft2c(scan.maps * scan.reference[:, None])
    np.save(tmp_path / "reference.npy", full[..., 32:64, 36:60].numpy())
    return scan


def test_maps_of_calibration_lines_and_of_a_reference_scan(run, bare, tmp_path):
    done = run("maps", "bare.npy", "-o", "maps.cfl")
    assert done.stdout.startswith("maps.cfl: 3 slices, from calibration lines: good, ")
    estimated = upmri.estimate_maps(upmri.Scan(kspace=bare.kspace)).maps
    assert torch.allclose(load_maps(tmp_path / "maps.cfl"), estimated, atol=1e-5)
    facts = json.loads(run("maps", "bare.npy", "--reference", "reference.npy", "-o", "r.npy", "--json").stdout)
    assert (facts["maps_from"], facts["maps_quality"]) == ("reference scan", "good")
    facts = json.loads(run("maps", "scan.h5", "--slices", "1", "-o", "g.npy", "--json").stdout)
    assert (facts["maps_from"], facts["slices"]) == ("given", 1)
    assert torch.equal(load_maps(tmp_path / "g.npy"), bare.maps[1:2])


def test_recon_with_maps_and_with_a_reference_scan(run, bare, tmp_path):
    run("maps", "bare.npy", "-o", "maps.npy")
    for words, way in (
        ((), "calibration lines"),
        (("--maps", "maps.npy"), "given"),
        (("--reference", "reference.npy"), "reference scan"),
    ):
        done = run("recon", "bare.npy", "-m", "sense", *words, "-o", "x.npy", "--overwrite", "--json")
        settings = json.loads(done.stdout)[0]["settings"]
        assert (settings["maps_from"], settings["maps_quality"]) == (way, "good")
        image = np.load(tmp_path / "x.npy")
        if way == "calibration lines":
            first = image
        elif way == "given":
            np.testing.assert_allclose(image, first, atol=1e-4)


def test_wrong_maps_are_named(run, bare, tmp_path):
    np.save(tmp_path / "wrong.npy", bare.maps.roll(1, 1).numpy())
    done = run("recon", "bare.npy", "-m", "sense", "--maps", "wrong.npy", "-o", "x.npy")
    assert "coil maps (given): poor" in done.stdout
    assert "cannot be explained with them" in done.stderr


def test_bad_input_is_one_line(run, bare, tmp_path, one_line):
    one_line(run("recon", "bare.npy", "--maps", "bare.npy", code=2), "looks like k-space", "bare.npy")
    both = ("--maps", "scan.h5", "--reference", "reference.npy")
    one_line(run("recon", "bare.npy", *both, code=2), "--maps", "got both")
    one_line(run("maps", "bare.npy", "-o", "maps.png", code=2), "ends in .h5, .npy, .cfl")
    one_line(run("maps", "bare.npy", "-o", "bare.npy", "--overwrite", code=2), "is an input")
    np.save(tmp_path / "three.npy", bare.maps[:, :3].numpy())
    one_line(
        run("recon", "bare.npy", "-m", "sense", "--maps", "three.npy", code=2), "three.npy: maps:", "like the scan"
    )
    for words in (("recon", "bare.npy", "-m", "sense"), ("maps", "bare.npy", "-o", "m.npy")):
        done = run(*words, "--reference", "three.npy", code=2)
        one_line(done, "upmri: three.npy: reference: expected 4 coils", "got 3")
    assert not (tmp_path / "bare.nii.gz").exists()


@pytest.mark.parametrize(
    ("words", "where"), [(("maps", "scan.h5", "-o", "m.npy"), "save_maps"), (("info", "scan.h5"), "open_source")]
)
def test_a_warning_is_one_line(run, scan, monkeypatch, words, where):
    done = getattr(upmri.formats, where)

    def warned(*args, **settings):
        warnings.warn("apples", stacklevel=1)
        return done(*args, **settings)

    monkeypatch.setattr(upmri.formats, where, warned)
    assert run(*words).stderr == "upmri: apples\n"
    if words[0] == "maps":
        assert run(*words, "--overwrite", "--quiet").stderr == ""
