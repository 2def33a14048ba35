"""The command line as a person uses it."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
import torch

import upmri
from upmri import cli, weights
from upmri.cli import console
from upmri.methods.upmri import UpmriLesson
from upmri.methods.upmri_paper import PaperLesson
from upmri.physics.fourier import ifft2c
from upmri.training.loop import DivergedError

LESSON = UpmriLesson(cascades=1, width=16)
CARD = {"about": "ten apples", "licence": "CC0-1.0", "training": {"seconds": 12}, "figures": {"gain, dB": 2.5}}


@pytest.fixture(scope="session")
def apples(tmp_path_factory):
    """Weights of a small network that has learnt nothing."""
    path = tmp_path_factory.mktemp("shipped") / "apples.safetensors"
    return weights.save(path, LESSON.network().state_dict(), "upmri", LESSON, {"name": "apples", **CARD})


@pytest.fixture
def shipped(tmp_path_factory, monkeypatch):
    """A package that comes with no weights, to put some into."""
    folder = tmp_path_factory.mktemp("package")
    monkeypatch.setattr(weights, "_FOLDER", folder)
    return folder


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, shipped, apples):
    (shipped / apples.name).write_bytes(apples.read_bytes())
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
    command = [sys.executable, "-m", "upmri", "recon", "nothing.npy", "-m", "sense"]
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


def test_info_tells_what_else_the_file_said(run, scan, tmp_path, monkeypatch):
    monkeypatch.setattr(console.out, "_width", 200)
    assert "geometry     unknown" in run("info", "scan.h5").stdout
    said = {"axes": {"slice": 3}, "nominal_acceleration": 8, "[bold]x": "\x1b[31mred"}
    place = {"position": [0, 0, 5], "readout": [0, 1, 0], "phase": [1, 0, 0], "slice": [0, 0, 1]}
    replace(scan, meta=said | {"geometry": place}, spacing=(1, 1, 2)).save(tmp_path / "told.h5")
    shown = run("info", "told.h5").stdout
    assert "2.00× accelerated (nominally 8×" in shown
    for key, value in {"axes": "slice 3", "[bold]x": "�[31mred", "geometry": "known"}.items():
        assert f"{key:12} {value}" in shown
    meta = json.loads(run("info", "told.h5", "--json").stdout)["meta"]
    assert meta == said | {"geometry": place | {"position": [0, 0, 7]}}  # of the middle slice


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


def test_lambda_and_steps(run, scan):
    run("recon", "scan.h5", "-m", "sense", "--lambda", "0.1", "-o", "a.npy", "--quiet")
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


def test_what_deviations_need_is_told_before_the_work(run, scan, tmp_path, monkeypatch):
    (tmp_path / "x_std.nii").write_text("precious")
    words = ("recon", "scan.h5", "-m", "upmri", "--samples", "2", "--slices", "1", "--steps", "2", "-q")
    monkeypatch.setattr("upmri.methods.reconstruct_slices", lambda *_, **__: 1 / 0)
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
        (["recon", "scan.h5", "-m", "sense", "--lambda", "-1"], ["damping", "λ > 0"]),
        (["recon", "scan.h5", "-m", "upmri", "--lambda", "1"], ["damping", "not a setting of upmri"]),
        (["recon", "scan.h5", "-m", "upmri", "--model", "pears"], ["model", "pears", "apples"]),
        (["recon", "scan.h5", "-m", "upmri", "--model", "."], ["model", "neither a file"]),
        (["recon", "scan.h5", "-m", "upmri", "--model", "scan.h5"], ["scan.h5", "not weights of UPMRI"]),
        (["recon", "scan.h5", "-m", "upmri-paper"], ["model", "no weights of upmri-paper", "upmri train"]),
        (["recon", "scan.h5", "-m", "upmri-paper", "--model", "apples"], ["apples", "weights of upmri,"]),
        (["recon", "scan.h5", "-m", "sense", "--model", "apples"], ["model", "not a setting of sense"]),
        (["recon", "scan.h5", "-m", "sense", "--samples", "2"], ["samples", "not a setting of sense"]),
        (["recon", "scan.h5", "-m", "upmri", "--samples", "0"], ["samples", "at least 1"]),
        (["train", "nothing.yaml"], ["nothing.yaml", "cannot be read"]),
        (["train", "scan.h5"], ["scan.h5", "not YAML"]),
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
    monkeypatch.setattr(console, "listing", lambda *_: 1 / 0)
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
    rows = {row["name"]: row for row in json.loads(run("methods", "--json").stdout)}
    assert list(rows) == list(upmri.methods())
    assert [rows[name]["weights"] for name in ("sense", "upmri", "upmri-paper")] == [None, ["apples"], []]
    shown = run("methods").stdout
    assert "l1-wavelet" in shown
    assert "apples" in shown
    assert "train it" in shown


def test_without_weights_it_is_told_before_anything_is_read(run, scan, shipped):
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
    assert "with weights my [bold]apples.safetensors (" in run(*words, "-o", "x.h5").stdout
    rec = upmri.formats.load_reconstruction(tmp_path / "x.h5")
    expected = upmri.reconstruct(scan[1], "upmri", model=apples, samples=3, steps=2)
    assert rec.samples.equal(expected.samples)
    assert rec.std.equal(expected.std)
    (result,) = json.loads(run(*words, "-o", "y.h5", "--json").stdout)
    assert result["settings"]["model"] == "my [bold]apples.safetensors"
    assert len(result["settings"]["sha256"]) == 64
    assert result["versions"] == rec.versions == {"upmri": upmri.__version__, "torch": torch.__version__}


def test_weights_of_another_method(run, scan, tmp_path):
    lesson = PaperLesson(size="tiny")
    weights.save(tmp_path / "paper.safetensors", lesson.network().state_dict(), "upmri-paper", lesson, {})
    done = run("recon", "scan.h5", "-m", "upmri", "--model", "paper.safetensors", code=2)
    one_line(done, "paper.safetensors holds weights of upmri-paper, expected some of upmri")
    assert not (tmp_path / "scan.nii.gz").exists()


def test_models(run, monkeypatch):
    monkeypatch.setattr(console.out, "_width", 200)
    shown = run("models").stdout
    for part in ("apples", "upmri", "ten apples", "12", "gain, dB 2.5", "CC0-1.0"):
        assert part in shown
    (fact,) = json.loads(run("models", "--json").stdout)
    assert fact | {"megabytes": 0} == {
        "name": "apples", "method": "upmri", "megabytes": 0, "about": "ten apples", "seconds": 12,
        "figures": {"gain, dB": 2.5}, "licence": "CC0-1.0",
    }  # fmt: skip
    assert 0.1 < fact["megabytes"] < 5


def test_a_hostile_card_is_shown_as_text(run, shipped, monkeypatch):
    card = {
        "name": "[red]x[/red]",
        "about": "[bold]big[/bold] \x1b[31mred\x07 [/nothing] [link=file:///etc]here[/link] \u202e\ud800 one\ntwo",
        "licence": "y" * 10_000,
        "training": ["not", "a", "dictionary"],
        "figures": {"[blink]gain": [1.25, None, {"dB": "\x1b]0;title\x07"}]},
    }
    path = weights.save(shipped / "hostile.safetensors", LESSON.network().state_dict(), "upmri", LESSON, card)
    monkeypatch.setattr(console.out, "_width", 4000)
    shown = run("models").stdout
    assert "[bold]big[/bold] �[31mred� [/nothing] [link=file:///etc]here[/link] �� one two" in shown
    assert "[blink]gain 1.25, , dB �]0;title�" in shown
    assert not any(letter in shown for letter in "\x1b\x07\u202e")
    assert "y" * 1000 + "…" in shown
    assert json.loads(run("models", "--json").stdout)[1]["about"] == card["about"]
    path.write_bytes(path.read_bytes()[:100])
    one_line(run("models", code=2), "hostile.safetensors", "not weights of UPMRI")


def test_a_message_can_do_nothing_to_the_terminal(run):
    one_line(run("recon", "no\x1b[31mthing.npy", "-m", "sense", code=2), "no�[31mthing.npy")


@pytest.fixture
def recipe(tmp_path):
    """A training of two steps."""
    rows = upmri.demo.brain()[:, 24:72, 24:72]
    np.save(tmp_path / "images.npy", rows)
    (tmp_path / "small.yaml").write_text(
        "output: run\ntrain: {images: [images.npy], coils: 4, accelerations: [2.0]}\n"
        "lesson: {cascades: 1, width: 4}\nsteps: 4\nbatch: 2\nname: mine\nabout: '[b]three slices'\ndevice: cpu\n"
    )


def test_train_and_use_what_was_learnt(run, recipe, scan, tmp_path):
    done = run("train", "small.yaml", "--set", "steps=2", "--set", "lesson.cascades=2")
    assert done.stdout == "run/mine.safetensors\n"
    for line in done.stderr.splitlines():  # lines that no scan has
        assert line.startswith("upmri: ")
    model = weights.load(tmp_path / "run" / "mine.safetensors")
    assert (model.lesson.cascades, model.card["training"]["steps"]) == (2, 2)
    one_line(run("train", "small.yaml", code=2), "a run is there already", "--resume")
    assert run("train", "small.yaml", "--set", "steps=2", "--set", "lesson.cascades=2", "--resume", "-q").stdout == ""
    run("recon", "scan.h5", "-m", "upmri", "--slices", "0", "--model", "run/mine.safetensors", "-q")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--set", "steps"], ["--set", "key=value"]),
        (["--set", "steps=0"], ["small.yaml", "steps", "at least 1"]),
        (["--set", "stpes=3"], ["small.yaml", "stpes"]),
        (["--set", "method=sense"], ["sense", "nothing to train"]),
        (["--set", "lesson.width=wide"], ["lesson.width", "wide"]),
        (["--set", "train.images=[nowhere.npy]"], ["nowhere.npy"]),
    ],
)
def test_bad_training_is_one_line_and_exit_2(run, recipe, words, parts):
    one_line(run("train", "small.yaml", *words, code=2), *parts)


def test_a_training_that_diverges_is_one_line_and_exit_1(run, recipe, monkeypatch):
    def diverge(*_, **__):
        raise DivergedError("step 7: the loss is nan; the last good state is in run/checkpoint.safetensors")

    monkeypatch.setattr("upmri.training.loop.train", diverge)
    one_line(run("train", "small.yaml", code=1), "step 7", "the last good state")


def test_demo(run, tmp_path):
    rows = json.loads(run("demo", "--out", "shown", "--json").stdout)
    shown = ["zero-filled", "sense", "cg-sense", "l1-wavelet", "upmri"]
    assert [row["method"] for row in rows] == 2 * shown
    assert {row["method"]: row["model"] for row in rows} == dict.fromkeys(shown) | {"upmri": "apples"}
    score = {(row["acceleration"], row["method"]): row["psnr"] for row in rows}
    for acceleration in (4, 8):
        assert score[acceleration, "sense"] > score[acceleration, "zero-filled"]
    pictures = {
        f"{kind}_{rate}x.{suffix}" for rate in (4, 8) for kind, suffix in [("comparison", "png"), ("report", "html")]
    }
    assert {p.name for p in (tmp_path / "shown").iterdir()} == pictures | {"table.json"}
