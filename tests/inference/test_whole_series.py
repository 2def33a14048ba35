"""Dynamic scans by methods over time: places, order, shared maps, frames without samples."""

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.inference.whole_series import frames_of_places
from upmri.methods.base import Estimate, Method
from upmri.physics import simulate_series

FRAMES = 5


@dataclass(frozen=True)
class Recorder(Method):
    """SENSE that notes the problems it gets."""

    name = "recorder"
    summary = "for tests"
    dynamic = True
    seen: ClassVar[list] = []

    def reconstruct(self, problem):
        self.seen.append(problem)
        return problem.operator.solve(problem.adjoint, 0.01)


@pytest.fixture
def recorder():
    Recorder.seen.clear()
    return Recorder()


def beats(size, shift=0):
    y, x = np.mgrid[-1:1:40j, -1:1:32j]
    body = 0.5 * (np.hypot(x, y) < 0.8)
    return np.stack([body + 0.5 * (np.hypot(x - shift, y) < size + 0.04 * t) for t in range(FRAMES)])


@pytest.fixture(scope="module")
def two_places():
    """Two places, whose frames lie one after another: slice is the fastest axis."""
    first, second = (
        simulate_series(beats(*a), coils=6, acceleration=2, seed=i) for i, a in enumerate([(0.2, 0), (0.3, 0.2)])
    )
    order = [i for t in range(FRAMES) for i in (t, FRAMES + t)]
    parts = {
        name: torch.cat([getattr(s, name) for s in (first, second)])[order]
        for name in ("kspace", "mask", "maps", "reference")
    }
    return upmri.Scan(**parts, noise=0.01, meta={"axes": {"phase": FRAMES, "slice": 2}})


def test_each_place_is_one_problem_and_slices_keep_their_order(two_places, recorder):
    rec = upmri.reconstruct(two_places, recorder, device="cpu")
    assert [(len(p), p.frames) for p in recorder.seen] == [(FRAMES, FRAMES)] * 2
    expected = upmri.reconstruct(two_places, "sense", damping=0.01, device="cpu").image
    assert (rec.image - expected).abs().max() < 0.1 * expected.abs().max()  # damping is for another scale
    assert torch.equal(rec.reference, two_places.reference)
    assert rec.settings["maps_from"] == "given"


def test_maps_are_those_of_the_average(two_places, recorder):
    bare = replace(two_places, maps=None)
    rec = upmri.reconstruct(bare, recorder, device="cpu")
    for problem in recorder.seen:
        assert (problem.operator.maps == problem.operator.maps[:1]).all()
    assert rec.settings["maps_from"] == "average over time"
    error = upmri.evaluate(rec, two_places.reference.abs())
    assert error["psnr"] > 25


def test_slices_are_named_by_their_number_in_the_scan(two_places, recorder):
    """Not by their place in the order of the work, in which one place comes after another."""
    parts = {name: getattr(two_places, name).clone() for name in ("kspace", "mask", "maps")}
    parts["kspace"][3], parts["mask"][3] = 0, False
    parts["maps"][4] *= 3
    with warnings.catch_warnings(record=True, action="always") as caught:
        rec = upmri.reconstruct(replace(two_places, **parts), recorder, device="cpu")
    assert (rec.settings["empty_slices"], rec.settings["normalised_maps"]) == ([3], [4])
    assert not rec.image[3].any()
    maps, empty = (str(warning.message) for warning in caught)
    assert maps.endswith("in slice 4; they are normalised")
    assert empty.startswith("nothing was sampled in slice 3;")


def test_frames_without_samples_are_zero_and_not_used(two_places, recorder):
    kspace, mask = two_places.kspace.clone(), two_places.mask.clone()
    kspace[2], mask[2] = 0, False
    with pytest.warns(UserWarning, match="nothing was sampled in slice"):
        rec = upmri.reconstruct(replace(two_places, kspace=kspace, mask=mask), recorder, device="cpu")
    assert [p.frames for p in recorder.seen] == [FRAMES - 1, FRAMES]
    assert (rec.image[2] == 0).all()
    assert (rec.image.flatten(1).norm(dim=1) > 0).sum() == 2 * FRAMES - 1


