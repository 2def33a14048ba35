"""`upmri recon`: which files are written, which are not, and what is printed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch

import upmri
from upmri.cli.recon_work import ReconWork
from upmri.learning.adaptation_training import AdaptationPlan
from upmri.learning.held_out_bounds import Calibration
from upmri.learning.line_model import LineModel
from upmri.methods.upmri_objective import UpmriObjective
from upmri.methods.upmri_paper import PaperObjective
from upmri.physics.epi import correct_ghosts
from upmri.physics.fourier import fft1c, ifft2c
from upmri.weights.files import save_weights, update_card

_FITTED = {"coefficients": [0.0, 0.0, 0.0, 1.0, 0.0], "quantiles": {"0.9": 1.0}}
_MODEL = LineModel((-6.0,) + (0.0,) * 6, 1.0, 0.1, 0.3)
_BOUNDS = Calibration(_MODEL, (0.0, 9.0, 40), (0.1, 99.0), (1e-6, 1.0), {"0.9": 1.0}, _FITTED, _FITTED)


def test_recon_by_default_writes_nifti_here(run, scan, tmp_path):
    done = run("recon", "scan.h5", "-m", "upmri")
    assert "PSNR" in done.stdout
    assert "by upmri with weights apples" in done.stdout
    image = nibabel.load(tmp_path / "scan.nii.gz").get_fdata()
    expected = upmri.reconstruct(scan, "upmri").image.abs().numpy().transpose(1, 2, 0)
    assert np.allclose(image, expected, atol=1e-5)


def test_recon_of_some_slices_to_npy(run, scan, tmp_path):
    done = run("recon", "scan.h5", "-m", "zero-filled", "--slices", "1:", "-o", "x.npy", "--json")
    (result,) = json.loads(done.stdout)
    assert (result["slices"], result["method"]) == (2, "zero-filled")
    expected = (scan.maps.conj() * ifft2c(scan.kspace)).sum(1)[1:]
    assert np.allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-5)


def test_lambda_and_steps(run, scan, one_line):
    run("recon", "scan.h5", "-m", "sense", "--lambda", "0.1", "-o", "a.npy", "--quiet")
    run("recon", "scan.h5", "-m", "cg-sense", "--steps", "3", "-o", "b.npy", "--quiet")
    one_line(run("recon", "scan.h5", "-m", "zero-filled", "--steps", "3", code=2), "steps", "has no settings")
    one_line(run("recon", "scan.h5", "--lambda", "0.1", code=2), "upmri: --lambda: not a setting of upmri")


def test_refined_maps(run, scan, tmp_path, one_line):
    run("recon", "scan.h5", "-m", "upmri", "--refine-maps", "-o", "a.npy", "--quiet")
    expected = upmri.reconstruct(scan, "upmri", refine_maps=True).image
    assert np.allclose(np.load(tmp_path / "a.npy"), expected, atol=1e-5)
    one_line(run("recon", "scan.h5", "-m", "sense", "--refine-maps", code=2), "refine_maps", "not a setting of sense")


def test_of_several_scans_the_good_ones_are_done(run, scan, tmp_path):
    (tmp_path / "bad.h5").write_text("not a scan")
    done = run("recon", "bad.h5", "scan.h5", "missing.h5", "-o", "out", code=2)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["scan.nii.gz"]
    assert done.stderr.count("\n") == 2
    assert "bad.h5" in done.stderr
    assert "missing.h5" in done.stderr


@pytest.mark.parametrize("words", [(), ("--shard", "1/1")])
def test_an_empty_folder_and_two_of_one_name_leave_the_others(run, scan, tmp_path, words):
    for name in ("p1", "p2"):
        (tmp_path / name).mkdir()
        scan.save(tmp_path / name / "twin.h5")
    (tmp_path / "empty").mkdir()
    scans = ("empty", "p1/twin.h5", "p2/twin.h5", "scan.h5", "scan.h5")
    done = run("recon", *scans, "-m", "sense", "-o", "out", *words, code=2)
    assert [p.name for p in (tmp_path / "out").glob("*.gz")] == ["scan.nii.gz"]
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["empty", "p2/twin.h5"]
    plans = run("recon", *scans, "-m", "sense", "-o", "new", "--dry-run", "--json", code=2)
    assert [plan["scan"] for plan in json.loads(plans.stdout)] == ["scan.h5"]
    if words:
        merged = run("recon", *scans, "--merge", "-o", "out", code=2)
        assert merged.stderr == done.stderr
        assert "1 result, 0 bad" in merged.stdout


def test_without_a_scan_that_can_be_done_nothing_is_made(run, tmp_path, one_line):
    (tmp_path / "empty").mkdir()
    one_line(run("recon", "empty", "-o", "out", code=2), "empty: has no scans")
    one_line(run("simulate", "empty", "out", code=2), "empty: has no images")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_images_in_the_folder_of_the_scans_are_not_taken_for_scans(run, scan, tmp_path):
    scan[1:].save(tmp_path / "other.h5")
    words = ("recon", ".", "-m", "zero-filled", "--json")
    assert len(json.loads(run(*words).stdout)) == 2
    assert json.loads(run(*words).stdout) == []  # they exist already
    run("recon", "scan.h5", "-m", "zero-filled", "-o", "scan.dcm", "-q")
    assert len(json.loads(run(*words, "--overwrite").stdout)) == 2


def test_an_error_of_the_program_on_one_scan_leaves_the_others(run, scan, tmp_path, monkeypatch, one_line):
    """It is named with its scan, and is exit status 1; bad input alone is 2."""
    (tmp_path / "bad.h5").write_text("not a scan")
    for name in ("a.h5", "z.h5"):
        scan[0].save(tmp_path / name)
    whole = ReconWork.reconstruct

    def failing(self, path, *rest, **options):
        if path.name == "scan.h5":
            raise ZeroDivisionError("by nothing")
        return whole(self, path, *rest, **options)

    monkeypatch.setattr(ReconWork, "reconstruct", failing)
    done = run("recon", "a.h5", "scan.h5", "bad.h5", "z.h5", "-m", "sense", "-o", "out", "--json", code=1)
    assert [Path(result["scan"]).name for result in json.loads(done.stdout)] == ["a.h5", "z.h5"]
    of_program, of_input = done.stderr.splitlines()
    assert of_program.startswith("upmri: scan.h5: ZeroDivisionError: by nothing (an error in upmri itself")
    assert of_input.startswith("upmri: bad.h5: ")
    one_line(run("recon", "scan.h5", "-m", "sense", code=1), "scan.h5: ZeroDivisionError")
    shown = run("recon", "scan.h5", "-m", "sense", "--debug", code=1).stderr
    assert "Traceback" in shown
    assert 'raise ZeroDivisionError("by nothing")' in shown


def test_the_same_command_continues_after_an_interruption(run, scan, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for name in "abc":
        scan[0].save(tmp_path / "in" / f"{name}.h5")
    whole = ReconWork.reconstruct

    def interrupted(self, path, *rest, **options):
        if path.stem == "b":
            raise KeyboardInterrupt
        return whole(self, path, *rest, **options)

    words = ("recon", "in", "-o", "out", "-m", "zero-filled")
    monkeypatch.setattr(ReconWork, "reconstruct", interrupted)
    assert "b.h5; the same command continues" in run(*words, code=130).stderr
    monkeypatch.setattr(ReconWork, "reconstruct", whole)
    first = (tmp_path / "out" / "a.nii.gz").stat().st_mtime_ns
    done = run(*words)
    assert "1 of 3 images exist already" in done.stdout
    assert not done.stderr
    assert [path.name[0] for path in sorted((tmp_path / "out").iterdir())] == ["a", "b", "c"]
    assert (tmp_path / "out" / "a.nii.gz").stat().st_mtime_ns == first
    run(*words, "--overwrite", "--quiet")
    assert (tmp_path / "out" / "a.nii.gz").stat().st_mtime_ns > first


def test_an_existing_file_is_replaced_only_with_overwrite(run, scan, tmp_path, one_line):
    (tmp_path / "x.npy").write_text("precious")
    one_line(run("recon", "scan.h5", "-o", "x.npy", code=2), "x.npy", "overwrite")
    assert (tmp_path / "x.npy").read_text() == "precious"
    run("recon", "scan.h5", "-o", "x.npy", "--overwrite", "--quiet")
    assert np.load(tmp_path / "x.npy").shape == (3, 96, 96)


def test_errors_of_the_deviation_s_file_come_before_the_work(run, scan, tmp_path, monkeypatch, one_line):
    (tmp_path / "x_std.nii").write_text("precious")
    words = ("recon", "scan.h5", "-m", "upmri", "--samples", "2", "--slices", "1", "--steps", "2", "-q")
    monkeypatch.setattr("upmri.inference.reconstruct.reconstruct_slices", lambda *_, **__: 1 / 0)
    one_line(run(*words, "-o", "x.nii", code=2), "x_std.nii: exists already")
    monkeypatch.setitem(sys.modules, "highdicom", None)
    one_line(run(*words, "-o", "x.dcm", code=2), "scan.h5: std: ", "upmri[dicom]")
    run(*words, "-o", "x.nii", "--overwrite", code=1)
    run("recon", "scan.h5", "-o", "x.nii", code=1)
    assert (tmp_path / "x_std.nii").read_text() == "precious"


def test_every_second_slice_is_twice_as_far_away(run, scan, tmp_path):
    replace(scan, spacing=(1, 1, 3)).save(tmp_path / "scan.h5", overwrite=True)
    for slices, expected in (("::2", 6), ("1:", 3), ("0:1:2", 3)):
        run("recon", "scan.h5", "-m", "zero-filled", "--slices", slices, "-o", "x.nii", "--overwrite")
        assert nibabel.load(tmp_path / "x.nii").header.get_zooms() == (1, 1, expected)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["recon", "nothing.npy"], ["nothing.npy"]),
        (["recon", "scan.h5", "-m", "magic"], ["magic", "sense"]),
        (["recon", "scan.h5", "--slices", "9"], ["scan.h5", "3 slices"]),
        (["recon", "scan.h5", "-o", "nowhere/x.npy"], ["nowhere"]),
        (["recon", "scan.h5", "-o", "x.dicom"], ["x.dicom", ".nii.gz", ".dcm"]),
        (["recon", "scan.h5", "-m", "sense", "--lambda", "-1"], ["--lambda", "> 0"]),
        (["recon", "scan.h5", "-m", "upmri", "--lambda", "1"], ["--lambda", "not a setting of upmri"]),
        (["recon", "scan.h5", "-m", "upmri", "--model", "pears"], ["model", "pears", "apples"]),
        (["recon", "scan.h5", "-m", "upmri", "--model", "."], ["model", "neither a file"]),
        (["recon", "scan.h5", "-m", "upmri", "--model", "scan.h5"], ["scan.h5", "not weights of UPMRI"]),
        (["recon", "scan.h5", "-m", "upmri-paper"], ["model", "no weights of upmri-paper", "upmri train"]),
        (["recon", "scan.h5", "-m", "upmri-paper", "--model", "apples"], ["apples", "weights of upmri,"]),
        (["recon", "scan.h5", "-m", "sense", "--model", "apples"], ["model", "not a setting of sense"]),
        (["recon", "scan.h5", "-m", "sense", "--samples", "2"], ["samples", "not a setting of sense"]),
        (["recon", "scan.h5", "-m", "upmri", "--samples", "0"], ["samples", "at least 1"]),
        (["recon", "scan.h5", "-m", "upmri", "--adapt-steps", "9"], ["adapt_steps", "only with adapt (--adapt)"]),
        (["train", "nothing.yaml"], ["nothing.yaml", "cannot be read"]),
        (["train", "scan.h5"], ["scan.h5", "not YAML"]),
        (["recon", "scan.h5", "--device", "cuda:9"], ["cuda:9", "cpu"]),
        (["recon", "scan.h5", "--max-gib", "0.0001"], ["scan.h5", "limit"]),
        (["recon", "scan.h5", "scan.h5", "-o", "new", "--device", "cuda:9"], ["device", "cuda:9"]),
        (["recon", "scan.h5", "other.h5", "-o", "new", "-m", "sense", "--maps", "lost"], ["lost: no such file"]),
        (["recon", "scan.h5", "other.h5", "-o", "new", "--dry-run", "--reference", "lost"], ["lost: no such file"]),
        (["recon", "scan.h5", "-o", "1.2.840.10008"], ["--out", "a folder that exists", "1.2.840.10008"]),
        (["recon", "scan.h5", "--sample", "2"], ["--sample", "--samples", "see upmri recon --help"]),
        (["recon", "scan.h5", "--samples", "x"], ["--samples", "integer"]),
        (["recon", "scan.h5", "--samples"], ["--samples", "requires an argument"]),
        (["reconstruct", "scan.h5"], ["reconstruct", "see upmri --help"]),
        (["info"], ["scan", "see upmri info --help"]),
        (["serve", "--workers", "0"], ["--workers", "1"]),
        (["info", "nothing.npy"], ["nothing.npy"]),
        (["simulate", "nothing.npy", "x.h5"], ["nothing.npy"]),
        *(
            ([*words, "--seed", str(10**20)], ["--seed: expected a whole number from"])
            for words in (["recon", "scan.h5", "-m", "sense"], ["simulate", "scan.h5", "x.h5"], ["stream", "scan.h5"])
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, scan, tmp_path, words, parts, one_line):
    before = sorted(tmp_path.iterdir())
    one_line(run(*words, code=2), *parts)
    assert sorted(tmp_path.iterdir()) == before


def test_missing_weights_are_an_error_before_anything_is_read(run, scan, shipped, one_line):
    (shipped / "apples.safetensors").unlink()
    done = run("recon", "scan.h5", "missing.h5", "-m", "upmri", code=2)
    one_line(done, "model", "no weights of upmri", "upmri train")
    assert "No weights" in run("models").stdout
    assert json.loads(run("models", "--json").stdout) == []
    assert "train it" in run("methods").stdout


def test_weights_from_a_file_and_samples(run, scan, tmp_path, apples):
    (tmp_path / "my [bold]apples.safetensors").write_bytes(apples.read_bytes())
    words = (
        "recon",
        "scan.h5",
        "-m",
        "upmri",
        "--slices",
        "1",
        "--model",
        "my [bold]apples.safetensors",
        "--samples",
        "3",
        "--steps",
        "2",
    )
    assert "with weights my [bold]apples.safetensors in " in run(*words, "-o", "x.h5").stdout
    rec = upmri.formats.load_reconstruction(tmp_path / "x.h5")
    expected = upmri.reconstruct(scan[1], "upmri", model=apples, samples=3, steps=2)
    assert rec.samples.equal(expected.samples)
    assert rec.std.equal(expected.std)
    (result,) = json.loads(run(*words, "-o", "y.h5", "--json").stdout)
    assert result["settings"]["model"] == "my [bold]apples.safetensors"
    assert len(result["settings"]["sha256"]) == 64
    assert result["versions"] == rec.versions == {"upmri": upmri.__version__, "torch": torch.__version__}


def test_the_gain_over_sense_is_printed_when_it_was_measured(run, scan):
    words = ("recon", "scan.h5", "-m", "cg-sense", "--slices", "0", "--overwrite")
    (result,) = json.loads(run(*words, "--check", "--json").stdout)
    gain = upmri.reconstruct(scan[0], "cg-sense", check=True, device="cpu").settings["held_out_gain"]
    assert result["settings"]["held_out_gain"] == gain
    assert f" by cg-sense ({gain:+.1f} dB over SENSE on held-out lines) in " in run(*words, "--check").stdout
    assert "SENSE" not in run(*words).stdout


def test_weights_of_another_method(run, scan, tmp_path, one_line):
    objective = PaperObjective(size="tiny")
    save_weights(tmp_path / "paper.safetensors", objective.network().state_dict(), "upmri-paper", objective, {})
    done = run("recon", "scan.h5", "-m", "upmri", "--model", "paper.safetensors", code=2)
    one_line(done, "paper.safetensors has weights of upmri-paper, expected some of upmri")
    assert not (tmp_path / "scan.nii.gz").exists()


RUN = """
import re
from upmri.cli import main
from upmri.weights.files import save_weights
try:
    main()
