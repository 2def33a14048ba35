from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from upmri import InputError, Reconstruction, Scan, load
from upmri.formats import load_reconstruction, open_source, save

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
complexes = st.complex_numbers(width=64, allow_nan=False, allow_infinity=False)
samples = st.complex_numbers(width=64, max_magnitude=1e15, allow_nan=False)  # larger ones cannot be squared
json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
meta = st.dictionaries(st.text(), json_like, max_size=3)
spacing = st.none() | st.tuples(*[st.floats(1e-3, 1e3)] * 3)
shapes = st.tuples(*[st.integers(1, 4)] * 4)


def array(draw: st.DrawFn, shape: tuple[int, ...], elements=complexes, dtype=np.complex64):
    return draw(hnp.arrays(dtype, shape, elements=elements))


@st.composite
def scans(draw: st.DrawFn) -> Scan:
    n, _, h, w = shape = draw(shapes)
    kspace = array(draw, shape, samples)
    kspace[:, 0, :, 0] = 1  # some of every slice is sampled
    points = draw(st.booleans())
    mask = (kspace != 0).any(1) if points else (kspace != 0).any((1, 2))[:, None]
    return Scan(
        kspace=kspace,
        mask=draw(st.sampled_from([None, mask])),
        maps=array(draw, shape) if draw(st.booleans()) else None,
        reference=array(draw, (n, h, w)) if draw(st.booleans()) else None,
        noise=draw(st.none() | st.floats(0, 1e300)),
        spacing=draw(spacing),
        name=draw(st.text()),
        meta=draw(meta),
    )


@st.composite
def reconstructions(draw: st.DrawFn) -> Reconstruction:
    shape = draw(shapes)[1:]
    return Reconstruction(
        image=array(draw, shape),
        samples=array(draw, (2, *shape)) if draw(st.booleans()) else None,
        std=array(draw, shape, st.floats(0, 8, width=32), np.float32) if draw(st.booleans()) else None,
        reference=array(draw, shape) if draw(st.booleans()) else None,
        method=draw(st.text()),
        settings=draw(meta),
        seconds=draw(st.floats(0, 1e9)),
        versions=draw(st.dictionaries(st.text(), st.text(), max_size=2)),
        spacing=draw(spacing),
        name=draw(st.text()),
        meta=draw(meta),
    )


def assert_same(a: object, b: object) -> None:
    """Every field equal to the last bit, signs of zero and Nones included."""
    assert vars(a).keys() == vars(b).keys()
    for name, value in vars(a).items():
        other = vars(b)[name]
        if isinstance(value, torch.Tensor):
            assert value.dtype == other.dtype, name
            assert value.shape == other.shape, name
            assert value.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes(), name
        else:
            assert repr(value) == repr(other), name  # repr distinguishes 1, True and 1.0, and -0.0 and 0.0


@given(scan=scans())
def test_a_scan_comes_back_bit_for_bit(scan, tmp_path_factory):
    path = tmp_path_factory.mktemp("scan") / "x.h5"
    assert scan.save(path) == path
    assert_same(load(path), scan)
    assert_same(load(path, -1), scan[-1])


@given(rec=reconstructions())
def test_a_reconstruction_comes_back_bit_for_bit(rec, tmp_path_factory):
    path = tmp_path_factory.mktemp("rec") / "x.h5"
    assert rec.save(path) == path
    assert_same(load_reconstruction(path), rec)


