"""Scans of the calibration of bounds: what is drawn, and that other processes draw the same."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from upmri.physics.masks import calibration_region


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two slices of one validation person, (64, 96)."""
    folder = tmp_path / "anatomies"
    (folder / "heads").mkdir(parents=True)
    (folder / "splits.json").write_text(json.dumps({"heads": {"val": ["one"]}}))
    image = np.zeros((2, 64, 96), np.float32)
    image[:, 12:52, 16:80] = 1
    image[1, 20:30, 30:50] = 0.5
    np.savez(folder / "heads" / "one.npz", image=image)
    monkeypatch.setenv("UPMRI_DATA", str(tmp_path))


def test_other_processes_make_the_same_scans(data):
    """All tensors, bit by bit: maps of ESPIRiT among them."""
    import calibrate_bounds as script

    work = script.jobs(["heads"], "head", 4)
    assert [job[1:] for job in work] == [(0, "head", 0), (1, "head", 0), (0, "head", 1), (1, "head", 1)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    here = [script.scan_of(job) for job in work]
    torch.set_num_threads(threads)
    there = list(script.problems(work, torch.device("cpu"), 2))
    for scan, problem in zip(here, there, strict=True):
        again = script.Problem.from_scans([scan])
        assert torch.equal(problem.kspace, again.kspace)
        assert torch.equal(problem.operator.maps, again.operator.maps)
        assert torch.equal(problem.sigma, again.sigma)


def test_lines_are_random_and_regular_with_little_and_much_noise(data, monkeypatch):
    import calibrate_bounds as script

    monkeypatch.setattr(script, "find_maps", lambda kspace, _: torch.ones_like(kspace))  # not looked at
    scans = [script.scan_of(job) for job in script.jobs(["heads"], "head", 60)]
    settings = [scan.meta["simulated"] for scan in scans]
    noise = [setting["noise"] for setting in settings]
    assert 0.003 <= min(noise) < 0.005
    assert 0.03 < max(noise) <= 0.04
    regular = {spacing for scan in scans if (spacing := spacing_of(scan.mask)) is not None}
    assert regular == set(script.RATES)
    rates = [scan.mask.numel() / scan.mask.sum().item() for scan in scans if spacing_of(scan.mask) is None]
    assert min(rates) == pytest.approx(2, rel=0.02)
    assert max(rates) == pytest.approx(10, rel=0.1)
    assert 0.3 < len(rates) / len(scans) < 0.7


def spacing_of(mask):
    """Distance of the lines outside the calibration region, None where it is not the same."""
    _, centre = calibration_region(mask[0], 64)
    outer = [at for at in mask[0, 0].nonzero().flatten().tolist() if not centre.start <= at < centre.stop]
    apart = {b - a for a, b in pairwise(outer) if not a < centre.start <= b}
    return apart.pop() if len(apart) == 1 else None
