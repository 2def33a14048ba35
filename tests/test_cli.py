"""The command line as a person uses it."""

import json
import subprocess
import sys
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest

import upmri
from upmri import cli
from upmri.physics.fourier import ifft2c


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["upmri", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        done = SimpleNamespace(**capsys.readouterr()._asdict())
        assert (stop.value.code or 0) == code, done.err + done.out
        return SimpleNamespace(stdout=done.out, stderr=done.err)

    return call


@pytest.fixture
def scan(tmp_path):
    made = upmri.simulate(upmri.demo.brain(), coils=4, acceleration=2, acs=12)
    made.save(tmp_path / "scan.h5")
    return made


def one_line(done, *parts):
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("upmri: ")
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


def test_version_in_a_process_of_its_own():
    done = subprocess.run([sys.executable, "-m", "upmri", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"upmri {upmri.__version__}"


def test_bad_input_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-m", "upmri", "recon", "nothing.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    one_line(done, "nothing.npy")
    assert list(tmp_path.iterdir()) == []


def test_info(run, scan):
    facts = json.loads(run("info", "scan.h5", "--json").stdout)
    assert facts["matrix"] == [96, 96]
    assert (facts["slices"], facts["coils"], facts["acceleration"]) == (3, 4, 2.0)
    assert facts["calibration"][1] >= 12
    assert facts["noise"] == 0.01
    assert "96 × 96" in run("info", "scan.h5").stdout


def test_recon_by_default_writes_nifti_here(run, scan, tmp_path):
    done = run("recon", "scan.h5")
    assert "PSNR" in done.stdout
    image = nibabel.load(tmp_path / "scan.nii.gz").get_fdata()
    expected = upmri.reconstruct(scan).image.abs().numpy().transpose(1, 2, 0)
    assert np.allclose(image, expected, atol=1e-5)


def test_recon_of_some_slices_to_npy(run, scan, tmp_path):
    done = run("recon", "scan.h5", "-m", "zero-filled", "--slices", "1:", "-o", "x.npy", "--json")
    (result,) = json.loads(done.stdout)
    assert (result["slices"], result["method"]) == (2, "zero-filled")
    expected = (scan.maps.conj() * ifft2c(scan.kspace)).sum(1)[1:]
    assert np.allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-5)


def test_lambda_and_steps(run, scan):
    run("recon", "scan.h5", "--lambda", "0.1", "-o", "a.npy", "--quiet")
    run("recon", "scan.h5", "-m", "cg-sense", "--steps", "3", "-o", "b.npy", "--quiet")
    one_line(run("recon", "scan.h5", "-m", "zero-filled", "--steps", "3", code=2), "steps", "takes no settings")


def test_of_several_scans_the_good_ones_are_done(run, scan, tmp_path):
    (tmp_path / "bad.h5").write_text("not a scan")
    done = run("recon", "bad.h5", "scan.h5", "missing.h5", "-o", "out", code=2)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["scan.nii.gz"]
    assert done.stderr.count("\n") == 2
    assert "bad.h5" in done.stderr
    assert "missing.h5" in done.stderr


def test_an_existing_file_is_replaced_only_when_told(run, scan, tmp_path):
    (tmp_path / "x.npy").write_text("precious")
    one_line(run("recon", "scan.h5", "-o", "x.npy", code=2), "x.npy", "overwrite")
    assert (tmp_path / "x.npy").read_text() == "precious"
    run("recon", "scan.h5", "-o", "x.npy", "--overwrite", "--quiet")
    assert np.load(tmp_path / "x.npy").shape == (3, 96, 96)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["recon", "nothing.npy"], ["nothing.npy"]),
        (["recon", "scan.h5", "-m", "magic"], ["magic", "sense"]),
        (["recon", "scan.h5", "--slices", "9"], ["scan.h5", "3 slices"]),
        (["recon", "scan.h5", "-o", "nowhere/x.npy"], ["nowhere"]),
        (["recon", "scan.h5", "-o", "x.dcm"], ["x.dcm", ".nii.gz"]),
        (["recon", "scan.h5", "--lambda", "-1"], ["damping", "λ > 0"]),
        (["recon", "scan.h5", "--device", "cuda:9"], ["cuda:9", "cpu"]),
        (["recon", "scan.h5", "--max-gib", "0.0001"], ["scan.h5", "limit"]),
        (["recon", "scan.h5", "scan.h5"], ["same"]),
        (["info", "nothing.npy"], ["nothing.npy"]),
        (["simulate", "nothing.npy", "x.h5"], ["nothing.npy"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, scan, tmp_path, words, parts):
    before = sorted(tmp_path.iterdir())
    one_line(run(*words, code=2), *parts)
    assert sorted(tmp_path.iterdir()) == before


def test_debug_shows_the_traceback(run):
    assert "Traceback" in run("info", "nothing.npy", "--debug", code=2).stderr


def test_a_fault_of_the_program_is_exit_1(run, monkeypatch):
    monkeypatch.setattr(cli, "_table", lambda *_: 1 / 0)
    one_line(run("methods", code=1), "ZeroDivisionError", "--debug")


def test_simulate(run, tmp_path):
    np.save(tmp_path / "image.npy", upmri.demo.brain())
    run(
        "simulate",
        "image.npy",
        "made.h5",
        "--coils",
        "5",
        "--accel",
        "3",
        "--acs",
        "10",
        "--noise",
        "0.02",
        "--seed",
        "7",
    )
    made, expected = upmri.load(tmp_path / "made.h5"), upmri.simulate(upmri.demo.brain(), 5, 3, 10, 0.02, 7)
    assert made.kspace.equal(expected.kspace)
    assert made.noise == 0.02


def test_methods(run):
    names = [row["name"] for row in json.loads(run("methods", "--json").stdout)]
    assert names == list(upmri.methods())
    assert "l1-wavelet" in run("methods").stdout


def test_demo(run, tmp_path):
    rows = json.loads(run("demo", "--out", "shown", "--json").stdout)
    score = {(row["acceleration"], row["method"]): row["psnr"] for row in rows}
    for acceleration in (4, 8):
        assert score[acceleration, "sense"] > score[acceleration, "zero-filled"]
    assert {p.name for p in (tmp_path / "shown").iterdir()} == {"comparison_4x.png", "comparison_8x.png", "table.json"}