def test_a_reconstruction_of_before_versions_were_written_is_read(tmp_path, rec):
    save(rec, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        header = json.loads(file["header"][()])
        del header["versions"], file["header"]
        file["header"] = np.bytes_(json.dumps(header).encode())
    assert_same(load_reconstruction(tmp_path / "x.h5"), replace(rec, versions={}))


def test_strided_and_conjugated_tensors_are_written_as_they_read(tmp_path, gaussian):
    kspace = torch.from_numpy(gaussian(4, 6, 3, 5)).conj().permute(0, 2, 1, 3)
    scan = Scan(kspace=kspace)
    scan.save(tmp_path / "x.h5")
    assert torch.equal(load(tmp_path / "x.h5").kspace, kspace.resolve_conj())


def test_slices_are_read_as_a_list_would_give_them(tmp_path, scan):
    scan.save(tmp_path / "x.h5")
    assert_same(load(tmp_path / "x.h5", "1:5:2"), scan[1:5:2])
    with open_source(tmp_path / "x.h5") as source:
        assert (source.slices, source.coils, source.matrix, source.name) == (5, 3, (8, 6), "x")
        for index in range(source.slices):
            assert_same(source.read(index), scan[index])


@pytest.mark.skipif(sys.platform != "linux", reason="counts the bytes read in /proc")
def test_one_slice_costs_one_slice(tmp_path, gaussian):
    Scan(kspace=gaussian(32, 4, 64, 64)).save(tmp_path / "x.h5")
    one = 4 * 64 * 64 * 8

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    with open_source(tmp_path / "x.h5") as source:
        before = bytes_read()
        source.read(slice(20, 21))
        assert one <= bytes_read() - before < 2 * one


def test_forty_gigabytes_are_no_burden_when_one_slice_is_asked_for(tmp_path, gaussian, refused):
    Scan(kspace=gaussian(1, 2, 64, 64)).save(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        for name in ("kspace", "mask"):
            data = file[name][:]
            del file[name]
            shape = (700_000, *data.shape[1:])
            file.create_dataset(name, shape, data.dtype, fill_time="never")[7] = data[0]  # the rest are holes on disk
    assert torch.equal(load(tmp_path / "x.h5", 7).kspace, torch.from_numpy(gaussian(1, 2, 64, 64)))
    with refused("8 GiB", field="700000 of 700000 slices", path=tmp_path / "x.h5"):
        load(tmp_path / "x.h5", max_bytes=8 * 2**30)
    with refused("limit", field="3 of 700000 slices", path=tmp_path / "x.h5"):
        load(tmp_path / "x.h5", "7:10", max_bytes=2**17)


def test_scans_and_reconstructions_are_distinguished(tmp_path, scan, rec, refused):
    scan.save(tmp_path / "scan.h5")
    save(rec, tmp_path / "rec.h5")
    with refused("got reconstruction", path=tmp_path / "rec.h5"):
        load(tmp_path / "rec.h5")
    with refused("got scan", path=tmp_path / "scan.h5"):
        load_reconstruction(tmp_path / "scan.h5")
    np.save(tmp_path / "x.npy", scan.kspace.numpy())
    with pytest.raises(InputError) as error:
        load_reconstruction(tmp_path / "x.npy")
    assert error.value.path == str(tmp_path / "x.npy")


def test_a_flipped_bit_is_an_error(tmp_path, scan):
    scan.save(tmp_path / "x.h5")
    raw = (tmp_path / "x.h5").read_bytes()
    at = raw.index(scan.kspace[2].numpy().tobytes())
    (tmp_path / "x.h5").write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    load(tmp_path / "x.h5", 1)
    with pytest.raises(InputError) as error:
        load(tmp_path / "x.h5", 2)
    assert (error.value.path, error.value.field) == (str(tmp_path / "x.h5"), "kspace")


def test_the_suffix_of_a_scan_is_h5(tmp_path, scan):
    with pytest.raises(InputError) as error:
        scan.save(tmp_path / "x.npy")
    assert error.value.path == str(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("change", "field", "word"),
    [
        (lambda f: f.attrs.modify("version", 2), "version", "got 2"),
        (lambda f: f.attrs.create("version", "1"), "version", "fixed length"),
        (lambda f: f.__delitem__("header"), "header", "text"),
        (
            lambda f: (f.__delitem__("header"), f.__setitem__("header", np.bytes_(b"{}"))),
            "header",
            "noise, spacing, name, meta",
        ),
        (lambda f: (f.__delitem__("header"), f.__setitem__("header", np.bytes_(b"[" * 99999))), "header", "damaged"),
        (lambda f: f.__delitem__("kspace"), "kspace", "4 axes"),
        (lambda f: f.__delitem__("mask"), "mask", "3 axes"),
        (lambda f: (f.__delitem__("mask"), f.__setitem__("mask", np.ones((9, 1, 6), bool))), "mask", "5 slices"),
        (lambda f: (f.__delitem__("maps"), f.__setitem__("maps", np.ones((5, 3, 8, 6)))), "maps", "float64"),
        (lambda f: (f.__delitem__("maps"), f.create_group("maps")), "maps", "group"),
        (lambda f: f["kspace"].write_direct(np.full((5, 3, 8, 6), np.nan, np.complex64)), "kspace", "finite"),
    ],
)
def test_what_is_wrong_inside_is_named(tmp_path, scan, change, field, word, refuse):
    scan.save(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        change(file)
    refuse(tmp_path / "x.h5", word, field=field)


def test_a_header_that_could_not_be_read_is_not_written(tmp_path, scan):
    huge = Scan(kspace=scan.kspace, meta={"x": "a" * 2**24})
    with pytest.raises(InputError) as error:
        huge.save(tmp_path / "x.h5")
    assert error.value.field == "meta"
    assert not list(tmp_path.iterdir())


FILL = """
import resource, signal, sys
import torch, upmri
from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction
scan = upmri.simulate(torch.ones(8, 32, 32), coils=4, acceleration=1.5)
rec = Reconstruction(image=torch.ones(8, 32, 32, dtype=torch.complex64), method="zero-filled")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in map(int, sys.argv[1:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
    for item, name in ((scan, "scan.h5"), (rec, "rec.h5")):
        try:
            item.save(name, overwrite=True)
        except InputError as error:
            assert "File too large" in error.message, error
            assert error.path == name, error
        else:
            raise AssertionError(limit)
"""


def test_a_full_disk_does_not_crash_hdf5(tmp_path, fresh):
    limits = [0, 1, 100, 1000, 4000, 20000, 50000]
    done = fresh(FILL, *limits, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