finally:  # `resource` would count the memory of the parent process, if that is more
    print(*re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()))
"""


@pytest.mark.parametrize("suffix", ["npy", "h5"])
@pytest.mark.soak
def test_peak_memory_does_not_grow_with_the_slices(tmp_path, suffix):
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=16, acceleration=4)
    kspace = np.tile(np.pad(scan.kspace.numpy(), ((0, 0), (0, 0), (48, 48), (0, 0))), (60, 1, 1, 1))  # 141 MB
    path = tmp_path / f"scan.{suffix}"
    if suffix == "npy":
        np.save(path, kspace)
    else:
        upmri.Scan(kspace=kspace, mask=scan.mask[0]).save(path)
    peaks = []
    for slices in ("0:1", "0:60"):
        command = [sys.executable, "-c", RUN, "recon", path, "--slices", slices, "-o", "x.npy", "--overwrite", "-q"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    images = 60 * 192 * 96 * 8 / 2**20
    assert peaks[1] < peaks[0] + 3 * images + 60


def test_a_damaged_file_among_the_weights_does_not_stop_a_reconstruction(run, scan, tmp_path, monkeypatch):
    """It is named in one warning; to name it as the model is an error."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "damaged.safetensors").write_bytes(b"just some text")
    os.mkfifo(own / "pipe.safetensors")
    monkeypatch.setenv("UPMRI_MODELS", str(own))
    shown = run("recon", "scan.h5", "--method", "upmri").stderr
    assert "apples" in run("models").stdout
    for name in ("damaged", "pipe"):
        assert shown.count(f"{name}.safetensors") == 1
        assert f"{name}.safetensors" in run("recon", "scan.h5", "--model", name, "--overwrite", code=2).stderr
    assert (tmp_path / "scan.nii.gz").exists()


