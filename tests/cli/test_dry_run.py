"""`upmri recon --dry-run`: what it says is what is done, and nothing is written."""

import json
from dataclasses import replace

import numpy as np
import pytest

import upmri


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_it_says_what_is_done_then(run, scan, tmp_path):
    words = ["recon", "scan.h5", "-o", "images", "--slices", "0:2", "--report", "--device", "cpu"]
    before = files(tmp_path)
    (planned,) = json.loads(run(*words, "--dry-run", "--json").stdout)
    assert files(tmp_path) == before
    (done,) = json.loads(run(*words, "--json").stdout)
    assert planned["writes"] == ["images/scan.nii.gz", "images/scan.html"]
    assert sorted(set(files(tmp_path)) - set(before)) == ["images", "images/scan.html", "images/scan.nii.gz"]
    assert (planned["slices"], planned["of_slices"], planned["coils"]) == (2, 3, 4)
    assert planned["weights"] == [done["settings"]["model"]] == ["apples"]
    assert planned["maps_from"] == done["settings"]["maps_from"] == "given"
    assert planned["slices"] == done["slices"]
    assert planned["acceleration"] == round(scan[1].acceleration, 3)


@pytest.mark.parametrize(
    ("name", "beside"), [("x.h5", []), ("x.dcm", []), ("x.nii", ["x_std.nii"]), ("x.NII.gz", ["x_std.NII.gz"])]
)
def test_deviations_have_a_file_of_their_own_in_nifti_alone(run, scan, name, beside):
    (planned,) = json.loads(run("recon", "scan.h5", "-o", name, "--samples", "2", "--dry-run", "--json").stdout)
    assert planned["writes"] == [name, *beside]


def test_lines(run, scan):
    shown = run("recon", "scan.h5", "--dry-run", "--adapt", "-o", "x.h5", "--device", "cpu").stdout
    for part in (
        "UPMRI HDF5",
        "3 slices, 4 coils",
        "upmri, weights apples, adapt True",
        "given",
        "x.h5",
        "1 slice at once",
    ):
        assert part in shown
    assert shown.splitlines()[-1] == "Nothing was reconstructed or written."


@pytest.mark.parametrize("lines", [12, 0])
def test_maps_are_from_what_the_scan_offers(run, scan, tmp_path, lines):
    mask = scan.mask.clone()
    if not lines:
        middle = mask.shape[-1] // 2
        mask[..., middle - 8 : middle + 8 : 2] = False
    upmri.Scan(kspace=scan.kspace * mask[:, None], mask=mask).save(tmp_path / "bare.h5")
    (planned,) = json.loads(run("recon", "bare.h5", "--dry-run", "--json", "-m", "sense").stdout)
    assert planned["maps_from"].startswith("calibration lines (" if lines else "joint estimation")
    assert planned["weights"] == []
    scan.save(tmp_path / "maps.h5")
    (planned,) = json.loads(run("recon", "bare.h5", "--maps", "maps.h5", "--dry-run", "--json", "-m", "sense").stdout)
    assert planned["maps_from"] == "--maps maps.h5"


def test_what_would_be_an_error_is_one_already(run, scan, tmp_path):
    (tmp_path / "scan.nii.gz").touch()
    done = run("recon", "scan.h5", "nowhere.h5", "--dry-run", "-m", "sense", code=2)
    assert [line.split(":")[1] for line in done.stderr.splitlines()] == [" scan.nii.gz", " nowhere.h5"]
    run("recon", "scan.h5", "--dry-run", "--device", "tpu", code=2)
    run("recon", "scan.h5", "--dry-run", "--slices", "7:9", code=2)
    run("recon", "scan.h5", "--dry-run", "-m", "sense", "--lambda", "-1", code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["scan.h5", "--maps", "nowhere.npy"],
        ["scan.h5", "--maps", "maps.npy"],
        ["scan.h5", "--reference", "nowhere.npy"],
        ["scan.h5", "--reference", "other.h5"],
        ["scan.h5", "--navigators", "nowhere"],
        ["scan.h5", "--navigators", "other.h5"],
        ["nothing.npy"],
    ],
)
def test_files_beside_the_scan_are_checked_as_the_run_does(run, scan, tmp_path, words, one_line):
    np.save(tmp_path / "maps.npy", scan.maps[:, :3].numpy())
    replace(scan, kspace=scan.kspace[:, :3], maps=None).save(tmp_path / "other.h5")
    np.save(tmp_path / "nothing.npy", np.zeros((2, 4, 32, 32), np.complex64))
    planned, done = (run("recon", *words, "-m", "zero-filled", *more, code=2) for more in (["--dry-run", "-q"], ["-q"]))
    assert planned.stderr == done.stderr
    one_line(planned, words[-1])


def test_empty_slices_among_others_are_no_error(run, scan, tmp_path):
    kspace = scan.kspace.numpy()
    kspace[1] = 0
    np.save(tmp_path / "some.npy", kspace)
    run("recon", "some.npy", "-m", "zero-filled", "--dry-run")


def test_a_quiet_plan_is_checked_and_not_shown(run, scan):
    done = run("recon", "scan.h5", "-m", "zero-filled", "--dry-run", "--quiet")
    assert done.stdout == done.stderr == ""
    assert json.loads(run("recon", "scan.h5", "-m", "zero-filled", "--dry-run", "-q", "--json").stdout)


def test_a_shard_has_its_own_scans(run, scan, tmp_path):
    for name in ("b", "c"):
        scan.save(tmp_path / f"{name}.h5")
    planned = json.loads(run("recon", "scan.h5", "b.h5", "c.h5", "--shard", "2/2", "--dry-run", "--json").stdout)
    assert [one["scan"] for one in planned] == ["b.h5"]
