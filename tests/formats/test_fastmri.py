"""fastMRI files as the data set's documentation describes them, tiny, and what a hostile one could look like."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
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
from upmri.physics.fourier import fft2c, ifft2c

XML = """<?xml version="1.0" encoding="utf-8"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <measurementInformation><protocolName>AXT2</protocolName></measurementInformation>
  <encoding>
    <trajectory>cartesian</trajectory>
    <encodedSpace>
      <matrixSize><x>{encoded[0]}</x><y>{encoded[1]}</y><z>1</z></matrixSize>
      <fieldOfView_mm><x>{fov[0]}</x><y>{fov[1]}</y><z>7.5</z></fieldOfView_mm>
    </encodedSpace>
    <reconSpace>
      <matrixSize><x>{recon[0]}</x><y>{recon[1]}</y><z>1</z></matrixSize>
      <fieldOfView_mm><x>220</x><y>220</y><z>5</z></fieldOfView_mm>
    </reconSpace>
    <encodingLimits>
      <kspace_encoding_step_0><minimum>0</minimum><maximum>1</maximum><center>0</center></kspace_encoding_step_0>
      <kspace_encoding_step_1>
        <minimum>0</minimum><maximum>{maximum}</maximum><center>{center}</center>
      </kspace_encoding_step_1>
    </encodingLimits>
  </encoding>