def test_faults_of_a_scan_are_one_line_each(run, scan, tmp_path):
    kspace = scan.kspace.clone()
    kspace[:, 2] = 0
    kspace[1] = 0
    np.save(tmp_path / "faulty.npy", kspace.numpy())
    done = run("recon", "faulty.npy", "-m", "sense", "-o", "x.npy", "--json")
    assert json.loads(done.stdout)[0]["settings"]["left_out_coils"] == [2]
    assert done.stderr.splitlines() == [
        "upmri: coil 2 is dead in slice 0; left out wherever this is so",
        "upmri: nothing was sampled in slice 1; the image is 0 there",
    ]
    image = np.load(tmp_path / "x.npy")
    assert [bool(one.any()) for one in image] == [True, False, True]


@pytest.mark.parametrize("slices", [1, 2])
def test_a_scan_of_zeros_is_one_line_and_exit_2(run, tmp_path, slices, one_line):
    np.save(tmp_path / "zeros.npy", np.zeros((slices, 2, 16, 16), np.complex64))
    one_line(run("recon", "zeros.npy", "-m", "sense", code=2), "zeros.npy", "nothing was sampled")
    assert not (tmp_path / "zeros.nii.gz").exists()


def link(kind, name, target):
    (name.symlink_to if kind == "symbolic" else name.hardlink_to)(target)