@dataclass(frozen=True)
class TwoDraws(Recorder):
    """With draws and their deviation."""

    def __call__(self, problem):
        image = self.reconstruct(problem)
        drawn = torch.stack([image, 3 * image])
        return Estimate(2 * image, drawn, drawn.abs().std(0))


def test_draws_and_deviations_are_those_of_the_frames(two_places):
    kspace, mask = two_places.kspace.clone(), two_places.mask.clone()
    kspace[2], mask[2] = 0, False
    with pytest.warns(UserWarning, match="nothing was sampled in slice"):
        rec = upmri.reconstruct(replace(two_places, kspace=kspace, mask=mask), TwoDraws(), device="cpu")
    assert torch.allclose(rec.samples.mean(0), rec.image)
    assert torch.allclose(rec.std, rec.image.abs() / 2**0.5)
    assert (rec.std.flatten(1).norm(dim=1) == 0).tolist() == [i == 2 for i in range(2 * FRAMES)]


def test_the_noise_level_is_one_for_all_frames(two_places, recorder):
    upmri.reconstruct(replace(two_places, noise=None), recorder, device="cpu")
    for problem in recorder.seen:
        level = problem.sigma * problem.scale
        assert level.unique().numel() == 1
        assert float(level[0]) == pytest.approx(0.01, rel=0.25)


def test_slices_that_nothing_names_as_frames_are_refused(two_places, recorder):
    with pytest.raises(InputError, match="nothing says which of the 10 slices are frames"):
        upmri.reconstruct(replace(two_places, meta={}), recorder, device="cpu")


def test_some_slices_of_a_scan_are_series_too(two_places, recorder):
    """Their meta says which frames they are."""
    part = replace(two_places, maps=None)[2:8]
    rec = upmri.reconstruct(part, recorder, device="cpu")
    assert [problem.frames for problem in recorder.seen] == [3, 3]
    assert rec.meta["frames"] == [{"phase": t, "slice": s} for t in (1, 2, 3) for s in (0, 1)]
    assert upmri.info(part)["series"] == [2, 3]


def test_one_slice_is_a_series_of_one_frame(two_places, recorder):
    expected = "recorder needs several frames of one place, and one was given; upmri is better for one frame"
    with pytest.warns(UserWarning, match=expected) as warned:
        upmri.reconstruct(replace(two_places[0], meta={}), recorder, device="cpu")
    assert recorder.seen[0].frames == 1
    assert warned[0].filename == __file__


def test_places_with_one_frame_are_counted(two_places, recorder):
    frames = [{"phase": 0, "slice": 0}, {"phase": 0, "slice": 1}, {"phase": 1, "slice": 0}]
    with pytest.warns(UserWarning, match="1 of 2 places have one; upmri"):
        upmri.reconstruct(replace(two_places[:3], meta={"frames": frames}), recorder, device="cpu")
    assert [problem.frames for problem in recorder.seen] == [2, 1]


def test_places():
    assert frames_of_places({"axes": {"frame": 2, "slice": 3}}, 6) == [[0, 3], [1, 4], [2, 5]]
    assert frames_of_places({}, 1) == [[0]]


def test_a_file_by_the_command_line(two_places, tmp_path):
    from typer.testing import CliRunner

    from upmri.cli import app

    two_places.save(tmp_path / "beat.h5")
    run = CliRunner().invoke(app, ["recon", str(tmp_path / "beat.h5"), "-m", "llr", "-o", str(tmp_path / "out.npy")])
    assert run.exit_code == 0, run.output
    assert np.load(tmp_path / "out.npy").shape == (2 * FRAMES, 40, 32)
    one = ["recon", str(tmp_path / "beat.h5"), "-m", "llr", "--slices", "0", "-o", str(tmp_path / "one.npy")]
    run = CliRunner().invoke(app, one)
    assert run.exit_code == 0, run.output
    assert "llr needs several frames of one place, and one was given" in run.output


def test_info_names_a_dynamic_scan(two_places):
    facts = upmri.info(two_places)
    assert facts["series"] == [2, FRAMES]
    assert facts["notes"][0].startswith(f"A dynamic scan: {FRAMES} frames of each of 2 places. The method cine")
    assert upmri.info(replace(two_places, meta={}))["series"] is None
