"""SKM-TEA files as its dataset card and its own reader describe them, tiny, and what a wrong one could hold."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import upmri
from upmri import load
from upmri.formats import open_source
from upmri.formats.hdf5 import StoredArray
from upmri.physics.fourier import fft2c, ifft2c

POSITIONS, KY, KZ, ECHOES, COILS = 5, 16, 12, 2, 3
SHAPE = (POSITIONS, KY, KZ, ECHOES, COILS)
PADDED = 2  # zeros at either end of kz


def write(path: Path, kspace: np.ndarray, maps: np.ndarray, target: np.ndarray, masks: tuple[str, ...] = ()) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", data=kspace, chunks=(1, *kspace.shape[1:]))
        file["maps"], file["target"] = maps, target
        for name in masks:
            file[f"masks/{name}"] = np.ones((KY, KZ - 2 * PADDED), np.uint8)
    return path


@pytest.fixture
def parts(gaussian) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """K-space, maps and target, of which k-space is zero at the edges and in the corners of (ky, kz)."""
    maps = gaussian(POSITIONS, KY, KZ, COILS, 1)
    maps /= np.linalg.norm(maps, axis=3, keepdims=True)
    target = gaussian(POSITIONS, KY, KZ, ECHOES, 1, seed=1)
    images = torch.from_numpy(target * maps[:, :, :, None, :, 0])  # (x, y, z, echo, coil)
    kspace = fft2c(images.permute(0, 3, 4, 1, 2)).permute(0, 3, 4, 1, 2).numpy().copy()
    kspace[:, :, :PADDED] = kspace[:, :, -PADDED:] = 0
    y, z = np.mgrid[-1 : 1 : 1j * KY, -1 : 1 : 1j * KZ]
    kspace[:, y**2 + z**2 > 1.2] = 0
    return kspace, maps, target


@pytest.fixture
def path(tmp_path, parts) -> Path:
    return write(tmp_path / "MTR_005.h5", *parts, masks=("poisson_6.0x", "poisson_8.0x"))


def test_positions_and_echoes_become_slices(path, parts):
    kspace, maps, target = parts
    scan = load(path)
    assert scan.kspace.shape == (ECHOES * POSITIONS, COILS, KY, KZ)
    assert scan.meta == {"axes": {"echo": ECHOES, "slice": POSITIONS}, "masks": ["poisson_6.0x", "poisson_8.0x"]}
    for echo in range(ECHOES):
        for x in range(POSITIONS):
            number = echo * POSITIONS + x
            np.testing.assert_array_equal(scan.kspace[number], np.moveaxis(kspace[x, :, :, echo], -1, 0))
            np.testing.assert_array_equal(scan.maps[number], np.moveaxis(maps[x, ..., 0], -1, 0))
            np.testing.assert_array_equal(scan.reference[number], target[x, :, :, echo, 0])
    assert scan.mask.shape == (ECHOES * POSITIONS, KY, KZ)
    np.testing.assert_array_equal(scan.mask[0], kspace[0, :, :, 0].any(-1))


@pytest.mark.parametrize("slices", [None, 0, -1, 5, "3:8", "2::5", "1::3", "0:10:4"])
def test_slices_are_those_of_the_whole(path, slices):
    whole, part = load(path), load(path, slices)
    wanted = list(upmri.formats.source.select_slices(slices, ECHOES * POSITIONS))
    for name in ("kspace", "maps", "reference", "mask"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[wanted])


def test_only_what_is_asked_for_is_read(path, monkeypatch):
    read = []
    honest = StoredArray.read

    def spy(stored, *part, **options):
        array = honest(stored, *part, **options)
        read.append((stored.name, array.shape))
        return array

    monkeypatch.setattr(StoredArray, "read", spy)
    with open_source(path) as source:
        assert (source.slices, source.coils, source.matrix) == (ECHOES * POSITIONS, COILS, (KY, KZ))
        assert not read
        source.read(7)
    assert read == [("kspace", (1, KY, KZ, COILS)), ("maps", (1, KY, KZ, COILS, 1)), ("target", (1, KY, KZ, 1))]


def test_the_image_of_complete_k_space_is_the_target(tmp_path, parts):
    _, maps, target = parts
    images = torch.from_numpy(target * maps[:, :, :, None, :, 0])
    kspace = fft2c(images.permute(0, 3, 4, 1, 2)).permute(0, 3, 4, 1, 2).numpy()
    scan = load(write(tmp_path / "x.h5", kspace, maps, target), 0)
    image = (scan.maps.conj() * ifft2c(scan.kspace)).sum(1)
    torch.testing.assert_close(image[0], torch.from_numpy(target[0, :, :, 0, 0]), rtol=1e-4, atol=1e-4)


def test_info_names_the_layout(path):
    facts = upmri.info(path)
    assert facts["format"] == "SKM-TEA HDF5 (3-D, hybrid space)"
    assert (facts["slices"], facts["mask"], facts["maps_from"]) == (ECHOES * POSITIONS, "2-D", "given")


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "word"),
    [
        ("kspace", (POSITIONS, KY, KZ, COILS), "c8", "(x, ky, kz, echo, coil)"),
        ("kspace", SHAPE, "f4", "float32"),
        ("kspace", (0, KY, KZ, ECHOES, COILS), "c8", "(0, 16"),
        ("maps", (POSITIONS, KY, KZ, COILS + 1, 1), "c8", "(5, 16, 12, 3, 1)"),
        ("maps", (POSITIONS, KY, KZ, COILS, 2), "c8", "(5, 16, 12, 3, 2)"),
        ("target", (POSITIONS, KY, KZ, 1, 1), "c8", "(5, 16, 12, 2, 1)"),
        ("target", (POSITIONS, KY, KZ, ECHOES, 1), "f4", "float32"),
        ("kspace", (10**4, 10**4, 10**4, 2, 16), "c8", "64 times"),
    ],
)
def test_what_is_wrong_inside_is_named(path, name, shape, dtype, word, refuse):
    with h5py.File(path, "r+") as file:
        del file[name]
        file.create_dataset(name, shape, dtype, chunks=True)
    refuse(path, word, field=name)


def test_a_file_without_maps_is_no_file_of_skm_tea(path, refuse):
    with h5py.File(path, "r+") as file:
        del file["maps"]
    refuse(path, "(slice, coil, readout, phase)", field="kspace")


def test_values_that_are_not_finite_are_refused(tmp_path, parts, refuse):
    kspace, maps, target = parts
    kspace = kspace.copy()
    kspace[3, 8, 6, 1] = np.nan
    path = write(tmp_path / "x.h5", kspace, maps, target)
    assert len(load(path, 0)) == 1
    refuse(path, "finite", field="kspace", slices=POSITIONS + 3)


def test_a_limit_is_kept(path, refuse):
    one = KY * KZ * 8 * (2 * COILS + 1)
    assert len(load(path, 0, max_bytes=one)) == 1
    refuse(path, "limit", field="2 of 10 slices", slices="0:2", max_bytes=one)


def test_files_cut_short_are_refused(path, refuse):
    whole = path.read_bytes()
    for length in (8, 2000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refuse(path)