@pytest.mark.parametrize("kind", ["same", "relative", "symbolic", "hard"])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_input_is_never_overwritten(run, scan, tmp_path, kind, swapped, one_line):
    before = (tmp_path / "scan.h5").read_bytes()
    target = {"same": "scan.h5", "relative": f"../{tmp_path.name}/scan.h5"}.get(kind, "other.h5")
    if target == "other.h5":
        link(kind, tmp_path / target, tmp_path / "scan.h5")
    read, target = (target, "scan.h5") if swapped else ("scan.h5", target)
    done = run("recon", read, "-m", "zero-filled", "-o", target, "--overwrite", code=2)
    one_line(done, f"{target}: is an input")
    assert (tmp_path / "scan.h5").read_bytes() == before


def test_a_pair_of_files_is_never_overwritten(run, scan, tmp_path, one_line):
    image = scan.kspace[0, :, :, :].permute(1, 2, 0)[:, :, None]  # BART: readout, phase, slice, coil
    (tmp_path / "raw.cfl").write_bytes(image.permute(3, 2, 1, 0).contiguous().numpy().tobytes())
    (tmp_path / "raw.hdr").write_text("# Dimensions\n96 96 1 4 1 1 1 1 1 1 1 1 1 1 1 1\n")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("raw.*")}
    for read in ("raw.cfl", "raw.hdr"):
        one_line(run("recon", read, "-o", "raw.cfl", "--overwrite", code=2), "is an input")
    (tmp_path / "out.hdr").symlink_to("raw.hdr")
    one_line(run("recon", "raw.cfl", "-o", "out.cfl", "--overwrite", code=2), "out.hdr: is an input")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("raw.*")} == before