</ismrmrdHeader>"""

SLICES, COILS, READOUT, COLUMNS = 3, 4, 32, 22
ROWS = 16  # without oversampling
LEFT, RIGHT = 3, 19  # measured columns: 22 // 2 − 8, and 16 of them


def header(**changes: Any) -> str:
    fields = {"encoded": (READOUT, COLUMNS), "recon": (ROWS, COLUMNS), "fov": (440, 242), "maximum": 15, "center": 8}
    return XML.format(**(fields | changes))


def rss(kspace: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """What fastMRI stores: the root sum of squares of the coil images, cropped to the centre."""
    image = ifft2c(torch.from_numpy(kspace)).abs().square().sum(1).sqrt().numpy()
    top, left = (image.shape[1] - rows) // 2, (image.shape[2] - columns) // 2
    return image[:, top : top + rows, left : left + columns]


def write(path: Path, kspace: np.ndarray, xml: str | None = None, **arrays: Any) -> Path:
    """Write a file in the way the data set was written: with text of variable length."""
    with h5py.File(path, "w") as file:
        file["ismrmrd_header"] = header() if xml is None else xml
        file["kspace"] = kspace
        for name, array in arrays.items():
            file[name] = array
        file.attrs["acquisition"], file.attrs["patient_id"] = "AXT2", "0a1b2c"
        if "reconstruction_rss" in arrays:
            file.attrs["max"], file.attrs["norm"] = arrays["reconstruction_rss"].max(), 1.5
    return path


@pytest.fixture
def kspace(gaussian):
    kspace = gaussian(SLICES, COILS, READOUT, COLUMNS)
    kspace[..., :LEFT] = kspace[..., RIGHT:] = 0
    return kspace


@pytest.fixture
def path(tmp_path, kspace):
    return write(tmp_path / "file_brain_AXT2_1.h5", kspace, reconstruction_rss=rss(kspace, ROWS, COLUMNS))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_training_file_becomes_a_scan(path, kspace):
    scan = load(path)
    assert scan.kspace.shape == (SLICES, COILS, ROWS, COLUMNS)
    assert scan.mask.shape == (SLICES, 1, COLUMNS)
    assert scan.mask[:, 0].tolist() == [[LEFT <= column < RIGHT for column in range(COLUMNS)]] * SLICES
    assert scan.spacing == (440 / READOUT, 242 / COLUMNS, 5.0)
    assert load(path, "::2").spacing == (440 / READOUT, 242 / COLUMNS, 10.0)
    assert scan.name == "file_brain_AXT2_1"
    assert scan.meta["acquisition"] == "AXT2"
    assert scan.meta["padding"] == [LEFT, RIGHT]
    assert scan.meta["recon_matrix"] == [ROWS, COLUMNS]
    assert scan.meta["norm"] == 1.5
    np.testing.assert_array_equal(scan.reference, rss(kspace, ROWS, COLUMNS))
    image = ifft2c(torch.from_numpy(kspace))[:, :, ROWS // 2 : -ROWS // 2]
    torch.testing.assert_close(ifft2c(scan.kspace), image)


def test_the_patient_stays_out(path):
    scan = load(path)
    assert "0a1b2c" not in json.dumps(scan.meta) + scan.name
    assert "patient" not in json.dumps(scan.meta)


def test_a_source_knows_its_size_and_reads_slice_by_slice(path, monkeypatch):
    whole = load(path)
    read: list[tuple[str, int]] = []
    honest = StoredArray.read

    def spy(stored, *part, **options):
        array = honest(stored, *part, **options)
        read.append((stored.name, len(array)))
        return array

    with open_source(path) as source:
        assert (source.slices, source.coils, source.matrix) == (SLICES, COILS, (ROWS, COLUMNS))
        assert source.format == "fastMRI HDF5"
        monkeypatch.setattr(StoredArray, "read", spy)
        one = source.read(1)
    assert read == [("kspace", 1), ("reconstruction_rss", 1)]
    assert torch.equal(one.kspace, whole.kspace[1:2])
    assert torch.equal(one.reference, whole.reference[1:2])
    assert torch.equal(load(path, "::2").kspace, whole.kspace[::2])
    assert torch.equal(load(path, -1).mask, whole.mask[-1:])


def test_what_is_loaded_can_be_saved(path, tmp_path):
    scan = load(path)
    again = load(scan.save(tmp_path / "again.h5"))
    assert torch.equal(again.kspace, scan.kspace)
    assert again.meta == scan.meta


def test_without_oversampling_nothing_is_touched(tmp_path, kspace):
    small = np.ascontiguousarray(kspace[:, :, :ROWS])
    for recon in (ROWS, 2 * ROWS):  # or with a reconstruction on a finer grid than was measured
        write(tmp_path / "x.h5", small, header(encoded=(ROWS, COLUMNS), recon=(recon, COLUMNS)))
        np.testing.assert_array_equal(load(tmp_path / "x.h5").kspace, small)


@pytest.mark.parametrize("dtype", [bool, np.float32, np.uint8])
def test_a_test_file_has_a_mask_and_no_reference(tmp_path, kspace, dtype):
    mask = np.zeros(COLUMNS, dtype)
    mask[::2] = 1  # among them columns of the padding
    scan = load(write(tmp_path / "x.h5", kspace * (mask != 0), mask=mask))
    assert scan.reference is None
    assert scan.mask[0, 0].nonzero().flatten().tolist() == [4, 6, 8, 10, 12, 14, 16, 18]
    assert "max" not in scan.meta


def test_a_column_of_zeros_is_not_sampled(tmp_path, kspace):
    kspace[1, :, :, 5] = 0
    scan = load(write(tmp_path / "x.h5", kspace))
    assert [int(mask.sum()) for mask in scan.mask] == [16, 15, 16]


def test_columns_outside_the_limits_are_left_out(tmp_path, kspace):
    kspace[1, 2, 3, LEFT - 1] = 1
    scan = load(write(tmp_path / "x.h5", kspace))
    assert scan.meta["discarded_columns"] == 1
    assert not scan.mask[..., :LEFT].any()
    assert not scan.kspace[..., :LEFT].any()


def test_a_cropped_reference_is_completed(tmp_path, kspace):
    # As in knee files: 368 columns were measured, the reference shows the middle 320.
    stored = rss(kspace, ROWS, 18)
    scan = load(write(tmp_path / "x.h5", kspace, header(recon=(ROWS, 18)), reconstruction_rss=stored))
    assert scan.reference.shape == (SLICES, ROWS, COLUMNS)
    torch.testing.assert_close(scan.reference[:, :, 2:-2].real, torch.from_numpy(stored))
    np.testing.assert_allclose(scan.reference.real, rss(kspace, ROWS, COLUMNS), rtol=1e-5)
    assert scan.meta["recon_matrix"] == [ROWS, 18]


def test_a_reference_of_other_data_is_left_out(tmp_path, kspace):
    stored = rss(kspace, ROWS, 18)
    kspace[..., ::2] = 0  # undersampled afterwards: its own image is no reference
    scan = load(write(tmp_path / "x.h5", kspace, header(recon=(ROWS, 18)), reconstruction_rss=stored))
    assert scan.reference is None
    assert "reconstruction_rss (16, 18)" in scan.meta["reference"]
    # A reference with more columns than k-space (some FLAIR files) is judged on what both have.
    wide = np.pad(rss(kspace, ROWS, COLUMNS), ((0, 0), (0, 0), (2, 2)))
    scan = load(write(tmp_path / "x.h5", kspace, header(recon=(ROWS, 26)), reconstruction_rss=wide))
    np.testing.assert_allclose(scan.reference.real, rss(kspace, ROWS, COLUMNS), rtol=1e-5)


def test_an_object_comes_back_where_and_as_it_was(tmp_path):
    """Simulate, oversample the readout, pad the columns, write, load, reconstruct: place, orientation and scale."""
    rows, columns, at = 40, 38, 3
    y, x = np.mgrid[:rows, :columns]
    blobs = ((12, 14, 3, 1.0), (24, 22, 5, 0.5))  # of different size and height, so that no flip goes unseen
    image = sum(height * np.exp(-((y - v) ** 2 + (x - u) ** 2) / (2 * r**2)) for v, u, r, height in blobs)
    truth = upmri.simulate(np.stack([image, image / 2]), coils=6, acceleration=1, noise=0, seed=1)
    wide = torch.zeros(2, 6, 2 * rows, columns, dtype=torch.complex64)
    wide[:, :, rows // 2 : -rows // 2] = ifft2c(truth.kspace)
    kspace = fft2c(wide).numpy()
    kspace[..., :at] = kspace[..., -at:] = 0
    xml = header(encoded=(2 * rows, columns), recon=(rows, 32), maximum=columns - 2 * at - 1, center=columns // 2 - at)
    scan = load(write(tmp_path / "x.h5", kspace, xml, reconstruction_rss=rss(kspace, rows, 32)))
    assert scan.meta["padding"] == [at, columns - at]
    assert int(scan.mask[0].sum()) == columns - 2 * at
    rec = upmri.reconstruct(replace(scan, maps=truth.maps), "sense")
    assert (rec.image - truth.reference).norm() < 0.01 * truth.reference.norm()
    assert upmri.evaluate(rec)["psnr"] > 40  # against the file's reference, completed
    assert upmri.evaluate(upmri.reconstruct(scan, "sense"))["psnr"] > 30  # with maps of its own


# --- text of variable length ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("kind", [str, np.bytes_])
def test_text_is_read_however_it_is_stored(tmp_path, kspace, libver, kind):
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        for index in range(30):  # more than fit into the first block of attributes
            file.attrs[f"text{index}"] = f"Größe {index}"
        file.attrs["acquisition"] = kind("CORPDFS_FBK")
        file["before"], file["kspace"], file["ismrmrd_header"] = "a" * 5001, kspace, kind(header())
    meta = load(tmp_path / "x.h5").meta
    assert meta["padding"] == [LEFT, RIGHT]
    # Attributes of variable length are looked for only where HDF5 puts them by default.
    assert meta.get("acquisition") == (None if libver == "latest" and kind is str else "CORPDFS_FBK")


def test_a_header_in_an_array_of_one_is_read(tmp_path, kspace):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["kspace"], file["ismrmrd_header"] = kspace, [header()]
    assert load(tmp_path / "x.h5").meta["padding"] == [LEFT, RIGHT]


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, b"ABCD"),
        (4, b"\2"),
        (8, bytes(8)),
        (8, b"\xff" * 8),
        (16, bytes(2)),
        (16, bytes(16)),  # HDF5 itself would not come to an end here
        (16, struct.pack("<H", 7)),
        (24, bytes(8)),
        (24, b"\xff" * 8),
        (24, struct.pack("<Q", 2**64 - 16)),  # nor here
        (32, b"\xff\xfe"),
        (32, b"<<"),
    ],
)
def test_a_damaged_heap_is_refused(path, offset, value, refuse):
    raw = bytearray(path.read_bytes())
    at = raw.find(b"GCOL") + offset
    raw[at : at + len(value)] = value
    path.write_bytes(raw)
    refuse(path, field="ismrmrd_header" if offset == 32 else "variable-length data")


@pytest.mark.parametrize(
    ("reference", "field", "word"),
    [
        ((2**32 - 1, 0, 1), "ismrmrd_header", "4 GiB"),
        ((100, 2**64 - 1, 1), "variable-length data", "beyond"),
        ((100, 2**40, 1), "variable-length data", "beyond"),
        ((100, 0, 1), "variable-length data", "to 0,"),
        ((0, 0, 0), "ismrmrd_header", "no element"),
    ],
)
def test_a_damaged_reference_to_text_is_refused(path, reference, field, word, refuse):
    with h5py.File(path) as file:
        at = h5py.h5o.open(file.id, b"ismrmrd_header").get_offset()
    raw = bytearray(path.read_bytes())
    raw[at : at + 16] = struct.pack("<IQI", *reference)
    path.write_bytes(raw)
    refuse(path, word, field=field)


def test_a_heap_of_nothings_ends(tmp_path, kspace, refuse):
    # A heap as long as the file, of objects without content: a walk over all of it would take minutes.
    path = write(tmp_path / "x.h5", kspace)
    with h5py.File(path) as file:
        at = h5py.h5o.open(file.id, b"ismrmrd_header").get_offset()
    raw = bytearray(path.read_bytes())
    nothings = struct.pack("<HHIQ", 5, 1, 0, 0) * 2**17
    raw[at : at + 16] = struct.pack("<IQI", 100, len(raw), 9)
    path.write_bytes(raw + b"GCOL\1\0\0\0" + struct.pack("<Q", 16 + len(nothings)) + nothings)
    refuse(path, "object 9", field="variable-length data")


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


# --- what is refused --------------------------------------------------------------------------------------------------


BOMB = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
BOMB = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "ha">{BOMB}]><x>&a9;</x>'


@pytest.mark.parametrize(
    ("xml", "field", "word"),
    [
        (BOMB, "ismrmrd_header", "DOCTYPE"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', "ismrmrd_header", "DOCTYPE"),
        ("", "ismrmrd_header", "no element"),
        ("no XML", "ismrmrd_header", "syntax"),
        ("<a>" * 300_000, "ismrmrd_header", "no element"),
        ("<a>" * 100_000 + "</a>" * 100_000, "ismrmrd_header", "<a>"),
        ("<x/>", "ismrmrd_header", "<x>"),
        ("<ismrmrdHeader/>", "ismrmrd_header", "number 0"),
        (
            "<ismrmrdHeader><encoding/></ismrmrdHeader>",
            "ismrmrd_header.reconSpace/matrixSize/x",
            "''",
        ),
        ("<x>" + " " * 2**20 + "</x>", "ismrmrd_header", "limit"),
        (header(encoded=(READOUT, -4)), "ismrmrd_header.encodedSpace/matrixSize/y", "'-4'"),
        (header(encoded=(READOUT, "9" * 5000)), "ismrmrd_header.encodedSpace/matrixSize/y", "999"),
        (header(recon=(0, COLUMNS)), "ismrmrd_header.reconSpace/matrixSize/x", "'0'"),
        (header(recon=("١٢", COLUMNS)), "ismrmrd_header.reconSpace/matrixSize/x", "١٢"),
        (header(maximum=10**6), "ismrmrd_header.encodingLimits/kspace_encoding_step_1/maximum", "from 0"),
        (header(center=""), "ismrmrd_header.encodingLimits/kspace_encoding_step_1/center", "''"),
        (header(center=12), "ismrmrd_header.encodingLimits", "-1 to 15"),
        (header(center=0, encoded=(READOUT, 60000)), "ismrmrd_header.encodingLimits", "30000"),
    ],
)
def test_a_header_that_is_wrong_is_refused(tmp_path, kspace, xml, field, word, refuse):
    refuse(write(tmp_path / "x.h5", kspace, xml), word, field=field)


def test_utf16_does_not_hide_entities(tmp_path, kspace, refuse):
    write(tmp_path / "x.h5", kspace)
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        del file["ismrmrd_header"]
        file["ismrmrd_header"] = np.bytes_(BOMB.encode("utf-16"))
    refuse(tmp_path / "x.h5", "utf-8", field="ismrmrd_header")


@pytest.mark.parametrize("fov", [(0, 0), ("nan", 1), ("1e999", 1), ("wide", 1)])
def test_without_a_field_of_view_there_is_no_spacing(tmp_path, kspace, fov):
    assert load(write(tmp_path / "x.h5", kspace, header(fov=fov))).spacing is None


def test_limits_beyond_the_last_column_end_there(tmp_path, kspace):
    # fastMRI's own code lets them.
    assert load(write(tmp_path / "x.h5", kspace, header(maximum=40))).meta["padding"] == [LEFT, COLUMNS]


def remove(name: str, then=lambda *_: None):
    def tamper(file: h5py.File, other: Path) -> None:
        del file[name]
        then(file, other)

    return tamper


def virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((SLICES, COILS, READOUT, COLUMNS), np.complex64)
    layout[:] = h5py.VirtualSource(str(other), "kspace", layout.shape)
    file.create_virtual_dataset("kspace", layout)


SHAPE = (SLICES, COILS, READOUT, COLUMNS)


@pytest.mark.parametrize(
    ("tamper", "field", "word"),
    [
        (remove("ismrmrd_header"), "ismrmrd_header", "there is none"),
        (remove("ismrmrd_header", lambda f, _: f.create_group("ismrmrd_header")), "ismrmrd_header", "one text"),
        (
            remove("ismrmrd_header", lambda f, _: f.create_dataset("ismrmrd_header", data=[1.0])),
            "ismrmrd_header",
            "one text",
        ),
        (
            remove("ismrmrd_header", lambda f, _: f.create_dataset("ismrmrd_header", data=["a", "b"])),
            "ismrmrd_header",
            "one text",
        ),
        (
            remove("ismrmrd_header", lambda f, o: f.__setitem__("ismrmrd_header", h5py.ExternalLink(str(o), "/x"))),
            "ismrmrd_header",
            "leads",
        ),
        (
            remove("kspace", lambda f, o: f.__setitem__("kspace", h5py.ExternalLink(str(o), "kspace"))),
            "kspace",
            "leads",
        ),
        (remove("kspace", virtual), "kspace", "lies in"),
        (
            remove(
                "kspace",
                lambda f, o: f.create_dataset("kspace", SHAPE, "c8", external=[(str(o), 0, h5py.h5f.UNLIMITED)]),
            ),
            "kspace",
            "lies in",
        ),
        (
            remove("kspace", lambda f, _: f.create_dataset("kspace", (SLICES, 100, 10**5, 10**5), "c8", chunks=True)),
            "kspace",
            "64 times",
        ),
        (
            remove("kspace", lambda f, _: f.create_dataset("kspace", SHAPE, "f4")),
            "kspace",
            "float32",
        ),
        (remove("kspace", lambda f, _: f.create_dataset("kspace", SHAPE[1:], "c8")), "kspace", "(4, 32, 22)"),
        (remove("kspace", lambda f, _: f.create_dataset("kspace", (0, *SHAPE[1:]), "c8")), "kspace", "(0, 4, 32, 22)"),
        (
            remove("kspace", lambda f, _: f.create_dataset("kspace", SHAPE, "c8")),
            "mask",
            "slice 0, 1, 2",
        ),
        (lambda f, _: f["kspace"].write_direct(np.full(SHAPE, np.nan, np.complex64)), "kspace", "finite"),
        (
            remove("kspace", lambda f, _: f.create_dataset("kspace", data=np.full(SHAPE, 1e300 + 0j))),
            "kspace",
            "finite",
        ),
        (lambda f, _: f.create_dataset("mask", data=np.ones(COLUMNS + 1)), "mask", "22 numbers"),
        (lambda f, _: f.create_dataset("mask", (10**7, 10**6), "u1", chunks=True), "mask", "64 times"),
        (lambda f, _: f.create_dataset("mask", data=np.arange(COLUMNS) % 2 == 0), "mask", "not 0"),
        (
            remove("reconstruction_rss", lambda f, _: f.create_dataset("reconstruction_rss", (2, ROWS, COLUMNS), "f4")),
            "reconstruction_rss",
            "float32 (2,",
        ),
        (
            remove("reconstruction_rss", lambda f, _: f.create_dataset("reconstruction_rss", (3, ROWS, COLUMNS), "c8")),
            "reconstruction_rss",
            "complex64",
        ),
        (
            remove(
                "reconstruction_rss",
                lambda f, _: f.create_dataset("reconstruction_rss", (3, 10**6, 10**6), "f4", chunks=True),
            ),
            "reconstruction_rss",
            "64 times",
        ),
        (
            lambda f, _: f["reconstruction_rss"].write_direct(np.full((SLICES, ROWS, COLUMNS), np.inf, np.float32)),
            "reference",
            "finite",
        ),
    ],
)
def test_what_is_wrong_inside_is_named(path, tmp_path, kspace, tamper, field, word, refuse):
    other = write(tmp_path / "other.h5", kspace)
    with h5py.File(path, "r+") as file:
        tamper(file, other)
    refuse(path, word, field=field)


def test_files_cut_short_are_refused_wherever_they_end(path, refuse):
    whole = path.read_bytes()
    for length in (1, 8, 100, 2000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refuse(path)


def test_attributes_that_are_odd_are_no_reason_to_refuse(path):
    with h5py.File(path, "r+") as file:
        file.attrs["max"], file.attrs["norm"], file.attrs["acquisition"] = np.nan, [1.0, 2.0], 3
    assert load(path).meta.keys() & {"max", "norm", "acquisition"} == set()


@pytest.mark.soak
def test_one_slice_of_three_gigabytes_is_cheap(tmp_path, fresh):
    """Only one slice is written; the rest of the file is a hole."""
    shape = (64, 20, 768, 396)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["ismrmrd_header"] = header(encoded=(768, 396), recon=(384, 384), maximum=395, center=198)
        kspace = file.create_dataset("kspace", shape, np.complex64)
        kspace[20] = np.ones(shape[1:], np.complex64)
        file.create_dataset("reconstruction_rss", (64, 384, 384), np.float32)[20] = 1
    assert (tmp_path / "x.h5").stat().st_size > 3e9
    code = """if True:
        import re, sys
        import h5py, torch, upmri
        from upmri.formats import open_source
        with open_source(sys.argv[1]) as source:
            assert source.read(20).matrix == (384, 396)
        # `resource` would give the memory of the parent process, if that is more.
        print(*re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()))
    """
    (kib,) = fresh(code, tmp_path / "x.h5").stdout.split()
    assert int(kib) < 2**20
