from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from upmri import InputError, load
from upmri.formats import open_source
from upmri.physics.fourier import fft1c, fft2c, ifft2c


def write(path: Path, array: np.ndarray, dimensions: str | None = None) -> Path:
    """Write an array whose axes are BART's dimensions."""
    path.write_bytes(array.astype("<c8").tobytes(order="F"))
    shape = array.shape + (1,) * (16 - array.ndim)
    text = f"# Dimensions\n{' '.join(map(str, shape))} \n# Command\nphantom\n" if dimensions is None else dimensions
    path.with_suffix(".hdr").write_text(text)
    return path


def bart(folder: Path, *arguments: str) -> None:
    if shutil.which("bart") is None:
        pytest.skip("bart is not installed")
    subprocess.run(["bart", *arguments], check=True, capture_output=True, cwd=folder)


def stored(path: Path, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.fromfile(path, "<c8").reshape(shape, order="F"))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a - b).norm() <= 1e-5 * b.norm())


@pytest.mark.parametrize("suffix", [".cfl", ".hdr"])
def test_its_own_phantom_has_the_image_that_bart_finds(tmp_path, suffix):
    bart(tmp_path, "phantom", "-x", "32", "-k", "-s", "8", "kspace")
    bart(tmp_path, "fft", "-i", "-u", "3", "kspace", "image")
    scan = load(tmp_path / f"kspace{suffix}")
    assert (scan.coils, scan.matrix, len(scan), scan.name, scan.meta) == (8, (32, 32), 1, "kspace", {})
    assert scan.mask.shape == (1, 1, 32)
    assert close(ifft2c(scan.kspace[0]), stored(tmp_path / "image.cfl", 32, 32, 8).permute(2, 0, 1))


def test_its_own_phantom_in_3d_is_cut_along_the_readout(tmp_path):
    bart(tmp_path, "phantom", "-3", "-x", "12", "-k", "-s", "2", "kspace")
    bart(tmp_path, "fft", "-i", "-u", "7", "kspace", "image")
    scan = load(tmp_path / "kspace.cfl")
    assert scan.meta["axes"] == {"readout": 12}
    assert close(ifft2c(scan.kspace), stored(tmp_path / "image.cfl", 12, 12, 12, 2).permute(0, 3, 1, 2))


def test_lines_that_are_zero_are_unsampled(tmp_path, gaussian):
    kspace = gaussian(8, 6, 1, 3)
    kspace[:, 1::2] = 0
    scan = load(write(tmp_path / "x.cfl", kspace))
    assert scan.mask[0].tolist() == [[True, False] * 3]
    np.testing.assert_array_equal(scan.kspace[0], kspace[:, :, 0].transpose(2, 0, 1))


def test_frames_lie_along_the_slice_axis_slices_fastest(tmp_path, gaussian):
    kspace = gaussian(4, 5, 1, 2, 1, 3, 1, 1, 1, 1, 2, 1, 1, 2)  # 3 echoes, 2 frames, 2 slices
    path = write(tmp_path / "x.cfl", kspace)
    with open_source(path) as source:
        assert (source.format, source.slices, source.coils, source.matrix) == ("BART cfl", 12, 2, (4, 5))
        scan = source.read()
    assert scan.meta["axes"] == {"time": 2, "echo": 3, "slice": 2}
    expected = kspace[:, :, 0, :, 0, :, 0, 0, 0, 0, :, 0, 0, :]  # (read, phase, coil, echo, time, slice)
    np.testing.assert_array_equal(scan.kspace, expected.transpose(4, 3, 5, 2, 0, 1).reshape(12, 2, 4, 5))
    assert torch.equal(load(path, "1::3").kspace, scan.kspace[1::3])


def test_averages_are_averaged_where_they_are(tmp_path, gaussian):
    kspace = np.repeat(gaussian(4, 5, 1, 2)[(...,) + (None,) * 11], 2, axis=14)
    kspace[..., 0] *= 0.5
    kspace[..., 1] *= 1.5
    kspace[:, 3, ..., 1] = 0
    scan = load(write(tmp_path / "x.cfl", kspace))
    expected = kspace.reshape(4, 5, 2, 2).sum(-1) / np.array([2, 2, 2, 1, 2])[:, None]
    assert scan.meta == {"averages": 2}
    np.testing.assert_allclose(scan.kspace[0], expected.transpose(2, 0, 1), rtol=1e-6)


def test_two_phase_encodings_keep_their_2d_mask(tmp_path, gaussian):
    plane = gaussian(1, 6, 5, 2)
    plane[:, ::2, 1::2] = 0
    scan = load(write(tmp_path / "x.cfl", plane))
    assert (scan.matrix, len(scan)) == ((6, 5), 1)
    assert torch.equal(scan.mask[0], torch.from_numpy(plane[0, :, :, 0] != 0))


