from __future__ import annotations

import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri import InputError, load
from upmri.formats import open_source

shapes = st.one_of(st.tuples(*[st.integers(1, 5)] * 3), st.tuples(*[st.integers(1, 5)] * 4))


@given(shape=shapes, order=st.sampled_from("CF"), dtype=st.sampled_from(["<c8", ">c8", "<c16"]), packed=st.booleans())
def test_arrays_come_in_as_they_are(shape, order, dtype, packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("array")
    rng = np.random.default_rng(0)
    values = (1 + rng.random(shape) + 1j * rng.random(shape)).astype(np.complex64)
    array = np.asarray(values.astype(dtype), order=order)
    np.save(folder / "a.npy", array)
    (np.savez_compressed if packed else np.savez)(folder / "a.npz", kspace=array)
    expected = torch.from_numpy(values.reshape(1, *shape)[-1:] if len(shape) == 3 else values)
    for path in (folder / "a.npy", folder / "a.npz"):
        scan = load(path)
        assert scan.name == "a"
        assert torch.equal(scan.kspace, expected)
        assert torch.equal(load(path, -1).kspace, expected[-1:])
        assert torch.equal(load(path, "::2").kspace, expected[::2])


def test_the_axes_are_slice_coil_readout_phase(tmp_path, gaussian):
    np.save(tmp_path / "x.npy", gaussian(2, 3, 4, 5))
    with open_source(tmp_path / "x.npy") as source:
        assert (source.slices, source.coils, source.matrix) == (2, 3, (4, 5))
        assert source.format == "NumPy .npy"
    np.save(tmp_path / "x.npy", gaussian(3, 4, 5))
    with open_source(tmp_path / "x.npy") as source:
        assert (source.slices, source.coils, source.matrix) == (1, 3, (4, 5))


def test_the_content_decides_not_the_suffix(tmp_path, gaussian, scan):
    np.save(tmp_path / "x.npy", gaussian(3, 4, 5))
    (tmp_path / "x.npy").rename(tmp_path / "x.h5")
    assert load(tmp_path / "x.h5").coils == 3
    scan.save(tmp_path / "y.h5")
    (tmp_path / "y.h5").rename(tmp_path / "y.npz")
    assert load(str(tmp_path / "y.npz")).coils == 3


def test_the_mask_is_found_from_the_zeros(tmp_path, gaussian):
    kspace = gaussian(2, 3, 16, 8)
    kspace[..., ::4] = 0
    kspace[0, :, 5, 1] = 0  # a stray zero leaves a line a line
    np.save(tmp_path / "lines.npy", kspace)
    mask = load(tmp_path / "lines.npy").mask
    assert mask.shape == (2, 1, 8)
    assert mask[0, 0].tolist() == [False, True, True, True] * 2
    points = np.random.default_rng(0).random((16, 8)) < 0.7
    np.save(tmp_path / "points.npy", gaussian(2, 3, 16, 8) * points)
    assert torch.equal(load(tmp_path / "points.npy").mask, torch.from_numpy(points).expand(2, -1, -1))


def test_forty_gigabytes_are_no_burden_when_one_slice_is_asked_for(tmp_path, gaussian, refuse):
    shape = (700_000, 2, 64, 64)
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<c8", "fortran_order": False, "shape": shape})
        start = file.tell()
        file.seek(start + 600_000 * 2 * 64 * 64 * 8)
        file.write(gaussian(2, 64, 64).tobytes())
        file.truncate(start + np.prod(shape, dtype=np.int64) * 8)  # a sparse file: the rest takes no space
    assert torch.equal(load(tmp_path / "x.npy", 600_000).kspace[0], torch.from_numpy(gaussian(2, 64, 64)))
    refuse(tmp_path / "x.npy", "limit", field="700000 of 700000 slices")


def test_an_npz_names_the_fields_of_a_scan(tmp_path, gaussian):
    kspace, maps, reference = gaussian(4, 3, 8, 6), gaussian(4, 3, 8, 6, seed=1), gaussian(4, 8, 6, seed=2)
    kspace[1:, ..., 3] = 0
    mask = (kspace != 0).any((1, 2))[:, None]
    np.savez(
        tmp_path / "x.npz",
        kspace=kspace,
        mask=mask,
        maps=maps,
        reference=reference,
        noise=0.5,
        spacing=[1.0, 2.0, 3.0],
        name="head",
        trajectory=np.arange(3),
    )
    scan = load(tmp_path / "x.npz", "1:3")
    assert torch.equal(scan.kspace, torch.from_numpy(kspace[1:3]))
    assert torch.equal(scan.mask, torch.from_numpy(mask[1:3]))
    assert torch.equal(scan.maps, torch.from_numpy(maps[1:3]))
    assert torch.equal(scan.reference, torch.from_numpy(reference[1:3]))
    assert (scan.noise, scan.spacing, scan.name) == (0.5, (1.0, 2.0, 3.0), "head")
    assert scan.meta == {"ignored": ["trajectory"]}


@pytest.mark.parametrize("shape", [(6,), (8, 6), (1, 1, 6), (1, 8, 6), (4, 8, 6)])
def test_a_mask_may_be_shared_by_the_slices(tmp_path, gaussian, shape):
    np.savez(tmp_path / "x.npz", kspace=gaussian(4, 3, 8, 6), mask=np.ones(shape, np.uint8))
    assert load(tmp_path / "x.npz", 2).mask.all()


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"maps": (3, 8, 6)}, "(3, 8, 6)"),
        ({"maps": (5, 3, 8, 6)}, "(5, 3, 8, 6)"),
        ({"reference": (8, 6)}, "(8, 6)"),
        ({"mask": (2, 1, 6)}, "(2, 1, 6)"),
        ({"spacing": (4,)}, "one value"),
        ({"spacing": (2,)}, "three lengths"),
        ({"noise": (2,)}, "finite"),
        ({"name": ()}, "text"),
    ],
)
def test_fields_that_do_not_fit_are_named(tmp_path, gaussian, fields, word, refuse):
    others = {name: gaussian(*shape) if name == "maps" else np.ones(shape) for name, shape in fields.items()}
    np.savez(tmp_path / "x.npz", kspace=gaussian(4, 3, 8, 6), **others)
    refuse(tmp_path / "x.npz", word, field=next(iter(fields)), slices=0)


