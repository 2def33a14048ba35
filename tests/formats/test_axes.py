from __future__ import annotations

import itertools

import numpy as np
import pytest

from upmri import InputError, load
from upmri.formats.axes import check_usual_order, name_axes


def test_names_belong_to_the_axes_in_their_order():
    axes = name_axes("frame, readout,coil,phase,partition ,slice", (2, 8, 3, 5, 4, 6))
    assert (axes.coils, axes.matrix, axes.volume) == (3, (5, 4), True)
    assert axes.along_slices == {"frame": 2, "slice": 6, "readout": 8}
    assert axes.slices == 96


@pytest.mark.parametrize(
    "text", ["coil,readout", "coil,readout,phase,phase", "coil,readout,phase,kz", "readout,phase,coil", ""]
)
def test_wrong_names_are_refused_by_the_option(text):
    with pytest.raises(InputError) as error:
        name_axes(text, (2, 3, 4, 5))
    assert error.value.field == "axes"


@pytest.mark.parametrize(
    "shape", [(8, 96, 64, 64), (4, 24, 20, 16), (256, 256, 8), (12, 128, 160, 96), (8, 96, 96, 96)]
)
def test_more_coils_than_pixels_are_refused_with_the_option(shape, tmp_path):
    with pytest.raises(InputError, match="--axes"):
        check_usual_order(shape)
    np.save(tmp_path / "x.npy", np.ones(shape, np.complex64))
    with pytest.raises(InputError, match="--axes coil,readout,phase,partition|--axes readout,phase,coil"):
        load(tmp_path / "x.npy", 0)


@pytest.mark.parametrize(
    "shape", [(3, 4, 5), (5, 2, 2), (64, 128, 128), (32, 64, 24), (20, 32, 320, 320), (16, 16, 16)]
)
def test_usual_arrays_pass(shape):
    check_usual_order(shape)


def test_the_usual_order_can_be_confirmed(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((96, 16, 16), np.complex64))
    assert load(tmp_path / "x.npy", axes="coil,readout,phase").coils == 96


def test_every_order_gives_the_same_scan(tmp_path, gaussian):
    kspace = gaussian(2, 3, 4, 5)
    names = ("slice", "coil", "readout", "phase")
    for order in itertools.permutations(range(4)):
        np.save(tmp_path / "x.npy", kspace.transpose(order))
        scan = load(tmp_path / "x.npy", axes=",".join(names[i] for i in order))
        np.testing.assert_array_equal(scan.kspace, kspace)


def test_a_slip_in_a_name_is_named():
    with pytest.raises(InputError, match="did you mean readout"):
        name_axes("coil,redout,phase", (3, 4, 5))