def test_neither_the_page_nor_deviations_nor_another_scan_replace_an_input(run, scan, tmp_path, apples, one_line):
    """Scans are recognised by their content, whatever their names are."""
    raw = (tmp_path / "scan.h5").read_bytes()
    names = ("x.html", "y_std.nii", "z.nii.gz")
    for name in names:
        (tmp_path / name).write_bytes(raw)
    words = ("-m", "zero-filled", "--overwrite", "--slices", "0")
    one_line(run("recon", "x.html", *words, "-o", "x.npy", "--report", code=2), "x.html: is an input")
    one_line(
        run("recon", "y_std.nii", "-m", "upmri", "--samples", "2", "--overwrite", "-o", "y.nii", code=2), "is an input"
    )
    done = run("recon", "scan.h5", "z.nii.gz", *words, "-o", ".", code=2)
    assert "z.nii.gz: is an input" in done.stderr
    (tmp_path / "w.npy").write_bytes(apples.read_bytes())
    one_line(run("recon", "scan.h5", "--model", "w.npy", "--overwrite", "-o", "w.npy", code=2), "w.npy: is an input")
    assert all((tmp_path / name).read_bytes() == raw for name in names)
    assert (tmp_path / "w.npy").read_bytes() == apples.read_bytes()


@pytest.mark.parametrize("target", ["taken", "taken/deeper", "/dev/full", "x" * 300, "x" * 300 + ".npy"])
def test_a_place_that_cannot_be_written_is_one_line(run, scan, tmp_path, target, one_line):
    (tmp_path / "taken").write_text("a file")
    one_line(run("recon", "scan.h5", "-o", target, code=2), target)
    assert (tmp_path / "taken").read_text() == "a file"