@pytest.mark.parametrize(
    "array",
    [
        np.ones((3, 8, 6)),
        np.ones((3, 8, 6), np.int16),
        np.ones((8, 6), np.complex64),
        np.ones((1, 1, 3, 8, 6), np.complex64),
        np.ones((0, 8, 6), np.complex64),
        np.complex64(1),
        np.array("text"),
    ],
)
def test_only_complex_arrays_of_three_or_four_axes_are_kspace(tmp_path, array, refused):
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", kspace=array)
    for path in (tmp_path / "x.npy", tmp_path / "x.npz"):
        with refused("(coil, readout, phase)", field="kspace", path=path):
            open_source(path)


def test_an_archive_without_kspace_says_so(tmp_path):
    np.savez(tmp_path / "x.npz", data=np.ones(3))
    zipfile.ZipFile(tmp_path / "y.npz", "w").close()
    for name in ("x.npz", "y.npz"):
        with pytest.raises(InputError) as error:
            load(tmp_path / name)
        assert (error.value.path, error.value.field) == (str(tmp_path / name), "kspace")


def test_nan_is_named(tmp_path, gaussian, refuse):
    kspace = gaussian(2, 3, 8, 6)
    kspace[1, 0, 0, 0] = np.nan
    np.save(tmp_path / "x.npy", kspace)
    assert len(load(tmp_path / "x.npy", 0)) == 1
    refuse(tmp_path / "x.npy", "finite", field="kspace")
