"""The script for SSIBench: its scans are those of deepinv, and it runs to its table."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from upmri.formats import load
from upmri.physics.sense import SenseOperator

deepinv = pytest.importorskip("deepinv")
pytest.importorskip("sigpy")

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("ssibench", FOLDER / "ssibench.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("peers", None)


@pytest.fixture
def images(tmp_path, head_images):
    path = tmp_path / "images.pt"
    torch.save(head_images, path)
    return path


@pytest.fixture
def head_images():
    from upmri.physics.phantom import image

    return torch.stack([image((64, 64)).abs().float().roll(i, -1) for i in range(5)]).clamp(0, 1)


@pytest.mark.parametrize("scenario", ["mri", "noisy", "single", "multicoil"])
def test_scans_are_those_of_deepinv(script, images, head_images, tmp_path, scenario):
    """y = A x with their masks and coils; noise of σ = 0.1 a channel on sampled entries."""
    files = script.simulate(images, scenario, tmp_path / "scans")
    assert [len(files[part]) for part in ("train", "test")] == [4, 1]
    masks = set()
    for path in (*files["train"], *files["test"]):
        scan = load(path)
        assert any(torch.allclose(scan.reference[0].real, one) for one in head_images)
        gap = scan.kspace - SenseOperator(scan.maps, scan.mask)(scan.reference)
        sampled = scan.mask[:, None].expand_as(gap)
        if scenario == "noisy":
            assert gap[sampled].abs().square().mean().sqrt().item() == pytest.approx(scan.noise, rel=0.1)
            assert scan.noise == pytest.approx(0.1 * 2**0.5)
        else:
            assert gap.abs().max() < 1e-5
        assert scan.kspace.shape[1] == (4 if scenario == "multicoil" else 1)
        masks.add(tuple(scan.mask.flatten().tolist()))
    assert len(masks) == (1 if scenario == "single" else 5)


@pytest.mark.filterwarnings("ignore")
def test_it_runs_to_its_table(script, images, tmp_path, capsys):
    script.main([
        str(images), "--epochs", "1", "--cascades", "1", "--device", "cpu", "-o", str(tmp_path / "out"),
        "--method", "supervised", "upmri",
    ])  # fmt: skip
    table = capsys.readouterr().out
    cells = [line.split("|") for line in table.splitlines() if line.endswith("|") and "." in line]
    rows = {cell[1].strip(): float(cell[2]) for cell in cells}
    assert set(rows) == {"zero-filled", "sense", "supervised", "upmri"}
    assert all(5 < psnr < 80 for psnr in rows.values())
