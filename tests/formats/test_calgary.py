"""Files in the documented layout, made here: no real one was available."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from upmri import InputError, load
from upmri.formats import open_source
from upmri.physics.fourier import ifft2c


def write(path, images, chunks=None, name="kspace", beyond=0.0):
    """Write coil images (x, coil, y, z) as the scanner did: the plain inverse FFT of the stored k-space is the image.

    DC is in the middle of the array: the image has a checkerboard of phases, (−1)^(y+z), which its magnitude hides.
    """
    y, z = np.indices(images.shape[-2:])
    kspace = np.fft.fft2(images * (-1.0) ** (y + z))
    end = int(np.ceil(0.85 * images.shape[-1]))
    kspace[..., end:] = beyond
    stored = np.empty((*np.moveaxis(kspace, 1, -1).shape[:3], 2 * images.shape[1]), np.float32)
    stored[..., ::2], stored[..., 1::2] = np.moveaxis(kspace, 1, -1).real, np.moveaxis(kspace, 1, -1).imag
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=stored, chunks=chunks)
    return stored


@pytest.fixture
def images():
    """Smooth objects off the centre, with a smooth phase."""
    x, coil, y, z = np.ogrid[:6, :3, :22, :20]
    size = np.exp(-(((y - 9 - x) / 4) ** 2) - ((z - 12) / 3) ** 2)
    return (size * np.exp(1j * (0.1 * y + 0.05 * z * (coil + 1)))).astype(np.complex64)


@pytest.mark.parametrize("chunks", [None, (1, 22, 20, 6), (2, 11, 10, 6)])
def test_the_image_is_the_plain_inverse_transform(tmp_path, images, chunks):
    stored = write(tmp_path / "e1.h5", images, chunks)
    with open_source(tmp_path / "e1.h5") as source:
        assert (source.format, source.slices, source.coils, source.matrix) == ("Calgary-Campinas HDF5", 6, 3, (22, 20))
        scan = source.read()
        assert torch.equal(source.read("1:5:2").kspace, scan.kspace[1:5:2])
    plain = np.fft.ifft2(stored[..., ::2] + 1j * stored[..., 1::2], axes=(1, 2))  # as the challenge's own code does
    found = ifft2c(scan.kspace) / np.sqrt(22 * 20)
    np.testing.assert_allclose(found.abs(), np.abs(np.moveaxis(plain, -1, 1)), atol=1e-6)
    assert scan.spacing == (1.0, 1.0, 1.0)
    assert scan.meta == {"axes": {"readout": 6}}


def test_the_phase_is_smooth_and_the_centre_of_kspace_is_in_the_middle(tmp_path, images):
    write(tmp_path / "e1.h5", images)
    scan = load(tmp_path / "e1.h5")
    energy = scan.kspace.abs().square().sum((0, 1))
    assert divmod(int(energy.argmax()), 20) in {(y, z) for y in (10, 11) for z in (9, 10, 11)}
    image = ifft2c(scan.kspace[:, 0])
    assert float((image[:, 1:] * image[:, :-1].conj()).sum().angle().abs()) < 0.2


def test_what_lies_beyond_85_percent_of_kz_is_left_out(tmp_path, images):
    write(tmp_path / "full.h5", images, beyond=1.0)
    scan = load(tmp_path / "full.h5")
    assert scan.mask[:, 0].tolist() == [[True] * 17 + [False] * 3] * 6
    assert scan.meta["discarded_columns"] == 3


def test_an_undersampled_file_has_a_mask_of_points(tmp_path, images):
    write(tmp_path / "e1.h5", images)
    points = np.random.default_rng(0).random((22, 20)) < 0.4
    with h5py.File(tmp_path / "e1.h5", "r+") as file:
        file["kspace"][...] = file["kspace"][...] * points[..., None]
    scan = load(tmp_path / "e1.h5")
    points[:, 17:] = False
    assert scan.mask.shape == (6, 22, 20)
    np.testing.assert_array_equal(scan.mask[2], points)


def test_other_files_are_left_to_other_readers(tmp_path, scan):
    for name, array in (("odd", np.ones((2, 4, 4, 5), np.float32)), ("complex", np.ones((2, 4, 4, 4), np.complex64))):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["kspace"] = array
        with pytest.raises(InputError):
            load(tmp_path / f"{name}.h5")
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file["kspace"] = np.ones((0, 4, 4, 4), np.float32)
    with pytest.raises(InputError, match="real"):
        load(tmp_path / "empty.h5")