FILL = """
import resource, signal, sys
import upmri.cli
from upmri.weights.files import save_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for name in sys.argv[1:]:
    sys.argv = ["upmri", *"recon scan.h5 -m zero-filled -q --overwrite -o".split(), name]
    sys.argv += ["--report", "--slices", "0:1"] if name == "page.png" else []
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000 if name == "page.png" else 5000, -1))
    try:
        upmri.cli.main()
    except SystemExit as end:
        print(end.code, flush=True)
"""


def test_a_full_disk_is_one_line_for_every_writer(tmp_path, scan, fresh):
    names = ["x.nii.gz", "x.nii", "x.h5", "x.npy", "x.cfl", "x.png", "x.dcm", "page.png"]
    done = fresh(FILL, *names, cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["2"] * len(names)), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(names), done.stderr
    for name, line in zip(names, lines, strict=True):
        why = "27648 requested and 609 written; is the disk full?" if name == "x.npy" else "File too large"
        assert line == f"upmri: {name.replace('page.png', 'page.html')}: cannot be written: {why}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.png", "scan.h5"]


def test_a_full_terminal_is_one_line(tmp_path, scan):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "upmri", "info", "scan.h5"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".nii.gz"])
def test_a_name_of_250_characters_is_written(run, scan, tmp_path, suffix):
    name = "x" * (250 - len(suffix)) + suffix
    for _ in range(2):  # new, and over the old one
        run("recon", "scan.h5", "-m", "zero-filled", "--slices", "0", "-o", name, "--overwrite", "-q")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scan.h5", name]


@pytest.mark.usefixtures("scan")
def test_the_seconds_of_each_stage(run):
    done = run("recon", "scan.h5", "-m", "sense", "-o", "x.npy", "--profile", "--json")
    (result,) = json.loads(done.stdout)
    assert {"opening", "reading", "coil maps", "writing"} <= set(result["stages"])
    assert sum(result["stages"].values()) > 0
    shown = run("recon", "scan.h5", "-m", "sense", "-o", "x.npy", "--profile", "--overwrite")
    stages = [line.rstrip() for line in shown.stdout.splitlines() if line.rstrip().endswith("%")]
    assert any(line.startswith("  coil maps  ") for line in stages)
    columns = {line[2:].index(line[2:].split("  ", 1)[1].lstrip()) for line in stages}
    assert len(columns) == 1


