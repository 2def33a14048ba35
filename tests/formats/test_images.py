from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc

import nibabel
import numpy as np
import pytest

from upmri import InputError
from upmri.formats import load_images, load_images_with_spacing, save


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, ">f8", np.complex64])
def test_npy_is_slice_row_column(tmp_path, shape, dtype):
    image = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(tmp_path / "x.npy", image)
    np.testing.assert_array_equal(load_images(tmp_path / "x.npy"), image.reshape(-1, 4, 5))


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_nifti_is_row_column_slice_frame(tmp_path, suffix, kind):
    voxels = np.arange(4 * 5 * 3 * 2, dtype=np.int16).reshape(4, 5, 3, 2)
    nibabel.save(kind(voxels, np.eye(4)), tmp_path / f"x{suffix}")
    images = load_images(tmp_path / f"x{suffix}")
    assert images.shape == (6, 4, 5)
    for frame in range(2):
        for at in range(3):
            np.testing.assert_array_equal(images[3 * frame + at], voxels[:, :, at, frame])


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize(
    ("zooms", "unit", "expected"),
    [
        ((0.9, 1.25, 3.0), "mm", (0.9, 1.25, 3.0)),
        ((0.9, 1.25, 3.0), None, (0.9, 1.25, 3.0)),
        ((900, 1250, 3000), "micron", (0.9, 1.25, 3.0)),
        ((2**-10, 2**-9, 2**-8), "meter", (1000 / 1024, 1000 / 512, 1000 / 256)),
    ],
)
def test_size_of_voxels_is_row_column_slice(tmp_path, kind, zooms, unit, expected):
    nifti = kind(np.ones((4, 5, 3, 2), np.uint8), np.eye(4))
    nifti.header.set_zooms((*zooms, 2.0))
    nifti.header.set_xyzt_units(unit)
    nibabel.save(nifti, tmp_path / "x.nii")
    images, spacing = load_images_with_spacing(tmp_path / "x.nii")
    assert images.shape == (6, 4, 5)
    assert spacing == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("length", [0.0, np.nan, np.inf])
def test_size_of_voxels_that_is_not_stored_is_not_known(tmp_path, length):
    nifti = nibabel.Nifti1Image(np.ones((4, 5, 3), np.uint8), np.eye(4))
    raw = bytearray(nifti.to_bytes())
    raw[80:84] = struct.pack("<f", length)  # pixdim[1]
    (tmp_path / "x.nii").write_bytes(raw)
    assert load_images_with_spacing(tmp_path / "x.nii")[1] is None
    raw[80:84] = struct.pack("<f", -2)  # as nibabel reads it
    (tmp_path / "x.nii").write_bytes(raw)
    assert load_images_with_spacing(tmp_path / "x.nii")[1] == (2, 1, 1)
    raw[123] = 7  # no unit of lengths
    (tmp_path / "x.nii").write_bytes(raw)
    assert load_images_with_spacing(tmp_path / "x.nii")[1] is None


def test_values_are_scaled_as_the_header_says(tmp_path):
    nifti = nibabel.Nifti1Image(np.array([[0.0, 0.5], [1.0, 2.0]]), np.eye(4))
    nifti.set_data_dtype(np.int16)
    nibabel.save(nifti, tmp_path / "x.nii")
    np.testing.assert_allclose(load_images(tmp_path / "x.nii")[0], [[0, 0.5], [1, 2]], atol=1e-4)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_what_was_saved_is_read_back(tmp_path, rec, suffix):
    path = save(rec, tmp_path / f"x{suffix}", complex=True)
    np.testing.assert_array_equal(load_images(path), rec.image.numpy())


def test_what_is_no_image_is_refused(tmp_path, scan, refused):
    def no_image(name: str, word: str, field: str | None = None, **options) -> None:
        with refused(word, field=field, path=tmp_path / name):
            load_images(tmp_path / name, **options)

    no_image("absent.npy", "no such file")
    scan.save(tmp_path / "x.h5")
    no_image("x.h5", "not a kind")
    for array, word in ((np.array("x"), "<U1"), (np.ones((1, 2, 3, 4)), "(1, 2, 3, 4)"), (np.array([{}]), "object")):
        np.save(tmp_path / "x.npy", array, allow_pickle=True)
        no_image("x.npy", word, "image")
    np.save(tmp_path / "nan.npy", np.full((2, 2), np.nan))
    no_image("nan.npy", "finite", "image")
    np.save(tmp_path / "large.npy", np.ones((200, 200)))
    no_image("large.npy", "limit", "image", max_bytes=1000)


