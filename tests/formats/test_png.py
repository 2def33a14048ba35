from __future__ import annotations

import matplotlib.image
import numpy as np
import pytest

from upmri import InputError, Reconstruction
from upmri.formats import save


def grey(path):
    pixels = matplotlib.image.imread(path)
    return np.rint(255 * (pixels if pixels.ndim == 2 else pixels[..., 0])).astype(int)


def test_slices_are_laid_out_in_rows(tmp_path):
    image = np.zeros((5, 4, 6), np.complex64)
    image[:, 0, 0] = [1, 2j, -3, 4, 5]
    pixels = grey(save(Reconstruction(image=image), tmp_path / "x.png"))
    assert pixels.shape == (8, 18)
    corners = pixels[::4, ::6]
    order = np.argsort(corners.ravel(), kind="stable")
    assert corners[1, 2] == 0  # no sixth slice
    assert order.tolist() == [5, 0, 1, 2, 3, 4]


def test_white_is_the_999th_thousandth(tmp_path):
    ramp = np.arange(2000).reshape(1, 40, 50)
    pixels = grey(save(Reconstruction(image=ramp * 1j), tmp_path / "x.png"))
    white = np.percentile(ramp, 99.9)
    np.testing.assert_array_equal(pixels, np.rint(255 * np.clip(ramp[0] / white, 0, 1)))


def test_it_says_what_it_is_not_for(tmp_path, rec):
    raw = save(rec, tmp_path / "x.png").read_bytes()
    assert b"tEXtDescription\0UPMRI cg-sense NOT FOR CLINICAL USE" in raw


def test_black_is_black(tmp_path):
    assert not grey(save(Reconstruction(image=np.zeros((1, 4, 4))), tmp_path / "x.png")).any()


def test_it_has_no_phase(tmp_path, rec):
    with pytest.raises(InputError) as error:
        save(rec, tmp_path / "x.png", complex=True)
    assert error.value.path == str(tmp_path / "x.png")
