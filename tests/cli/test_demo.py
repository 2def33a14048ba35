"""The demonstration: its brain, its table and its files."""

import json

import numpy as np
import pytest

from upmri import InputError
from upmri.cli import demo


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
    assert json.loads((tmp_path / "shown" / "table.json").read_text()) == rows


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
