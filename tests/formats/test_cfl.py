from __future__ import annotations

import numpy as np

from upmri.formats import save


def read_cfl(path):
    """Read as BART documents it: dimensions in the header's second line, complex floats, first dimension fastest."""
    title, dimensions = path.with_suffix(".hdr").read_text().splitlines()
    assert title == "# Dimensions"
    return np.fromfile(path, "<c8").reshape([int(length) for length in dimensions.split()], order="F")


def test_bart_finds_readout_phase_and_slices(tmp_path, rec):
    array = read_cfl(save(rec, tmp_path / "x.cfl"))
    assert array.shape == (8, 6, *[1] * 11, 3, 1, 1)
    np.testing.assert_array_equal(array.squeeze(), np.moveaxis(rec.image.numpy(), 0, -1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.cfl", "x.hdr"]
