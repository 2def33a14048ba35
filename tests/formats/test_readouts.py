"""Readouts become frames: lines in their place, repeated ones averaged, separate calibration as coil maps."""

from __future__ import annotations

import numpy as np
import pytest

from upmri import InputError
from upmri.formats.grid import Grid, Table
from upmri.formats.readouts import ReadoutSource


class Lines(ReadoutSource):
    """Readouts of two coils, of which all samples are the number of the readout."""

    format = "lines"

    def __init__(self, path, line, *, grid=None, declared=False, noise=None, **columns) -> None:
        super().__init__(path, 2**24)
        self._noise, self._declared_separate, count = noise, declared, len(line)
        grid = grid or Grid(4, 4, 3, 1, (1.0, 2.0, 3.0))
        counters = np.zeros((count, 5), np.int64)
        for at, name in ((0, "repetition"), (4, "slice")):
            counters[:, at] = columns.get(name, 0)
        samples = np.broadcast_to(np.array(columns.get("samples", grid.samples)), count)
        table = Table(
            line=np.array(line, np.int64),
            partition=np.broadcast_to(np.array(columns.get("partition", 0)), count),
            counters=counters,
            samples=samples,
            centre=samples // 2,
            skip=np.zeros((count, 2), np.int64),
            reverse=np.broadcast_to(np.array(columns.get("reverse", False)), count),
            calibration=np.broadcast_to(np.array(columns.get("calibration", False)), count),
        )
        self._arrange(grid, table, 2, np.zeros((count, 3)), None)

    def _fetch(self, rows):
        count = int(self._table.samples[rows[0]])
        return np.broadcast_to((rows + 1)[:, None, None], (len(rows), 2, count)).astype(np.complex64)

    def _fetch_navigators(self, number):
        return self._fetch(number)

    def _fetch_noise(self, count):  # noqa: ARG002
        return self._noise


def first_row(scan):
    return [one[0, 0].real.tolist() for one in scan.kspace]


def test_lines_lie_in_their_place_and_the_rest_is_unsampled(tmp_path):
    scan = Lines(tmp_path / "x", [2, 0]).read()
    assert first_row(scan) == [[2, 0, 1]]
    assert scan.mask[0, 0].tolist() == [True, False, True]
    assert scan.spacing == (1.0, 2.0, 3.0)


def test_repeated_lines_are_averaged(tmp_path):
    scan = Lines(tmp_path / "x", [0, 1, 2, 1]).read()
    assert first_row(scan) == [[1, 3, 3]]
    assert scan.meta["averages"] == 2


def test_frames_lie_along_the_slices(tmp_path):
    source = Lines(tmp_path / "x", [0, 0, 0, 0], repetition=[0, 0, 1, 1], slice=[0, 1, 0, 1])
    assert source.slices == 4
    assert first_row(source.read()) == [[1, 0, 0], [2, 0, 0], [3, 0, 0], [4, 0, 0]]
    assert first_row(source.read(2)) == [[3, 0, 0]]
    assert source.read().meta["axes"] == {"repetition": 2, "slice": 2}


def test_frames_that_are_missing_are_listed(tmp_path):
    scan = Lines(tmp_path / "x", [0, 0, 0], repetition=[0, 0, 1], slice=[0, 1, 1]).read("1:3")
    assert scan.meta["frames"] == [{"repetition": r, "slice": s} for r, s in ((0, 0), (0, 1), (1, 1))]


def test_calibration_lines_fill_gaps_only(tmp_path):
    scan = Lines(tmp_path / "x", [0, 0, 1], calibration=[False, True, True]).read()
    assert first_row(scan) == [[1, 3, 0]]
    assert "calibration" not in scan.meta


@pytest.mark.parametrize("why", [{"declared": True}, {"samples": [4, 2, 2]}])
def test_separate_calibration_lines_stay_out_of_k_space(tmp_path, why):
    scan = Lines(tmp_path / "x", [0, 0, 1], calibration=[False, True, True], **why).read()
    assert first_row(scan) == [[1, 0, 0]]
    assert scan.meta["calibration"] == "acquired separately: for coil maps"


def test_volumes_are_cut_along_the_readout(tmp_path):
    grid = Grid(4, 4, 2, 2)
    source = Lines(tmp_path / "x", [0, 1, 0, 1], partition=[0, 0, 1, 1], grid=grid)
    assert (source.slices, source.matrix) == (4, (2, 2))
    scan = source.read(2)
    # A constant readout is a point in the centre of the image, n // 2, of √n times its value.
    assert scan.kspace[0, 0].real.tolist() == [[2, 6], [4, 8]]
    assert not source.read(0).mask.any()  # elsewhere it is 0, as if nothing were sampled
    assert scan.meta["axes"] == {"readout": 4}


def test_noise_readouts_whiten_the_coils(tmp_path):
    rng = np.random.default_rng(0)
    noise = (rng.standard_normal((2, 10**5)) + 1j * rng.standard_normal((2, 10**5))).astype(np.complex64)
    source = Lines(tmp_path / "x", [0, 1, 2], noise=3 * noise)
    scan = source.read()
    assert scan.noise is None  # the bandwidth of the noise readouts is not known
    assert scan.kspace.abs().max().item() == pytest.approx(3 / (3 * 2**0.5), rel=0.02)
    assert "whitened" in scan.meta["noise"]


def test_what_is_no_image_is_refused(tmp_path):
    for line, options in (([], {}), ([0, 1], {"calibration": True, "declared": True})):
        with pytest.raises(InputError) as error:
            Lines(tmp_path / "x", line, **options)
        assert error.value.field == "data"
