"""CMRxRecon files as the challenges' documentation describes them, tiny, and what a hostile one could look like."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import upmri
from upmri import load
from upmri.formats import open_source
from upmri.formats.hdf5 import StoredArray
from upmri.physics.fourier import ifft2c

PAIR = np.dtype([("real", "<f4"), ("imag", "<f4")])
FRAMES, SLICES, COILS, KY, KX = 3, 4, 2, 12, 20


def pairs(kspace: np.ndarray, dtype: str = "<f4") -> np.ndarray:
    stored = np.empty(kspace.shape, np.dtype([("real", dtype), ("imag", dtype)]))
    stored["real"], stored["imag"] = kspace.real, kspace.imag
    return stored


def write(path: Path, name: str, array: Any, **options: Any) -> Path:
    """Write one variable as MATLAB does: its mark in front, compressed chunks, the class as an attribute."""
    with h5py.File(path, "w", userblock_size=512) as file:
        stored = file.create_dataset(name, data=array, **({"compression": 3, "chunks": True} | options))
        stored.attrs["MATLAB_class"] = np.bytes_(b"single")
    mark(path)
    return path


def mark(path: Path) -> None:
    text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Mar 13 00:00:00 2023 HDF5 schema 1.00 ."
    with path.open("r+b") as file:
        file.write(text.ljust(116) + b"\0" * 8 + b"\0\2IM")


def undersample(kspace: np.ndarray, every: int) -> np.ndarray:
    mask = np.zeros(KY, bool)
    mask[::every] = mask[4:8] = True
    return kspace * mask[:, None]


@pytest.fixture
def kspace(gaussian):
    """(frame, slice, coil, ky, kx), as h5py sees it."""
    return gaussian(FRAMES, SLICES, COILS, KY, KX)


@pytest.fixture
def path(tmp_path, kspace):
    return write(tmp_path / "T1map.mat", "kspace_sub04", pairs(undersample(kspace, 4)))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_mapping_becomes_a_scan(path, kspace):
    scan = load(path)
    assert scan.kspace.shape == (FRAMES * SLICES, COILS, KX, KY)
    assert scan.mask.shape == (FRAMES * SLICES, 1, KY)
    assert scan.name == "T1map"
    assert scan.meta == {
        "variable": "kspace_sub04",
        "axes": {"weight": FRAMES, "slice": SLICES},
        "nominal_acceleration": 4,
    }
    assert scan.acceleration == pytest.approx(KY / 6)  # with the four lines in the middle, of which one is a fourth
    expected = undersample(kspace, 4)
    for weight in range(FRAMES):
        for number in range(SLICES):
            np.testing.assert_array_equal(
                scan.kspace[weight * SLICES + number], expected[weight, number].swapaxes(1, 2)
            )


@pytest.mark.parametrize(
    "slices", [None, 0, -1, 5, "2:7", "3::4", "1::3", "0:12:5", "4:8", slice(7, None), slice(None, 3)]
)
def test_slices_are_those_of_the_whole(path, slices):
    whole, part = load(path), load(path, slices)
    wanted = upmri.formats.source.select_slices(slices, FRAMES * SLICES)
    assert torch.equal(part.kspace, whole.kspace[list(wanted)])
    assert torch.equal(part.mask, whole.mask[list(wanted)])


def test_only_what_is_asked_for_is_read(path, monkeypatch):
    read = []
    honest = StoredArray.read

    def spy(stored, *part, **options):
        array = honest(stored, *part, **options)
        read.append((part, array.shape[:-3]))
        return array

    monkeypatch.setattr(StoredArray, "read", spy)
    with open_source(path) as source:
        assert (source.slices, source.coils, source.matrix) == (FRAMES * SLICES, COILS, (KX, KY))
        assert source.format == "CMRxRecon 2023, MATLAB 7.3"
        assert not read
        source.read("1::4")
    assert read == [((frame, slice(1, 2, 4)), (1,)) for frame in range(FRAMES)]


@pytest.mark.parametrize(
    ("file", "name", "meta"),
    [
        ("cine_sax.mat", "kspace_full", {"axes": {"frame": FRAMES, "slice": SLICES}}),
        ("cine_lax.mat", "kspace_sub08", {"axes": {"frame": FRAMES, "slice": SLICES}, "nominal_acceleration": 8}),
        ("T2map.mat", "kspace_sub10", {"axes": {"weight": FRAMES, "slice": SLICES}, "nominal_acceleration": 10}),
        (
            "cine_lax_kus_Uniform8.mat",
            "kus",
            {"axes": {"frame": FRAMES, "slice": SLICES}, "nominal_acceleration": 8, "pattern": "Uniform"},
        ),
        (
            "T1map_kus_ktGaussian24.mat",
            "kus",
            {"axes": {"weight": FRAMES, "slice": SLICES}, "nominal_acceleration": 24, "pattern": "ktGaussian"},
        ),
        ("aorta_sag.mat", "kspace", {"axes": {"frame": FRAMES, "slice": SLICES}}),
        ("T1rho.mat", "kspace", {"axes": {"weight": FRAMES, "slice": SLICES}}),
        ("renamed.mat", "kus", {"axes": {"frame": FRAMES, "slice": SLICES}}),
    ],
)
def test_every_challenge_is_read(tmp_path, kspace, file, name, meta):
    scan = load(write(tmp_path / file, name, pairs(kspace)))
    assert scan.meta == {"variable": name, **meta}
    assert scan.acceleration == 1


@pytest.mark.parametrize("axes", [3, 4])
def test_axes_of_length_one_may_be_missing(tmp_path, kspace, axes):
    # Black blood has no frames, and MATLAB drops every last axis of length 1.
    kspace = kspace[0, 0] if axes == 3 else kspace[0]
    scan = load(write(tmp_path / "blackblood.mat", "kspace_full", pairs(kspace)))
    assert scan.meta["axes"] == {"frame": 1, "slice": 1 if axes == 3 else SLICES}
    np.testing.assert_array_equal(scan.kspace, kspace.reshape(-1, COILS, KY, KX).swapaxes(-1, -2))


@pytest.mark.parametrize("stored", [lambda k: pairs(k, "<f8"), lambda k: pairs(k, ">f4"), lambda k: k])
def test_numbers_of_any_kind_are_read(tmp_path, kspace, stored):
    scan = load(write(tmp_path / "x.mat", "kspace_full", stored(kspace)))
    np.testing.assert_array_equal(scan.kspace[5], kspace[1, 1].swapaxes(-1, -2))


def test_masks_may_differ_from_frame_to_frame_and_be_two_dimensional(tmp_path, kspace):
    lines = np.zeros((FRAMES, 1, 1, KY, 1), bool)
    for frame in range(FRAMES):
        lines[frame, :, :, frame::4] = True
    scan = load(write(tmp_path / "x_kus_ktUniform4.mat", "kus", pairs(kspace * lines)))
    assert scan.mask.shape == (FRAMES * SLICES, 1, KY)
    assert [mask[0].nonzero()[0].item() for mask in scan.mask] == [0] * 4 + [1] * 4 + [2] * 4
    points = np.random.default_rng(0).random((KY, KX)) < 0.4
    scan = load(write(tmp_path / "x_kus_ktRadial4.mat", "kus", pairs(kspace * points)))
    np.testing.assert_array_equal(scan.mask[0], points.T)


YEARS = {"kspace_full": "2023 or 2024", "kspace_sub10": "2023", "kus": "2024 or 2025", "kspace": "2025"}


@pytest.mark.parametrize("name", YEARS)
def test_info_says_of_which_challenges_a_file_can_be(tmp_path, kspace, name):
    facts = upmri.info(write(tmp_path / "cine_sax.mat", name, pairs(kspace)))
    assert facts["format"] == f"CMRxRecon {YEARS[name]}, MATLAB 7.3"


def test_a_file_of_2025_in_its_folders_with_its_mask_beside_it(tmp_path, kspace, refuse):
    """Interleaved lines over time, (nx, ny, nt), and 16 central ones in the challenge: four here."""
    folder = tmp_path / "MultiCoil/Cine/ValidationSet/UnderSample_Task1/Center005/Siemens_30T_Vida/P003"
    folder.mkdir(parents=True)
    lines = np.zeros((FRAMES, KY), bool)
    lines[:, 4:8] = True
    for frame in range(FRAMES):
        lines[frame, frame::8] = True
    mask = write(folder / "cine_sax_mask_ktUniform8.mat", "mask", np.repeat(lines[..., None], KX, 2).astype(float))
    path = write(folder / "cine_sax_kus_ktUniform8.mat", "kus", pairs(kspace * lines[:, None, None, :, None]))
    scan = load(path)
    assert scan.meta["axes"] == {"frame": FRAMES, "slice": SLICES}
    assert (scan.meta["nominal_acceleration"], scan.meta["pattern"]) == (8, "ktUniform")
    np.testing.assert_array_equal(scan.mask[:, 0].reshape(FRAMES, SLICES, KY), np.repeat(lines[:, None], SLICES, 1))
    refuse(mask, "got a mask")


def test_a_mask_beside_it_is_not_needed_and_no_scan(path, refuse):
    mask = write(path.with_name("T1map_mask.mat"), "mask04", np.ones((KY, KX)))
    assert load(path).acceleration == 2
    refuse(mask, "got a mask")


def test_a_file_that_python_wrote_is_read_too(tmp_path, kspace):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["kspace_full"] = pairs(kspace)
    assert len(load(tmp_path / "x.h5")) == FRAMES * SLICES


def test_an_object_comes_back_where_and_as_it_was(tmp_path):
    rows, columns = 40, 24
    y, x = np.mgrid[:rows, :columns]
    image = np.exp(-((y - 12) ** 2 + (x - 8) ** 2) / 18) + 0.5 * np.exp(-((y - 26) ** 2 + (x - 14) ** 2) / 32)
    truth = upmri.simulate(np.stack([image, image / 2]), coils=4, acceleration=1, noise=0)
    stored = truth.kspace.numpy().swapaxes(-1, -2)[:, None]  # two weights of one slice
    scan = load(write(tmp_path / "T2map.mat", "kspace_full", pairs(1e-4 * stored)))
    assert scan.meta["axes"] == {"weight": 2, "slice": 1}
    torch.testing.assert_close(ifft2c(scan.kspace), 1e-4 * ifft2c(truth.kspace))


# --- what is refused --------------------------------------------------------------------------------------------------


def virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((2, 2, 2, 4, 4), PAIR)
    layout[:] = h5py.VirtualSource(str(other), "kspace_sub04", layout.shape)
    file.create_virtual_dataset("kspace_full", layout)


def make(*shape: int, dtype: Any = PAIR, **options: Any):
    return lambda file, _: file.create_dataset("kspace_full", shape, dtype, **options)


@pytest.mark.parametrize(
    ("fill", "field", "word"),
    [
        (
            lambda f, o: f.__setitem__("kspace_full", h5py.ExternalLink(str(o), "/kspace_sub04")),
            "kspace_full",
            "leads to",
        ),
        (virtual, "kspace_full", "lies in"),
        (
            lambda f, o: make(2, 2, 2, 4, 4, external=[(str(o), 0, h5py.h5f.UNLIMITED)])(f, o),
            "kspace_full",
            "lies in",
        ),
        (make(1000, 10, 10, 10**5, 10**2, chunks=True), "kspace_full", "64 times"),
        (make(1, 1, 1, 10**5, 10**7, chunks=True), "kspace_full", "64 times"),
        (make(2, 2, 2, 4, 4, dtype="f4"), "kspace_full", "float32"),
        (make(2, 2, 2, 4, 4, dtype=[("real", "f4"), ("imag", "f8")]), "kspace_full", "<f8"),
        (make(2, 2, 2, 4, 4, dtype=[("real", "i4"), ("imag", "i4")]), "kspace_full", "<i4"),
        (make(2, 2, 2, 4, 4, dtype=[("x", "f4"), ("y", "f4")]), "kspace_full", "'x'"),
        (make(2, 2, 2, 4, 4, dtype=h5py.vlen_dtype(np.float32)), "kspace_full", "object"),
        (make(2, 2, 2, 2, 4, 4), "kspace_full", "(2, 2, 2, 2, 4, 4)"),
        (make(4, 4), "kspace_full", "(4, 4)"),
        (make(0, 2, 2, 4, 4), "kspace_full", "(0, 2, 2, 4, 4)"),
        (make(2, 2, 2, 4, 4), "mask", "slice 0"),
        (lambda f, _: f.create_group("kspace_full"), "kspace_full", "group"),
        (lambda f, _: f.create_dataset("kspace_full", data=pairs(np.full((2, 4, 4), np.nan + 0j))), "kspace", "finite"),
        (
            lambda f, _: f.create_dataset("kspace_full", data=pairs(np.full((2, 4, 4), 1e300 + 0j), "f8")),
            "kspace",
            "finite",
        ),
        (lambda *_: None, None, "none of them"),
        (lambda f, _: f.__setitem__("kspace_single_full", [1.0]), None, "single-coil"),
        (lambda f, _: (make(2, 4, 4)(f, _), f.__setitem__("kus", [1.0])), None, "kspace_full and kus"),
    ],
)
def test_what_is_wrong_inside_is_named(path, tmp_path, fill, field, word, refuse):
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        fill(file, path)
    mark(tmp_path / "x.mat")
    refuse(tmp_path / "x.mat", word, field=field)


def test_chunks_that_inflate_beyond_their_shape_are_refused(tmp_path, refuse):
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        data = file.create_dataset("kspace_full", (2, 2, 1, 8, 8), PAIR, chunks=(1, 2, 1, 8, 8), compression=3)
        data[:] = pairs(np.ones(data.shape, np.complex64))
        data.id.write_direct_chunk((1, 0, 0, 0, 0), zlib.compress(bytes(2**26), 9))
    mark(tmp_path / "x.mat")
    load(tmp_path / "x.mat", "0:2")
    refuse(tmp_path / "x.mat", "1024 bytes", field="kspace_full", slices="0:3")


def test_a_limit_is_kept(tmp_path, kspace, refuse):
    path, one = write(tmp_path / "x.mat", "kus", pairs(kspace), chunks=(1, 1, COILS, KY, KX)), COILS * KX * KY * 8
    assert len(load(path, 0, max_bytes=one)) == 1
    refuse(path, "limit", field="2 of 12 slices", slices="0:2", max_bytes=one)
    write(path, "kus", pairs(kspace), chunks=kspace.shape)  # all of it must be unpacked for one slice
    refuse(path, "limit", field="kus: one chunk", slices=0, max_bytes=one)


def test_files_cut_short_are_refused_wherever_they_end(path, refuse):
    whole = path.read_bytes()
    for length in (1, 100, 511, 520, 700, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refuse(path)


def test_other_matlab_files_are_not_known(tmp_path, refuse):
    (tmp_path / "x.mat").write_bytes(b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(512))
    refuse(tmp_path / "x.mat", "no scan in a known format")


def test_files_with_bytes_overwritten_are_read_or_refused(path, fresh):
    """In a process of its own, so that what hangs or crashes HDF5 fails this test and no other."""
    code = """if True:
        import contextlib, sys
        from pathlib import Path
        import numpy as np
        from upmri import InputError, load
        path = Path(sys.argv[1])
        whole, rng = path.read_bytes(), np.random.default_rng(0)
        for _ in range(150):
            damaged = bytearray(whole)
            for at in rng.integers(min(len(whole), 6000), size=3):
                damaged[at] = rng.integers(256)
            path.write_bytes(damaged)
            with contextlib.suppress(InputError):
                load(path)
    """
    fresh(code, path).check_returncode()