def test_three_encodings_with_a_2d_mask(tmp_path, gaussian):
    image = torch.from_numpy(gaussian(2, 8, 6, 5))  # (coil, readout, phase 1, phase 2)
    mask = torch.from_numpy(np.random.default_rng(0).random((6, 5)) < 0.6)
    kspace = fft1c(fft2c(image), 1) * mask
    both = torch.stack([kspace, 2 * kspace], -1).permute(1, 2, 3, 0, 4).numpy()
    path = write(tmp_path / "x.cfl", both.reshape(8, 6, 5, 2, 1, 2))
    scan = load(path)
    assert scan.meta["axes"] == {"echo": 2, "readout": 8}
    expected = (fft2c(image) * mask).transpose(0, 1)
    assert close(scan.kspace, torch.cat([expected, 2 * expected]))
    assert torch.equal(scan.mask, mask.expand(16, -1, -1))
    with open_source(path) as source:
        source.max_bytes = 12 * source.slice_bytes  # so that positions are kept ready three by three
        assert torch.equal(torch.cat([source.read(i).kspace for i in range(16)]), scan.kspace)
        assert torch.equal(source.read("2:12:5").kspace, scan.kspace[2:12:5])


def test_forty_gigabytes_are_no_burden_when_one_slice_is_asked_for(tmp_path, gaussian, refused):
    slices = 40 * 2**30 // (64 * 64 * 2 * 8)
    path = write(tmp_path / "x.cfl", gaussian(64, 64, 1, 2), f"# Dimensions\n64 64 1 2{' 1' * 9} {slices} 1 1\n")
    with path.open("r+b") as file:
        file.truncate(40 * 2**30)
    scan = load(path, 0)
    np.testing.assert_array_equal(scan.kspace[0], gaussian(64, 64, 1, 2)[:, :, 0].transpose(2, 0, 1))
    with refused("8 GiB", field=f"{slices} of {slices} slices", path=path):
        load(path, max_bytes=8 * 2**30)


@pytest.mark.parametrize(
    ("header", "field", "word"),
    [
        ("# Dimensions\n4 4 1 3\n", None, "384"),
        ("# Dimensions\n4 4 1 1\n", None, "128"),
        ("# Dimensions\n999999999999999999 9999999999999999 4 2\n", None, "6399999"),
        ("# Dimensions\n4 4 0 2\n", "x.hdr", "at least 1"),
        ("# Dimensions\n4 4 1 -2\n", "x.hdr", "at most 16"),
        ("# Dimensions\n4 4 1 2 x\n", "x.hdr", "at most 16"),
        (f"# Dimensions\n{'9' * 5000}\n", "x.hdr", "at most 16"),
        (f"# Dimensions\n4 4 1 2{' 1' * 13}\n", "x.hdr", "at most 16"),
        ("# Dimensions\n\n", "x.hdr", "at most 16"),
        ("# Dimensions", "x.hdr", "at most 16"),
        ("just text", "x.hdr", "at most 16"),
        ("", "x.hdr", "empty"),
        ("# Dimensions\n4 4 1 1 2\n", "x.hdr", "maps"),
        ("# Dimensions\n4 4 1 1 1 1 2\n", "x.hdr", "maps"),
    ],
)
def test_headers_are_not_believed(tmp_path, gaussian, header, field, word, refuse):
    refuse(write(tmp_path / "x.cfl", gaussian(4, 4, 1, 2), header), word, field=field)


@pytest.mark.parametrize(("given", "named"), [("x.cfl", "x.cfl: expected"), ("x.hdr", "x.hdr: x.cfl: expected")])
def test_data_cut_short_are_named_once(tmp_path, gaussian, given, named):
    write(tmp_path / "x.cfl", gaussian(4, 4, 1, 2), "# Dimensions\n4 4 1 3\n")
    with pytest.raises(InputError) as error:
        load(tmp_path / given)
    assert str(error.value).removeprefix(f"{tmp_path}/").startswith(named)


def test_what_is_missing_is_named(tmp_path, gaussian, refuse):
    path = write(tmp_path / "x.cfl", gaussian(4, 4, 1, 2))
    path.rename(tmp_path / "y.cfl")
    refuse(tmp_path / "y.cfl", field="y.hdr")
    refuse(tmp_path / "x.hdr", field="x.cfl")
    path.mkdir()
    refuse(tmp_path / "x.hdr", field="x.cfl")


def test_values_that_are_none_are_refused(tmp_path, gaussian, refuse):
    kspace = gaussian(4, 4, 1, 2)
    kspace[0, 0] = np.nan
    refuse(write(tmp_path / "x.cfl", kspace), "finite", field="kspace")
    assert not load(write(tmp_path / "y.cfl", 0 * gaussian(4, 4, 1, 2))).mask.any()