def test_a_nifti_header_is_not_believed(tmp_path, refused):
    header = nibabel.Nifti1Header()
    header.set_data_shape((20000, 20000, 20000))
    header.set_data_dtype(np.float32)
    header["magic"], header["vox_offset"] = b"n+1", 352
    (tmp_path / "x.nii").write_bytes(header.binaryblock + bytes(4096))
    with gzip.open(tmp_path / "x.nii.gz", "wb") as file:
        file.write(header.binaryblock + bytes(4096))
    for name in ("x.nii", "x.nii.gz"):
        with refused("limit", field="image", path=tmp_path / name):
            load_images(tmp_path / name)
        with refused("cut short", field="image", path=tmp_path / name):
            load_images(tmp_path / name, max_bytes=2**60)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_a_damaged_header_is_read_or_refused_in_silence(tmp_path, suffix, caplog):
    header = nibabel.Nifti1Image(np.ones((6, 5, 4), np.float32), np.eye(4)).to_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(header)
        for at in rng.integers(344, size=5):
            damaged[at] = rng.integers(256)
        (tmp_path / "x.nii").write_bytes(gzip.compress(damaged) if suffix == ".nii.gz" else damaged)
        with contextlib.suppress(InputError):
            load_images(tmp_path / "x.nii")
    assert not caplog.records


def test_a_nifti_cut_short_is_refused(tmp_path, refused):
    nibabel.save(nibabel.Nifti1Image(np.ones((8, 8, 8)), np.eye(4)), tmp_path / "x.nii.gz")
    whole = (tmp_path / "x.nii.gz").read_bytes()
    for length in (3, 20, len(whole) // 2, len(whole) - 1):
        (tmp_path / "x.nii.gz").write_bytes(whole[:length])
        with refused(field="image", path=tmp_path / "x.nii.gz"):
            load_images(tmp_path / "x.nii.gz")


def header_of(shape: tuple[int, ...], dtype: type, offset: int) -> nibabel.Nifti1Header:
    header = nibabel.Nifti1Header()
    header.set_data_shape(shape)
    header.set_data_dtype(dtype)
    header["magic"], header["vox_offset"] = b"n+1", offset
    return header


@contextlib.contextmanager
def at_most(size: float):
    """No more bytes of memory are taken, at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def test_header_extensions_take_no_memory(tmp_path, refused):
    """Neither long ones, which are skipped, nor a flood of them, which is refused."""
    path, size = tmp_path / "x.nii.gz", 2**25
    extension = b"\1\0\0\0" + struct.pack("<ii", size, 6) + bytes(size - 8)
    voxels = np.arange(24, dtype=np.int16)
    content = header_of((4, 3, 2), np.int16, 352 + size).binaryblock + extension + voxels.tobytes()
    path.write_bytes(gzip.compress(content, 1))
    load_images(path)  # what is imported is not counted
    with at_most(2**23):
        images = load_images(path)
    np.testing.assert_array_equal(images, voxels.reshape(2, 3, 4).transpose(0, 2, 1))
    content = header_of((4, 3, 2), np.int16, 2**32).binaryblock + extension
    path.write_bytes(gzip.compress(content, 1))
    with at_most(2**23), refused("4294967296", field="header extensions", path=path):
        load_images(path)


@pytest.mark.parametrize(("slope", "size"), [(1.0, 1), (0.5, 8)])
def test_voxels_are_counted_as_they_are_returned(tmp_path, refused, slope, size):
    """One byte each in the file, eight where the header scales them; no copy is made beside."""
    path, voxels = tmp_path / "x.nii.gz", 2**24
    header = header_of((256, 256, 256), np.uint8, 352)
    header["scl_slope"] = slope
    path.write_bytes(gzip.compress(header.binaryblock + bytes(4 + voxels), 9))
    assert path.stat().st_size < voxels // 500
    with at_most(2**18), refused("limit", field="image", path=path):
        load_images(path, max_bytes=voxels * size - 1)
    with at_most(1.3 * voxels * size):
        images = load_images(path, max_bytes=voxels * size)
    assert (images.shape, images.itemsize) == ((256, 256, 256), size)


def test_many_slices_of_one_voxel(tmp_path):
    path, voxels = tmp_path / "x.nii", np.arange(30000 * 60, dtype=np.float32)
    path.write_bytes(header_of((1, 1, 30000, 60), np.float32, 352).binaryblock + bytes(4) + voxels.tobytes())
    np.testing.assert_array_equal(load_images(path), voxels.reshape(-1, 1, 1))


@pytest.mark.parametrize("dtype", [np.uint8, ">i2", np.float32, np.complex64])
@pytest.mark.parametrize("scaling", [(1, 0), (2.5, -3), (0, 7)])
def test_voxels_are_those_that_nibabel_reads(tmp_path, dtype, scaling):
    nifti = nibabel.Nifti1Image(np.zeros((4, 5, 3)).astype(np.dtype(dtype).newbyteorder("=")), np.eye(4))
    header = nifti.header.as_byteswapped(">" if str(dtype).startswith(">") else "<")
    header["scl_slope"], header["scl_inter"] = scaling
    header["vox_offset"] = 352
    voxels = np.arange(60).astype(dtype)
    (tmp_path / "x.nii").write_bytes(header.binaryblock + bytes(4) + voxels.tobytes())
    expected = np.asanyarray(nibabel.load(tmp_path / "x.nii").dataobj)
    images = load_images(tmp_path / "x.nii")
    assert images.dtype == expected.dtype
    np.testing.assert_array_equal(images, np.moveaxis(expected, -1, 0))