def test_adaptation_is_for_each_scan(run, tmp_path, monkeypatch):
    """Poor weights are adapted to slices spread over the chosen ones, and the line says what that brought."""
    objective = UpmriObjective(cascades=1, width=16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        poor = {
            name: value + 0.1 * torch.randn(value.shape) for name, value in objective.network().state_dict().items()
        }
    save_weights(tmp_path / "poor.safetensors", poor, "upmri", objective, {"name": "poor"})
    upmri.simulate(upmri.demo.brain()[:, ::2, ::2], coils=4, acceleration=2, acs=8).save(tmp_path / "lines.h5")
    monkeypatch.setattr(AdaptationPlan, "for_device", lambda *_: AdaptationPlan(steps=10, batch=1))
    words = ["recon", "lines.h5", "--model", "poor.safetensors", "--slices", "1:", "--adapt", "--device", "cpu"]
    (result,) = json.loads(run(*words, "--json").stdout)
    made = result["settings"]["adaptation"]
    assert result["settings"]["adapt"] is True
    assert made["slices"] == 2
    assert made["steps"] == 10
    assert made["gain"] > 0.2
    assert f"({made['gain']:+.2f} dB on held-out lines)" in run(*words, "--overwrite").stdout


def test_a_scan_with_too_few_lines_is_said_not_to_be_adapted(run, tmp_path):
    upmri.simulate(upmri.demo.brain()[:1], coils=4, acceleration=8, acs=5).save(tmp_path / "few.h5")
    done = run("recon", "few.h5", "--adapt", "--adapt-steps", "2", "--device", "cpu")
    assert "no slice has 12 lines" in done.stderr
    assert ", not adapted (too few lines)" in done.stdout
    assert "steps: only with samples above 1" in run("recon", "few.h5", "--adapt", "--steps", "2", code=2).stderr


def test_few_calibration_lines_are_named(run, tmp_path):
    for lines, few in ((7, True), (8, False)):
        scan = upmri.simulate(upmri.demo.brain()[:1], coils=4, acceleration=4, acs=lines)
        replace(scan, maps=None).save(tmp_path / "scan.h5", overwrite=True)
        done = run("recon", "scan.h5", "-m", "sense", "-o", "x.npy", "--overwrite")
        assert ("only 7 calibration lines: the image can show wrong structure" in done.stdout) == few
        assert ("only 7 calibration lines" in " ".join(run("info", "scan.h5").stdout.split())) == few


def test_deviations_that_are_not_written_are_a_warning(run, tmp_path):
    upmri.simulate(upmri.demo.brain()[:1, ::2, ::2], coils=4, acceleration=2).save(tmp_path / "small.h5")
    words = ["recon", "small.h5", "--samples", "2", "--steps", "2", "--device", "cpu", "--overwrite"]
    assert ".png has no place for standard deviations" in run(*words, "-o", "a.png").stderr
    assert not run(*words, "-o", "a.h5").stderr


def test_weights_that_differ_between_scans_are_counted(run, tmp_path, monkeypatch):
    models = iter(["brain", "cardiac", "brain", "brain", "brain"])
    monkeypatch.setattr(
        "upmri.cli.recon_work.summary",
        lambda _, out, __: {"out": str(out), "slices": 1, "method": "upmri", "seconds": 0.1,
                                "settings": {"model": next(models)}},
    )  # fmt: skip
    for name in "abc":
        upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2).save(tmp_path / f"{name}.h5")
    *_, last = run("recon", "a.h5", "b.h5", "c.h5", "-m", "sense", "-o", "x/").stdout.splitlines()
    assert last == "2 scans with brain, 1 scan with cardiac; --model takes the same weights for all"
    assert "takes the same" not in run("recon", "a.h5", "b.h5", "-m", "sense", "-o", "y/").stdout


def test_partial_fourier_is_named_and_can_be_switched_off(run, tmp_path):
    whole = upmri.simulate(upmri.demo.brain()[:1], coils=4, acceleration=1, acs=0)
    lines = torch.arange(96)[None, None] < 72
    scan = replace(whole, kspace=whole.kspace * lines[:, None], mask=lines)
    scan.save(tmp_path / "half.h5")
    assert "partial Fourier 6/8 along phase" in run("info", "half.h5").stdout
    assert "partial Fourier 6/8 along phase: used" in run("recon", "half.h5", "-m", "sense", "-o", "a.npy").stdout
    done = run("recon", "half.h5", "-m", "sense", "--no-partial-fourier", "-o", "b.npy")
    assert "partial Fourier 6/8 along phase: not used" in done.stdout
    for name, on in (("a", True), ("b", False)):
        expected = upmri.reconstruct(scan, "sense", partial_fourier=on).image
        assert np.allclose(np.load(tmp_path / f"{name}.npy"), expected, atol=1e-5)


def test_navigators_correct_the_ghosts_of_an_echo_planar_scan(run, tmp_path, one_line):
    image = torch.zeros(64, 64)
    image[16:40, 22:42] = 1
    odd = torch.arange(64) % 2 == 1
    maps = torch.ones(2, 1, 1) * torch.tensor([1, 0.5j])[:, None, None]

    def ghosted(hybrid):
        return fft1c(torch.where(odd, hybrid * torch.exp(torch.tensor(0.8j)), hybrid), -2)

    for name, hybrid in (
        ("epi", fft1c(maps * image)),
        ("none", (maps * image).sum(-1, keepdim=True).expand(2, 64, 64)),
    ):
        upmri.Scan(kspace=ghosted(hybrid)[None].to(torch.complex64)).save(tmp_path / f"{name}.h5")
    run("recon", "epi.h5", "-m", "zero-filled", "--navigators", "none.h5", "-o", "a.npy", "-q")
    run("recon", "epi.h5", "-m", "zero-filled", "-o", "b.npy", "-q")
    fixed, plain = (abs(np.load(tmp_path / name)[0]) for name in ("a.npy", "b.npy"))
    assert fixed[:, 54:].max() < 0.02 * fixed.max()
    assert plain[:, 54:].max() > 0.1 * plain.max()
    expected = correct_ghosts(upmri.load(tmp_path / "epi.h5"), upmri.load(tmp_path / "none.h5"))
    assert np.allclose(fixed, upmri.reconstruct(expected, "zero-filled").image[0].abs(), atol=1e-5)
    other = upmri.Scan(kspace=torch.ones(1, 3, 64, 64, dtype=torch.complex64))
    other.save(tmp_path / "other.h5")
    one_line(
        run("recon", "epi.h5", "-m", "sense", "--navigators", "other.h5", "-o", "c.npy", code=2),
        "upmri: other.h5: navigators:",
        "coils",
    )


