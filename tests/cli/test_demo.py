"""The demonstration: its brain, its table and its files."""

import importlib
import json

import numpy as np
import pytest

import upmri
from upmri import InputError
from upmri.cli import demo


def test_demo(run, tmp_path, monkeypatch):
    drawing = importlib.import_module("upmri.evaluation.comparison")  # the package has a function of this name
    draw, notes = drawing.comparison, []
    monkeypatch.setattr(drawing, "comparison", lambda *a, **k: (notes.append(k["note"]), draw(*a, **k)))
    part = demo.sagittal_head()[:, ::2, ::2]  # smaller, and faster
    monkeypatch.setattr(demo, "sagittal_head", lambda: part)
    rows = json.loads(run("demo", "--out", "shown", "--json").stdout)
    shown = ["zero-filled", "sense", "cg-sense", "grappa", "l1-wavelet", "upmri"]
    assert [row["method"] for row in rows] == 2 * shown
    assert {row["method"]: row["model"] for row in rows} == dict.fromkeys(shown) | {"upmri": "apples"}
    score = {(row["acceleration"], row["method"]): row["psnr"] for row in rows}
    for acceleration in (4, 8):
        assert score[acceleration, "sense"] > score[acceleration, "zero-filled"]
    pictures = {
        f"{kind}_{rate}x.{suffix}" for rate in (4, 8) for kind, suffix in [("comparison", "png"), ("report", "html")]
    }
    assert {p.name for p in (tmp_path / "shown").iterdir()} == pictures | {"table.json"}
    assert json.loads((tmp_path / "shown" / "table.json").read_text()) == rows
    assert notes == ["", demo.CAUTION]


def test_the_command_warns_of_lesions(run, monkeypatch):
    monkeypatch.setattr(demo, "run_demo", lambda *_, **__: [])
    said = run("demo", "--out", "shown")
    assert demo.CAUTION in said.stdout + said.stderr


def test_head():
    """The whole image, with tissue in its middle and air at its corner."""
    image = demo.sagittal_head()
    assert image.shape == (1, 256, 256)
    assert image.dtype == np.float32
    assert image[0, 100:140, 110:150].mean() > 0.5 * np.percentile(image, 99)
    assert image[0, :8, :8].max() == 0


def test_without_the_sample_data_of_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.get_data_path", lambda: str(tmp_path))
    with pytest.raises(InputError, match="no sample data"):
        demo.sagittal_head()


def test_lines_are_regular_and_said():
    full = upmri.simulate(demo.sagittal_head(), coils=2, acceleration=1)
    scan = demo._undersampled(full, 4)
    assert bool(scan.mask[0, 0, ::4].all())
    assert scan.noise is None
    assert demo._described(scan, 4) == "4×: every 4th line and the centre, 79 of 256 lines; 256 × 256 pixels"


def test_brain():
    slices = demo.brain()
    assert slices.shape == (3, 96, 96)
    assert slices.dtype == np.float32
    assert slices.max() > 0


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InputError) as error:
        demo.run_demo(tmp_path / "taken", progress=False)
    assert (error.value.field, error.value.path) == ("--out", str(tmp_path / "taken"))
    assert (tmp_path / "taken").read_text() == "mine"