def test_dotted_names_and_names_without_suffix(run, scan, tmp_path):
    for name in ("sub.01", "sub.02"):
        np.save(tmp_path / f"{name}.npy", scan.kspace.numpy())
    run("recon", "sub.01.npy", "sub.02.npy", "-m", "zero-filled", "--report", "-q")
    written = {path.name for path in tmp_path.iterdir()}
    assert {"sub.01.nii.gz", "sub.02.nii.gz", "sub.01.html", "sub.02.html"} <= written
    run("maps", "scan.h5", "-o", "maps.cfl", "-q")
    run("recon", "sub.01.npy", "--maps", "maps", "--slices", ":9", "-m", "sense", "-o", "with_maps.nii.gz", "-q")
    assert (tmp_path / "with_maps.nii.gz").exists()


def test_a_reference_that_has_changed_is_read_again(run, scan, tmp_path, one_line):
    np.save(tmp_path / "reference.npy", scan.kspace.numpy())
    run("recon", "scan.h5", "--reference", "reference.npy", "-m", "sense", "-q")
    np.save(tmp_path / "reference.npy", np.tile(scan.kspace.numpy(), (2, 1, 1, 1)))
    done = run("recon", "scan.h5", "--reference", "reference.npy", "-m", "sense", "--overwrite", code=2)
    one_line(done, "reference", "got 6")


def test_a_bart_array_by_the_name_that_bart_uses(run, scan, tmp_path, one_line):
    array = scan.kspace[:1].permute(2, 3, 0, 1).numpy()  # readout, phase, partition, coil: the first runs fastest
    (tmp_path / "bkus.cfl").write_bytes(array.astype("<c8").tobytes(order="F"))
    (tmp_path / "bkus.hdr").write_text("# Dimensions\n" + " ".join(map(str, array.shape)) + "\n")
    run("recon", "bkus", "-m", "zero-filled", "-q")
    assert (tmp_path / "bkus.nii.gz").exists()
    one_line(run("recon", "bkus", "-o", "bkus.cfl", "--overwrite", "-m", "zero-filled", code=2), "bkus.cfl")


def test_bounds_are_a_line_and_an_entry(run, scan, tmp_path, apples, one_line):
    done = run("recon", "scan.h5", "-m", "upmri", "--bounds", code=2)
    assert "calibrate_bounds.py" in done.stderr
    model = update_card(apples, tmp_path / "bounded.safetensors", bounds=_BOUNDS.card())
    done = run("recon", "scan.h5", "-m", "upmri", "--model", model, "--bounds")
    line = done.stdout.splitlines()[-1]
    assert line.startswith("at least ")
    assert line.endswith("with 90 % confidence, if this scan is like those of the calibration")
    done = run("recon", "scan.h5", "-m", "upmri", "--model", model, "--bounds", "--json", "--overwrite")
    (result,) = json.loads(done.stdout)
    assert len(result["bounds"]["psnr"]) == 3
    assert result["bounds"]["sentence"] == line
    one_line(run("recon", "scan.h5", "-m", "sense", "--bounds", code=2), "bounds", "not a setting of sense")


@pytest.mark.parametrize("output", ["full", "closed"])
def test_images_are_made_where_stdout_cannot_be_written(scan, tmp_path, output):
    for name in ("b", "c"):
        scan.save(tmp_path / f"{name}.h5")
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("wb") if output == "full" else os.fdopen(writing, "wb") as stdout:
        command = [sys.executable, "-m", "upmri", "recon", "scan.h5", "b.h5", "c.h5", "-m", "zero-filled"]
        done = subprocess.run(command, cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    assert len(list(tmp_path.glob("*.nii.gz"))) == 3
    assert done.returncode == 2
    reason = "No space left on device" if output == "full" else "Broken pipe"
    assert done.stderr == f"upmri: standard output: cannot be written: {reason}\n"
